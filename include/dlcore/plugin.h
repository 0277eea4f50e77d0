/* Plugins: the one symbol a shared object exports, what it carries, and the
 * services that the host hands it.
 *
 * A plugin is a shared object that exports constant data only:
 *
 *     const dlc_plugin dlc_plugin_v1 = {
 *         .size = sizeof(dlc_plugin), .abi_minor = DLC_ABI_MINOR,
 *         .name = "sgd", .version = "1.0", .license = "BSD-2-Clause",
 *         .features = features,
 *     };
 *
 * Inspecting a plugin reads this and runs none of its code.
 *
 * Growth. The major version stands in the symbol's name and changes never or
 * with a new symbol. Every struct that may grow starts with its `size`, set by
 * whoever fills it in; fields are only ever appended. A reader uses a field only
 * where the size covers it (DLC_HAS), and an optional call only where it is not
 * NULL. Arrays of such structs are walked by the `size` of their elements
 * (DLC_NEXT), never by the reader's sizeof. Unknown `caps` bits are ignored,
 * unknown `needs` bits refuse the feature.
 */
#ifndef DLCORE_PLUGIN_H
#define DLCORE_PLUGIN_H

#include <dlcore/status.h>
#include <dlcore/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DLC_ABI_MAJOR 1
#define DLC_ABI_MINOR 0
#define DLC_PLUGIN_SYMBOL "dlc_plugin_v1"

/* Does the struct that `ptr` points to reach as far as `field`? */
#define DLC_HAS(ptr, field) \
    ((ptr) && (ptr)->size >= offsetof(__typeof__(*(ptr)), field) + sizeof(ptr)->field)
/* ... and is that call there? */
#define DLC_CAN(ptr, call) (DLC_HAS(ptr, call) && (ptr)->call != NULL)
/* The element behind `ptr` in an array of growing structs. */
#define DLC_NEXT(ptr) \
    ((__typeof__(ptr))(const void *)((const char *)(ptr) + (ptr)->size))

/* ---- Options ------------------------------------------------------------- */

typedef enum dlc_option_type {
    DLC_OPT_INT = 1,    /* whole number, min .. max */
    DLC_OPT_FLOAT = 2,  /* number, min .. max; "inf" where max is INFINITY */
    DLC_OPT_BOOL = 3,   /* true|false|yes|no|on|off|1|0 */
    DLC_OPT_STRING = 4, /* any text */
    DLC_OPT_CHOICE = 5, /* one of `choices`, names joined by '|' */
    DLC_OPT_PATH = 6,   /* a file or folder; relative to the INI's folder */
    DLC_OPT_INTS = 7,   /* whole numbers joined by commas, each min .. max */
    DLC_OPT_FLOATS = 8, /* numbers joined by commas, each min .. max */
    DLC_OPT_BYTES = 9,  /* a size: 65536, 64K, 16M, 2G */
    DLC_OPT_FILLER = 10 /* how parameters start: constant(0.1), gaussian(0.01),
                           uniform(-1, 1), xavier, msra */
} dlc_option_type;

enum {
    DLC_OPT_REQUIRED = 1u << 0, /* must be given; `def` is ignored */
    DLC_OPT_LIVE = 1u << 1,     /* may change while the job runs */
};

/* One row of an option table. The INI checker, --help, the manual pages and
 * `plugin inspect` are all made from it. A table ends with a row whose name is
 * NULL (its size is set all the same). */
typedef struct dlc_option {
    uint32_t size;
    uint32_t type;       /* dlc_option_type */
    uint32_t flags;      /* DLC_OPT_REQUIRED ... */
    const char *name;    /* lower case, digits, '_' */
    const char *def;     /* default, as text that passes this row's own check;
                            NULL: unset unless given */
    double min, max;     /* inclusive range of the numeric types */
    const char *choices; /* DLC_OPT_CHOICE: "max|average" */
    const char *help;    /* one line, no full stop */
} dlc_option;

#define DLC_OPTION(name_, type_, flags_, def_, min_, max_, choices_, help_) \
    { \
        .size = sizeof(dlc_option), .type = (type_), .flags = (flags_), \
        .name = (name_), .def = (def_), .min = (min_), .max = (max_), \
        .choices = (choices_), .help = (help_) \
    }
#define DLC_INT(name, def, min, max, help) \
    DLC_OPTION(name, DLC_OPT_INT, 0, def, min, max, NULL, help)
#define DLC_INT_REQUIRED(name, min, max, help) \
    DLC_OPTION(name, DLC_OPT_INT, DLC_OPT_REQUIRED, NULL, min, max, NULL, help)
#define DLC_FLOAT(name, def, min, max, help) \
    DLC_OPTION(name, DLC_OPT_FLOAT, 0, def, min, max, NULL, help)
#define DLC_BOOL(name, def, help) \
    DLC_OPTION(name, DLC_OPT_BOOL, 0, def, 0, 0, NULL, help)
#define DLC_STRING(name, def, help) \
    DLC_OPTION(name, DLC_OPT_STRING, 0, def, 0, 0, NULL, help)
#define DLC_CHOICE(name, def, choices, help) \
    DLC_OPTION(name, DLC_OPT_CHOICE, 0, def, 0, 0, choices, help)
#define DLC_PATH(name, def, help) \
    DLC_OPTION(name, DLC_OPT_PATH, 0, def, 0, 0, NULL, help)
#define DLC_PATH_REQUIRED(name, help) \
    DLC_OPTION(name, DLC_OPT_PATH, DLC_OPT_REQUIRED, NULL, 0, 0, NULL, help)
#define DLC_INTS(name, def, min, max, help) \
    DLC_OPTION(name, DLC_OPT_INTS, 0, def, min, max, NULL, help)
#define DLC_FLOATS(name, def, min, max, help) \
    DLC_OPTION(name, DLC_OPT_FLOATS, 0, def, min, max, NULL, help)
#define DLC_BYTES(name, def, min, max, help) \
    DLC_OPTION(name, DLC_OPT_BYTES, 0, def, min, max, NULL, help)
#define DLC_FILLER(name, def, help) \
    DLC_OPTION(name, DLC_OPT_FILLER, 0, def, 0, 0, NULL, help)
#define DLC_OPTIONS_END \
    { .size = sizeof(dlc_option), .name = NULL }

/* Settings of one feature, already checked against its option table: every
 * value is there (given or default) and in range. Read through the host table.
 * Owner: the host; valid until the object they were passed to is destroyed. */
typedef struct dlc_settings dlc_settings;

/* ---- Host services --------------------------------------------------------- */

typedef enum dlc_log_level {
    DLC_LOG_ERROR = 1,
    DLC_LOG_WARN = 2,
    DLC_LOG_INFO = 3,
    DLC_LOG_DEBUG = 4,
} dlc_log_level;

/* What the host offers a plugin. Valid from dlc_plugin.load until the process
 * ends. Every call may be made from any thread and does not block unless said. */
typedef struct dlc_host {
    uint32_t size;
    uint32_t abi_minor;

    /* One log line (no newline at the end). */
    void (*log)(dlc_log_level level, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

    /* Sets this thread's detail sentence (what was wrong, where, what to do) and
     * returns `status`: `return host->fail(DLC_ERR_DATA, "%s: ...", path);`
     * Whoever finds an error first calls this; callers pass the status on. */
    dlc_status (*fail)(dlc_status status, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

    /* Memory. alloc: zeroed, aligned to 64 bytes; NULL with the detail sentence
     * set when memory ran out. free: of alloc only; NULL is allowed. */
    void *(*alloc)(size_t bytes);
    void (*free)(void *memory);

    /* Settings, by the names of the option table. Asking for a name or type that
     * the table doesn't have is an error in the plugin: zero / NULL comes back and
     * an error is logged. Strings and lists live as long as the settings. */
    int64_t (*get_int)(const dlc_settings *settings, const char *name);
    double (*get_float)(const dlc_settings *settings, const char *name);
    int (*get_bool)(const dlc_settings *settings, const char *name);
    const char *(*get_string)(const dlc_settings *settings, const char *name);
    /* Lists: the count is returned, the values through `values` (may be NULL). */
    size_t (*get_ints)(const dlc_settings *settings, const char *name,
                       const int64_t **values);
    size_t (*get_floats)(const dlc_settings *settings, const char *name,
                         const double **values);
    /* Was it given (1), or is the value the default (0)? */
    int (*is_set)(const dlc_settings *settings, const char *name);
    /* Where it was given, for messages: "net.ini:12" or "--set"; never NULL. */
    const char *(*where)(const dlc_settings *settings, const char *name);

    /* Monotonic time in nanoseconds. */
    uint64_t (*now_ns)(void);
} dlc_host;

/* ---- The descriptor -------------------------------------------------------- */

typedef enum dlc_kind {
    DLC_KIND_DEVICE = 1,    /* ops: dlc_device_ops, <dlcore/device.h> */
    DLC_KIND_TRANSPORT = 2, /* ops: dlc_transport_ops, <dlcore/transport.h> */
    DLC_KIND_LAYER = 3,     /* ops: dlc_layer_ops, <dlcore/layer.h> */
    DLC_KIND_SOLVER = 4,    /* ops: dlc_solver_ops, <dlcore/solver.h> */
    DLC_KIND_DATA = 5,      /* ops: dlc_data_ops, <dlcore/data.h> */
} dlc_kind;

/* One thing a plugin can do. An array of features ends with one whose name is
 * NULL (its size is set all the same). */
typedef struct dlc_feature {
    uint32_t size;
    uint32_t kind;             /* dlc_kind */
    const char *name;          /* lower case, digits, '-' and '_' */
    const char *help;          /* one line, no full stop */
    const char *device;        /* device it works on, "cpu"; NULL: any */
    uint64_t caps;             /* capability bits of the kind's header */
    uint64_t needs;            /* what the host must offer; none are defined yet */
    const dlc_option *options; /* NULL: none */
    const void *ops;           /* operations of the kind */
} dlc_feature;

#define DLC_FEATURES_END \
    { .size = sizeof(dlc_feature), .name = NULL }

typedef struct dlc_plugin {
    uint32_t size;
    uint32_t abi_minor;          /* DLC_ABI_MINOR it was built with */
    const char *name;            /* lower case, digits, '-' and '_' */
    const char *version;         /* of the plugin */
    const char *license;         /* SPDX expression */
    const dlc_feature *features; /* constant */

    /* Optional. Called once a process, before anything else of the plugin, by the
     * thread that loads it; also in a process that only inspects the plugin and
     * ends after the answer. Keeps `host`, checks that the plugin can work here; if not
     * (no driver, no such instruction), returns DLC_ERR_UNAVAILABLE with a
     * sentence: the plugin is then listed with it and not called again. Must not
     * start threads. */
    dlc_status (*load)(const dlc_host *host);
} dlc_plugin;

/* What a plugin exports. */
#if defined(__GNUC__)
#define DLC_EXPORT __attribute__((visibility("default")))
#else
#define DLC_EXPORT
#endif
extern DLC_EXPORT const dlc_plugin dlc_plugin_v1;

#ifdef __cplusplus
}
#endif
#endif

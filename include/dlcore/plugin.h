/* Plugins: what a shared object exports, and the services that the host gives it.
 *
 * A plugin is a shared object that exports one symbol, which is constant data:
 *
 *     const dlc_plugin dlc_plugin_v0 = {
 *         .size = sizeof(dlc_plugin), .abi_minor = DLC_ABI_MINOR,
 *         .name = "sgd", .version = "1.0", .license = "BSD-2-Clause",
 *         .features = features, .load = load,
 *     };
 *
 * Each feature in its table is one thing that the plugin offers: a device, a transport,
 * a layer type, a solver, a consistency model, a data source or a decoder, with its
 * options and its table of calls. A plugin can be inspected by reading this data; none
 * of its code runs except load.
 *
 *     dlc_plugin                    needed    thread  may block
 *     load                          optional  one     no
 *
 *     dlc_host                      needed    thread  may block
 *     log fail alloc free
 *       get_int get_float get_bool
 *       get_string get_ints
 *       get_floats is_set where
 *       now_ns                      provided  any     no
 *
 * Versions. The major version is part of the name of the symbol. A struct that may grow
 * begins with `size`, which is set by the side that fills it in (or that provides the
 * memory, where the other side fills it in). Within a major version fields are only
 * appended. Read a field only if the size covers it (DLC_HAS), and call an optional
 * function only if it is also not NULL (DLC_CAN). Walk arrays of such structs by the
 * `size` of their elements (DLC_NEXT), not by sizeof. Unknown `caps` bits are ignored;
 * unknown `needs` bits cause the feature to be refused.
 *
 * All calls follow three rules. They return a status, and on failure set the detail
 * sentence of the thread (dlc_host.fail). Outputs come last and are written only on
 * success. A pointer that is passed in stays the caller's property and is valid during
 * the call, unless the comment of the call says otherwise. */
#ifndef DLCORE_PLUGIN_H
#define DLCORE_PLUGIN_H

#include <dlcore/status.h>
#include <dlcore/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface, which is a draft. A draft may change in any way with
 * its minor number, so dlcore refuses a plugin that was built with another draft. 1.0
 * will freeze the interface; the rules above hold from then on. */
#define DLC_ABI_MAJOR 0
#define DLC_ABI_MINOR 18

/* The name of the exported symbol, with the major version. */
#define DLC_PLUGIN_SYMBOL "dlc_plugin_v0"

/* 1 if `ptr` is not NULL and the struct it points to is large enough to contain
 * `field`. */
#define DLC_HAS(ptr, field) \
    ((ptr) && (ptr)->size >= offsetof(__typeof__(*(ptr)), field) + sizeof(ptr)->field)
/* 1 if the table that `ptr` points to contains `call`, and it is not NULL. */
#define DLC_CAN(ptr, call) (DLC_HAS(ptr, call) && (ptr)->call != NULL)
/* The element after `ptr` in an array of structs that begin with their size. */
#define DLC_NEXT(ptr) \
    ((__typeof__(ptr))(const void *)((const char *)(ptr) + (ptr)->size))

/* ---- Options ------------------------------------------------------------- */

/* The type of an option's value, and the call of dlc_host that reads it. */
typedef enum dlc_option_type {
    /* An integer, min .. max. get_int. */
    DLC_OPT_INT = 1,

    /* A size in bytes, min .. max: 65536, 64K, 16M, 2G. get_int. */
    DLC_OPT_BYTES = 2,

    /* A number, min .. max; "inf" is allowed if max is INFINITY. get_float. */
    DLC_OPT_FLOAT = 3,

    /* true|false|yes|no|on|off|1|0. get_bool. */
    DLC_OPT_BOOL = 4,

    /* Any text. get_string. */
    DLC_OPT_STRING = 5,

    /* One of `choices`, which are joined by '|'. get_string. */
    DLC_OPT_CHOICE = 6,

    /* A file or folder, relative to the folder of net.ini. get_string gives a path that
     * can be opened. */
    DLC_OPT_PATH = 7,

    /* Initial values of parameters, as text: constant(0.1), gaussian(0.01), uniform(-1,
     * 1), xavier, msra. get_string. */
    DLC_OPT_FILLER = 8,

    /* Integers joined by commas, each min .. max. get_ints. */
    DLC_OPT_INTS = 9,

    /* Numbers joined by commas, each min .. max. get_floats. */
    DLC_OPT_FLOATS = 10,
} dlc_option_type;

/* Flags of dlc_option. */
enum {
    DLC_OPT_REQUIRED = 1u << 0, /* must be given; `def` is ignored */
    DLC_OPT_LIVE = 1u << 1,     /* may change while the job runs */
};

/* One row of an option table, which the check of net.ini, --help, the manual pages and
 * `dlcore plugin inspect` are all made from. A table ends with a row whose name is NULL
 * and whose size is set (DLC_OPTIONS_END).
 *
 * The keys go into the section of net.ini that selects the feature: a layer's section,
 * [data], [solver], [consistency], [transport], and [train] for a device. The core has
 * keys of its own there (a layer's: type, input, phase, loss_weight, parallel), which
 * `dlcore plugin inspect SECTION` lists and no row may be named after: it would never
 * be read. But a solver's row replaces the hyperparameter of that name, to give it
 * another default. */
typedef struct dlc_option {
    uint32_t size;
    uint32_t type;    /* dlc_option_type */
    uint32_t flags;   /* DLC_OPT_REQUIRED and DLC_OPT_LIVE */
    const char *name; /* of a-z, 0-9 and '_' */

    /* The default, as text that passes the check of this row; NULL: unset unless it
     * is given. */
    const char *def;

    double min, max;     /* the range of numeric types, both ends included */
    const char *choices; /* of DLC_OPT_CHOICE: "max|average" */
    const char *help;    /* one line, without a full stop */
} dlc_option;

/* Rows of an option table, such as DLC_INT("side", "16", 1, 4096, "image height").
 * DLC_OPTION takes every field, for rows that the shorter macros do not cover. */

/* All fields are there, and in their order, so that C++ does not warn either. */
#define DLC_OPTION(name, type, flags, def, min, max, choices, help) \
    { \
        sizeof(dlc_option), (type), (flags), (name), (def), (min), (max), (choices), \
            (help) \
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
#define DLC_OPTIONS_END DLC_OPTION(NULL, 0, 0, NULL, 0, 0, NULL, NULL)

/* The settings of one feature. They are complete (given or default) and in range: the
 * host has checked them against the feature's option table. Read them with
 * dlc_host.get_*. The host owns them; they are valid until the object that they were
 * passed to is closed. */
typedef struct dlc_settings dlc_settings;

/* ---- Host services --------------------------------------------------------- */

/* The severity of a log line. */
typedef enum dlc_log_level {
    DLC_LOG_ERROR = 1,
    DLC_LOG_WARN = 2,
    DLC_LOG_INFO = 3,
    DLC_LOG_DEBUG = 4,
} dlc_log_level;

/* The services that the host offers to a plugin, given to dlc_plugin.load and valid
 * until the process ends. Any thread may make these calls, and none of them blocks. All
 * of them are present. */
typedef struct dlc_host {
    uint32_t size;
    uint32_t abi_minor; /* DLC_ABI_MINOR of the host */

    /* Writes one line to the log; `format` has no newline at its end. */
    void (*log)(dlc_log_level level, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

    /* Sets the detail sentence of the calling thread (what is wrong, where, and what to
     * do about it) and returns `status`:
     *     return host->fail(DLC_ERR_DATA, "%s: not an image", path);
     * The function that detects an error calls it; its callers return the status as it
     * is. */
    dlc_status (*fail)(dlc_status status, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

    /* Allocates zeroed memory, aligned to 64 bytes, which the caller owns. If memory
     * runs out it sets the detail sentence and returns NULL, and the caller returns
     * DLC_ERR_NOMEM. */
    void *(*alloc)(size_t bytes);

    /* Frees memory from alloc; does nothing if `memory` is NULL. */
    void (*free)(void *memory);

    /* Read a setting by its name in the option table; dlc_option_type says which call
     * reads which type. For a name or type that the table does not have, which is a bug
     * in the plugin, they log an error and return 0 or NULL. get_string returns NULL
     * for an option without a default that was not given. Strings live as long as the
     * settings. */

    int64_t (*get_int)(const dlc_settings *settings, const char *name);
    double (*get_float)(const dlc_settings *settings, const char *name);
    int (*get_bool)(const dlc_settings *settings, const char *name);
    const char *(*get_string)(const dlc_settings *settings, const char *name);

    /* Read a list: return its length and store its first element in *values, which
     * lives as long as the settings. `values` may be NULL. */

    size_t (*get_ints)(const dlc_settings *settings, const char *name,
                       const int64_t **values);
    size_t (*get_floats)(const dlc_settings *settings, const char *name,
                         const double **values);

    /* 1 if the setting was given, 0 if its value is the default. */
    int (*is_set)(const dlc_settings *settings, const char *name);

    /* The place where the setting was given, for messages: "net.ini:12" or "--set".
     * Never NULL. Lives as long as the settings. */
    const char *(*where)(const dlc_settings *settings, const char *name);

    /* Monotonic time in nanoseconds. */
    uint64_t (*now_ns)(void);
} dlc_host;

/* ---- The descriptor -------------------------------------------------------- */

/* The kind of a feature, which determines the type of its table of calls. */
typedef enum dlc_kind {
    DLC_KIND_DEVICE = 1,      /* dlc_device_ops, <dlcore/device.h> */
    DLC_KIND_TRANSPORT = 2,   /* dlc_transport_ops, <dlcore/transport.h> */
    DLC_KIND_LAYER = 3,       /* dlc_layer_ops, <dlcore/layer.h> */
    DLC_KIND_SOLVER = 4,      /* dlc_solver_ops, <dlcore/solver.h> */
    DLC_KIND_DATA = 5,        /* dlc_data_ops, <dlcore/data.h> */
    DLC_KIND_CONSISTENCY = 6, /* dlc_consistency_ops, <dlcore/consistency.h> */
    DLC_KIND_DECODER = 7,     /* dlc_decoder_ops, <dlcore/decoder.h> */
} dlc_kind;

/* One thing that a plugin offers. An array of features ends with one whose name is NULL
 * and whose size is set (DLC_FEATURES_END). */
typedef struct dlc_feature {
    uint32_t size;
    uint32_t kind;             /* dlc_kind */
    const char *name;          /* of a-z, 0-9, '-' and '_'; at most 63 characters */
    const char *help;          /* one line, without a full stop */
    const char *device;        /* the device that it works on, "cpu"; NULL: any */
    uint64_t caps;             /* capability bits, from the header of the kind */
    uint64_t needs;            /* what the host must offer; no bits are defined yet */
    const dlc_option *options; /* NULL: no options */
    const void *ops;           /* the table of calls of the kind */
} dlc_feature;

#define DLC_FEATURES_END \
    { sizeof(dlc_feature), 0, NULL, NULL, NULL, 0, 0, NULL, NULL }

/* What a plugin exports, constant data that is never freed. */
typedef struct dlc_plugin {
    uint32_t size;
    uint32_t abi_minor;          /* DLC_ABI_MINOR that it was built with */
    const char *name;            /* of a-z, 0-9, '-' and '_'; at most 63 characters */
    const char *version;         /* of the plugin */
    const char *license;         /* an SPDX expression */
    const dlc_feature *features; /* ends with DLC_FEATURES_END */

    /* Optional. Called once in each process before any other call of the plugin, on the
     * thread that loads it; also in a process that only inspects the plugin and then
     * ends. It keeps `host` and checks whether the plugin can work on this machine. If
     * not (no driver, a missing CPU instruction), it returns DLC_ERR_UNAVAILABLE with a
     * sentence: the plugin is then listed with that sentence and is not called again.
     * It must not start threads. */
    dlc_status (*load)(const dlc_host *host);
} dlc_plugin;

/* Makes a symbol visible outside the shared object. */
#if defined(__GNUC__)
#define DLC_EXPORT __attribute__((visibility("default")))
#else
#define DLC_EXPORT
#endif

/* The symbol that a plugin defines. */
extern DLC_EXPORT const dlc_plugin dlc_plugin_v0;

/* Defines it: DLC_PLUGIN("sgd", "1.0", "BSD-2-Clause", features, load); */
#define DLC_PLUGIN(name, version, license, features, load) \
    const dlc_plugin dlc_plugin_v0 = { \
        sizeof(dlc_plugin), DLC_ABI_MINOR, (name), (version), \
        (license),          (features),    (load)}

#ifdef __cplusplus
}
#endif
#endif

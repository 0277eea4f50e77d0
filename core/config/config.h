/* net.ini and --set texts -> checked settings. Called by core/train and the tools.
 *
 *     dlc_problems problems = {0};
 *     rc = dlc_config_load(path, reserved, sets, nsets, &problems, &config);
 *     rc = dlc_settings_make(config, "solver", tables, 2, &problems, &settings);
 *     ... more sections, and other checks with dlc_problems_add ...
 *     rc = dlc_problems_report(&problems);
 *
 * A user's mistakes are collected in `problems`, so that one run reports all of them:
 * the calls continue as well as they can and return DLC_OK. What they have made is then
 * only good for finding more mistakes; dlc_problems_report decides. Any other status
 * means that the call could not continue.
 */
#ifndef DLC_CONFIG_CONFIG_H
#define DLC_CONFIG_CONFIG_H

#include <limits.h>

#include <dlcore/plugin.h>

#include "base/text.h"

typedef struct dlc_config dlc_config;   /* one net.ini with its --set texts */
typedef struct dlc_section dlc_section; /* owned by the config */

/* ---- Mistakes ------------------------------------------------------------- */

/* One mistake, as it is reported to programs (`dlcore check --json`). The strings are
 * valid during the call only. */
typedef struct dlc_mistake {
    const char *file;    /* NULL: not in a file (--set, the environment) */
    int line;            /* 0: about the file as a whole, or not in a file */
    const char *section; /* NULL: in no section, or in several */
    const char *key;     /* NULL: not about one key */
    const char *message;
    int is_warning;
} dlc_mistake;

/* Start with {0}; release with dlc_problems_free. For one thread. */
typedef struct dlc_problems {
    struct dlc_problem *list; /* own */
    size_t count;             /* stored; beyond a limit they are only counted */
    size_t errors, warnings;  /* all that were added */
    size_t found;             /* errors, counting every copy of a block that has one */
    dlc_status status;        /* the status that dlc_problems_report will return */
    char *file;               /* own; the file name for the detail sentence */
    int failed;               /* memory ran out while adding */
    /* Optional: called by dlc_problems_report with each stored mistake. */
    void (*on_report)(void *context, const dlc_mistake *mistake);
    void *report_context;
} dlc_problems;

/* Lines start at 1. These two values are also valid as a line. */
#define DLC_LINE_FILE 0      /* the file as a whole */
#define DLC_LINE_SET INT_MAX /* a --set of the command line */

/* Adds a mistake; the log line is "net.ini:12: " and the message. `config` may be NULL:
 * then there is no prefix. The message is a sentence without a full stop that says what
 * is wrong and, unless it is obvious, what to do. */
void dlc_problems_add(dlc_problems *problems, const dlc_config *config, int line,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Adds a warning: something odd that is no reason to stop. */
void dlc_problems_warn(dlc_problems *problems, const dlc_config *config, int line,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

/* Adds a mistake in a section of the file, at the line of `key`, or of the section if
 * `key` is NULL or not there. The log line is "net.ini:12: [conv1] " and the message.
 * In a block it is reported once, whatever the number of uses. */
void dlc_problems_add_in(dlc_problems *problems, const dlc_config *config,
                         const dlc_section *section, const char *key,
                         const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Adds a warning: something odd that is no reason to stop. */
void dlc_problems_warn_in(dlc_problems *problems, const dlc_config *config,
                          const dlc_section *section, const char *key,
                          const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Adds the detail sentence of a call that has failed with `status` because of what the
 * file says, as a mistake in `section` (a name; NULL: none). A position at the
 * beginning of the sentence ("net.ini:12: ") takes precedence over `line`. That memory
 * ran out is no mistake of the file: then dlc_problems_report says so. */
void dlc_problems_add_failure(dlc_problems *problems, const dlc_config *config,
                              int line, const char *section, dlc_status status);

/* The same of a lookup or a parser, whose every failure is a mistake of the file, so
 * that DLC_ERR_CONFIG is reported. */
void dlc_problems_add_detail(dlc_problems *problems, const dlc_config *config, int line,
                             const char *section, dlc_status status);

/* Is it worth while to look for what was meant? Not once more mistakes were found than
 * are logged: a search goes through all names. */
int dlc_problems_want_advice(const dlc_problems *problems);

/* Adds `text` as a warning, with the same rules for its position. */
void dlc_problems_warn_text(dlc_problems *problems, const dlc_config *config, int line,
                            const char *section, const char *text);

/* Logs the mistakes in the order of the file (at most 50, the rest as a number) and
 * clears the list. DLC_OK if there was none (warnings do not count), else a detail
 * sentence like "3 mistakes in net.ini" with DLC_ERR_CONFIG, or the status given to
 * dlc_problems_add_failure if there is nothing else. DLC_ERR_NOMEM, and nothing is
 * logged, if memory ran out: mistakes may have followed from that. */
dlc_status dlc_problems_report(dlc_problems *problems);

void dlc_problems_free(dlc_problems *problems); /* it may be used again afterwards */

/* ---- net.ini ---------------------------------------------------------------- */

/* Reads and scans `path` strictly, compares the result with that of iniparser, applies
 * `sets[0 .. nsets-1]`, each "section.key=value" (the last one for a key wins), and
 * expands blocks, so that only ordinary sections are left. `reserved` lists the
 * sections that are not layers, NULL-terminated: --set may create these, but no others.
 * `path` NULL: no file, only --set. Fails only if there is no text to check
 * (DLC_ERR_CONFIG: no such file, a folder, too large, not UTF-8, ...) or memory ran
 * out. */
dlc_status dlc_config_load(const char *path, const char *const *reserved,
                           const char *const *sets, size_t nsets,
                           dlc_problems *problems, dlc_config **config);
void dlc_config_free(dlc_config *config); /* NULL allowed */

/* The path as given, for messages; "--set" if there is no file. */
const char *dlc_config_name(const dlc_config *config);

/* NULL if the file has no such section. */
const dlc_section *dlc_config_find(const dlc_config *config, const char *name);

/* Iterates over the sections in the order of the file: `after` NULL starts, NULL ends.
 */
const dlc_section *dlc_config_next(const dlc_config *config, const dlc_section *after);

const char *dlc_section_name(const dlc_section *section);
int dlc_section_line(const dlc_section *section);

/* A value as written, without quotes; NULL if the key is not there, "" if it was
 * invalid (which was reported). For what must be known before the option tables are,
 * such as `type`. */
const char *dlc_section_value(const dlc_section *section, const char *key);
/* The line of the key, or of the section if the key is not there. */
int dlc_section_key_line(const dlc_section *section, const char *key);
/* Whether the value of the key was invalid (which was reported). */
int dlc_section_is_broken(const dlc_section *section, const char *key);
/* Iterates over the keys: for (i = 0; (key = dlc_section_key(section, i)); i++). */
const char *dlc_section_key(const dlc_section *section, size_t i);

/* ---- Blocks ---------------------------------------------------------------------
 *
 * [res2a] with `block = bottleneck` has been replaced by [res2a.conv1], [res2a.relu],
 * ..., which form a group; its name may be used wherever that of a layer may. */

typedef struct dlc_group {
    const char *name;
    const char *first, *last; /* its first and last section */
    int open; /* it has no `input`: its first layer reads the layer above */
} dlc_group;

/* The i-th group, in the order of their last layers; NULL beyond the end. */
const dlc_group *dlc_config_group(const dlc_config *config, size_t i);
/* The group named by the first `length` bytes of `name`; NULL if there is none. */
const dlc_group *dlc_config_find_group(const dlc_config *config, const char *name,
                                       size_t length);

/* ---- Settings ----------------------------------------------------------------- */

/* Checks the section named `section` (it may be absent: all defaults) against the
 * option tables and keeps the values. tables[i] may be NULL; if two tables have an
 * option of the same name, the first wins. A mistake is added to `problems`, and the
 * option takes its default (none: unset), so settings may be passed to a plugin only if
 * problems.errors has not changed. DLC_ERR_PLUGIN: a table itself is wrong
 * (dlc_options_check). The tables must outlive the settings; `config` need not, and may
 * be NULL. */
dlc_status dlc_settings_make(const dlc_config *config, const char *section,
                             const dlc_option *const *tables, size_t ntables,
                             dlc_problems *problems, dlc_settings **settings);
void dlc_settings_free(dlc_settings *settings); /* NULL allowed */
/* The same settings with another number for an option; NULL if memory ran out. Both
 * `settings` and `name` must outlive them. Release with dlc_free. */
dlc_settings *dlc_settings_with(const dlc_settings *settings, const char *name,
                                double number);

/* The getters of dlc_host. INT, BYTES: get_int; FLOAT: get_float; STRING, CHOICE, PATH,
 * FILLER: get_string; INTS; FLOATS. Unset: 0, NULL or an empty list. A path is ready to
 * open: relative to the folder of net.ini, or to the current folder if --set gave it.
 *  */
int64_t dlc_settings_get_int(const dlc_settings *settings, const char *name);
double dlc_settings_get_float(const dlc_settings *settings, const char *name);
int dlc_settings_get_bool(const dlc_settings *settings, const char *name);
const char *dlc_settings_get_string(const dlc_settings *settings, const char *name);
size_t dlc_settings_get_ints(const dlc_settings *settings, const char *name,
                             const int64_t **values);
size_t dlc_settings_get_floats(const dlc_settings *settings, const char *name,
                               const double **values);
/* Whether the value is `text`; 0 if it is unset. */
int dlc_settings_is(const dlc_settings *settings, const char *name, const char *text);
int dlc_settings_is_set(const dlc_settings *settings, const char *name);
/* Where the value was given ("net.ini:3", "--set"); if it was not, where its section
 * is, or the file's name. */
const char *dlc_settings_where(const dlc_settings *settings, const char *name);
/* Where the value was given, as a line for dlc_problems_add. */
int dlc_settings_line(const dlc_settings *settings, const char *name);

/* The value as text, given or default; NULL if unset or if there is no such option. */
const char *dlc_settings_text(const dlc_settings *settings, const char *name);

/* Access to all settings, in the order of the tables, for logs and checkpoints. */
typedef struct dlc_setting {
    const char *name;
    const char *text;  /* as dlc_settings_text */
    const char *where; /* as dlc_settings_where */
    int is_set;        /* given, not the default */
    const dlc_option *option;
} dlc_setting;
size_t dlc_settings_count(const dlc_settings *settings);
dlc_setting dlc_settings_at(const dlc_settings *settings, size_t i);

/* ---- Option tables -------------------------------------------------------------- */

/* Checks that a table is well-formed: sizes, names, types, ranges, choices, and
 * defaults that pass their own check. DLC_ERR_PLUGIN with the row and what is wrong.
 * NULL is a valid table. */
dlc_status dlc_options_check(const dlc_option *table);

/* Appends a description of all options for a terminal, two spaces before each name. */
void dlc_options_help(const dlc_option *const *tables, size_t ntables, dlc_text *text);
/* Appends the kind of value that an option takes: "whole number, 1 .. 4096". */
void dlc_option_takes(const dlc_option *option, dlc_text *text);

/* The keys of a [block x] besides its parameters, and those of every use of a block. */
extern const dlc_option dlc_block_options[];
extern const dlc_option dlc_use_options[];

/* ---- Fillers ----------------------------------------------------------------- */

typedef enum dlc_filler_kind {
    DLC_FILL_CONSTANT, /* a */
    DLC_FILL_GAUSSIAN, /* standard deviation a, mean b */
    DLC_FILL_UNIFORM,  /* a .. b */
    DLC_FILL_XAVIER,
    DLC_FILL_MSRA,
} dlc_filler_kind;

typedef struct dlc_filler {
    dlc_filler_kind kind;
    double a, b;
} dlc_filler;

/* Parses a filler; DLC_ERR_CONFIG with what is wrong as the detail sentence. */
dlc_status dlc_filler_parse(const char *text, dlc_filler *filler);

#endif

/* net.ini and --set -> checked settings.
 *
 *     dlc_problems problems = {0};
 *     rc = dlc_config_load(path, standing, sets, nsets, &problems, &config);
 *     rc = dlc_settings_make(config, "solver", tables, 2, &problems, &settings);
 *     ... as many as there are, and other checks with dlc_problems_add ...
 *     rc = dlc_problems_report(&problems);
 *
 * What a person wrote wrong goes into `problems`, so that one run tells all of it;
 * the calls go on as well as they can and return DLC_OK. Whatever they made is then
 * good for looking for more mistakes and for nothing else: dlc_problems_report
 * decides. Any other status means that there was nothing to go on with.
 */
#ifndef DLC_CONFIG_CONFIG_H
#define DLC_CONFIG_CONFIG_H

#include <limits.h>

#include <dlcore/plugin.h>

#include "base/text.h"

typedef struct dlc_config dlc_config;   /* one net.ini with its --set texts */
typedef struct dlc_section dlc_section; /* owned by the config */

/* ---- Mistakes ------------------------------------------------------------- */

/* One mistake, as it is reported: for programs (`dlcore check --json`). Its texts are
 * good during the call only. */
typedef struct dlc_mistake {
    const char *file;    /* NULL: in no file (--set, the environment) */
    int line;            /* 0: of the file as a whole, or in no file */
    const char *section; /* NULL where it is in none, or in several */
    const char *key;     /* NULL where it is of no single key */
    const char *message;
    int is_warning;
} dlc_mistake;

/* Start with {0}; release with dlc_problems_free. For one thread. */
typedef struct dlc_problems {
    struct dlc_problem *list; /* own */
    size_t count, room;       /* stored; beyond a limit they are only counted */
    size_t errors, warnings;  /* all that were added */
    size_t found;             /* errors, and each repeat of one in a block's copies */
    dlc_status status;        /* what dlc_problems_report returns for these errors */
    char *file;               /* own; what to call the whole in the detail sentence */
    int failed;               /* memory ran out while adding */
    /* Optional: told each stored mistake by dlc_problems_report. */
    void (*tell)(void *context, const dlc_mistake *mistake);
    void *tell_context;
} dlc_problems;

/* Lines start at 1. Two values are places too. */
#define DLC_LINE_FILE 0      /* the file as a whole */
#define DLC_LINE_SET INT_MAX /* a --set of the command line */

/* Adds a mistake; the log line is "net.ini:12: " and the message. `config` may be
 * NULL: the message then stands alone. A sentence without full stop that says what
 * is wrong and, where it isn't plain, what to do. */
void dlc_problems_add(dlc_problems *problems, const dlc_config *config, int line,
                      const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The same for what is odd but no reason to stop. */
void dlc_problems_warn(dlc_problems *problems, const dlc_config *config, int line,
                       const char *format, ...) __attribute__((format(printf, 4, 5)));

/* A mistake in a section of the file: `key`'s line, or the section's own (NULL; so too
 * where the key isn't there). The log line is "net.ini:12: [conv1] " and the message.
 * In a block it is told once, whatever the number of its uses. */
void dlc_problems_in(dlc_problems *problems, const dlc_config *config,
                     const dlc_section *section, const char *key, const char *format,
                     ...) __attribute__((format(printf, 5, 6)));

/* The same for what is odd but no reason to stop. */
void dlc_problems_warn_in(dlc_problems *problems, const dlc_config *config,
                          const dlc_section *section, const char *key,
                          const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* A call has failed with this status because of what the file says: its detail sentence
 * becomes a mistake in `section` (a name; NULL: none). A place at the beginning of the
 * sentence ("net.ini:12: ") wins over `line`. */
void dlc_problems_failed(dlc_problems *problems, const dlc_config *config, int line,
                         const char *section, dlc_status status);

/* The same of a sentence that warns. */
void dlc_problems_doubted(dlc_problems *problems, const dlc_config *config, int line,
                          const char *section, const char *text);

/* Logs each in the order of the file (at most 50, the rest as a number) and forgets
 * them. DLC_OK if there was no mistake (warnings don't count), else a detail sentence
 * like "3 mistakes in net.ini" with the status of what dlc_problems_failed was told
 * first, if there is nothing else, or DLC_ERR_CONFIG. */
dlc_status dlc_problems_report(dlc_problems *problems);

void dlc_problems_free(dlc_problems *problems); /* may be used again afterwards */

/* ---- net.ini ---------------------------------------------------------------- */

/* Reads and scans `path` strictly, has iniparser read the same bytes, and compares;
 * applies `sets[0 .. nsets-1]`, each "section.key=value" (the last one for a key
 * wins); and puts the layers of blocks where the blocks are used, so that the reader
 * sees ordinary sections only. `standing` names the sections that are no layers,
 * NULL-terminated: a
 * --set may open one of these, but no other that the file doesn't have.
 * `path` NULL: no file, only what --set says.
 * Fails only where there is no text to look at (DLC_ERR_CONFIG: no such file, a
 * folder, too large, not UTF-8, ...) or memory ran out. */
dlc_status dlc_config_load(const char *path, const char *const *standing,
                           const char *const *sets, size_t nsets,
                           dlc_problems *problems, dlc_config **config);
void dlc_config_free(dlc_config *config); /* NULL allowed */

/* The path as given, for messages; "--set" where there is no file. */
const char *dlc_config_name(const dlc_config *config);

/* NULL if the file has no such section. */
const dlc_section *dlc_config_find(const dlc_config *config, const char *name);

/* Sections in the order of the file; `after` NULL begins, NULL ends.
 * next_layer leaves the standing ones out. */
const dlc_section *dlc_config_next(const dlc_config *config, const dlc_section *after);
const dlc_section *dlc_config_next_layer(const dlc_config *config,
                                         const dlc_section *after);

const char *dlc_section_name(const dlc_section *section);
int dlc_section_line(const dlc_section *section);

/* A value's text as written, without its quotes; NULL if the key isn't there, "" if
 * it was not understood (which was told). For what must be known before the option
 * tables are, such as `type`. */
const char *dlc_section_value(const dlc_section *section, const char *key);
/* The key's line; the section's own where the key isn't there. */
int dlc_section_key_line(const dlc_section *section, const char *key);
/* Was the key's value not understood (which was told)? */
int dlc_section_is_broken(const dlc_section *section, const char *key);
/* Every key in order: for (i = 0; (key = dlc_section_key(section, i)); i++). */
const char *dlc_section_key(const dlc_section *section, size_t i);

/* ---- Blocks ---------------------------------------------------------------------
 *
 * [res2a] with `block = bottleneck` has become [res2a.conv1], [res2a.relu], ...: a
 * group, whose name may be used where a layer's may. */

typedef struct dlc_group {
    const char *name;
    const char *first, *last; /* the sections that it begins and ends with */
    int open; /* no input was given, so it reads what the first one would by default */
} dlc_group;

/* In the order in which they end; NULL beyond the last. */
const dlc_group *dlc_config_group(const dlc_config *config, size_t i);
/* `name` need not end behind `length`. NULL: there is none. */
const dlc_group *dlc_config_find_group(const dlc_config *config, const char *name,
                                       size_t length);

/* ---- Settings ----------------------------------------------------------------- */

/* Checks the section named `section` (it may be absent: defaults only) against the
 * option tables and keeps the values. tables[i] may be NULL; where two tables have
 * the same name the first wins. A mistake is added to `problems` and the option
 * takes its default (none: unset); so hand settings to a plugin only if
 * problems.errors is what it was before.
 * DLC_ERR_PLUGIN: a table itself is wrong (dlc_options_check).
 * The tables must outlive the settings; `config` need not, and may be NULL. */
dlc_status dlc_settings_make(const dlc_config *config, const char *section,
                             const dlc_option *const *tables, size_t ntables,
                             dlc_problems *problems, dlc_settings **settings);
void dlc_settings_free(dlc_settings *settings); /* NULL allowed */

/* The getters of dlc_host. INT, BYTES: get_int; FLOAT: get_float; STRING, CHOICE,
 * PATH, FILLER: get_string; INTS; FLOATS. Unset: 0, NULL or an empty list. A path
 * comes ready to open: relative to the INI's folder, or to the current one where
 * --set gave it. */
int64_t dlc_settings_get_int(const dlc_settings *settings, const char *name);
double dlc_settings_get_float(const dlc_settings *settings, const char *name);
int dlc_settings_get_bool(const dlc_settings *settings, const char *name);
const char *dlc_settings_get_string(const dlc_settings *settings, const char *name);
size_t dlc_settings_get_ints(const dlc_settings *settings, const char *name,
                             const int64_t **values);
size_t dlc_settings_get_floats(const dlc_settings *settings, const char *name,
                               const double **values);
/* Is it this text? Unset: no. */
int dlc_settings_is(const dlc_settings *settings, const char *name, const char *text);
int dlc_settings_is_set(const dlc_settings *settings, const char *name);
/* Not given: where its section stands ("net.ini:3"), else the file's name. */
const char *dlc_settings_where(const dlc_settings *settings, const char *name);
/* The same as a place for dlc_problems_add. */
int dlc_settings_line(const dlc_settings *settings, const char *name);

/* The value as text, as given or the default; NULL: unset, or no such option. */
const char *dlc_settings_text(const dlc_settings *settings, const char *name);

/* All of them, in the order of the tables, for logs and checkpoints. */
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

/* Is the table well-formed: sizes, names, types, ranges, choices, defaults that
 * pass their own check? DLC_ERR_PLUGIN with the row and what is wrong. NULL is. */
dlc_status dlc_options_check(const dlc_option *table);

/* Appends the tables as text for a terminal, two spaces before each name. */
void dlc_options_help(const dlc_option *const *tables, size_t ntables, dlc_text *text);
/* Appends what one option takes: "whole number, 1 .. 4096". */
void dlc_option_takes(const dlc_option *option, dlc_text *text);

/* The keys of a [block x], besides its parameters, and of every use of a block. */
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

/* DLC_ERR_CONFIG with what is wrong as the detail sentence. */
dlc_status dlc_filler_parse(const char *text, dlc_filler *filler);

#endif

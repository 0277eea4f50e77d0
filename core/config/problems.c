/* Collects the mistakes of one run, and reports them in the order of the file. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/escape.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/internal.h"

#define STORED 1000 /* the rest is only counted */
#define PRINTED 50

typedef struct dlc_problem {
    int line;
    int warning;
    size_t number;              /* in the order in which they were found */
    char *text;                 /* own; position and message */
    size_t message;             /* offset of the message in `text` */
    char *file, *section, *key; /* own; NULL as in dlc_mistake */
    char *as;    /* own; the first copy of a block's layer that has it; NULL: not in a
                    block */
    size_t more; /* further copies that have it */
} dlc_problem;

/* "net.ini:12: [conv1] message" */
static char *place_text(const dlc_config *config, const dlc_problem_place *place,
                        const char *message) {
    const char *open = place->name ? "[" : "", *close = place->name ? "] " : "";
    const char *name = place->name ? place->name : "";
    if (!config)
        return dlc_format("%s%s%s%s", open, name, close, message);
    if (place->line == DLC_LINE_SET)
        return dlc_format("--set: %s%s%s%s", open, name, close, message);
    if (place->line == DLC_LINE_FILE)
        return dlc_format("%s: %s%s%s%s", dlc_config_name(config), open, name, close,
                          message);
    return dlc_format("%s:%d: %s%s%s%s", dlc_config_name(config), place->line, open,
                      name, close, message);
}

/* Whether it was found before in another copy of the same line; counts it then. */
static int is_known(dlc_problems *problems, const dlc_problem_place *place,
                    const char *text) {
    for (size_t i = 0; i < problems->count && place->as; i++) {
        dlc_problem *known = &problems->list[i];
        if (known->as && known->line == place->line && strcmp(known->text, text) == 0) {
            known->more++;
            return 1;
        }
    }
    return 0;
}

/* Finds the section and the key of a line. */
static void find_owner(const dlc_config *config, int line, const char **section,
                       const char **key) {
    for (size_t i = 0; line > 0 && line != DLC_LINE_SET && i < config->count; i++) {
        const dlc_section *at = &config->sections[i];
        const char *name = at->origin ? at->origin : at->name;
        if (at->line == line && !*section)
            *section = name;
        for (size_t k = 0; k < at->count; k++)
            if (at->entries[k].line == line) {
                *section = at->entries[k].owner ? at->entries[k].owner : name;
                *key = at->entries[k].key;
                return;
            }
    }
}

static int copy_word(const char *text, char **copy) {
    *copy = text ? dlc_strdup(text) : NULL;
    return !text || *copy;
}

/* Records section, key and file, for programs. */
static int record_place(dlc_problem *added, const dlc_config *config,
                        const dlc_problem_place *place) {
    const char *section = place->name, *key = NULL;
    int in_file = config && place->line != DLC_LINE_SET;
    if (in_file)
        find_owner(config, place->line, &section, &key);
    return copy_word(section, &added->section) && copy_word(key, &added->key) &&
           copy_word(in_file ? dlc_config_name(config) : NULL, &added->file);
}

static void free_problem(dlc_problem *problem) {
    dlc_free(problem->as);
    dlc_free(problem->file);
    dlc_free(problem->section);
    dlc_free(problem->key);
}

/* Takes ownership of `text`. */
static int append(dlc_problems *problems, int warning, const dlc_config *config,
                  const dlc_problem_place *place, char *text, size_t message) {
    dlc_problem *list = dlc_grow_by_one(problems->list, problems->count, sizeof *list);
    if (!list)
        return 0;
    problems->list = list;
    dlc_problem added = {.line = place->line,
                         .warning = warning,
                         .number = problems->count,
                         .text = text,
                         .message = message};
    int recorded = record_place(&added, config, place);
    if (recorded && place->as) {
        added.as = place->use_line
                       ? dlc_format("as [%s] of line %d", place->as, place->use_line)
                       : dlc_strdup("");
        recorded = added.as != NULL;
    }
    if (!recorded) {
        free_problem(&added);
        return 0;
    }
    problems->list[problems->count++] = added;
    return 1;
}

/* Takes ownership of `text`. 0: memory ran out. */
static int store(dlc_problems *problems, int warning, const dlc_config *config,
                 const dlc_problem_place *place, char *text, size_t message) {
    if (config && !problems->file)
        problems->file = dlc_strdup(dlc_config_name(config));
    int failed = !text || (config && !problems->file);
    if (!failed && problems->count < STORED) {
        failed = !append(problems, warning, config, place, text, message);
        if (!failed)
            return 1;
    }
    dlc_free(text);
    return !failed;
}

static void add_problem(dlc_problems *problems, int warning, const dlc_config *config,
                        const dlc_problem_place *place, const char *format,
                        va_list args) {
    char message[2048];
    dlc_print(message, sizeof message, format, args);
    char *text = place_text(config, place, message);
    size_t begin = text ? strlen(text) - strlen(message) : 0;
    problems->found += !warning;
    if (text && is_known(problems, place, text)) {
        dlc_free(text);
        return;
    }
    if (warning)
        problems->warnings++;
    else
        problems->errors++;
    if (!warning)
        problems->status = DLC_ERR_CONFIG;
    if (!store(problems, warning, config, place, text, begin))
        problems->failed = 1;
}

void dlc_problems_add(dlc_problems *problems, const dlc_config *config, int line,
                      const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_problem(problems, 0, config, &(dlc_problem_place){.line = line}, format, args);
    va_end(args);
}

void dlc_problems_warn(dlc_problems *problems, const dlc_config *config, int line,
                       const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_problem(problems, 1, config, &(dlc_problem_place){.line = line}, format, args);
    va_end(args);
}

void dlc_problems_at(dlc_problems *problems, const dlc_config *config,
                     const dlc_problem_place *place, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_problem(problems, 0, config, place, format, args);
    va_end(args);
}

static dlc_problem_place place_in(const dlc_section *section, const char *key) {
    const dlc_entry *entry = key ? dlc_section_entry(section, key) : NULL;
    dlc_problem_place place = {.line = entry ? entry->line : section->line,
                               .name = section->name};
    if (section->origin) {
        place.as = section->name;
        place.name = section->origin;
        place.use_line = section->use_line;
    }
    if (entry && entry->owner) {
        place.name = entry->owner;
        place.use_line = 0; /* the line is that of the use itself */
    }
    return place;
}

void dlc_problems_add_in(dlc_problems *problems, const dlc_config *config,
                         const dlc_section *section, const char *key,
                         const char *format, ...) {
    dlc_problem_place place = place_in(section, key);
    va_list args;
    va_start(args, format);
    add_problem(problems, 0, config, &place, format, args);
    va_end(args);
}

void dlc_problems_warn_in(dlc_problems *problems, const dlc_config *config,
                          const dlc_section *section, const char *key,
                          const char *format, ...) {
    dlc_problem_place place = place_in(section, key);
    va_list args;
    va_start(args, format);
    add_problem(problems, 1, config, &place, format, args);
    va_end(args);
}

/* Skips "net.ini:12: " or "--set: " at the beginning of a sentence, and sets the line;
 * NULL if there is none. */
static const char *skip_place(const char *text, const dlc_config *config, int *line) {
    static const char set[] = "--set: ";
    const char *name = dlc_config_name(config);
    size_t length = strlen(name);
    if (strncmp(text, set, sizeof set - 1) == 0) {
        *line = DLC_LINE_SET;
        return text + sizeof set - 1;
    }
    int found = 0, used = 0;
    if (strncmp(text, name, length) != 0 ||
        sscanf(text + length, ":%d: %n", &found, &used) != 1 || used == 0)
        return NULL;
    *line = found;
    return text + length + used;
}

static void add_at(dlc_problems *problems, int warning, const dlc_config *config,
                   dlc_problem_place place, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

static void add_at(dlc_problems *problems, int warning, const dlc_config *config,
                   dlc_problem_place place, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add_problem(problems, warning, config, &place, format, args);
    va_end(args);
}

void dlc_problems_add_failure(dlc_problems *problems, const dlc_config *config,
                              int line, const char *section, dlc_status status) {
    if (status == DLC_ERR_NOMEM) {
        problems->failed = 1;
        return;
    }
    const char *detail = dlc_detail()[0] ? dlc_detail() : dlc_status_text(status);
    const char *rest = skip_place(detail, config, &line);
    dlc_status first = problems->errors ? problems->status : status;
    add_at(problems, 0, config, (dlc_problem_place){.line = line, .name = section},
           "%s", rest ? rest : detail);
    problems->status = first;
}

void dlc_problems_add_detail(dlc_problems *problems, const dlc_config *config, int line,
                             const char *section, dlc_status status) {
    dlc_problems_add_failure(problems, config, line, section,
                             status == DLC_ERR_NOMEM ? status : DLC_ERR_CONFIG);
}

int dlc_problems_want_advice(const dlc_problems *problems) {
    return problems->count < PRINTED;
}

void dlc_problems_warn_text(dlc_problems *problems, const dlc_config *config, int line,
                            const char *section, const char *text) {
    const char *rest = skip_place(text, config, &line);
    add_at(problems, 1, config, (dlc_problem_place){.line = line, .name = section},
           "%s", rest ? rest : text);
}

static int in_file_order(const void *left, const void *right) {
    const dlc_problem *a = left, *b = right;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

static void report_one(const dlc_problems *problems, const dlc_problem *problem) {
    const dlc_mistake mistake = {.file = problem->file,
                                 .line = problem->line == DLC_LINE_SET ? 0
                                                                       : problem->line,
                                 .section = problem->section,
                                 .key = problem->key,
                                 .message = problem->text + problem->message,
                                 .is_warning = problem->warning};
    problems->on_report(problems->report_context, &mistake);
}

static void print(const dlc_problem *problem) {
    dlc_log_level level = problem->warning ? DLC_LOG_WARN : DLC_LOG_ERROR;
    if (!problem->as || !*problem->as)
        dlc_log(level, "%s", problem->text);
    else if (!problem->more)
        dlc_log(level, "%s (%s)", problem->text, problem->as);
    else
        dlc_log(level, "%s (%s and %zu more)", problem->text, problem->as,
                problem->more);
}

dlc_status dlc_problems_report(dlc_problems *problems) {
    if (problems->failed) {
        dlc_problems_free(problems);
        return dlc_fail(DLC_ERR_NOMEM, "out of memory");
    }
    if (problems->count)
        qsort(problems->list, problems->count, sizeof *problems->list, in_file_order);
    size_t printed = problems->count < PRINTED ? problems->count : PRINTED;
    for (size_t i = 0; i < printed; i++)
        print(&problems->list[i]);
    for (size_t i = 0; problems->on_report && i < problems->count; i++)
        report_one(problems, &problems->list[i]);
    size_t all = problems->errors + problems->warnings;
    if (all > printed)
        dlc_log(problems->errors ? DLC_LOG_ERROR : DLC_LOG_WARN, "... and %zu more",
                all - printed);

    dlc_status rc = DLC_OK;
    if (problems->errors)
        rc = dlc_fail(problems->status, "%zu mistake%s in %s", problems->errors,
                      problems->errors == 1 ? "" : "s",
                      problems->file ? problems->file : "the settings");
    dlc_problems_free(problems);
    return rc;
}

void dlc_problems_free(dlc_problems *problems) {
    for (size_t i = 0; i < problems->count; i++) {
        free_problem(&problems->list[i]);
        dlc_free(problems->list[i].text);
    }
    dlc_free(problems->list);
    dlc_free(problems->file);
    *problems = (dlc_problems){0};
}

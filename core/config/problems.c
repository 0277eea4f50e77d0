/* The mistakes of one run, kept until all are known and told in the file's order. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "config/internal.h"

#define STORED 1000 /* beyond, only counted */
#define PRINTED 50

typedef struct dlc_problem {
    int line;
    int warning;
    size_t number; /* in the order of finding */
    char *text;
    char *as;    /* the first copy of a block's layer that has it; NULL: in no block */
    size_t more; /* copies that have it too */
} dlc_problem;

/* "net.ini:12: [conv1] message" */
static char *place_text(const dlc_config *config, const dlc_place *place,
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

/* Was it found in another copy of the same line? */
static int is_known(dlc_problems *problems, const dlc_place *place, const char *text) {
    for (size_t i = 0; i < problems->count && place->as; i++) {
        dlc_problem *known = &problems->list[i];
        if (known->as && known->line == place->line && strcmp(known->text, text) == 0) {
            known->more++;
            return 1;
        }
    }
    return 0;
}

/* Takes over `text`. */
static int append(dlc_problems *problems, int warning, const dlc_place *place,
                  char *text) {
    if (problems->count == problems->room) {
        size_t room = problems->room ? 2 * problems->room : 16;
        dlc_problem *list = dlc_grow(problems->list, problems->count, room,
                                     sizeof *list);
        if (!list)
            return 0;
        problems->list = list;
        problems->room = room;
    }
    dlc_problem added = {.line = place->line,
                         .warning = warning,
                         .number = problems->count,
                         .text = text};
    if (place->as) {
        added.as = place->use_line
                       ? dlc_format("as [%s] of line %d", place->as, place->use_line)
                       : dlc_strdup("");
        if (!added.as)
            return 0;
    }
    problems->list[problems->count++] = added;
    return 1;
}

/* Takes over `text`. 0: memory ran out. */
static int store(dlc_problems *problems, int warning, const dlc_config *config,
                 const dlc_place *place, char *text) {
    if (config && !problems->file)
        problems->file = dlc_strdup(dlc_config_name(config));
    int failed = !text || (config && !problems->file);
    if (!failed && problems->count < STORED) {
        failed = !append(problems, warning, place, text);
        if (!failed)
            return 1;
    }
    dlc_free(text);
    return !failed;
}

static void add(dlc_problems *problems, int warning, const dlc_config *config,
                const dlc_place *place, const char *format, va_list args) {
    char message[2048];
    vsnprintf(message, sizeof message, format, args);
    char *text = place_text(config, place, message);
    if (text && is_known(problems, place, text)) {
        dlc_free(text);
        return;
    }
    if (warning)
        problems->warnings++;
    else
        problems->errors++;
    if (!store(problems, warning, config, place, text))
        problems->failed = 1;
}

void dlc_problems_add(dlc_problems *problems, const dlc_config *config, int line,
                      const char *format, ...) {
    va_list args;
    va_start(args, format);
    add(problems, 0, config, &(dlc_place){.line = line}, format, args);
    va_end(args);
}

void dlc_problems_warn(dlc_problems *problems, const dlc_config *config, int line,
                       const char *format, ...) {
    va_list args;
    va_start(args, format);
    add(problems, 1, config, &(dlc_place){.line = line}, format, args);
    va_end(args);
}

void dlc_problems_at(dlc_problems *problems, const dlc_config *config,
                     const dlc_place *place, const char *format, ...) {
    va_list args;
    va_start(args, format);
    add(problems, 0, config, place, format, args);
    va_end(args);
}

void dlc_problems_in(dlc_problems *problems, const dlc_config *config,
                     const dlc_section *section, const char *key, const char *format,
                     ...) {
    const dlc_entry *entry = key ? dlc_section_entry(section, key) : NULL;
    dlc_place place = {.line = entry ? entry->line : section->line,
                       .name = section->name};
    if (section->origin) {
        place.as = section->name;
        place.name = section->origin;
        place.use_line = section->use_line;
    }
    if (entry && entry->owner) {
        place.name = entry->owner;
        place.use_line = 0; /* the line is of the use itself */
    }
    va_list args;
    va_start(args, format);
    add(problems, 0, config, &place, format, args);
    va_end(args);
}

static int in_file_order(const void *left, const void *right) {
    const dlc_problem *a = left, *b = right;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
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
    if (problems->count)
        qsort(problems->list, problems->count, sizeof *problems->list, in_file_order);
    size_t printed = problems->count < PRINTED ? problems->count : PRINTED;
    for (size_t i = 0; i < printed; i++)
        print(&problems->list[i]);
    size_t all = problems->errors + problems->warnings;
    if (all > printed)
        dlc_log(problems->errors ? DLC_LOG_ERROR : DLC_LOG_WARN, "... and %zu more",
                all - printed);

    dlc_status rc = DLC_OK;
    if (problems->errors)
        rc = dlc_fail(DLC_ERR_CONFIG, "%zu mistake%s in %s", problems->errors,
                      problems->errors == 1 ? "" : "s",
                      problems->file ? problems->file : "the settings");
    else if (problems->failed)
        rc = dlc_fail(DLC_ERR_NOMEM, "out of memory");
    dlc_problems_free(problems);
    return rc;
}

void dlc_problems_free(dlc_problems *problems) {
    for (size_t i = 0; i < problems->count; i++) {
        dlc_free(problems->list[i].as);
        dlc_free(problems->list[i].text);
    }
    dlc_free(problems->list);
    dlc_free(problems->file);
    *problems = (dlc_problems){0};
}

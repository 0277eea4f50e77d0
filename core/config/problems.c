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
} dlc_problem;

static char *place_text(const dlc_config *config, int line, const char *message) {
    if (!config)
        return dlc_strdup(message);
    if (line == DLC_LINE_SET)
        return dlc_format("--set: %s", message);
    if (line == DLC_LINE_FILE)
        return dlc_format("%s: %s", dlc_config_name(config), message);
    return dlc_format("%s:%d: %s", dlc_config_name(config), line, message);
}

static int store(dlc_problems *problems, int warning, const dlc_config *config,
                 int line, const char *message) {
    if (config && !problems->file) {
        problems->file = dlc_strdup(dlc_config_name(config));
        if (!problems->file)
            return 0;
    }
    if (problems->count == STORED)
        return 1;
    if (problems->count == problems->room) {
        size_t room = problems->room ? 2 * problems->room : 16;
        dlc_problem *list = dlc_grow(problems->list, problems->count, room,
                                     sizeof *list);
        if (!list)
            return 0;
        problems->list = list;
        problems->room = room;
    }
    char *text = place_text(config, line, message);
    if (!text)
        return 0;
    problems->list[problems->count] = (dlc_problem){
        .line = line, .warning = warning, .number = problems->count, .text = text};
    problems->count++;
    return 1;
}

static void add(dlc_problems *problems, int warning, const dlc_config *config, int line,
                const char *format, va_list args) {
    char message[2048];
    vsnprintf(message, sizeof message, format, args);
    if (warning)
        problems->warnings++;
    else
        problems->errors++;
    if (!store(problems, warning, config, line, message))
        problems->failed = 1;
}

void dlc_problems_add(dlc_problems *problems, const dlc_config *config, int line,
                      const char *format, ...) {
    va_list args;
    va_start(args, format);
    add(problems, 0, config, line, format, args);
    va_end(args);
}

void dlc_problems_warn(dlc_problems *problems, const dlc_config *config, int line,
                       const char *format, ...) {
    va_list args;
    va_start(args, format);
    add(problems, 1, config, line, format, args);
    va_end(args);
}

static int in_file_order(const void *left, const void *right) {
    const dlc_problem *a = left, *b = right;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    return a->number < b->number ? -1 : a->number > b->number;
}

dlc_status dlc_problems_report(dlc_problems *problems) {
    if (problems->count)
        qsort(problems->list, problems->count, sizeof *problems->list, in_file_order);
    size_t printed = problems->count < PRINTED ? problems->count : PRINTED;
    for (size_t i = 0; i < printed; i++)
        dlc_log(problems->list[i].warning ? DLC_LOG_WARN : DLC_LOG_ERROR, "%s",
                problems->list[i].text);
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
    for (size_t i = 0; i < problems->count; i++)
        dlc_free(problems->list[i].text);
    dlc_free(problems->list);
    dlc_free(problems->file);
    *problems = (dlc_problems){0};
}

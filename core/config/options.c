/* Checks option tables, and describes options for users. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "config/internal.h"
#include "config/value.h"

enum { LAST_TYPE = DLC_OPT_FLOATS };

/* ---- Checking ---- */

static int is_option_name(const char *name) {
    size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return length > 0 && length < 64 && name[length] == '\0';
}

static int has_range(uint32_t type) {
    return type == DLC_OPT_INT || type == DLC_OPT_FLOAT || type == DLC_OPT_INTS ||
           type == DLC_OPT_FLOATS || type == DLC_OPT_BYTES;
}

static int choices_are_sound(const char *choices) {
    size_t length = 0;
    for (size_t i = 0; choices && (choices[0] != '\0'); i++) {
        if (!dlc_choice(choices, i, &length))
            return 1;
        if (length == 0)
            return 0;
    }
    return 0;
}

/* What is wrong with a row; NULL if nothing is. */
static const char *row_mistake(const dlc_option *table, const dlc_option *row) {
    if (!is_option_name(row->name))
        return "its name has characters other than a-z, 0-9 and '_', or is too long";
    if (row->type < DLC_OPT_INT || row->type > LAST_TYPE)
        return "its type is unknown to this version of the core";
    if (has_range(row->type) && !(row->min <= row->max))
        return "its range is empty";
    if (row->type == DLC_OPT_CHOICE && !choices_are_sound(row->choices))
        return "its choices are missing or empty";
    if (!row->help || !*row->help)
        return "it has no help";
    for (const dlc_option *other = table; other != row; other = DLC_NEXT(other))
        if (strcmp(other->name, row->name) == 0)
            return "it is listed twice";
    return NULL;
}

static dlc_status check_default(const dlc_option *row) {
    char why[256];
    dlc_option_value value;
    if ((row->flags & DLC_OPT_REQUIRED) || !row->def)
        return DLC_OK;
    dlc_status rc = dlc_value_parse(row, row->def, "", &value, why, sizeof why);
    if (rc == DLC_ERR_CONFIG)
        return dlc_fail(DLC_ERR_PLUGIN, "option %s: its default: %s", row->name, why);
    if (rc == DLC_OK)
        dlc_value_free(row, &value);
    return rc;
}

dlc_status dlc_options_check(const dlc_option *table) {
    if (!table)
        return DLC_OK;
    size_t number = 1;
    for (const dlc_option *row = table;; row = DLC_NEXT(row), number++) {
        int whole = row->size >= offsetof(dlc_option, help) + sizeof row->help;
        if (!whole || row->size % _Alignof(dlc_option) != 0)
            return dlc_fail(DLC_ERR_PLUGIN,
                            "option table: row %zu has the wrong size %u", number,
                            row->size);
        if (!row->name)
            return DLC_OK;
        const char *mistake = row_mistake(table, row);
        if (mistake)
            return dlc_fail(DLC_ERR_PLUGIN, "option %s: %s",
                            is_option_name(row->name) ? row->name : "(unnamed)",
                            mistake);
        DLC_TRY(check_default(row));
    }
}

/* ---- Help ---- */

#define FILLERS "constant(x), gaussian(std[, mean]), uniform(low, high), xavier or msra"

/* Tables use various extreme values for "no limit". */
static int is_limit(double bound) {
    return isfinite(bound) && fabs(bound) < 9e15;
}

void dlc_option_range(const dlc_option *option, dlc_text *text) {
    int low = is_limit(option->min), high = is_limit(option->max);
    if (low && high)
        dlc_text_add(text, "%.15g .. %.15g", option->min, option->max);
    else if (low)
        dlc_text_add(text, "at least %.15g", option->min);
    else if (high)
        dlc_text_add(text, "at most %.15g", option->max);
    int real = option->type == DLC_OPT_FLOAT || option->type == DLC_OPT_FLOATS;
    if (real && isinf(option->max) && option->max > 0)
        dlc_text_add(text, "%sor inf", low || high ? ", " : "");
}

void dlc_option_takes(const dlc_option *option, dlc_text *text) {
    static const char *const names[] = {
        [DLC_OPT_INT] = "whole number",
        [DLC_OPT_FLOAT] = "number",
        [DLC_OPT_BOOL] = "true or false",
        [DLC_OPT_STRING] = "text",
        [DLC_OPT_CHOICE] = "one of ",
        [DLC_OPT_PATH] = "path",
        [DLC_OPT_INTS] = "whole numbers separated by commas",
        [DLC_OPT_FLOATS] = "numbers separated by commas",
        [DLC_OPT_BYTES] = "size (64K, 16M, 2G)",
        [DLC_OPT_FILLER] = FILLERS,
    };
    if (option->type < DLC_OPT_INT || option->type > LAST_TYPE)
        return;
    dlc_text_add(text, "%s", names[option->type]);
    if (option->type == DLC_OPT_CHOICE)
        dlc_text_add(text, "%s", option->choices);
    dlc_text range = {0};
    if (has_range(option->type))
        dlc_option_range(option, &range);
    if (range.length)
        dlc_text_add(text, ", ");
    dlc_text_append_text(text, &range);
    dlc_text_free(&range);
}

static int in_earlier_table(const dlc_option *const *tables, size_t ntables,
                            const char *name) {
    for (size_t t = 0; t < ntables; t++)
        for (const dlc_option *row = tables[t]; row && row->name; row = DLC_NEXT(row))
            if (strcmp(row->name, name) == 0)
                return 1;
    return 0;
}

static void add_help(const dlc_option *row, dlc_text *text) {
    dlc_text_add(text, "  %-20s ", row->name);
    dlc_option_takes(row, text);
    if (row->flags & DLC_OPT_REQUIRED)
        dlc_text_add(text, "; required");
    else if (row->def)
        dlc_text_add(text, "; default %s", *row->def ? row->def : "\"\"");
    if (row->flags & DLC_OPT_LIVE)
        dlc_text_add(text, "; may change while running");
    dlc_text_add(text, "\n  %-20s %s\n", "", row->help);
}

void dlc_options_help(const dlc_option *const *tables, size_t ntables, dlc_text *text) {
    for (size_t t = 0; t < ntables; t++)
        for (const dlc_option *row = tables[t]; row && row->name; row = DLC_NEXT(row))
            if (!in_earlier_table(tables, t, row->name))
                add_help(row, text);
}

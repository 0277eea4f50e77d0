/* Checks one section against option tables, and keeps typed values for the getters. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "config/internal.h"
#include "config/value.h"

typedef struct item {
    const dlc_option *option;
    dlc_option_value value;
    const char *text; /* own if given, the table's if default; NULL: unset */
    char *where;      /* own; NULL: that of the section */
    int line;
    int is_set;
} item;

struct dlc_settings {
    char *section;
    char *where; /* of the section */
    int line;    /* as a line for dlc_problems_add */
    item *items;
    size_t count;
    const char *replaced; /* an option whose number is this one instead, or NULL */
    double number;
};

/* ---- Making ---- */

/* The arguments of dlc_settings_make and its result so far. */
typedef struct maker {
    const dlc_config *config;
    const dlc_section *section; /* NULL: absent */
    const char *name;
    dlc_problems *problems;
    dlc_settings *settings;
} maker;

static item *find_item(const dlc_settings *settings, const char *name) {
    for (size_t i = 0; i < settings->count; i++)
        if (strcmp(settings->items[i].option->name, name) == 0)
            return &settings->items[i];
    return NULL;
}

static char *place(const dlc_config *config, int line) {
    if (!config)
        return dlc_strdup("the defaults");
    if (line == DLC_LINE_SET)
        return dlc_strdup("--set");
    if (line == DLC_LINE_FILE)
        return dlc_strdup(dlc_config_name(config));
    return dlc_format("%s:%d", dlc_config_name(config), line);
}

static dlc_status collect_rows(dlc_settings *settings, const dlc_option *const *tables,
                               size_t ntables, int line) {
    size_t most = 0;
    for (size_t t = 0; t < ntables; t++) {
        DLC_TRY(dlc_options_check(tables[t]));
        for (const dlc_option *row = tables[t]; row && row->name; row = DLC_NEXT(row))
            most++;
    }
    settings->items = dlc_alloc(most, sizeof *settings->items);
    if (!settings->items)
        return DLC_ERR_NOMEM;
    for (size_t t = 0; t < ntables; t++)
        for (const dlc_option *row = tables[t]; row && row->name; row = DLC_NEXT(row))
            if (!find_item(settings, row->name))
                settings->items[settings->count++] = (item){.option = row,
                                                            .line = line};
    return DLC_OK;
}

static void report_missing_option(const maker *make, const dlc_option *option) {
    if (make->section && make->section->broken)
        return; /* it may be in an invalid line */
    dlc_text takes = {0};
    dlc_option_takes(option, &takes);
    if (make->section)
        dlc_problems_add_in(make->problems, make->config, make->section, NULL,
                            "needs %s (%s)", option->name, dlc_text_string(&takes));
    else
        dlc_problems_add(make->problems, make->config, DLC_LINE_FILE,
                         "no section [%s]; it needs %s (%s)", make->name, option->name,
                         dlc_text_string(&takes));
    dlc_text_free(&takes);
}

static dlc_status take_default(const maker *make, item *it) {
    char why[256];
    const dlc_option *option = it->option;
    if ((option->flags & DLC_OPT_REQUIRED) || !option->def)
        return DLC_OK;
    dlc_status rc = dlc_value_parse(option, option->def,
                                    make->config ? make->config->folder : "",
                                    &it->value, why, sizeof why);
    if (rc == DLC_OK)
        it->text = option->def;
    return rc;
}

static dlc_status take_entry(const maker *make, item *it, const dlc_entry *entry) {
    char why[512];
    dlc_option_value value;
    if (entry->broken)
        return take_default(make, it);
    dlc_status rc = dlc_value_parse(it->option, entry->value,
                                    entry->line == DLC_LINE_SET ? ""
                                                                : make->config->folder,
                                    &value, why, sizeof why);
    if (rc == DLC_ERR_CONFIG) {
        dlc_problems_add_in(make->problems, make->config, make->section, entry->key,
                            "%s: %s", entry->key, why);
        return take_default(make, it);
    }
    if (rc != DLC_OK)
        return rc;
    it->value = value;
    it->is_set = 1;
    it->line = entry->line;
    it->text = dlc_strdup(entry->value);
    it->where = place(make->config, entry->line);
    return it->text && it->where ? DLC_OK : DLC_ERR_NOMEM;
}

static dlc_status fill_settings(const maker *make) {
    for (size_t i = 0; i < make->settings->count; i++) {
        item *it = &make->settings->items[i];
        const dlc_entry *entry = make->section ? dlc_section_entry(make->section,
                                                                   it->option->name)
                                               : NULL;
        if (entry) {
            DLC_TRY(take_entry(make, it, entry));
            continue;
        }
        if (it->option->flags & DLC_OPT_REQUIRED)
            report_missing_option(make, it->option);
        DLC_TRY(take_default(make, it));
    }
    return DLC_OK;
}

/* Adds "a, b, c": all names, if none is near. */
static void add_option_names(const dlc_settings *settings, dlc_text *text) {
    for (size_t i = 0; i < settings->count; i++) {
        if (text->length > 200) {
            dlc_text_add(text, ", ...");
            return;
        }
        dlc_text_add(text, "%s%s", i ? ", " : "", settings->items[i].option->name);
    }
}

static dlc_status report_unknown(const maker *make, const dlc_entry *entry) {
    const dlc_settings *settings = make->settings;
    const char **names = dlc_alloc(settings->count, sizeof *names);
    if (!names)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < settings->count; i++)
        names[i] = settings->items[i].option->name;
    char shown[DLC_SHOWN];
    dlc_text instead = {0};
    dlc_suggest(&instead, entry->key, names, settings->count);
    if (!instead.length && settings->count) {
        dlc_text_add(&instead, "; it takes ");
        add_option_names(settings, &instead);
    } else if (!instead.length)
        dlc_text_add(&instead, "; it takes none");
    dlc_problems_add_in(make->problems, make->config, make->section, entry->key,
                        "has no setting \"%s\"%s", dlc_show(entry->key, shown),
                        dlc_text_string(&instead));
    dlc_status rc = dlc_text_status(&instead);
    dlc_text_free(&instead);
    dlc_free(names);
    return rc;
}

static dlc_status find_unknown(const maker *make) {
    for (size_t i = 0; make->section && i < make->section->count; i++)
        if (!find_item(make->settings, make->section->entries[i].key))
            DLC_TRY(report_unknown(make, &make->section->entries[i]));
    return DLC_OK;
}

dlc_status dlc_settings_make(const dlc_config *config, const char *section,
                             const dlc_option *const *tables, size_t ntables,
                             dlc_problems *problems, dlc_settings **settings) {
    dlc_settings *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    maker make = {.config = config,
                  .section = config ? dlc_config_section(config, section) : NULL,
                  .name = section,
                  .problems = problems,
                  .settings = made};
    int line = make.section ? make.section->line : DLC_LINE_FILE;
    made->section = dlc_strdup(section);
    made->where = place(config, line);
    made->line = line;
    dlc_status rc = made->section && made->where ? DLC_OK : DLC_ERR_NOMEM;
    if (rc == DLC_OK)
        rc = collect_rows(made, tables, ntables, line);
    if (rc == DLC_OK)
        rc = fill_settings(&make);
    if (rc == DLC_OK)
        rc = find_unknown(&make);
    if (rc == DLC_OK && problems->failed)
        rc = dlc_fail(DLC_ERR_NOMEM, "out of memory");
    if (rc != DLC_OK) {
        dlc_settings_free(made);
        return rc;
    }
    *settings = made;
    return DLC_OK;
}

void dlc_settings_free(dlc_settings *settings) {
    if (!settings)
        return;
    for (size_t i = 0; i < settings->count; i++) {
        item *it = &settings->items[i];
        dlc_value_free(it->option, &it->value);
        if (it->is_set)
            dlc_free((char *)it->text);
        dlc_free(it->where);
    }
    dlc_free(settings->items);
    dlc_free(settings->where);
    dlc_free(settings->section);
    dlc_free(settings);
}

/* ---- Reading ---- */

/* Looks up a value that is requested as one of two types; NULL, with an error logged,
 * if the tables have no such option. */
static const item *ask(const dlc_settings *settings, const char *name, const char *as,
                       uint32_t type, uint32_t other) {
    const item *it = find_item(settings, name);
    if (!it)
        dlc_error("[%s]: a plugin asks for \"%s\", which its option table doesn't have",
                  settings->section, name);
    else if (it->option->type != type && it->option->type != other)
        dlc_error("[%s]: a plugin asks for \"%s\" as %s, but its option table says "
                  "otherwise",
                  settings->section, name, as);
    else
        return it;
    return NULL;
}

int64_t dlc_settings_get_int(const dlc_settings *settings, const char *name) {
    const item *it = ask(settings, name, "a whole number", DLC_OPT_INT, DLC_OPT_BYTES);
    return it ? it->value.i : 0;
}

dlc_settings *dlc_settings_with(const dlc_settings *settings, const char *name,
                                double number) {
    dlc_settings *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return NULL;
    *made = *settings;
    made->replaced = name;
    made->number = number;
    return made;
}

double dlc_settings_get_float(const dlc_settings *settings, const char *name) {
    if (settings->replaced && strcmp(settings->replaced, name) == 0)
        return settings->number;
    const item *it = ask(settings, name, "a number", DLC_OPT_FLOAT, DLC_OPT_FLOAT);
    return it ? it->value.f : 0;
}

int dlc_settings_get_bool(const dlc_settings *settings, const char *name) {
    const item *it = ask(settings, name, "true or false", DLC_OPT_BOOL, DLC_OPT_BOOL);
    return it ? (int)it->value.i : 0;
}

const char *dlc_settings_get_string(const dlc_settings *settings, const char *name) {
    const item *it = find_item(settings, name);
    if (it && dlc_type_is_text(it->option->type))
        return it->value.s;
    ask(settings, name, "text", DLC_OPT_STRING, DLC_OPT_STRING); /* logs an error */
    return NULL;
}

int dlc_settings_is(const dlc_settings *settings, const char *name, const char *text) {
    const char *value = dlc_settings_get_string(settings, name);
    return value && strcmp(value, text) == 0;
}

size_t dlc_settings_get_ints(const dlc_settings *settings, const char *name,
                             const int64_t **values) {
    const item *it = ask(settings, name, "whole numbers", DLC_OPT_INTS, DLC_OPT_INTS);
    if (values)
        *values = it ? it->value.list.memory : NULL;
    return it ? it->value.list.count : 0;
}

size_t dlc_settings_get_floats(const dlc_settings *settings, const char *name,
                               const double **values) {
    const item *it = ask(settings, name, "numbers", DLC_OPT_FLOATS, DLC_OPT_FLOATS);
    if (values)
        *values = it ? it->value.list.memory : NULL;
    return it ? it->value.list.count : 0;
}

/* Looks up a value of any type. */
static const item *ask_any(const dlc_settings *settings, const char *name) {
    const item *it = find_item(settings, name);
    return it ? it : ask(settings, name, "", 0, 0);
}

int dlc_settings_is_set(const dlc_settings *settings, const char *name) {
    const item *it = ask_any(settings, name);
    return it ? it->is_set : 0;
}

const char *dlc_settings_where(const dlc_settings *settings, const char *name) {
    const item *it = ask_any(settings, name);
    return it && it->where ? it->where : settings->where;
}

int dlc_settings_line(const dlc_settings *settings, const char *name) {
    const item *it = ask_any(settings, name);
    return it ? it->line : settings->line;
}

const char *dlc_settings_text(const dlc_settings *settings, const char *name) {
    const item *it = find_item(settings, name);
    return it ? it->text : NULL;
}

size_t dlc_settings_count(const dlc_settings *settings) {
    return settings->count;
}

dlc_setting dlc_settings_at(const dlc_settings *settings, size_t i) {
    const item *it = &settings->items[i];
    return (dlc_setting){.name = it->option->name,
                         .text = it->text,
                         .where = it->where ? it->where : settings->where,
                         .is_set = it->is_set,
                         .option = it->option};
}

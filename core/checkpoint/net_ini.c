/* Prints the settings of a run as net.ini, and compares two such texts. */
#include "checkpoint/net_ini.h"

#include <string.h>

#include "base/memory.h"
#include "base/names.h"

/* ---- Writing ----------------------------------------------------------------- */

static void add_value(dlc_text *text, const char *value) {
    size_t length = strlen(value);
    int needs_quotes = !length || strpbrk(value, ";#'") || value[0] == ' ' ||
                       value[length - 1] == ' ';
    dlc_text_add(text, needs_quotes ? "\"%s\"\n" : "%s\n", value);
}

static void add_setting(dlc_text *text, const dlc_setting *setting) {
    if (!setting->text)
        return;
    dlc_text_add(text, "%s%s = ", setting->is_set ? "" : "; ", setting->name);
    add_value(text, setting->text);
}

static void add_settings(dlc_text *text, const char *section,
                         const dlc_settings *settings) {
    if (!settings)
        return;
    dlc_text_add(text, "%s[%s]\n", text->length ? "\n" : "", section);
    for (size_t i = 0; i < dlc_settings_count(settings); i++) {
        dlc_setting setting = dlc_settings_at(settings, i);
        add_setting(text, &setting);
    }
}

/* Inputs are written in full: a layer's default input depends on what is above it. */
static void add_inputs(dlc_text *text, const dlc_graph *graph,
                       const dlc_graph_layer *layer) {
    for (int32_t i = 0; i < layer->inputs; i++) {
        dlc_graph_input from = layer->input[i];
        dlc_text_add(text, i ? ", " : "input = ");
        if (from.layer == DLC_FROM_DATA)
            dlc_text_add(text, "%s", graph->field[from.output].name);
        else
            dlc_text_add(text, "%s", graph->layer[from.layer].name);
        if (from.layer != DLC_FROM_DATA && from.output)
            dlc_text_add(text, ":%d", (int)from.output);
    }
    if (layer->inputs)
        dlc_text_add(text, "\n");
}

static void add_layer(dlc_text *text, const dlc_graph *graph,
                      const dlc_graph_layer *layer) {
    dlc_text_add(text, "\n[%s]\n", layer->name);
    for (size_t i = 0; i < dlc_settings_count(layer->settings); i++) {
        dlc_setting setting = dlc_settings_at(layer->settings, i);
        if (strcmp(setting.name, "input") == 0)
            add_inputs(text, graph, layer);
        else if (strcmp(setting.name, "label") != 0) /* it is one of the inputs */
            add_setting(text, &setting);
    }
}

void dlc_net_ini_print(const dlc_setup *setup, dlc_text *text) {
    add_settings(text, "net", setup->net_settings);
    add_settings(text, "data", setup->train.settings);
    add_settings(text, "data.test", setup->test.settings);
    add_settings(text, "solver", setup->solver_settings);
    add_settings(text, "consistency", setup->consistency_settings);
    add_settings(text, "train", setup->train_settings);
    add_settings(text, "parallel", setup->parallel_settings);
    add_settings(text, "transport", setup->transport_settings);
    for (int32_t i = 0; setup->graph && i < setup->graph->layers; i++)
        add_layer(text, setup->graph, &setup->graph->layer[i]);
}

/* ---- Comparing --------------------------------------------------------------- */

typedef struct line {
    const char *section, *key, *value; /* key NULL: the section begins */
} line;

typedef struct lines {
    line *list; /* own */
    size_t count;
    dlc_names sections; /* where each begins */
} lines;

static dlc_status add_line(lines *all, line one) {
    line *grown = dlc_grow_by_one(all->list, all->count, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    all->list = grown;
    grown[all->count++] = one;
    return one.key ? DLC_OK
                   : dlc_names_add(&all->sections, one.section, all->count - 1);
}

static dlc_status parse(char *text, lines *all) {
    const char *section = "";
    char *rest = NULL;
    for (char *at = strtok_r(text, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest)) {
        char *equals = strstr(at, " = "), *end = strchr(at, ']');
        if (at[0] == '[' && end) {
            *end = '\0';
            section = at + 1;
            DLC_TRY(add_line(all, (line){section, NULL, NULL}));
        } else if (equals) {
            *equals = '\0';
            const char *key = strncmp(at, "; ", 2) == 0 ? at + 2 : at;
            DLC_TRY(add_line(all, (line){section, key, equals + 3}));
        }
    }
    return DLC_OK;
}

static int has_section(const lines *all, const char *section) {
    return dlc_names_find(&all->sections, section) >= 0;
}

/* The same line in a list, or NULL. */
static const line *find(const lines *all, const line *wanted) {
    ptrdiff_t begin = dlc_names_find(&all->sections, wanted->section);
    if (begin < 0)
        return NULL;
    const line *at = &all->list[begin], *end = &all->list[all->count];
    if (!wanted->key)
        return at;
    for (at++; at < end && at->key; at++) /* to the next section */
        if (strcmp(at->key, wanted->key) == 0)
            return at;
    return NULL;
}

/* Visits the lines of `one` that differ in `other`; a section that is missing as a
 * whole is visited once. */
static void compare(const lines *one, const lines *other, int is_before,
                    dlc_net_ini_visit visit, void *context) {
    for (size_t i = 0; i < one->count; i++) {
        const line *at = &one->list[i], *match = find(other, at);
        if (match && (!is_before || !at->key || strcmp(at->value, match->value) == 0))
            continue;
        if (!match && at->key && !has_section(other, at->section))
            continue;
        const char *value = at->key ? at->value : "";
        const char *theirs = match ? match->value : NULL;
        dlc_net_ini_difference difference = {at->section, at->key,
                                             is_before ? value : theirs,
                                             is_before ? theirs : value};
        visit(context, &difference);
    }
}

dlc_status dlc_net_ini_compare(char *before, char *now, dlc_net_ini_visit visit,
                               void *context) {
    lines old = {0}, new = {0};
    dlc_status status = parse(before, &old);
    if (status == DLC_OK)
        status = parse(now, &new);
    if (status == DLC_OK) {
        compare(&old, &new, 1, visit, context);
        compare(&new, &old, 0, visit, context);
    }
    dlc_names_free(&old.sections);
    dlc_names_free(&new.sections);
    dlc_free(old.list);
    dlc_free(new.list);
    return status;
}

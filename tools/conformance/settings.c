/* The settings of the feature under test, from --set and its defaults. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "solver/solver.h"
#include "suite.h"

/* The tables of a feature: its own, and that of the keys that the core reads in the
 * same section. NULL: no options. */
enum { TABLES = 2 };

static void tables_of(const dlc_feature *feature, const dlc_option *tables[TABLES]) {
    tables[0] = feature->options;
    tables[1] = feature->kind == DLC_KIND_SOLVER ? dlc_solver_options : NULL;
}

static const dlc_option *find_option(const dlc_feature *feature, const char *name,
                                     size_t length) {
    const dlc_option *tables[TABLES];
    tables_of(feature, tables);
    for (int i = 0; i < TABLES; i++)
        for (const dlc_option *row = tables[i]; row && row->name; row = DLC_NEXT(row))
            if (strlen(row->name) == length && strncmp(row->name, name, length) == 0)
                return row;
    return NULL;
}

const dlc_option *suite_option(const dlc_feature *feature, const char *name) {
    return find_option(feature, name, strlen(name));
}

/* The row that a `--set` is about, and its "key=value"; NULL if it does not apply to
 * this feature: "key=value" is for every feature that has the key, "name.key=value" for
 * the feature of that name. */
static const dlc_option *option_of(const dlc_feature *feature, const char *set,
                                   const char **rest) {
    size_t name = strlen(feature->name);
    if (strncmp(set, feature->name, name) == 0 && set[name] == '.')
        set += name + 1;
    *rest = set;
    return find_option(feature, set, strcspn(set, "="));
}

static int is_given(const suite_run *run, const dlc_option *row) {
    const char *rest;
    for (size_t i = 0; i < run->subject->nsets; i++)
        if (option_of(run->feature, run->subject->sets[i], &rest) == row)
            return 1;
    return 0;
}

static void must_be_complete(suite_run *run) {
    const dlc_option *tables[TABLES];
    tables_of(run->feature, tables);
    for (int i = 0; i < TABLES; i++)
        for (const dlc_option *row = tables[i]; row && row->name; row = DLC_NEXT(row))
            if (row->flags & DLC_OPT_REQUIRED && !is_given(run, row))
                suite_lack(run,
                           "its setting %s has no default; give it by --set %s=VALUE",
                           row->name, row->name);
}

typedef struct first_mistake {
    char message[400];
} first_mistake;

static void note_mistake(void *context, const dlc_mistake *mistake) {
    first_mistake *first = context;
    if (!first->message[0] && !mistake->is_warning)
        (void)snprintf(first->message, sizeof first->message, "%s", mistake->message);
}

void suite_make_settings(suite_run *run) {
    const suite_subject *subject = run->subject;
    const char *const reserved[] = {"feature", NULL};
    const dlc_option *options[TABLES];
    first_mistake first = {""};
    dlc_problems problems = {.on_report = note_mistake, .report_context = &first};
    dlc_config *config = NULL;
    char **sets = dlc_alloc(subject->nsets + 1, sizeof *sets);
    size_t count = 0;
    const char *rest;
    tables_of(run->feature, options);
    must_be_complete(run);
    for (size_t i = 0; sets && i < subject->nsets; i++)
        if (option_of(run->feature, subject->sets[i], &rest))
            sets[count++] = dlc_format("feature.%s", rest);
    dlc_status status = sets
                            ? dlc_config_load(NULL, reserved, (const char *const *)sets,
                                              count, &problems, &config)
                            : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_settings_make(config, "feature", options, TABLES, &problems,
                                   &run->settings);
    suite_must(run, status, "making its settings");
    if (problems.errors) {
        (void)dlc_problems_report(&problems);
        suite_lack(run, "--set: %s", first.message);
    }
}

/* A --set that no feature has would leave a check with other settings than meant. */
static void sets_are_known(suite_run *run) {
    const suite_subject *subject = run->subject;
    suite_check_descriptor(run);
    for (size_t i = 0; i < subject->nsets; i++) {
        const char *rest;
        int known = 0;
        dlc_text names = {0};
        for (const dlc_feature *f = NULL; (f = suite_accepted(run, f));) {
            known |= option_of(f, subject->sets[i], &rest) != NULL;
            for (const dlc_option *row = f->options; row && row->name;
                 row = DLC_NEXT(row))
                dlc_text_add(&names, " %s.%s", f->name, row->name);
        }
        if (!known || !strchr(subject->sets[i], '='))
            suite_lack(run, "--set %s: %s; there are:%s", subject->sets[i],
                       known ? "it has no value" : "no feature has this setting",
                       names.length ? dlc_text_string(&names) : " none");
        dlc_text_free(&names);
    }
}

const suite_check suite_settings_checks[] = {
    {"file.settings", "every --set is a setting of one of its features", 0, 0,
     SUITE_OPENED, 30, sets_are_known},
    {.name = NULL},
};

/* The conformance suite: does a plugin keep the promises of the SDK's headers?
 *
 * Every check runs in a process of its own with a limit of time, since a plugin that
 * breaks one may crash or hang. A check is a function that ends with suite_fail or
 * suite_skip, or returns: then it has passed. */
#ifndef DLC_TOOLS_CONFORMANCE_SUITE_H
#define DLC_TOOLS_CONFORMANCE_SUITE_H

#include <dlcore/plugin.h>

#include "config/config.h"

/* What is checked. */
typedef struct suite_subject {
    const char *path;        /* of the file */
    const char *const *sets; /* "key=value", for settings that have no default */
    size_t nsets;
    double patience; /* times the usual limits; 1 on an idle machine */
} suite_subject;

/* What a check gets, in its own process. */
typedef struct suite_run {
    const suite_subject *subject;
    const dlc_plugin *plugin;   /* opened; load() was called where `loads` says so */
    const dlc_feature *feature; /* NULL in checks of the file */
    dlc_settings *settings;     /* of the feature */
    int report;                 /* where the outcome goes */
} suite_run;

/* When a check begins: before anything of the plugin runs, or after its load(). */
typedef enum suite_stage { SUITE_CLOSED, SUITE_OPENED, SUITE_LOADED } suite_stage;

typedef struct suite_check {
    const char *name;    /* "solver.resume" */
    const char *promise; /* one line, no full stop */
    dlc_kind kind;       /* of features; 0: once for the file, or any kind ... */
    int every_feature;   /* ... once for each */
    suite_stage stage;
    double seconds; /* it may take */
    void (*run)(suite_run *run);
} suite_check;

/* One table a file of checks, each ending with a NULL name. */
extern const suite_check suite_file_checks[], suite_load_checks[],
    suite_feature_checks[], suite_life_checks[], suite_device_checks[],
    suite_transport_checks[], suite_layer_checks[], suite_solver_checks[],
    suite_data_checks[];

/* The end of a check: a promise is broken; or it cannot be looked at here. */
__attribute__((noreturn, format(printf, 2, 3))) void
suite_fail(suite_run *run, const char *format, ...);
__attribute__((noreturn, format(printf, 2, 3))) void
suite_skip(suite_run *run, const char *format, ...);

/* Fails with the plugin's sentence where a call that must succeed did not. */
void suite_must(suite_run *run, dlc_status status, const char *call);

typedef enum suite_verdict {
    SUITE_PASSED,
    SUITE_FAILED,
    SUITE_SKIPPED,
} suite_verdict;

typedef struct suite_result {
    const suite_check *check;
    char feature[80]; /* "solver sgd"; "" for the file's */
    suite_verdict verdict;
    char words[480]; /* why */
    double seconds;
} suite_result;

typedef struct suite_results {
    suite_result *result; /* own */
    size_t count, passed, failed, skipped;
} suite_results;

/* Runs all checks whose name begins with `only` (NULL: all). Start with {0}; release
 * with suite_results_free. `progress` (NULL allowed) is told of each as it comes. */
dlc_status suite_play(const suite_subject *subject, const char *only,
                      void (*progress)(const suite_result *result),
                      suite_results *results);
void suite_results_free(suite_results *results);

/* All checks there are, one behind the other; NULL behind the last. */
const suite_check *suite_at(size_t i);

#endif

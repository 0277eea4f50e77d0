/* The conformance suite: checks that a plugin obeys the rules in the SDK's headers.
 *
 * Every check runs in a process of its own with a time limit, because a faulty plugin
 * may crash or hang. A check is a function: it fails by calling suite_fail, is skipped
 * by calling suite_skip, and passes by returning. */
#ifndef DLC_TOOLS_CONFORMANCE_SUITE_H
#define DLC_TOOLS_CONFORMANCE_SUITE_H

#include <sys/types.h>

#include <dlcore/plugin.h>

#include "config/config.h"

/* The file under test. */
typedef struct suite_subject {
    const char *path;        /* the plugin's file */
    const char *const *sets; /* "key=value", for settings without a default */
    size_t nsets;
    const char *const *inputs; /* "4x3x8x8,4:int32", more inputs to try layers with */
    size_t ninputs;
    int verbose;          /* show what the plugin logs and prints */
    double timeout_scale; /* factor on the time limits; 1 on an idle machine */
} suite_subject;

/* The argument of a check, in its own process. */
typedef struct suite_run {
    const suite_subject *subject;
    const dlc_plugin *plugin;   /* loaded, and load() was called, as the stage says */
    const dlc_feature *feature; /* NULL for checks of the file */
    dlc_settings *settings;     /* of the feature, at SUITE_LOADED */
    int report;                 /* the pipe for the result */
    pid_t process;              /* of the check, or of a rank of it */
} suite_run;

/* How far the plugin has been loaded when the check begins: not at all, mapped into the
 * process, or load() has returned. */
typedef enum suite_stage { SUITE_CLOSED, SUITE_OPENED, SUITE_LOADED } suite_stage;

typedef struct suite_check {
    const char *name;    /* "solver.resume" */
    const char *promise; /* what must hold: one line, without a full stop */
    dlc_kind kind;       /* run for each feature of this kind; 0: see below */
    int every_feature;   /* kind 0: run for each feature, or (0) once for the file */
    suite_stage stage;
    double seconds; /* the time limit; a layer has 10 s at most */
    void (*run)(suite_run *run);
} suite_check;

/* The tables of checks, one for each file of checks; each ends with a NULL name. */
extern const suite_check suite_file_checks[], suite_settings_checks[],
    suite_load_checks[], suite_digest_checks[], suite_feature_checks[],
    suite_lifecycle_checks[], suite_device_machine_checks[], suite_device_checks[],
    suite_device_queue_checks[], suite_device_kernel_checks[],
    suite_device_update_checks[], suite_transport_checks[],
    suite_transport_fault_checks[], suite_transport_endpoint_checks[],
    suite_layer_checks[], suite_layer_memory_checks[], suite_layer_caps_checks[],
    suite_layer_training_checks[], suite_layer_fuse_checks[],
    suite_layer_lasting_checks[], suite_solver_checks[], suite_consistency_checks[],
    suite_data_checks[], suite_decoder_checks[], suite_encoder_checks[];

/* End the check: it failed, or it cannot be done here. The sentence says why. */
__attribute__((noreturn, format(printf, 2, 3))) void
suite_fail(suite_run *run, const char *format, ...);
__attribute__((noreturn, format(printf, 2, 3))) void
suite_skip(suite_run *run, const char *format, ...);

/* Ends the check: it could not be run, because the user has to give something. */
__attribute__((noreturn, format(printf, 2, 3))) void
suite_lack(suite_run *run, const char *format, ...);

/* The row of the tables from which the feature's settings were made; NULL: none. */
const dlc_option *suite_option(const dlc_feature *feature, const char *name);

/* Makes run->settings from --set and the defaults of the feature. Ends the check if a
 * value is missing or wrong. */
void suite_make_settings(suite_run *run);

/* Fails the check if dlcore refuses the plugin's descriptor, whose tables may then have
 * no end: checks of a whole file call this before they walk them. */
void suite_check_descriptor(suite_run *run);

/* The first feature that dlcore accepts, or the first one behind `after`; NULL: there
 * is none. The option table of another one may have no end. */
const dlc_feature *suite_accepted(const suite_run *run, const dlc_feature *after);

/* Fails the check with the plugin's detail sentence unless `status` is DLC_OK, or if
 * the call has changed the process (process.h) or bytes around its memory (guard.h). */
void suite_must(suite_run *run, dlc_status status, const char *call);

typedef enum suite_verdict {
    SUITE_PASSED,
    SUITE_FAILED,
    SUITE_SKIPPED, /* it does not apply, or cannot be done on this machine */
    SUITE_NOT_RUN, /* the user has to give something first, or it hung before */
} suite_verdict;

typedef struct suite_result {
    const suite_check *check;
    char feature[80]; /* "solver sgd"; "" for checks of the file */
    suite_verdict verdict;
    char words[480]; /* why it failed or was skipped; "" if it passed */
    int hung;        /* the time limit was reached; later checks are not run */
    double seconds;
} suite_result;

typedef struct suite_results {
    suite_result *result; /* owned */
    size_t count, passed, failed, skipped, not_run;
    int has_unknown_features; /* it cannot be loaded, so its features were not checked
                               */
} suite_results;

/* Runs all checks whose name begins with `only` (NULL: all). `results` starts as {0}
 * and is released with suite_results_free. `progress`, unless it is NULL, is called
 * with each result. Returns an error only if the checks cannot be run. */
dlc_status suite_play(const suite_subject *subject, const char *only,
                      void (*progress)(const suite_result *result),
                      suite_results *results);
void suite_results_free(suite_results *results);

#endif

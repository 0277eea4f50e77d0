/* Implements `dlcore plugin check`: prints the results of the conformance suite. */
#include "report.h"

#include <stdio.h>
#include <stdlib.h>

#include "../options.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/status.h"
#include "suite.h"

static const char *verdict_text(suite_verdict verdict) {
    return verdict == SUITE_PASSED    ? "ok"
           : verdict == SUITE_FAILED  ? "FAILED"
           : verdict == SUITE_SKIPPED ? "skipped"
                                      : "not run";
}

static void print_result(const suite_result *result) {
    printf("%-8s %-29s %s%s%s%s%s\n", verdict_text(result->verdict),
           result->check->name, result->feature, result->feature[0] ? ": " : "",
           result->check->promise, result->words[0] ? "\n         " : "",
           result->words);
    (void)fflush(stdout);
}

static void result_json(dlc_json *json, const suite_result *result) {
    dlc_json_object(json, NULL);
    dlc_json_string(json, "check", result->check->name);
    dlc_json_string(json, "feature", result->feature[0] ? result->feature : NULL);
    dlc_json_string(json, "promise", result->check->promise);
    dlc_json_string(json, "verdict",
                    result->verdict == SUITE_PASSED    ? "passed"
                    : result->verdict == SUITE_FAILED  ? "failed"
                    : result->verdict == SUITE_SKIPPED ? "skipped"
                                                       : "not run");
    dlc_json_string(json, "reason", result->words[0] ? result->words : NULL);
    dlc_json_number(json, "seconds", result->seconds);
    dlc_json_end_object(json);
}

static dlc_status print_json(const plugin_check *what, const suite_results *results) {
    dlc_json json = {0};
    dlc_json_object(&json, NULL);
    dlc_json_string(&json, "file", what->file);
    dlc_json_int(&json, "passed", (int64_t)results->passed);
    dlc_json_int(&json, "failed", (int64_t)results->failed);
    dlc_json_int(&json, "skipped", (int64_t)results->skipped);
    dlc_json_int(&json, "not_run", (int64_t)results->not_run);
    dlc_json_array(&json, "checks");
    for (size_t i = 0; i < results->count; i++)
        result_json(&json, &results->result[i]);
    dlc_json_end_array(&json);
    dlc_json_end_object(&json);
    return dlc_tool_print_json(&json);
}

static void print_counts(const suite_results *results) {
    printf("%zu passed, %zu failed, %zu skipped, %zu not run\n", results->passed,
           results->failed, results->skipped, results->not_run);
    if (results->has_unknown_features)
        puts("The checks of its features were not run, since it cannot be loaded.");
}

/* What was not run counts as a mistake, so that a green check can be trusted. */
static dlc_status judge(const plugin_check *what, const suite_results *results) {
    if (results->failed)
        return dlc_fail(DLC_ERR_PLUGIN, "%s failed %zu check%s", what->file,
                        results->failed, results->failed == 1 ? "" : "s");
    if (results->not_run)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%zu check%s of %s could not be run; --set gives settings, "
                        "`dlcore plugin inspect` lists them, and --inputs gives shapes "
                        "to layers",
                        results->not_run, results->not_run == 1 ? "" : "s", what->file);
    if (!results->count)
        return dlc_fail(DLC_ERR_CONFIG, "no check has a name that begins with '%s'",
                        what->only ? what->only : "");
    return DLC_OK;
}

/* The factor on all time limits, for slow machines (valgrind, an emulator). */
static double timeout_scale(void) {
    const char *text = getenv("DLCORE_CONFORMANCE_TIMEOUT_SCALE");
    double scale = text ? strtod(text, NULL) : 1;
    return scale > 0 ? scale : 1;
}

dlc_status dlc_plugin_check_file(const plugin_check *what) {
    suite_results results = {0};
    char *path = realpath(what->file, NULL); /* the dynamic loader needs a '/' in it */
    if (!path)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: there is no such file", what->file);
    suite_subject subject = {.path = path,
                             .sets = what->sets,
                             .nsets = what->nsets,
                             .inputs = what->inputs,
                             .ninputs = what->ninputs,
                             .verbose = what->verbose,
                             .timeout_scale = timeout_scale()};
    dlc_status status = suite_play(&subject, what->only,
                                   what->json ? NULL : print_result, &results);
    if (status == DLC_OK && what->json)
        status = print_json(what, &results);
    else if (status == DLC_OK)
        print_counts(&results);
    if (status == DLC_OK)
        status = judge(what, &results);
    suite_results_free(&results);
    free(path);
    return status;
}

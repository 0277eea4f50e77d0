/* Implements the conformance suite: the list of checks, and running each in a
 * process. */
#include "suite.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/escape.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "guard.h"
#include "host.h"
#include "plugin/check.h"
#include "plugin/child.h"
#include "plugin/object.h"
#include "plugin/registry.h"
#include "plugin/search.h"
#include "process.h"

static const suite_check *const tables[] = {
    suite_file_checks,
    suite_settings_checks,
    suite_load_checks,
    suite_digest_checks,
    suite_feature_checks,
    suite_lifecycle_checks,
    suite_device_machine_checks,
    suite_device_checks,
    suite_device_queue_checks,
    suite_device_kernel_checks,
    suite_device_update_checks,
    suite_transport_checks,
    suite_transport_fault_checks,
    suite_transport_endpoint_checks,
    suite_layer_checks,
    suite_layer_memory_checks,
    suite_layer_caps_checks,
    suite_layer_training_checks,
    suite_layer_fuse_checks,
    suite_layer_lasting_checks,
    suite_solver_checks,
    suite_consistency_checks,
    suite_data_checks,
    suite_decoder_checks,
    suite_encoder_checks,
};

/* Check number i of all tables; NULL after the last one. */
static const suite_check *suite_at(size_t i) {
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const suite_check *check = tables[t]; check->name; check++)
            if (i-- == 0)
                return check;
    return NULL;
}

/* ---- In the child ----------------------------------------------------------- */

/* The first byte of a report, which is one line. If several ranks of a check report,
 * the first report counts. */
enum {
    SAYS_FAILED = 'F',
    SAYS_SKIPPED = 'S',
    SAYS_LACKING = 'L',
    SAYS_PASSED = 'P',
    REPORT = 480
};

static void flatten(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < 0x20)
            *text = ' ';
}

/* Sends the report and ends the process. `text` has room for a newline. */
__attribute__((noreturn)) static void end(const suite_run *run, char text[REPORT]) {
    flatten(text);
    size_t bytes = strlen(text);
    text[bytes++] = '\n';
    /* _exit, so that exit handlers of the plugin do not run. */
    _exit(write(run->report, text, bytes) == (ssize_t)bytes ? 0 : 1);
}

void suite_fail(suite_run *run, const char *format, ...) {
    char text[REPORT] = {SAYS_FAILED};
    va_list args;
    va_start(args, format);
    (void)dlc_print(text + 1, sizeof text - 2, format, args);
    va_end(args);
    end(run, text);
}

void suite_lack(suite_run *run, const char *format, ...) {
    char text[REPORT] = {SAYS_LACKING};
    va_list args;
    va_start(args, format);
    (void)dlc_print(text + 1, sizeof text - 2, format, args);
    va_end(args);
    end(run, text);
}

void suite_skip(suite_run *run, const char *format, ...) {
    char text[REPORT] = {SAYS_SKIPPED};
    va_list args;
    va_start(args, format);
    (void)dlc_print(text + 1, sizeof text - 2, format, args);
    va_end(args);
    end(run, text);
}

void suite_must(suite_run *run, dlc_status status, const char *call) {
    if (status != DLC_OK)
        suite_fail(run, "%s failed (%s): %s", call, dlc_status_text(status),
                   *dlc_detail() ? dlc_detail() : "no detail sentence was set");
    suite_process_check(run, call);
    guard_check(run, call);
}

void suite_check_descriptor(suite_run *run) {
    size_t features = 0;
    if (dlc_plugin_check(run->subject->path, run->plugin, &features) != DLC_OK)
        suite_fail(run, "%s", dlc_detail());
}

const dlc_feature *suite_accepted(const suite_run *run, const dlc_feature *after) {
    const dlc_feature *f = after ? DLC_NEXT(after) : run->plugin->features;
    dlc_entry_state state;
    while (f->name && dlc_feature_check(f, &state) != DLC_OK)
        f = DLC_NEXT(f);
    return f->name ? f : NULL;
}

/* The i-th feature of the table. */
static const dlc_feature *feature_at(const dlc_plugin *plugin, size_t i) {
    const dlc_feature *feature = plugin->features;
    while (i-- > 0)
        feature = DLC_NEXT(feature);
    return feature;
}

static void prepare(suite_run *run, const suite_check *check, int feature) {
    struct stat info;
    if (check->stage == SUITE_CLOSED)
        return;
    if (stat(run->subject->path, &info) != 0)
        suite_fail(run, "cannot be read: %s", strerror(errno));
    suite_must(run, dlc_object_open(run->subject->path, &info, &run->plugin),
               "loading the file");
    if (check->stage == SUITE_LOADED) {
        dlc_status status = suite_load(run);
        if (status == DLC_ERR_UNAVAILABLE)
            suite_skip(run, "it cannot work here: %s", dlc_detail());
        suite_must(run, status, "load");
    }
    if (feature < 0)
        return;
    run->feature = feature_at(run->plugin, (size_t)feature);
    if (check->stage == SUITE_LOADED)
        suite_make_settings(run);
}

__attribute__((noreturn)) static void run_child(const suite_subject *subject,
                                                const suite_check *check, int feature,
                                                int report) {
    suite_run run = {.subject = subject, .report = report};
    dlc_exit_allow(); /* the exit code shows it */
    /* Neither this process nor any that it starts (its process group) outlives the
     * check. */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setpgid(0, 0);
    (void)signal(SIGPIPE, SIG_IGN); /* as in jobs */
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0) {
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(null, STDOUT_FILENO);
        if (!subject->verbose)
            (void)dup2(null, STDERR_FILENO);
    }
    suite_process_begin(&run);
    prepare(&run, check, feature);
    check->run(&run);
    suite_process_finish(&run);
    suite_host_check();
    guard_check(&run, "the plugin");
    char text[REPORT] = {SAYS_PASSED};
    end(&run, text);
}

/* ---- In the parent ---------------------------------------------------------- */

/* The most processes of one check: its ranks, and what each of them starts. */
enum { PROCESSES_MOST = 64, LOOK_MS = 20 };

/* Reads the report of the child until it ends or the time limit is reached, or until
 * there are so many processes that the machine would suffer. */
static void read_report(int report, double seconds, char *text, size_t bytes,
                        int *timed_out) {
    dlc_stopwatch watch = {0};
    size_t length = 0;
    *timed_out = 0;
    for (;;) {
        struct pollfd end = {.fd = report, .events = POLLIN};
        int ready = poll(&end, 1, LOOK_MS);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0 && suite_count_descendants(PROCESSES_MOST) == PROCESSES_MOST) {
            length = (size_t)snprintf(text, bytes,
                                      "%cit has started %d processes or more",
                                      SAYS_FAILED, PROCESSES_MOST);
            break;
        }
        if (ready == 0 && dlc_stopwatch_look(&watch) < seconds)
            continue;
        if (ready <= 0) {
            *timed_out = ready == 0;
            break;
        }
        ssize_t got = read(report, text + length, bytes - 1 - length);
        if (got <= 0)
            break;
        length += (size_t)got;
        if (memchr(text, '\n', length))
            break;
    }
    text[length] = '\0';
    text[strcspn(text, "\n")] = '\0';
}

static void judge(suite_result *result, const char *text, int status) {
    result->verdict = SUITE_FAILED;
    if (result->hung)
        (void)snprintf(result->words, sizeof result->words,
                       "not done after %.0f s: it hangs", result->seconds);
    else if (WIFSIGNALED(status))
        (void)snprintf(result->words, sizeof result->words, "killed by signal %d (%s)",
                       WTERMSIG(status), strsignal(WTERMSIG(status)));
    else if (!text[0])
        (void)snprintf(result->words, sizeof result->words,
                       "the plugin ended the process (exit code %d)",
                       WEXITSTATUS(status));
    else {
        result->verdict = text[0] == SAYS_PASSED    ? SUITE_PASSED
                          : text[0] == SAYS_SKIPPED ? SUITE_SKIPPED
                          : text[0] == SAYS_LACKING ? SUITE_NOT_RUN
                                                    : SUITE_FAILED;
        (void)snprintf(result->words, sizeof result->words, "%s", text + 1);
    }
}

static dlc_status run_check(const suite_subject *subject, const suite_check *check,
                            int feature, double seconds, suite_result *result) {
    int report[2];
    char text[REPORT];
    int status = 0;
    uint64_t start = dlc_now_ns();

    if (pipe2(report, O_CLOEXEC) != 0)
        return dlc_fail(DLC_ERR_IO, "pipe: %s", strerror(errno));
    (void)fflush(NULL);
    pid_t child = fork();
    if (child < 0) {
        (void)close(report[0]);
        (void)close(report[1]);
        return dlc_fail(DLC_ERR_IO, "fork: %s", strerror(errno));
    }
    if (child == 0)
        run_child(subject, check, feature, report[1]);
    (void)setpgid(child, child);
    (void)close(report[1]);
    read_report(report[0], seconds * subject->timeout_scale, text, sizeof text,
                &result->hung);
    (void)close(report[0]);
    (void)kill(-child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    dlc_children_end();
    result->seconds = dlc_since(start);
    /* If there is a report, the child was killed only after it had reported. */
    judge(result, text, text[0] ? 0 : status);
    return DLC_OK;
}

/* ---- All of them ------------------------------------------------------------ */

static int is_wanted(const suite_check *check, const char *only) {
    return !only || strncmp(check->name, only, strlen(only)) == 0;
}

/* A layer computes something small in memory, unless its check asks for more than a
 * minute; the others may have to wait for devices, files or peers. */
#define LAYER_SECONDS 10.0
#define MINUTE 60.0

static double limit_of(const suite_check *check, const dlc_feature_entry *feature) {
    int is_layer = feature && feature->kind == DLC_KIND_LAYER;
    return is_layer && check->seconds > LAYER_SECONDS && check->seconds <= MINUTE
               ? LAYER_SECONDS
               : check->seconds;
}

/* The check in which this feature hung; NULL if it did not. */
static const suite_check *hung_in(const suite_results *results, const char *feature) {
    for (size_t i = 0; i < results->count; i++)
        if (results->result[i].hung && strcmp(results->result[i].feature, feature) == 0)
            return results->result[i].check;
    return NULL;
}

/* What hung once is not waited for again. */
static dlc_status run_unless_hung(const suite_subject *subject,
                                  const suite_results *results, int feature,
                                  double seconds, suite_result *result) {
    const suite_check *hung = hung_in(results, result->feature);
    if (!hung)
        return run_check(subject, result->check, feature, seconds, result);
    result->verdict = SUITE_NOT_RUN;
    (void)snprintf(result->words, sizeof result->words, "it hung in %s", hung->name);
    return DLC_OK;
}

static dlc_status add(const suite_subject *subject, const suite_check *check,
                      const dlc_feature_entry *feature, int index,
                      void (*progress)(const suite_result *result),
                      suite_results *results) {
    suite_result *grown = dlc_grow_by_one(results->result, results->count,
                                          sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    results->result = grown;
    suite_result *result = &grown[results->count];
    *result = (suite_result){.check = check};
    if (feature)
        (void)snprintf(result->feature, sizeof result->feature, "%s %s",
                       dlc_kind_text((dlc_kind)feature->kind), feature->name);
    DLC_TRY(run_unless_hung(subject, results, index, limit_of(check, feature), result));
    results->count++;
    results->passed += result->verdict == SUITE_PASSED;
    results->failed += result->verdict == SUITE_FAILED;
    results->skipped += result->verdict == SUITE_SKIPPED;
    results->not_run += result->verdict == SUITE_NOT_RUN;
    if (progress)
        progress(result);
    return DLC_OK;
}

/* Of a feature that dlcore refuses, only the first check says why: the others would
 * rely on tables that may have no end. */
static int is_of(const suite_check *check, const dlc_feature_entry *feature) {
    if (feature->state != DLC_ENTRY_UNTRIED && check != &suite_feature_checks[0])
        return 0;
    return check->kind ? (uint32_t)check->kind == feature->kind : check->every_feature;
}

static dlc_status play_features(const suite_subject *subject, const suite_check *check,
                                const dlc_plugin_entry *plugin,
                                void (*progress)(const suite_result *result),
                                suite_results *results) {
    for (size_t i = 0; i < plugin->features; i++)
        if (is_of(check, &plugin->feature[i]))
            DLC_TRY(
                add(subject, check, &plugin->feature[i], (int)i, progress, results));
    return DLC_OK;
}

dlc_status suite_play(const suite_subject *subject, const char *only,
                      void (*progress)(const suite_result *result),
                      suite_results *results) {
    dlc_registry *registry = NULL;
    const suite_check *check;
    struct stat info;
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1); /* nothing outlives its check */
    /* What others can change or exchange is not opened; the first check says why. */
    dlc_status status = dlc_path_trust(subject->path, &info);
    if (status == DLC_ERR_PLUGIN) {
        results->has_unknown_features = 1;
        return add(subject, suite_at(0), NULL, -1, progress, results);
    }
    /* If loading the file crashes, it must not do so in this process. */
    int loadable = 1;
    for (size_t i = 0; status == DLC_OK && (check = suite_at(i)); i++) {
        if (check->kind || check->every_feature || !is_wanted(check, only))
            continue;
        status = add(subject, check, NULL, -1, progress, results);
        loadable &= results->result[results->count - 1].verdict != SUITE_FAILED ||
                    check->stage != SUITE_OPENED;
    }
    results->has_unknown_features = !loadable;
    if (status != DLC_OK || !loadable)
        return status;
    DLC_TRY(dlc_registry_inspect(subject->path, &registry));
    const dlc_plugin_entry *plugin = dlc_registry_plugin(registry, 0);
    results->has_unknown_features = !plugin || !plugin->features;
    for (size_t i = 0; plugin && status == DLC_OK && (check = suite_at(i)); i++)
        if ((check->kind || check->every_feature) && is_wanted(check, only))
            status = play_features(subject, check, plugin, progress, results);
    dlc_registry_close(registry);
    return status;
}

void suite_results_free(suite_results *results) {
    dlc_free(results->result);
    *results = (suite_results){0};
}

/* The checks of load(): it must not disturb a process that only lists plugins. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "host.h"
#include "process.h"
#include "suite.h"

static void load_or_skip(suite_run *run) {
    dlc_status status = suite_load(run);
    if (status == DLC_ERR_UNAVAILABLE)
        suite_skip(run, "it cannot work here: %s", dlc_detail());
    suite_must(run, status, "load");
}

static void says_why_not(suite_run *run) {
    dlc_status status = suite_load(run);
    if (status != DLC_OK && !*dlc_detail())
        suite_fail(run, "load failed (%s) without a detail sentence",
                   dlc_status_text(status));
    if (status != DLC_OK && status != DLC_ERR_UNAVAILABLE && status != DLC_ERR_NOMEM)
        suite_fail(run,
                   "load returned '%s'; if the plugin cannot work here it must return "
                   "DLC_ERR_UNAVAILABLE",
                   dlc_status_text(status));
}

static void starts_no_threads(suite_run *run) {
    int before = suite_count_entries(SUITE_THREADS);
    (void)suite_load(run);
    int after = suite_count_entries(SUITE_THREADS);
    if (after > before)
        suite_fail(run, "load started %d thread%s, but the process may fork afterwards",
                   after - before, after - before == 1 ? "" : "s");
}

static void survives_a_fork(suite_run *run) {
    load_or_skip(run);
    pid_t child = suite_fork(run);
    if (child < 0)
        suite_skip(run, "fork: %s", strerror(errno));
    if (child == 0)
        return; /* the child continues, and passes */
    _exit(0);   /* the child still has the pipe and reports the result */
}

/* The load of every check is looked at in this way. */
static void leaves_the_process_alone(suite_run *run) {
    (void)suite_load(run);
    suite_process_finish(run);
}

static void prints_nothing(suite_run *run) {
    char name[] = "/tmp/dlcore-check-XXXXXX";
    struct stat info;
    int file = mkstemp(name);
    if (file < 0)
        suite_skip(run, "%s: %s", name, strerror(errno));
    (void)unlink(name);
    (void)fflush(stdout);
    (void)dup2(file, STDOUT_FILENO);
    (void)suite_load(run);
    (void)fflush(stdout);
    if (fstat(file, &info) == 0 && info.st_size > 0)
        suite_fail(run,
                   "load writes to stdout, which is for the output of the command");
}

/* All tries are in one process: a load that failed must leave a state in which the next
 * one works. */
static void goes_without_memory(suite_run *run) {
    enum { MOST = 200 };
    for (int64_t n = 1; n <= MOST; n++) {
        suite_host_fail_allocation(n);
        dlc_status status = suite_load(run);
        int failed = suite_host_has_failed();
        suite_host_fail_allocation(0);
        if (failed && status == DLC_OK)
            continue; /* it works without this allocation */
        if (!failed)
            return;
        if (!*dlc_detail())
            suite_fail(
                run,
                "load failed without a detail sentence when allocation %lld failed",
                (long long)n);
    }
}

const suite_check suite_load_checks[] = {
    {"load.reports", "if it cannot work here, it says why", 0, 0, SUITE_OPENED, 30,
     says_why_not},
    {"load.threads", "load starts no thread", 0, 0, SUITE_OPENED, 30,
     starts_no_threads},
    {"load.fork", "the process may fork after load", 0, 0, SUITE_OPENED, 30,
     survives_a_fork},
    {"load.process",
     "load changes neither signals, timers, folder, umask, environment, locale, streams "
     "nor how numbers are rounded",
     0, 0, SUITE_OPENED, 30, leaves_the_process_alone},
    {"load.stdout", "load writes nothing to stdout", 0, 0, SUITE_OPENED, 30,
     prints_nothing},
    {"load.memory", "load survives the failure of each allocation", 0, 0, SUITE_OPENED,
     30, goes_without_memory},
    {.name = NULL},
};

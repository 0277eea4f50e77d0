/* Checks of load(): what it may do to a process that only asks what there is. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "host.h"
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
        suite_fail(run, "load failed (%s) without a sentence", dlc_status_text(status));
    if (status != DLC_OK && status != DLC_ERR_UNAVAILABLE && status != DLC_ERR_NOMEM)
        suite_fail(run,
                   "load answered '%s'; where it cannot work here it must answer "
                   "DLC_ERR_UNAVAILABLE",
                   dlc_status_text(status));
}

static void starts_no_threads(suite_run *run) {
    int before = suite_count_entries(SUITE_THREADS);
    (void)suite_load(run);
    int after = suite_count_entries(SUITE_THREADS);
    if (after > before)
        suite_fail(run, "load started %d thread%s: the process may fork afterwards",
                   after - before, after - before == 1 ? "" : "s");
}

static void survives_a_fork(suite_run *run) {
    load_or_skip(run);
    pid_t child = fork();
    if (child < 0)
        suite_skip(run, "fork: %s", strerror(errno));
    if (child == 0)
        return; /* this one goes on, and passes */
    _exit(0);   /* the pipe stays open in the child */
}

enum { SIGNALS = 65 };

static void keep_signals(struct sigaction *held) {
    for (int number = 1; number < SIGNALS; number++)
        (void)sigaction(number, NULL, &held[number]);
}

static void leaves_signals_alone(suite_run *run) {
    struct sigaction before[SIGNALS] = {0}, after[SIGNALS] = {0};
    keep_signals(before);
    (void)suite_load(run);
    keep_signals(after);
    for (int number = 1; number < SIGNALS; number++)
        if (before[number].sa_handler != after[number].sa_handler)
            suite_fail(run, "load took over signal %d (%s)", number, strsignal(number));
}

static void leaves_the_process_alone(suite_run *run) {
    char before[4096], after[4096];
    mode_t mask = umask(077);
    const char *locale = getenv("LC_ALL");
    char *had = locale ? strdup(locale) : NULL;
    (void)umask(mask);
    if (!getcwd(before, sizeof before))
        suite_skip(run, "the current folder is gone");
    (void)suite_load(run);
    if (!getcwd(after, sizeof after) || strcmp(before, after) != 0)
        suite_fail(run, "load changed the current folder");
    mode_t now = umask(mask);
    if (now != mask)
        suite_fail(run, "load changed the mask of new files");
    locale = getenv("LC_ALL");
    if ((locale == NULL) != (had == NULL) || (had && strcmp(had, locale) != 0))
        suite_fail(run, "load changed the environment");
    free(had);
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
                   "load writes to stdout, which belongs to the command's results");
}

/* In one process: a load that failed for want of memory leaves nothing half done. */
static void goes_without_memory(suite_run *run) {
    enum { MOST = 200 };
    for (int64_t n = 1; n <= MOST; n++) {
        suite_host_refuse(n);
        dlc_status status = suite_load(run);
        int refused = suite_host_refused();
        suite_host_refuse(0);
        if (refused && status == DLC_OK)
            continue; /* it did without */
        if (!refused)
            return;
        if (!*dlc_detail())
            suite_fail(run, "load failed without a sentence when allocation %lld did",
                       (long long)n);
    }
}

const suite_check suite_load_checks[] = {
    {"load.says", "where it cannot work here it says so, and why", 0, 0, SUITE_OPENED,
     30, says_why_not},
    {"load.threads", "load starts no thread", 0, 0, SUITE_OPENED, 30,
     starts_no_threads},
    {"load.fork", "the process may fork after load", 0, 0, SUITE_OPENED, 30,
     survives_a_fork},
    {"load.signals", "load leaves signal handlers alone", 0, 0, SUITE_OPENED, 30,
     leaves_signals_alone},
    {"load.process", "load leaves folder, file mask and environment alone", 0, 0,
     SUITE_OPENED, 30, leaves_the_process_alone},
    {"load.stdout", "load prints nothing on stdout", 0, 0, SUITE_OPENED, 30,
     prints_nothing},
    {"load.memory", "each allocation of load may fail", 0, 0, SUITE_OPENED, 30,
     goes_without_memory},
    {.name = NULL},
};

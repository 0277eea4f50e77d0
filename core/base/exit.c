/* Ends the process in order, and reports what ends it otherwise: calls of exit() by
 * others than the command, crashes, and exit handlers that do not return. */
#include "base/exit.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <gnu/libc-version.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "base/log.h"

/* The longest that exit handlers may take: less than the default of hang_timeout. */
enum { EXIT_SECONDS = 10 };

/* The longest that reporting a crash may take. */
enum { REPORT_SECONDS = 2 };

static const int crashes[] = {SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};

static int forbidden, is_ending, ends_with;
static volatile sig_atomic_t crashed; /* the signal that is being reported */

/* Is this address in the core, in libc, in the program or in the loader? */
static int is_innocent(const Dl_info *found) {
    const void *known[] = {crashes, gnu_get_libc_version(),
                           (const void *)getauxval(AT_PHDR),
                           (const void *)getauxval(AT_BASE)};
    Dl_info info;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (dladdr(known[i], &info) && info.dli_fbase == found->dli_fbase)
            return 1;
    return 0;
}

/* The file of the innermost caller that may be a plugin or a library under it. */
static const char *guilty_file(void) {
    enum { DEPTH = 64 };
    void *frame[DEPTH];
    Dl_info info;
    int depth = backtrace(frame, DEPTH);
    for (int i = 0; i < depth; i++)
        if (dladdr(frame[i], &info) && !is_innocent(&info))
            return info.dli_fname;
    return "a plugin, or a library that it uses,";
}

static void report_exit(int code, void *context) {
    (void)context;
    if (!forbidden)
        return;
    dlc_error("%s has called exit(%d), which ends this process before its work is "
              "done; a plugin must return an error instead",
              guilty_file(), code);
    (void)fflush(stdout);
    _exit(code ? code : 1);
}

/* Ends the process by the signal that it had, for its parent and for a core file. */
static void end_by(int number) {
    sigset_t unblocked;
    (void)sigemptyset(&unblocked);
    (void)sigaddset(&unblocked, number);
    (void)signal(number, SIG_DFL);
    (void)pthread_sigmask(SIG_UNBLOCK, &unblocked, NULL);
    (void)raise(number);
}

/* Reporting waits for a lock, perhaps one that the crashed thread holds itself. */
static void stop_reporting(int number) {
    (void)number;
    if (is_ending)
        _exit(ends_with);
    end_by(crashed);
}

/* Whether another process has sent the signal: this thread would then run on. */
static int is_sent(const siginfo_t *info) {
    return (info->si_code == SI_USER || info->si_code == SI_QUEUE ||
            info->si_code == SI_TKILL) &&
           info->si_pid != getpid();
}

/* Once; then the signal has its usual effect, unless the work is done. */
static void report_crash(int number, siginfo_t *info, void *context) {
    (void)context;
    crashed = number;
    (void)signal(SIGALRM, stop_reporting);
    (void)alarm(REPORT_SECONDS);
    if (number == SIGALRM)
        dlc_warn("%s does not let this process end", guilty_file());
    else if (is_sent(info))
        dlc_error("process %ld has sent this one signal %d (%s)", (long)info->si_pid,
                  number, strsignal(number)); // NOLINT(concurrency-mt-unsafe)
    else
        dlc_error("%s has crashed%s: signal %d (%s)", guilty_file(),
                  is_ending ? " as this process ended" : "", number,
                  strsignal(number)); // NOLINT(concurrency-mt-unsafe)
    if (is_ending)
        _exit(ends_with);
    if (info->si_code <= 0) /* nothing that would happen again on return */
        end_by(number);
}

static void handle(int number) {
    struct sigaction before, action = {.sa_sigaction = report_crash,
                                       .sa_flags = (int)(SA_RESETHAND | SA_SIGINFO)};
    if (sigaction(number, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
        (void)sigaction(number, &action, NULL);
}

void dlc_exit_forbid(void) {
    static int registered;
    void *frame;
    forbidden = 1;
    if (registered)
        return;
    registered = on_exit(report_exit, NULL) == 0;
    (void)backtrace(&frame, 1); /* loads what it needs while that is safe */
    for (size_t i = 0; i < sizeof crashes / sizeof *crashes; i++)
        handle(crashes[i]);
}

void dlc_exit_allow(void) {
    forbidden = 0;
}

void dlc_exit(int code) {
    forbidden = 0;
    is_ending = 1;
    ends_with = code;
    (void)fflush(NULL);
    handle(SIGALRM);
    (void)alarm(EXIT_SECONDS);
    exit(code); // NOLINT(concurrency-mt-unsafe): streams are flushed, libraries closed
}

/* Starts and ends children with a guard, which runs no code of a plugin, and tries
 * calls in them. */
#include "plugin/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "base/read.h"
#include "base/status.h"
#include "base/write.h"

static const struct timespec moment = {.tv_nsec = 1000000};
enum { MOMENTS = 1000 };
#define BEGIN_SECONDS 10.0

/* ---- The child --------------------------------------------------------------- */

void dlc_child_send(int fd, const void *bytes, size_t size) {
    if (dlc_write_all(fd, bytes, size) < size)
        _exit(1);
}

/* Tells the parent, on the pipe, which process has begun; or, as a negative number, the
 * error for which none has. */
static void tell_begun(int fd, int pid_or_error) {
    dlc_child_send(fd, &pid_or_error, sizeof pid_or_error);
}

/* Ends the child if a plugin calls exit(): the exit handlers of the parent must not
 * run. */
static void exit_child(void) {
    _exit(0);
}

void dlc_child_isolate(void) {
    const struct rlimit no_core = {0, 0};
    (void)setrlimit(RLIMIT_CORE, &no_core);
    dlc_log_file_close();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd < 3; fd++)
        (void)dup2(null, fd);
}

/* Resets all handlers, and then blocks these signals only. */
static void reset_signals(const sigset_t *blocked) {
    for (int s = 1; s < NSIG; s++)
        (void)signal(s, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, blocked, NULL);
}

__attribute__((noreturn)) static void run_child(void (*body)(int fd, void *context),
                                                void *context, int end, pid_t guard) {
    sigset_t none;
    int fd = fcntl(end, F_DUPFD_CLOEXEC, 3); /* not stdin, stdout or stderr */
    if (fd < 0)
        tell_begun(end, -errno);
    (void)close(end);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setpgid(0, 0);
    (void)sigemptyset(&none);
    reset_signals(&none);
    (void)atexit(exit_child);
    if (fd < 0 || getppid() != guard)
        _exit(1);
    tell_begun(fd, (int)getpid());
    body(fd, context);
    _exit(0);
}

/* ---- The guard --------------------------------------------------------------- */

/* Kills the children of this process, as /proc lists them. */
static void kill_children(void) {
    char path[64], list[4096];
    (void)snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    (void)dlc_read_text(path, list, sizeof list);
    char *end = list; /* each number is followed by a blank: the last may be cut */
    for (long pid; (pid = strtol(end, &end, 10)) > 0 && *end == ' ';)
        (void)kill((pid_t)pid, SIGKILL);
}

/* Killing one process may make others children of this one. */
void dlc_children_end(void) {
    for (int i = 0; i < MOMENTS; i++) {
        kill_children();
        pid_t ended;
        while ((ended = waitpid(-1, NULL, WNOHANG)) > 0)
            ;
        if (ended < 0 && errno == ECHILD)
            return;
        (void)nanosleep(&moment, NULL);
    }
}

/* Waits until the child ends or the parent wants it to; its wait status, or -1. A child
 * that is stopped is continued. If it stops itself, that may go on for ever, so the
 * signal of the parent is looked for each time. */
static int await_child(pid_t child, const sigset_t *awaited) {
    static const struct timespec at_once;
    for (;;) {
        int status;
        pid_t changed = waitpid(-1, &status, WNOHANG | WUNTRACED);
        if (changed < 0 && errno == ECHILD)
            return -1;
        if (changed > 0 && WIFSTOPPED(status)) {
            (void)nanosleep(&moment, NULL);
            (void)kill(changed, SIGCONT);
        } else if (changed == child) {
            return status;
        }
        if (sigtimedwait(awaited, NULL, changed > 0 ? &at_once : NULL) == SIGTERM)
            return waitpid(child, &status, WNOHANG) == child ? status : -1;
    }
}

/* Its exit code is the signal by which the child has ended. */
__attribute__((noreturn)) static void be_guard(void (*body)(int fd, void *context),
                                               void *context, int end, pid_t parent) {
    sigset_t awaited;
    (void)sigemptyset(&awaited);
    (void)sigaddset(&awaited, SIGCHLD);
    (void)sigaddset(&awaited, SIGTERM);
    reset_signals(&awaited);
    /* A signal for the whole job is for the parent, which then ends this guard. */
    (void)setpgid(0, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (getppid() != parent)
        _exit(0);
    pid_t guard = getpid(), child = fork();
    if (child == 0)
        run_child(body, context, end, guard);
    if (child < 0)
        tell_begun(end, -errno);
    (void)close(end);
    int status = child > 0 ? await_child(child, &awaited) : -1;
    if (child > 0)
        (void)kill(-child, SIGKILL);
    dlc_children_end();
    _exit(status >= 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0);
}

/* ---- The parent -------------------------------------------------------------- */

double dlc_child_patience(double seconds) {
    const double most = 12;
    double load = 0, cpus = (double)sysconf(_SC_NPROCESSORS_ONLN);
    if (getloadavg(&load, 1) != 1 || cpus < 1 || load < cpus)
        return seconds;
    return seconds * (load / cpus < most ? load / cpus : most);
}

void dlc_child_continue(const dlc_child *child) {
    siginfo_t state = {.si_pid = 0};
    if (waitid(P_PID, (id_t)child->guard, &state, WSTOPPED | WNOHANG) == 0 &&
        state.si_pid)
        (void)kill(child->guard, SIGCONT);
}

int dlc_child_wait(const dlc_child *child, double seconds) {
    const double most = DLC_CHILD_LOOK_MS * 1e-3;
    struct pollfd wait = {.fd = child->fd, .events = POLLIN};
    int ms = seconds < most ? (int)(seconds * 1000) + 1 : DLC_CHILD_LOOK_MS;
    dlc_child_continue(child);
    return poll(&wait, 1, seconds > 0 ? ms : 0) > 0;
}

/* Waits until the child says that it begins; 0 with errno set if it does not. No code
 * of a plugin has run until then. */
static int child_begins(dlc_child *child) {
    const double most = dlc_child_patience(BEGIN_SECONDS);
    dlc_stopwatch watch = {0};
    int told = 0;
    while (dlc_stopwatch_look(&watch) < most) {
        (void)dlc_child_wait(child, most);
        ssize_t got = read(child->fd, &told, sizeof told);
        if (got == (ssize_t)sizeof told) {
            child->pid = told;
            errno = told < 0 ? -told : 0;
            return told > 0;
        }
        if (got == 0) {
            errno = ECHILD;
            return 0;
        }
    }
    errno = ETIMEDOUT;
    return 0;
}

int dlc_child_start(void (*body)(int fd, void *context), void *context,
                    dlc_child *child) {
    int ends[2];
    pid_t parent = getpid();
    sigset_t all, before;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return 0;
    /* The guard must not run handlers of this process before it has reset them. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t guard = fork();
    if (guard == 0) {
        (void)close(ends[0]);
        be_guard(body, context, ends[1], parent);
    }
    int error = errno;
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)close(ends[1]);
    if (guard > 0) {
        (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
        *child = (dlc_child){.guard = guard, .fd = ends[0]};
        if (child_begins(child))
            return 1;
        error = errno;
        (void)dlc_child_end(child, 1);
    } else {
        (void)close(ends[0]);
    }
    errno = error;
    return 0;
}

int dlc_child_end(const dlc_child *child, int is_dying) {
    int status = 0;
    pid_t ended = 0;
    for (int i = 0; is_dying && i < MOMENTS && ended == 0; i++) {
        if (i)
            (void)nanosleep(&moment, NULL);
        ended = waitpid(child->guard, &status, WNOHANG);
    }
    if (ended == 0) {
        (void)kill(child->guard, SIGTERM);
        (void)kill(child->guard, SIGCONT); /* if it is stopped */
        while ((ended = waitpid(child->guard, &status, 0)) < 0 && errno == EINTR)
            ;
    }
    (void)close(child->fd);
    if (ended != child->guard)
        return 0;
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

int dlc_child_is_held_up(const dlc_child *child, double seconds) {
    dlc_process_threads threads = dlc_process_threads_read(child->pid);
    return !threads.busy_ns || (double)threads.longest_wait * 1e-9 > seconds / 4 ||
           threads.waits_for_disk;
}

/* ---- Trying a call ----------------------------------------------------------------
 */

typedef struct probe {
    dlc_status (*call)(void *context);
    void *context;
    int shown;
} probe;

/* What the child sends. */
typedef struct answer {
    dlc_status status;
    char sentence[1024];
} answer;

static void make_call(int fd, void *context) {
    const probe *made = context;
    answer given = {.status = DLC_OK};
    if (!made->shown)
        dlc_child_isolate();
    dlc_detail_clear();
    given.status = made->call(made->context);
    (void)fflush(NULL);
    strncpy(given.sentence, dlc_detail(), sizeof given.sentence - 1);
    dlc_child_send(fd, &given, sizeof given);
}

/* 1: complete; 0: nothing will follow; -1: the time is over. */
static int receive_answer(const dlc_child *child, double seconds, answer *given) {
    dlc_stopwatch watch = {0};
    size_t length = 0;
    while (length < sizeof *given) {
        double left = seconds - dlc_stopwatch_look(&watch);
        if (!dlc_child_wait(child, left)) {
            if (left <= 0)
                return -1;
            continue;
        }
        ssize_t got = read(child->fd, (char *)given + length, sizeof *given - length);
        if (got < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (got <= 0)
            return 0;
        length += (size_t)got;
    }
    return 1;
}

static dlc_status try_in_child(const char *what, double seconds, probe made) {
    dlc_child child;
    answer given;
    (void)fflush(NULL); /* so that it is not printed twice */
    if (!dlc_child_start(make_call, &made, &child))
        return dlc_fail(DLC_ERR_IO, "%s: cannot be tried: %s", what,
                        strerror(errno)); // NOLINT(concurrency-mt-unsafe)
    seconds = dlc_child_patience(seconds);
    int received = receive_answer(&child, seconds, &given);
    int signal = dlc_child_end(&child, received == 0);
    if (received < 0)
        return dlc_fail(DLC_ERR_PLUGIN, "%s did not return within %.3g s", what,
                        seconds);
    if (received == 0 && signal)
        return dlc_fail(DLC_ERR_PLUGIN, "%s crashed (signal %d, %s)", what, signal,
                        strsignal(signal)); // NOLINT(concurrency-mt-unsafe)
    if (received == 0)
        return dlc_fail(DLC_ERR_PLUGIN, "%s ended the process", what);
    return given.status == DLC_OK ? DLC_OK
                                  : dlc_fail(given.status, "%s", given.sentence);
}

dlc_status dlc_probe(const char *what, double seconds,
                     dlc_status (*call)(void *context), void *context) {
    return try_in_child(what, seconds, (probe){.call = call, .context = context});
}

dlc_status dlc_probe_shown(const char *what, double seconds,
                           dlc_status (*call)(void *context), void *context) {
    return try_in_child(what, seconds,
                        (probe){.call = call, .context = context, .shown = 1});
}

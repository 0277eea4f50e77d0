/* Starts and ends children with a guard. The guard runs no code of a plugin. */
#include "plugin/child.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/read.h"
#include "base/write.h"

static const struct timespec moment = {.tv_nsec = 1000000};
enum { MOMENTS = 1000 };

/* ---- The child --------------------------------------------------------------- */

void dlc_child_send(int fd, const void *bytes, size_t size) {
    if (dlc_write_all(fd, bytes, size) < size)
        _exit(1);
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
    (void)close(end);
    (void)prctl(PR_SET_CHILD_SUBREAPER, 0);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    (void)setpgid(0, 0);
    (void)sigemptyset(&none);
    reset_signals(&none);
    (void)atexit(exit_child);
    if (getppid() != guard)
        _exit(1);
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

/* Waits until the child ends or the parent wants it to; its wait status, or -1. */
static int await(pid_t child, const sigset_t *awaited) {
    for (;;) {
        int status;
        pid_t ended;
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
            if (ended == child)
                return status;
        if (ended < 0 && errno == ECHILD)
            return -1;
        if (sigwaitinfo(awaited, NULL) == SIGTERM)
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
    (void)close(end);
    int status = child > 0 ? await(child, &awaited) : -1;
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
    if (guard < 0)
        (void)close(ends[0]);
    else if (fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0)
        *child = (dlc_child){.guard = guard, .fd = ends[0]};
    errno = error;
    return guard > 0;
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
        while ((ended = waitpid(child->guard, &status, 0)) < 0 && errno == EINTR)
            ;
    }
    (void)close(child->fd);
    return ended == child->guard && WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

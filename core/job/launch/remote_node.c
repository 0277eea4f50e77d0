/* `dlcore node`: starts and ends the ranks of one host. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/write.h"
#include "job/launch/remote.h"
#include "job/supervise.h"

/* How long ranks may take to end before they are killed: to write a checkpoint is not
 * among what they do then. */
#define GRACE_NS 5000000000u

typedef struct node {
    dlc_remote_start start;
    pid_t *pid; /* of each rank here; 0: ended or not started */
    int running;
    int exit_code;
    int signals; /* signalfd; -1: none */
    sigset_t mask_before;
    uint64_t kill_at; /* 0: they are not to end */
} node;

/* ---- Starting ------------------------------------------------------------------- */

static void set_number(const char *name, int number) {
    char text[16];
    (void)snprintf(text, sizeof text, "%d", number);
    setenv(name, text, 1);
}

/* Whether this host has a value of its own, such as its PATH. */
static int has_its_own(const char *variable) {
    char name[256];
    size_t length = strcspn(variable, "=");
    if (strncmp(variable, "DLCORE_", 7) == 0 || strncmp(variable, "MASTER_", 7) == 0)
        return 0;
    (void)snprintf(name, sizeof name, "%.*s", (int)length, variable);
    return length >= sizeof name || getenv(name) != NULL;
}

/* In the child. */
static void set_environment(const dlc_remote_start *start, int local_rank) {
    unsetenv("PMIX_NAMESPACE"); /* of a launcher that has started this process */
    for (char **variable = start->environment; *variable; variable++)
        if (!has_its_own(*variable))
            (void)putenv(*variable);
    set_number("RANK", start->first + local_rank);
    set_number("WORLD_SIZE", start->ranks);
    set_number("LOCAL_RANK", local_rank);
    set_number("LOCAL_WORLD_SIZE", start->local_ranks);
}

/* Never returns. */
static void become_rank(const node *self, int local_rank, pid_t parent) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null >= 0)
        dup2(null, STDIN_FILENO);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, &self->mask_before, NULL);
    set_environment(&self->start, local_rank);
    if (getppid() == parent)
        execv(self->start.arguments[0], self->start.arguments);
    dlc_error("cannot start %s: %s", self->start.arguments[0], strerror(errno));
    _exit(127);
}

static dlc_status start_ranks(node *self) {
    pid_t parent = getpid();
    for (int i = 0; i < self->start.local_ranks; i++) {
        pid_t pid = fork();
        if (pid < 0)
            return dlc_fail(DLC_ERR_UNAVAILABLE, "cannot start a process: %s",
                            strerror(errno));
        if (pid == 0)
            become_rank(self, i, parent);
        self->pid[i] = pid;
        self->running++;
    }
    return DLC_OK;
}

/* ---- Ending --------------------------------------------------------------------- */

static void signal_all_ranks(const node *self, int number) {
    for (int i = 0; i < self->start.local_ranks; i++)
        if (self->pid[i] > 0)
            kill(self->pid[i], number);
}

static void end_all_ranks(node *self) {
    if (self->kill_at)
        return;
    signal_all_ranks(self, SIGTERM);
    self->kill_at = dlc_awake_ns() + GRACE_NS;
}

static void find_ended_ranks(node *self) {
    dlc_ending how;
    for (int i = 0; i < self->start.local_ranks; i++) {
        if (self->pid[i] <= 0 || !dlc_process_has_ended(self->pid[i], &how))
            continue;
        (void)dlc_process_wait(self->pid[i]);
        if (how.by_signal && !self->kill_at)
            dlc_error("the process of rank %d was killed by signal %d (%s)",
                      self->start.first + i, how.number,
                      strsignal(how.number)); // NOLINT(concurrency-mt-unsafe)
        int code = how.by_signal ? dlc_exit_code(DLC_ERR_PEER) : how.number;
        self->exit_code = code > self->exit_code ? code : self->exit_code;
        self->pid[i] = 0;
        self->running--;
    }
}

/* ---- In between ----------------------------------------------------------------- */

/* A signal for the job goes to one rank, which spreads it. */
static int pass_signals_on(node *self) {
    unsigned char number;
    ssize_t got = read(STDIN_FILENO, &number, 1);
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return 1;
    if (got <= 0) {
        end_all_ranks(self);
        return 0;
    }
    for (int i = 0; i < self->start.local_ranks; i++)
        if (self->pid[i] > 0) {
            kill(self->pid[i], number);
            break;
        }
    return 1;
}

static void wait_for_ranks(node *self) {
    struct pollfd polled[2] = {{.fd = self->signals, .events = POLLIN},
                               {.fd = STDIN_FILENO, .events = POLLIN}};
    while (self->running) {
        int rc = poll(polled, 2, 200), signal = dlc_signals_next(self->signals);
        if (signal == SIGCHLD)
            find_ended_ranks(self);
        else if (signal)
            end_all_ranks(self);
        if (rc > 0 && polled[1].revents && !pass_signals_on(self))
            polled[1].fd = -1;
        if (self->kill_at && dlc_awake_ns() > self->kill_at)
            signal_all_ranks(self, SIGKILL);
    }
}

/* ---- All ------------------------------------------------------------------------ */

static dlc_status open_node_signals(node *self) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGCHLD);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, &self->mask_before);
    return dlc_signals_open(&signals, "this host", &self->signals);
}

static dlc_status run_node(node *self) {
    static const char started[] = DLC_REMOTE_STARTED;
    DLC_TRY(dlc_remote_start_read(STDIN_FILENO, &self->start));
    (void)dlc_write_all(STDOUT_FILENO, started, sizeof started - 1);
    if (chdir(self->start.folder) != 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "this host has no folder %s, in which the job was started: %s",
                        self->start.folder, strerror(errno));
    self->pid = dlc_alloc((size_t)self->start.local_ranks, sizeof *self->pid);
    if (!self->pid)
        return DLC_ERR_NOMEM;
    DLC_TRY(open_node_signals(self));
    dlc_status status = start_ranks(self);
    if (status != DLC_OK)
        end_all_ranks(self);
    wait_for_ranks(self);
    return status;
}

dlc_status dlc_remote_node_run(int *exit_code) {
    node self = {.signals = -1};
    sigprocmask(SIG_BLOCK, NULL, &self.mask_before);
    dlc_status status = run_node(&self);
    if (status == DLC_OK)
        *exit_code = self.exit_code;
    dlc_close(&self.signals);
    sigprocmask(SIG_SETMASK, &self.mask_before, NULL);
    dlc_free(self.pid);
    dlc_remote_start_free(&self.start);
    return status;
}

/* Forks a rank and runs its main in the child.
 *
 * Ranks cannot outlive the process that forked them: the kernel kills them when it
 * dies. Each is in a process group of its own, so that Ctrl-C reaches only the parent,
 * which forwards it as a request. */
#include "job/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/process.h"
#include "job/rank.h"
#include "job/signals.h"

int dlc_exit_byte(int code) {
    return code && !(code & 0xff) ? 1 : code & 0xff;
}

dlc_rank_args dlc_launch_rank_args(const dlc_launch *launch, int rank, int ranks,
                                   int local_rank, dlc_shared_activity *activity) {
    const dlc_job_options *options = launch->options;
    return (dlc_rank_args){.rank = rank,
                           .ranks = ranks,
                           .threads = options->threads,
                           .control = -1,
                           .activity = activity,
                           .device = options->device,
                           .local_rank = local_rank,
                           .device_index = options->device_index,
                           .devices = options->devices,
                           .cores = launch->cores,
                           .machine = &launch->machine,
                           .unbound = options->unbound,
                           .settings = options->settings ? options->settings : ""};
}

/* ---- In the child -------------------------------------------------------------- */

/* Redirects stdin from /dev/null, and stdout and stderr into the pipe if there is one.
 */
static dlc_status set_streams(int output) {
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int failed = null < 0 || dup2(null, STDIN_FILENO) < 0;
    if (null > STDERR_FILENO)
        close(null);
    if (output >= 0) {
        failed |= dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0;
        close(output);
        /* Line buffering, so that lines appear when they are written. With a buffer,
         * because glibc ignores the mode if one is in use already. */
        static char lines[BUFSIZ];
        setvbuf(stdout, lines, _IOLBF, sizeof lines);
    }
    return failed ? dlc_fail(DLC_ERR_IO, "cannot redirect a rank's output: %s",
                             strerror(errno))
                  : DLC_OK;
}

/* By one call: a signal of the job may be pending, and would end the rank in between.
 */
static void set_signals(const dlc_launch *launch) {
    sigset_t set;
    dlc_rank_signals(&set);
    sigorset(&set, &set, &launch->mask_before);
    sigprocmask(SIG_SETMASK, &set, NULL);
    sigaction(SIGCHLD, &launch->child_before, NULL);
    setpgid(0, 0);
    signal(SIGTTOU, SIG_IGN); /* rank 0 writes to the terminal from the background */
}

static int rank_main(const dlc_launch *launch, const dlc_spawn *spawn, int control,
                     int output) {
    int rank = spawn->rank, ranks = spawn->ranks, code;
    dlc_job *made = NULL;
    set_signals(launch);
    dlc_status status = set_streams(output);
    if (status == DLC_OK && spawn->identify)
        status = spawn->identify(spawn->context, control, &rank, &ranks);
    dlc_rank_args args = dlc_launch_rank_args(launch, rank, ranks, spawn->local_rank,
                                              spawn->activity);
    args.control = control;
    args.hang_timeout = spawn->watch_parent && ranks > 1 ? launch->options->hang_timeout
                                                         : 0;
    if (status != DLC_OK)
        dlc_error("rank %d cannot start: %s", rank, dlc_detail());
    else
        status = dlc_rank_open(&args, &made); /* which reports its errors itself */
    if (status != DLC_OK) {
        code = dlc_exit_code(status);
    } else {
        code = dlc_exit_byte(launch->main(made, launch->argument));
        dlc_rank_returned(made);
        dlc_rank_close(made);
    }
    if (spawn->at_exit && !code) /* after a failure it might hang */
        spawn->at_exit(spawn->context);
    return code;
}

/* ---- In the parent ------------------------------------------------------------- */

static void begin_rank(const dlc_launch *launch, const dlc_spawn *spawn,
                       const int control[2], const int output[2]) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);     /* a reader that left is no lost rank */
    if (getppid() != launch->pid) /* the parent died before prctl() */
        _exit(1);
    close(control[0]);
    if (output[0] >= 0)
        close(output[0]);
    spawn->in_child(spawn->context);
    dlc_exit(rank_main(launch, spawn, control[1], output[1]));
}

dlc_status dlc_spawn_rank(const dlc_launch *launch, const dlc_spawn *spawn,
                          dlc_child *child) {
    int control[2] = {-1, -1}, output[2] = {-1, -1};
    char files[DLC_FILES_TEXT];
    dlc_status status = DLC_OK;
    *child = (dlc_child){.pid = 0};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) ||
        (spawn->piped &&
         (pipe2(output, O_CLOEXEC) || fcntl(output[0], F_SETFL, O_NONBLOCK)))) {
        status = dlc_fail(DLC_ERR_IO, "cannot make the channels of rank %d: %s%s",
                          spawn->rank, strerror(errno), dlc_files_reason(errno, files));
        goto close_theirs;
    }
    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    if (pid == 0)
        begin_rank(launch, spawn, control, output);
    if (pid < 0)
        status = dlc_fail(DLC_ERR_IO, "cannot start rank %d: %s", spawn->rank,
                          strerror(errno));
    else
        child->pid = pid;
close_theirs:
    child->control = control[0];
    child->output = output[0];
    if (control[1] >= 0)
        close(control[1]);
    if (output[1] >= 0)
        close(output[1]);
    return status;
}

/* ---- Signals ------------------------------------------------------------------- */

void dlc_launch_block_signals(dlc_launch *launch) {
    dlc_rank_signals(&launch->signals);
    sigaddset(&launch->signals, SIGCHLD);
    sigaddset(&launch->signals, SIGTSTP);
    sigprocmask(SIG_BLOCK, &launch->signals, &launch->mask_before);
    /* With SIGCHLD ignored, waitid() could not tell how children ended. */
    struct sigaction child = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &child, &launch->child_before);
}

void dlc_launch_restore_signals(const dlc_launch *launch) {
    sigaction(SIGCHLD, &launch->child_before, NULL);
    sigprocmask(SIG_SETMASK, &launch->mask_before, NULL);
}

/* dlc_job_run: chooses the kind of launch, runs the only rank of a job in this process,
 * or forks several.
 *
 * Forked ranks cannot outlive the process that forked them: the kernel kills them when
 * it dies. Each is in a process group of its own, so that Ctrl-C reaches only the
 * parent, which forwards it as a request. */
#include "job/launch/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/exit.h"
#include "base/log.h"
#include "base/process.h"
#include "job/launch/pmi.h"
#include "job/rank/rank.h"
#include "topology/discover.h"

int dlc_exit_byte(int code) {
    return code && !(code & 0xff) ? 1 : code & 0xff;
}

static dlc_rank_args rank_args(const dlc_launch *launch) {
    return (dlc_rank_args){.options = launch->options,
                           .ranks = 1,
                           .control = -1,
                           .activity = launch->activity,
                           .cores = launch->cores,
                           .machine = &launch->machine};
}

/* ---- In a forked rank ------------------------------------------------------------ */

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

/* What the rank is opened with. */
static dlc_rank_args forked_rank_args(const dlc_launch *launch, int rank, int control) {
    dlc_rank_args args = rank_args(launch);
    args.rank = args.local_rank = rank;
    args.ranks = launch->ranks;
    args.control = control;
    if (launch->external.kind == DLC_EXTERNAL_NONE)
        args.activity = &launch->activity[rank];
    else
        args.local_rank = launch->external.local_rank;
    return args;
}

static int run_forked_rank(const dlc_launch *launch, int rank, int control,
                           int output) {
    dlc_rank_args args = forked_rank_args(launch, rank, control);
    dlc_job *made = NULL;
    set_signals(launch);
    dlc_status status = set_streams(output);
    if (status == DLC_OK && launch->external.kind == DLC_EXTERNAL_PMIX)
        status = dlc_pmix_join(control, launch->external.ranks, launch->options->ranks,
                               &args.rank, &args.ranks);
    /* An external rank ends when its parent hangs: other ranks, which have other
     * parents, go on without it. */
    if (launch->external.kind != DLC_EXTERNAL_NONE && args.ranks > 1)
        args.hang_timeout = launch->options->hang_timeout;
    if (status != DLC_OK)
        dlc_error("rank %d cannot start: %s", args.rank, dlc_detail());
    else
        status = dlc_rank_open(&args, &made); /* which reports its errors itself */
    if (status != DLC_OK)
        return dlc_exit_code(status);
    int code = dlc_exit_byte(launch->main(made, launch->argument));
    dlc_rank_returned(made);
    dlc_rank_close(made);
    if (!code) /* after a failure it might hang */
        dlc_pmix_leave();
    return code;
}

static void begin_forked_rank(dlc_launch *launch, int rank, const int control[2],
                              const int output[2]) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGPIPE, SIG_IGN);     /* a reader that left is no lost rank */
    if (getppid() != launch->pid) /* the parent died before prctl() */
        _exit(1);
    close(control[0]);
    if (output[0] >= 0)
        close(output[0]);
    dlc_launch_close(launch);
    dlc_exit(run_forked_rank(launch, rank, control[1], output[1]));
}

/* ---- In the process that forks --------------------------------------------------- */

static dlc_status open_channels(int rank, int is_piped, int control[2], int output[2]) {
    char files[DLC_FILES_TEXT];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) ||
        (is_piped &&
         (pipe2(output, O_CLOEXEC) || fcntl(output[0], F_SETFL, O_NONBLOCK))))
        return dlc_fail(DLC_ERR_IO, "cannot make the channels of rank %d: %s%s", rank,
                        strerror(errno), dlc_files_reason(errno, files));
    return DLC_OK;
}

dlc_status dlc_launch_fork(dlc_launch *launch, int rank, dlc_rank_process *child) {
    int is_piped = launch->external.kind == DLC_EXTERNAL_NONE && rank > 0;
    int control[2] = {-1, -1}, output[2] = {-1, -1};
    dlc_status status = open_channels(rank, is_piped, control, output);
    if (status == DLC_OK) {
        fflush(stdout);
        fflush(stderr);
        pid_t pid = fork();
        if (pid == 0)
            begin_forked_rank(launch, rank, control, output);
        if (pid < 0)
            status = dlc_fail(DLC_ERR_IO, "cannot start rank %d: %s", rank,
                              strerror(errno));
        else
            *child = (dlc_rank_process){pid, control[0], output[0]};
    }
    if (status != DLC_OK) {
        dlc_close(&control[0]);
        dlc_close(&output[0]);
    }
    dlc_close(&control[1]);
    dlc_close(&output[1]);
    return status;
}

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

dlc_status dlc_launch_run_hub(dlc_launch *launch, int *exit_code) {
    DLC_TRY(dlc_signals_open(&launch->signals, "the launcher", &launch->hub.signals));
    return dlc_hub_run(&launch->hub, exit_code);
}

void dlc_launch_close(dlc_launch *launch) {
    dlc_hub_close(&launch->hub);
    dlc_acceptor_close(&launch->acceptor);
    dlc_close(&launch->hub_fd);
}

/* ---- Ranks on this machine ------------------------------------------------------- */

static dlc_status run_single(dlc_launch *launch, int *exit_code) {
    sigset_t set, before;
    dlc_rank_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    dlc_rank_args args = rank_args(launch);
    args.hang_timeout = launch->options->hang_timeout;
    dlc_job *rank = NULL;
    dlc_status status = dlc_rank_open(&args, &rank);
    if (status == DLC_OK) {
        int code = dlc_exit_byte(launch->main(rank, launch->argument));
        int stop = dlc_rank_close(rank);
        *exit_code = code ? code : stop ? 128 + stop : 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}

static dlc_status run_forked(dlc_launch *launch, int *exit_code) {
    DLC_TRY(dlc_hub_open(launch->ranks, launch->options->hang_timeout, &launch->hub));
    dlc_launch_block_signals(launch);
    dlc_status status = DLC_OK;
    for (int r = 0; status == DLC_OK && r < launch->ranks; r++) {
        dlc_rank_process child;
        status = dlc_launch_fork(launch, r, &child);
        if (status == DLC_OK)
            dlc_hub_attach_child(&launch->hub, r, &child, &launch->activity[r]);
    }
    if (status == DLC_OK)
        status = dlc_launch_run_hub(launch, exit_code);
    if (status != DLC_OK)
        dlc_hub_kill(&launch->hub);
    dlc_launch_restore_signals(launch);
    return status;
}

/* ---- All launches ---------------------------------------------------------------- */

static dlc_status check_options(const dlc_job_options *options) {
    if (options->ranks < 1 || options->ranks > DLC_JOB_RANKS_MAX)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%d ranks: 1 to %d can be started on one machine",
                        options->ranks, DLC_JOB_RANKS_MAX);
    if (options->threads < 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%d threads per rank: give 1 or more, or 0 for "
                        "one per core",
                        options->threads);
    return DLC_OK;
}

/* Finds the cores and, if the ranks want to know it, the machine's graph. */
static dlc_status discover(dlc_launch *launch) {
    const dlc_job_options *options = launch->options;
    int is_local = launch->external.kind == DLC_EXTERNAL_NONE;
    int wanted = options->discover && (options->ranks > 1 || !is_local);
    int io = wanted && (!is_local || options->discover == DLC_DISCOVER_ALL);
    hwloc_topology_t found;
    DLC_TRY(dlc_hwloc_load(io, NULL, &found));
    dlc_status status = wanted ? dlc_topo_read_machine(found, &launch->machine)
                               : DLC_OK;
    if (status != DLC_OK && status != DLC_ERR_NOMEM) {
        /* A job trains without, too: it then knows only which ranks share a machine. */
        dlc_warn("the topology of this machine is not known: %s", dlc_detail());
        status = DLC_OK;
    }
    if (status == DLC_OK)
        status = dlc_cores_read(found, &launch->cores);
    hwloc_topology_destroy(found);
    return status;
}

dlc_status dlc_job_run(const dlc_job_options *options, dlc_job_main main,
                       void *argument, int *exit_code) {
    dlc_launch launch = {.options = options,
                         .main = main,
                         .argument = argument,
                         .pid = getpid(),
                         .ranks = options->ranks,
                         .hub_fd = -1};
    dlc_acceptor_open(&launch.acceptor, -1, &launch.secret);
    DLC_TRY(check_options(options));
    if (options->external)
        DLC_TRY(dlc_external_read(options->ranks, &launch.external));
    size_t bytes = (size_t)options->ranks * sizeof *launch.activity;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
    if (shared == MAP_FAILED)
        return dlc_fail(DLC_ERR_NOMEM, "cannot allocate shared memory for %d ranks: %s",
                        options->ranks, strerror(errno));
    launch.activity = shared;
    dlc_status status = discover(&launch);
    if (status == DLC_OK && launch.external.kind != DLC_EXTERNAL_NONE)
        status = dlc_launch_run_external(&launch, exit_code);
    else if (status == DLC_OK)
        status = options->ranks == 1 ? run_single(&launch, exit_code)
                                     : run_forked(&launch, exit_code);
    dlc_launch_close(&launch);
    dlc_cores_close(launch.cores);
    dlc_topo_free(&launch.machine);
    munmap(shared, bytes);
    return status;
}

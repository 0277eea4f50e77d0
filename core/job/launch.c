/* Ranks on this machine: forked here, with the launching process as their hub.
 *
 * They cannot outlive it: the kernel kills them when it dies. They are in process
 * groups of their own, so that Ctrl-C reaches the launcher alone, which passes it
 * on as a request. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "job/hub.h"
#include "topo/cores.h"

typedef struct launch {
    const dlc_job_options *options;
    dlc_job_main main;
    void *argument;
    dlc_cores *cores;
    dlc_doing *doing; /* one a rank, shared by all processes */
    size_t doing_bytes;
    pid_t pid; /* of the launcher */
    sigset_t mask_before;
    struct sigaction child_before;
} launch;

/* What a rank's main returned, as the exit code of a process. */
static int exit_byte(int code) {
    return code && !(code & 0xff) ? 1 : code & 0xff;
}

static dlc_status rank_args(const launch *job, int rank, dlc_rank_args *args,
                            dlc_core_set *share) {
    const dlc_job_options *options = job->options;
    DLC_TRY(dlc_cores_share(job->cores, rank, options->ranks, share));
    *args = (dlc_rank_args){
        .rank = rank,
        .ranks = options->ranks,
        .threads = options->threads ? options->threads : share->threads,
        .control = -1,
        .doing = &job->doing[rank],
        .device = options->device,
        .device_index = options->device_index ? options->device_index[rank] : 0,
        .bound = !options->unbound,
    };
    return dlc_cores_place(job->cores, rank, options->ranks, args->threads,
                           &args->places);
}

/* ---- One rank, in this process ---------------------------------------------- */

static dlc_status run_alone(launch *job, int *exit_code) {
    dlc_rank_args args;
    dlc_core_set share;
    DLC_TRY(rank_args(job, 0, &args, &share));
    sigset_t set;
    dlc_rank_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, &job->mask_before);
    dlc_job *rank = NULL;
    dlc_status status = dlc_rank_open(&args, &rank);
    if (status == DLC_OK) {
        int code = exit_byte(job->main(rank, job->argument));
        int stop = dlc_rank_close(rank);
        *exit_code = code ? code : stop ? 128 + stop : 0;
    }
    pthread_sigmask(SIG_SETMASK, &job->mask_before, NULL);
    return status;
}

/* ---- A rank that was forked -------------------------------------------------- */

static void hub_free(dlc_hub *hub) {
    for (int r = 0; hub->peer && r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        if (peer->control >= 0)
            close(peer->control);
        if (peer->output.fd >= 0)
            close(peer->output.fd);
        dlc_text_free(&peer->out);
    }
    if (hub->signals >= 0)
        close(hub->signals);
    dlc_free(hub->call.buffer);
    dlc_free(hub->result);
    dlc_free(hub->peer);
}

/* No input; stdout and stderr into the pipe, if there is one. */
static dlc_status set_streams(int output) {
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int failed = null < 0 || dup2(null, STDIN_FILENO) < 0;
    if (null > STDERR_FILENO)
        close(null);
    if (output >= 0) {
        failed |= dup2(output, STDOUT_FILENO) < 0 || dup2(output, STDERR_FILENO) < 0;
        close(output);
        /* Lines come out when they are written, and not all at the end. The buffer
         * is given, because glibc ignores the mode where one is in use already. */
        static char lines[BUFSIZ];
        setvbuf(stdout, lines, _IOLBF, sizeof lines);
    }
    return failed ? dlc_fail(DLC_ERR_IO, "cannot redirect a rank's output: %s",
                             strerror(errno))
                  : DLC_OK;
}

static void set_signals(const launch *job) {
    sigset_t set;
    dlc_rank_signals(&set);
    sigprocmask(SIG_SETMASK, &job->mask_before, NULL);
    sigprocmask(SIG_BLOCK, &set, NULL);
    sigaction(SIGCHLD, &job->child_before, NULL);
    setpgid(0, 0);
    signal(SIGTTOU, SIG_IGN); /* rank 0 writes to the terminal from there */
}

static int rank_main(const launch *job, int rank, int control, int output) {
    dlc_rank_args args = {0};
    dlc_core_set share;
    dlc_job *made = NULL;
    set_signals(job);
    dlc_status status = set_streams(output);
    if (status == DLC_OK)
        status = rank_args(job, rank, &args, &share);
    if (status == DLC_OK && !job->options->unbound && dlc_cores_bind(&share) != DLC_OK)
        dlc_warn("rank %d: %s; it runs wherever the kernel puts it", rank,
                 dlc_detail());
    args.control = control;
    if (status == DLC_OK)
        status = dlc_rank_open(&args, &made);
    if (status != DLC_OK) {
        dlc_error("rank %d cannot start: %s", rank, dlc_detail());
        return dlc_exit_code(status);
    }
    int code = exit_byte(job->main(made, job->argument));
    dlc_rank_close(made);
    return code;
}

/* ---- The launcher ------------------------------------------------------------ */

/* Returns in the launcher only. */
static dlc_status start_rank(launch *job, dlc_hub *hub, int rank) {
    int control[2] = {-1, -1}, output[2] = {-1, -1};
    dlc_peer *peer = &hub->peer[rank];
    dlc_status status = DLC_OK;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control) ||
        (rank > 0 &&
         (pipe2(output, O_CLOEXEC) || fcntl(output[0], F_SETFL, O_NONBLOCK)))) {
        status = dlc_fail(DLC_ERR_IO, "cannot make the channels of rank %d: %s", rank,
                          strerror(errno));
        goto close_theirs;
    }
    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != job->pid) /* it died before the line above */
            _exit(1);
        close(control[0]);
        if (output[0] >= 0)
            close(output[0]);
        hub_free(hub);
        /* A rank is a process, and ends like one: streams flushed, libraries
         * closed. */
        exit(rank_main(job, rank, control[1],
                       output[1])); // NOLINT(concurrency-mt-unsafe)
    }
    if (pid < 0) {
        status = dlc_fail(DLC_ERR_IO, "cannot start rank %d of %d: %s", rank,
                          hub->ranks, strerror(errno));
        goto close_theirs;
    }
    peer->pid = pid;
    peer->running = 1;
close_theirs:
    /* The hub's own ends go with it. */
    peer->control = control[0];
    peer->output.fd = output[0];
    if (control[1] >= 0)
        close(control[1]);
    if (output[1] >= 0)
        close(output[1]);
    return status;
}

static dlc_status hub_open(const launch *job, dlc_hub *hub) {
    int ranks = job->options->ranks;
    *hub = (dlc_hub){.ranks = ranks, .signals = -1};
    if (gethostname(hub->host, sizeof hub->host - 1))
        snprintf(hub->host, sizeof hub->host, "localhost");
    hub->peer = dlc_alloc((size_t)ranks, sizeof *hub->peer);
    if (!hub->peer)
        return DLC_ERR_NOMEM;
    for (int r = 0; r < ranks; r++) {
        hub->peer[r].control = hub->peer[r].output.fd = -1;
        hub->peer[r].output.rank = r;
        hub->peer[r].doing = &job->doing[r];
    }
    return DLC_OK;
}

/* From here on signals wait for the hub to read them. */
static void take_signals(launch *job, sigset_t *set) {
    dlc_rank_signals(set);
    sigaddset(set, SIGCHLD);
    sigaddset(set, SIGTSTP);
    sigprocmask(SIG_BLOCK, set, &job->mask_before);
    /* Where children are ignored, nobody learns how they ended. */
    struct sigaction child = {.sa_handler = SIG_DFL};
    sigaction(SIGCHLD, &child, &job->child_before);
}

static void give_signals_back(const launch *job) {
    sigaction(SIGCHLD, &job->child_before, NULL);
    sigprocmask(SIG_SETMASK, &job->mask_before, NULL);
}

static dlc_status run_forked(launch *job, int *exit_code) {
    dlc_hub hub;
    sigset_t set;
    DLC_TRY(hub_open(job, &hub));
    take_signals(job, &set);
    dlc_status status = DLC_OK;
    hub.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (hub.signals < 0)
        status = dlc_fail(DLC_ERR_IO, "the launcher cannot listen for signals: %s",
                          strerror(errno));
    for (int r = 0; status == DLC_OK && r < hub.ranks; r++)
        status = start_rank(job, &hub, r);
    if (status == DLC_OK)
        status = dlc_hub_run(&hub, exit_code);
    if (status != DLC_OK)
        dlc_hub_kill(&hub);
    give_signals_back(job);
    hub_free(&hub);
    return status;
}

static dlc_status check_options(const dlc_job_options *options) {
    if (options->ranks < 1 || options->ranks > DLC_JOB_RANKS_MAX)
        return dlc_fail(DLC_ERR_CONFIG, "%d ranks: 1 to %d can be started on a machine",
                        options->ranks, DLC_JOB_RANKS_MAX);
    if (options->threads < 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%d threads a rank: give 1 or more, or 0 for "
                        "one a core",
                        options->threads);
    return DLC_OK;
}

dlc_status dlc_job_run(const dlc_job_options *options, dlc_job_main main,
                       void *argument, int *exit_code) {
    DLC_TRY(check_options(options));
    launch job = {
        .options = options, .main = main, .argument = argument, .pid = getpid()};
    job.doing_bytes = (size_t)options->ranks * sizeof *job.doing;
    void *shared = mmap(NULL, job.doing_bytes, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return dlc_fail(DLC_ERR_NOMEM, "no shared memory for %d ranks: %s",
                        options->ranks, strerror(errno));
    job.doing = shared;
    dlc_status status = dlc_cores_open(NULL, &job.cores);
    if (status == DLC_OK)
        status = options->ranks == 1 ? run_alone(&job, exit_code)
                                     : run_forked(&job, exit_code);
    dlc_cores_close(job.cores);
    munmap(shared, job.doing_bytes);
    return status;
}

/* dlc_job_run: chooses the kind of launch, and runs ranks on this machine: one in this
 * process, or several forked from it, with this process as their hub. */
#include "job/launch.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "job/external.h"
#include "job/rank.h"
#include "job/signals.h"
#include "topology/discover.h"

/* ---- One rank, in this process ---------------------------------------------- */

static dlc_status run_single(dlc_launch *launch, int *exit_code) {
    sigset_t set, before;
    dlc_rank_signals(&set);
    pthread_sigmask(SIG_BLOCK, &set, &before);
    dlc_rank_args args = dlc_launch_rank_args(launch, 0, 1, 0, launch->activity);
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

/* ---- Opening and closing the hub -------------------------------------------- */

dlc_status dlc_hub_open(const dlc_launch *launch, int ranks, dlc_hub *hub) {
    char host[64] = "";
    *hub = (dlc_hub){
        .ranks = ranks, .signals = -1, .hang_timeout = launch->options->hang_timeout};
    if (gethostname(host, sizeof host - 1))
        snprintf(host, sizeof host, "localhost");
    hub->peer = dlc_alloc((size_t)ranks, sizeof *hub->peer);
    if (!hub->peer)
        return DLC_ERR_NOMEM;
    for (int r = 0; r < ranks; r++) {
        hub->peer[r].control = hub->peer[r].output.fd = -1;
        hub->peer[r].output.rank = r;
        snprintf(hub->peer[r].host, sizeof hub->peer[r].host, "%s", host);
    }
    return DLC_OK;
}

void dlc_hub_close(dlc_hub *hub) {
    for (int r = 0; hub->peer && r < hub->ranks; r++) {
        dlc_peer *peer = &hub->peer[r];
        if (peer->control >= 0)
            close(peer->control);
        if (peer->output.fd >= 0)
            close(peer->output.fd);
        dlc_text_free(&peer->out);
        dlc_payload_free(&peer->part);
    }
    if (hub->signals >= 0)
        close(hub->signals);
    dlc_free(hub->result);
    dlc_free(hub->peer);
}

dlc_status dlc_hub_listen_for_signals(const dlc_launch *launch, dlc_hub *hub) {
    return dlc_signals_open(&launch->signals, "the launcher", &hub->signals);
}

void dlc_hub_attach_child(dlc_hub *hub, int rank, dlc_child *child,
                          dlc_shared_activity *activity) {
    dlc_peer *peer = &hub->peer[rank];
    peer->control = child->control;
    peer->output.fd = child->output;
    peer->activity = activity;
    peer->pid = child->pid;
    peer->running = child->pid > 0;
    *child = (dlc_child){.control = -1, .output = -1};
}

dlc_status dlc_hub_start_rank(const dlc_launch *launch, dlc_hub *hub,
                              const dlc_spawn *spawn) {
    dlc_child child;
    dlc_status status = dlc_spawn_rank(launch, spawn, &child);
    dlc_hub_attach_child(hub, spawn->rank, &child, spawn->activity);
    return status;
}

/* ---- Ranks on this machine ---------------------------------------------------- */

static void close_inherited_hub(void *hub) {
    dlc_hub_close(hub);
}

static dlc_status run_forked(dlc_launch *launch, int *exit_code) {
    dlc_hub hub;
    int ranks = launch->options->ranks;
    DLC_TRY(dlc_hub_open(launch, ranks, &hub));
    dlc_launch_block_signals(launch);
    dlc_status status = dlc_hub_listen_for_signals(launch, &hub);
    for (int r = 0; status == DLC_OK && r < ranks; r++) {
        dlc_spawn spawn = {.rank = r,
                           .ranks = ranks,
                           .local_rank = r,
                           .activity = &launch->activity[r],
                           .piped = r > 0,
                           .in_child = close_inherited_hub,
                           .context = &hub};
        status = dlc_hub_start_rank(launch, &hub, &spawn);
    }
    if (status == DLC_OK)
        status = dlc_hub_run(&hub, exit_code);
    if (status != DLC_OK)
        dlc_hub_kill(&hub);
    dlc_launch_restore_signals(launch);
    dlc_hub_close(&hub);
    return status;
}

/* ---- All launches -------------------------------------------------------------- */

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
static dlc_status discover(int is_local, dlc_launch *launch) {
    const dlc_job_options *options = launch->options;
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
    dlc_external external = {.kind = DLC_EXTERNAL_NONE};
    DLC_TRY(check_options(options));
    if (options->external)
        DLC_TRY(dlc_external_read(options->ranks, &external));
    dlc_launch launch = {
        .options = options, .main = main, .argument = argument, .pid = getpid()};
    size_t bytes = (size_t)options->ranks * sizeof *launch.activity;
    void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
    if (shared == MAP_FAILED)
        return dlc_fail(DLC_ERR_NOMEM, "cannot allocate shared memory for %d ranks: %s",
                        options->ranks, strerror(errno));
    launch.activity = shared;
    int is_local = external.kind == DLC_EXTERNAL_NONE;
    dlc_status status = discover(is_local, &launch);
    if (status == DLC_OK && !is_local)
        status = dlc_external_run(&launch, &external, exit_code);
    else if (status == DLC_OK)
        status = options->ranks == 1 ? run_single(&launch, exit_code)
                                     : run_forked(&launch, exit_code);
    dlc_cores_close(launch.cores);
    dlc_topo_free(&launch.machine);
    munmap(shared, bytes);
    return status;
}

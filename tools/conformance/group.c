/* Implements groups of ranks: forked processes with shared memory. */
#include "group.h"
#include "process.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"

enum { SLOT = 8192 }; /* most bytes of a rank in an all-gather */

struct group_state {
    atomic_uint arrived[2]; /* ranks at the barrier; the two take turns */
    atomic_uint turn;
    atomic_ullong dead; /* set of ranks */
    char slot[GROUP_MOST][SLOT];
};

static void nap(void) {
    const struct timespec pause = {.tv_nsec = 50000};
    (void)nanosleep(&pause, NULL);
}

/* ---- Services --------------------------------------------------------------- */

static dlc_status is_ending(const suite_member *member) {
    if (atomic_load(&member->state->dead))
        return dlc_fail(DLC_ERR_PEER, "the job is ending");
    return DLC_OK;
}

/* The service of the job; counts its calls, by any thread. */
static dlc_status check(void *job) {
    suite_member *member = job;
    (void)__atomic_fetch_add(&member->checks, 1, __ATOMIC_RELAXED);
    return is_ending(member);
}

/* Waits for all ranks. Returns 0 if the job ends meanwhile. */
static int barrier(suite_member *member) {
    group_state *state = member->state;
    unsigned turn = atomic_load(&state->turn);
    if (atomic_fetch_add(&state->arrived[turn & 1], 1) + 1 == (unsigned)member->ranks) {
        atomic_store(&state->arrived[turn & 1], 0);
        atomic_store(&state->turn, turn + 1);
        return 1;
    }
    while (atomic_load(&state->turn) == turn) {
        if (is_ending(member) != DLC_OK)
            return 0;
        nap();
    }
    return 1;
}

void suite_group_barrier(suite_member *member) {
    if (!barrier(member))
        suite_fail(member->run, "rank %d waited at a barrier for ranks that have ended",
                   member->rank);
}

static dlc_status oob_all_gather(void *job, const void *mine, size_t bytes, void *all) {
    suite_member *member = job;
    group_state *state = member->state;
    if (bytes > SLOT)
        return dlc_fail(DLC_ERR_UNSUPPORTED,
                        "an out-of-band all-gather of %zu bytes is too large", bytes);
    memcpy(state->slot[member->rank], mine, bytes);
    if (!barrier(member))
        return is_ending(member);
    for (int32_t r = 0; r < member->ranks; r++)
        memcpy((char *)all + (size_t)r * bytes, state->slot[r], bytes);
    return barrier(member) ? DLC_OK : is_ending(member);
}

void suite_group_delay(const suite_member *member, int32_t turn) {
    uint32_t mixed = (uint32_t)(member->rank * 7919 + turn * 104729 + 13) * 2654435761u;
    const struct timespec pause = {.tv_nsec = (long)(mixed >> 11)};
    (void)nanosleep(&pause, NULL);
}

/* ---- A rank ----------------------------------------------------------------- */

void suite_group_arguments(suite_run *run, int32_t ranks, int32_t nodes,
                           suite_member *member) {
    member->run = run;
    member->ranks = ranks;
    member->ops = run->feature->ops;
    for (int32_t r = 0; r < ranks; r++) {
        dlc_rank_info *rank_info = &member->rank_info[r];
        *rank_info = (dlc_rank_info){.size = sizeof *rank_info,
                                     .node = r * nodes / ranks,
                                     .pid = (uint32_t)getpid(),
                                     .uid = (uint32_t)getuid(),
                                     .package = -1,
                                     .numa = -1};
        (void)snprintf(rank_info->host, sizeof rank_info->host, "node%d",
                       rank_info->node);
        (void)snprintf(rank_info->device, sizeof rank_info->device, "%s",
                       member->device.name);
    }
    member->args = (dlc_transport_args){.size = sizeof member->args,
                                        .rank = member->rank,
                                        .ranks = ranks,
                                        .rank_info = member->rank_info,
                                        .settings = run->settings,
                                        .device_ops = member->device.ops,
                                        .device = member->device.handle,
                                        .job = member,
                                        .check = check};
}

static void must_fit(suite_member *member) {
    char reason[256] = "";
    dlc_transport_prediction made = {.size = sizeof made};
    suite_must(member->run,
               member->ops->predict(&member->args, &made, reason, sizeof reason),
               "predict");
    if (!(made.bandwidth > 0))
        suite_skip(member->run, "it cannot connect %d ranks here: %s", member->ranks,
                   reason);
}

__attribute__((noreturn)) static void be_member(suite_run *run, group_state *state,
                                                int32_t rank, int32_t ranks,
                                                suite_body *body) {
    static suite_member member;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    member = (suite_member){.run = run, .state = state, .rank = rank, .ranks = ranks};
    device_fixture_open(run, &member.device);
    suite_group_arguments(run, ranks, 1, &member);
    uint32_t pid = (uint32_t)getpid(), pids[GROUP_MOST] = {0};
    suite_must(run, oob_all_gather(&member, &pid, sizeof pid, pids),
               "the out-of-band all-gather");
    for (int32_t r = 0; r < ranks; r++)
        member.rank_info[r].pid = pids[r];
    must_fit(&member);
    member.args.oob_all_gather = oob_all_gather;
    suite_must(run, member.ops->open(&member.args, &member.endpoint), "open");
    suite_group_barrier(&member); /* no rank closes while another one still opens */
    body(&member);
    member.ops->close(member.endpoint);
    device_fixture_close(&member.device);
    _exit(0);
}

/* ---- All of them ------------------------------------------------------------ */

static group_state *make_state(suite_run *run) {
    group_state *state = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (state == MAP_FAILED)
        suite_skip(run, "cannot map shared memory: %s", strerror(errno));
    return state;
}

static int32_t rank_of(const pid_t *pids, int32_t ranks, pid_t pid) {
    for (int32_t r = 0; r < ranks; r++)
        if (pids[r] == pid)
            return r;
    return -1;
}

static void handle_exit(suite_run *run, group_state *state, int32_t rank, int status,
                        uint64_t lost) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !(lost >> rank & 1))
        return;
    atomic_fetch_or(&state->dead, 1ull << rank);
    if (lost >> rank & 1)
        return;
    if (WIFSIGNALED(status))
        suite_fail(run, "rank %d was killed by signal %d (%s)", rank, WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
    suite_fail(run, "rank %d ended with exit code %d", rank, WEXITSTATUS(status));
}

void suite_group_play(suite_run *run, int32_t ranks, uint64_t lost, suite_body *body) {
    group_state *state = make_state(run);
    pid_t pids[GROUP_MOST];
    for (int32_t r = 0; r < ranks; r++) {
        pids[r] = suite_fork(run);
        if (pids[r] < 0)
            suite_skip(run, "fork: %s", strerror(errno));
        if (pids[r] == 0)
            be_member(run, state, r, ranks, body);
    }
    for (int32_t left = ranks; left > 0; left--) {
        int status = 0;
        pid_t pid = wait(&status);
        if (pid < 0)
            suite_fail(run, "its ranks cannot be waited for");
        int32_t rank = rank_of(pids, ranks, pid);
        if (rank >= 0)
            handle_exit(run, state, rank, status, lost);
    }
    (void)munmap(state, sizeof *state);
}

/* ---- Messages --------------------------------------------------------------- */

unsigned char *suite_group_bytes(const suite_member *member, size_t bytes) {
    return device_fixture_bytes(member->run, &member->device, bytes, "buffer");
}

void suite_group_send(suite_member *member, int32_t peer, dlc_tag tag,
                      const void *buffer, size_t bytes, dlc_request **request) {
    suite_must(member->run,
               member->ops->send(member->endpoint, peer, tag, buffer, bytes, request),
               "send");
}

void suite_group_recv(suite_member *member, int32_t peer, dlc_tag tag, void *buffer,
                      size_t bytes, dlc_request **request) {
    suite_must(member->run,
               member->ops->recv(member->endpoint, peer, tag, buffer, bytes, request),
               "recv");
}

void suite_group_wait(suite_member *member, dlc_request *request) {
    suite_must(member->run, member->ops->wait(member->endpoint, request), "wait");
}

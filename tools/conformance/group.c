/* See group.h. */
#include "group.h"

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

enum { SLOT = 8192 };

struct suite_board {
    atomic_uint arrived[2]; /* at a barrier, in turns */
    atomic_uint turn;
    atomic_int ending;
    atomic_ullong dead; /* bits */
    char slot[GROUP_MOST][SLOT];
};

static void nap(void) {
    const struct timespec pause = {.tv_nsec = 50000};
    (void)nanosleep(&pause, NULL);
}

/* ---- Services ---------------------------------------------------------------- */

static dlc_status check(void *job) {
    const suite_member *member = job;
    if (atomic_load(&member->board->ending) || atomic_load(&member->board->dead))
        return dlc_fail(DLC_ERR_PEER, "the job is ending");
    return DLC_OK;
}

/* False where the job ends meanwhile. */
static int meet(suite_member *member) {
    suite_board *board = member->board;
    unsigned turn = atomic_load(&board->turn);
    if (atomic_fetch_add(&board->arrived[turn & 1], 1) + 1 == (unsigned)member->ranks) {
        atomic_store(&board->arrived[turn & 1], 0);
        atomic_store(&board->turn, turn + 1);
        return 1;
    }
    while (atomic_load(&board->turn) == turn) {
        if (check(member) != DLC_OK)
            return 0;
        nap();
    }
    return 1;
}

void suite_group_barrier(suite_member *member) {
    if (!meet(member))
        suite_fail(member->run, "rank %d waited for ranks that ended", member->rank);
}

static dlc_status allgather(void *job, const void *mine, size_t bytes, void *all) {
    suite_member *member = job;
    suite_board *board = member->board;
    if (bytes > SLOT)
        return dlc_fail(DLC_ERR_UNSUPPORTED, "%zu bytes are more than a set-up needs",
                        bytes);
    memcpy(board->slot[member->rank], mine, bytes);
    if (!meet(member))
        return check(member);
    for (int32_t r = 0; r < member->ranks; r++)
        memcpy((char *)all + (size_t)r * bytes, board->slot[r], bytes);
    return meet(member) ? DLC_OK : check(member);
}

void suite_group_end_job(suite_member *member) {
    atomic_store(&member->board->ending, 1);
}

void suite_group_dawdle(const suite_member *member, int32_t turn) {
    uint32_t mixed = (uint32_t)(member->rank * 7919 + turn * 104729 + 13) * 2654435761u;
    const struct timespec pause = {.tv_nsec = (long)(mixed >> 11)};
    (void)nanosleep(&pause, NULL);
}

/* ---- A rank ------------------------------------------------------------------ */

void suite_group_arguments(suite_run *run, int32_t ranks, int32_t nodes,
                           suite_member *member) {
    member->run = run;
    member->ranks = ranks;
    member->ops = run->feature->ops;
    for (int32_t r = 0; r < ranks; r++) {
        dlc_place *place = &member->place[r];
        *place = (dlc_place){.size = sizeof *place,
                             .node = r * nodes / ranks,
                             .pid = (uint32_t)getpid(),
                             .uid = (uint32_t)getuid(),
                             .package = -1,
                             .numa = -1};
        (void)snprintf(place->host, sizeof place->host, "node%d", place->node);
        (void)snprintf(place->device, sizeof place->device, "%s", member->bed.name);
    }
    member->args = (dlc_transport_args){.size = sizeof member->args,
                                        .rank = member->rank,
                                        .ranks = ranks,
                                        .places = member->place,
                                        .settings = run->settings,
                                        .device_ops = member->bed.ops,
                                        .device = member->bed.device,
                                        .job = member,
                                        .check = check};
}

static void must_fit(suite_member *member) {
    char reason[256] = "";
    int32_t score = 0;
    suite_must(member->run,
               member->ops->score(&member->args, &score, reason, sizeof reason),
               "score");
    if (score == 0)
        suite_skip(member->run, "it cannot join %d ranks here: %s", member->ranks,
                   reason);
}

__attribute__((noreturn)) static void be_member(suite_run *run, suite_board *board,
                                                int32_t rank, int32_t ranks,
                                                suite_body *body) {
    static suite_member member;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    member = (suite_member){.run = run, .board = board, .rank = rank, .ranks = ranks};
    suite_bed_open(run, &member.bed);
    suite_group_arguments(run, ranks, 1, &member);
    uint32_t pid = (uint32_t)getpid(), pids[GROUP_MOST] = {0};
    suite_must(run, allgather(&member, &pid, sizeof pid, pids), "the ranks' meeting");
    for (int32_t r = 0; r < ranks; r++)
        member.place[r].pid = pids[r];
    must_fit(&member);
    member.args.allgather = allgather;
    suite_must(run, member.ops->open(&member.args, &member.endpoint), "open");
    suite_group_barrier(&member); /* nobody leaves while another still opens */
    body(&member);
    member.ops->close(member.endpoint);
    suite_bed_close(&member.bed);
    _exit(0);
}

/* ---- All of them ------------------------------------------------------------- */

static suite_board *make_board(suite_run *run) {
    suite_board *board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE,
                              MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (board == MAP_FAILED)
        suite_skip(run, "no memory that processes share: %s", strerror(errno));
    return board;
}

static int32_t rank_of(const pid_t *pids, int32_t ranks, pid_t pid) {
    for (int32_t r = 0; r < ranks; r++)
        if (pids[r] == pid)
            return r;
    return -1;
}

static void bury(suite_run *run, suite_board *board, int32_t rank, int status,
                 uint64_t lost) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0 && !(lost >> rank & 1))
        return;
    atomic_fetch_or(&board->dead, 1ull << rank);
    if (lost >> rank & 1)
        return;
    if (WIFSIGNALED(status))
        suite_fail(run, "rank %d was killed by signal %d (%s)", rank, WTERMSIG(status),
                   strsignal(WTERMSIG(status)));
    suite_fail(run, "rank %d ended with exit code %d", rank, WEXITSTATUS(status));
}

void suite_group_play(suite_run *run, int32_t ranks, uint64_t lost, suite_body *body) {
    suite_board *board = make_board(run);
    pid_t pids[GROUP_MOST];
    for (int32_t r = 0; r < ranks; r++) {
        pids[r] = fork();
        if (pids[r] < 0)
            suite_skip(run, "fork: %s", strerror(errno));
        if (pids[r] == 0)
            be_member(run, board, r, ranks, body);
    }
    for (int32_t left = ranks; left > 0; left--) {
        int status = 0;
        pid_t pid = wait(&status);
        if (pid < 0)
            suite_fail(run, "its ranks got lost");
        int32_t rank = rank_of(pids, ranks, pid);
        if (rank >= 0)
            bury(run, board, rank, status, lost);
    }
    (void)munmap(board, sizeof *board);
}

/* ---- Messages ---------------------------------------------------------------- */

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

#include "support/ranks.h"

#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"

enum { MAX_RANKS = 64, CARD = 4096, BOARD = 64 << 10 };

struct test_job {
    atomic_int arrived; /* at the barrier */
    atomic_uint round;
    atomic_int ended;
    int ranks;
    char cards[MAX_RANKS][CARD];
    char board[BOARD];
};

void rank_failed(const test_rank *rank, const char *file, int line, const char *what) {
    fprintf(stderr, "rank %d of %d: %s:%d: not so: %s\n", rank->rank, rank->ranks, file,
            line, what);
    _exit(1);
}

void rank_failed_status(const test_rank *rank, const char *file, int line,
                        const char *what, dlc_status status) {
    fprintf(stderr, "rank %d of %d: %s:%d: %s: %d: %s\n", rank->rank, rank->ranks, file,
            line, what, status, dlc_detail());
    _exit(1);
}

dlc_status ranks_check(void *job) {
    test_rank *rank = job;
    if (atomic_load(&rank->job->ended))
        return dlc_fail(DLC_ERR_PEER, "another rank is gone");
    return DLC_OK;
}

void ranks_end(test_rank *rank) {
    atomic_store(&rank->job->ended, 1);
}

static dlc_status barrier(test_rank *rank) {
    test_job *job = rank->job;
    unsigned round = atomic_load(&job->round);

    if (atomic_fetch_add(&job->arrived, 1) + 1 == job->ranks) {
        atomic_store(&job->arrived, 0);
        atomic_fetch_add(&job->round, 1);
        return DLC_OK;
    }
    while (atomic_load(&job->round) == round) {
        dlc_status status = ranks_check(rank);
        if (status != DLC_OK)
            return status;
        usleep(100);
    }
    return DLC_OK;
}

void ranks_barrier(test_rank *rank) {
    RANK_OK(rank, barrier(rank));
}

dlc_status ranks_allgather(void *context, const void *mine, size_t bytes, void *all) {
    test_rank *rank = context;
    test_job *job = rank->job;

    RANK_CHECK(rank, bytes <= CARD);
    memcpy(job->cards[rank->rank], mine, bytes);
    DLC_TRY(barrier(rank));
    for (int r = 0; r < rank->ranks; r++)
        memcpy((char *)all + (size_t)r * bytes, job->cards[r], bytes);
    return barrier(rank);
}

/* ---- The parent ------------------------------------------------------------ */

int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

static void run_rank(test_rank *rank, pid_t parent, rank_body *body, void *context) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    body(rank, context);
    if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check())
        _exit(1);
    _exit(0);
}

/* Waits for every rank; a rank that dies ends the job for the others. */
static int collect(test_job *job, pid_t *pids, int seconds, uint64_t lost) {
    uint64_t since = dlc_now_ns();
    int failed = 0, left = job->ranks, killed = 0;

    while (left > 0) {
        for (int r = 0; r < job->ranks; r++) {
            int status = 0;
            if (pids[r] == 0 || waitpid(pids[r], &status, WNOHANG) != pids[r])
                continue;
            pids[r] = 0;
            left--;
            if (status == 0)
                continue;
            atomic_store(&job->ended, 1);
            if (lost >> r & 1)
                continue;
            failed++;
            fprintf(stderr, "rank %d ended with %s %d\n", r,
                    WIFSIGNALED(status) ? "signal" : "exit code",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        }
        if (!killed && dlc_since(since) > seconds) {
            fprintf(stderr, "%d of %d ranks not done after %d s\n", left, job->ranks,
                    seconds);
            for (int r = 0; r < job->ranks; r++)
                if (pids[r] != 0)
                    (void)kill(pids[r], SIGKILL);
            killed = 1;
        }
        usleep(500);
    }
    return failed;
}

int ranks_run_losing(int ranks, int seconds, uint64_t lost, rank_body *body,
                     void *context) {
    pid_t pids[MAX_RANKS] = {0}, parent = getpid();
    const char *slower = getenv("CK_TIMEOUT_MULTIPLIER");
    test_job *job = mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (job == MAP_FAILED || ranks > MAX_RANKS)
        return -1;
    job->ranks = ranks;
    (void)fflush(NULL);
    for (int r = 0; r < ranks; r++) {
        pids[r] = fork();
        if (pids[r] == 0) {
            test_rank rank = {r, ranks, job, job->board};
            run_rank(&rank, parent, body, context);
        }
        if (pids[r] < 0)
            atomic_store(&job->ended, 1);
    }
    if (slower)
        seconds *= atoi(slower) > 0 ? atoi(slower) : 1;
    int failed = collect(job, pids, seconds, lost);
    (void)munmap(job, sizeof *job);
    return failed;
}

int ranks_run(int ranks, int seconds, rank_body *body, void *context) {
    return ranks_run_losing(ranks, seconds, 0, body, context);
}

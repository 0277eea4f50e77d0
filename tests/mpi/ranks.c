/* See support/ranks.h. Here the ranks are processes that somebody else has started:
 * each of them runs the whole test program, and those of rank less than `ranks` the
 * body. They share a file, whose name stands in TEST_BOARD. */
#include "support/ranks.h"

#include <fcntl.h>
#include <mpi.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/status.h"

enum { MAX_RANKS = 64, CARD = 4096, BOARD = 64 << 10 };

struct test_job {
    atomic_int arrived; /* at the barrier */
    atomic_uint round;
    atomic_int ended;
    atomic_int left; /* processes that are through with the body */
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
    uint64_t since = dlc_now_ns();

    if (atomic_fetch_add(&job->arrived, 1) + 1 == rank->ranks) {
        atomic_store(&job->arrived, 0);
        atomic_fetch_add(&job->round, 1);
        return DLC_OK;
    }
    while (atomic_load(&job->round) == round) {
        if (dlc_since(since) > 120)
            return dlc_fail(DLC_ERR_PEER, "not every rank came to the barrier");
        DLC_TRY(ranks_check(rank));
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

/* ---- This process ------------------------------------------------------------ */

static int number_of(const char *const *names) {
    for (; *names; names++)
        if (getenv(*names))
            return atoi(getenv(*names));
    return -1;
}

static test_job *open_job(void) {
    const char *path = getenv("TEST_BOARD");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *map = fd < 0 ? MAP_FAILED
                       : mmap(NULL, sizeof(test_job), PROT_READ | PROT_WRITE,
                              MAP_SHARED, fd, 0);
    if (fd >= 0)
        close(fd);
    return map == MAP_FAILED ? NULL : map;
}

/* All together, even where the job has ended. */
static void leave(test_rank *all) {
    test_job *job = all->job;
    int goal = (atomic_fetch_add(&job->left, 1) / all->ranks + 1) * all->ranks;
    uint64_t since = dlc_now_ns();
    while (atomic_load(&job->left) < goal && dlc_since(since) < 120)
        usleep(100);
}

int ranks_run_losing(int ranks, int seconds, uint64_t lost, rank_body *body,
                     void *context) {
    static const char *const rank_names[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", NULL};
    static const char *const size_names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", NULL};
    int me = number_of(rank_names), size = number_of(size_names), begun = 0;
    test_job *job = open_job();

    (void)seconds; /* run.sh has an end to it */
    (void)lost;
    if (!job || me < 0 || size < 1 || size > MAX_RANKS) {
        fprintf(stderr, "not started by run.sh\n");
        return -1;
    }
    test_rank all = {me, size, job, job->board};
    ranks_barrier(&all);
    if (me == 0)
        memset(job->board, 0, sizeof job->board);
    ranks_barrier(&all);
    /* More ranks than there are processes are left out, and a part of them until MPI
     * has begun, which takes all. */
    MPI_Initialized(&begun);
    if (me < ranks && (ranks == size || (ranks < size && begun))) {
        test_rank rank = {me, ranks, job, job->board};
        body(&rank, context);
    }
    leave(&all);
    munmap(job, sizeof *job);
    return 0;
}

int ranks_run(int ranks, int seconds, rank_body *body, void *context) {
    return ranks_run_losing(ranks, seconds, 0, body, context);
}

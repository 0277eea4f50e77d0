/* Implements support/ranks.h for processes that mpirun has started: each runs the whole
 * test program, and those with a rank below `ranks` run the body. They share a file,
 * named by TEST_BOARD. */
#include "support/ranks_shared.h"

#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"

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

/* Waits for all ranks, even if the job has ended. */
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

    (void)seconds; /* run.sh has a timeout */
    (void)lost;
    if (!job || me < 0 || size < 1 || size > RANKS_MAX) {
        fprintf(stderr, "not started by run.sh\n");
        return -1;
    }
    test_rank all = {me, size, job, job->shared};
    ranks_barrier(&all);
    if (me == 0)
        memset(job->shared, 0, sizeof job->shared);
    ranks_barrier(&all);
    /* Bodies with more ranks than processes are skipped, as are those for a part of the
     * processes until MPI is initialised, which takes all of them. */
    MPI_Initialized(&begun);
    if (me < ranks && (ranks == size || (ranks < size && begun))) {
        test_rank rank = {me, ranks, job, job->shared};
        body(&rank, context);
    }
    leave(&all);
    munmap(job, sizeof *job);
    return 0;
}

int ranks_run(int ranks, int seconds, rank_body *body, void *context) {
    return ranks_run_losing(ranks, seconds, 0, body, context);
}

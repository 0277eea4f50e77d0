/* Services of a test's ranks, however they were started; see ranks_shared.h. */
#include "support/ranks_shared.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"

void rank_failed(const test_rank *rank, const char *file, int line, const char *what) {
    fprintf(stderr, "rank %d of %d: %s:%d: check failed: %s\n", rank->rank, rank->ranks,
            file, line, what);
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

    if (atomic_fetch_add(&job->arrived, 1) + 1 == rank->ranks) {
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

dlc_status ranks_all_gather(void *context, const void *mine, size_t bytes, void *all) {
    test_rank *rank = context;
    test_job *job = rank->job;

    RANK_CHECK(rank, bytes <= RANKS_GATHER_BYTES);
    memcpy(job->gathered[rank->rank], mine, bytes);
    DLC_TRY(barrier(rank));
    for (int r = 0; r < rank->ranks; r++)
        memcpy((char *)all + (size_t)r * bytes, job->gathered[r], bytes);
    return barrier(rank);
}

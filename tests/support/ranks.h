/* A job for tests: ranks as forked processes, with the services that a transport needs
 * of a job. The core's launcher is not used.
 *
 *     static void body(test_rank *rank, void *context) {
 *         RANK_CHECK(rank, rank->rank < rank->ranks);
 *     }
 *     ck_assert_int_eq(ranks_run(4, 30, body, NULL), 0);
 */
#ifndef TEST_RANKS_H
#define TEST_RANKS_H

#include <stdint.h>
#include <sys/types.h>

#include <dlcore/transport.h>

typedef struct test_job test_job; /* shared by all ranks */

typedef struct test_rank {
    int rank, ranks;
    test_job *job;
    char
        *shared; /* 64 KiB of memory shared by all ranks, for the test's own use; zeroed
                  */
} test_rank;

typedef void rank_body(test_rank *rank, void *context);

/* Forks the ranks, runs the body in each and waits. Returns how many failed: by a
 * check, a signal, a leak, or a timeout of `seconds` (then all are killed). Failures
 * are printed to stderr. */
int ranks_run(int ranks, int seconds, rank_body *body, void *context);

/* Like ranks_run, but the ranks whose bit is set in `lost` are expected to die; all
 * others must end normally. */
int ranks_run_losing(int ranks, int seconds, uint64_t lost, rank_body *body,
                     void *context);

/* Services for dlc_transport_args; `job` is the test_rank. After a rank died or called
 * ranks_end, check fails with DLC_ERR_PEER. */
dlc_status ranks_all_gather(void *job, const void *mine, size_t bytes, void *all);
dlc_status ranks_check(void *job);
void ranks_barrier(test_rank *rank);
void ranks_end(test_rank *rank);

/* Fails and ends this rank if the condition does not hold. */
#define RANK_CHECK(rank, condition) \
    do { \
        if (!(condition)) \
            rank_failed(rank, __FILE__, __LINE__, #condition); \
    } while (0)
#define RANK_OK(rank, call) \
    do { \
        dlc_status rank_ok_ = (call); \
        if (rank_ok_ != DLC_OK) \
            rank_failed_status(rank, __FILE__, __LINE__, #call, rank_ok_); \
    } while (0)

__attribute__((noreturn)) void rank_failed(const test_rank *rank, const char *file,
                                           int line, const char *what);
__attribute__((noreturn)) void rank_failed_status(const test_rank *rank,
                                                  const char *file, int line,
                                                  const char *what, dlc_status status);

#endif

/* A job of solvers for the tests of ssp: each rank is a thread with arenas of its own
 * and a fake p2p channel to the others, on the CPU device, with gradients from a
 * function. */
#ifndef TEST_SSP_FIXTURE_H
#define TEST_SSP_FIXTURE_H

#include <dlcore/solver.h>

#include "fake_p2p.h"

enum {
    FIXTURE_CONTROL_WORDS = 16,
    FIXTURE_SEGMENTS = 6,
    FIXTURE_BUCKETS_MAX = 8,
    FIXTURE_COUNT_MAX = 4096
};

/* Layout of the arenas and buckets, equal on all ranks. */
typedef struct fixture_cut {
    size_t count; /* with the control words */
    dlc_segment segment[FIXTURE_SEGMENTS];
    int32_t segments, buckets;
    size_t bucket_begin[FIXTURE_BUCKETS_MAX + 1];
    char used[FIXTURE_COUNT_MAX]; /* 0: padding */
} fixture_cut;

typedef struct fixture_rank {
    struct fixture *fixture;
    int32_t me;
    float weights[FIXTURE_COUNT_MAX], gradients[FIXTURE_COUNT_MAX];
    float slot[2][FIXTURE_COUNT_MAX];
    dlc_exchange exchange;
    dlc_solver *solver;
    uint64_t random;
    int deferred; /* call update for each bucket instead of finish */
} fixture_rank;

/* The gradient of one element on one rank, given its weight there. */
typedef float fixture_gradient(int32_t rank, int64_t iteration, int32_t micro,
                               size_t element, float weight);

typedef struct fixture {
    fake_p2p fake;
    int32_t ranks, servers;
    fixture_cut cut;
    dlc_settings *settings;
    dlc_solver_needs needs;
    const dlc_solver_ops *ops;
    fixture_gradient *gradient;
    double pause;  /* longest pause of a rank in an iteration, in seconds */
    int64_t first; /* the first iteration */
    const int64_t *batch_split; /* NULL: equal */
    void *context;              /* for the test */
    fixture_rank rank[FAKE_RANKS_MAX];
} test_fixture;

/* Makes a layout of `count` or a few more elements from a seed. */
void fixture_cut_make(uint64_t seed, size_t count, int32_t buckets, fixture_cut *cut);

/* `sets` as in support/plugins.h, for solver ssp; NULL-terminated. All ranks start with
 * equal weights. */
void fixture_open(test_fixture *fixture, int32_t ranks, int32_t on_first_node,
                  const fixture_cut *cut, const char *const *sets);
/* Runs `body` on every rank's thread, with a solver created before and destroyed after
 * it. */
void fixture_run(test_fixture *fixture, void (*body)(fixture_rank *rank));
/* Starts the job again with other ranks or settings, from the arenas of rank 0. */
void fixture_reopen(test_fixture *fixture, int32_t ranks, int32_t on_first_node,
                    const char *const *sets);
void fixture_close(test_fixture *fixture);

dlc_status fixture_create(fixture_rank *rank);

/* One iteration as the core does it; servers get no gradients. `control` (16 words) is
 * what the rank gives and becomes what the solver leaves. */
dlc_status fixture_iterate(fixture_rank *rank, int64_t iteration, float *control);
/* Runs iterations [from, to), which must succeed. */
void fixture_iterations(fixture_rank *rank, int64_t from, int64_t to);
void fixture_synchronize(fixture_rank *rank, int64_t iteration);

/* What sgd makes of the same gradients, reduced over all ranks in the fixed order. */
typedef struct fixture_reference {
    test_fixture *fixture;
    fixture_rank rank;
    dlc_settings *settings;
    const dlc_solver_ops *ops;
    dlc_solver_needs needs;
    int64_t iteration;
    float sums[FAKE_RANKS_MAX][FIXTURE_COUNT_MAX];
    float loss; /* sum of the losses of the ranks */
} fixture_reference;

void fixture_reference_open(fixture_reference *reference, test_fixture *fixture,
                            const char *const *sets);
void fixture_reference_iterate(fixture_reference *reference, int64_t iteration);
void fixture_reference_close(fixture_reference *reference);

/* The loss that a rank gives. */
float fixture_loss(int32_t rank, int64_t iteration);

/* Gradients that pull the weights towards zero and differ between ranks. */
float fixture_pull(int32_t rank, int64_t iteration, int32_t micro, size_t element,
                   float weight);

#endif

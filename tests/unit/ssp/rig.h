/* A job of solvers: every rank a thread with arenas of its own and mail to the others,
 * the processor's kernels, gradients that a function makes up. */
#ifndef TEST_SSP_RIG_H
#define TEST_SSP_RIG_H

#include <dlcore/solver.h>

#include "sim.h"

enum { RIG_TAIL = 16, RIG_SEGMENTS = 6, RIG_BUCKETS_MAX = 8, RIG_COUNT_MAX = 4096 };

/* How the arenas are laid out and cut; the same on all ranks. */
typedef struct rig_cut {
    size_t count; /* with the tail */
    dlc_segment segment[RIG_SEGMENTS];
    int32_t segments, buckets;
    size_t bucket_begin[RIG_BUCKETS_MAX + 1];
    char used[RIG_COUNT_MAX]; /* 0: padding */
} rig_cut;

typedef struct rig_rank {
    struct rig *rig;
    int32_t me;
    float weights[RIG_COUNT_MAX], gradients[RIG_COUNT_MAX];
    float slot[2][RIG_COUNT_MAX];
    dlc_exchange exchange;
    dlc_solver *solver;
    uint64_t random;
    int late; /* update, bucket by bucket, in place of finish */
} rig_rank;

/* An element's gradient on a rank, from the weight that it has there. */
typedef float rig_gradient(int32_t rank, int64_t iteration, int32_t micro,
                           size_t element, float weight);

typedef struct rig {
    test_sim sim;
    int32_t ranks, servers;
    rig_cut cut;
    dlc_settings *settings;
    dlc_solver_needs needs;
    const dlc_solver_ops *ops;
    rig_gradient *gradient;
    double pause;          /* of a rank in an iteration, at most, in seconds */
    int64_t first;         /* iteration */
    const int64_t *shares; /* NULL: even */
    void *context;         /* the test's own */
    rig_rank rank[SIM_RANKS_MAX];
} test_rig;

/* Cuts that follow from a number; `count` elements or some more, one or more buckets.
 */
void rig_cut_make(uint64_t seed, size_t count, int32_t buckets, rig_cut *cut);

/* `sets` as in support/plugins.h, for solver ssp; NULL-terminated. All weights start
 * alike. */
void rig_open(test_rig *rig, int32_t ranks, int32_t on_first_node, const rig_cut *cut,
              const char *const *sets);
/* Runs `body` on every rank's thread, its solver created before and destroyed after
 * it. */
void rig_run(test_rig *rig, void (*body)(rig_rank *rank));
/* Starts a job anew with other ranks or settings, from rank 0's arenas. */
void rig_reopen(test_rig *rig, int32_t ranks, int32_t on_first_node,
                const char *const *sets);
void rig_close(test_rig *rig);

dlc_status rig_create(rig_rank *rank);

/* One iteration as the core does it: on servers without gradients. `tail` (16 words):
 * what the rank gives; comes back as the solver leaves it. */
dlc_status rig_iterate(rig_rank *rank, int64_t iteration, float *tail);
/* Iterations [from, to), which must succeed. */
void rig_iterations(rig_rank *rank, int64_t from, int64_t to);
void rig_meet(rig_rank *rank, int64_t iteration);

/* What sgd makes of the same gradients, all ranks summed in one order. */
typedef struct rig_reference {
    test_rig *rig;
    rig_rank rank;
    dlc_settings *settings;
    const dlc_solver_ops *ops;
    dlc_solver_needs needs;
    int64_t iteration;
    float sums[SIM_RANKS_MAX][RIG_COUNT_MAX];
    float loss; /* sum of the ranks' first words */
} rig_reference;

void rig_reference_open(rig_reference *reference, test_rig *rig,
                        const char *const *sets);
void rig_reference_iterate(rig_reference *reference, int64_t iteration);
void rig_reference_close(rig_reference *reference);

/* The first word that a rank gives. */
float rig_loss(int32_t rank, int64_t iteration);

/* Loose gradients that pull weights somewhere, and differ between ranks. */
float rig_pull(int32_t rank, int64_t iteration, int32_t micro, size_t element,
               float weight);

#endif

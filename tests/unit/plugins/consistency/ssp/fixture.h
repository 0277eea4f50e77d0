/* A job of consistency models for the tests of ssp: each rank is a thread with arenas
 * of its own and a fake p2p channel to the others, on the CPU device, with gradients
 * from a function. */
#ifndef TEST_SSP_FIXTURE_H
#define TEST_SSP_FIXTURE_H

#include "fake_p2p.h"
#include "rules.h"

enum {
    FIXTURE_CONTROL_WORDS = 16,
    FIXTURE_SEGMENTS = 6,
    FIXTURE_BUCKETS_MAX = 8,
    FIXTURE_COUNT_MAX = 4096
};

/* Layout of the arenas and buckets, equal on all ranks. */
typedef struct fixture_cut {
    size_t count; /* with the control words */
    rules_segment segment[FIXTURE_SEGMENTS];
    int32_t segments, buckets;
    size_t bucket_begin[FIXTURE_BUCKETS_MAX + 1];
    char used[FIXTURE_COUNT_MAX];   /* 0: padding */
    char frozen[FIXTURE_COUNT_MAX]; /* 1: padding, or never updated */
} fixture_cut;

typedef struct fixture_rank {
    struct fixture *fixture;
    int32_t me;
    float weights[FIXTURE_COUNT_MAX], gradients[FIXTURE_COUNT_MAX];
    float slot[DLC_MAX_SLOTS][FIXTURE_COUNT_MAX];
    dlc_exchange exchange;
    dlc_consistency *model;
    uint64_t random;
    int deferred; /* call update for each bucket instead of finish */
} fixture_rank;

/* The gradient of one element on one rank, given its weight there. */
typedef float fixture_gradient(int32_t rank, int64_t iteration, size_t element,
                               float weight);

typedef struct fixture {
    fake_p2p fake;
    int32_t ranks, servers;
    fixture_cut cut;
    rules_choice choice;
    rules_context rules;
    dlc_updater updater;
    dlc_settings *settings;
    dlc_consistency_needs needs;
    const dlc_consistency_ops *ops;
    fixture_gradient *gradient;
    double pause;  /* longest pause of a rank in an iteration, in seconds */
    int64_t first; /* the first iteration */
    const int64_t *batch_split; /* NULL: equal */
    fixture_rank rank[FAKE_RANKS_MAX];
} test_fixture;

/* Makes a layout of `count` or a few more elements from a seed. */
void fixture_cut_make(uint64_t seed, size_t count, int32_t buckets, fixture_cut *cut);

/* `sets` as in support/plugins.h, for ssp; NULL-terminated. All ranks start with equal
 * weights. */
void fixture_open(test_fixture *fixture, int32_t ranks, int32_t on_first_node,
                  const fixture_cut *cut, const rules_choice *choice,
                  const char *const *sets);
/* Runs `body` on every rank's thread, with a model created before and destroyed after
 * it. */
void fixture_run(test_fixture *fixture, void (*body)(fixture_rank *rank));
/* Starts the job again with other ranks or settings, from the arenas of rank 0. */
void fixture_reopen(test_fixture *fixture, int32_t ranks, int32_t on_first_node,
                    const char *const *sets);
void fixture_close(test_fixture *fixture);

dlc_status fixture_create(fixture_rank *rank);

/* One iteration as the core does it; servers get no gradients. `control` (16 words) is
 * what the rank gives and becomes what the model leaves. */
dlc_status fixture_iterate(fixture_rank *rank, int64_t iteration, float *control);
/* Runs iterations [from, to), which must succeed. */
void fixture_iterations(fixture_rank *rank, int64_t from, int64_t to);
void fixture_synchronize(fixture_rank *rank, int64_t iteration);

/* The loss that a rank gives. */
float fixture_loss(int32_t rank, int64_t iteration);

/* Gradients that pull the weights towards zero and differ between ranks. */
float fixture_pull(int32_t rank, int64_t iteration, size_t element, float weight);

int32_t fixture_workers(const test_fixture *fixture);
/* A worker's share of the batch. */
double fixture_share(const test_fixture *fixture, int32_t worker);
/* The gradients of one rank, weighted, in all trained elements. */
void fixture_gradients(const test_fixture *fixture, int32_t rank, int64_t iteration,
                       const float *weights, float *gradients);
/* Sums arrays of the CPU device in the SDK's order. */
void fixture_sum(size_t n, const float *const *from, int32_t count, float *to);
/* What the weights and slots are at the start. */
void fixture_begin(const test_fixture *fixture, float *weights,
                   float (*slot)[FIXTURE_COUNT_MAX]);

#endif

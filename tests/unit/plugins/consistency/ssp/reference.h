/* What the weights and slots of a job must be: computed in one thread, from the same
 * gradients. */
#ifndef TEST_SSP_REFERENCE_H
#define TEST_SSP_REFERENCE_H

#include "fixture.h"

typedef struct reference {
    const test_fixture *fixture;
    float weights[FIXTURE_COUNT_MAX];
    float slot[DLC_MAX_SLOTS][FIXTURE_COUNT_MAX]; /* of the job */
    float loss;                                   /* sum of the losses of the ranks */

    /* Of each worker, since the last synchronization. */
    float own[FAKE_RANKS_MAX][DLC_MAX_SLOTS][FIXTURE_COUNT_MAX];
} reference;

void reference_open(reference *one, const test_fixture *fixture);

/* Synchronous training: the rule on the gradients of all ranks, reduced in the fixed
 * order. */
void reference_iterate(reference *one, int64_t iteration);

/* Every worker makes a step of its own from the weights that are here. Exact for
 * gradients and rules that do not depend on the weights. */
void reference_iterate_stale(reference *one, int64_t iteration);
void reference_synchronize_stale(reference *one);

#endif

/* Conformance of transports: the fused update is bitwise identical to a reduce-scatter,
 * an update and an all-gather. */
#include <string.h>

#include "base/memory.h"
#include "registered.h"
#include "support/reference.h"
#include "support/sanitized.h"
#include "support/test.h"
#include "support/updates.h"

enum { ROOM = 100000, STEPS = 3, ROUNDS = 3 };

/* What every rank does with its slice: ranges with gaps before and between them. */
typedef struct plan {
    size_t begin[STEPS], count[STEPS];
    dlc_update update[STEPS];
} plan;

static size_t slice(size_t count, int rank, int ranks) {
    return count * (size_t)rank / (size_t)ranks;
}

static plan plan_of(size_t count, int rank, int ranks) {
    size_t begin = slice(count, rank, ranks), end = slice(count, rank + 1, ranks);
    plan p;
    for (size_t i = 0; i < STEPS; i++) {
        size_t from = begin + (end - begin) * i / STEPS;
        size_t to = begin + (end - begin) * (i + 1) / STEPS;
        size_t gap = to - from > i ? i : 0;
        p.begin[i] = from + gap;
        p.count[i] = to - from - gap;
        p.update[i] = test_update(TEST_MOMENTUM + (int)i);
        p.update[i].lr_mult = (float)(i + 1);
    }
    return p;
}

/* Slots and weights of all elements. */
typedef struct model {
    float *slots[DLC_MAX_SLOTS], *weights;
} model;

static void slots_at(const model *m, size_t at, const dlc_rule *rule, float **slots) {
    for (int k = 0; k < DLC_MAX_SLOTS; k++)
        slots[k] = k < rule->slots ? m->slots[k] + at : NULL;
}

/* Computes the expected slots and weights from the sums, for all slices. */
static void expect(const group *g, uint64_t salt, size_t count, const model *m) {
    int ranks = g->rank->ranks;
    float *sum = dlc_alloc(count + 1, sizeof *sum), *slots[DLC_MAX_SLOTS];
    RANK_CHECK(g->rank, sum);
    for (size_t i = 0; i < count; i++)
        sum[i] = reference_sum(salt, ranks, i);
    for (int r = 0; r < ranks; r++) {
        plan p = plan_of(count, r, ranks);
        for (int i = 0; i < STEPS; i++) {
            slots_at(m, p.begin[i], p.update[i].rule, slots);
            RANK_OK(g->rank, g->device_ops->update(g->device, NULL, p.count[i],
                                                   &p.update[i], sum + p.begin[i],
                                                   slots, m->weights + p.begin[i]));
        }
    }
    dlc_free(sum);
}

static void update(group *g, float *gradients, const model *m, size_t count) {
    plan p = plan_of(count, g->rank->rank, g->rank->ranks);
    dlc_update_range ranges[STEPS];
    for (int i = 0; i < STEPS; i++) {
        ranges[i] = (dlc_update_range){.size = sizeof *ranges,
                                       .update = &p.update[i],
                                       .begin = p.begin[i],
                                       .count = p.count[i]};
        slots_at(m, p.begin[i], p.update[i].rule, ranges[i].slots);
    }
    RANK_OK(g->rank, g->ops->fused_update(g->endpoint, gradients, m->weights, count,
                                          ranges, STEPS));
}

/* Slots of other ranks' slices must not change. */
static void check_slots(const group *g, const model *m, const model *all,
                        size_t count) {
    int me = g->rank->rank, ranks = g->rank->ranks;
    size_t begin = slice(count, me, ranks), end = slice(count, me + 1, ranks);
    for (int k = 0; k < DLC_MAX_SLOTS; k++)
        for (size_t i = 0; i < count; i++)
            RANK_CHECK(g->rank, m->slots[k][i] ==
                                    (i >= begin && i < end ? all->slots[k][i] : 0.0f));
}

static model make_model(const group *g, size_t count) {
    model m = {.weights = dlc_alloc(count + 1, sizeof(float))};
    RANK_CHECK(g->rank, m.weights);
    for (int k = 0; k < DLC_MAX_SLOTS; k++) {
        m.slots[k] = dlc_alloc(count + 1, sizeof(float));
        RANK_CHECK(g->rank, m.slots[k]);
    }
    return m;
}

static void free_model(const model *m) {
    dlc_free(m->weights);
    for (int k = 0; k < DLC_MAX_SLOTS; k++)
        dlc_free(m->slots[k]);
}

static void try_update(group *g, float *gradients, float *weights, size_t count) {
    model mine = make_model(g, count), want = make_model(g, count), m = mine;
    m.weights = weights;
    for (size_t i = 0; i < count; i++)
        weights[i] = want.weights[i] = reference_value(77, 0, i);
    weights[-1] = weights[count] = 42.0f;
    for (uint64_t round = 0; round < ROUNDS; round++) {
        reference_fill(round, g->rank->rank, count, gradients);
        expect(g, round, count, &want);
        update(g, gradients, &m, count);
        RANK_CHECK(g->rank,
                   memcmp(weights, want.weights, count * sizeof *weights) == 0);
        check_slots(g, &m, &want, count);
    }
    RANK_CHECK(g->rank, weights[-1] == 42.0f && weights[count] == 42.0f);
    free_model(&mine);
    free_model(&want);
}

static void update_body(test_rank *rank, void *context) {
    static const size_t counts[] = {1, 5, 1023, 20001, ROOM - 2};
    dlc_memory one, two;
    group g;

    group_open(&g, rank, context);
    float *weights = register_floats(&g, ROOM, &one),
          *gradients = register_floats(&g, ROOM, &two);
    for (size_t i = 0;
         DLC_CAN(g.ops, fused_update) && i < sizeof counts / sizeof *counts; i++)
        try_update(&g, gradients + 1, weights + 1, counts[i]);
    registered_finish(&g, &one, &two);
}

TEST_SETTINGS(.timeout = 300);

TEST_RANGE(as_three_calls, 1, SANITIZED ? 4 : 6) {
    registered_run_all(_i, 0, update_body);
}

/* So large that weights bypass the caches, and that each range is updated in pieces. */
static void large_body(test_rank *rank, void *context) {
    enum { LARGE = SANITIZED ? 700001 : 6500001 };
    dlc_memory one, two;
    group g;

    group_open(&g, rank, context);
    float *weights = register_floats(&g, LARGE + 2, &one),
          *gradients = register_floats(&g, LARGE + 2, &two);
    if (DLC_CAN(g.ops, fused_update))
        try_update(&g, gradients + 1, weights + 1, LARGE);
    registered_finish(&g, &one, &two);
}

TEST(large) {
    registered_run_all(2, 0, large_body);
}

static void outside_body(test_rank *rank, void *context) {
    float gradients[8] = {0}, weights[8] = {0};
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    (void)register_floats(&g, ROOM, &memory);
    if (DLC_CAN(g.ops, fused_update))
        RANK_CHECK(rank, g.ops->fused_update(g.endpoint, gradients, weights, 8, NULL,
                                             0) == DLC_ERR_INTERNAL);
    registered_finish(&g, &memory, NULL);
}

TEST(outside_of_registered_memory) {
    registered_run_all(2, 0, outside_body);
}

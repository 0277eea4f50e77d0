/* Computes what a job of ssp must compute, without messages. */
#include "reference.h"

#include <string.h>

static size_t trained(const test_fixture *fixture) {
    return fixture->cut.count - FIXTURE_CONTROL_WORDS;
}

static void share_out(reference *one) {
    for (int32_t w = 0; w < FAKE_RANKS_MAX; w++)
        memcpy(one->own[w], one->slot, sizeof one->slot);
}

void reference_open(reference *one, const test_fixture *fixture) {
    memset(one, 0, sizeof *one);
    one->fixture = fixture;
    fixture_begin(fixture, one->weights, one->slot);
    share_out(one);
}

static void update(const reference *one, int64_t iteration, float grad_scale,
                   const float *gradient, float (*slot)[FIXTURE_COUNT_MAX],
                   float *weights) {
    const dlc_updater *updater = &one->fixture->updater;
    float *slots[DLC_MAX_SLOTS];
    dlc_rule_values values;
    for (int i = 0; i < DLC_MAX_SLOTS; i++)
        slots[i] = slot[i];
    updater->values(updater->context, iteration, &values);
    updater->update(updater->context, NULL, &values, 0, trained(one->fixture),
                    grad_scale, gradient, slots, weights);
}

/* ---- Synchronous ------------------------------------------------------------- */

/* Reduces pairwise over the workers of each node, then over the two nodes. */
static void reduce(const test_fixture *fixture, size_t n,
                   float (*from)[FIXTURE_COUNT_MAX], float *to) {
    static float sum[2][FIXTURE_COUNT_MAX];
    const float *source[2][FAKE_RANKS_MAX] = {{NULL}}, *node[2];
    int32_t count[2] = {0, 0}, nodes = 0;
    for (int32_t w = 0; w < fixture_workers(fixture); w++) {
        int32_t at = fixture->fake.node[w];
        source[at][count[at]++] = from[w];
    }
    for (int32_t i = 0; i < 2; i++)
        if (count[i]) {
            fixture_sum(n, source[i], count[i], sum[nodes]);
            node[nodes] = sum[nodes];
            nodes++;
        }
    fixture_sum(n, node, nodes, to);
}

void reference_iterate(reference *one, int64_t iteration) {
    static float from[FAKE_RANKS_MAX][FIXTURE_COUNT_MAX], total[FIXTURE_COUNT_MAX];
    const test_fixture *fixture = one->fixture;
    size_t n = trained(fixture);
    for (int32_t w = 0; w < fixture_workers(fixture); w++) {
        fixture_gradients(fixture, w, iteration, one->weights, from[w]);
        from[w][n] = fixture_loss(w, iteration);
    }
    reduce(fixture, n + 1, from, total);
    one->loss = total[n];
    update(one, iteration, 1, total, one->slot, one->weights);
    share_out(one);
}

/* ---- With staleness ---------------------------------------------------------- */

void reference_iterate_stale(reference *one, int64_t iteration) {
    static float gradient[FIXTURE_COUNT_MAX], next[FIXTURE_COUNT_MAX];
    static double step[FIXTURE_COUNT_MAX];
    const test_fixture *fixture = one->fixture;
    memset(step, 0, sizeof step);
    for (int32_t w = 0; w < fixture_workers(fixture); w++) {
        double share = fixture_share(fixture, w);
        if (share == 0)
            continue;
        fixture_gradients(fixture, w, iteration, one->weights, gradient);
        memcpy(next, one->weights, sizeof next);
        update(one, iteration, (float)(1 / share), gradient, one->own[w], next);
        for (size_t i = 0; i < trained(fixture); i++)
            step[i] += share * ((double)next[i] - (double)one->weights[i]);
    }
    for (size_t i = 0; i < trained(fixture); i++)
        one->weights[i] = (float)((double)one->weights[i] + step[i]);
}

void reference_synchronize_stale(reference *one) {
    for (int k = 0; k < DLC_MAX_SLOTS; k++)
        for (size_t i = 0; i < trained(one->fixture); i++) {
            double mean = 0;
            for (int32_t w = 0; w < fixture_workers(one->fixture); w++)
                mean += fixture_share(one->fixture, w) * (double)one->own[w][k][i];
            one->slot[k][i] = (float)mean;
        }
    share_out(one);
}

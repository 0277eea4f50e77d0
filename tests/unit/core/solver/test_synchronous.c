/* Synchronous training with sgd: weights after some iterations against a plain
 * reference, and the order in which buckets are reduced and updated. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "fixture.h"
#include "support/plugins.h"
#include "support/test.h"

static test_fixture r;

/* The expected update, one element at a time, in double. */
typedef struct reference {
    double rate, momentum, decay, l1, clip, clip_value;
    int nesterov, micro_batches;
    double weight[FIXTURE_ELEMENTS_MAX], velocity[FIXTURE_ELEMENTS_MAX];
} reference;

static reference ref;

static float gradient(size_t i, int32_t micro) {
    return 0.1f * sinf((float)i + 1) + 0.03f * (float)micro - 0.02f;
}

static float start_weight(size_t i) {
    return cosf((float)i);
}

/* The mean gradient of all ranks and micro-batches. */
static double whole_gradient(size_t i) {
    double sum = r.peer[i];
    for (int32_t m = 0; m < ref.micro_batches; m++)
        sum += (double)gradient(i, m);
    return sum / ref.micro_batches;
}

static double clip_factor(void) {
    double square = 0;
    if (ref.clip <= 0)
        return 1;
    for (size_t i = 0; i < r.count - r.control_words; i++)
        square += r.used[i] * whole_gradient(i) * whole_gradient(i);
    return sqrt(square) > ref.clip ? ref.clip / sqrt(square) : 1;
}

static void reference_step(void) {
    double factor = clip_factor();
    for (int32_t s = 0; s < r.segments; s++) {
        const dlc_segment *segment = &r.segment[s];
        for (size_t i = segment->offset; i < segment->offset + segment->count; i++) {
            double g = whole_gradient(i) * factor;
            if (ref.clip_value > 0)
                g = fmax(-ref.clip_value, fmin(ref.clip_value, g));
            g += ref.decay * segment->decay_mult * ref.weight[i] +
                 ref.l1 * segment->decay_mult *
                     ((ref.weight[i] > 0) - (ref.weight[i] < 0));
            double old = ref.velocity[i];
            double v = ref.momentum * old + ref.rate * segment->lr_mult * g;
            ref.velocity[i] = v;
            ref.weight[i] -= ref.nesterov ? (1 + ref.momentum) * v - ref.momentum * old
                                          : v;
        }
    }
}

/* Five segments with two gaps between them, and three control words. */
static void lay_out(int32_t borders, const size_t *border) {
    fixture_segment(&r, 0, 7, 1, 1);
    fixture_segment(&r, 5, 20, 1, 1);
    fixture_segment(&r, 0, 4, 2, 0);
    fixture_segment(&r, 12, 16, 1, 1);
    fixture_segment(&r, 0, 30, 1, 3);
    fixture_buckets(&r, 3, borders, border);
    for (size_t i = 0; i < r.count; i++) {
        r.weights[i] = r.used[i] ? start_weight(i) : 0;
        r.peer[i] = r.used[i] ? 0.05f * (float)(i % 5) : 0;
        ref.weight[i] = (double)r.weights[i];
        ref.velocity[i] = 0;
    }
}

static void compare(int iterations) {
    ck_assert_msg(fixture_create(&r) == DLC_OK, "%s", dlc_detail());
    for (int k = 0; k < iterations; k++) {
        ck_assert_int_eq(fixture_iterate(&r, k, gradient), DLC_OK);
        reference_step();
    }
    for (size_t i = 0; i < r.count; i++) {
        ck_assert_float_eq_tol(r.weights[i], (float)ref.weight[i], 2e-6f);
        ck_assert_float_eq_tol(r.slots[0][i], (float)ref.velocity[i], 2e-6f);
    }
    /* The control words are reduced with the last micro-batch, and not updated. */
    for (size_t i = r.count - r.control_words; i < r.count; i++) {
        ck_assert_float_eq(r.gradients[i],
                           gradient(i, r.solver.accumulation_steps - 1) + r.peer[i]);
        ck_assert_float_eq(r.weights[i], start_weight(i));
    }
}

static const size_t some_borders[] = {10, 30, 31, 70, 96};
#define SOME_BORDERS 5, some_borders

TEST_SETTINGS(.setup_once = plugins_open);

TEST(plain) {
    ref = (reference){.rate = 0.1, .micro_batches = 1};
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.momentum=0");
    ck_assert_int_eq(r.solver.slots, 1);
    ck_assert_uint_eq(r.solver.needs.slot_saved, 1);
    ck_assert_str_eq(r.solver.needs.slot_name[0], "momentum");
    ck_assert_int_eq(r.solver.accumulation_steps, 1);
    lay_out(SOME_BORDERS);
    compare(5);
    fixture_close(&r);
}

TEST(momentum_and_decay) {
    ref = (reference){.rate = 0.1, .momentum = 0.9, .decay = 0.01, .micro_batches = 1};
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.momentum=0.9",
                 "solver.weight_decay=0.01");
    lay_out(SOME_BORDERS);
    compare(10);
    fixture_close(&r);
}

TEST(nesterov) {
    ref = (reference){
        .rate = 0.1, .momentum = 0.9, .decay = 0.01, .nesterov = 1, .micro_batches = 1};
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.momentum=0.9",
                 "solver.weight_decay=0.01", "solver.nesterov=yes");
    lay_out(SOME_BORDERS);
    compare(10);
    fixture_close(&r);
}

TEST(accumulates) {
    ref = (reference){.rate = 0.1, .momentum = 0.9, .decay = 0.01, .micro_batches = 3};
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.momentum=0.9",
                 "solver.weight_decay=0.01", "solver.accumulation_steps=3");
    ck_assert_int_eq(r.solver.accumulation_steps, 3);
    ck_assert_int_eq(r.solver.slots, 1); /* the sum is the core's */
    lay_out(SOME_BORDERS);
    compare(4);
    fixture_close(&r);
}

TEST(clips) {
    ref = (reference){
        .rate = 0.1, .momentum = 0.9, .decay = 0.01, .clip = 0.3, .micro_batches = 2};
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.momentum=0.9",
                 "solver.weight_decay=0.01", "solver.clip_gradients=0.3",
                 "solver.accumulation_steps=2");
    lay_out(SOME_BORDERS);
    ck_assert_double_lt(clip_factor(), 0.9);
    compare(4);
    fixture_close(&r);
}

TEST(clips_values) {
    ref = (reference){.rate = 0.1,
                      .momentum = 0.9,
                      .decay = 0.01,
                      .l1 = 0.003,
                      .clip_value = 0.05,
                      .micro_batches = 2};
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.momentum=0.9",
                 "solver.weight_decay=0.01", "solver.l1_decay=0.003",
                 "solver.clip_value=0.05", "solver.accumulation_steps=2");
    lay_out(SOME_BORDERS);
    compare(4);
    fixture_close(&r);
}

/* The gradients are scaled; clipping sees them as they were. */
TEST(clips_scaled_gradients) {
    float first[FIXTURE_ELEMENTS_MAX];
    dlc_loss_scale scale = {.scale = 1, .inverse = 1};
    for (int scaled = 0; scaled < 2; scaled++) {
        FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.clip_gradients=0.3");
        lay_out(SOME_BORDERS);
        scale = (dlc_loss_scale){.scale = 1, .inverse = scaled ? 0.25f : 1};
        r.loss_scale = &scale;
        for (size_t i = 0; scaled && i < r.count; i++)
            r.peer[i] = 4 * r.peer[i] + 3 * (r.used[i] ? gradient(i, 0) : 0);
        ck_assert_int_eq(fixture_create(&r), DLC_OK);
        ck_assert_int_eq(fixture_iterate(&r, 0, gradient), DLC_OK);
        if (!scaled)
            memcpy(first, r.weights, sizeof first);
        for (size_t i = 0; i < r.count; i++)
            ck_assert_float_eq_tol(first[i], r.weights[i], 1e-6f);
        fixture_close(&r);
    }
}

/* Sharding, deferring and capturing need a solver that can work with a part of the
 * gradient, which clipping by norm can not. */
TEST(partial_updates) {
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.clip_value=1");
    ck_assert_int_eq(dlc_solver_needs_whole_tensors(&r.solver), 0);
    ck_assert_ptr_null(dlc_solver_whole_reason(&r.solver));
    fixture_close(&r);
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.clip_gradients=1");
    ck_assert_int_eq(dlc_solver_needs_whole_tensors(&r.solver), 1);
    ck_assert_str_eq(dlc_solver_whole_reason(&r.solver), "clip_gradients");
    fixture_close(&r);
}

TEST(leaves_short_gradients) {
    ref = (reference){.rate = 0.1, .clip = 100, .micro_batches = 1};
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.momentum=0",
                 "solver.clip_gradients=100");
    lay_out(SOME_BORDERS);
    ck_assert_double_eq(clip_factor(), 1);
    compare(2);
    fixture_close(&r);
}

/* The weights are bitwise identical however the arena is cut into buckets. */
TEST_EACH(buckets_change_nothing, 2) {
    static const size_t many[] = {1, 7, 27, 33, 64};
    static const struct {
        int32_t borders;
        const size_t *border;
    } cuts[] = {{0, NULL}, {SOME_BORDERS}, {5, many}, {2, many}};
    float first[FIXTURE_ELEMENTS_MAX];
    const char *clip = _i ? "solver.clip_gradients=0.2" : "solver.clip_gradients=0";
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.weight_decay=0.01",
                     "solver.accumulation_steps=2", clip);
        lay_out(cuts[c].borders, cuts[c].border);
        ck_assert_int_eq(fixture_create(&r), DLC_OK);
        for (int k = 0; k < 5; k++)
            ck_assert_int_eq(fixture_iterate(&r, k, gradient), DLC_OK);
        if (c == 0)
            memcpy(first, r.weights, sizeof first);
        ck_assert_mem_eq(first, r.weights, sizeof first);
        fixture_close(&r);
    }
}

/* Reduces as soon as a bucket is ready, updates as soon as it is reduced, joins
 * neighbours in one call. */
TEST(order) {
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.accumulation_steps=2");
    lay_out(SOME_BORDERS);
    ck_assert_int_eq(fixture_create(&r), DLC_OK);
    for (int32_t b = 0; b < 6; b++)
        ck_assert_int_eq(fixture_ready(&r, 0, 0, b), DLC_OK);
    ck_assert_str_eq(r.trace, ""); /* not the last micro-batch */
    ck_assert_int_eq(fixture_ready(&r, 0, 1, 0), DLC_OK);
    ck_assert_str_eq(r.trace, "s0 ");
    for (int32_t b = 1; b < 6; b++)
        ck_assert_int_eq(fixture_ready(&r, 0, 1, b), DLC_OK);
    ck_assert_int_eq(dlc_synchronous_ops.finish(r.model, 0), DLC_OK);
    /* The second segment, 12 to 31, is in buckets 1 to 3; the third and the fifth have
     * other multipliers than their neighbours; the control words are never updated. */
    ck_assert_str_eq(r.trace, "s0 s1 s2 s3 s4 s5 w0 u7 w1 u18 w2 u1 w3 u1 u4 u16 u6 w4 "
                              "u24 w5 ");
    fixture_close(&r);
}

TEST(clipping_waits_for_all) {
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.clip_gradients=1");
    lay_out(1, &some_borders[1]);
    ck_assert_int_eq(fixture_create(&r), DLC_OK);
    ck_assert_int_eq(fixture_iterate(&r, 0, gradient), DLC_OK);
    /* Neighbours with equal multipliers are one call, including the gap between them.
     */
    ck_assert_str_eq(r.trace, "s0 s1 w0 w1 u30 u2 u4 u16 u30 ");
    fixture_close(&r);
}

/* lr_mult = 0 freezes a parameter, weight decay included. */
TEST(frozen) {
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.weight_decay=0.5");
    fixture_segment(&r, 0, 8, 0, 1);
    fixture_segment(&r, 0, 8, 1, 0);
    fixture_buckets(&r, 0, 0, NULL);
    for (size_t i = 0; i < r.count; i++)
        r.weights[i] = start_weight(i);
    ck_assert_int_eq(fixture_create(&r), DLC_OK);
    ck_assert_int_eq(fixture_iterate(&r, 0, gradient), DLC_OK);
    ck_assert_str_eq(r.trace, "s0 w0 u8 ");
    for (size_t i = 0; i < 8; i++)
        ck_assert_float_eq(r.weights[i], start_weight(i));
    for (size_t i = 8; i < 16; i++)
        ck_assert_float_ne(r.weights[i], start_weight(i));
    fixture_close(&r);
}

static float overflowing(size_t i, int32_t micro) {
    (void)micro;
    return i == 3 ? INFINITY : 1;
}

/* An overflow changes no weight and no slot, and is no error: the scale was too large.
 */
TEST_EACH(skips_an_overflow, 2) {
    dlc_loss_scale scale = {.scale = 8, .inverse = 0.125f};
    const char *clip = _i ? "solver.clip_gradients=0.3" : "solver.clip_gradients=0";
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", clip);
    lay_out(SOME_BORDERS);
    r.loss_scale = &scale;
    ck_assert_int_eq(fixture_create(&r), DLC_OK);
    ck_assert_int_eq(fixture_iterate(&r, 0, overflowing), DLC_OK);
    for (size_t i = 0; i < r.count; i++) {
        ck_assert_float_eq(r.weights[i], r.used[i] ? start_weight(i) : 0);
        ck_assert_float_eq(r.slots[0][i], 0);
    }
    ck_assert_float_lt(scale.scale, 8);
    ck_assert_int_eq((int)scale.skipped, 1);
    fixture_close(&r);
}

static float not_a_number(size_t i, int32_t micro) {
    (void)micro;
    return i == 3 ? NAN : 1;
}

TEST(clipping_reports_divergence) {
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.clip_gradients=1");
    lay_out(SOME_BORDERS);
    ck_assert_int_eq(fixture_create(&r), DLC_OK);
    ck_assert_int_eq(fixture_iterate(&r, 12, not_a_number), DLC_ERR_DIVERGED);
    ck_assert_ptr_nonnull(
        strstr(dlc_detail(), "the gradient is not finite at iteration 12"));
    ck_assert_float_eq(r.weights[0], start_weight(0)); /* weights are unchanged */
    fixture_close(&r);
}

static int32_t broken_bucket;

static dlc_status broken_exchange(void *context, int32_t bucket) {
    (void)context;
    return bucket == broken_bucket ? DLC_ERR_PEER : DLC_OK;
}

/* The status of any failed exchange call is returned. */
TEST_EACH(passes_errors_on, 2) {
    for (broken_bucket = 0; broken_bucket < 6; broken_bucket++) {
        FIXTURE_OPEN(&r, "solver.learning_rate=0.1");
        lay_out(SOME_BORDERS);
        if (_i)
            r.exchange.start = broken_exchange;
        else
            r.exchange.wait = broken_exchange;
        ck_assert_int_eq(fixture_create(&r), DLC_OK);
        ck_assert_int_eq(fixture_iterate(&r, 0, gradient), DLC_ERR_PEER);
        fixture_close(&r);
    }
}

TEST(create_survives_lack_of_memory) {
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1");
    lay_out(SOME_BORDERS);
    size_t n = 1;
    for (;; n++) {
        dlc_memory_fail_at(n);
        dlc_status rc = fixture_create(&r);
        dlc_memory_fail_at(0);
        if (rc == DLC_OK)
            break;
        ck_assert_int_eq(rc, DLC_ERR_NOMEM);
        ck_assert_ptr_null(r.model);
    }
    ck_assert_uint_ge(n, 3);
    fixture_close(&r);
}

/* Arguments that break the core's promises are refused before anything is written. */
TEST(checks_the_core) {
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1");
    lay_out(SOME_BORDERS);
    r.segment[1].offset = 5; /* overlaps the first */
    ck_assert_int_eq(fixture_create(&r), DLC_ERR_INTERNAL);
    r.segment[1].offset = 7;
    r.segment[4].count += 1; /* overlaps the control words */
    ck_assert_int_eq(fixture_create(&r), DLC_ERR_INTERNAL);
    r.segment[4].count -= 1;
    r.bucket_begin[r.exchange.buckets] -= 4; /* they end before the control words */
    ck_assert_int_eq(fixture_create(&r), DLC_ERR_INTERNAL);
    r.bucket_begin[r.exchange.buckets] += 4;
    ck_assert_int_eq(fixture_create(&r), DLC_OK);
    fixture_close(&r);
}

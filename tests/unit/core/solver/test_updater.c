/* The updater that consistency models get, slots, and what is checked about a solver's
 * answers. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "fixture.h"
#include "solver/ema.h"
#include "solver/slots.h"
#include "support/plugins.h"
#include "support/test.h"

static test_fixture r;

static float gradient(size_t i, int32_t micro) {
    return 0.1f * sinf((float)i + 1) + 0.03f * (float)micro;
}

static void lay_out(void) {
    fixture_segment(&r, 0, 7, 1, 1);
    fixture_segment(&r, 5, 20, 1, 1);
    fixture_segment(&r, 0, 4, 2, 0);
    fixture_segment(&r, 0, 3, 0, 1);
    fixture_segment(&r, 12, 16, 1, 1);
    fixture_buckets(&r, 3, 0, NULL);
    for (size_t i = 0; i < r.count; i++)
        r.weights[i] = r.used[i] ? cosf((float)i) : 0;
}

/* ---- The updater ----------------------------------------------------------------- */

/* Updates elements [begin, end) with copies of the arenas, as a model would. */
static void update_part(const dlc_updater *updater, const dlc_rule_values *values,
                        size_t begin, size_t end, float scale) {
    float weight[FIXTURE_ELEMENTS_MAX], slot[FIXTURE_ELEMENTS_MAX];
    float *slots[] = {slot};
    size_t bytes = (end - begin) * sizeof(float);
    memcpy(weight, r.weights + begin, bytes);
    memcpy(slot, r.slots[0] + begin, bytes);
    ck_assert_int_eq(updater->update(updater->context, NULL, values, begin, end - begin,
                                     scale, r.gradients + begin, slots, weight),
                     DLC_OK);
    memcpy(r.weights + begin, weight, bytes);
    memcpy(r.slots[0] + begin, slot, bytes);
}

static void open_scaled(dlc_loss_scale *scale) {
    FIXTURE_OPEN(&r, "solver.learning_rate=0.1", "solver.momentum=0.9",
                 "solver.weight_decay=0.01", "solver.accumulation_steps=2");
    r.loss_scale = scale;
    lay_out();
    ck_assert_int_eq(fixture_create(&r), DLC_OK);
}

static void open_updater(void) {
    open_scaled(NULL);
}

TEST_SETTINGS(.setup_once = plugins_open);

/* Parts of any size give bitwise what synchronous training gives. */
TEST_EACH(parts_are_the_whole, 5) {
    static const size_t lengths[] = {FIXTURE_ELEMENTS_MAX, 1, 3, 10, 31};
    float weights[FIXTURE_ELEMENTS_MAX], slot[FIXTURE_ELEMENTS_MAX];
    size_t length = lengths[_i];
    dlc_rule_values values;
    open_updater();
    ck_assert_int_eq(fixture_iterate(&r, 4, gradient), DLC_OK);
    memcpy(weights, r.weights, sizeof weights);
    memcpy(slot, r.slots[0], sizeof slot);
    fixture_close(&r);

    open_updater();
    const dlc_updater *updater = dlc_solver_updater_table(r.updater);
    ck_assert_int_eq(updater->slots, 1);
    ck_assert_int_eq(updater->values(updater->context, 4, &values), DLC_OK);
    for (size_t i = 0; i < r.count; i++) /* the sum of two micro-batches */
        r.gradients[i] = r.used[i] ? gradient(i, 1) + gradient(i, 0) : 0;
    for (size_t at = 0; at < r.count; at += length)
        update_part(updater, &values, at, at + length < r.count ? at + length : r.count,
                    1);
    ck_assert_mem_eq(weights, r.weights, r.count * sizeof(float));
    ck_assert_mem_eq(slot, r.slots[0], r.count * sizeof(float));
    fixture_close(&r);
}

TEST(scales_gradients) {
    float first[FIXTURE_ELEMENTS_MAX];
    dlc_rule_values values;
    for (int scaled = 0; scaled < 2; scaled++) {
        open_updater();
        const dlc_updater *updater = dlc_solver_updater_table(r.updater);
        ck_assert_int_eq(updater->values(updater->context, 0, &values), DLC_OK);
        for (size_t i = 0; i < r.count; i++)
            r.gradients[i] = gradient(i, 0) / (scaled ? 4 : 1);
        update_part(updater, &values, 0, r.count, scaled ? 4 : 1);
        if (!scaled)
            memcpy(first, r.weights, sizeof first);
        ck_assert_mem_eq(first, r.weights, sizeof first); /* a power of two is exact */
        fixture_close(&r);
    }
}

/* As a worker does that has a loss scale of its own: measures, then updates all. */
static void update_scaled(dlc_loss_scale *scale, float factor) {
    float *slots[] = {r.slots[0]};
    dlc_rule_values values;
    open_scaled(scale);
    const dlc_updater *updater = dlc_solver_updater_table(r.updater);
    ck_assert_int_eq(updater->needs_norms, scale != NULL);
    ck_assert_int_eq(updater->values(updater->context, 0, &values), DLC_OK);
    for (size_t i = 0; i < r.count; i++)
        r.gradients[i] = gradient(i, 0) * factor;
    if (scale)
        ck_assert_int_eq(updater->measure(updater->context, NULL, &values, 1,
                                          r.gradients, slots, r.weights),
                         DLC_OK);
    update_part(updater, &values, 0, r.count, 1);
}

TEST(takes_the_loss_scale) {
    float plain[FIXTURE_ELEMENTS_MAX], before[FIXTURE_ELEMENTS_MAX];
    dlc_loss_scale scale = {.scale = 1024, .inverse = 1.0f / 1024};
    update_scaled(NULL, 1);
    memcpy(plain, r.weights, sizeof plain);
    fixture_close(&r);

    update_scaled(&scale, 1024);
    ck_assert_mem_eq(plain, r.weights, r.count * sizeof(float));
    ck_assert_int_eq(scale.good_iterations, 1);
    fixture_close(&r);

    open_updater();
    memcpy(before, r.weights, sizeof before);
    fixture_close(&r);
    update_scaled(&scale, INFINITY);
    ck_assert_mem_eq(before, r.weights, r.count * sizeof(float));
    ck_assert(scale.scale == 512);
    ck_assert_int_eq(scale.skipped, 1);
    fixture_close(&r);
}

/* ---- Made-up solvers ------------------------------------------------------------- */

/* What the last iteration gave the rule, one entry for each tensor. */
static float seen_weight[8], seen_norm[8], seen_decay[8];
static int seen;

static void run_plain(const dlc_rule_step *step, size_t n, const float *gradients,
                      float *const *slots, float *weight) {
    seen_weight[seen % 8] = step->weight_norm;
    seen_norm[seen % 8] = step->norm;
    seen_decay[seen++ % 8] = step->decay_mult;
    for (size_t i = 0; i < n; i++) {
        float g = dlc_rule_gradient(step, gradients[i], weight[i]);
        slots[1][i] = g;
        weight[i] -= 0.5f * g;
    }
}

static void run_direction(const dlc_rule_step *step, size_t n, const float *gradients,
                          float *const *slots, float *weight) {
    (void)weight;
    for (size_t i = 0; i < n; i++)
        slots[0][i] = 2 * step->grad_scale * gradients[i];
}

static const dlc_rule plain = {.size = sizeof plain, .slots = 2, .run = run_plain};
static const dlc_rule direction = {
    .size = sizeof direction, .slots = 2, .run = run_direction};
static const dlc_rule no_code = {.size = sizeof no_code, .slots = 2};
static const dlc_rule many_slots = {
    .size = sizeof many_slots, .slots = DLC_MAX_SLOTS + 1, .run = run_plain};
static const dlc_rule one_slot = {
    .size = sizeof one_slot, .slots = 1, .run = run_direction};

static dlc_solver_needs answer;

static dlc_status give_answer(const dlc_settings *settings, dlc_solver_needs *needs) {
    (void)settings;
    *needs = answer;
    return DLC_OK;
}

static const dlc_solver_ops made_up_ops = {.size = sizeof made_up_ops,
                                           .needs = give_answer};
static dlc_feature made_up = {.size = sizeof made_up,
                              .kind = DLC_KIND_SOLVER,
                              .name = "made-up",
                              .ops = &made_up_ops};

static dlc_solver_needs sound(void) {
    return (dlc_solver_needs){.size = sizeof answer,
                              .rule = &plain,
                              .slot_name = {"first", "second"},
                              .slot_initial = {0.25f, 0},
                              .slot_saved = 1};
}

static void refuse(const char *why, dlc_status expected) {
    dlc_status made = DLC_OK;
    fixture_open(&r, &made_up, NULL, 0, &made);
    ck_assert_int_eq(made, expected);
    ck_assert_msg(strstr(dlc_detail(), why) != NULL, "%s", dlc_detail());
    fixture_close(&r);
}

TEST(refuses_bad_answers) {
    answer = sound();
    answer.rule = NULL;
    refuse("has no rule", DLC_ERR_PLUGIN);
    answer.rule = &no_code;
    refuse("has no rule", DLC_ERR_PLUGIN);
    answer.rule = &many_slots;
    refuse("has no rule", DLC_ERR_PLUGIN);
    answer = sound();
    answer.slot_name[1] = NULL;
    refuse("does not name all of its slots", DLC_ERR_PLUGIN);
    answer.slot_name[1] = "a/b";
    refuse("does not name all of its slots", DLC_ERR_PLUGIN);
    answer.slot_name[1] = "first";
    refuse("gives two slots the same name", DLC_ERR_PLUGIN);
    answer = sound();
    answer.slot_initial[1] = NAN;
    refuse("not finite", DLC_ERR_PLUGIN);
    answer = sound();
    answer.norms = 99;
    refuse("norms that this version does not know", DLC_ERR_PLUGIN);
    answer.norms = DLC_NORMS_SLOT;
    answer.norm_slot = 2;
    refuse("the norm of a slot that it does not have", DLC_ERR_PLUGIN);
    answer.norm_slot = 0;
    refuse("the norm of a slot that begins with more than 0", DLC_ERR_PLUGIN);
    answer.slot_initial[0] = 0;
    answer.direction = &one_slot;
    refuse("other slots than its rule", DLC_ERR_PLUGIN);
    answer.norms = DLC_NORMS_GRADIENT;
    answer.direction = &direction;
    refuse("takes no norm of it", DLC_ERR_PLUGIN);
}

TEST(refuses_clip_value_with_norms) {
    const char *const sets[] = {"solver.clip_value=1"};
    dlc_status made = DLC_OK;
    answer = sound();
    answer.norms = DLC_NORMS_GRADIENT;
    fixture_open(&r, &made_up, sets, 1, &made);
    ck_assert_int_eq(made, DLC_ERR_CONFIG);
    ck_assert_ptr_nonnull(strstr(dlc_detail(), "clip_value doesn't work with"));
    fixture_close(&r);
}

/* ---- Norms and slots ------------------------------------------------------------- */

static double norm_of(const float *x, size_t begin, size_t count) {
    double sum = 0;
    for (size_t i = begin; i < begin + count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum);
}

/* The norms of each tensor, whole and in order, whatever the buckets; `_i`: from the
 * gradient, or from a slot after the direction. */
TEST_EACH(takes_norms_of_tensors, 2) {
    static const size_t borders[] = {10, 300};
    float weights[FIXTURE_ELEMENTS_MAX];
    answer = sound();
    answer.norms = _i ? DLC_NORMS_SLOT : DLC_NORMS_GRADIENT;
    answer.direction = _i ? &direction : NULL;
    answer.slot_initial[0] = 0;
    FIXTURE_OPEN_WITH(&r, &made_up, "solver.learning_rate=0.1",
                      "solver.accumulation_steps=2");
    fixture_segment(&r, 0, 7, 1, 1);
    fixture_segment(&r, 249, 300, 1, 1);
    fixture_segment(&r, 212, 4, 0, 1); /* never updated: no norms of it */
    fixture_segment(&r, 252, 16, 1, 3);
    fixture_buckets(&r, 3, 2, borders);
    for (size_t i = 0; i < r.count; i++)
        weights[i] = r.weights[i] = r.used[i] ? cosf((float)i) : 0;
    ck_assert_int_eq(fixture_create(&r), DLC_OK);
    seen = 0;
    ck_assert_int_eq(fixture_iterate(&r, 0, gradient), DLC_OK);
    ck_assert_int_eq(seen, 3);
    for (int s = 0, t = 0; s < 4; s++) {
        const dlc_segment *segment = &r.segment[s];
        if (segment->lr_mult == 0)
            continue;
        double g = norm_of(r.gradients, segment->offset, segment->count) / 2;
        double w = norm_of(weights, segment->offset, segment->count);
        ck_assert_double_eq_tol((double)seen_weight[t], w, 1e-6 * w);
        ck_assert_double_eq_tol((double)seen_norm[t], _i ? 2 * g : g, 1e-6 * g);
        ck_assert_double_eq((double)seen_decay[t], segment->decay_mult);
        for (size_t i = segment->offset; i < segment->offset + segment->count; i++)
            ck_assert_float_eq_tol(r.weights[i],
                                   weights[i] - 0.5f * 0.5f * r.gradients[i], 1e-6f);
        t++;
    }
    ck_assert_int_eq(dlc_solver_needs_whole_tensors(&r.solver), 1);
    fixture_close(&r);
}

/* Slots begin with their initial values, however large they are. */
TEST(slots_begin_as_they_should) {
    const size_t count = (1 << 16) + 37;
    dlc_memory slot[DLC_MAX_STATES] = {{0}};
    answer = sound();
    FIXTURE_OPEN_WITH(&r, &made_up, "solver.learning_rate=0.1");
    ck_assert_int_eq(dlc_slots_open(&r.solver, &r.device_ops, r.device, count, slot),
                     DLC_OK);
    const float *first = slot[0].base, *second = slot[1].base;
    size_t right = 0;
    while (right < count && first[right] == 0.25f && second[right] == 0)
        right++;
    ck_assert_uint_eq(right, count);
    ck_assert_ptr_null(slot[2].base);
    ck_assert_int_eq(dlc_solver_saves(&r.solver, 0), 1);
    ck_assert_int_eq(dlc_solver_saves(&r.solver, 1), 0);
    dlc_slots_close(&r.device_ops, r.device, slot);
    fixture_close(&r);
}

/* Elements of a range only, and what is left of a test with the average. */
TEST(averages_weights) {
    enum { COUNT = 5 };
    float weights[COUNT] = {1, 2, 3, 4, 5}, average[COUNT], gradients[COUNT];
    answer = sound();
    FIXTURE_OPEN_WITH(&r, &made_up, "solver.learning_rate=0.1", "solver.ema=0.75");
    ck_assert_int_eq(dlc_solver_states(&r.solver), r.solver.slots + 1);
    ck_assert_str_eq(dlc_solver_state_name(&r.solver, r.solver.slots), "ema");
    ck_assert_int_eq(dlc_solver_saves(&r.solver, r.solver.slots), 1);
    dlc_ema ema = {.ops = &r.device_ops,
                   .device = r.device,
                   .decay = r.solver.ema,
                   .count = COUNT,
                   .weights = weights,
                   .average = average,
                   .gradients = gradients};
    ck_assert_int_eq(dlc_ema_begin(&ema), DLC_OK);
    for (int i = 0; i < COUNT; i++)
        weights[i] += 4;
    ck_assert_int_eq(dlc_ema_update(&ema, 1, 3), DLC_OK);
    ck_assert_int_eq(dlc_ema_update(&ema, 4, SIZE_MAX), DLC_OK);
    ck_assert_int_eq(dlc_ema_update(&ema, COUNT, SIZE_MAX), DLC_OK);
    const float expected[COUNT] = {1, 3, 4, 4, 6};
    ck_assert_int_eq(dlc_ema_put(&ema), DLC_OK);
    ck_assert_mem_eq(average, expected, sizeof expected);
    ck_assert_mem_eq(weights, expected, sizeof expected);
    ck_assert_int_eq(dlc_ema_put_back(&ema), DLC_OK);
    for (int i = 0; i < COUNT; i++) {
        ck_assert_float_eq(weights[i], (float)i + 5);
        ck_assert_float_eq(average[i], expected[i]);
        ck_assert_float_eq(gradients[i], 0);
    }
    fixture_close(&r);
}

/* The checks of updates: a device runs the rules of this file, which have each number
 * of slots, and gives what plain C gives. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "device_checks.h"

/* ---- Rules ------------------------------------------------------------------ */

/* Every slot becomes a running mean; their sum is the step. */
DLC_RULE_INLINE void any_slots(const dlc_rule_step *step, float gradient, int slots,
                               float *slot, float *weight) {
    float sum = gradient;
    for (int k = 0; k < slots; k++) {
        slot[k] = step->own[k] * slot[k] + (1 - step->own[k]) * gradient;
        sum += slot[k];
    }
    *weight -= step->learning_rate *
               ((step->own[10] + step->weight_norm * step->norm) * sum +
                step->own[11] * step->decay_mult * *weight);
}

DLC_RULE(no_slots, 0) {
    any_slots(step, gradient, 0, slot, weight);
}

DLC_RULE(one_slot, 1) {
    any_slots(step, gradient, 1, slot, weight);
}

DLC_RULE(two_slots, 2) {
    any_slots(step, gradient, 2, slot, weight);
}

DLC_RULE(most_slots, DLC_MAX_SLOTS) {
    any_slots(step, gradient, DLC_MAX_SLOTS, slot, weight);
}

static const dlc_rule *const rules[] = {&no_slots, &one_slot, &two_slots, &most_slots};
enum { RULES = sizeof rules / sizeof *rules };
static const double tolerance = 1e-5;

/* Every hyperparameter matters. */
static dlc_update update_of(const dlc_rule *rule) {
    return (dlc_update){.size = sizeof(dlc_update),
                        .rule = rule,
                        .lr_mult = 2,
                        .decay_mult = 0.5f,
                        .grad_scale = 0.25f,
                        .values = {.learning_rate = 0.05f,
                                   .weight_decay = 0.04f,
                                   .l1_decay = 0.03f,
                                   .clip_value = 0.2f,
                                   .own = {[0] = 0.9f,
                                           [1] = 0.8f,
                                           [2] = 0.99f,
                                           [3] = 0.5f,
                                           [10] = 0.75f,
                                           [11] = 0.1f}}};
}

/* ---- What they compute ------------------------------------------------------ */

static double clipped(double x, double most) {
    return x > most ? most : x < -most ? -most : x;
}

/* Updates host arrays. `scale` multiplies the gradients. */
static void expect(const dlc_update *u, double scale, size_t n, const float *gradient,
                   float *const *slots, float *weight) {
    const dlc_rule_values *v = &u->values;
    for (size_t i = 0; i < n; i++) {
        double w = (double)weight[i];
        double g = clipped(scale * (double)u->grad_scale * (double)gradient[i],
                           (double)v->clip_value);
        g += (double)(v->weight_decay * u->decay_mult) * w;
        g += (double)(v->l1_decay * u->decay_mult) * (w > 0 ? 1 : w < 0 ? -1 : 0);
        double sum = g;
        for (int32_t k = 0; k < u->rule->slots; k++) {
            double kept = (double)v->own[k];
            slots[k][i] = (float)(kept * (double)slots[k][i] + (1 - kept) * g);
            sum += (double)slots[k][i];
        }
        w -= (double)(v->learning_rate * u->lr_mult) *
             ((double)v->own[10] * sum + (double)(v->own[11] * u->decay_mult) * w);
        weight[i] = (float)w;
    }
}

/* ---- One update ------------------------------------------------------------- */

/* Arrays on the host and on the device, of n + 1 elements: an update that does not
 * begin at the first one is not aligned. */
typedef struct arrays {
    size_t n;
    float *gradient, *slots[DLC_MAX_SLOTS], *weight;
    float *device_gradient, *device_slots[DLC_MAX_SLOTS], *device_weight;
} arrays;

static arrays make_arrays(const device_check *b, size_t n) {
    arrays a = {.n = n};
    a.device_gradient = device_check_upload(b, n + 1, 1, &a.gradient);
    a.device_weight = device_check_upload(b, n + 1, 2, &a.weight);
    for (int k = 0; k < DLC_MAX_SLOTS; k++)
        a.device_slots[k] = device_check_upload(b, n + 1, 3 + (uint64_t)k, &a.slots[k]);
    return a;
}

/* Slots that the rule does not have are NULL. */
static void slots_at(float *const *slots, const dlc_rule *rule, size_t at,
                     float **there) {
    for (int32_t k = 0; k < DLC_MAX_SLOTS; k++)
        there[k] = k < rule->slots ? slots[k] + at : NULL;
}

static void compare_arrays(const device_check *b, const char *call, const arrays *a) {
    device_check_compare(b, call, a->device_gradient, a->gradient, a->n + 1, 0);
    device_check_compare(b, call, a->device_weight, a->weight, a->n + 1, tolerance);
    for (int k = 0; k < DLC_MAX_SLOTS; k++)
        device_check_compare(b, call, a->device_slots[k], a->slots[k], a->n + 1,
                             tolerance);
}

/* The rules of this file run on CPUs. */
static void must_run(const device_check *b, dlc_status status, const char *call) {
    if (status == DLC_ERR_UNSUPPORTED && !(b->run->feature->caps & DLC_DEVICE_HOST))
        suite_skip(b->run, "it runs other code than that of CPUs");
    suite_must(b->run, status, call);
}

static void run_update(const device_check *b, const dlc_update *update, const arrays *a,
                       size_t at) {
    float *slots[DLC_MAX_SLOTS];
    slots_at(a->device_slots, update->rule, at, slots);
    must_run(b,
             b->ops->update(b->device, b->queue, a->n, update, a->device_gradient + at,
                            slots, a->device_weight + at),
             "update");
}

static void expect_update(const dlc_update *update, double scale, const arrays *a,
                          size_t at) {
    float *slots[DLC_MAX_SLOTS];
    slots_at(a->slots, update->rule, at, slots);
    expect(update, scale, a->n, a->gradient + at, slots, a->weight + at);
}

/* ---- Checks ----------------------------------------------------------------- */

static void updates_by_the_rule(suite_run *run) {
    static const size_t sizes[] = {1, 2, 7, 16, 63, 1000, 4099, 100003};
    device_check b;
    device_check_open(run, &b);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (size_t r = 0; r < RULES; r++) {
            dlc_update update = update_of(rules[r]);
            size_t at = (s + r) % 2;
            arrays a = make_arrays(&b, sizes[s]);
            run_update(&b, &update, &a, at);
            expect_update(&update, 1, &a, at);
            compare_arrays(&b, "update", &a);
        }
}

static void *upload_bytes(const device_check *b, const void *from, size_t bytes) {
    void *there = device_check_take(b, bytes);
    device_check_copy(b, there, from, bytes);
    return there;
}

/* Pointers to device memory are read when the work is done. */
static void updates_by_values_in_memory(suite_run *run) {
    enum { COUNT = 1003 };
    dlc_loss_scale state = {.scale = 8, .inverse = 0.125f};
    device_check b;
    device_check_open(run, &b);
    for (size_t r = 0; r < RULES; r++)
        for (state.overflow = 0; state.overflow < 2; state.overflow++) {
            dlc_update wanted = update_of(rules[r]), update = wanted;
            update.values = (dlc_rule_values){.learning_rate = NAN};
            update.values_at = upload_bytes(&b, &wanted.values, sizeof wanted.values);
            update.loss_scale = upload_bytes(&b, &state, sizeof state);
            arrays a = make_arrays(&b, COUNT);
            run_update(&b, &update, &a, 0);
            if (!state.overflow)
                expect_update(&wanted, (double)state.inverse, &a, 0);
            compare_arrays(&b,
                           state.overflow ? "update with overflow"
                                          : "update by values in memory",
                           &a);
        }
}

/* Squared norms in device memory: of all gradients, which are clipped, and of a tensor.
 */
static void updates_by_norms(suite_run *run) {
    enum { COUNT = 1003 };
    static const double squares[] = {400, 0.25, 0.0625};
    device_check b;
    device_check_open(run, &b);
    for (size_t r = 0; r < RULES; r++)
        for (int of_gradient = 0; of_gradient < 2; of_gradient++) {
            const double *there = upload_bytes(&b, squares, sizeof squares);
            dlc_update update = update_of(rules[r]), wanted = update;
            update.gradient_square = there;
            update.clip_norm = 2.5f; /* of 20 * 0.25: gradients are halved */
            update.weight_square = there + 1;
            update.norm_square = there + 2;
            update.norm_of_gradient = of_gradient;
            arrays a = make_arrays(&b, COUNT);
            run_update(&b, &update, &a, 0);
            wanted.values.own[10] += 0.5f * 0.25f * (of_gradient ? 0.125f : 1.0f);
            expect_update(&wanted, 0.5, &a, 0);
            compare_arrays(&b, "update by norms", &a);
        }
}

/* The sum of three gradients, two copies of the weights. */
static void updates_several_copies(suite_run *run) {
    enum { COUNT = 70003, AT = 1 };
    device_check b;
    device_check_open(run, &b);
    if (!DLC_CAN(b.ops, update_to))
        suite_skip(run, "it has no update_to");
    for (size_t r = 0; r < RULES; r++) {
        dlc_update update = update_of(rules[r]);
        arrays a = make_arrays(&b, COUNT);
        float *second, *third, *copy, *slots[DLC_MAX_SLOTS];
        const float *gradients[] = {
            a.device_gradient + AT,
            device_check_upload(&b, COUNT + 1, 20, &second) + AT,
            device_check_upload(&b, COUNT + 1, 21, &third) + AT};
        float *device_copy = device_check_upload(&b, COUNT + 1, 22, &copy);
        float *weights[] = {a.device_weight + AT, device_copy + AT};
        slots_at(a.device_slots, update.rule, AT, slots);
        must_run(&b,
                 b.ops->update_to(b.device, b.queue, COUNT, &update, gradients, 3,
                                  slots, weights, 2),
                 "update_to");
        device_check_compare(&b, "update_to", a.device_gradient, a.gradient, COUNT + 1,
                             0);
        for (size_t i = AT; i < COUNT + AT; i++)
            second[i] = (a.gradient[i] + second[i]) + third[i];
        slots_at(a.slots, update.rule, AT, slots);
        expect(&update, 1, COUNT, second + AT, slots, a.weight + AT);
        memcpy(copy + AT, a.weight + AT, COUNT * sizeof *copy);
        compare_arrays(&b, "update_to", &a);
        device_check_compare(&b, "update_to (second copy)", device_copy, copy,
                             COUNT + 1, tolerance);
    }
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_DEVICE, 0, SUITE_LOADED, 60, run }

const suite_check suite_device_update_checks[] = {
    CHECK("device.update", "update runs a rule with any number of slots",
          updates_by_the_rule),
    CHECK("device.update_values", "update reads values and loss scale when it runs",
          updates_by_values_in_memory),
    CHECK("device.update_norms", "update clips by a norm, and passes norms to the rule",
          updates_by_norms),
    CHECK("device.update_to", "update_to is a sum, an update, and copies of it",
          updates_several_copies),
    {.name = NULL},
};

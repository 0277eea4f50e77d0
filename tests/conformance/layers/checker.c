/* Compares a layer with its reference, with finite differences, and with itself. */
#include "checker.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "config/config.h"
#include "reference.h"
#include "support/test.h"
#include "target.h"

enum { SAMPLES = 48 }; /* gradients checked per tensor */

/* The place of number `i` in a random order of `count` numbers, without a table. */
static uint64_t shuffled(uint64_t i, uint64_t count, uint64_t salt) {
    const int bits = 64 - __builtin_clzll(count - 1);
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    do
        for (int round = 0; round < 3; round++) {
            i = (i + salt) * 0x9e3779b97f4a7c15 & mask;
            i ^= i >> (bits / 2 + 1);
        }
    while (i >= count);
    return i;
}

static void shuffle(float *data, int64_t count, uint64_t salt) {
    dlc_random random = dlc_random_make(salt, 7);
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = (int64_t)dlc_random_below(&random, (uint64_t)i + 1);
        float swap = data[i];
        data[i] = data[j];
        data[j] = swap;
    }
}

/* A random permutation of evenly spaced numbers in -reach .. reach, different for each
 * salt. A large one is computed: exchanging values all over it takes far longer. */
void fill_values(float *data, int64_t count, uint64_t salt, double reach) {
    enum { SMALL = 4096 };
    for (int64_t i = 0; i < count; i++) {
        uint64_t place = count > SMALL ? shuffled((uint64_t)i, (uint64_t)count, salt)
                                       : (uint64_t)i;
        double at = ((double)place + 0.4 + 0.017 * (double)(salt % 12)) / (double)count;
        data[i] = (float)(reach * (2 * at - 1));
    }
    if (count <= SMALL)
        shuffle(data, count, salt);
    /* No value is zero, where relu is not differentiable. */
    for (int64_t i = 0; i < count; i++)
        if (fabsf(data[i]) < 1e-3f)
            data[i] += 2e-3f;
}

void fill_labels(void *data, int64_t count, int64_t classes) {
    int32_t *labels = data;
    dlc_random random = dlc_random_make(3, 3);
    for (int64_t i = 0; i < count; i++)
        labels[i] = (int32_t)dlc_random_below(&random, (uint64_t)classes);
}

double largest_difference(const float *a, const float *b, int64_t count) {
    double most = 0;
    for (int64_t i = 0; i < count; i++) {
        double far = fabs((double)a[i] - (double)b[i]);
        if (isnan(far) || far > most) /* nothing is larger than NaN, so it stays */
            most = far;
    }
    return most;
}

/* ---- Comparison with itself ----------------------------------------------------- */

void fill_fixture(fixture *r) {
    for (int32_t i = 0; i < r->memory.inputs; i++)
        fill_values(r->in_data[i], fixture_in_count(r, i), 1 + (uint64_t)i, 2);
    for (int32_t p = 0; p < r->memory.params; p++)
        fill_values(r->param_data[p], fixture_param_count(r, p), 5 + (uint64_t)p, 1);
    fill_values(r->out_diff, fixture_out_count(r), 9, 1);
}

static void open_fixture(fixture *r, const layer_spec *spec) {
    ck_assert_msg(fixture_open(r, spec) == DLC_OK, "%s", dlc_detail());
}

void run_fixture(fixture *r, const layer_spec *spec) {
    open_fixture(r, spec);
    fill_fixture(r);
    ck_assert_int_eq(fixture_forward(r), DLC_OK);
    if (r->spec.phase == DLC_PHASE_TRAIN)
        ck_assert_int_eq(fixture_backward(r), DLC_OK);
}

void check_any_number_of_threads(layer_spec spec) {
    static const int32_t threads[] = {1, 2, 3, 7};
    fixture first, other;
    spec.threads = threads[0];
    run_fixture(&first, &spec);
    for (int k = 1; k < COUNT(threads); k++) {
        spec.threads = threads[k];
        run_fixture(&other, &spec);
        check_same_results(&first, &other);
        fixture_close(&other);
    }
    fixture_close(&first);
}

int describes(const layer_spec *spec, const char *words) {
    fixture r;
    char text[128] = "";
    if (fixture_open(&r, spec) == DLC_OK)
        r.ops->describe(r.layer, text, sizeof text);
    fixture_close(&r);
    return strstr(text, words) != NULL;
}

void check_same_bits(const float *a, const float *b, int64_t count) {
    ck_assert_mem_eq(a, b, (size_t)count * sizeof(float));
}

void check_same_results(const fixture *a, const fixture *b) {
    check_same_bits(a->out_data, b->out_data, fixture_out_count(a));
    for (int32_t i = 0; i < a->memory.inputs; i++)
        check_same_bits(a->in_diff[i], b->in_diff[i], fixture_in_count(a, i));
    for (int32_t p = 0; p < a->memory.params; p++) {
        check_same_bits(a->param_data[p], b->param_data[p], fixture_param_count(a, p));
        check_same_bits(a->param_diff[p], b->param_diff[p], fixture_param_count(a, p));
    }
}

/* Both store parameter `p` alike. */
static void check_same_order(fixture *a, fixture *b, int32_t p) {
    ck_assert_int_eq(a->param_count[p], b->param_count[p]);
    const int64_t count = a->param_count[p];
    float *of_a = dlc_alloc((size_t)count, sizeof(float));
    float *of_b = dlc_alloc((size_t)count, sizeof(float));
    fixture_param_import(a, p, b->param_data[p], of_a);
    fixture_param_import(b, p, b->param_data[p], of_b);
    check_same_bits(of_a, of_b, count);
    dlc_free(of_a);
    dlc_free(of_b);
}

void check_test_net(const layer_spec *train, const layer_spec *test, double most) {
    fixture trained, beside, alone;
    layer_spec spec = *test;
    open_fixture(&trained, train);
    spec.phase = DLC_PHASE_TEST;
    run_fixture(&alone, &spec);
    spec.train_layer = &trained;
    run_fixture(&beside, &spec);
    for (int32_t p = 0; p < trained.memory.params; p++)
        check_same_order(&trained, &beside, p);
    double far = largest_difference(beside.out_data, alone.out_data,
                                    fixture_out_count(&beside));
    ck_assert_msg(far < most, "%s of %lld, sharing the weights of %s of %lld: %g apart",
                  test->settings, (long long)test->in[0].dims[0], train->settings,
                  (long long)train->in[0].dims[0], far);
    fixture_close(&beside);
    fixture_close(&alone);
    fixture_close(&trained);
}

/* ---- Comparison with the reference ---------------------------------------------- */

typedef struct comparison {
    fixture fixture;
    ref_values values;
    ref_forward forward;
    double low, high, slope; /* of the fused activation */
    char where[640];
    double tolerance;
} comparison;

static double *doubles_of(const float *data, int64_t count) {
    double *copy = dlc_alloc((size_t)count, sizeof(double));
    for (int64_t i = 0; i < count; i++)
        copy[i] = (double)data[i];
    return copy;
}

/* Rounds values to the 16-bit type, so that the layer and its reference have the same
 * input. */
static void round_values(const fixture *r, float *data, int64_t count) {
    uint32_t kept = r->spec.floats == DLC_BF16 ? 0xffff0000u : 0xffffe000u;
    for (int64_t i = 0; i < count && r->spec.floats != DLC_F32; i++) {
        uint32_t bits;
        memcpy(&bits, &data[i], sizeof bits);
        bits &= kept;
        memcpy(&data[i], &bits, sizeof bits);
    }
}

static void fill(comparison *b) {
    fixture *r = &b->fixture;
    for (int32_t i = 0; i < r->memory.inputs; i++) {
        if (r->in[i].dtype == DLC_I32)
            fill_labels(r->in_data[i], fixture_in_count(r, i), r->in[0].shape.dims[1]);
        else
            fill_values(r->in_data[i], fixture_in_count(r, i), 10 + (uint64_t)i, 2);
        if (r->in[i].dtype != DLC_I32)
            round_values(r, r->in_data[i], fixture_in_count(r, i));
        b->values.in[i] = doubles_of(r->in_data[i], fixture_in_count(r, i));
        if (r->in[i].dtype == DLC_I32)
            b->values.labels = (const int32_t *)(const void *)r->in_data[i];
    }
    for (int32_t i = 0; i < r->memory.params; i++) {
        float *data = r->param_data[i];
        int64_t count = fixture_param_count(r, i);
        fill_values(data, count, 20 + (uint64_t)i, 1);
        if (strcmp(r->param[i].name, "variance") == 0)
            for (int64_t k = 0; k < count; k++)
                data[k] = fabsf(data[k]) + 0.1f;
        b->values.param[i] = doubles_of(data, count);
    }
    fill_values(r->out_diff, fixture_out_count(r), 30, 1);
    round_values(r, r->out_diff, fixture_out_count(r));
    b->values.out = dlc_alloc((size_t)fixture_out_count(r), sizeof(double));
}

/* Read once, since references are computed hundreds of times. */
static void read_activation(comparison *b) {
    const layer_spec *spec = &b->fixture.spec;
    b->high = INFINITY;
    if (!spec->fused)
        return;
    if (spec->fused_type && strcmp(spec->fused_type, "clip") == 0) {
        b->high = 6;
        (void)sscanf(spec->fused, "min=%lf max=%lf", &b->low, &b->high);
    } else {
        (void)sscanf(spec->fused, "negative_slope=%lf", &b->slope);
    }
}

static double activated(const comparison *b, double value) {
    return value > b->high  ? b->high
           : value < b->low ? b->low + b->slope * (value - b->low)
                            : value;
}

/* Computes the reference and the fused activation. */
static void compute(const comparison *b) {
    const fixture *r = &b->fixture;
    const int64_t count = fixture_out_count(r);
    double *out = b->values.out;
    b->forward(r, &b->values);
    for (int64_t i = 0; i < count && r->spec.residual; i++)
        out[i] += b->values.in[1][i];
    for (int64_t i = 0; i < count && r->spec.fused; i++)
        out[i] = activated(b, out[i]);
}

static double magnitude_of(const double *data, int64_t count) {
    double most = 1e-2;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, fabs(data[i]));
    return most;
}

static void compare_forward(const comparison *b) {
    const fixture *r = &b->fixture;
    int64_t count = fixture_out_count(r);
    compute(b);
    double size = magnitude_of(b->values.out, count);
    for (int64_t i = 0; i < count; i++) {
        double want = b->values.out[i], got = (double)r->out_data[i];
        if (!(fabs(want - got) <= b->tolerance * size)) /* NaN, too */
            ck_abort_msg("%s: output %lld is %.9g, the reference %.9g", b->where,
                         (long long)i, got, want);
    }
}

/* The function that backward differentiates: the mean loss, or the output times
 * out_diff. */
static double objective(const comparison *b) {
    const fixture *r = &b->fixture;
    compute(b);
    if (r->feature->caps & DLC_LAYER_LOSS)
        return b->values.out[1] > 0
                   ? (double)r->loss_scale * b->values.out[0] / b->values.out[1]
                   : 0;
    const int64_t count = fixture_out_count(r);
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += b->values.out[i] * (double)r->out_diff[i];
    return sum;
}

static double slope_at(const comparison *b, double *x) {
    const double step = 1e-7, keep = *x; /* small: seldom crosses a kink */
    *x = keep + step;
    double up = objective(b);
    *x = keep - step;
    double down = objective(b);
    *x = keep;
    return (up - down) / (2 * step);
}

/* Checks all gradients of a small tensor; of a large one the first, the last and some
 * others. */
static void compare_gradient(const comparison *b, const char *what, double *x,
                             const float *got, int64_t count) {
    dlc_random random = dlc_random_make(5, (uint64_t)count);
    int64_t at[SAMPLES], n = count < SAMPLES ? count : SAMPLES;
    double want[SAMPLES];
    for (int64_t k = 0; k < n; k++) {
        at[k] = n == count ? k : (int64_t)dlc_random_below(&random, (uint64_t)count);
        if (k < 2 && n != count)
            at[k] = k ? count - 1 : 0;
        want[k] = slope_at(b, &x[at[k]]);
    }
    double size = magnitude_of(want, n);
    for (int64_t k = 0; k < n; k++)
        if (!(fabs(want[k] - (double)got[at[k]]) <= b->tolerance * size))
            ck_abort_msg("%s: gradient %lld of %s is %.9g, by finite differences %.9g",
                         b->where, (long long)at[k], what, (double)got[at[k]], want[k]);
}

static void compare_backward(const comparison *b) {
    const fixture *r = &b->fixture;
    for (int32_t i = 0; i < r->memory.inputs; i++)
        if (!(r->shapes.no_gradient >> i & 1))
            compare_gradient(b, "the input", b->values.in[i], r->in_diff[i],
                             fixture_in_count(r, i));
    for (int32_t i = 0; !r->spec.frozen && i < r->memory.params; i++)
        if (!(r->param[i].flags & DLC_PARAM_BUFFER))
            compare_gradient(b, r->param[i].name, b->values.param[i], r->param_diff[i],
                             fixture_param_count(r, i));
}

/* Runs everything again and requires bitwise identical results. */
static void run_again(comparison *b, int backward) {
    fixture *r = &b->fixture;
    const int32_t params = r->memory.params;
    size_t out_bytes = (size_t)fixture_out_count(r) * sizeof(float);
    size_t in_bytes = (size_t)fixture_in_count(r, 0) * sizeof(float);
    float *out = dlc_alloc(out_bytes, 1), *in_diff = dlc_alloc(in_bytes, 1);
    memcpy(out, r->out_data, out_bytes);
    memcpy(in_diff, r->in_diff[0], in_bytes);
    float *grad[DLC_MAX_PARAMS] = {NULL};
    for (int32_t i = 0; i < params; i++) {
        grad[i] = dlc_alloc((size_t)fixture_param_count(r, i), sizeof(float));
        memcpy(grad[i], r->param_diff[i],
               (size_t)fixture_param_count(r, i) * sizeof(float));
    }
    ck_assert_msg(fixture_forward(r) == DLC_OK, "%s: %s", b->where, dlc_detail());
    if (backward)
        ck_assert_msg(fixture_backward(r) == DLC_OK, "%s: %s", b->where, dlc_detail());
    ck_assert_msg(memcmp(out, r->out_data, out_bytes) == 0, "%s: output not repeatable",
                  b->where);
    ck_assert_msg(memcmp(in_diff, r->in_diff[0], in_bytes) == 0,
                  "%s: gradient not repeatable", b->where);
    for (int32_t i = 0; i < params; i++) {
        ck_assert_msg(memcmp(grad[i], r->param_diff[i],
                             (size_t)fixture_param_count(r, i) * sizeof(float)) == 0,
                      "%s: gradient of %s not repeatable", b->where, r->param[i].name);
        dlc_free(grad[i]);
    }
    dlc_free(out);
    dlc_free(in_diff);
}

static void comparison_close(comparison *b) {
    for (int i = 0; i < DLC_MAX_INPUTS; i++)
        dlc_free(b->values.in[i]);
    for (int i = 0; i < DLC_MAX_PARAMS; i++)
        dlc_free(b->values.param[i]);
    dlc_free(b->values.out);
    fixture_close(&b->fixture);
}

static void describe_case(comparison *b, const layer_spec *spec) {
    char shape[128] = "";
    for (int32_t i = 0; i < spec->in[0].rank; i++) {
        size_t used = strlen(shape);
        (void)snprintf(shape + used, sizeof shape - used, "%s%lld", i ? "x" : "",
                       (long long)spec->in[0].dims[i]);
    }
    (void)snprintf(b->where, sizeof b->where, "%s %s [%s] from %s%s%s%s %s%s %s",
                   spec->type, spec->settings ? spec->settings : "", shape,
                   spec->layout ? spec->layout : "plain",
                   spec->floats == DLC_BF16  ? " bf16"
                   : spec->floats == DLC_F16 ? " fp16"
                                             : "",
                   spec->residual ? ", sum" : "",
                   !spec->fused       ? ""
                   : spec->fused_type ? spec->fused_type
                                      : ", relu",
                   spec->fused ? spec->fused : "", spec->in_place ? ", in place" : "",
                   spec->phase == DLC_PHASE_TEST ? "(test)" : "(train)");
}

void check_layer(const layer_spec *spec, double tolerance) {
    comparison *b = dlc_alloc(1, sizeof *b);
    fixture *r = &b->fixture;
    describe_case(b, spec);
    b->tolerance = tolerance;
    b->forward = ref_find(spec->type);
    dlc_status status = fixture_open(r, spec);
    ck_assert_msg(status == DLC_OK, "%s: %s", b->where, dlc_detail());
    r->loss_scale = 0.5f;
    read_activation(b);
    fill(b);
    int backward = r->spec.phase == DLC_PHASE_TRAIN && r->ops->backward;
    ck_assert_msg(fixture_forward(r) == DLC_OK, "%s: %s", b->where, dlc_detail());
    if (backward)
        ck_assert_msg(fixture_backward(r) == DLC_OK, "%s: %s", b->where, dlc_detail());
    compare_forward(b);
    if (backward)
        compare_backward(b);
    run_again(b, backward);
    comparison_close(b);
    dlc_free(b);
}

void check_all_ways(const layer_spec *spec, double tolerance) {
    static const char *const layouts[] = {NULL, "last", "blocked"};
    for (size_t i = 0; i < (spec->in[0].rank == 4 ? 3 : 1); i++) {
        layer_spec one = *spec;
        one.layout = layouts[i];
        check_layer(&one, tolerance);
        one.phase = DLC_PHASE_TEST;
        check_layer(&one, tolerance);
    }
}

void check_refused(const layer_spec *spec, dlc_status status, const char *words) {
    fixture *r = dlc_alloc(1, sizeof *r);
    ck_assert_int_eq(fixture_open(r, spec), status);
    ck_assert_msg(strstr(dlc_detail(), words) != NULL, "'%s' is not in '%s'", words,
                  dlc_detail());
    fixture_close(r);
    dlc_free(r);
}

int layers_begin(int argc, char **argv) {
    (void)argc, (void)argv;
    if (target_why_not())
        return tests_skip(target_why_not());
    (void)fixture_plugin(); /* loads the plugin once, before tests fork */
    return TESTS_RUN;
}

/* Implements keeping and comparing the results of a pass. */
#include "layer_values.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* ---- Keeping ----------------------------------------------------------------- */

static float *copy_of(const layer_fixture *f, const float *x, size_t count) {
    float *copy = dlc_alloc(count + 1, sizeof *copy);
    if (!copy)
        suite_skip(f->run, "out of memory");
    memcpy(copy, x, count * sizeof *x);
    return copy;
}

void layer_values_keep(const layer_fixture *f, layer_values *kept) {
    *kept = (layer_values){.y = copy_of(f, f->y, f->y_count)};
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        kept->dx[i] = copy_of(f, f->dx[i], f->x_count[i]);
    for (int32_t i = 0; i < f->prepared.params; i++)
        kept->dp[i] = copy_of(f, f->dp[i], f->p_count[i]);
}

void layer_values_drop(layer_values *kept) {
    dlc_free(kept->y);
    for (int32_t i = 0; i < FIXTURE_INPUTS; i++)
        dlc_free(kept->dx[i]);
    for (int32_t i = 0; i < DLC_MAX_PARAMS; i++)
        dlc_free(kept->dp[i]);
}

/* ---- Labels ------------------------------------------------------------------ */

int layer_values_has_labels(const layer_fixture *f) {
    int32_t last = f->prepared.inputs - 1;
    return layer_fixture_is_metric(f) && last > 0 &&
           (f->plain_in[last].dtype == DLC_I32 || f->inputs.targets);
}

void layer_values_remove_labels(layer_fixture *f, int64_t begin, int64_t end) {
    int32_t last = f->prepared.inputs - 1;
    size_t each = f->x_count[last] / (size_t)f->plain_in[0].shape.dims[0];
    const int32_t none = DLC_LABEL_NONE;
    for (size_t i = (size_t)begin * each; i < (size_t)end * each; i++) {
        f->x[last][i] = NAN;
        if (f->plain_in[last].dtype == DLC_I32)
            memcpy(&f->x[last][i], &none, sizeof none);
    }
}

/* ---- A pass ------------------------------------------------------------------ */

void layer_values_show(layer_fixture *f, uint64_t seed) {
    layer_fixture_fill(f, seed);
    suite_random(f->dy, f->y_count, seed + 10);
}

void layer_values_pass(layer_fixture *f) {
    layer_fixture_forward(f);
    if (layer_fixture_has_backward(f))
        layer_fixture_backward(f);
}

/* ---- Comparing --------------------------------------------------------------- */

void layer_values_same_output(const layer_fixture *f, const layer_values *wanted,
                              const char *why) {
    if (!suite_same(f->y, wanted->y, f->y_count))
        suite_fail(f->run, "%s, forward gives another output", why);
}

void layer_values_same_gradients(const layer_fixture *f, const layer_values *wanted,
                                 const char *why) {
    if (!layer_fixture_has_backward(f))
        return;
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (f->memory->in_diff[i] &&
            !suite_same(f->dx[i], wanted->dx[i], f->x_count[i]))
            suite_fail(f->run, "%s, backward gives another gradient of input %d", why,
                       (int)i);
    for (int32_t i = 0; i < f->prepared.params; i++)
        if (f->memory->param_diff[i] &&
            !suite_same(f->dp[i], wanted->dp[i], f->p_count[i]))
            suite_fail(f->run, "%s, backward gives another gradient of parameter %s",
                       why, f->param[i].name);
}

double layer_typical(const float *x, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * (double)x[i];
    return sqrt(sum / (double)count) + 1e-3;
}

void layer_near(const layer_fixture *f, const float *got, const float *wanted,
                size_t count, double tolerance, const char *why, const char *what) {
    double typical = layer_typical(wanted, count);
    for (size_t i = 0; i < count; i++) {
        double is = (double)got[i], should = (double)wanted[i];
        if (!(fabs(is - should) <= tolerance * (fabs(should) + typical)))
            suite_fail(f->run, "%s, element %zu of %s is %g, not %g", why, i, what, is,
                       should);
    }
}

void layer_values_near(const layer_fixture *f, const layer_values *wanted,
                       double tolerance, const char *why) {
    layer_near(f, f->y, wanted->y, f->y_count, tolerance, why, "the output");
    if (!layer_fixture_has_backward(f))
        return;
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (f->memory->in_diff[i])
            layer_near(f, f->dx[i], wanted->dx[i], f->x_count[i], tolerance, why,
                       "the gradient of an input");
    for (int32_t i = 0; i < f->prepared.params; i++)
        if (f->memory->param_diff[i])
            layer_near(f, f->dp[i], wanted->dp[i], f->p_count[i], tolerance, why,
                       f->param[i].name);
}

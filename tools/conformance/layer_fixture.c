/* Implements the layer fixture: building a layer, guarded memory, reorders and
 * passes. */
#include "layer_fixture.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* The guard bytes after each buffer that the layer writes: their number and value. */
enum { GUARD = 64, GUARD_BYTE = 0x6b };

int layer_fixture_is_metric(const layer_fixture *f) {
    return (f->run->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)) != 0;
}

/* ---- Building --------------------------------------------------------------- */

static dlc_status create(layer_fixture *f, dlc_phase phase) {
    dlc_family_args family = {.size = sizeof family,
                              .device_ops = f->device.ops,
                              .device = f->device.handle,
                              .threads = 1,
                              .phase = phase,
                              .precision = DLC_F32};
    suite_must(f->run, f->ops->family->open(&family, &f->family), "the family's open");
    dlc_layer_args args = {.size = sizeof args,
                           .name = "checked",
                           .settings = f->run->settings,
                           .context = f->family,
                           .phase = phase,
                           .seed = 3,
                           .index = 1};
    return f->ops->create(&args, &f->layer);
}

static void show_inputs(layer_fixture *f, const layer_inputs *inputs) {
    f->plan = (dlc_layer_plan){.size = sizeof f->plan,
                               .inputs = inputs->count,
                               .in = f->in,
                               .outputs = 1,
                               .out = f->out,
                               .param = f->param};
    for (int32_t i = 0; i < DLC_MAX_PARAMS; i++)
        f->param[i].size = sizeof f->param[i];
    for (int32_t i = 0; i < inputs->count; i++) {
        int label = inputs->labels && i == inputs->count - 1;
        f->in[i] = (dlc_tensor){.shape = inputs->shape[i],
                                .dtype = label ? DLC_I32 : DLC_F32};
        f->plain_in[i] = f->in[i];
    }
}

static void check_plan(layer_fixture *f) {
    const dlc_layer_plan *plan = &f->plan;
    if (plan->outputs < 1 || plan->outputs > DLC_MAX_OUTPUTS || plan->params < 0 ||
        plan->params > DLC_MAX_PARAMS)
        suite_fail(f->run, "infer reports %d outputs and %d parameters", plan->outputs,
                   plan->params);
    for (int32_t i = 0; i < plan->outputs; i++)
        if (f->out[i].shape.rank < 0 || f->out[i].shape.rank > DLC_MAX_DIMS ||
            dlc_shape_count(&f->out[i].shape) < 1 || !dlc_dtype_bytes(f->out[i].dtype))
            suite_fail(f->run, "infer gives output %d no valid shape or type", i);
    for (int32_t i = 0; i < plan->params; i++)
        if (!f->param[i].name || !*f->param[i].name ||
            dlc_shape_count(&f->param[i].shape) < 1)
            suite_fail(f->run, "infer gives parameter %d no name or no shape", i);
    if (plan->multiply_adds < 0)
        suite_fail(f->run, "infer reports %lld multiply-adds",
                   (long long)plan->multiply_adds);
}

static void prepare(layer_fixture *f, dlc_phase phase) {
    for (int32_t i = 0; i < f->plan.outputs; i++)
        f->plain_out[i] = f->out[i];
    for (int32_t i = 0; phase == DLC_PHASE_TRAIN && i < f->plan.inputs; i++)
        if (!(f->plan.no_gradient >> i & 1) && f->in[i].dtype == DLC_F32)
            f->plan.wants_gradient |= 1ull << i;
    f->plan.shared_gradient = f->plan.wants_gradient;
    suite_must(f->run, f->ops->prepare(f->layer, &f->plan), "prepare");
    for (int32_t i = 0; i < f->plan.params; i++)
        if (f->param[i].count < dlc_shape_count(&f->param[i].shape))
            suite_fail(f->run,
                       "prepare sets %lld elements for parameter %s, which has %lld",
                       (long long)f->param[i].count, f->param[i].name,
                       (long long)dlc_shape_count(&f->param[i].shape));
}

/* ---- Memory ----------------------------------------------------------------- */

static void *guarded(layer_fixture *f, size_t bytes) {
    char *memory = (char *)device_fixture_floats(f->run, &f->device,
                                                 (bytes + GUARD) / sizeof(float) + 1);
    memset(memory + bytes, GUARD_BYTE, GUARD);
    return memory;
}

static void check_guard(const layer_fixture *f, const void *memory, size_t bytes,
                        const char *call, const char *what) {
    if (!memory)
        return;
    const unsigned char *guard = (const unsigned char *)memory + bytes;
    for (int i = 0; i < GUARD; i++)
        if (guard[i] != GUARD_BYTE)
            suite_fail(f->run, "%s writes beyond the end of its %s", call, what);
}

static float *host_floats(layer_fixture *f, size_t count) {
    float *x = dlc_alloc(count + 1, sizeof *x);
    if (!x)
        suite_skip(f->run, "out of memory");
    return x;
}

static void take_inputs(layer_fixture *f) {
    for (int32_t i = 0; i < f->plan.inputs; i++) {
        f->x_count[i] = (size_t)dlc_shape_count(&f->plain_in[i].shape);
        f->x[i] = host_floats(f, f->x_count[i]);
        f->dx[i] = host_floats(f, f->x_count[i]);
        f->in_own[i] = guarded(f, dlc_tensor_bytes(&f->in[i]));
        if (f->plan.wants_gradient >> i & 1)
            f->in_diff[i] = guarded(f, dlc_tensor_bytes(&f->in[i]));
    }
}

static void take_outputs(layer_fixture *f) {
    for (int32_t i = 0; i < f->plan.outputs; i++) {
        f->out_own[i] = guarded(f, dlc_tensor_bytes(&f->out[i]));
        if (!(f->run->feature->caps & DLC_LAYER_LOSS))
            f->out_diff[i] = guarded(f, dlc_tensor_bytes(&f->out[i]));
    }
    f->y_count = (size_t)dlc_shape_count(&f->plain_out[0].shape);
    f->y = host_floats(f, f->y_count);
    f->dy = host_floats(f, f->y_count);
}

static void take_params(layer_fixture *f) {
    for (int32_t i = 0; i < f->plan.params; i++) {
        size_t bytes = (size_t)f->param[i].count * sizeof(float);
        f->p_count[i] = (size_t)dlc_shape_count(&f->param[i].shape);
        f->p[i] = host_floats(f, f->p_count[i]);
        f->dp[i] = host_floats(f, f->p_count[i]);
        f->param_own[i] = guarded(f, bytes);
        if (!(f->param[i].flags & DLC_PARAM_BUFFER))
            f->param_diff[i] = guarded(f, bytes);
    }
}

dlc_status layer_fixture_open(suite_run *run, dlc_phase phase,
                              const layer_inputs *inputs, layer_fixture *f) {
    *f = (layer_fixture){.run = run, .ops = run->feature->ops};
    device_fixture_open(run, &f->device);
    dlc_status status = create(f, phase);
    show_inputs(f, inputs);
    if (status == DLC_OK)
        status = f->ops->infer(f->layer, &f->plan);
    if (status == DLC_ERR_CONFIG || status == DLC_ERR_UNSUPPORTED) {
        if (!*dlc_detail())
            suite_fail(run, "it rejects inputs without a detail sentence");
        layer_fixture_close(f);
        return status;
    }
    suite_must(run, status, "create or infer");
    check_plan(f);
    prepare(f, phase);
    take_inputs(f);
    take_outputs(f);
    take_params(f);
    f->workspace = guarded(f, f->plan.workspace_bytes);
    f->scratch = guarded(f, f->plan.scratch_bytes);
    return DLC_OK;
}

void layer_fixture_close(layer_fixture *f) {
    f->ops->destroy(f->layer);
    f->ops->family->close(f->family);
    device_fixture_close(&f->device);
    f->layer = NULL;
    f->family = NULL;
}

/* ---- Values ----------------------------------------------------------------- */

void layer_fixture_fill(layer_fixture *f, uint64_t seed) {
    for (int32_t i = 0; i < f->plan.inputs; i++) {
        suite_random(f->x[i], f->x_count[i], seed + (uint64_t)i);
        for (size_t j = 0; f->in[i].dtype == DLC_I32 && j < f->x_count[i]; j++) {
            int32_t label = (int32_t)(j & 1);
            memcpy(&f->x[i][j], &label, sizeof label);
        }
    }
    for (int32_t i = 0; i < f->plan.params; i++) {
        suite_random(f->p[i], f->p_count[i], seed + 100 + (uint64_t)i);
        for (size_t j = 0; f->param[i].flags & DLC_PARAM_BUFFER && j < f->p_count[i];
             j++)
            f->p[i][j] = 0.5f +
                         0.25f *
                             f->p[i][j]; /* it may be a variance, so it is positive */
    }
}

/* ---- Conversion of layouts -------------------------------------------------- */

static void reorder(layer_fixture *f, const dlc_tensor *from, const void *src,
                    const dlc_tensor *to, void *dst) {
    const dlc_family *family = f->ops->family;
    dlc_reorder *there = NULL;
    if (from->dtype == to->dtype &&
        (from->layout == to->layout || family->same_layout(from, to))) {
        memcpy(dst, src, dlc_tensor_bytes(from));
        return;
    }
    suite_must(f->run, family->reorder_create(f->family, from, to, &there),
               "reorder_create");
    suite_must(f->run, family->reorder_run(there, src, dst), "reorder_run");
    family->reorder_destroy(there);
}

static void import_params(layer_fixture *f) {
    for (int32_t i = 0; i < f->plan.params; i++)
        if (DLC_CAN(f->ops, param_import))
            suite_must(f->run,
                       f->ops->param_import(f->layer, i, f->p[i], f->param_own[i]),
                       "param_import");
        else
            memcpy(f->param_own[i], f->p[i], f->p_count[i] * sizeof(float));
}

static void export_gradients(layer_fixture *f) {
    for (int32_t i = 0; i < f->plan.params; i++)
        if (!f->param_diff[i])
            continue;
        else if (DLC_CAN(f->ops, param_export))
            suite_must(f->run,
                       f->ops->param_export(f->layer, i, f->param_diff[i], f->dp[i]),
                       "param_export");
        else
            memcpy(f->dp[i], f->param_diff[i], f->p_count[i] * sizeof(float));
}

/* ---- A pass ----------------------------------------------------------------- */

static dlc_layer_run pass_of(layer_fixture *f) {
    return (dlc_layer_run){.size = sizeof(dlc_layer_run),
                           .iteration = 5,
                           .sample = 16,
                           .in = (const void *const *)f->in_own,
                           .out = f->out_own,
                           .out_diff = f->out_diff,
                           .in_diff = f->in_diff,
                           .param = f->param_own,
                           .param_diff = f->param_diff,
                           .workspace = f->workspace,
                           .scratch = f->scratch,
                           .loss_scale = 1,
                           .accumulate = f->accumulate};
}

static void check_guards(layer_fixture *f, const char *call) {
    for (int32_t i = 0; i < f->plan.outputs; i++)
        check_guard(f, f->out_own[i], dlc_tensor_bytes(&f->out[i]), call, "output");
    for (int32_t i = 0; i < f->plan.inputs; i++) {
        check_guard(f, f->in_own[i], dlc_tensor_bytes(&f->in[i]), call, "input");
        check_guard(f, f->in_diff[i], dlc_tensor_bytes(&f->in[i]), call,
                    "input's gradient");
    }
    for (int32_t i = 0; i < f->plan.params; i++) {
        size_t bytes = (size_t)f->param[i].count * sizeof(float);
        check_guard(f, f->param_own[i], bytes, call, "parameter");
        check_guard(f, f->param_diff[i], bytes, call, "parameter's gradient");
    }
    check_guard(f, f->workspace, f->plan.workspace_bytes, call, "workspace");
    check_guard(f, f->scratch, f->plan.scratch_bytes, call, "scratch memory");
}

/* A copy of an input, to detect that forward changes it: other layers may read it
 * too. */
static void *copy_of_input(layer_fixture *f, int32_t i) {
    size_t bytes = dlc_tensor_bytes(&f->in[i]);
    void *copy = dlc_alloc(bytes, 1);
    if (!copy)
        suite_skip(f->run, "out of memory");
    memcpy(copy, f->in_own[i], bytes);
    return copy;
}

static void compare_input(layer_fixture *f, int32_t i, void *before) {
    if (before && !(f->plan.in_place >> i & 1) &&
        memcmp(before, f->in_own[i], dlc_tensor_bytes(&f->in[i])) != 0)
        f->changed = 1;
    dlc_free(before);
}

void layer_fixture_forward(layer_fixture *f) {
    dlc_layer_run pass = pass_of(f);
    void *before[FIXTURE_INPUTS] = {NULL};
    for (int32_t i = 0; i < f->plan.inputs; i++) {
        reorder(f, &f->plain_in[i], f->x[i], &f->in[i], f->in_own[i]);
        before[i] = copy_of_input(f, i);
    }
    import_params(f);
    suite_must(f->run, f->ops->forward(f->layer, &pass), "forward");
    check_guards(f, "forward");
    for (int32_t i = 0; i < f->plan.inputs; i++)
        compare_input(f, i, before[i]);
    reorder(f, &f->out[0], f->out_own[0], &f->plain_out[0], f->y);
}

void layer_fixture_backward(layer_fixture *f) {
    dlc_layer_run pass = pass_of(f);
    if (f->out_diff[0])
        reorder(f, &f->plain_out[0], f->dy, &f->out[0], f->out_diff[0]);
    for (int32_t i = 0; i < f->plan.inputs; i++)
        if (f->accumulate >> i & 1)
            reorder(f, &f->plain_in[i], f->dx[i], &f->in[i], f->in_diff[i]);
    suite_must(f->run, f->ops->backward(f->layer, &pass), "backward");
    check_guards(f, "backward");
    for (int32_t i = 0; i < f->plan.inputs; i++)
        if (f->in_diff[i])
            reorder(f, &f->in[i], f->in_diff[i], &f->plain_in[i], f->dx[i]);
    export_gradients(f);
}

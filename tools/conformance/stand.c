/* See stand.h. */
#include "stand.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

/* Bytes behind everything that the layer writes, and what stands there. */
enum { FENCE = 64, POST = 0x6b };

int stand_is_metric(const stand *s) {
    return (s->run->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)) != 0;
}

/* ---- Building
 * ------------------------------------------------------------------------
 */

static dlc_status create(stand *s, dlc_phase phase) {
    dlc_family_args family = {.size = sizeof family,
                              .device_ops = s->bed.ops,
                              .device = s->bed.device,
                              .threads = 1,
                              .phase = phase,
                              .precision = DLC_F32};
    suite_must(s->run, s->ops->family->open(&family, &s->family), "the family's open");
    dlc_layer_args args = {.size = sizeof args,
                           .name = "checked",
                           .settings = s->run->settings,
                           .context = s->family,
                           .phase = phase,
                           .seed = 3,
                           .index = 1};
    return s->ops->create(&args, &s->layer);
}

static void show_inputs(stand *s, const stand_inputs *inputs) {
    s->plan = (dlc_layer_plan){.size = sizeof s->plan,
                               .inputs = inputs->count,
                               .in = s->in,
                               .outputs = 1,
                               .out = s->out,
                               .param = s->param};
    for (int32_t i = 0; i < DLC_MAX_PARAMS; i++)
        s->param[i].size = sizeof s->param[i];
    for (int32_t i = 0; i < inputs->count; i++) {
        int label = inputs->labels && i == inputs->count - 1;
        s->in[i] = (dlc_tensor){.shape = inputs->shape[i],
                                .dtype = label ? DLC_I32 : DLC_F32};
        s->plain_in[i] = s->in[i];
    }
}

static void check_plan(stand *s) {
    const dlc_layer_plan *plan = &s->plan;
    if (plan->outputs < 1 || plan->outputs > DLC_MAX_OUTPUTS || plan->params < 0 ||
        plan->params > DLC_MAX_PARAMS)
        suite_fail(s->run, "infer says %d outputs and %d parameters", plan->outputs,
                   plan->params);
    for (int32_t i = 0; i < plan->outputs; i++)
        if (s->out[i].shape.rank < 0 || s->out[i].shape.rank > DLC_MAX_DIMS ||
            dlc_shape_count(&s->out[i].shape) < 1 || !dlc_dtype_bytes(s->out[i].dtype))
            suite_fail(s->run, "infer gives output %d no proper shape or type", i);
    for (int32_t i = 0; i < plan->params; i++)
        if (!s->param[i].name || !*s->param[i].name ||
            dlc_shape_count(&s->param[i].shape) < 1)
            suite_fail(s->run, "infer gives parameter %d no name or no shape", i);
    if (plan->multiply_adds < 0)
        suite_fail(s->run, "infer says %lld multiply-adds",
                   (long long)plan->multiply_adds);
}

static void prepare(stand *s, dlc_phase phase) {
    for (int32_t i = 0; i < s->plan.outputs; i++)
        s->plain_out[i] = s->out[i];
    for (int32_t i = 0; phase == DLC_PHASE_TRAIN && i < s->plan.inputs; i++)
        if (!(s->plan.no_gradient >> i & 1) && s->in[i].dtype == DLC_F32)
            s->plan.wants_gradient |= 1ull << i;
    s->plan.shares_gradient = s->plan.wants_gradient;
    suite_must(s->run, s->ops->prepare(s->layer, &s->plan), "prepare");
    for (int32_t i = 0; i < s->plan.params; i++)
        if (s->param[i].count < dlc_shape_count(&s->param[i].shape))
            suite_fail(s->run, "prepare wants %lld elements for parameter %s of %lld",
                       (long long)s->param[i].count, s->param[i].name,
                       (long long)dlc_shape_count(&s->param[i].shape));
}

/* ---- Memory ------------------------------------------------------------------ */

static void *fenced(stand *s, size_t bytes) {
    char *memory = (char *)suite_bed_floats(s->run, &s->bed,
                                            (bytes + FENCE) / sizeof(float) + 1);
    memset(memory + bytes, POST, FENCE);
    return memory;
}

static void check_fence(const stand *s, const void *memory, size_t bytes,
                        const char *call, const char *what) {
    if (!memory)
        return;
    const unsigned char *fence = (const unsigned char *)memory + bytes;
    for (int i = 0; i < FENCE; i++)
        if (fence[i] != POST)
            suite_fail(s->run, "%s writes behind its %s", call, what);
}

static float *host_floats(stand *s, size_t count) {
    float *x = dlc_alloc(count + 1, sizeof *x);
    if (!x)
        suite_skip(s->run, "memory ran out");
    return x;
}

static void take_inputs(stand *s) {
    for (int32_t i = 0; i < s->plan.inputs; i++) {
        s->x_count[i] = (size_t)dlc_shape_count(&s->plain_in[i].shape);
        s->x[i] = host_floats(s, s->x_count[i]);
        s->dx[i] = host_floats(s, s->x_count[i]);
        s->in_own[i] = fenced(s, dlc_tensor_bytes(&s->in[i]));
        if (s->plan.wants_gradient >> i & 1)
            s->in_diff[i] = fenced(s, dlc_tensor_bytes(&s->in[i]));
    }
}

static void take_outputs(stand *s) {
    for (int32_t i = 0; i < s->plan.outputs; i++) {
        s->out_own[i] = fenced(s, dlc_tensor_bytes(&s->out[i]));
        if (!(s->run->feature->caps & DLC_LAYER_LOSS))
            s->out_diff[i] = fenced(s, dlc_tensor_bytes(&s->out[i]));
    }
    s->y_count = (size_t)dlc_shape_count(&s->plain_out[0].shape);
    s->y = host_floats(s, s->y_count);
    s->dy = host_floats(s, s->y_count);
}

static void take_params(stand *s) {
    for (int32_t i = 0; i < s->plan.params; i++) {
        size_t bytes = (size_t)s->param[i].count * sizeof(float);
        s->p_count[i] = (size_t)dlc_shape_count(&s->param[i].shape);
        s->p[i] = host_floats(s, s->p_count[i]);
        s->dp[i] = host_floats(s, s->p_count[i]);
        s->param_own[i] = fenced(s, bytes);
        if (!(s->param[i].flags & DLC_PARAM_BUFFER))
            s->param_diff[i] = fenced(s, bytes);
    }
}

dlc_status stand_open(suite_run *run, dlc_phase phase, const stand_inputs *inputs,
                      stand *s) {
    *s = (stand){.run = run, .ops = run->feature->ops};
    suite_bed_open(run, &s->bed);
    dlc_status status = create(s, phase);
    show_inputs(s, inputs);
    if (status == DLC_OK)
        status = s->ops->infer(s->layer, &s->plan);
    if (status == DLC_ERR_CONFIG || status == DLC_ERR_UNSUPPORTED) {
        if (!*dlc_detail())
            suite_fail(run, "it refuses inputs without a sentence");
        stand_close(s);
        return status;
    }
    suite_must(run, status, "create or infer");
    check_plan(s);
    prepare(s, phase);
    take_inputs(s);
    take_outputs(s);
    take_params(s);
    s->workspace = fenced(s, s->plan.workspace_bytes);
    s->scratch = fenced(s, s->plan.scratch_bytes);
    return DLC_OK;
}

void stand_close(stand *s) {
    s->ops->destroy(s->layer);
    s->ops->family->close(s->family);
    suite_bed_close(&s->bed);
    s->layer = NULL;
    s->family = NULL;
}

/* ---- Values ------------------------------------------------------------------ */

void stand_fill(stand *s, uint64_t seed) {
    for (int32_t i = 0; i < s->plan.inputs; i++) {
        suite_random(s->x[i], s->x_count[i], seed + (uint64_t)i);
        for (size_t j = 0; s->in[i].dtype == DLC_I32 && j < s->x_count[i]; j++) {
            int32_t label = (int32_t)(j & 1);
            memcpy(&s->x[i][j], &label, sizeof label);
        }
    }
    for (int32_t i = 0; i < s->plan.params; i++) {
        suite_random(s->p[i], s->p_count[i], seed + 100 + (uint64_t)i);
        for (size_t j = 0; s->param[i].flags & DLC_PARAM_BUFFER && j < s->p_count[i];
             j++)
            s->p[i][j] = 0.5f + 0.25f * s->p[i][j]; /* a variance, say */
    }
}

/* ---- Between plain and its own ----------------------------------------------- */

static void reorder(stand *s, const dlc_tensor *from, const void *src,
                    const dlc_tensor *to, void *dst) {
    const dlc_family *family = s->ops->family;
    dlc_reorder *there = NULL;
    if (from->dtype == to->dtype &&
        (from->layout == to->layout || family->same_layout(from, to))) {
        memcpy(dst, src, dlc_tensor_bytes(from));
        return;
    }
    suite_must(s->run, family->reorder_create(s->family, from, to, &there),
               "reorder_create");
    suite_must(s->run, family->reorder_run(there, src, dst), "reorder_run");
    family->reorder_destroy(there);
}

static void import_params(stand *s) {
    for (int32_t i = 0; i < s->plan.params; i++)
        if (DLC_CAN(s->ops, param_import))
            suite_must(s->run,
                       s->ops->param_import(s->layer, i, s->p[i], s->param_own[i]),
                       "param_import");
        else
            memcpy(s->param_own[i], s->p[i], s->p_count[i] * sizeof(float));
}

static void export_gradients(stand *s) {
    for (int32_t i = 0; i < s->plan.params; i++)
        if (!s->param_diff[i])
            continue;
        else if (DLC_CAN(s->ops, param_export))
            suite_must(s->run,
                       s->ops->param_export(s->layer, i, s->param_diff[i], s->dp[i]),
                       "param_export");
        else
            memcpy(s->dp[i], s->param_diff[i], s->p_count[i] * sizeof(float));
}

/* ---- A pass ------------------------------------------------------------------ */

static dlc_layer_run pass_of(stand *s) {
    return (dlc_layer_run){.size = sizeof(dlc_layer_run),
                           .iteration = 5,
                           .sample = 16,
                           .in = (const void *const *)s->in_own,
                           .out = s->out_own,
                           .out_diff = s->out_diff,
                           .in_diff = s->in_diff,
                           .param = s->param_own,
                           .param_diff = s->param_diff,
                           .workspace = s->workspace,
                           .scratch = s->scratch,
                           .loss_scale = 1,
                           .adds = s->adds};
}

static void check_fences(stand *s, const char *call) {
    for (int32_t i = 0; i < s->plan.outputs; i++)
        check_fence(s, s->out_own[i], dlc_tensor_bytes(&s->out[i]), call, "output");
    for (int32_t i = 0; i < s->plan.inputs; i++) {
        check_fence(s, s->in_own[i], dlc_tensor_bytes(&s->in[i]), call, "input");
        check_fence(s, s->in_diff[i], dlc_tensor_bytes(&s->in[i]), call,
                    "input's gradient");
    }
    for (int32_t i = 0; i < s->plan.params; i++) {
        size_t bytes = (size_t)s->param[i].count * sizeof(float);
        check_fence(s, s->param_own[i], bytes, call, "parameter");
        check_fence(s, s->param_diff[i], bytes, call, "parameter's gradient");
    }
    check_fence(s, s->workspace, s->plan.workspace_bytes, call, "workspace");
    check_fence(s, s->scratch, s->plan.scratch_bytes, call, "scratch memory");
}

/* What the layer reads, as it was before; others read it, too. */
static void *copy_of_input(stand *s, int32_t i) {
    size_t bytes = dlc_tensor_bytes(&s->in[i]);
    void *copy = dlc_alloc(bytes, 1);
    if (!copy)
        suite_skip(s->run, "memory ran out");
    memcpy(copy, s->in_own[i], bytes);
    return copy;
}

static void compare_input(stand *s, int32_t i, void *before) {
    if (before && !(s->plan.in_place >> i & 1) &&
        memcmp(before, s->in_own[i], dlc_tensor_bytes(&s->in[i])) != 0)
        s->changed = 1;
    dlc_free(before);
}

void stand_forward(stand *s) {
    dlc_layer_run pass = pass_of(s);
    void *before[STAND_INPUTS] = {NULL};
    for (int32_t i = 0; i < s->plan.inputs; i++) {
        reorder(s, &s->plain_in[i], s->x[i], &s->in[i], s->in_own[i]);
        before[i] = copy_of_input(s, i);
    }
    import_params(s);
    suite_must(s->run, s->ops->forward(s->layer, &pass), "forward");
    check_fences(s, "forward");
    for (int32_t i = 0; i < s->plan.inputs; i++)
        compare_input(s, i, before[i]);
    reorder(s, &s->out[0], s->out_own[0], &s->plain_out[0], s->y);
}

void stand_backward(stand *s) {
    dlc_layer_run pass = pass_of(s);
    if (s->out_diff[0])
        reorder(s, &s->plain_out[0], s->dy, &s->out[0], s->out_diff[0]);
    for (int32_t i = 0; i < s->plan.inputs; i++)
        if (s->adds >> i & 1)
            reorder(s, &s->plain_in[i], s->dx[i], &s->in[i], s->in_diff[i]);
    suite_must(s->run, s->ops->backward(s->layer, &pass), "backward");
    check_fences(s, "backward");
    for (int32_t i = 0; i < s->plan.inputs; i++)
        if (s->in_diff[i])
            reorder(s, &s->in[i], s->in_diff[i], &s->plain_in[i], s->dx[i]);
    export_gradients(s);
}

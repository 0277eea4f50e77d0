/* Implements the layer fixture: building a layer, and its guarded memory. */
#include "layer_fixture.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "guard.h"
#include "plugin/answers.h"

enum { FIRST_ITERATION = 5, FIRST_SAMPLE = 16 };

int layer_fixture_is_metric(const layer_fixture *f) {
    return (f->run->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)) != 0;
}

int layer_fixture_has_backward(const layer_fixture *f) {
    return f->build.phase == DLC_PHASE_TRAIN && DLC_CAN(f->ops, backward);
}

/* ---- Building --------------------------------------------------------------- */

/* The other rank gives what this one gives. */
static dlc_status mirror(void *context, void *values, size_t bytes) {
    layer_fixture *f = context;
    f->gathered++;
    if (!f->shapes.collective)
        suite_fail(f->run, "it uses the group of ranks, but infer does not say that it "
                           "is collective");
    if (bytes % sizeof(float))
        suite_fail(f->run, "it gathers %zu bytes, which is no multiple of 4", bytes);
    return f->device.ops->copy(f->device.handle, f->device.queue,
                               (char *)values + bytes, values, bytes);
}

static void open_group(layer_fixture *f) {
    const dlc_merge merge = {.into = 0, .from = 1};
    f->group = (dlc_layer_group){
        .size = sizeof f->group,
        .ranks = 2,
        .merges = device_fixture_copy_of(f->run, &f->device, &merge, sizeof merge),
        .context = f,
        .all_gather = mirror};
}

/* A family that does not have a 16-bit type here says so. */
static void open_family(layer_fixture *f) {
    const layer_build *build = &f->build;
    dlc_family_args family = {.size = sizeof family,
                              .device_ops = f->device.ops,
                              .device = f->device.handle,
                              .queue = f->device.queue,
                              .threads = build->threads ? build->threads : 1,
                              .phase = build->phase,
                              .precision = build->precision};
    dlc_status status = f->ops->family->open(&family, &f->family);
    if (build->precision != DLC_F32 && status == DLC_ERR_UNSUPPORTED)
        suite_skip(f->run, "its family refuses that here: %s", dlc_detail());
    suite_must(f->run, status, "the family's open");
}

static dlc_status create(layer_fixture *f) {
    const layer_build *build = &f->build;
    int in_group = build->phase == DLC_PHASE_TRAIN && !build->alone;
    dlc_layer_args args = {.size = sizeof args,
                           .name = "checked",
                           .settings = f->run->settings,
                           .context = f->family,
                           .phase = build->phase,
                           .train_layer = build->trained ? build->trained->layer : NULL,
                           .seed = 3 + build->seed,
                           .index = 1 + build->index,
                           .channel_begin = build->channel_begin,
                           .channel_end = build->channel_end,
                           .plain_params = build->plain_params,
                           .frozen = build->frozen,
                           .group = in_group ? &f->group : NULL};
    return f->ops->create(&args, &f->layer);
}

static void show_inputs(layer_fixture *f) {
    const layer_inputs *inputs = &f->inputs;
    f->shapes = (dlc_layer_shapes){.size = sizeof f->shapes,
                                   .inputs = inputs->count,
                                   .in = f->in,
                                   .outputs = 1,
                                   .out = f->out,
                                   .param = f->param};
    memset(f->out, 0, sizeof f->out);
    for (int32_t i = 0; i < DLC_MAX_PARAMS; i++)
        f->param[i] = (dlc_param){
            .size = sizeof f->param[i], .lr_mult = 1, .decay_mult = 1};
    for (int32_t i = 0; i < inputs->count; i++) {
        f->in[i] = (dlc_tensor){.shape = inputs->shape[i], .dtype = inputs->dtype[i]};
        f->plain_in[i] = f->in[i];
        if (f->in[i].dtype == DLC_F32 && !f->build.float32_inputs)
            f->in[i].dtype = f->build.precision;
    }
}

static int is_factor(double factor) {
    return isfinite(factor) && factor >= 0;
}

static void check_params(const layer_fixture *f) {
    int32_t params = f->shapes.params;
    int32_t bad = dlc_answer_bad_name(&f->param->name, sizeof *f->param, params);
    int trained = 0;
    if (bad >= 0)
        suite_fail(f->run, "infer gives parameter %d no valid name of its own", bad);
    for (int32_t i = 0; i < params; i++) {
        const dlc_param *param = &f->param[i];
        trained |= !(param->flags & DLC_PARAM_BUFFER);
        if (!dlc_answer_is_tensor(&param->shape, DLC_F32))
            suite_fail(f->run, "infer gives parameter %s no valid shape", param->name);
        if (!is_factor(param->lr_mult) || !is_factor(param->decay_mult))
            suite_fail(f->run,
                       "lr_mult or decay_mult of parameter %s is no number from 0 on",
                       param->name);
    }
    if (trained && !DLC_CAN(f->ops, backward))
        suite_fail(f->run, "it has parameters to train, but no backward");
}

static int is_beyond(uint64_t set, int32_t count) {
    return count < 64 && set >> count != 0;
}

static void check_sets(const layer_fixture *f) {
    const dlc_layer_memory *memory = &f->prepared;
    if (is_beyond(f->shapes.no_gradient, memory->inputs) ||
        is_beyond(memory->reads_in | memory->in_place, memory->inputs) ||
        is_beyond(memory->reads_out, memory->outputs))
        suite_fail(f->run, "no_gradient, reads_in, in_place or reads_out names a "
                           "tensor that it does not have");
    if (memory->workspace_bytes > DLC_ANSWER_BYTES_MAX ||
        memory->scratch_bytes > DLC_ANSWER_BYTES_MAX)
        suite_fail(f->run, "it wants %zu bytes of workspace and %zu of scratch memory",
                   memory->workspace_bytes, memory->scratch_bytes);
}

static void check_shapes(layer_fixture *f) {
    const dlc_layer_shapes *shapes = &f->shapes;
    if (shapes->outputs < 1 || shapes->outputs > DLC_MAX_OUTPUTS ||
        shapes->params < 0 || shapes->params > DLC_MAX_PARAMS)
        suite_fail(f->run, "infer reports %d outputs and %d parameters",
                   shapes->outputs, shapes->params);
    for (int32_t i = 0; i < shapes->outputs; i++)
        if (!dlc_answer_is_tensor(&f->out[i].shape, f->out[i].dtype))
            suite_fail(f->run, "infer gives output %d no valid shape or type", i);
    check_params(f);
    if (shapes->multiply_adds < 0)
        suite_fail(f->run, "infer reports %lld multiply-adds",
                   (long long)shapes->multiply_adds);
}

/* A binary layer that is taken over brings its other input. */
static int fuse(layer_fixture *f) {
    const layer_build *build = &f->build;
    dlc_status status = f->ops->fuse(f->layer, build->fused, build->fused_settings);
    if (status == DLC_ERR_UNSUPPORTED)
        return 0;
    suite_must(f->run, status, "fuse");
    if (build->fused->caps & DLC_LAYER_BINARY) {
        f->in[f->shapes.inputs] = f->plain_in[f->shapes.inputs] = f->out[0];
        f->shapes.inputs++;
    }
    return 1;
}

static int is_float(dlc_dtype type) {
    return type == DLC_F32 || type == DLC_BF16 || type == DLC_F16;
}

static void prepare(layer_fixture *f) {
    f->prepared = (dlc_layer_memory){.size = sizeof f->prepared,
                                     .inputs = f->shapes.inputs,
                                     .outputs = f->shapes.outputs,
                                     .params = f->shapes.params,
                                     .in = f->in,
                                     .out = f->out,
                                     .param_count = f->param_count};
    for (int32_t i = 0; i < f->prepared.params; i++)
        f->param_count[i] = dlc_shape_count(&f->param[i].shape);
    for (int32_t i = 0; i < f->prepared.outputs; i++) {
        f->plain_out[i] = f->out[i];
        if (is_float(f->out[i].dtype))
            f->plain_out[i].dtype = DLC_F32;
    }
    for (int32_t i = 0; f->build.phase == DLC_PHASE_TRAIN && i < f->prepared.inputs;
         i++)
        if (!(f->shapes.no_gradient >> i & 1) && is_float(f->in[i].dtype))
            f->prepared.wants_gradient |= 1ull << i;
    f->prepared.wants_gradient &= ~f->build.unwanted;
    f->prepared.shared_gradient = f->prepared.wants_gradient;
    suite_must(f->run, f->ops->prepare(f->layer, &f->prepared), "prepare");
    check_sets(f);
    for (int32_t i = 0; i < f->prepared.params; i++)
        if (f->param_count[i] < dlc_shape_count(&f->param[i].shape))
            suite_fail(f->run,
                       "prepare sets %lld elements for parameter %s, which has %lld",
                       (long long)f->param_count[i], f->param[i].name,
                       (long long)dlc_shape_count(&f->param[i].shape));
}

/* ---- Memory ----------------------------------------------------------------- */

static float *host_floats(layer_fixture *f, size_t count) {
    float *x = dlc_alloc(count + 1, sizeof *x);
    if (!x)
        suite_skip(f->run, "out of memory");
    return x;
}

/* Memory of the device if the CPU can use it; otherwise each call gets copies there. */
static void *guarded(layer_fixture *f, size_t bytes, const char *what) {
    size_t room = bytes + 2 * (size_t)GUARD_BYTES;
    return f->device.is_host
               ? device_fixture_bytes(f->run, &f->device, bytes, what)
               : guard_place(f->run, f->device.handle,
                             host_floats(f, room / sizeof(float) + 1), bytes, what);
}

/* Elements of 4 bytes are compared, others are not. */
static size_t value_count(const dlc_tensor *plain) {
    return dlc_dtype_bytes(plain->dtype) == sizeof(float)
               ? (size_t)dlc_shape_count(&plain->shape)
               : 0;
}

static void take_values(layer_fixture *f) {
    for (int32_t i = 0; i < f->prepared.inputs; i++) {
        f->x_count[i] = (size_t)dlc_shape_count(&f->plain_in[i].shape);
        f->x[i] = host_floats(f, f->x_count[i]);
        f->dx[i] = host_floats(f, f->x_count[i]);
    }
    for (int32_t i = 0; i < f->prepared.outputs; i++)
        f->y_at[i + 1] = f->y_at[i] + value_count(&f->plain_out[i]);
    f->y_count = f->y_at[f->prepared.outputs];
    f->y = host_floats(f, f->y_count);
    f->dy = host_floats(f, f->y_count);
    for (int32_t i = 0; i < f->prepared.params; i++) {
        f->p_count[i] = (size_t)dlc_shape_count(&f->param[i].shape);
        f->p[i] = host_floats(f, f->p_count[i]);
        f->dp[i] = host_floats(f, f->p_count[i]);
    }
}

/* A frozen layer that can leave out the gradients of its parameters has none. */
static int has_gradient(const layer_fixture *f, int32_t param) {
    int splits = (f->run->feature->caps & DLC_LAYER_SPLIT_BACKWARD) != 0;
    return !(f->param[param].flags & DLC_PARAM_BUFFER) && !(f->build.frozen && splits);
}

static void take_memory(layer_fixture *f, layer_memory *m) {
    for (int32_t i = 0; i < f->prepared.inputs; i++) {
        size_t bytes = dlc_tensor_bytes(&f->in[i]);
        m->in[i] = guarded(f, bytes, "input");
        if (f->prepared.wants_gradient >> i & 1)
            m->in_diff[i] = guarded(f, bytes, "input's gradient");
    }
    for (int32_t i = 0; i < f->prepared.outputs; i++) {
        size_t bytes = dlc_tensor_bytes(&f->out[i]);
        m->out[i] = guarded(f, bytes, "output");
        if (!(f->run->feature->caps & DLC_LAYER_LOSS))
            m->out_diff[i] = guarded(f, bytes, "output's gradient");
    }
    for (int32_t i = 0; i < f->prepared.params; i++) {
        m->param[i] = guarded(f, layer_param_bytes(f, i), "parameter");
        if (has_gradient(f, i))
            m->param_diff[i] = guarded(f, layer_param_bytes(f, i),
                                       "parameter's gradient");
    }
    m->workspace = guarded(f, f->prepared.workspace_bytes, "workspace");
    m->scratch = guarded(f, f->prepared.scratch_bytes, "scratch memory");
}

/* The layer of a test is closed before that whose parameters it reads. */
void layer_fixture_close(layer_fixture *f) {
    f->ops->destroy(f->layer);
    f->ops->family->close(f->family);
    device_fixture_close(&f->device);
    f->layer = NULL;
    f->family = NULL;
}

dlc_status layer_fixture_open(suite_run *run, const layer_build *build,
                              const layer_inputs *inputs, layer_fixture *f) {
    *f = (layer_fixture){.run = run,
                         .ops = run->feature->ops,
                         .build = *build,
                         .inputs = *inputs,
                         .iteration = FIRST_ITERATION,
                         .sample = FIRST_SAMPLE,
                         .loss_scale = 1};
    if (!f->build.precision)
        f->build.precision = DLC_F32;
    device_fixture_open(run, &f->device);
    open_group(f);
    open_family(f);
    dlc_status status = create(f);
    show_inputs(f);
    if (status == DLC_OK && build->infers_others) {
        for (int32_t i = 0; i < inputs->count; i++)
            f->in[i].shape.dims[0]++;
        (void)f->ops->infer(f->layer, &f->shapes);
        show_inputs(f);
    }
    if (status == DLC_OK)
        status = f->ops->infer(f->layer, &f->shapes);
    if (status == DLC_ERR_CONFIG || status == DLC_ERR_UNSUPPORTED) {
        if (!*dlc_detail())
            suite_fail(run, "it rejects inputs without a detail sentence");
        layer_fixture_close(f);
        return status;
    }
    suite_must(run, status, "create or infer");
    check_shapes(f);
    if (build->fused && !fuse(f)) {
        layer_fixture_close(f);
        return DLC_ERR_UNSUPPORTED;
    }
    prepare(f);
    take_values(f);
    take_memory(f, &f->bank[0]);
    take_memory(f, &f->bank[1]);
    f->memory = &f->bank[0];
    return DLC_OK;
}

/* Implements the layer fixture: building a layer, its guarded memory, and the grid of
 * inputs that the checks try. */
#include "layer_fixture.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "plugin/answers.h"

enum { FIRST_ITERATION = 5 };

int layer_fixture_is_metric(const layer_fixture *f) {
    return (f->run->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)) != 0;
}

/* ---- Building --------------------------------------------------------------- */

/* The other rank gives what this one gives. */
static dlc_status mirror(void *context, void *values, size_t bytes) {
    const layer_fixture *f = context;
    if (bytes % sizeof(float))
        suite_fail(f->run, "it gathers %zu bytes, which is no multiple of 4", bytes);
    memcpy((char *)values + bytes, values, bytes);
    return DLC_OK;
}

static void open_group(layer_fixture *f) {
    const dlc_merge merge = {.into = 0, .from = 1};
    float *merges = device_fixture_floats(f->run, &f->device, 2);
    memcpy(merges, &merge, sizeof merge);
    f->group = (dlc_layer_group){.size = sizeof f->group,
                                 .ranks = 2,
                                 .merges = (const dlc_merge *)(const void *)merges,
                                 .context = f,
                                 .all_gather = mirror};
}

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
                           .index = 1,
                           .group = phase == DLC_PHASE_TRAIN ? &f->group : NULL};
    return f->ops->create(&args, &f->layer);
}

static void show_inputs(layer_fixture *f, const layer_inputs *inputs) {
    f->shapes = (dlc_layer_shapes){.size = sizeof f->shapes,
                                   .inputs = inputs->count,
                                   .in = f->in,
                                   .outputs = 1,
                                   .out = f->out,
                                   .param = f->param};
    for (int32_t i = 0; i < DLC_MAX_PARAMS; i++)
        f->param[i] = (dlc_param){
            .size = sizeof f->param[i], .lr_mult = 1, .decay_mult = 1};
    for (int32_t i = 0; i < inputs->count; i++) {
        int label = inputs->labels && i == inputs->count - 1;
        f->in[i] = (dlc_tensor){.shape = inputs->shape[i],
                                .dtype = label ? DLC_I32 : DLC_F32};
        f->plain_in[i] = f->in[i];
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

static void prepare(layer_fixture *f, dlc_phase phase) {
    f->prepared = (dlc_layer_memory){.size = sizeof f->prepared,
                                     .inputs = f->shapes.inputs,
                                     .outputs = f->shapes.outputs,
                                     .params = f->shapes.params,
                                     .in = f->in,
                                     .out = f->out,
                                     .param_count = f->param_count};
    for (int32_t i = 0; i < f->prepared.params; i++)
        f->param_count[i] = dlc_shape_count(&f->param[i].shape);
    for (int32_t i = 0; i < f->prepared.outputs; i++)
        f->plain_out[i] = f->out[i];
    for (int32_t i = 0; phase == DLC_PHASE_TRAIN && i < f->prepared.inputs; i++)
        if (!(f->shapes.no_gradient >> i & 1) && f->in[i].dtype == DLC_F32)
            f->prepared.wants_gradient |= 1ull << i;
    f->prepared.wants_gradient &= ~f->unwanted;
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

static void *guarded(layer_fixture *f, size_t bytes) {
    char *memory = (char *)device_fixture_floats(
        f->run, &f->device, (bytes + LAYER_GUARD) / sizeof(float) + 1);
    memset(memory + bytes, LAYER_GUARD_BYTE, LAYER_GUARD);
    return memory;
}

static float *host_floats(layer_fixture *f, size_t count) {
    float *x = dlc_alloc(count + 1, sizeof *x);
    if (!x)
        suite_skip(f->run, "out of memory");
    return x;
}

static void take_values(layer_fixture *f) {
    for (int32_t i = 0; i < f->prepared.inputs; i++) {
        f->x_count[i] = (size_t)dlc_shape_count(&f->plain_in[i].shape);
        f->x[i] = host_floats(f, f->x_count[i]);
        f->dx[i] = host_floats(f, f->x_count[i]);
    }
    f->y_count = (size_t)dlc_shape_count(&f->plain_out[0].shape);
    f->y = host_floats(f, f->y_count);
    f->dy = host_floats(f, f->y_count);
    for (int32_t i = 0; i < f->prepared.params; i++) {
        f->p_count[i] = (size_t)dlc_shape_count(&f->param[i].shape);
        f->p[i] = host_floats(f, f->p_count[i]);
        f->dp[i] = host_floats(f, f->p_count[i]);
    }
}

static void take_memory(layer_fixture *f, layer_memory *m) {
    for (int32_t i = 0; i < f->prepared.inputs; i++) {
        m->in[i] = guarded(f, dlc_tensor_bytes(&f->in[i]));
        if (f->prepared.wants_gradient >> i & 1)
            m->in_diff[i] = guarded(f, dlc_tensor_bytes(&f->in[i]));
    }
    for (int32_t i = 0; i < f->prepared.outputs; i++) {
        m->out[i] = guarded(f, dlc_tensor_bytes(&f->out[i]));
        if (!(f->run->feature->caps & DLC_LAYER_LOSS))
            m->out_diff[i] = guarded(f, dlc_tensor_bytes(&f->out[i]));
    }
    for (int32_t i = 0; i < f->prepared.params; i++) {
        m->param[i] = guarded(f, layer_param_bytes(f, i));
        if (!(f->param[i].flags & DLC_PARAM_BUFFER))
            m->param_diff[i] = guarded(f, layer_param_bytes(f, i));
    }
    m->workspace = guarded(f, f->prepared.workspace_bytes);
    m->scratch = guarded(f, f->prepared.scratch_bytes);
}

static void close_fixture(layer_fixture *f) {
    f->ops->destroy(f->layer);
    f->ops->family->close(f->family);
    device_fixture_close(&f->device);
    f->layer = NULL;
    f->family = NULL;
}

/* Creates and prepares the layer. Returns DLC_ERR_CONFIG or DLC_ERR_UNSUPPORTED if it
 * does not accept these inputs; any other error fails the check. */
static dlc_status open_fixture(suite_run *run, dlc_phase phase, uint64_t unwanted,
                               const layer_inputs *inputs, layer_fixture *f) {
    *f = (layer_fixture){
        .run = run, .ops = run->feature->ops, .phase = phase, .unwanted = unwanted};
    device_fixture_open(run, &f->device);
    open_group(f);
    dlc_status status = create(f, phase);
    show_inputs(f, inputs);
    if (status == DLC_OK)
        status = f->ops->infer(f->layer, &f->shapes);
    if (status == DLC_ERR_CONFIG || status == DLC_ERR_UNSUPPORTED) {
        if (!*dlc_detail())
            suite_fail(run, "it rejects inputs without a detail sentence");
        close_fixture(f);
        return status;
    }
    suite_must(run, status, "create or infer");
    check_shapes(f);
    prepare(f, phase);
    take_values(f);
    take_memory(f, &f->bank[0]);
    take_memory(f, &f->bank[1]);
    f->memory = &f->bank[0];
    f->iteration = FIRST_ITERATION;
    return DLC_OK;
}

/* ---- Values ----------------------------------------------------------------- */

void layer_fixture_fill(layer_fixture *f, uint64_t seed) {
    for (int32_t i = 0; i < f->prepared.inputs; i++) {
        suite_random(f->x[i], f->x_count[i], seed + (uint64_t)i);
        for (size_t j = 0; f->in[i].dtype == DLC_I32 && j < f->x_count[i]; j++) {
            int32_t label = (int32_t)(j & 1);
            memcpy(&f->x[i][j], &label, sizeof label);
        }
    }
    for (int32_t i = 0; i < f->prepared.params; i++) {
        suite_random(f->p[i], f->p_count[i], seed + 100 + (uint64_t)i);
        for (size_t j = 0; f->param[i].flags & DLC_PARAM_BUFFER && j < f->p_count[i];
             j++)
            f->p[i][j] = 0.5f +
                         0.25f *
                             f->p[i][j]; /* it may be a variance, so it is positive */
    }
}

/* ---- The grid --------------------------------------------------------------- */

/* Two and four dimensions, with odd sizes and sizes of 1. */
static const dlc_shape grid[] = {
    {4, {2, 3, 5, 7}}, {4, {1, 4, 6, 6}}, {4, {3, 16, 4, 4}}, {4, {4, 1, 9, 3}},
    {2, {3, 8}},       {2, {1, 5}},       {2, {5, 17}},
};
enum { SHAPES = sizeof grid / sizeof *grid };

/* The inputs of kind 0 .. KINDS-1: one input, two of one shape, or one and labels. */
static void make_inputs(int kind, const dlc_shape *shape, layer_inputs *inputs) {
    *inputs = (layer_inputs){.count = kind + 1, .shape = {*shape, *shape, *shape}};
    if (kind < 2)
        return;
    inputs->count = 2;
    inputs->labels = 1;
    inputs->shape[1] = (dlc_shape){.rank = 1, .dims = {shape->dims[0]}};
}

enum { KINDS = 3 };

static int takes_labels(const suite_run *run) {
    return (run->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)) != 0;
}

static void over_grid(suite_run *run, dlc_phase phase, uint64_t unwanted,
                      layer_visitor *visit) {
    int taken = 0;
    for (int shape = 0; shape < SHAPES; shape++)
        for (int kind = takes_labels(run) ? KINDS - 1 : 0;
             kind < (takes_labels(run) ? KINDS : KINDS - 1); kind++) {
            layer_inputs inputs;
            layer_fixture f;
            make_inputs(kind, &grid[shape], &inputs);
            if (open_fixture(run, phase, unwanted, &inputs, &f) != DLC_OK)
                continue;
            visit(&f);
            close_fixture(&f);
            taken++;
        }
    if (!taken)
        suite_skip(run, "it accepts none of the inputs that this check tries: %s",
                   dlc_detail());
}

void layer_over_grid(suite_run *run, dlc_phase phase, layer_visitor *visit) {
    over_grid(run, phase, 0, visit);
}

void layer_over_grid_of_data(suite_run *run, layer_visitor *visit) {
    over_grid(run, DLC_PHASE_TRAIN, 1, visit);
}

/* Implements the passes of the layer fixture: layouts, what a net does with memory, and
 * what a call may not touch. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "device_call.h"
#include "guard.h"
#include "layer_fixture.h"

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
    device_call call = {.run = f->run, .device = &f->device};
    src = device_call_take(&call, src, dlc_tensor_bytes(from));
    void *to_here = device_call_take(&call, dst, dlc_tensor_bytes(to));
    device_call_finish(&call, family->reorder_run(there, src, to_here), "reorder_run");
    family->reorder_destroy(there);
}

/* The layer before it may write its type in the plain layout. */
static void reorder_input(layer_fixture *f, int32_t i, const void *src, void *dst) {
    dlc_tensor between = f->plain_in[i];
    dlc_dtype precision = f->build.precision;
    if (precision == DLC_F32 || between.dtype != DLC_F32 || f->build.float32_inputs) {
        reorder(f, &f->plain_in[i], src, &f->in[i], dst);
        return;
    }
    between.dtype = precision;
    void *memory = dlc_alloc(f->x_count[i] + 1, sizeof(float));
    if (!memory)
        suite_skip(f->run, "out of memory");
    reorder(f, &f->plain_in[i], src, &between, memory);
    reorder(f, &between, memory, &f->in[i], dst);
    dlc_free(memory);
}

void layer_fixture_import_one(layer_fixture *f, int32_t i) {
    device_call call = {.run = f->run, .device = &f->device};
    float *own = device_call_take(&call, f->memory->param[i], layer_param_bytes(f, i));
    device_call_finish(&call, f->ops->param_import(f->layer, i, f->p[i], own),
                       "param_import");
}

void layer_fixture_export_one(layer_fixture *f, int32_t i, const void *own) {
    device_call call = {.run = f->run, .device = &f->device};
    const float *there = device_call_take(&call, own, layer_param_bytes(f, i));
    device_call_finish(&call, f->ops->param_export(f->layer, i, there, f->dp[i]),
                       "param_export");
}

void layer_fixture_import(layer_fixture *f) {
    const layer_fixture *trained = f->build.trained;
    for (int32_t i = 0; i < f->prepared.params; i++)
        if (trained)
            memcpy(f->memory->param[i], trained->memory->param[i],
                   layer_param_bytes(f, i));
        else if (DLC_CAN(f->ops, param_import))
            layer_fixture_import_one(f, i);
        else
            memcpy(f->memory->param[i], f->p[i], f->p_count[i] * sizeof(float));
}

static void export_gradients(layer_fixture *f) {
    for (int32_t i = 0; i < f->prepared.params; i++) {
        const float *own = f->memory->param_diff[i];
        if (!own)
            continue;
        if (DLC_CAN(f->ops, param_export))
            layer_fixture_export_one(f, i, own);
        else
            memcpy(f->dp[i], own, f->p_count[i] * sizeof(float));
    }
}

/* ---- A pass ----------------------------------------------------------------- */

static dlc_layer_run pass_of(const layer_fixture *f, const layer_memory *m) {
    return (dlc_layer_run){.size = sizeof(dlc_layer_run),
                           .iteration = f->iteration,
                           .sample = f->sample,
                           .in = (const void *const *)m->in,
                           .out = m->out,
                           .out_diff = m->out_diff,
                           .in_diff = m->in_diff,
                           .param = m->param,
                           .param_diff = m->param_diff,
                           .workspace = m->workspace,
                           .scratch = m->scratch,
                           .recompute = f->recompute,
                           .empty = f->empty,
                           .loss_scale = f->loss_scale,
                           .accumulate = f->accumulate};
}

/* ---- Habits ----------------------------------------------------------------- */

/* Bytes that are NaN in every floating-point type. */
static void poison(void *memory, size_t bytes) {
    if (memory)
        memset(memory, 0xff, bytes);
}

static void poison_all(const layer_fixture *f, const layer_memory *m) {
    for (int32_t i = 0; i < f->prepared.inputs; i++) {
        poison(m->in[i], dlc_tensor_bytes(&f->in[i]));
        poison(m->in_diff[i], dlc_tensor_bytes(&f->in[i]));
    }
    for (int32_t i = 0; i < f->prepared.outputs; i++) {
        poison(m->out[i], dlc_tensor_bytes(&f->out[i]));
        poison(m->out_diff[i], dlc_tensor_bytes(&f->out[i]));
    }
    for (int32_t i = 0; i < f->prepared.params; i++) {
        poison(m->param[i], layer_param_bytes(f, i));
        poison(m->param_diff[i], layer_param_bytes(f, i));
    }
    poison(m->workspace, f->prepared.workspace_bytes);
    poison(m->scratch, f->prepared.scratch_bytes);
}

/* Copies what forward leaves for backward. */
static void carry(const layer_fixture *f, const layer_memory *from, layer_memory *to) {
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        memcpy(to->in[i], from->in[i], dlc_tensor_bytes(&f->in[i]));
    for (int32_t i = 0; i < f->prepared.outputs; i++)
        memcpy(to->out[i], from->out[i], dlc_tensor_bytes(&f->out[i]));
    for (int32_t i = 0; i < f->prepared.params; i++)
        memcpy(to->param[i], from->param[i], layer_param_bytes(f, i));
}

void layer_fixture_switch_pass(layer_fixture *f) {
    f->memory = &f->bank[f->memory == &f->bank[0]];
}

static void move(layer_fixture *f, int to_backward) {
    layer_memory *old = f->memory;
    layer_fixture_switch_pass(f);
    if (to_backward) {
        void *workspace = old->workspace;
        old->workspace = f->memory->workspace;
        f->memory->workspace = workspace;
        carry(f, old, f->memory);
    }
    poison_all(f, old);
}

static void poison_undeclared(const layer_fixture *f) {
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (!(f->prepared.reads_in >> i & 1))
            poison(f->memory->in[i], dlc_tensor_bytes(&f->in[i]));
    for (int32_t i = 0; i < f->prepared.outputs; i++)
        if (!(f->prepared.reads_out >> i & 1))
            poison(f->memory->out[i], dlc_tensor_bytes(&f->out[i]));
}

static void poison_gradients(const layer_fixture *f) {
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (!(f->accumulate >> i & 1))
            poison(f->memory->in_diff[i], dlc_tensor_bytes(&f->in[i]));
    for (int32_t i = 0; i < f->prepared.params; i++)
        poison(f->memory->param_diff[i], layer_param_bytes(f, i));
}

int layer_fixture_can_share(const layer_fixture *f, int32_t i) {
    return f->prepared.in_place >> i & 1 &&
           dlc_tensor_bytes(&f->in[i]) == dlc_tensor_bytes(&f->out[0]);
}

/* ---- Memory that only may be read ------------------------------------------- */

/* Memory that a call may read only, and a copy of it. */
typedef struct held {
    const char *what;
    const void *memory;
    void *copy;
    size_t bytes;
} held;

enum { HELD_MOST = FIXTURE_INPUTS + DLC_MAX_OUTPUTS + DLC_MAX_PARAMS };

static void hold(const layer_fixture *f, const char *what, const void *memory,
                 size_t bytes, held **at) {
    held *made = (*at)++;
    *made = (held){what, memory, dlc_alloc(bytes + 1, 1), bytes};
    if (!made->copy)
        suite_skip(f->run, "out of memory");
    memcpy(made->copy, memory, bytes);
}

/* Forward in training may change running averages, unless it is only repeated. */
static int may_change(const layer_fixture *f, int32_t param, int backward) {
    return !backward && !f->recompute && !f->build.frozen &&
           f->build.phase == DLC_PHASE_TRAIN &&
           (f->param[param].flags & DLC_PARAM_BUFFER);
}

/* The copies end with an entry without a `what`. */
static void hold_all(const layer_fixture *f, int backward, held copies[HELD_MOST + 1]) {
    const layer_memory *m = f->memory;
    held *at = copies;
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (m->in[i] != m->out[0])
            hold(f, "an input", m->in[i], dlc_tensor_bytes(&f->in[i]), &at);
    for (int32_t i = 0; backward && i < f->prepared.outputs; i++)
        hold(f, "an output", m->out[i], dlc_tensor_bytes(&f->out[i]), &at);
    for (int32_t i = 0; i < f->prepared.params; i++)
        if (!may_change(f, i, backward))
            hold(f, f->param[i].flags & DLC_PARAM_BUFFER ? "a buffer" : "a weight",
                 m->param[i], layer_param_bytes(f, i), &at);
    *at = (held){.what = NULL};
}

static void compare_held(const layer_fixture *f, const char *call, held *copies) {
    for (held *at = copies; at->what; at++) {
        if (memcmp(at->memory, at->copy, at->bytes) != 0)
            suite_fail(f->run, "%s changes %s, which it may only read", call, at->what);
        dlc_free(at->copy);
    }
}

/* ---- Calls ------------------------------------------------------------------ */

/* With the guards on both sides. */
static void *take_guarded(device_call *call, const void *here, size_t bytes) {
    if (!here)
        return NULL;
    char *there = device_call_take(call, (const char *)here - GUARD_BYTES,
                                   bytes + 2 * (size_t)GUARD_BYTES);
    return there + GUARD_BYTES;
}

/* The memory of a pass as the layer sees it. */
static void take_memory(const layer_fixture *f, device_call *call,
                        layer_memory *there) {
    const layer_memory *m = f->memory;
#define TAKE(field, bytes) there->field = take_guarded(call, m->field, bytes)
    for (int32_t i = 0; i < f->prepared.inputs; i++) {
        TAKE(in[i], dlc_tensor_bytes(&f->in[i]));
        TAKE(in_diff[i], dlc_tensor_bytes(&f->in[i]));
    }
    for (int32_t i = 0; i < f->prepared.outputs; i++) {
        TAKE(out[i], dlc_tensor_bytes(&f->out[i]));
        TAKE(out_diff[i], dlc_tensor_bytes(&f->out[i]));
    }
    for (int32_t i = 0; i < f->prepared.params; i++) {
        TAKE(param[i], layer_param_bytes(f, i));
        TAKE(param_diff[i], layer_param_bytes(f, i));
    }
    TAKE(workspace, f->prepared.workspace_bytes);
    TAKE(scratch, f->prepared.scratch_bytes);
#undef TAKE
}

/* Makes one call, forward or backward, with the memory of this pass. */
static void run_pass(const layer_fixture *f,
                     dlc_status (*pass)(dlc_layer *, const dlc_layer_run *),
                     uint32_t parts, const char *name) {
    device_call call = {.run = f->run, .device = &f->device};
    layer_memory there = {.scratch = NULL};
    take_memory(f, &call, &there);
    dlc_layer_run run = pass_of(f, &there);
    run.backward = parts;
    device_call_finish(&call, pass(f->layer, &run), name);
}

/* ---- Forward and backward --------------------------------------------------- */

static void share(layer_fixture *f, void **one, void *const *other) {
    if (f->habits & LAYER_IN_PLACE)
        *one = *other;
}

void layer_fixture_forward(layer_fixture *f) {
    held copies[HELD_MOST + 1];
    if (f->habits & LAYER_MOVE)
        move(f, 0);
    layer_memory *m = f->memory;
    void *own_output = m->out[0];
    /* A net keeps an input that backward reads. */
    if (!(f->prepared.reads_in >> f->shared & 1))
        share(f, &m->out[0], &m->in[f->shared]);
    if (f->habits & LAYER_POISON_WRITTEN)
        for (int32_t i = 0; i < f->prepared.outputs; i++)
            poison(m->out[i], dlc_tensor_bytes(&f->out[i]));
    if (f->habits & LAYER_POISON_WRITTEN)
        poison(m->workspace, f->prepared.workspace_bytes);
    if (f->habits & LAYER_POISON_SCRATCH)
        poison(m->scratch, f->prepared.scratch_bytes);
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        reorder_input(f, i, f->x[i], m->in[i]);
    layer_fixture_import(f);
    hold_all(f, 0, copies);
    run_pass(f, f->ops->forward, 0, "forward");
    compare_held(f, "forward", copies);
    for (int32_t i = 0; i < f->prepared.outputs; i++)
        if (f->y_at[i + 1] > f->y_at[i])
            reorder(f, &f->out[i], m->out[i], &f->plain_out[i], f->y + f->y_at[i]);
    if (m->out[0] != own_output)
        memcpy(own_output, m->out[0], dlc_tensor_bytes(&f->out[0]));
    m->out[0] = own_output;
}

static void show_gradients(layer_fixture *f) {
    layer_memory *m = f->memory;
    for (int32_t i = 0; i < f->prepared.outputs; i++)
        if (m->out_diff[i] && f->y_at[i + 1] > f->y_at[i])
            reorder(f, &f->plain_out[i], f->dy + f->y_at[i], &f->out[i],
                    m->out_diff[i]);
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (f->accumulate >> i & 1)
            reorder(f, &f->plain_in[i], f->dx[i], &f->in[i], m->in_diff[i]);
}

static void call_backward(const layer_fixture *f, uint32_t parts) {
    run_pass(f, f->ops->backward, parts, "backward");
}

/* The first part must leave the gradients of the second as they are. */
static void call_parts(const layer_fixture *f) {
    static const unsigned char nan[sizeof(float)] = {0xff, 0xff, 0xff, 0xff};
    poison_gradients(f);
    call_backward(f, DLC_BACKWARD_WEIGHTS);
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (f->memory->in_diff[i] && memcmp(f->memory->in_diff[i], nan, 2) != 0)
            suite_fail(f->run,
                       "asked for DLC_BACKWARD_WEIGHTS alone, backward writes "
                       "the gradient of input %d too",
                       (int)i);
    call_backward(f, DLC_BACKWARD_DATA);
}

void layer_fixture_backward(layer_fixture *f) {
    held copies[HELD_MOST + 1];
    if (f->habits & LAYER_MOVE)
        move(f, 1);
    layer_memory *m = f->memory;
    void *own_gradient = m->in_diff[f->shared];
    if (own_gradient && m->out_diff[0])
        share(f, &m->in_diff[f->shared], &m->out_diff[0]);
    if (f->habits & LAYER_POISON_UNDECLARED)
        poison_undeclared(f);
    if (f->habits & LAYER_POISON_WRITTEN)
        poison_gradients(f);
    if (f->habits & LAYER_POISON_SCRATCH)
        poison(m->scratch, f->prepared.scratch_bytes);
    show_gradients(f);
    hold_all(f, 1, copies);
    if (f->habits & LAYER_SPLIT_BACKWARD)
        call_parts(f);
    else
        call_backward(f, f->build.frozen && f->prepared.params ? DLC_BACKWARD_DATA : 0);
    compare_held(f, "backward", copies);
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        if (m->in_diff[i])
            reorder(f, &f->in[i], m->in_diff[i], &f->plain_in[i], f->dx[i]);
    export_gradients(f);
    m->in_diff[f->shared] = own_gradient;
}

/* ---- A rank without samples -------------------------------------------------- */

enum { MARK = 0x6b };

/* Marks what a pass without samples may not write, or (check) fails if the mark has
 * gone. */
static void mark(const layer_fixture *f, void *memory, size_t bytes, int check,
                 const char *what) {
    unsigned char *at = memory;
    for (size_t i = 0; at && i < bytes; i++)
        if (!check)
            at[i] = MARK;
        else if (at[i] != MARK)
            suite_fail(f->run, "in a pass without samples it writes %s", what);
}

static void mark_all(const layer_fixture *f, int check) {
    const layer_memory *m = f->memory;
    for (int32_t i = 0; i < f->prepared.outputs; i++)
        mark(f, m->out[i], dlc_tensor_bytes(&f->out[i]), check, "an output");
    for (int32_t i = 0; i < f->prepared.inputs; i++)
        mark(f, m->in_diff[i], dlc_tensor_bytes(&f->in[i]), check,
             "the gradient of an input");
    for (int32_t i = 0; i < f->prepared.params; i++)
        mark(f, m->param_diff[i], layer_param_bytes(f, i), check,
             "the gradient of a parameter");
}

void layer_fixture_run_empty(layer_fixture *f) {
    f->empty = 1;
    poison_all(f, f->memory);
    mark_all(f, 0);
    layer_fixture_import(f);
    run_pass(f, f->ops->forward, 0, "forward without samples");
    if (layer_fixture_has_backward(f))
        run_pass(f, f->ops->backward, 0, "backward without samples");
    mark_all(f, 1);
    f->empty = 0;
}

/* Builds and runs one layer for tests; see layer_fixture.h. */
#include "layer_fixture.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "target.h"

/* ---- Guarded memory, filled with NaN ------------------------------------------- */

enum { FENCE = 256, FENCE_BYTE = 0xA5 };

typedef struct block {
    dlc_memory memory; /* of the target: the host may not be able to read it */
    size_t bytes;
} block;

static void *block_at(const block *b) {
    return b->memory.base ? (char *)b->memory.base + FENCE : NULL;
}

/* `byte` 0xFF makes NaN. */
static void block_fill(const block *b, int byte) {
    if (b->bytes)
        target_fill(block_at(b), byte, b->bytes);
}

static void block_make(block *b, size_t bytes, int byte) {
    b->memory = target_alloc(bytes + 2 * FENCE);
    b->bytes = bytes;
    target_fill(b->memory.base, FENCE_BYTE, bytes + 2 * FENCE);
    block_fill(b, byte);
}

/* Assertions of Check write to a file even when they hold, so checks in loops are
 * written as if and ck_abort_msg. */
static void block_check(block *b, const char *what) {
    unsigned char fence[2][FENCE];
    if (!b->memory.base)
        return;
    const char *base = b->memory.base;
    target_copy(fence[0], base, FENCE);
    target_copy(fence[1], base + FENCE + b->bytes, FENCE);
    for (size_t i = 0; i < FENCE; i++)
        if (fence[0][i] != FENCE_BYTE || fence[1][i] != FENCE_BYTE)
            ck_abort_msg("the layer wrote beyond its %s", what);
}

static void block_free(block *b, const char *what) {
    (void)what;
    target_free(&b->memory);
}

/* In the layer's own layouts. */
struct fixture_memory {
    block in[DLC_MAX_INPUTS], in_diff[DLC_MAX_INPUTS], out, out_diff;
    block param[DLC_MAX_PARAMS], param_diff[DLC_MAX_PARAMS];
    block workspace, scratch;
};

static void memory_each(struct fixture_memory *m,
                        void (*visit)(block *, const char *)) {
    for (int i = 0; i < DLC_MAX_INPUTS; i++) {
        visit(&m->in[i], "input");
        visit(&m->in_diff[i], "input's gradient");
    }
    for (int i = 0; i < DLC_MAX_PARAMS; i++) {
        visit(&m->param[i], "parameter");
        visit(&m->param_diff[i], "parameter's gradient");
    }
    visit(&m->out, "output");
    visit(&m->out_diff, "output's gradient");
    visit(&m->workspace, "workspace");
    visit(&m->scratch, "scratch");
}

/* ---- The plugin -------------------------------------------------------------- */

const dlc_plugin *fixture_plugin(void) {
    return target_layers();
}

static const dlc_feature *find_feature(const char *type) {
    for (const dlc_feature *f = fixture_plugin()->features; f->name; f = DLC_NEXT(f))
        if (strcmp(f->name, type) == 0)
            return f;
    return NULL;
}

const dlc_feature *fixture_feature(const char *type) {
    const dlc_feature *feature = find_feature(type);
    if (!feature)
        ck_abort_msg("the plugin has no layer %s", type);
    return feature;
}

int fixture_knows(const char *type) {
    return find_feature(type) != NULL;
}

int fixture_takes(const char *type, dlc_dtype precision) {
    uint64_t needs = precision == DLC_F16 ? DLC_LAYER_F16 : DLC_LAYER_BF16;
    return (fixture_feature(type)->caps & needs) != 0;
}

int fixture_has(dlc_dtype precision) {
    const dlc_layer_ops *ops = fixture_feature("relu")->ops;
    dlc_family_args args = {.size = sizeof args,
                            .threads = 1,
                            .phase = DLC_PHASE_TRAIN,
                            .precision = precision};
    void *context = NULL;
    target_family(&args);
    if (!fixture_takes("relu", precision) ||
        ops->family->open(&args, &context) != DLC_OK)
        return 0;
    ops->family->close(context);
    return 1;
}

/* ---- Creating the layer -------------------------------------------------- */

/* Both addresses are target memory. */
static void reorder(fixture *r, const dlc_tensor *from, const void *src,
                    const dlc_tensor *to, void *dst) {
    const dlc_family *family = r->ops->family;
    dlc_reorder *reorder = NULL;
    if (from->dtype == DLC_I32 ||
        (from->dtype == to->dtype && family->same_layout(from, to))) {
        target_copy(dst, src, dlc_tensor_bytes(from));
        return;
    }
    dlc_status status = family->reorder_create(r->context, from, to, &reorder);
    ck_assert_msg(status == DLC_OK, "reorder: %s", dlc_detail());
    ck_assert_int_eq(family->reorder_run(reorder, src, dst), DLC_OK);
    target_sync();
    family->reorder_destroy(reorder);
}

/* The layout of in_data and the other host arrays. */
static dlc_tensor plain_of(const dlc_tensor *tensor) {
    return (dlc_tensor){.shape = tensor->shape,
                        .dtype = tensor->dtype == DLC_I32 ? DLC_I32 : DLC_F32};
}

/* Copies from and to plain host memory. */
static void upload(fixture *r, const float *data, const dlc_tensor *to,
                   const block *b) {
    const dlc_tensor plain = plain_of(to);
    size_t bytes = dlc_tensor_bytes(&plain);
    dlc_memory room = target_alloc(bytes);
    target_copy(room.base, data, bytes);
    reorder(r, &plain, room.base, to, block_at(b));
    target_free(&room);
}

static void download(fixture *r, const dlc_tensor *from, const void *at, float *data) {
    const dlc_tensor plain = plain_of(from);
    size_t bytes = dlc_tensor_bytes(&plain);
    dlc_memory room = target_alloc(bytes);
    reorder(r, from, at, &plain, room.base);
    target_copy(data, room.base, bytes);
    target_free(&room);
}

/* The layout of a convolution that makes this one. By AMX's tiles, for which the choice
 * must be left to it, images are channels last, on CPUs without bfloat16, too. */
static const char *layout_setting(const fixture *r) {
    const char *tiles = getenv("DLCORE_AMX");
    if (strcmp(r->spec.layout, "last") == 0)
        return r->spec.floats == DLC_BF16 && tiles && strcmp(tiles, "emulated") == 0
                   ? "auto"
                   : "channels_last";
    return strcmp(r->spec.layout, "batch_blocked") == 0 ? "batch_blocked" : "library";
}

/* Lets a convolution with one filter per channel choose a layout for in[0], which is
 * the only way to get one of the family's own layouts. Pooling of single elements
 * stands in for it. */
static dlc_status choose_layout(fixture *r) {
    if (!r->spec.layout)
        return DLC_OK;
    const dlc_feature *convolution = find_feature("convolution");
    const dlc_feature *feature = convolution ? convolution : fixture_feature("pooling");
    const dlc_layer_ops *ops = feature->ops;
    char text[128] = "kernel_size=1";
    if (convolution)
        (void)snprintf(text, sizeof text, "num_output=%d kernel_size=1 layout=%s",
                       (int)r->in[0].shape.dims[1], layout_setting(r));
    dlc_settings *settings = target_settings(feature, text);
    dlc_tensor in = {.shape = r->in[0].shape, .dtype = r->in[0].dtype};
    dlc_tensor out[DLC_MAX_OUTPUTS] = {0};
    dlc_param param[DLC_MAX_PARAMS] = {0};
    int64_t param_count[DLC_MAX_PARAMS] = {0};
    dlc_layer_shapes shapes = {.size = sizeof shapes,
                               .inputs = 1,
                               .in = &in,
                               .outputs = 1,
                               .out = out,
                               .param = param};
    dlc_layer_memory memory = {.size = sizeof memory,
                               .inputs = 1,
                               .outputs = 1,
                               .in = &in,
                               .out = out,
                               .param_count = param_count};
    dlc_layer_args args = {.size = sizeof args,
                           .name = "layout",
                           .settings = settings,
                           .context = r->context,
                           .phase = DLC_PHASE_TRAIN};
    dlc_layer *layer = NULL;
    dlc_status status = ops->create(&args, &layer);
    if (status == DLC_OK)
        status = ops->infer(layer, &shapes);
    if (status == DLC_OK)
        status = ops->prepare(layer, &memory);
    r->in[0].layout = out[0].layout;
    r->in[0].bytes = out[0].bytes;
    ops->destroy(layer);
    dlc_settings_free(settings);
    return status;
}

static dlc_status fuse_one(fixture *r, const char *type, const char *text) {
    const dlc_feature *next = fixture_feature(type);
    dlc_settings *settings = target_settings(next, text);
    dlc_status status = r->ops->fuse(r->layer, next, settings);
    dlc_settings_free(settings);
    r->is_fused = status == DLC_OK;
    return status;
}

static dlc_status fuse(fixture *r) {
    dlc_status status = DLC_OK;
    if (r->spec.residual && (status = fuse_one(r, "eltwise", "")) == DLC_OK)
        r->in[r->memory.inputs++] = r->in[0];
    if (r->spec.fused && status == DLC_OK)
        status = fuse_one(r, r->spec.fused_type ? r->spec.fused_type : "relu",
                          r->spec.fused);
    return status;
}

static dlc_status infer(fixture *r) {
    dlc_status status = r->ops->infer(r->layer, &r->shapes);
    if (status != DLC_OK)
        return status;
    r->memory = (dlc_layer_memory){.size = sizeof r->memory,
                                   .inputs = r->shapes.inputs,
                                   .outputs = r->shapes.outputs,
                                   .params = r->shapes.params,
                                   .in = r->in,
                                   .out = r->out,
                                   .param_count = r->param_count};
    for (int32_t i = 0; i < r->memory.params; i++)
        r->param_count[i] = dlc_shape_count(&r->param[i].shape);
    return DLC_OK;
}

static dlc_status build(fixture *r) {
    dlc_family_args family = {.size = sizeof family,
                              .threads = r->spec.threads ? r->spec.threads : 2,
                              .phase = r->spec.phase,
                              .precision = r->spec.floats,
                              .math = r->spec.math};
    target_family(&family);
    dlc_status status = r->ops->family->open(&family, &r->context);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    const fixture *train = r->spec.train_layer;
    dlc_layer_args args = {.size = sizeof args,
                           .name = "layer",
                           .settings = r->settings,
                           .context = r->context,
                           .phase = r->spec.phase,
                           .train_layer = train ? train->layer : NULL,
                           .seed = r->spec.seed,
                           .index = r->spec.index,
                           .channel_begin = r->spec.channel_begin,
                           .channel_end = r->spec.channel_end,
                           .frozen = r->spec.frozen,
                           .plain_params = r->spec.plain_params,
                           .group = r->spec.group};
    if ((status = r->ops->create(&args, &r->layer)) != DLC_OK ||
        (status = infer(r)) != DLC_OK || (status = fuse(r)) != DLC_OK ||
        (status = choose_layout(r)) != DLC_OK)
        return status;
    r->shapes.no_gradient |= r->spec.no_gradient;
    if (r->spec.phase == DLC_PHASE_TRAIN) /* requests all gradients that exist */
        r->memory.wants_gradient = ~r->shapes.no_gradient;
    r->memory.shared_gradient = r->spec.accumulate & r->memory.wants_gradient;
    return r->ops->prepare(r->layer, &r->memory);
}

static void allocate(fixture *r) {
    struct fixture_memory *m = r->buffers;
    for (int32_t i = 0; i < r->memory.inputs; i++) {
        block_make(&m->in[i], dlc_tensor_bytes(&r->in[i]), 0xFF);
        block_make(&m->in_diff[i], dlc_tensor_bytes(&r->in[i]), 0xFF);
        r->in_data[i] = dlc_alloc((size_t)fixture_in_count(r, i), sizeof(float));
        r->in_diff[i] = dlc_alloc((size_t)fixture_in_count(r, i), sizeof(float));
    }
    block_make(&m->out, dlc_tensor_bytes(&r->out[0]), 0xFF);
    block_make(&m->out_diff, dlc_tensor_bytes(&r->out[0]), 0xFF);
    r->out_data = dlc_alloc((size_t)fixture_out_count(r), sizeof(float));
    r->out_diff = dlc_alloc((size_t)fixture_out_count(r), sizeof(float));
    for (int32_t i = 0; i < r->memory.params; i++) {
        size_t bytes = (size_t)r->param_count[i] * sizeof(float);
        /* The core's arenas start as zero. */
        block_make(&m->param[i], bytes, 0);
        block_make(&m->param_diff[i], bytes, 0);
        r->param_data[i] = dlc_alloc((size_t)fixture_param_count(r, i), sizeof(float));
        r->param_diff[i] = dlc_alloc((size_t)fixture_param_count(r, i), sizeof(float));
    }
    block_make(&m->workspace, r->memory.workspace_bytes, 0xFF);
    block_make(&m->scratch, r->memory.scratch_bytes, 0xFF);
}

dlc_status fixture_open(fixture *r, const layer_spec *spec) {
    memset(r, 0, sizeof *r);
    r->spec = *spec;
    if (!r->spec.phase)
        r->spec.phase = DLC_PHASE_TRAIN;
    if (!r->spec.inputs)
        r->spec.inputs = 1;
    if (!r->spec.floats)
        r->spec.floats = DLC_F32;
    r->loss_scale = 1;
    r->feature = fixture_feature(spec->type);
    r->ops = r->feature->ops;
    r->settings = target_settings(r->feature, spec->settings);
    r->buffers = dlc_alloc(1, sizeof *r->buffers);
    for (int32_t i = 0; i < r->spec.inputs; i++) {
        r->in[i].shape = spec->in[i];
        r->in[i].dtype = spec->labels >> i & 1 ? DLC_I32 : r->spec.floats;
    }
    for (int i = 0; i < DLC_MAX_PARAMS; i++)
        r->param[i].size = sizeof(dlc_param);
    r->shapes = (dlc_layer_shapes){.size = sizeof r->shapes,
                                   .inputs = r->spec.inputs,
                                   .in = r->in,
                                   .outputs = 1,
                                   .out = r->out,
                                   .param = r->param};
    dlc_status status = build(r);
    if (status == DLC_OK)
        allocate(r);
    return status;
}

void fixture_close(fixture *r) {
    if (!r->ops)
        return;
    r->ops->destroy(r->layer);
    if (r->context)
        r->ops->family->close(r->context);
    dlc_settings_free(r->settings);
    for (int i = 0; i < DLC_MAX_INPUTS; i++) {
        dlc_free(r->in_data[i]);
        dlc_free(r->in_diff[i]);
    }
    for (int i = 0; i < DLC_MAX_PARAMS; i++) {
        dlc_free(r->param_data[i]);
        dlc_free(r->param_diff[i]);
    }
    dlc_free(r->out_data);
    dlc_free(r->out_diff);
    memory_each(r->buffers, block_free);
    dlc_free(r->buffers);
    memset(r, 0, sizeof *r);
}

/* ---- Running ----------------------------------------------------------------- */

int64_t fixture_in_count(const fixture *r, int32_t i) {
    return dlc_shape_count(&r->in[i].shape);
}

int64_t fixture_out_count(const fixture *r) {
    return dlc_shape_count(&r->out[0].shape);
}

int64_t fixture_param_count(const fixture *r, int32_t i) {
    return dlc_shape_count(&r->param[i].shape);
}

static void param_move(fixture *r, int32_t i, float *plain, void *own, int import) {
    dlc_status status = DLC_OK;
    if (!r->ops->param_import)
        target_copy(import ? own : plain, import ? plain : own,
                    (size_t)fixture_param_count(r, i) * sizeof(float));
    else if (import)
        status = r->ops->param_import(r->layer, i, plain, own);
    else
        status = r->ops->param_export(r->layer, i, own, plain);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

void fixture_param_import(fixture *r, int32_t i, float *plain, float *own) {
    size_t bytes = (size_t)r->param_count[i] * sizeof(float);
    dlc_memory room = target_alloc(bytes);
    target_fill(room.base, 0xFF, bytes);
    param_move(r, i, plain, room.base, 1);
    target_copy(own, room.base, bytes);
    target_free(&room);
}

void fixture_param_export(fixture *r, int32_t i, const float *own, float *plain) {
    size_t bytes = (size_t)r->param_count[i] * sizeof(float);
    dlc_memory room = target_alloc(bytes);
    target_copy(room.base, own, bytes);
    param_move(r, i, plain, room.base, 0);
    target_free(&room);
}

void fixture_param_gradient(const fixture *r, int32_t i, float *own) {
    const block *b = &r->buffers->param_diff[i];
    target_copy(own, block_at(b), b->bytes);
}

/* The pointers of a pass; `run` points into the arrays next to it. */
typedef struct pass {
    const void *in[DLC_MAX_INPUTS];
    void *out[DLC_MAX_OUTPUTS], *out_diff[DLC_MAX_OUTPUTS], *in_diff[DLC_MAX_INPUTS];
    void *param[DLC_MAX_PARAMS], *param_diff[DLC_MAX_PARAMS];
    dlc_layer_run run;
} pass;

/* Are the gradients of the parameters not even requested? */
static int leaves_out_weights(const fixture *r) {
    return r->spec.frozen && r->feature->caps & DLC_LAYER_SPLIT_BACKWARD;
}

static void pass_fill(const fixture *r, pass *p) {
    const struct fixture_memory *m = r->buffers;
    int which = r->spec.in_place - 1;
    int over = which >= 0 && (r->memory.in_place >> which & 1);
    /* As in the core: not if backward reads what would be overwritten. */
    int over_in = over && !(r->memory.reads_in >> which & 1);
    for (int32_t i = 0; i < r->memory.inputs; i++) {
        p->in[i] = block_at(&m->in[i]);
        p->in_diff[i] = (r->unwanted | r->shapes.no_gradient) >> i & 1
                            ? NULL
                            : block_at(&m->in_diff[i]);
    }
    p->out[0] = block_at(over_in ? &m->in[which] : &m->out);
    p->out_diff[0] = block_at(&m->out_diff);
    if (over && p->in_diff[which])
        p->in_diff[which] = block_at(&m->out_diff);
    for (int32_t i = 0; i < r->memory.params; i++) {
        p->param[i] = block_at(&m->param[i]);
        p->param_diff[i] = r->param[i].flags & DLC_PARAM_BUFFER || leaves_out_weights(r)
                               ? NULL
                               : block_at(&m->param_diff[i]);
    }
    p->run = (dlc_layer_run){.size = sizeof p->run,
                             .iteration = r->spec.iteration,
                             .sample = r->spec.sample,
                             .empty = (uint32_t)r->spec.empty,
                             .in = p->in,
                             .out = p->out,
                             .backward = leaves_out_weights(r) ? DLC_BACKWARD_DATA : 0,
                             .out_diff = p->out_diff,
                             .in_diff = p->in_diff,
                             .param = p->param,
                             .param_diff = p->param_diff,
                             .workspace = block_at(&m->workspace),
                             .scratch = block_at(&m->scratch),
                             .loss_scale = r->loss_scale};
}

/* Reads the results of forward. */
static void read_results(fixture *r, const pass *p) {
    download(r, &r->out[0], p->out[0], r->out_data);
    for (int32_t i = 0; i < r->memory.params; i++)
        if (r->param[i].flags & DLC_PARAM_BUFFER)
            param_move(r, i, r->param_data[i], block_at(&r->buffers->param[i]), 0);
}

static dlc_status run_forward(fixture *r, const pass *p) {
    dlc_status status = r->ops->forward(r->layer, &p->run);
    target_sync();
    memory_each(r->buffers, block_check);
    if (status == DLC_OK)
        read_results(r, p);
    return status;
}

dlc_status fixture_forward(fixture *r) {
    struct fixture_memory *m = r->buffers;
    pass p = {0};
    pass_fill(r, &p);
    for (int32_t i = 0; i < r->memory.inputs; i++)
        upload(r, r->in_data[i], &r->in[i], &m->in[i]);
    for (int32_t i = 0; i < r->memory.params; i++)
        param_move(r, i, r->param_data[i], block_at(&m->param[i]), 1);
    return run_forward(r, &p);
}

dlc_status fixture_recompute(fixture *r) {
    pass p = {0};
    pass_fill(r, &p);
    target_fill(p.out[0], 0xFF, dlc_tensor_bytes(&r->out[0]));
    block_fill(&r->buffers->scratch, 0xFF);
    p.run.recompute = 1;
    return run_forward(r, &p);
}

dlc_status fixture_backward(fixture *r) {
    struct fixture_memory *m = r->buffers;
    pass p = {0};
    pass_fill(r, &p);
    upload(r, r->out_diff, &r->out[0], &m->out_diff);
    block_fill(&m->scratch, 0xFF);
    p.run.accumulate = r->memory.accumulates_gradient;
    for (int32_t i = 0; i < r->memory.inputs; i++)
        if (p.run.accumulate >> i & 1)
            upload(r, r->in_diff[i], &r->in[i], &m->in_diff[i]);
    /* What backward says it does not read is overwritten by then. */
    for (int32_t i = 0; i < r->memory.inputs; i++)
        if (!(r->memory.reads_in >> i & 1) && p.in[i] != p.out[0])
            block_fill(&m->in[i], 0xFF);
    if (!(r->memory.reads_out & 1))
        target_fill(p.out[0], 0xFF, dlc_tensor_bytes(&r->out[0]));
    if (r->feature->caps & DLC_LAYER_LOSS)
        p.run.out_diff = NULL;
    dlc_status status = r->ops->backward(r->layer, &p.run);
    target_sync();
    memory_each(m, block_check);
    if (status != DLC_OK)
        return status;
    for (int32_t i = 0; i < r->memory.inputs; i++)
        if (p.in_diff[i])
            download(r, &r->in[i], p.in_diff[i], r->in_diff[i]);
    for (int32_t i = 0; i < r->memory.params; i++)
        if (p.param_diff[i])
            param_move(r, i, r->param_diff[i], block_at(&m->param_diff[i]), 0);
    return DLC_OK;
}

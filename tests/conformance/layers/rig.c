/* See rig.h. */
#include "rig.h"

#include <check.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "plugin/host.h"

/* ---- Fenced memory, filled with NaN ------------------------------------------------
 */

enum { FENCE = 256, FENCE_BYTE = 0xA5 };

typedef struct block {
    unsigned char *base;
    size_t bytes;
} block;

static void *block_make(block *b, size_t bytes) {
    dlc_free(b->base);
    b->bytes = bytes;
    b->base = dlc_alloc(bytes + 2 * FENCE, 1);
    ck_assert_ptr_nonnull(b->base);
    memset(b->base, FENCE_BYTE, FENCE);
    memset(b->base + FENCE + bytes, FENCE_BYTE, FENCE);
    memset(b->base + FENCE, 0xFF, bytes); /* NaN */
    return b->base + FENCE;
}

static void *block_at(const block *b) {
    return b->base ? b->base + FENCE : NULL;
}

/* (An assertion of Check costs a file's write even where it holds, so that those in
 * loops are written as if and ck_abort_msg.) */
static void block_check(const block *b, const char *what) {
    for (size_t i = 0; b->base && i < FENCE; i++)
        if (b->base[i] != FENCE_BYTE || b->base[FENCE + b->bytes + i] != FENCE_BYTE)
            ck_abort_msg("the layer wrote beyond its %s", what);
}

static void block_free(block *b) {
    dlc_free(b->base);
    b->base = NULL;
}

/* In the layer's own layouts. */
struct rig_memory {
    block in[DLC_MAX_INPUTS], in_diff[DLC_MAX_INPUTS], out, out_diff;
    block param[DLC_MAX_PARAMS], param_diff[DLC_MAX_PARAMS];
    block workspace, scratch;
};

static void memory_each(struct rig_memory *m, void (*visit)(block *, const char *)) {
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

static void visit_check(block *b, const char *what) {
    block_check(b, what);
}

static void visit_free(block *b, const char *what) {
    (void)what;
    block_free(b);
}

/* ---- The plugin --------------------------------------------------------------------
 */

const dlc_plugin *rig_plugin(void) {
    static const dlc_plugin *plugin;
    if (plugin)
        return plugin;
    const char *build = getenv("DLCORE_BUILD_DIR");
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/lib/dlcore/1/layers-onednn.so",
                   build ? build : ".");
    /* Also called outside of tests, where Check's assertions may not stand. */
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    const dlc_plugin *found = object ? dlsym(object, DLC_PLUGIN_SYMBOL) : NULL;
    if (!found || found->load(dlc_host_services()) != DLC_OK) {
        (void)fprintf(stderr, "%s: %s\n", path, found ? dlc_detail() : dlerror());
        exit(EXIT_FAILURE);
    }
    plugin = found;
    return plugin;
}

const dlc_feature *rig_feature(const char *type) {
    for (const dlc_feature *f = rig_plugin()->features; f->name; f = DLC_NEXT(f))
        if (strcmp(f->name, type) == 0)
            return f;
    ck_abort_msg("the plugin has no layer %s", type);
    return NULL;
}

int rig_has_bf16(void) {
    const dlc_layer_ops *ops = rig_feature("relu")->ops;
    const dlc_family_args args = {.size = sizeof args,
                                  .threads = 1,
                                  .phase = DLC_PHASE_TRAIN,
                                  .precision = DLC_BF16};
    void *context = NULL;
    if (ops->family->open(&args, &context) != DLC_OK)
        return 0;
    ops->family->close(context);
    return 1;
}

/* "a=1 b=2" as settings of the section [layer]. */
static dlc_settings *settings_make(const dlc_feature *feature, const char *text) {
    const char *sets[32];
    char *copy = dlc_strdup(text ? text : ""), *rest = copy;
    static const char *const standing[] = {"layer", NULL};
    size_t count = 0;
    for (char *word; (word = strsep(&rest, " ")) != NULL;)
        if (*word)
            sets[count++] = dlc_format("layer.%s", word);
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    dlc_settings *settings = NULL;
    ck_assert_int_eq(dlc_config_load(NULL, standing, sets, count, &problems, &config),
                     0);
    dlc_status status = dlc_settings_make(config, "layer", &feature->options, 1,
                                          &problems, &settings);
    ck_assert_msg(status == DLC_OK, "%s: %s", feature->name, dlc_detail());
    ck_assert_msg(dlc_problems_report(&problems) == DLC_OK, "settings of %s: %s",
                  feature->name, text);
    dlc_problems_free(&problems);
    dlc_config_free(config);
    for (size_t i = 0; i < count; i++)
        dlc_free((void *)(uintptr_t)sets[i]);
    dlc_free(copy);
    return settings;
}

/* ---- Building ----------------------------------------------------------------------
 */

static void reorder(rig *r, const dlc_tensor *from, const void *src,
                    const dlc_tensor *to, void *dst) {
    const dlc_family *family = r->ops->family;
    dlc_reorder *reorder = NULL;
    if (from->dtype == DLC_I32 ||
        (from->dtype == to->dtype && family->same_layout(from, to))) {
        memcpy(dst, src, dlc_tensor_bytes(from));
        return;
    }
    dlc_status status = family->reorder_create(r->context, from, to, &reorder);
    ck_assert_msg(status == DLC_OK, "reorder: %s", dlc_detail());
    ck_assert_int_eq(family->reorder_run(reorder, src, dst), DLC_OK);
    family->reorder_destroy(reorder);
}

/* As in_data and the like hold it. */
static dlc_tensor plain_of(const dlc_tensor *tensor) {
    return (dlc_tensor){.shape = tensor->shape,
                        .dtype = tensor->dtype == DLC_I32 ? DLC_I32 : DLC_F32};
}

/* Lets a convolution of one filter a channel choose a layout for in[0]: the only way
 * to come by one of the family's own. */
static dlc_status lend_layout(rig *r) {
    if (!r->spec.layout)
        return DLC_OK;
    const dlc_feature *feature = rig_feature("convolution");
    const dlc_layer_ops *ops = feature->ops;
    char text[128];
    (void)snprintf(text, sizeof text, "num_output=%d kernel_size=1 layout=%s",
                   (int)r->in[0].shape.dims[1],
                   strcmp(r->spec.layout, "last") == 0    ? "channels-last"
                   : strcmp(r->spec.layout, "lanes") == 0 ? "lanes"
                                                          : "library");
    dlc_settings *settings = settings_make(feature, text);
    dlc_tensor in = {.shape = r->in[0].shape, .dtype = r->in[0].dtype};
    dlc_tensor out[DLC_MAX_OUTPUTS] = {0};
    dlc_param param[DLC_MAX_PARAMS] = {0};
    dlc_layer_plan plan = {.size = sizeof plan,
                           .inputs = 1,
                           .in = &in,
                           .outputs = 1,
                           .out = out,
                           .param = param};
    dlc_layer_args args = {.size = sizeof args,
                           .name = "lender",
                           .settings = settings,
                           .context = r->context,
                           .phase = DLC_PHASE_TRAIN};
    dlc_layer *layer = NULL;
    dlc_status status = ops->create(&args, &layer);
    if (status == DLC_OK)
        status = ops->infer(layer, &plan);
    if (status == DLC_OK)
        status = ops->prepare(layer, &plan);
    r->in[0].layout = out[0].layout;
    r->in[0].bytes = out[0].bytes;
    ops->destroy(layer);
    dlc_settings_free(settings);
    return status;
}

static dlc_status absorb_one(rig *r, const char *type, const char *text) {
    const dlc_feature *next = rig_feature(type);
    dlc_settings *settings = settings_make(next, text);
    dlc_status status = r->ops->absorb(r->layer, next, settings);
    dlc_settings_free(settings);
    r->absorbed = status == DLC_OK;
    return status;
}

static dlc_status absorb(rig *r) {
    dlc_status status = DLC_OK;
    const char *type = r->spec.absorb_type ? r->spec.absorb_type : "relu";
    if (r->spec.join && (status = absorb_one(r, "eltwise", "")) == DLC_OK)
        r->in[r->plan.inputs++] = r->in[0];
    if (r->spec.absorb && status == DLC_OK)
        status = absorb_one(r, type, r->spec.absorb);
    return status;
}

static dlc_status build(rig *r) {
    dlc_family_args family = {.size = sizeof family,
                              .threads = r->spec.threads ? r->spec.threads : 2,
                              .phase = r->spec.phase,
                              .precision = r->spec.bf16 ? DLC_BF16 : DLC_F32};
    dlc_status status = r->ops->family->open(&family, &r->context);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    dlc_layer_args args = {.size = sizeof args,
                           .name = "layer",
                           .settings = r->settings,
                           .context = r->context,
                           .phase = r->spec.phase,
                           .twin = r->spec.twin ? r->spec.twin->layer : NULL,
                           .seed = r->spec.seed,
                           .index = r->spec.index};
    if ((status = r->ops->create(&args, &r->layer)) != DLC_OK ||
        (status = r->ops->infer(r->layer, &r->plan)) != DLC_OK ||
        (status = absorb(r)) != DLC_OK || (status = lend_layout(r)) != DLC_OK)
        return status;
    return r->ops->prepare(r->layer, &r->plan);
}

static void allocate(rig *r) {
    struct rig_memory *m = r->memory;
    for (int32_t i = 0; i < r->plan.inputs; i++) {
        (void)block_make(&m->in[i], dlc_tensor_bytes(&r->in[i]));
        (void)block_make(&m->in_diff[i], dlc_tensor_bytes(&r->in[i]));
        r->in_data[i] = dlc_alloc((size_t)rig_in_count(r, i), sizeof(float));
        r->in_diff[i] = dlc_alloc((size_t)rig_in_count(r, i), sizeof(float));
    }
    (void)block_make(&m->out, dlc_tensor_bytes(&r->out[0]));
    (void)block_make(&m->out_diff, dlc_tensor_bytes(&r->out[0]));
    r->out_data = dlc_alloc((size_t)rig_out_count(r), sizeof(float));
    r->out_diff = dlc_alloc((size_t)rig_out_count(r), sizeof(float));
    for (int32_t i = 0; i < r->plan.params; i++) {
        size_t bytes = (size_t)r->param[i].count * sizeof(float);
        /* The core's arenas start as zero. */
        memset(block_make(&m->param[i], bytes), 0, bytes);
        memset(block_make(&m->param_diff[i], bytes), 0, bytes);
        r->param_data[i] = dlc_alloc((size_t)rig_param_count(r, i), sizeof(float));
        r->param_diff[i] = dlc_alloc((size_t)rig_param_count(r, i), sizeof(float));
    }
    (void)block_make(&m->workspace, r->plan.workspace_bytes);
    (void)block_make(&m->scratch, r->plan.scratch_bytes);
}

dlc_status rig_open(rig *r, const rig_spec *spec) {
    memset(r, 0, sizeof *r);
    r->spec = *spec;
    if (!r->spec.phase)
        r->spec.phase = DLC_PHASE_TRAIN;
    if (!r->spec.inputs)
        r->spec.inputs = 1;
    r->loss_scale = 1;
    r->feature = rig_feature(spec->type);
    r->ops = r->feature->ops;
    r->settings = settings_make(r->feature, spec->settings);
    r->memory = dlc_alloc(1, sizeof *r->memory);
    for (int32_t i = 0; i < r->spec.inputs; i++) {
        r->in[i].shape = spec->in[i];
        r->in[i].dtype = spec->labels >> i & 1 ? DLC_I32
                         : spec->bf16          ? DLC_BF16
                                               : DLC_F32;
    }
    for (int i = 0; i < DLC_MAX_PARAMS; i++)
        r->param[i].size = sizeof(dlc_param);
    r->plan = (dlc_layer_plan){.size = sizeof r->plan,
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

void rig_close(rig *r) {
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
    memory_each(r->memory, visit_free);
    dlc_free(r->memory);
    memset(r, 0, sizeof *r);
}

/* ---- Running -----------------------------------------------------------------------
 */

int64_t rig_in_count(const rig *r, int32_t i) {
    return dlc_shape_count(&r->in[i].shape);
}

const float *rig_param_gradient(const rig *r, int32_t i) {
    return block_at(&r->memory->param_diff[i]);
}

int64_t rig_out_count(const rig *r) {
    return dlc_shape_count(&r->out[0].shape);
}

int64_t rig_param_count(const rig *r, int32_t i) {
    return dlc_shape_count(&r->param[i].shape);
}

static void param_move(rig *r, int32_t i, float *plain, block *own, int import) {
    float *at = block_at(own);
    dlc_status status = DLC_OK;
    if (!r->ops->param_import)
        memcpy(import ? at : plain, import ? plain : at,
               (size_t)rig_param_count(r, i) * sizeof(float));
    else if (import)
        status = r->ops->param_import(r->layer, i, plain, at);
    else
        status = r->ops->param_export(r->layer, i, at, plain);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

/* The pointers of a pass; `run` points into the arrays beside it. */
typedef struct pass {
    const void *in[DLC_MAX_INPUTS];
    void *out[DLC_MAX_OUTPUTS], *out_diff[DLC_MAX_OUTPUTS], *in_diff[DLC_MAX_INPUTS];
    void *param[DLC_MAX_PARAMS], *param_diff[DLC_MAX_PARAMS];
    dlc_layer_run run;
} pass;

static void pass_fill(const rig *r, pass *p) {
    const struct rig_memory *m = r->memory;
    int which = r->spec.in_place - 1;
    int over = which >= 0 && (r->plan.in_place >> which & 1);
    /* As the core does: not where backward reads what would be lost. */
    int over_in = over && !(r->plan.reads_in >> which & 1);
    for (int32_t i = 0; i < r->plan.inputs; i++) {
        p->in[i] = block_at(&m->in[i]);
        p->in_diff[i] = (r->unwanted | r->plan.no_gradient) >> i & 1
                            ? NULL
                            : block_at(&m->in_diff[i]);
    }
    p->out[0] = block_at(over_in ? &m->in[which] : &m->out);
    p->out_diff[0] = block_at(&m->out_diff);
    if (over && p->in_diff[which])
        p->in_diff[which] = block_at(&m->out_diff);
    for (int32_t i = 0; i < r->plan.params; i++) {
        p->param[i] = block_at(&m->param[i]);
        p->param_diff[i] = r->param[i].flags & DLC_PARAM_BUFFER
                               ? NULL
                               : block_at(&m->param_diff[i]);
    }
    p->run = (dlc_layer_run){.size = sizeof p->run,
                             .iteration = r->spec.iteration,
                             .sample = r->spec.sample,
                             .in = p->in,
                             .out = p->out,
                             .out_diff = p->out_diff,
                             .in_diff = p->in_diff,
                             .param = p->param,
                             .param_diff = p->param_diff,
                             .workspace = block_at(&m->workspace),
                             .scratch = block_at(&m->scratch),
                             .loss_scale = r->loss_scale};
}

/* Of forward. */
static void read_results(rig *r, const pass *p) {
    dlc_tensor plain = plain_of(&r->out[0]);
    reorder(r, &r->out[0], p->out[0], &plain, r->out_data);
    for (int32_t i = 0; i < r->plan.params; i++)
        if (r->param[i].flags & DLC_PARAM_BUFFER)
            param_move(r, i, r->param_data[i], &r->memory->param[i], 0);
}

dlc_status rig_forward(rig *r) {
    struct rig_memory *m = r->memory;
    pass p = {0};
    pass_fill(r, &p);
    for (int32_t i = 0; i < r->plan.inputs; i++) {
        dlc_tensor plain = plain_of(&r->in[i]);
        reorder(r, &plain, r->in_data[i], &r->in[i], block_at(&m->in[i]));
    }
    for (int32_t i = 0; i < r->plan.params; i++)
        param_move(r, i, r->param_data[i], &m->param[i], 1);
    dlc_status status = r->ops->forward(r->layer, &p.run);
    memory_each(m, visit_check);
    if (status != DLC_OK)
        return status;
    read_results(r, &p);
    return DLC_OK;
}

dlc_status rig_forward_again(rig *r) {
    struct rig_memory *m = r->memory;
    pass p = {0};
    pass_fill(r, &p);
    memset(p.out[0], 0xFF, dlc_tensor_bytes(&r->out[0]));
    memset(block_at(&m->scratch), 0xFF, m->scratch.bytes);
    p.run.again = 1;
    dlc_status status = r->ops->forward(r->layer, &p.run);
    memory_each(m, visit_check);
    if (status != DLC_OK)
        return status;
    read_results(r, &p);
    return DLC_OK;
}

dlc_status rig_backward(rig *r) {
    struct rig_memory *m = r->memory;
    pass p = {0};
    pass_fill(r, &p);
    dlc_tensor plain = plain_of(&r->out[0]);
    reorder(r, &plain, r->out_diff, &r->out[0], block_at(&m->out_diff));
    memset(block_at(&m->scratch), 0xFF, m->scratch.bytes);
    /* What backward says it does not read is gone by then. */
    for (int32_t i = 0; i < r->plan.inputs; i++)
        if (!(r->plan.reads_in >> i & 1) && p.in[i] != p.out[0])
            memset(block_at(&m->in[i]), 0xFF, m->in[i].bytes);
    if (!(r->plan.reads_out & 1))
        memset(p.out[0], 0xFF, dlc_tensor_bytes(&r->out[0]));
    if (r->feature->caps & DLC_LAYER_LOSS)
        p.run.out_diff = NULL;
    dlc_status status = r->ops->backward(r->layer, &p.run);
    memory_each(m, visit_check);
    if (status != DLC_OK)
        return status;
    for (int32_t i = 0; i < r->plan.inputs; i++) {
        if (!p.in_diff[i])
            continue;
        plain = plain_of(&r->in[i]);
        reorder(r, &r->in[i], p.in_diff[i], &plain, r->in_diff[i]);
    }
    for (int32_t i = 0; i < r->plan.params; i++)
        if (p.param_diff[i])
            param_move(r, i, r->param_diff[i], &m->param_diff[i], 0);
    return DLC_OK;
}

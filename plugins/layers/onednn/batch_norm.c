/* batch_norm: each channel is brought to mean 0 and variance 1 over the batch, then
 * scaled and shifted by trained numbers. Testing uses running averages instead, which
 * training keeps as parameters without a gradient (DLC_PARAM_BUFFER). */
#include "relu.h"

#include <stdio.h>

typedef struct batch_norm {
    dlc_layer head;
    float epsilon, momentum;
    int affine, fixed; /* scale and bias; running averages in training too */
    const char *filler[2];
    double rate[2], decay[2];
    int64_t channels, samples; /* samples: numbers of a channel in a batch */
    relu_absorbed relu;
    op forward, backward;
    float *unwanted; /* where a gradient goes that nobody asked for */
    size_t bytes;
} batch_norm;

const dlc_option batch_norm_options[] = {
    DLC_FLOAT("eps", "1e-5", 0, 1, "added to the variance before its root is taken"),
    DLC_FLOAT("momentum", "0.9", 0, 1,
              "share of the old value when a running average takes in a batch"),
    DLC_BOOL("scale_bias", "yes", "scale and shift each channel by trained numbers"),
    DLC_BOOL(
        "use_global_stats", "no",
        "normalise by the running averages in training too, and leave them as they "
        "are"),
    DLC_FILLER("scale_filler", "constant(1)", "how the scale starts"),
    DLC_FILLER("bias_filler", "constant(0)", "how the bias starts"),
    DLC_FLOAT("scale_rate", "1", 0, 1e6,
              "the scale's learning rate is the solver's times this"),
    DLC_FLOAT("scale_decay", "1", 0, 1e6,
              "the scale's weight decay is the solver's times this"),
    DLC_FLOAT("bias_rate", "1", 0, 1e6,
              "the bias' learning rate is the solver's times this"),
    DLC_FLOAT("bias_decay", "1", 0, 1e6,
              "the bias' weight decay is the solver's times this"),
    DLC_OPTIONS_END,
};

static int training(const batch_norm *norm) {
    return norm->head.phase == DLC_PHASE_TRAIN;
}

/* Are the mean and variance those of the batch? */
static int by_batch(const batch_norm *norm) {
    return training(norm) && !norm->fixed;
}

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    const dlc_settings *settings = args->settings;
    dlc_status status = layer_alloc(args, sizeof(batch_norm), out);
    if (status != DLC_OK)
        return status;
    batch_norm *norm = (batch_norm *)*out;
    norm->epsilon = (float)host->get_float(settings, "eps");
    norm->momentum = (float)host->get_float(settings, "momentum");
    norm->affine = host->get_bool(settings, "scale_bias");
    norm->fixed = host->get_bool(settings, "use_global_stats");
    norm->filler[0] = host->get_string(settings, "scale_filler");
    norm->filler[1] = host->get_string(settings, "bias_filler");
    norm->rate[0] = host->get_float(settings, "scale_rate");
    norm->rate[1] = host->get_float(settings, "bias_rate");
    norm->decay[0] = host->get_float(settings, "scale_decay");
    norm->decay[1] = host->get_float(settings, "bias_decay");
    return DLC_OK;
}

static void destroy(dlc_layer *layer) {
    batch_norm *norm = (batch_norm *)layer;
    if (!norm)
        return;
    op_clear(&norm->forward);
    op_clear(&norm->backward);
    host->free(norm->unwanted);
    layer_free(layer);
}

static void set_params(const batch_norm *norm, dlc_layer_plan *plan) {
    static const char *const name[4] = {"scale", "bias", "mean", "variance"};
    plan->params = 0;
    for (int i = norm->affine ? 0 : 2; i < 4; i++) {
        dlc_param *param = &plan->param[plan->params++];
        param->name = name[i];
        param->shape = (dlc_shape){.rank = 1, .dims = {norm->channels}};
        param->count = norm->channels;
        param->fan_in = param->fan_out = 1;
        param->flags = i < 2 ? 0 : DLC_PARAM_BUFFER;
        param->filler = i < 2    ? norm->filler[i]
                        : i == 2 ? "constant(0)"
                                 : "constant(1)";
        param->rate = i < 2 ? norm->rate[i] : 0;
        param->decay = i < 2 ? norm->decay[i] : 0;
    }
}

static dlc_status infer(dlc_layer *layer, dlc_layer_plan *plan) {
    batch_norm *norm = (batch_norm *)layer;
    dlc_status status = need_inputs(layer, plan, 1);
    if (status == DLC_OK)
        status = need_floats(layer, plan, 2, 5);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &plan->in[0].shape;
    norm->channels = in->dims[1];
    norm->samples = dlc_shape_count(in) / norm->channels;
    if (by_batch(norm) && norm->samples < 2)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': its input %s has one number a channel, which has no "
            "variance; take a larger batch",
            layer->name, shape_print(in).text);
    set_params(norm, plan);
    same_shape(plan);
    return DLC_OK;
}

static dlc_status absorb(dlc_layer *layer, const dlc_feature *next,
                         const dlc_settings *settings) {
    batch_norm *norm = (batch_norm *)layer;
    dlc_status status = relu_absorb(&norm->relu, next, settings);
    if (status == DLC_OK &&
        norm->relu.slope != 0) { /* oneDNN fuses the plain one only */
        norm->relu.on = 0;
        return DLC_ERR_UNSUPPORTED;
    }
    return status;
}

static unsigned flags_of(const batch_norm *norm) {
    unsigned flags = dnnl_normalization_flags_none;
    if (norm->affine)
        flags |= (unsigned)dnnl_use_scale | (unsigned)dnnl_use_shift;
    if (!by_batch(norm))
        flags |= (unsigned)dnnl_use_global_stats;
    if (norm->relu.on)
        flags |= (unsigned)dnnl_fuse_norm_relu;
    return flags;
}

/* Workspace: mean and variance of the batch, and oneDNN's own (relu's mask). */
static size_t statistics_bytes(const batch_norm *norm) {
    return round64((size_t)norm->channels * sizeof(float));
}

/* The arguments with one number a channel. */
static dlc_status name_arguments(const batch_norm *norm, op *o, int backward) {
    static const struct {
        int arg, affine, forward, backward;
    } rows[] = {
        {DNNL_ARG_MEAN, 0, 1, 1},
        {DNNL_ARG_VARIANCE, 0, 1, 1},
        {DNNL_ARG_SCALE, 1, 1, 1},
        {DNNL_ARG_SHIFT, 1, 1, NORM_BACKWARD_TAKES_SHIFT},
        {DNNL_ARG_DIFF_SCALE, 1, 0, 1},
        {DNNL_ARG_DIFF_SHIFT, 1, 0, 1},
    };
    const dlc_shape shape = {.rank = 1, .dims = {norm->channels}};
    const dlc_layout *layout = layout_plain(norm->head.net, &shape);
    dlc_status status = layout ? DLC_OK : DLC_ERR_NOMEM;
    for (size_t i = 0; i < sizeof rows / sizeof *rows && status == DLC_OK; i++)
        if ((backward ? rows[i].backward : rows[i].forward) &&
            (norm->affine || !rows[i].affine))
            status = op_argument(o, rows[i].arg, layout);
    return status;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_plan *plan) {
    batch_norm *norm = (batch_norm *)layer;
    context *net = layer->net;
    const dlc_layout *layout = NULL;
    dlc_status status = same_layout(layer, plan, &layout);
    if (status != DLC_OK)
        return status;
    pd_env env = {.engine = net->engine, .attr = net->attr};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = pd_norm_forward(
        &env, training(norm) ? dnnl_forward_training : dnnl_forward_inference,
        norm->epsilon, flags_of(norm), layout->md, &pd);
    status = op_init(&norm->forward, net, layer->name, "do its forward pass", st, pd);
    if (status == DLC_OK)
        status = name_arguments(norm, &norm->forward, 0);
    if (status != DLC_OK)
        return status;
    plan->scratch_bytes = norm->forward.scratch_bytes;
    if (!training(norm))
        return DLC_OK;
    md_t workspace = op_md(&norm->forward, dnnl_query_workspace_md);
    plan->workspace_bytes = 2 * statistics_bytes(norm) +
                            (workspace ? dnnl_memory_desc_get_size(workspace) : 0);
    plan->reads_in = 1;
    norm->bytes = layout->bytes;
    env.hint = norm->forward.pd;
    st = pd_norm_backward(&env, norm->affine ? dnnl_backward : dnnl_backward_data,
                          norm->epsilon, flags_of(norm), layout->md, &pd);
    status = op_init(&norm->backward, net, layer->name, "do its backward pass", st, pd);
    if (status != DLC_OK)
        return status;
    if (norm->backward.scratch_bytes > plan->scratch_bytes)
        plan->scratch_bytes = norm->backward.scratch_bytes;
    return name_arguments(norm, &norm->backward, 1);
}

/* Where mean, variance and oneDNN's workspace are in this pass. */
typedef struct places {
    float *mean, *variance;
    void *workspace;
} places;

static places places_of(const batch_norm *norm, const dlc_layer_run *run) {
    int first = norm->affine ? 2 : 0;
    size_t bytes = statistics_bytes(norm);
    places at = {.mean = run->param[first], .variance = run->param[first + 1]};
    if (by_batch(norm)) {
        at.mean = run->workspace;
        at.variance = at_offset(run->workspace, bytes);
    }
    if (training(norm))
        at.workspace = at_offset(run->workspace, 2 * bytes);
    return at;
}

/* The variance of what the batch was drawn from, as Caffe takes it. */
static void update_averages(const batch_norm *norm, const places *batch,
                            const dlc_layer_run *run) {
    int first = norm->affine ? 2 : 0;
    float *mean = run->param[first], *variance = run->param[first + 1];
    float old = norm->momentum, now = 1 - old;
    float unbiased = (float)norm->samples / (float)(norm->samples - 1);
    for (int64_t c = 0; c < norm->channels; c++) {
        mean[c] = old * mean[c] + now * batch->mean[c];
        variance[c] = old * variance[c] + now * unbiased * batch->variance[c];
    }
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    batch_norm *norm = (batch_norm *)layer;
    places at = places_of(norm, run);
    dlc_status status = OP_RUN(
        &norm->forward, {DNNL_ARG_SRC, run->in[0]}, {DNNL_ARG_DST, run->out[0]},
        {DNNL_ARG_MEAN, at.mean}, {DNNL_ARG_VARIANCE, at.variance},
        {DNNL_ARG_SCALE, norm->affine ? run->param[0] : NULL},
        {DNNL_ARG_SHIFT, norm->affine ? run->param[1] : NULL},
        {DNNL_ARG_WORKSPACE, at.workspace}, {DNNL_ARG_SCRATCHPAD, run->scratch});
    if (status == DLC_OK && by_batch(norm))
        update_averages(norm, &at, run);
    return status;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    batch_norm *norm = (batch_norm *)layer;
    places at = places_of(norm, run);
    void *in_diff = run->in_diff[0];
    if (!in_diff) {
        if (!norm->unwanted && !(norm->unwanted = host->alloc(norm->bytes)))
            return DLC_ERR_NOMEM;
        in_diff = norm->unwanted;
    }
    const op_bind binds[] = {
        {DNNL_ARG_SRC, run->in[0]},
        {DNNL_ARG_DIFF_DST, run->out_diff[0]},
        {DNNL_ARG_DIFF_SRC, in_diff},
        {DNNL_ARG_MEAN, at.mean},
        {DNNL_ARG_VARIANCE, at.variance},
        {DNNL_ARG_WORKSPACE, at.workspace},
        {DNNL_ARG_SCRATCHPAD, run->scratch},
        {DNNL_ARG_SCALE, norm->affine ? run->param[0] : NULL},
        {DNNL_ARG_DIFF_SCALE, norm->affine ? run->param_diff[0] : NULL},
        {DNNL_ARG_DIFF_SHIFT, norm->affine ? run->param_diff[1] : NULL},
        {DNNL_ARG_SHIFT, norm->affine ? run->param[1] : NULL},
    };
    int count = (int)(sizeof binds / sizeof *binds);
    return op_run_all(&norm->backward, binds, count - !NORM_BACKWARD_TAKES_SHIFT);
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    const batch_norm *norm = (const batch_norm *)layer;
    (void)snprintf(text, bytes, "%s%s", op_name(&norm->forward),
                   norm->relu.on ? " +relu" : "");
}

const dlc_layer_ops batch_norm_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = destroy,
    .infer = infer,
    .absorb = absorb,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};

/* lrn: local response normalisation, x / (k + alpha / n * sum x^2)^beta, the sum over
 * neighbouring channels or over the neighbourhood in the image (n: how many there
 * are), as Caffe defines it. */
#include "onednn.h"

#include <stdio.h>
#include <string.h>

typedef struct lrn {
    dlc_layer head;
    pd_lrn how;
    op forward, backward;
} lrn;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    const dlc_settings *settings = args->settings;
    int64_t size = host->get_int(settings, "local_size");
    if (size % 2 == 0)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': local_size = %lld must be odd, so that its middle "
            "is the element itself",
            args->name, (long long)size);
    dlc_status status = layer_alloc(args, sizeof(lrn), out);
    if (status != DLC_OK)
        return status;
    /* A single element is its own neighbourhood either way; and oneDNN 2.6 crashes when
     * it compiles that across channels. */
    const char *region = size == 1 ? "within_channel"
                                   : host->get_string(settings, "norm_region");
    ((lrn *)*out)->how = (pd_lrn){
        .kind = strcmp(region, "within_channel") == 0 ? dnnl_lrn_within_channel
                                                      : dnnl_lrn_across_channels,
        .size = size,
        .alpha = (float)host->get_float(settings, "alpha"),
        .beta = (float)host->get_float(settings, "beta"),
        .k = (float)host->get_float(settings, "k"),
    };
    return DLC_OK;
}

static void destroy(dlc_layer *layer) {
    if (!layer)
        return;
    op_clear(&((lrn *)layer)->forward);
    op_clear(&((lrn *)layer)->backward);
    layer_free(layer);
}

/* Workspace: what oneDNN's forward leaves for backward. */
static dlc_status make_backward(lrn *l, dlc_layer_memory *memory,
                                const dlc_layout *layout) {
    context *net = l->head.net;
    md_t workspace = op_md(&l->forward, dnnl_query_workspace_md);
    memory->workspace_bytes = workspace ? dnnl_memory_desc_get_size(workspace) : 0;
    pd_env env = {.engine = net->engine, .attr = net->attr, .hint = l->forward.pd};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = pd_lrn_backward(&env, &l->how, layout->md, &pd);
    dlc_status status = op_init(&l->backward, net, l->head.name, "do its backward pass",
                                st, pd);
    if (status == DLC_OK && l->backward.scratch_bytes > memory->scratch_bytes)
        memory->scratch_bytes = l->backward.scratch_bytes;
    memory->reads_in = 1;
    return status;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    lrn *l = (lrn *)layer;
    context *net = layer->net;
    const dlc_layout *layout = NULL;
    dlc_status status = same_layout(layer, memory, &layout);
    if (status != DLC_OK)
        return status;
    int train = layer->phase == DLC_PHASE_TRAIN;
    pd_env env = {.engine = net->engine, .attr = net->attr};
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = pd_lrn_forward(
        &env, train ? dnnl_forward_training : dnnl_forward_inference, &l->how,
        layout->md, &pd);
    status = op_init(&l->forward, net, layer->name, "do its forward pass", st, pd);
    if (status != DLC_OK)
        return status;
    memory->scratch_bytes = l->forward.scratch_bytes;
    return train ? make_backward(l, memory, layout) : DLC_OK;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    return OP_RUN(&((lrn *)layer)->forward, {DNNL_ARG_SRC, run->in[0]},
                  {DNNL_ARG_DST, run->out[0]}, {DNNL_ARG_WORKSPACE, run->workspace},
                  {DNNL_ARG_SCRATCHPAD, run->scratch});
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    if (!run->in_diff[0])
        return DLC_OK;
    return OP_RUN(
        &((lrn *)layer)->backward, {DNNL_ARG_SRC, run->in[0]},
        {DNNL_ARG_DIFF_DST, run->out_diff[0]}, {DNNL_ARG_DIFF_SRC, run->in_diff[0]},
        {DNNL_ARG_WORKSPACE, run->workspace}, {DNNL_ARG_SCRATCHPAD, run->scratch});
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)snprintf(text, bytes, "%s", op_name(&((lrn *)layer)->forward));
}

const dlc_layer_ops lrn_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = destroy,
    .infer = infer_image,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};

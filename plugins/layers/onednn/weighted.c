/* What convolution, deconvolution and inner_product share. Weights stay in the layout
 * that forward chose (in a test net: that of the train net's weights; plain if ranks
 * would choose different ones); if a pass needs another layout it reorders them, since
 * they are small compared with activations. In bfloat16 the weights are float32, as
 * solvers need them, in the layout of their gradient; forward rounds them and leaves
 * them to backward. */
#include "weighted.h"

#include <stdio.h>
#include <string.h>

static int training(const weighted *w) {
    return w->head.phase == DLC_PHASE_TRAIN;
}

/* ---- Creating the primitives ---------------------------------------------------- */

static dlc_status make_forward(weighted *w, const dlc_layout *weights,
                               const weighted_choice *choice) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = relu_attr(&w->relu, w->head.net, &attr);
    if (st != dnnl_success)
        return dnnl_failed(st, w->head.name, "set up an activation");
    pd_env env = {.engine = w->head.net->engine, .attr = attr};
    /* Also in a test net: for inference oneDNN might choose a weights layout that it
     * cannot reorder from. */
    st = w->kind->forward(w, &env, dnnl_forward_training, choice->src->md, weights->md,
                          w->linear.has_bias ? w->bias->md : NULL, choice->dst->md,
                          &pd);
    (void)dnnl_primitive_attr_destroy(attr);
    dlc_status status = op_init(&w->forward, w->head.net, w->head.name,
                                "do its forward pass", st, pd);
    if (status != DLC_OK)
        return status;
    w->src = op_layout(&w->forward, dnnl_query_src_md);
    w->dst = op_layout(&w->forward, dnnl_query_dst_md);
    w->forward_weights = op_layout(&w->forward, dnnl_query_weights_md);
    return w->src && w->dst && w->forward_weights ? DLC_OK : DLC_ERR_NOMEM;
}

/* For a test net: reads the weights in the train net's layout, or, if oneDNN has no
 * fast code for that, reorders them first. */
static dlc_status make_test_forward(weighted *w, const dlc_layout *any,
                                    const weighted_choice *choice) {
    context *net = w->head.net;
    const weighted *train = (const weighted *)w->head.train_layer;
    if (!(w->weights = layout_of_md(net, train->weights->md)))
        return DLC_ERR_NOMEM;
    op_clear(&w->own_to_forward);
    dlc_status status = make_forward(w, w->weights, choice);
    if (status == DLC_OK && !pd_is_slow(w->forward.pd))
        return DLC_OK;
    status = make_forward(w, any, choice);
    if (status != DLC_OK || w->forward_weights == w->weights)
        return status;
    return op_reorder(&w->own_to_forward, net, w->head.name, w->weights,
                      w->forward_weights);
}

static dlc_status make_backward_weights(weighted *w, const dlc_layout *gradient) {
    context *net = w->head.net;
    dnnl_primitive_desc_t pd = NULL;
    op_clear(&w->backward_weights);
    w->own_gradient_bytes = w->kind->own_gradient_bytes ? w->kind->own_gradient_bytes(w)
                                                        : 0;
    w->diff_weights = w->plain_weights;
    if (w->own_gradient_bytes)
        return DLC_OK;
    pd_env env = {.engine = net->engine, .attr = net->attr, .hint = w->forward.pd};
    dnnl_status_t st = w->kind->backward_weights(
        w, &env, w->src->md, gradient->md, w->linear.has_bias ? w->bias->md : NULL,
        w->dst->md, &pd);
    dlc_status status = op_init(&w->backward_weights, net, w->head.name,
                                "do its backward pass to the weights", st, pd);
    if (status == DLC_OK)
        w->diff_weights = op_layout(&w->backward_weights, dnnl_query_diff_weights_md);
    return status;
}

/* `any`: weights in oneDNN's choice of layout and this net's precision. */
static dlc_status make_backward_passes(weighted *w, const dlc_layout *weights,
                                       const dlc_layout *gradient) {
    context *net = w->head.net;
    dnnl_primitive_desc_t pd = NULL;
    pd_env env = {.engine = net->engine, .attr = net->attr, .hint = w->forward.pd};
    dlc_status status = make_backward_weights(w, gradient);
    if (status != DLC_OK)
        return status;
    dnnl_status_t st = w->kind->backward_data(w, &env, w->src->md, weights->md,
                                              w->dst->md, &pd);
    status = op_init(&w->backward_data, net, w->head.name,
                     "do its backward pass to the data", st, pd);
    if (status != DLC_OK)
        return status;
    w->data_weights = op_layout(&w->backward_data, dnnl_query_weights_md);
    return w->diff_weights && w->data_weights ? DLC_OK : DLC_ERR_NOMEM;
}

/* Reorders between the layer's own weights and those of its passes, if they differ. */
static dlc_status make_reorders(weighted *w) {
    context *net = w->head.net;
    const char *name = w->head.name;
    dlc_status status = DLC_OK;
    op_clear(&w->own_to_data);
    op_clear(&w->weights_to_own);
    w->kept = training(w) && w->own_to_forward.pd &&
              w->data_weights == w->forward_weights;
    if (w->data_weights != w->weights && !w->kept)
        status = op_reorder(&w->own_to_data, net, name, w->weights, w->data_weights);
    if (status == DLC_OK && w->diff_weights != w->weights)
        status = op_reorder(&w->weights_to_own, net, name, w->diff_weights, w->weights);
    return status;
}

static int is_bf16(const weighted *w) {
    return w->head.net->precision == DLC_BF16;
}

/* As forward reads them. float32 weights with bfloat16 passes: in the layout of their
 * gradient, or plain if there is none. Also plain if ranks would choose different
 * layouts. */
static dlc_status choose_own(weighted *w) {
    w->weights = w->forward_weights;
    if (w->head.plain_params || (is_bf16(w) && !training(w)))
        w->weights = w->plain_weights;
    else if (is_bf16(w))
        w->weights = w->diff_weights;
    op_clear(&w->own_to_forward);
    if (w->weights == w->forward_weights)
        return DLC_OK;
    return op_reorder(&w->own_to_forward, w->head.net, w->head.name, w->weights,
                      w->forward_weights);
}

/* Sets *slow to the number of primitives that use reference code. */
static dlc_status make_all(weighted *w, const dlc_layout *any,
                           const weighted_choice *choice, int *slow) {
    const weighted *train = (const weighted *)w->head.train_layer;
    const dlc_layout *wanted = choice->weights ? choice->weights : any;
    int reads_train_layer = train && train->weights;
    dlc_status status = reads_train_layer ? make_test_forward(w, any, choice)
                                          : make_forward(w, wanted, choice);
    if (status != DLC_OK)
        return status;
    *slow = pd_is_slow(w->forward.pd);
    if (training(w)) {
        const dlc_layout *gradient = is_bf16(w) ? w->any_float32 : wanted;
        status = make_backward_passes(w, wanted, gradient);
        if (status != DLC_OK)
            return status;
        *slow += pd_is_slow(w->backward_data.pd);
        if (!w->own_gradient_bytes)
            *slow += pd_is_slow(w->backward_weights.pd);
    }
    if (!reads_train_layer)
        status = choose_own(w);
    return status == DLC_OK && training(w) ? make_reorders(w) : status;
}

static dlc_status choose(weighted *w, const dlc_layout *any,
                         const weighted_choice *choices, int count) {
    dlc_status status = DLC_ERR_UNSUPPORTED;
    int best = -1, least = 0, slow = 0, last = -1;
    for (int i = 0; i < count; i++) {
        status = make_all(w, any, &choices[i], &slow);
        if (status == DLC_ERR_UNSUPPORTED)
            continue;
        if (status != DLC_OK)
            return status;
        last = i;
        if (best < 0 || slow < least) {
            best = i;
            least = slow;
        }
        if (!slow)
            break;
    }
    if (best < 0 || best == last)
        return best < 0 ? status : DLC_OK;
    return make_all(w, any, &choices[best], &slow);
}

/* Scratch: weights, or their gradient, in another layout, then what the primitives
 * need. Primitives that don't exist need no bytes. */
static void plan_memory(weighted *w, dlc_layer_memory *memory) {
    const op *ops[] = {&w->forward,        &w->backward_data, &w->backward_weights,
                       &w->own_to_forward, &w->own_to_data,   &w->weights_to_own};
    size_t most = training(w) ? w->own_gradient_bytes : 0, bytes = 0;
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        most = max_size(most, ops[i]->scratch_bytes);
    if (w->kept)
        memory->workspace_bytes = round64(w->forward_weights->bytes);
    else if (w->own_to_forward.pd)
        bytes = round64(w->forward_weights->bytes);
    if (w->own_to_data.pd)
        bytes = max_size(bytes, round64(w->data_weights->bytes));
    if (w->weights_to_own.pd)
        bytes = max_size(bytes, round64(w->diff_weights->bytes));
    w->reordered_bytes = bytes;
    memory->scratch_bytes = bytes + most;
    if (!training(w))
        return;
    memory->reads_in = has_weight_gradient(&w->head);
    memory->reads_out = w->relu.on;
}

dlc_status weighted_prepare_params(weighted *w, dlc_layer_memory *memory) {
    context *net = w->head.net;
    memory->param_count[0] = layout_count(w->weights);
    dlc_status status = op_reorder(&w->import_op, net, w->head.name, w->plain_weights,
                                   w->weights);
    return status == DLC_OK ? op_reorder(&w->export_op, net, w->head.name, w->weights,
                                         w->plain_weights)
                            : status;
}

dlc_status weighted_prepare(weighted *w, dlc_layer_memory *memory,
                            const dlc_shape *weights, const weighted_choice *choices,
                            int count) {
    context *net = w->head.net;
    const dlc_shape bias = {.rank = 1, .dims = {w->linear.num_output}};
    const dlc_layout *any = layout_any(net, weights, net->precision);
    w->weights_rank = weights->rank;
    w->bias = layout_plain(net, &bias, DLC_F32);
    w->plain_weights = w->kind->stored(net, weights, DLC_F32);
    w->any_float32 = layout_any(net, weights, DLC_F32);
    if (!any || !w->bias || !w->plain_weights || !w->any_float32)
        return DLC_ERR_NOMEM;
    dlc_status status = choose(w, any, choices, count);
    if (status == DLC_OK)
        status = weighted_prepare_params(w, memory);
    if (status != DLC_OK)
        return status;
    layout_set(&memory->in[0], w->src);
    layout_set(&memory->out[0], w->dst);
    plan_memory(w, memory);
    return DLC_OK;
}

dlc_status weighted_fuse(dlc_layer *layer, const dlc_feature *next,
                         const dlc_settings *settings) {
    return relu_fuse(&((weighted *)layer)->relu, next, settings);
}

/* ---- Forward and backward ------------------------------------------------------- */

dlc_status weighted_forward(dlc_layer *layer, const dlc_layer_run *run) {
    weighted *w = (weighted *)layer;
    const void *weights = run->param[0];
    void *scratch = at_offset(run->scratch, w->reordered_bytes);
    if (w->own_to_forward.pd) {
        void *reordered = w->kept ? run->workspace : run->scratch;
        dlc_status status = OP_RUN(&w->own_to_forward, {DNNL_ARG_FROM, weights},
                                   {DNNL_ARG_TO, reordered},
                                   {DNNL_ARG_SCRATCHPAD, scratch});
        if (status != DLC_OK)
            return status;
        weights = reordered;
    }
    return OP_RUN(&w->forward, {DNNL_ARG_SRC, run->in[0]}, {DNNL_ARG_WEIGHTS, weights},
                  {DNNL_ARG_BIAS, w->linear.has_bias ? run->param[1] : NULL},
                  {DNNL_ARG_DST, run->out[0]}, {DNNL_ARG_SCRATCHPAD, scratch});
}

static dlc_status run_backward_weights(weighted *w, const dlc_layer_run *run,
                                       const void *diff, void *reordered,
                                       void *scratch) {
    void *gradient = w->weights_to_own.pd ? reordered : run->param_diff[0];
    float *bias = w->linear.has_bias ? run->param_diff[1] : NULL;
    dlc_status status = DLC_OK;
    if (w->own_gradient_bytes)
        w->kind->own_gradient(w, run->in[0], diff, gradient, bias, scratch);
    else
        status = OP_RUN(&w->backward_weights, {DNNL_ARG_SRC, run->in[0]},
                        {DNNL_ARG_DIFF_DST, diff}, {DNNL_ARG_DIFF_WEIGHTS, gradient},
                        {DNNL_ARG_DIFF_BIAS, bias}, {DNNL_ARG_SCRATCHPAD, scratch});
    if (status != DLC_OK || !w->weights_to_own.pd)
        return status;
    return OP_RUN(&w->weights_to_own, {DNNL_ARG_FROM, reordered},
                  {DNNL_ARG_TO, run->param_diff[0]}, {DNNL_ARG_SCRATCHPAD, scratch});
}

static dlc_status run_backward_data(weighted *w, const dlc_layer_run *run,
                                    const void *diff, void *reordered, void *scratch) {
    const void *weights = w->kept ? run->workspace : run->param[0];
    if (w->own_to_data.pd) {
        dlc_status status = OP_RUN(&w->own_to_data, {DNNL_ARG_FROM, weights},
                                   {DNNL_ARG_TO, reordered},
                                   {DNNL_ARG_SCRATCHPAD, scratch});
        if (status != DLC_OK)
            return status;
        weights = reordered;
    }
    return OP_RUN(&w->backward_data, {DNNL_ARG_DIFF_DST, diff},
                  {DNNL_ARG_WEIGHTS, weights}, {DNNL_ARG_DIFF_SRC, run->in_diff[0]},
                  {DNNL_ARG_SCRATCHPAD, scratch});
}

dlc_status weighted_backward(dlc_layer *layer, const dlc_layer_run *run) {
    weighted *w = (weighted *)layer;
    const void *diff = run->out_diff[0];
    void *scratch = at_offset(run->scratch, w->reordered_bytes);
    dlc_status status = DLC_OK;
    if (w->relu.on && begins_backward(layer, run))
        relu_mask(&w->relu, w->dst->dtype, layout_count(w->dst), run->out[0],
                  run->out_diff[0]);
    if (wants_backward(run, DLC_BACKWARD_WEIGHTS))
        status = run_backward_weights(w, run, diff, run->scratch, scratch);
    if (status == DLC_OK && wants_backward(run, DLC_BACKWARD_DATA) && run->in_diff[0])
        status = run_backward_data(w, run, diff, run->scratch, scratch);
    return status;
}

/* ---- Parameters -------------------------------------------------------------- */

static dlc_status reorder_param(weighted *w, op *o, int32_t index, const float *from,
                                float *to) {
    if (index == 1) {
        memcpy(to, from, (size_t)w->linear.num_output * sizeof(float));
        return DLC_OK;
    }
    void *scratch = NULL;
    if (o->scratch_bytes && !(scratch = host->alloc(o->scratch_bytes)))
        return DLC_ERR_NOMEM;
    dlc_status status = OP_RUN(o, {DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to},
                               {DNNL_ARG_SCRATCHPAD, scratch});
    host->free(scratch);
    return status;
}

dlc_status weighted_import(dlc_layer *layer, int32_t index, const float *plain,
                           float *own) {
    weighted *w = (weighted *)layer;
    if (index == 0)
        memset(own, 0, w->weights->bytes); /* the padding */
    return reorder_param(w, &w->import_op, index, plain, own);
}

dlc_status weighted_export(dlc_layer *layer, int32_t index, const float *own,
                           float *plain) {
    weighted *w = (weighted *)layer;
    return reorder_param(w, &w->export_op, index, own, plain);
}

void weighted_describe(dlc_layer *layer, char *text, size_t bytes) {
    weighted *w = (weighted *)layer;
    if (!w->forward.pd) {
        (void)snprintf(text, bytes, "not prepared");
        return;
    }
    (void)snprintf(text, bytes, "%s %s%s", op_name(&w->forward), layout_name(w->dst),
                   w->relu.on ? " +relu" : "");
}

void weighted_destroy(dlc_layer *layer) {
    weighted *w = (weighted *)layer;
    if (!w)
        return;
    op *const ops[] = {&w->forward,        &w->backward_data, &w->backward_weights,
                       &w->own_to_forward, &w->own_to_data,   &w->weights_to_own,
                       &w->import_op,      &w->export_op};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        op_clear(ops[i]);
    layer_free(layer);
}

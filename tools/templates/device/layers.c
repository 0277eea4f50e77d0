/* A few layers, so that the device can train something: inner_product, softmax_loss and
 * accuracy, as plain loops over float32 in plain layout. */
#include "device.h"

#include <math.h>

struct dlc_layer {
    const char *name; /* the section of net.ini, for messages */
    dlc_phase phase;
    int64_t samples, inputs;
    int64_t outputs; /* of a sample; number of classes of losses and metrics */
};

/* ---- All layers ------------------------------------------------------------- */

static dlc_status make(const dlc_layer_args *args, dlc_layer **layer) {
    dlc_layer *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->name = args->name;
    made->phase = args->phase;
    *layer = made;
    return DLC_OK;
}

static void destroy(dlc_layer *layer) {
    host->free(layer);
}

static dlc_status need_inputs(const dlc_layer *layer, const dlc_layer_shapes *shapes,
                              int32_t inputs) {
    if (shapes->inputs != inputs)
        return host->fail(DLC_ERR_CONFIG, "layer '%s': takes %d input%s, not %d",
                          layer->name, inputs, inputs == 1 ? "" : "s", shapes->inputs);
    if (shapes->in[0].shape.rank < 2 || shapes->in[0].dtype != DLC_F32)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': its first input must be float32, with one row for "
            "each sample",
            layer->name);
    return DLC_OK;
}

static void want_plain(dlc_tensor *tensor) {
    tensor->layout = NULL;
    tensor->bytes = 0;
}

/* ---- inner_product: y = W x + b --------------------------------------------- */

const dlc_option inner_product_options[] = {
    DLC_INT("num_output", "10", 1, 1 << 24, "number of outputs of a sample"),
    DLC_FILLER("weight_filler", "xavier", "initial values of the weights"),
    DLC_OPTIONS_END,
};

typedef struct product {
    dlc_layer head;
    const char *filler;
} product;

static dlc_status product_create(const dlc_layer_args *args, dlc_layer **layer) {
    product *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->head.name = args->name;
    made->head.outputs = host->get_int(args->settings, "num_output");
    made->filler = host->get_string(args->settings, "weight_filler");
    *layer = &made->head;
    return DLC_OK;
}

static dlc_status product_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    dlc_status rc = need_inputs(layer, shapes, 1);
    if (rc != DLC_OK)
        return rc;
    layer->samples = shapes->in[0].shape.dims[0];
    layer->inputs = dlc_shape_count(&shapes->in[0].shape) / layer->samples;
    shapes->out[0].dtype = DLC_F32;
    shapes->out[0].shape = (dlc_shape){2, {layer->samples, layer->outputs}};
    shapes->multiply_adds = layer->samples * layer->inputs * layer->outputs;
    shapes->params = 2;
    dlc_param *weight = shapes->param, *bias = DLC_NEXT(weight);
    weight->name = "weight";
    weight->shape = (dlc_shape){2, {layer->outputs, layer->inputs}};
    weight->filler = ((product *)layer)->filler;
    weight->fan_in = layer->inputs;
    weight->fan_out = layer->outputs;
    weight->lr_mult = weight->decay_mult = 1;
    bias->name = "bias";
    bias->shape = (dlc_shape){1, {layer->outputs}};
    bias->lr_mult = 1;
    return DLC_OK;
}

static dlc_status product_prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    (void)layer;
    want_plain(&memory->in[0]);
    want_plain(&memory->out[0]);
    memory->reads_in = 1;
    return DLC_OK;
}

static dlc_status product_forward(dlc_layer *layer, const dlc_layer_run *run) {
    const float *x = run->in[0], *bias = run->param[1];
    float *y = run->out[0];
    for (int64_t i = 0; i < layer->samples; i++, x += layer->inputs) {
        const float *weight = run->param[0];
        for (int64_t o = 0; o < layer->outputs; o++, weight += layer->inputs) {
            float sum = bias[o];
            for (int64_t k = 0; k < layer->inputs; k++)
                sum += weight[k] * x[k];
            *y++ = sum;
        }
    }
    return DLC_OK;
}

/* dW = dy x^T and db = dy, accumulated over the batch; dx = W^T dy, if it is wanted. */
static dlc_status product_backward(dlc_layer *layer, const dlc_layer_run *run) {
    int64_t inputs = layer->inputs, outputs = layer->outputs;
    const float *x = run->in[0], *dy = run->out_diff[0], *weight = run->param[0];
    float *dx = run->in_diff[0], *dw = run->param_diff[0], *db = run->param_diff[1];
    for (int64_t i = 0; i < outputs * inputs; i++)
        dw[i] = 0;
    for (int64_t o = 0; o < outputs; o++)
        db[o] = 0;
    for (int64_t i = 0; i < layer->samples; i++, x += inputs, dy += outputs) {
        for (int64_t o = 0; o < outputs; o++) {
            db[o] += dy[o];
            for (int64_t k = 0; k < inputs; k++)
                dw[o * inputs + k] += dy[o] * x[k];
        }
        for (int64_t k = 0; dx && k < inputs; k++) {
            float sum = 0;
            for (int64_t o = 0; o < outputs; o++)
                sum += weight[o * inputs + k] * dy[o];
            *dx++ = sum;
        }
    }
    return DLC_OK;
}

/* ---- Scores and labels ------------------------------------------------------ */

static dlc_status labels_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    dlc_status rc = need_inputs(layer, shapes, 2);
    if (rc != DLC_OK)
        return rc;
    layer->samples = shapes->in[0].shape.dims[0];
    layer->outputs = dlc_shape_count(&shapes->in[0].shape) / layer->samples;
    if (shapes->in[1].dtype != DLC_I32 ||
        dlc_shape_count(&shapes->in[1].shape) != layer->samples)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': its second input must be one label for each sample",
            layer->name);
    shapes->out[0].dtype = DLC_F32; /* a sum, and the number of samples */
    shapes->out[0].shape = (dlc_shape){1, {2}};
    shapes->no_gradient = 2; /* bit 1: the labels */
    return DLC_OK;
}

static dlc_status labels_prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    want_plain(&memory->in[0]);
    want_plain(&memory->in[1]);
    want_plain(&memory->out[0]);
    if (layer->phase == DLC_PHASE_TRAIN)
        memory->reads_in = 3;
    return DLC_OK;
}

/* Counts the samples with a label. Fails if a label has no score. Backward counts
 * again, since other samples may have passed since forward. */
static dlc_status count_labels(const dlc_layer *layer, const int32_t *label,
                               int64_t *counted) {
    *counted = 0;
    for (int64_t i = 0; i < layer->samples; i++) {
        if (label[i] == DLC_LABEL_NONE)
            continue;
        if (label[i] < 0 || label[i] >= layer->outputs)
            return host->fail(DLC_ERR_DATA, "layer '%s': label %d is not in 0 .. %lld",
                              layer->name, label[i], (long long)layer->outputs - 1);
        ++*counted;
    }
    return DLC_OK;
}

/* log(sum of exp(score)), computed so that it cannot overflow. */
static float log_sum_exp(const float *score, int64_t classes) {
    float top = score[0];
    for (int64_t c = 1; c < classes; c++)
        top = score[c] > top ? score[c] : top;
    float sum = expf(score[0] - top);
    for (int64_t c = 1; c < classes; c++)
        sum += expf(score[c] - top);
    return top + logf(sum);
}

static dlc_status loss_forward(dlc_layer *layer, const dlc_layer_run *run) {
    const float *score = run->in[0];
    const int32_t *label = run->in[1];
    float *out = run->out[0];
    double sum = 0;
    int64_t counted;
    dlc_status rc = count_labels(layer, label, &counted);
    if (rc != DLC_OK)
        return rc;
    for (int64_t i = 0; i < layer->samples; i++, score += layer->outputs)
        if (label[i] != DLC_LABEL_NONE)
            sum += (double)(log_sum_exp(score, layer->outputs) - score[label[i]]);
    out[0] = (float)sum;
    out[1] = (float)counted;
    return DLC_OK;
}

/* The gradient of the mean loss over the samples with a label: softmax(scores), minus 1
 * at the label. */
static dlc_status loss_backward(dlc_layer *layer, const dlc_layer_run *run) {
    const float *score = run->in[0];
    const int32_t *label = run->in[1];
    float *diff = run->in_diff[0];
    int64_t counted;
    dlc_status rc = count_labels(layer, label, &counted);
    if (rc != DLC_OK || !diff)
        return rc;
    float scale = counted ? run->loss_scale / (float)counted : 0;
    for (int64_t i = 0; i < layer->samples; i++, score += layer->outputs) {
        float all = log_sum_exp(score, layer->outputs);
        for (int64_t c = 0; c < layer->outputs; c++) {
            float gradient = expf(score[c] - all) - (c == label[i] ? 1.0f : 0.0f);
            *diff++ = label[i] == DLC_LABEL_NONE ? 0 : gradient * scale;
        }
    }
    return DLC_OK;
}

/* A sample counts if it has a label; the core asks before the pass. */
static dlc_status loss_count(dlc_layer *layer, const void *targets, int64_t samples,
                             double *counted) {
    const int32_t *label = targets;
    (void)layer;
    for (int64_t i = 0; i < samples; i++)
        counted[i] = label[i] == DLC_LABEL_NONE ? 0 : 1;
    return DLC_OK;
}

static dlc_status accuracy_infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    dlc_status rc = labels_infer(layer, shapes);
    shapes->no_gradient = 3;
    return rc;
}

static dlc_status accuracy_forward(dlc_layer *layer, const dlc_layer_run *run) {
    const float *score = run->in[0];
    const int32_t *label = run->in[1];
    float *out = run->out[0];
    int64_t right = 0;
    int64_t counted;
    dlc_status rc = count_labels(layer, label, &counted);
    if (rc != DLC_OK)
        return rc;
    for (int64_t i = 0; i < layer->samples; i++, score += layer->outputs) {
        int64_t below = 0;
        for (int64_t c = 0; label[i] != DLC_LABEL_NONE && c < layer->outputs; c++)
            below += score[c] < score[label[i]];
        right += label[i] != DLC_LABEL_NONE && below == layer->outputs - 1;
    }
    out[0] = (float)right;
    out[1] = (float)counted;
    return DLC_OK;
}

/* ---- The family ------------------------------------------------------------- */

/* The layers share nothing, and as all tensors are plain there is nothing to
 * reorder. */
static dlc_status family_open(const dlc_family_args *args, void **context) {
    (void)args;
    *context = NULL;
    return DLC_OK;
}

static void family_close(void *context) {
    (void)context;
}

static int family_same_layout(const dlc_tensor *a, const dlc_tensor *b) {
    return a->layout == b->layout;
}

static dlc_status family_reorder_create(void *context, const dlc_tensor *from,
                                        const dlc_tensor *to, dlc_reorder **reorder) {
    (void)context;
    (void)from;
    (void)to;
    (void)reorder;
    return host->fail(DLC_ERR_UNSUPPORTED, "@NAME@ supports the plain layout only");
}

static dlc_status family_reorder_run(dlc_reorder *reorder, const void *src, void *dst) {
    (void)reorder;
    (void)src;
    (void)dst;
    return host->fail(DLC_ERR_INTERNAL, "@NAME@ supports the plain layout only");
}

static void family_reorder_destroy(dlc_reorder *reorder) {
    (void)reorder;
}

static const dlc_family family = {
    .size = sizeof family,
    .name = "@NAME@",
    .open = family_open,
    .close = family_close,
    .same_layout = family_same_layout,
    .reorder_create = family_reorder_create,
    .reorder_run = family_reorder_run,
    .reorder_destroy = family_reorder_destroy,
    .infers_without_device = 1,
};

const dlc_layer_ops inner_product_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &family,
    .create = product_create,
    .destroy = destroy,
    .infer = product_infer,
    .prepare = product_prepare,
    .forward = product_forward,
    .backward = product_backward,
};

const dlc_layer_ops softmax_loss_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &family,
    .create = make,
    .destroy = destroy,
    .infer = labels_infer,
    .prepare = labels_prepare,
    .forward = loss_forward,
    .backward = loss_backward,
    .count = loss_count,
};

const dlc_layer_ops accuracy_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &family,
    .create = make,
    .destroy = destroy,
    .infer = accuracy_infer,
    .prepare = labels_prepare,
    .forward = accuracy_forward,
};

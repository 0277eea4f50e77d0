/* eltwise: inputs of one shape, joined element by element. Works on the memory as it
 * lies, padding included: sum, product and maximum of zeros are zero. */
#include "relu.h"

#include <stdio.h>
#include <string.h>

typedef enum join { JOIN_SUM, JOIN_PRODUCT, JOIN_MAX } join;

typedef struct eltwise {
    dlc_layer head;
    join how;
    int32_t inputs;
    float factor[DLC_MAX_INPUTS]; /* of a sum */
    size_t factors;               /* given; 0: all are 1 */
    int64_t count;
    relu_absorbed relu;
} eltwise;

const dlc_option eltwise_options[] = {
    DLC_CHOICE("operation", "sum", "sum|product|max", "what is done with the inputs"),
    DLC_FLOATS("coeff", NULL, -1e30, 1e30,
               "factors of the inputs in a sum, one each; 1 unless given"),
    DLC_OPTIONS_END,
};

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    const dlc_settings *settings = args->settings;
    const char *operation = host->get_string(settings, "operation");
    const double *factors = NULL;
    size_t count = host->is_set(settings, "coeff")
                       ? host->get_floats(settings, "coeff", &factors)
                       : 0;
    if (count && strcmp(operation, "sum") != 0)
        return host->fail(DLC_ERR_CONFIG,
                          "layer '%s': coeff is for operation = sum only", args->name);
    if (count > DLC_MAX_INPUTS)
        return host->fail(DLC_ERR_CONFIG,
                          "layer '%s': coeff has %zu factors, more than %d", args->name,
                          count, DLC_MAX_INPUTS);
    dlc_status status = layer_alloc(args, sizeof(eltwise), out);
    if (status != DLC_OK)
        return status;
    eltwise *elt = (eltwise *)*out;
    elt->how = strcmp(operation, "max") == 0       ? JOIN_MAX
               : strcmp(operation, "product") == 0 ? JOIN_PRODUCT
                                                   : JOIN_SUM;
    elt->factors = count;
    for (size_t i = 0; i < DLC_MAX_INPUTS; i++)
        elt->factor[i] = i < count ? (float)factors[i] : 1;
    return DLC_OK;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_plan *plan) {
    eltwise *elt = (eltwise *)layer;
    if (plan->inputs < 1)
        return need_inputs(layer, plan, 1);
    dlc_status status = need_floats(layer, plan, 0, DLC_MAX_DIMS);
    if (status != DLC_OK)
        return status;
    const dlc_shape *first = &plan->in[0].shape;
    for (int32_t i = 1; i < plan->inputs; i++) {
        const dlc_shape *in = &plan->in[i].shape;
        if (in->rank != first->rank ||
            memcmp(in->dims, first->dims, (size_t)in->rank * sizeof in->dims[0]) != 0)
            return host->fail(
                DLC_ERR_CONFIG,
                "layer '%s': all inputs must have one shape, but input 1 is "
                "%s and input %d is %s",
                layer->name, shape_print(first).text, (int)i + 1, shape_print(in).text);
    }
    if (elt->factors && elt->factors != (size_t)plan->inputs)
        return host->fail(
            DLC_ERR_CONFIG, "layer '%s': coeff has %zu factor%s for %d inputs",
            layer->name, elt->factors, elt->factors == 1 ? "" : "s", (int)plan->inputs);
    elt->inputs = plan->inputs;
    same_shape(plan);
    return DLC_OK;
}

static dlc_status absorb(dlc_layer *layer, const dlc_feature *next,
                         const dlc_settings *settings) {
    return relu_absorb(&((eltwise *)layer)->relu, next, settings);
}

/* All take the first layout that is not plain. Workspace: for the maximum, which
 * input it was. */
static dlc_status prepare(dlc_layer *layer, dlc_layer_plan *plan) {
    eltwise *elt = (eltwise *)layer;
    const dlc_layout *layout = NULL;
    for (int32_t i = 0; i < plan->inputs && !layout; i++)
        layout = plan->in[i].layout;
    if (!layout && !(layout = layout_plain(layer->net, &plan->in[0].shape)))
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < plan->inputs; i++)
        layout_give(&plan->in[i], layout);
    layout_give(&plan->out[0], layout);
    elt->count = layout_count(layout);
    if (layer->phase != DLC_PHASE_TRAIN)
        return DLC_OK;
    if (elt->how == JOIN_PRODUCT && plan->inputs > 1)
        plan->reads_in = plan->inputs < 64 ? (1ull << plan->inputs) - 1 : ~0ull;
    if (elt->how == JOIN_MAX)
        plan->workspace_bytes = (size_t)elt->count;
    if (elt->relu.on)
        plan->reads_out = 1;
    return DLC_OK;
}

/* Elements at a time: the output stays in the nearest cache. */
enum { CHUNK = 2048, WORTH_THREADS = 4 * CHUNK };

static void sum_chunk(const eltwise *elt, const dlc_layer_run *run, int64_t at,
                      int64_t n) {
    float *out = (float *)run->out[0] + at;
    const float *in = (const float *)run->in[0] + at;
    for (int64_t k = 0; k < n; k++)
        out[k] = elt->factor[0] * in[k];
    for (int32_t i = 1; i < elt->inputs; i++) {
        in = (const float *)run->in[i] + at;
        float factor = elt->factor[i];
        for (int64_t k = 0; k < n; k++)
            out[k] += factor * in[k];
    }
}

static void product_chunk(const eltwise *elt, const dlc_layer_run *run, int64_t at,
                          int64_t n) {
    float *out = (float *)run->out[0] + at;
    memcpy(out, (const float *)run->in[0] + at, (size_t)n * sizeof(float));
    for (int32_t i = 1; i < elt->inputs; i++) {
        const float *in = (const float *)run->in[i] + at;
        for (int64_t k = 0; k < n; k++)
            out[k] *= in[k];
    }
}

static void max_chunk(const eltwise *elt, const dlc_layer_run *run, int64_t at,
                      int64_t n) {
    float *out = (float *)run->out[0] + at;
    uint8_t *which = elt->head.phase == DLC_PHASE_TRAIN ? (uint8_t *)run->workspace + at
                                                        : NULL;
    memcpy(out, (const float *)run->in[0] + at, (size_t)n * sizeof(float));
    if (which)
        memset(which, 0, (size_t)n);
    for (int32_t i = 1; i < elt->inputs; i++) {
        const float *in = (const float *)run->in[i] + at;
        for (int64_t k = 0; k < n; k++) {
            if (!(in[k] > out[k]))
                continue;
            out[k] = in[k];
            if (which)
                which[k] = (uint8_t)i;
        }
    }
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    static void (*const join_chunk[])(const eltwise *, const dlc_layer_run *, int64_t,
                                      int64_t) = {
        [JOIN_SUM] = sum_chunk, [JOIN_PRODUCT] = product_chunk, [JOIN_MAX] = max_chunk};
    const eltwise *elt = (const eltwise *)layer;
#pragma omp parallel for schedule(static) if (elt->count > WORTH_THREADS)
    for (int64_t at = 0; at < elt->count; at += CHUNK) {
        int64_t n = elt->count - at < CHUNK ? elt->count - at : CHUNK;
        join_chunk[elt->how](elt, run, at, n);
        float *out = (float *)run->out[0] + at;
        if (elt->relu.on)
            for (int64_t k = 0; k < n; k++)
                out[k] = out[k] > 0 ? out[k] : elt->relu.slope * out[k];
    }
    return DLC_OK;
}

/* The gradient of input i, n elements from `at`; diff: of the output, masked. */
static void gradient_chunk(const eltwise *elt, const dlc_layer_run *run, int32_t i,
                           int64_t at, int64_t n, const float *diff) {
    float *to = (float *)run->in_diff[i] + at;
    if (elt->how == JOIN_MAX) {
        const uint8_t *which = (const uint8_t *)run->workspace + at;
        for (int64_t k = 0; k < n; k++)
            to[k] = which[k] == i ? diff[k] : 0;
        return;
    }
    for (int64_t k = 0; k < n; k++)
        to[k] = elt->factor[i] * diff[k];
    for (int32_t j = 0; elt->how == JOIN_PRODUCT && j < elt->inputs; j++) {
        const float *in = (const float *)run->in[j] + at;
        for (int64_t k = 0; j != i && k < n; k++)
            to[k] *= in[k];
    }
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const eltwise *elt = (const eltwise *)layer;
#pragma omp parallel for schedule(static) if (elt->count > WORTH_THREADS)
    for (int64_t at = 0; at < elt->count; at += CHUNK) {
        int64_t n = elt->count - at < CHUNK ? elt->count - at : CHUNK;
        const float *diff = (const float *)run->out_diff[0] + at;
        float masked[CHUNK];
        if (elt->relu.on) {
            relu_mask_some(&elt->relu, n, (const float *)run->out[0] + at, diff,
                           masked);
            diff = masked;
        }
        for (int32_t i = 0; i < elt->inputs; i++)
            if (run->in_diff[i])
                gradient_chunk(elt, run, i, at, n, diff);
    }
    return DLC_OK;
}

static void describe(dlc_layer *layer, char *text, size_t bytes) {
    (void)snprintf(text, bytes, "own%s", ((eltwise *)layer)->relu.on ? " +relu" : "");
}

const dlc_layer_ops eltwise_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = layer_free,
    .infer = infer,
    .absorb = absorb,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe,
};

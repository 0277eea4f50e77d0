/* scale: multiplies each channel by a trained number, and optionally adds another one.
 */
#include "../shared/scale.h"
#include "onednn.h"

#include <string.h>

typedef struct scale {
    scale_layer head;
    int64_t batch, channels, spatial;
    int last; /* channels last */
} scale;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    return scale_layer_alloc(args, sizeof(scale), out);
}

/* A sample's contribution to the gradients of factors and bias, side by side. They are
 * added in the order of the samples, whatever the number of threads. */
static size_t partial_count(const scale *s) {
    return 2 * (size_t)s->channels;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    scale *s = (scale *)layer;
    const dlc_shape *in = &memory->in[0].shape;
    s->batch = in->dims[0];
    s->channels = in->dims[1];
    s->spatial = dlc_shape_count(in) / s->batch / s->channels;
    const dlc_layout *layout = layout_simple(layer->net, &memory->in[0], &s->last);
    if (!layout)
        return DLC_ERR_NOMEM;
    layout_set(&memory->in[0], layout);
    layout_set(&memory->out[0], layout);
    if (!has_weight_gradient(layer)) {
        memory->in_place = 1;
        return DLC_OK;
    }
    memory->reads_in = 1;
    memory->scratch_bytes = (size_t)s->batch * partial_count(s) * sizeof(float);
    return DLC_OK;
}

/* to = from * factor (+ bias), for one sample. */
static void apply(const scale *s, const float *factor, const float *bias,
                  const float *from, float *to) {
    if (s->last) {
        for (int64_t p = 0; p < s->spatial; p++, from += s->channels, to += s->channels)
            for (int64_t c = 0; c < s->channels; c++)
                to[c] = from[c] * factor[c] + (bias ? bias[c] : 0);
        return;
    }
    for (int64_t c = 0; c < s->channels; c++, from += s->spatial, to += s->spatial) {
        float add = bias ? bias[c] : 0;
        for (int64_t p = 0; p < s->spatial; p++)
            to[p] = from[p] * factor[c] + add;
    }
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const scale *s = (const scale *)layer;
    const float *in = run->in[0], *bias = s->head.has_bias ? run->param[1] : NULL;
    float *out = run->out[0];
    int64_t size = s->channels * s->spatial;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < s->batch; n++)
        apply(s, run->param[0], bias, in + n * size, out + n * size);
    return DLC_OK;
}

static void sum_sample(const scale *s, const float *in, const float *diff, float *sum) {
    float *bias = sum + s->channels;
    memset(sum, 0, partial_count(s) * sizeof(float));
    for (int64_t i = 0, size = s->channels * s->spatial; i < size; i++) {
        int64_t c = s->last ? i % s->channels : i / s->spatial;
        sum[c] += diff[i] * in[i];
        bias[c] += diff[i];
    }
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const scale *s = (const scale *)layer;
    const float *in = run->in[0], *diff = run->out_diff[0];
    float *in_diff = run->in_diff[0], *partial = run->scratch;
    int64_t size = s->channels * s->spatial;
    int64_t each = (int64_t)partial_count(s);
    int trains = has_weight_gradient(layer);
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < s->batch; n++) {
        if (trains)
            sum_sample(s, in + n * size, diff + n * size, partial + n * each);
        if (in_diff)
            apply(s, run->param[0], NULL, diff + n * size, in_diff + n * size);
    }
    for (int i = 0; trains && i < (s->head.has_bias ? 2 : 1); i++) {
        float *gradient = run->param_diff[i];
        for (int64_t c = 0; c < s->channels; c++) {
            gradient[c] = 0;
            for (int64_t n = 0; n < s->batch; n++)
                gradient[c] += partial[n * each + i * s->channels + c];
        }
    }
    return DLC_OK;
}

const dlc_layer_ops scale_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = layer_free,
    .infer = scale_infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};

/* Fuses a relu or clip into the layer before it. */
#include "relu.h"

#include "bfloat16.h"

enum { RELU_CHUNK = 4096, WORTH_THREADS = 4 * RELU_CHUNK };

dnnl_status_t relu_attr(const fused_relu *relu, context *net,
                        dnnl_primitive_attr_t *out) {
    dnnl_primitive_attr_t attr = NULL;
    dnnl_post_ops_t ops = NULL;
    dnnl_status_t st = dnnl_primitive_attr_clone(&attr, net->attr);
    if (st != dnnl_success || !relu->on)
        goto done;
    if ((st = dnnl_post_ops_create(&ops)) == dnnl_success &&
        (st = post_ops_eltwise(ops, dnnl_eltwise_relu, relu->bounds.slope, 0)) ==
            dnnl_success)
        st = dnnl_primitive_attr_set_post_ops(attr, ops);
done:
    if (ops)
        (void)dnnl_post_ops_destroy(ops);
    if (st == dnnl_success)
        *out = attr;
    else if (attr)
        (void)dnnl_primitive_attr_destroy(attr);
    return st;
}

static void mask_floats(float slope, int64_t count, const float *out, float *diff) {
    for (int64_t i = 0; i < count; i++)
        diff[i] = out[i] > 0 ? diff[i] : slope * diff[i];
}

static void mask_bf16(float slope, int64_t count, const uint16_t *out, uint16_t *diff) {
    enum { SIGN = 0x8000 };
    for (int64_t i = 0; i < count; i++) {
        int positive = out[i] != 0 && !(out[i] & SIGN);
        if (slope == 0)
            diff[i] = positive ? diff[i] : 0;
        else if (!positive)
            diff[i] = to_bf16(slope * from_bf16(diff[i]));
    }
}

void relu_mask(const fused_relu *relu, dlc_dtype dtype, int64_t count, const void *out,
               void *diff) {
    float slope = relu->bounds.slope;
#pragma omp parallel for schedule(static) if (count > WORTH_THREADS)
    for (int64_t at = 0; at < count; at += RELU_CHUNK) {
        int64_t n = count - at < RELU_CHUNK ? count - at : RELU_CHUNK;
        if (dtype == DLC_BF16)
            mask_bf16(slope, n, (const uint16_t *)out + at, (uint16_t *)diff + at);
        else
            mask_floats(slope, n, (const float *)out + at, (float *)diff + at);
    }
}

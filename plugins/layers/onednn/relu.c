/* Fuses a relu or clip into the layer before it. */
#include "relu.h"

#include "eltwise_kernels.h"

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

void relu_mask(const fused_relu *relu, dlc_dtype dtype, int64_t count, const void *out,
               void *diff) {
    const eltwise_kernels *kernels = eltwise_kernels_here();
    const bounds limit = relu_bounds(relu);
    const int bf16 = dtype == DLC_BF16;
    const size_t bytes = dlc_dtype_bytes(dtype);
#pragma omp parallel for schedule(static) if (count > WORTH_THREADS)
    for (int64_t at = 0; at < count; at += RELU_CHUNK) {
        int64_t n = count - at < RELU_CHUNK ? count - at : RELU_CHUNK;
        void *here = (char *)diff + (size_t)at * bytes;
        kernels->gradient(bf16, (size_t)n, (const char *)out + (size_t)at * bytes, here,
                          &limit, 0, here, NULL);
    }
}

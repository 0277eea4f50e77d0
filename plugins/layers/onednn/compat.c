/* Creates primitive and memory descriptors with oneDNN 2.x and 3.x. */
#include "compat.h"

#include <stdlib.h>
#include <string.h>

static int is_made_by(const_dnnl_primitive_desc_t pd, const char *prefix) {
    const char *name = NULL;
    return dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0, (void *)&name) ==
               dnnl_success &&
           strncmp(name, prefix, strlen(prefix)) == 0;
}

/* oneDNN's first choice for forward convolution reads weights in a layout that its
 * backward passes don't support, which costs two reorders per iteration and gains
 * nothing. */
#define AVOIDED "brgconv:"
#define PREFERRED "jit"

static void replace(dnnl_primitive_desc_t *pd, dnnl_primitive_desc_t by) {
    (void)dnnl_primitive_desc_destroy(*pd);
    *pd = by;
}

#if DNNL_VERSION_MAJOR >= 3

dnnl_status_t md_by_tag(int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                        dnnl_format_tag_t tag, md_t *md) {
    dnnl_memory_desc_t made;
    dnnl_status_t st = dnnl_memory_desc_create_with_tag(&made, rank, dims, type, tag);
    if (st == dnnl_success)
        *md = made;
    return st;
}

dnnl_status_t md_by_strides(int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                            const dnnl_dims_t strides, md_t *md) {
    dnnl_memory_desc_t made;
    dnnl_status_t st = dnnl_memory_desc_create_with_strides(&made, rank, dims, type,
                                                            strides);
    if (st == dnnl_success)
        *md = made;
    return st;
}

dnnl_status_t md_copy(md_t from, md_t *md) {
    dnnl_memory_desc_t made;
    dnnl_status_t st = dnnl_memory_desc_clone(&made, from);
    if (st == dnnl_success)
        *md = made;
    return st;
}

void md_free(md_t md) {
    if (md)
        (void)dnnl_memory_desc_destroy((dnnl_memory_desc_t)(uintptr_t)md);
}

dnnl_data_type_t md_type(md_t md) {
    dnnl_data_type_t type = dnnl_data_type_undef;
    (void)dnnl_memory_desc_query(md, dnnl_query_data_type, &type);
    return type;
}

int md_look(md_t md, md_shape *shape) {
    const dnnl_dims_t *dims, *padded, *strides;
    dnnl_format_kind_t kind;
    if (dnnl_memory_desc_query(md, dnnl_query_format_kind, &kind) != dnnl_success ||
        kind != dnnl_blocked ||
        dnnl_memory_desc_query(md, dnnl_query_ndims_s32, &shape->rank) !=
            dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_nblks_s32, &shape->inner_blocks) !=
            dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_dims, &dims) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_padded_dims, &padded) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_strides, &strides) != dnnl_success)
        return 0;
    size_t bytes = (size_t)shape->rank * sizeof(dnnl_dim_t);
    shape->padded = memcmp(*dims, *padded, bytes) != 0;
    memcpy(shape->dims, *dims, bytes);
    memcpy(shape->strides, *strides, bytes);
    if (!shape->inner_blocks)
        return 1;
    const dnnl_dims_t *sizes, *which;
    if (dnnl_memory_desc_query(md, dnnl_query_inner_blks, &sizes) != dnnl_success ||
        dnnl_memory_desc_query(md, dnnl_query_inner_idxs, &which) != dnnl_success)
        return 0;
    shape->inner_dim = (*which)[shape->inner_blocks - 1];
    shape->inner_size = (*sizes)[shape->inner_blocks - 1];
    return 1;
}

dnnl_status_t memory_point(dnnl_memory_t memory, void *at, dnnl_stream_t stream) {
    (void)stream;
    return dnnl_memory_set_data_handle(memory, at);
}

dnnl_status_t post_ops_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t kind, float alpha,
                               float beta) {
    return dnnl_post_ops_append_eltwise(ops, kind, alpha, beta);
}

dnnl_status_t pd_conv_forward(const pd_env *env, dnnl_prop_kind_t prop,
                              dnnl_alg_kind_t kind, const sliding_window *window,
                              md_t src, md_t weights, md_t bias, md_t dst,
                              dnnl_primitive_desc_t *pd) {
    dnnl_status_t st = dnnl_convolution_forward_primitive_desc_create(
        pd, env->engine, prop, kind, src, weights, bias, dst, window->stride,
        window->dilation, window->pad_begin, window->pad_end, env->attr);
    dnnl_primitive_desc_t other = NULL;
    if (st != dnnl_success || !is_made_by(*pd, AVOIDED) ||
        dnnl_primitive_desc_clone(&other, *pd) != dnnl_success)
        return st;
    while (dnnl_primitive_desc_next_impl(other) == dnnl_success)
        if (is_made_by(other, PREFERRED)) {
            replace(pd, other);
            return st;
        }
    (void)dnnl_primitive_desc_destroy(other);
    return st;
}

dnnl_status_t pd_conv_backward_data(const pd_env *env, dnnl_alg_kind_t kind,
                                    const sliding_window *window, md_t diff_src,
                                    md_t weights, md_t diff_dst,
                                    dnnl_primitive_desc_t *pd) {
    return dnnl_convolution_backward_data_primitive_desc_create(
        pd, env->engine, kind, diff_src, weights, diff_dst, window->stride,
        window->dilation, window->pad_begin, window->pad_end, env->hint, env->attr);
}

dnnl_status_t pd_conv_backward_weights(const pd_env *env, dnnl_alg_kind_t kind,
                                       const sliding_window *window, md_t src,
                                       md_t diff_weights, md_t diff_bias, md_t diff_dst,
                                       dnnl_primitive_desc_t *pd) {
    return dnnl_convolution_backward_weights_primitive_desc_create(
        pd, env->engine, kind, src, diff_weights, diff_bias, diff_dst, window->stride,
        window->dilation, window->pad_begin, window->pad_end, env->hint, env->attr);
}

dnnl_status_t pd_deconv_forward(const pd_env *env, dnnl_prop_kind_t prop,
                                const sliding_window *window, md_t src, md_t weights,
                                md_t bias, md_t dst, dnnl_primitive_desc_t *pd) {
    return dnnl_deconvolution_forward_primitive_desc_create(
        pd, env->engine, prop, dnnl_deconvolution_direct, src, weights, bias, dst,
        window->stride, window->dilation, window->pad_begin, window->pad_end,
        env->attr);
}

dnnl_status_t pd_deconv_backward_data(const pd_env *env, const sliding_window *window,
                                      md_t diff_src, md_t weights, md_t diff_dst,
                                      dnnl_primitive_desc_t *pd) {
    return dnnl_deconvolution_backward_data_primitive_desc_create(
        pd, env->engine, dnnl_deconvolution_direct, diff_src, weights, diff_dst,
        window->stride, window->dilation, window->pad_begin, window->pad_end, env->hint,
        env->attr);
}

dnnl_status_t pd_deconv_backward_weights(const pd_env *env,
                                         const sliding_window *window, md_t src,
                                         md_t diff_weights, md_t diff_bias,
                                         md_t diff_dst, dnnl_primitive_desc_t *pd) {
    return dnnl_deconvolution_backward_weights_primitive_desc_create(
        pd, env->engine, dnnl_deconvolution_direct, src, diff_weights, diff_bias,
        diff_dst, window->stride, window->dilation, window->pad_begin, window->pad_end,
        env->hint, env->attr);
}

dnnl_status_t pd_inner_forward(const pd_env *env, dnnl_prop_kind_t prop, md_t src,
                               md_t weights, md_t bias, md_t dst,
                               dnnl_primitive_desc_t *pd) {
    return dnnl_inner_product_forward_primitive_desc_create(
        pd, env->engine, prop, src, weights, bias, dst, env->attr);
}

dnnl_status_t pd_inner_backward_data(const pd_env *env, md_t diff_src, md_t weights,
                                     md_t diff_dst, dnnl_primitive_desc_t *pd) {
    return dnnl_inner_product_backward_data_primitive_desc_create(
        pd, env->engine, diff_src, weights, diff_dst, env->hint, env->attr);
}

dnnl_status_t pd_inner_backward_weights(const pd_env *env, md_t src, md_t diff_weights,
                                        md_t diff_bias, md_t diff_dst,
                                        dnnl_primitive_desc_t *pd) {
    return dnnl_inner_product_backward_weights_primitive_desc_create(
        pd, env->engine, src, diff_weights, diff_bias, diff_dst, env->hint, env->attr);
}

dnnl_status_t pd_pool_forward(const pd_env *env, dnnl_prop_kind_t prop,
                              dnnl_alg_kind_t kind, const sliding_window *window,
                              md_t src, md_t dst, dnnl_primitive_desc_t *pd) {
    return dnnl_pooling_forward_primitive_desc_create(
        pd, env->engine, prop, kind, src, dst, window->stride, window->kernel,
        window->dilation, window->pad_begin, window->pad_end, env->attr);
}

dnnl_status_t pd_pool_backward(const pd_env *env, dnnl_alg_kind_t kind,
                               const sliding_window *window, md_t diff_src,
                               md_t diff_dst, dnnl_primitive_desc_t *pd) {
    return dnnl_pooling_backward_primitive_desc_create(
        pd, env->engine, kind, diff_src, diff_dst, window->stride, window->kernel,
        window->dilation, window->pad_begin, window->pad_end, env->hint, env->attr);
}

dnnl_status_t pd_resample_forward(const pd_env *env, dnnl_prop_kind_t prop,
                                  dnnl_alg_kind_t kind, md_t src, md_t dst,
                                  dnnl_primitive_desc_t *pd) {
    return dnnl_resampling_forward_primitive_desc_create(pd, env->engine, prop, kind,
                                                         NULL, src, dst, env->attr);
}

dnnl_status_t pd_resample_backward(const pd_env *env, dnnl_alg_kind_t kind,
                                   md_t diff_src, md_t diff_dst,
                                   dnnl_primitive_desc_t *pd) {
    return dnnl_resampling_backward_primitive_desc_create(
        pd, env->engine, kind, NULL, diff_src, diff_dst, env->hint, env->attr);
}

dnnl_status_t pd_eltwise_forward(const pd_env *env, dnnl_prop_kind_t prop,
                                 dnnl_alg_kind_t kind, float alpha, float beta,
                                 md_t data, dnnl_primitive_desc_t *pd) {
    return dnnl_eltwise_forward_primitive_desc_create(pd, env->engine, prop, kind, data,
                                                      data, alpha, beta, env->attr);
}

dnnl_status_t pd_eltwise_backward(const pd_env *env, dnnl_alg_kind_t kind, float alpha,
                                  float beta, md_t data, dnnl_primitive_desc_t *pd) {
    return dnnl_eltwise_backward_primitive_desc_create(
        pd, env->engine, kind, data, data, data, alpha, beta, env->hint, env->attr);
}

dnnl_status_t pd_lrn_forward(const pd_env *env, dnnl_prop_kind_t prop,
                             const pd_lrn *lrn, md_t data, dnnl_primitive_desc_t *pd) {
    return dnnl_lrn_forward_primitive_desc_create(pd, env->engine, prop, lrn->kind,
                                                  data, data, lrn->size, lrn->alpha,
                                                  lrn->beta, lrn->k, env->attr);
}

dnnl_status_t pd_lrn_backward(const pd_env *env, const pd_lrn *lrn, md_t data,
                              dnnl_primitive_desc_t *pd) {
    return dnnl_lrn_backward_primitive_desc_create(
        pd, env->engine, lrn->kind, data, data, data, lrn->size, lrn->alpha, lrn->beta,
        lrn->k, env->hint, env->attr);
}

dnnl_status_t pd_softmax_forward(const pd_env *env, dnnl_prop_kind_t prop, int axis,
                                 md_t data, dnnl_primitive_desc_t *pd) {
    return dnnl_softmax_forward_primitive_desc_create(
        pd, env->engine, prop, dnnl_softmax_accurate, data, data, axis, env->attr);
}

dnnl_status_t pd_softmax_backward(const pd_env *env, int axis, md_t data,
                                  dnnl_primitive_desc_t *pd) {
    return dnnl_softmax_backward_primitive_desc_create(
        pd, env->engine, dnnl_softmax_accurate, data, data, data, axis, env->hint,
        env->attr);
}

#else /* 2.x */

static dnnl_status_t md_keep(const dnnl_memory_desc_t *made, md_t *md) {
    dnnl_memory_desc_t *copy = malloc(sizeof *copy);
    if (!copy)
        return dnnl_out_of_memory;
    *copy = *made;
    *md = copy;
    return dnnl_success;
}

dnnl_status_t md_by_tag(int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                        dnnl_format_tag_t tag, md_t *md) {
    dnnl_memory_desc_t made;
    dnnl_status_t st = dnnl_memory_desc_init_by_tag(&made, rank, dims, type, tag);
    return st == dnnl_success ? md_keep(&made, md) : st;
}

dnnl_status_t md_by_strides(int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                            const dnnl_dims_t strides, md_t *md) {
    dnnl_memory_desc_t made;
    dnnl_status_t st = dnnl_memory_desc_init_by_strides(&made, rank, dims, type,
                                                        strides);
    return st == dnnl_success ? md_keep(&made, md) : st;
}

dnnl_status_t md_copy(md_t from, md_t *md) {
    return md_keep(from, md);
}

void md_free(md_t md) {
    free((void *)(uintptr_t)md);
}

dnnl_data_type_t md_type(md_t md) {
    return md->data_type;
}

int md_look(md_t md, md_shape *shape) {
    if (md->format_kind != dnnl_blocked)
        return 0;
    size_t bytes = (size_t)md->ndims * sizeof(dnnl_dim_t);
    shape->rank = md->ndims;
    shape->inner_blocks = md->format_desc.blocking.inner_nblks;
    shape->padded = memcmp(md->dims, md->padded_dims, bytes) != 0;
    memcpy(shape->dims, md->dims, bytes);
    memcpy(shape->strides, md->format_desc.blocking.strides, bytes);
    if (shape->inner_blocks) {
        const dnnl_blocking_desc_t *blocking = &md->format_desc.blocking;
        shape->inner_dim = blocking->inner_idxs[shape->inner_blocks - 1];
        shape->inner_size = blocking->inner_blks[shape->inner_blocks - 1];
    }
    return 1;
}

dnnl_status_t memory_point(dnnl_memory_t memory, void *at, dnnl_stream_t stream) {
    return dnnl_memory_set_data_handle_v2(memory, at, stream);
}

dnnl_status_t post_ops_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t kind, float alpha,
                               float beta) {
    return dnnl_post_ops_append_eltwise(ops, 1.0f, kind, alpha, beta);
}

/* Second half of every function below: creates a primitive descriptor from an operation
 * descriptor. */
static dnnl_status_t make(const pd_env *env, dnnl_status_t st,
                          const_dnnl_op_desc_t desc, dnnl_primitive_desc_t *pd) {
    if (st != dnnl_success)
        return st;
    return dnnl_primitive_desc_create(pd, desc, env->attr, env->engine, env->hint);
}

static void find_preferred(const pd_env *env, const_dnnl_op_desc_t desc,
                           dnnl_primitive_desc_t *pd) {
    dnnl_primitive_desc_iterator_t each = NULL;
    if (dnnl_primitive_desc_iterator_create(&each, desc, env->attr, env->engine,
                                            env->hint) != dnnl_success)
        return;
    do {
        dnnl_primitive_desc_t other = dnnl_primitive_desc_iterator_fetch(each);
        if (other && is_made_by(other, PREFERRED)) {
            replace(pd, other);
            break;
        }
        (void)dnnl_primitive_desc_destroy(other);
    } while (dnnl_primitive_desc_iterator_next(each) == dnnl_success);
    (void)dnnl_primitive_desc_iterator_destroy(each);
}

dnnl_status_t pd_conv_forward(const pd_env *env, dnnl_prop_kind_t prop,
                              dnnl_alg_kind_t kind, const sliding_window *window,
                              md_t src, md_t weights, md_t bias, md_t dst,
                              dnnl_primitive_desc_t *pd) {
    dnnl_convolution_desc_t desc;
    dnnl_status_t st = dnnl_dilated_convolution_forward_desc_init(
        &desc, prop, kind, src, weights, bias, dst, window->stride, window->dilation,
        window->pad_begin, window->pad_end);
    st = make(env, st, &desc, pd);
    if (st == dnnl_success && is_made_by(*pd, AVOIDED))
        find_preferred(env, &desc, pd);
    return st;
}

dnnl_status_t pd_conv_backward_data(const pd_env *env, dnnl_alg_kind_t kind,
                                    const sliding_window *window, md_t diff_src,
                                    md_t weights, md_t diff_dst,
                                    dnnl_primitive_desc_t *pd) {
    dnnl_convolution_desc_t desc;
    dnnl_status_t st = dnnl_dilated_convolution_backward_data_desc_init(
        &desc, kind, diff_src, weights, diff_dst, window->stride, window->dilation,
        window->pad_begin, window->pad_end);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_conv_backward_weights(const pd_env *env, dnnl_alg_kind_t kind,
                                       const sliding_window *window, md_t src,
                                       md_t diff_weights, md_t diff_bias, md_t diff_dst,
                                       dnnl_primitive_desc_t *pd) {
    dnnl_convolution_desc_t desc;
    dnnl_status_t st = dnnl_dilated_convolution_backward_weights_desc_init(
        &desc, kind, src, diff_weights, diff_bias, diff_dst, window->stride,
        window->dilation, window->pad_begin, window->pad_end);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_deconv_forward(const pd_env *env, dnnl_prop_kind_t prop,
                                const sliding_window *window, md_t src, md_t weights,
                                md_t bias, md_t dst, dnnl_primitive_desc_t *pd) {
    dnnl_deconvolution_desc_t desc;
    dnnl_status_t st = dnnl_dilated_deconvolution_forward_desc_init(
        &desc, prop, dnnl_deconvolution_direct, src, weights, bias, dst, window->stride,
        window->dilation, window->pad_begin, window->pad_end);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_deconv_backward_data(const pd_env *env, const sliding_window *window,
                                      md_t diff_src, md_t weights, md_t diff_dst,
                                      dnnl_primitive_desc_t *pd) {
    dnnl_deconvolution_desc_t desc;
    dnnl_status_t st = dnnl_dilated_deconvolution_backward_data_desc_init(
        &desc, dnnl_deconvolution_direct, diff_src, weights, diff_dst, window->stride,
        window->dilation, window->pad_begin, window->pad_end);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_deconv_backward_weights(const pd_env *env,
                                         const sliding_window *window, md_t src,
                                         md_t diff_weights, md_t diff_bias,
                                         md_t diff_dst, dnnl_primitive_desc_t *pd) {
    dnnl_deconvolution_desc_t desc;
    dnnl_status_t st = dnnl_dilated_deconvolution_backward_weights_desc_init(
        &desc, dnnl_deconvolution_direct, src, diff_weights, diff_bias, diff_dst,
        window->stride, window->dilation, window->pad_begin, window->pad_end);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_inner_forward(const pd_env *env, dnnl_prop_kind_t prop, md_t src,
                               md_t weights, md_t bias, md_t dst,
                               dnnl_primitive_desc_t *pd) {
    dnnl_inner_product_desc_t desc;
    dnnl_status_t st = dnnl_inner_product_forward_desc_init(&desc, prop, src, weights,
                                                            bias, dst);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_inner_backward_data(const pd_env *env, md_t diff_src, md_t weights,
                                     md_t diff_dst, dnnl_primitive_desc_t *pd) {
    dnnl_inner_product_desc_t desc;
    dnnl_status_t st = dnnl_inner_product_backward_data_desc_init(&desc, diff_src,
                                                                  weights, diff_dst);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_inner_backward_weights(const pd_env *env, md_t src, md_t diff_weights,
                                        md_t diff_bias, md_t diff_dst,
                                        dnnl_primitive_desc_t *pd) {
    dnnl_inner_product_desc_t desc;
    dnnl_status_t st = dnnl_inner_product_backward_weights_desc_init(
        &desc, src, diff_weights, diff_bias, diff_dst);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_pool_forward(const pd_env *env, dnnl_prop_kind_t prop,
                              dnnl_alg_kind_t kind, const sliding_window *window,
                              md_t src, md_t dst, dnnl_primitive_desc_t *pd) {
    dnnl_pooling_v2_desc_t desc;
    dnnl_status_t st = dnnl_pooling_v2_forward_desc_init(
        &desc, prop, kind, src, dst, window->stride, window->kernel, window->dilation,
        window->pad_begin, window->pad_end);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_pool_backward(const pd_env *env, dnnl_alg_kind_t kind,
                               const sliding_window *window, md_t diff_src,
                               md_t diff_dst, dnnl_primitive_desc_t *pd) {
    dnnl_pooling_v2_desc_t desc;
    dnnl_status_t st = dnnl_pooling_v2_backward_desc_init(
        &desc, kind, diff_src, diff_dst, window->stride, window->kernel,
        window->dilation, window->pad_begin, window->pad_end);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_resample_forward(const pd_env *env, dnnl_prop_kind_t prop,
                                  dnnl_alg_kind_t kind, md_t src, md_t dst,
                                  dnnl_primitive_desc_t *pd) {
    dnnl_resampling_desc_t desc;
    dnnl_status_t st = dnnl_resampling_forward_desc_init(&desc, prop, kind, NULL, src,
                                                         dst);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_resample_backward(const pd_env *env, dnnl_alg_kind_t kind,
                                   md_t diff_src, md_t diff_dst,
                                   dnnl_primitive_desc_t *pd) {
    dnnl_resampling_desc_t desc;
    dnnl_status_t st = dnnl_resampling_backward_desc_init(&desc, kind, NULL, diff_src,
                                                          diff_dst);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_eltwise_forward(const pd_env *env, dnnl_prop_kind_t prop,
                                 dnnl_alg_kind_t kind, float alpha, float beta,
                                 md_t data, dnnl_primitive_desc_t *pd) {
    dnnl_eltwise_desc_t desc;
    dnnl_status_t st = dnnl_eltwise_forward_desc_init(&desc, prop, kind, data, alpha,
                                                      beta);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_eltwise_backward(const pd_env *env, dnnl_alg_kind_t kind, float alpha,
                                  float beta, md_t data, dnnl_primitive_desc_t *pd) {
    dnnl_eltwise_desc_t desc;
    dnnl_status_t st = dnnl_eltwise_backward_desc_init(&desc, kind, data, data, alpha,
                                                       beta);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_lrn_forward(const pd_env *env, dnnl_prop_kind_t prop,
                             const pd_lrn *lrn, md_t data, dnnl_primitive_desc_t *pd) {
    dnnl_lrn_desc_t desc;
    dnnl_status_t st = dnnl_lrn_forward_desc_init(
        &desc, prop, lrn->kind, data, lrn->size, lrn->alpha, lrn->beta, lrn->k);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_lrn_backward(const pd_env *env, const pd_lrn *lrn, md_t data,
                              dnnl_primitive_desc_t *pd) {
    dnnl_lrn_desc_t desc;
    dnnl_status_t st = dnnl_lrn_backward_desc_init(
        &desc, lrn->kind, data, data, lrn->size, lrn->alpha, lrn->beta, lrn->k);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_softmax_forward(const pd_env *env, dnnl_prop_kind_t prop, int axis,
                                 md_t data, dnnl_primitive_desc_t *pd) {
    dnnl_softmax_v2_desc_t desc;
    dnnl_status_t st = dnnl_softmax_v2_forward_desc_init(
        &desc, prop, dnnl_softmax_accurate, data, data, axis);
    return make(env, st, &desc, pd);
}

dnnl_status_t pd_softmax_backward(const pd_env *env, int axis, md_t data,
                                  dnnl_primitive_desc_t *pd) {
    dnnl_softmax_v2_desc_t desc;
    dnnl_status_t st = dnnl_softmax_v2_backward_desc_init(&desc, dnnl_softmax_accurate,
                                                          data, data, data, axis);
    return make(env, st, &desc, pd);
}

#endif

/* What differs between oneDNN 2.x (operation descriptors, memory descriptors as values)
 * and 3.x (neither): functions that create primitive and memory descriptors. Nothing
 * else in this plugin depends on the version. */
#ifndef ONEDNN_COMPAT_H
#define ONEDNN_COMPAT_H

#include <oneapi/dnnl/dnnl.h>
#include <stdint.h>

#include "../shared/window.h"

/* A memory descriptor, as oneDNN's functions take it. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t md_t;
#else
typedef const dnnl_memory_desc_t *md_t;
#endif

/* Memory descriptors; the caller owns the result and calls md_free. */
dnnl_status_t md_by_tag(int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                        dnnl_format_tag_t tag, md_t *md);
dnnl_status_t md_by_strides(int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                            const dnnl_dims_t strides, md_t *md);
dnnl_data_type_t md_type(md_t md);
dnnl_status_t md_copy(md_t from, md_t *md);
void md_free(md_t md); /* NULL allowed */

/* The arrangement of elements of a blocked (not opaque) descriptor. */
typedef struct md_shape {
    int rank;
    int inner_blocks; /* 0: strides describe it completely */
    int padded;       /* some dimension is rounded up */
    dnnl_dims_t dims, strides;
    int64_t inner_dim, inner_size; /* of the innermost block */
} md_shape;
/* Returns 0 if the descriptor is opaque or "any". */
int md_look(md_t md, md_shape *shape);

/* Sets the address of a memory object. oneDNN 2.x then writes zeros to the padding. */
dnnl_status_t memory_point(dnnl_memory_t memory, void *at, dnnl_stream_t stream);

dnnl_status_t post_ops_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t kind, float alpha,
                               float beta);

/* What all primitive descriptors need. `hint`: the forward descriptor, for backward. */
typedef struct pd_env {
    dnnl_engine_t engine;
    const_dnnl_primitive_attr_t attr;
    const_dnnl_primitive_desc_t hint;
} pd_env;

dnnl_status_t pd_conv_forward(const pd_env *env, dnnl_prop_kind_t prop,
                              dnnl_alg_kind_t kind, const sliding_window *window,
                              md_t src, md_t weights, md_t bias, md_t dst,
                              dnnl_primitive_desc_t *pd);
dnnl_status_t pd_conv_backward_data(const pd_env *env, dnnl_alg_kind_t kind,
                                    const sliding_window *window, md_t diff_src,
                                    md_t weights, md_t diff_dst,
                                    dnnl_primitive_desc_t *pd);
dnnl_status_t pd_conv_backward_weights(const pd_env *env, dnnl_alg_kind_t kind,
                                       const sliding_window *window, md_t src,
                                       md_t diff_weights, md_t diff_bias, md_t diff_dst,
                                       dnnl_primitive_desc_t *pd);

dnnl_status_t pd_deconv_forward(const pd_env *env, dnnl_prop_kind_t prop,
                                const sliding_window *window, md_t src, md_t weights,
                                md_t bias, md_t dst, dnnl_primitive_desc_t *pd);
dnnl_status_t pd_deconv_backward_data(const pd_env *env, const sliding_window *window,
                                      md_t diff_src, md_t weights, md_t diff_dst,
                                      dnnl_primitive_desc_t *pd);
dnnl_status_t pd_deconv_backward_weights(const pd_env *env,
                                         const sliding_window *window, md_t src,
                                         md_t diff_weights, md_t diff_bias,
                                         md_t diff_dst, dnnl_primitive_desc_t *pd);

dnnl_status_t pd_inner_forward(const pd_env *env, dnnl_prop_kind_t prop, md_t src,
                               md_t weights, md_t bias, md_t dst,
                               dnnl_primitive_desc_t *pd);
dnnl_status_t pd_inner_backward_data(const pd_env *env, md_t diff_src, md_t weights,
                                     md_t diff_dst, dnnl_primitive_desc_t *pd);
dnnl_status_t pd_inner_backward_weights(const pd_env *env, md_t src, md_t diff_weights,
                                        md_t diff_bias, md_t diff_dst,
                                        dnnl_primitive_desc_t *pd);

dnnl_status_t pd_pool_forward(const pd_env *env, dnnl_prop_kind_t prop,
                              dnnl_alg_kind_t kind, const sliding_window *window,
                              md_t src, md_t dst, dnnl_primitive_desc_t *pd);
dnnl_status_t pd_pool_backward(const pd_env *env, dnnl_alg_kind_t kind,
                               const sliding_window *window, md_t diff_src,
                               md_t diff_dst, dnnl_primitive_desc_t *pd);

dnnl_status_t pd_resample_forward(const pd_env *env, dnnl_prop_kind_t prop,
                                  dnnl_alg_kind_t kind, md_t src, md_t dst,
                                  dnnl_primitive_desc_t *pd);
dnnl_status_t pd_resample_backward(const pd_env *env, dnnl_alg_kind_t kind,
                                   md_t diff_src, md_t diff_dst,
                                   dnnl_primitive_desc_t *pd);

/* The remaining primitives keep the layout: src, dst and their gradients use `data`. */
dnnl_status_t pd_eltwise_forward(const pd_env *env, dnnl_prop_kind_t prop,
                                 dnnl_alg_kind_t kind, float alpha, float beta,
                                 md_t data, dnnl_primitive_desc_t *pd);
dnnl_status_t pd_eltwise_backward(const pd_env *env, dnnl_alg_kind_t kind, float alpha,
                                  float beta, md_t data, dnnl_primitive_desc_t *pd);

typedef struct pd_lrn {
    dnnl_alg_kind_t kind;
    int64_t size;
    float alpha, beta, k;
} pd_lrn;
dnnl_status_t pd_lrn_forward(const pd_env *env, dnnl_prop_kind_t prop,
                             const pd_lrn *lrn, md_t data, dnnl_primitive_desc_t *pd);
dnnl_status_t pd_lrn_backward(const pd_env *env, const pd_lrn *lrn, md_t data,
                              dnnl_primitive_desc_t *pd);

dnnl_status_t pd_softmax_forward(const pd_env *env, dnnl_prop_kind_t prop, int axis,
                                 md_t data, dnnl_primitive_desc_t *pd);
dnnl_status_t pd_softmax_backward(const pd_env *env, int axis, md_t data,
                                  dnnl_primitive_desc_t *pd);

#endif

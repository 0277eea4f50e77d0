/* What convolution, deconvolution and inner_product share: weights in oneDNN's own
 * layout, a bias, three primitives, and a fused activation. */
#ifndef ONEDNN_WEIGHTED_H
#define ONEDNN_WEIGHTED_H

#include "../shared/linear.h"
#include "onednn.h"
#include "relu.h"

typedef struct weighted weighted;

/* How the primitives of one layer type are created. */
typedef struct weighted_kind {
    dnnl_status_t (*forward)(const weighted *w, const pd_env *env,
                             dnnl_prop_kind_t prop, md_t src, md_t weights, md_t bias,
                             md_t dst, dnnl_primitive_desc_t *pd);
    dnnl_status_t (*backward_data)(const weighted *w, const pd_env *env, md_t diff_src,
                                   md_t weights, md_t diff_dst,
                                   dnnl_primitive_desc_t *pd);
    dnnl_status_t (*backward_weights)(const weighted *w, const pd_env *env, md_t src,
                                      md_t diff_weights, md_t diff_bias, md_t diff_dst,
                                      dnnl_primitive_desc_t *pd);
    /* Own code for the gradient of the weights, in the layouts src and dst: the bytes
     * of scratch memory that it needs, 0 if it does not suit them; NULL: none. It
     * writes the weights' gradient plain; `bias_diff` may be NULL. */
    size_t (*own_gradient_bytes)(weighted *w);
    void (*own_gradient)(const weighted *w, const void *in, const void *out_diff,
                         float *weights_diff, float *bias_diff, void *scratch);
    /* Plain weights of the given shape, as they are stored. */
    const dlc_layout *(*stored)(context *net, const dlc_shape *shape, dlc_dtype dtype);
} weighted_kind;

struct weighted {
    dlc_layer head;
    const weighted_kind *kind;
    linear linear;
    fused_relu relu;

    /* Set by prepare. */
    const dlc_layout *src, *dst, *weights, *bias;
    const dlc_layout *forward_weights; /* as forward reads them */
    op forward, backward_data, backward_weights;
    size_t own_gradient_bytes; /* 0: backward_weights computes the gradient */
    op own_to_forward;         /* weights as forward needs them; pd NULL: no reorder */
    op own_to_data; /* the same for backward_data; pd NULL also if it can use forward's,
                       which `kept` says */
    int kept;       /* forward's weights stay in the workspace until backward */
    op weights_to_own; /* the gradient of backward_weights; pd NULL: no reorder */
    const dlc_layout *data_weights, *diff_weights;
    const dlc_layout *plain_weights, *any_float32;
    int32_t weights_rank; /* of the weights as oneDNN sees them */
    op import_op, export_op;
    size_t reordered_bytes; /* the first part of scratch */
};

/* A choice of layouts; "any" leaves the choice to oneDNN, as does NULL for the weights.
 */
typedef struct weighted_choice {
    const dlc_layout *src, *dst, *weights;
} weighted_choice;
/* Takes the first choice for which oneDNN has optimised code. `weights`: their shape as
 * oneDNN sees it. */
dlc_status weighted_prepare(weighted *w, dlc_layer_memory *memory,
                            const dlc_shape *weights, const weighted_choice *choices,
                            int count);

/* Makes the reorders between plain parameters and the layer's own, whose layouts are
 * set, and says how many numbers the own ones have. */
dlc_status weighted_prepare_params(weighted *w, dlc_layer_memory *memory);

dlc_status weighted_fuse(dlc_layer *layer, const dlc_feature *next,
                         const dlc_settings *settings);
dlc_status weighted_forward(dlc_layer *layer, const dlc_layer_run *run);
dlc_status weighted_backward(dlc_layer *layer, const dlc_layer_run *run);
dlc_status weighted_import(dlc_layer *layer, int32_t index, const float *plain,
                           float *own);
dlc_status weighted_export(dlc_layer *layer, int32_t index, const float *own,
                           float *plain);
void weighted_describe(dlc_layer *layer, char *text, size_t bytes);
void weighted_destroy(dlc_layer *layer);

#endif

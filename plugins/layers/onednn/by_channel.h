/* What pooling and upsample share: a primitive each way that treats every channel of
 * every image alike, so that batch-blocked memory is images of channels_last to it. */
#ifndef ONEDNN_BY_CHANNEL_H
#define ONEDNN_BY_CHANNEL_H

#include "onednn.h"

/* How the primitives of one layer type are created. */
typedef struct by_channel_kind {
    dnnl_status_t (*forward)(const dlc_layer *layer, const pd_env *env,
                             dnnl_prop_kind_t prop, md_t src, md_t dst,
                             dnnl_primitive_desc_t *pd);
    dnnl_status_t (*backward)(const dlc_layer *layer, const pd_env *env, md_t diff_src,
                              md_t diff_dst, dnnl_primitive_desc_t *pd);
} by_channel_kind;

/* Makes forward, in the layout of the input, or channels last if oneDNN has no
 * optimised code for that, and sets the layouts and the scratch memory. *from: of the
 * input. */
dlc_status by_channel_prepare_forward(dlc_layer *layer, const by_channel_kind *kind,
                                      dlc_layer_memory *memory, op *forward,
                                      const dlc_layout **from);
/* Makes backward, and adds its scratch memory. */
dlc_status by_channel_prepare_backward(dlc_layer *layer, const by_channel_kind *kind,
                                       dlc_layer_memory *memory, const op *forward,
                                       op *backward);

#endif

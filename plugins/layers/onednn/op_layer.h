/* Layers that are one primitive each way: pooling, upsample, activations, lrn and
 * softmax. */
#ifndef ONEDNN_OP_LAYER_H
#define ONEDNN_OP_LAYER_H

#include "onednn.h"

typedef struct op_layer {
    dlc_layer head;
    op forward, backward;
} op_layer;

/* How the primitives of one layer type are created. */
typedef struct op_layer_kind {
    dnnl_status_t (*forward)(const dlc_layer *layer, const pd_env *env,
                             dnnl_prop_kind_t prop, md_t src, md_t dst,
                             dnnl_primitive_desc_t *pd);
    dnnl_status_t (*backward)(const dlc_layer *layer, const pd_env *env, md_t diff_src,
                              md_t diff_dst, dnnl_primitive_desc_t *pd);
} op_layer_kind;

/* Makes forward, and backward in training, for an output in the layout of the input;
 * sets the layouts and the memory of both. */
dlc_status op_layer_prepare(dlc_layer *layer, const op_layer_kind *kind,
                            dlc_layer_memory *memory);
/* Makes forward alone, for a layer that treats every channel of every image alike, so
 * that batch-blocked memory is images of channels_last to it: in the layout of the
 * input, or channels last if oneDNN has no optimised code for that. *from: of the
 * input. */
dlc_status op_layer_prepare_by_channel(dlc_layer *layer, const op_layer_kind *kind,
                                       dlc_layer_memory *memory,
                                       const dlc_layout **from);
/* Makes backward for the layouts of forward, and adds its memory. Workspace: what
 * oneDNN's forward leaves for backward. */
dlc_status op_layer_prepare_backward(dlc_layer *layer, const op_layer_kind *kind,
                                     dlc_layer_memory *memory);

dlc_status op_layer_forward(dlc_layer *layer, const dlc_layer_run *run);
void op_layer_describe(dlc_layer *layer, char *text, size_t bytes);
void op_layer_destroy(dlc_layer *layer);

#endif

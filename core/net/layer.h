/* A layer as an operation of a net: what a layer plugin is given and has answered.
 * Included by op_layer.c, which runs layers, and by passes that are about layers.
 */
#ifndef DLC_NET_LAYER_H
#define DLC_NET_LAYER_H

#include "net/ir.h"

typedef struct net_layer {
    net_op op; /* first */
    const dlc_graph_layer *from;
    const dlc_layer_ops *calls;
    dlc_layer *layer; /* own; NULL until it is inferred */

    /* Tensor parallelism and batch chunks. */
    int all_samples;        /* it works on the samples of all ranks */
    int64_t channel_begin;  /* first channel of a tensor-parallel layer */
    int64_t total_channels; /* of such a layer over all ranks; 0: it isn't one */
    int64_t block_rows;     /* rows that it is run for at a time; 0: all */
    size_t block_workspace; /* bytes of the workspace of one such block */

    dlc_layer_run run;                       /* points to the arrays below */
    const void *in_data[DLC_MAX_INPUTS + 1]; /* one more for a fused sum */
    void *in_diff[DLC_MAX_INPUTS + 1];
    void *out_data[DLC_MAX_OUTPUTS], *out_diff[DLC_MAX_OUTPUTS];
    void *param[DLC_MAX_PARAMS];
} net_layer;

/* layer_calls.c: call infer or prepare of a layer. They are called here only, and
 * nothing that the layer answers is used before it was checked. A failure names the
 * layer; a wrong answer is a DLC_ERR_PLUGIN. `train`: the net is trained. */
dlc_status dlc_layer_infer(net_layer *layer, int train);
dlc_status dlc_layer_prepare(net_layer *layer);

#endif

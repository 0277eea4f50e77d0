/* The kinds of operations: layers (op_layer.c), reorders and stage boundaries
 * (op_convert.c), and reshard operations (op_reshard.c). What a kind does on each call
 * of its table is known to its file alone; these functions put one into a net.
 */
#ifndef DLC_NET_OPS_H
#define DLC_NET_OPS_H

#include "net/ir.h"

/* Adds a layer of the graph at the end. Its inputs are still to be set. */
dlc_status dlc_net_add_layer(dlc_net *net, int32_t node, net_op **op);
/* Opens the family of a layer unless it is open: `infer` does that, too. */
dlc_status dlc_net_open_family(dlc_net *net, net_op *layer);

/* Adds an operation at the end that sends a tensor to another pipeline stage. */
dlc_status dlc_net_add_boundary(dlc_net *net, int32_t i, int32_t tensor);

/* Gives operation `reader` its input `i` in another placement: inserts a reshard
 * operation before it unless there is one. `in_chunk`: the rows of a batch chunk. */
dlc_status dlc_net_reshard_input(dlc_net *net, net_op *reader, int32_t i,
                                 net_placement placement, int in_chunk);

/* Gives operation `reader` its input `i` as `wanted`: inserts a reorder of a family
 * before it unless there is one. */
dlc_status dlc_net_reorder_input(dlc_net *net, net_op *reader, int32_t i,
                                 const dlc_family *family, void *context,
                                 const dlc_tensor *wanted);
/* Have they the same layout, and the same type? */
int dlc_net_same_layout(const dlc_family *family, const dlc_tensor *a,
                        const dlc_tensor *b);
/* Notes which family's layout or type a tensor has, and thus which family can convert
 * it to plain float32. */
void dlc_net_own_layout(net_tensor *tensor, const dlc_family *family, void *context);

/* ---- Layers ---------------------------------------------------------------------- */

/* A layer as an operation: what its plugin is given and has answered. */
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

/* The internals of a net: operations in the order of forward, the tensors between them,
 * and the buffers that those share. Included by the files of core/net only.
 */
#ifndef DLC_NET_INTERNAL_H
#define DLC_NET_INTERNAL_H

#include "net/buffers.h"
#include "net/net.h"

/* The placement of a tensor: the samples and channels that this rank has of it
 * (tensor_parallel.h). */
typedef enum net_placement {
    SAMPLE_SHARDED, /* this rank's samples, all channels */
    REPLICATED,     /* the samples of all ranks, all channels */
    CHANNEL_SHARDED /* the samples of all ranks, this rank's channels */
} net_placement;

/* What flows from one operation to the next. */
typedef struct net_tensor {
    dlc_tensor tensor;
    int32_t producer;         /* operation; NO_OP for the batch */
    const dlc_family *family; /* whose private layout it has; NULL while plain */
    void *context;            /* that family's, to reorder from its layout */
    int wants_gradient;       /* a trained parameter comes before it */
    int is_boundary;          /* it comes from another pipeline stage */
    net_placement placement;
    int64_t channels; /* of all ranks, if it is channel-sharded */
    int in_chunk;     /* it has the rows of a batch chunk (batch_chunks.h) */

    /* Set by the memory plan. Buffers are indices; NO_BUFFER if the tensor has none of
     * its own (the batch in place, a gradient that is not needed). */
    int32_t data_buffer, diff_buffer;
    void *data, *diff;
    /* The operation before whose backward the tensor is recomputed, into a buffer of
     * its own; NO_OP if backward reads what forward left. */
    int32_t recompute_before, recompute_buffer;
    void *recomputed; /* where backward finds it */
} net_tensor;

/* BOUNDARY_BUFFER: memory of a boundary tensor, which is elsewhere in every pass. */
enum { NO_OP = -1, NO_BUFFER = -1, BOUNDARY_BUFFER = -2 };

/* The tensors of the batch come first. */
enum { TENSOR_DATA = 0, TENSOR_LABEL = 1 };

/* How an operation passes on the gradient of one input. */
typedef struct net_edge {
    int wanted;      /* backward writes it */
    int add;         /* another operation wrote it before: it goes to `target`, and is
                        then added */
    int accumulates; /* another operation wrote it before: the layer adds to it itself
                      */
    int32_t buffer;  /* that is written; may be the one of the output's gradient */
    void *target;    /* where backward writes */
} net_edge;

/* The runs of an operation, each of which has scratch memory of its own. */
enum { NET_RUN_FORWARD, NET_RUN_RECOMPUTE, NET_RUN_BACKWARD, NET_RUNS };

typedef struct net_reshard net_reshard; /* tensor_parallel.h */

/* One step of forward: a layer, or a reorder, reshard or stage boundary that the core
 * has inserted. */
typedef struct net_op {
    int32_t node; /* layer of the graph; NO_OP for an operation of the core */
    const char *name;
    const dlc_feature *feature; /* NULL for an operation of the core */
    const dlc_layer_ops *ops;   /* NULL for an operation of the core */
    net_reshard *reshard;       /* NULL: it is not a reshard operation */
    int frozen;                 /* its parameters are not trained */
    int all_samples;            /* it works on the samples of all ranks */
    int64_t channel_begin;      /* first channel of a tensor-parallel layer */
    int64_t total_channels;     /* of such a layer over all ranks; 0: it isn't one */
    int64_t block_rows;         /* rows that it is run for at a time; 0: all */
    const dlc_net_boundary
        *boundary; /* it sends its output to another stage; or NULL */
    const dlc_family *family;
    void *context; /* the family's */
    dlc_layer *layer;
    dlc_reorder *reorder_forward, *reorder_backward;
    int32_t fused_into; /* the operation that does this one's work, or NO_OP */

    dlc_layer_shapes shapes; /* counts are those of `memory`, which fusing changes */
    dlc_layer_memory memory;
    dlc_tensor *in, *out; /* arrays of both */
    dlc_param *param;
    int64_t *param_count;
    int32_t *input; /* tensors */
    int32_t *output;
    net_edge *edge; /* one per input */
    int reaches_loss;
    int runs_backward;

    int32_t workspace_buffer;
    int32_t scratch_buffer[NET_RUNS];
    int32_t
        chunk_gradient_buffer;   /* gradients of a batch chunk, before they are added */
    int32_t discarded_buffer;    /* gradients of a frozen layer that has to write them
                                  */
    int32_t chunk_metric_buffer; /* a metric, added up over the batch chunks */
    int32_t first_param;         /* in net->param */
    void *scratch[NET_RUNS];
    dlc_layer_run run;
    const void **in_data;
    void **out_diff, **out_data, **in_diff, **params, **param_diffs;
    uint64_t ns[DLC_NET_PARTS]; /* of the last pass, if the net is timed */
} net_op;

/* The state of batch chunks (batch_chunks.h). */
typedef struct net_chunks {
    int32_t count;      /* 0: the whole batch is processed at once */
    int32_t node;       /* first layer of the graph that works on chunks */
    int64_t rows;       /* of a chunk, over all ranks */
    int64_t local_rows; /* of a chunk, at most, that are this rank's samples */
    int64_t block;      /* rows that are consecutive samples */
    int32_t label;      /* tensor: the labels of this rank's rows */
    int32_t first_op;   /* the reshard operation that gathers the chunk's input */
    int32_t current;    /* the chunk that is being computed */
    /* Buffers: the second of two for the gathered input and its gradient, and two for
     * gradients received from other ranks. */
    int32_t next_data, next_diff, received[2];
    dlc_transfer *transfer;                 /* own; the list being made */
    uint64_t gathered[2], reduced[2], sent; /* handles of transfers */
    int64_t iteration, sample;              /* of the pass */
} net_chunks;

typedef struct net_family {
    const dlc_family *family;
    void *context;
} net_family;

struct dlc_net {
    dlc_net_args args;
    int32_t ops;
    net_op *op;
    int32_t tensors, tensor_room;
    net_tensor *tensor;
    int32_t families;
    net_family *family;

    int32_t params;
    dlc_net_param *param; /* in the order in which backward completes them */
    int32_t *param_op, *param_index;
    char **param_name;
    dlc_segment *segment, *sharded_segment;
    dlc_arenas arenas, sharded_arenas;
    dlc_memory weights, gradients, buffers, frozen;
    dlc_memory sharded_weights, sharded_gradients, sharded_frozen;

    int32_t buffers_planned, buffer_room;
    dlc_buffer *buffer;
    size_t activation_bytes;
    dlc_memory activations;
    int borrows_activations; /* `activations` belongs to the training net */
    size_t pass_offset;      /* of the current pass's buffers in `activations` */
    float *gradient_arena;   /* see dlc_net_set_gradient_arena */
    int32_t reorders;
    int timed;
    net_chunks chunks;
};

/* net.c: adds a tensor; returns its index, or a negative status. */
int32_t dlc_net_tensor_add(dlc_net *net, const dlc_tensor *tensor, int32_t producer);

/* net.c: prefixes the detail sentence of a layer's failure with its name, and with
 * `phase` unless that is NULL, if the sentence does not name the layer already. */
dlc_status dlc_net_blame(const net_op *op, const char *phase, dlc_status status);
/* net.c: destroys the layer, reorder or reshard of an operation and frees its arrays.
 */
void dlc_net_op_free(net_op *op);
/* stage_boundary.c: tensors that come from other stages, and operations that send
 * tensors to other stages. */
dlc_status dlc_net_add_boundaries_in(dlc_net *net);
int32_t dlc_net_boundary_tensor(const dlc_net *net,
                                dlc_graph_input input); /* NO_OP: none */
dlc_status dlc_net_add_boundary_op(dlc_net *net, net_op *op,
                                   const dlc_net_boundary *boundary);
dlc_status dlc_net_prepare_boundary(dlc_net *net, net_op *op);
dlc_status dlc_net_run_boundary(const dlc_net *net, dlc_reorder *reorder,
                                const net_op *op, const void *src, void *dst);
/* build.c: finds the operation of a layer of the graph, NULL if it is not in this net;
 * and allocates the arrays of an operation. */
net_op *dlc_net_op_of_node(const dlc_net *net, int32_t node);
dlc_status dlc_net_allocate_op(net_op *op, int32_t inputs);
/* memory_plan.c: sets all pointers of a pass to where the buffers are now; of all
 * operations, or from operation `first` on. */
void dlc_net_point(dlc_net *net);
void dlc_net_point_from(dlc_net *net, int32_t first);
/* memory_plan.c: adds a buffer that is in use from step `first` to `last`; and returns
 * the address of one, NULL for NO_BUFFER. */
int32_t dlc_net_buffer_add(dlc_net *net, size_t bytes, int32_t first, int32_t last);
void *dlc_net_buffer_at(const dlc_net *net, int32_t buffer);
/* run.c: run one operation; does nothing for one that is fused into another, or that
 * has no backward. */
dlc_status dlc_net_forward_op(dlc_net *net, int32_t op, int64_t iteration,
                              int64_t sample);
dlc_status dlc_net_backward_op(dlc_net *net, int32_t op, float loss_scale,
                               dlc_status (*done)(void *context, size_t elements),
                               void *context);
/* run.c: is it a loss or a metric? */
int dlc_net_is_metric(const net_op *op);
/* memory_plan.c: the distance in bytes between two sets of micro-batch buffers. */
size_t dlc_net_pass_bytes(const dlc_net *net);
/* build.c: creates layers, infers shapes, fuses layers, traces gradients. */
dlc_status dlc_net_make_layers(dlc_net *net);
/* prepare.c: negotiates layouts and inserts reorders. */
dlc_status dlc_net_prepare(dlc_net *net);
/* batch_chunks.c: the elements of the gradients of its first `params` parameters, each
 * of which begins on a cache line, in a buffer of their own. */
size_t dlc_net_gradient_count(const dlc_net *net, const net_op *op, int32_t params);
/* params.c: assigns offsets in the arenas; then allocates and initializes them. */
dlc_status dlc_net_lay_out_params(dlc_net *net);
dlc_status dlc_net_take_params(dlc_net *net);
/* recompute.c: marks tensors that are recomputed in backward instead of being kept. */
void dlc_net_plan_recompute(dlc_net *net);
/* memory_plan.c: plans lifetimes and shares buffers; then allocates and sets pointers.
 */
dlc_status dlc_net_plan(dlc_net *net);
dlc_status dlc_net_take_memory(dlc_net *net);

/* describe.c: which parts backward has, as DLC_BACKWARD_ bits; and whether they can be
 * run, and measured, separately. */
uint32_t dlc_net_backward_parts(const net_op *op);
int dlc_net_can_split_backward(const net_op *op);
/* describe.c: the part that a backward in one call is counted as. */
dlc_net_part dlc_net_backward_part(const net_op *op);

/* The steps of a pass: forward of operation i is step i, its backward step 2n-1-i. */
static inline int32_t net_backward_step(const dlc_net *net, int32_t op) {
    return 2 * net->ops - 1 - op;
}

/* The operation that runs in this step, forward or backward. */
static inline int32_t net_op_at(const dlc_net *net, int32_t step) {
    return step < net->ops ? step : 2 * net->ops - 1 - step;
}

/* Does it have 16-bit elements, which not every layer supports? */
static inline int net_is_16_bit(const dlc_tensor *tensor) {
    return tensor->dtype == DLC_BF16 || tensor->dtype == DLC_F16;
}

/* Does the layer support the element type of the tensor? */
static inline int net_knows_type(const dlc_feature *feature, const dlc_tensor *tensor) {
    uint64_t bit = tensor->dtype == DLC_BF16 ? DLC_LAYER_BF16 : DLC_LAYER_F16;
    return !net_is_16_bit(tensor) || (feature->caps & bit) != 0;
}

/* Is the parameter trained, rather than kept by the layer or frozen? */
static inline int net_is_trained(const net_op *op, int32_t param) {
    return !op->frozen && !(op->param[param].flags & DLC_PARAM_BUFFER);
}

static inline int net_op_runs(const net_op *op) {
    return op->fused_into == NO_OP;
}

/* memory_plan.c: the first and last step of backward that read the tensor; NO_OP if
 * none does. */
void dlc_net_backward_reads(const dlc_net *net, int32_t tensor, int32_t *first,
                            int32_t *last);

/* memory_plan.c: does the device work in host memory? */
int dlc_net_on_host(const dlc_net *net);

#endif

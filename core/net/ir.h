/* The intermediate representation of a net, which passes transform and the executor
 * runs: operations in the order of forward, the tensors between them, and the buffers
 * that those share. Included by the files of core/net only.
 *
 * Tensors and buffers are indices, since their arrays grow. An operation stays where it
 * is in memory; only its place in the order changes when a pass inserts another.
 */
#ifndef DLC_NET_IR_H
#define DLC_NET_IR_H

#include "base/names.h"
#include "net/net.h"
#include "net/placement.h"

typedef struct net_op net_op;

/* A buffer in a block of memory that buffers share which are never in use at the same
 * time. */
typedef struct dlc_buffer {
    size_t bytes;
    int32_t first, last; /* steps at which it is in use, both included */
    size_t offset;       /* out; a multiple of DLC_BUFFER_ALIGNMENT */
} dlc_buffer;

#define DLC_BUFFER_ALIGNMENT 64

static inline size_t net_align(size_t bytes) {
    return (bytes + DLC_BUFFER_ALIGNMENT - 1) & ~(size_t)(DLC_BUFFER_ALIGNMENT - 1);
}

/* What flows from one operation to the next. */
typedef struct net_tensor {
    dlc_tensor tensor;
    net_op *producer;         /* NULL for the batch and for incoming boundary tensors */
    int is_inferred;          /* it has a shape */
    const dlc_family *family; /* whose private layout it has; NULL while plain */
    void *context;            /* that family's, to reorder from its layout */
    int wants_gradient;       /* a trained parameter comes before it */
    int is_boundary;          /* of the pipeline stage; each pass brings its memory */
    net_placement placement;
    int64_t channels; /* of all ranks, if it is channel-sharded */
    int in_chunk;     /* it has the rows of a batch chunk (chunks.h) */

    /* Set by the passes that plan memory. Buffers are indices; NO_BUFFER if the tensor
     * has none of its own (the batch in place, a gradient that is not needed). */
    int32_t kept_until; /* a step until which it must not be overwritten; or NO_STEP */
    int32_t data_buffer, diff_buffer;
    void *data, *diff;
    /* The operation before whose backward the tensor is recomputed, into a buffer of
     * its own; NULL if backward reads what forward left. */
    const net_op *recompute_before;
    int32_t recompute_buffer;
    void *recomputed; /* where backward finds it */

    /* What the newest reorder or reshard has made of it; and if the tensor was made so,
     * what the one before that has made of the same tensor. */
    int32_t converted, converted_before;
} net_tensor;

/* Who reads a tensor: indices of operations, NO_OP if there is none. */
typedef struct net_reads {
    int32_t first, last;                   /* in forward */
    int32_t backward_least, backward_most; /* in backward, in which they run last and
                                              first */
    int32_t wanted; /* the last of those that compute a gradient of it */
} net_reads;

/* BOUNDARY_BUFFER: memory of a boundary tensor, which is elsewhere in every pass. */
enum {
    NO_NODE = -1,
    NO_OP = -1,
    NO_TENSOR = -1,
    NO_STEP = -1,
    NO_BUFFER = -1,
    BOUNDARY_BUFFER = -2
};

/* How an operation passes on the gradient of one input. */
typedef struct net_edge {
    int wanted;      /* backward writes it */
    int accumulates; /* another operation wrote it before: it adds to that */
    int add;         /* likewise, but it can't: `target` is a part that is then added */
    int32_t buffer;  /* that is written; may be the one of the output's gradient */
    void *target;    /* where backward writes */
} net_edge;

/* The runs of an operation, each of which has scratch memory of its own. */
typedef enum net_run {
    NET_RUN_FORWARD,
    NET_RUN_RECOMPUTE, /* forward once more, just before backward reads the output */
    NET_RUN_BACKWARD,
    NET_RUNS
} net_run;

/* What a kind of operation does: a layer, a reorder, a reshard, a stage boundary. Calls
 * are optional unless it says otherwise. A failure names the operation only where the
 * caller cannot. */
typedef struct dlc_net_op_ops {
    int is_collective;    /* all ranks run it together, even one without any rows */
    int reads_any_layout; /* nobody has to convert its inputs to plain for it */

    /* Pass `infer`. Sets shapes of outputs from those of inputs; required, except for
     * an operation that is inserted with its shapes. */
    dlc_status (*infer)(dlc_net *net, net_op *op);
    /* Pass `fuse`. Takes over the work of `next`, the only reader of its only output.
     * DLC_ERR_UNSUPPORTED: it cannot. */
    dlc_status (*fuse)(net_op *op, const net_op *next);
    /* Pass `layouts`. Sees the layouts of the inputs in op->in, changes them to those
     * that it wants, and sets layouts of outputs and sizes of memory. */
    dlc_status (*prepare)(dlc_net *net, net_op *op);
    /* Takes note of where memory is now. */
    void (*point)(const dlc_net *net, net_op *op);
    /* Required. `kind` is NET_RUN_RECOMPUTE only with DLC_LAYER_RECOMPUTABLE. */
    dlc_status (*forward)(const dlc_net *net, net_op *op, net_run kind);
    /* Required. `parts`: DLC_BACKWARD_ bits. */
    dlc_status (*backward)(const dlc_net *net, net_op *op, uint32_t parts);
    /* Required. Fills in what reports say about this kind. */
    void (*describe)(const dlc_net *net, const net_op *op, dlc_net_row *row);
    /* Frees what the kind owns; the arrays below belong to the net. */
    void (*free)(net_op *op);
} dlc_net_op_ops;

/* One step of forward. The struct of a kind begins with this one. */
struct net_op {
    const dlc_net_op_ops *ops;
    int32_t index; /* in net->op */
    int32_t node;  /* layer of the graph; NO_NODE for an operation of the core */
    const char *name;
    uint64_t caps;            /* DLC_LAYER_ bits; 0 for an operation of the core */
    const dlc_family *family; /* that converts to and from the layouts it has */
    void *context;            /* the family's */
    int frozen;               /* its parameters are not trained */
    int has_backward;         /* it can pass on gradients */
    int in_group;             /* all ranks of args.group run it together */
    int reads_plain;          /* its inputs must be plain even for its own family */
    net_op *fused_into;       /* the operation that does this one's work, or NULL */

    dlc_layer_shapes shapes; /* counts are those of `memory`, which fusing changes */
    dlc_layer_memory memory;
    dlc_tensor *in; /* own; an array, like `input` and `edge` */
    dlc_tensor out[DLC_MAX_OUTPUTS];
    dlc_param param[DLC_MAX_PARAMS];
    int64_t param_count[DLC_MAX_PARAMS];
    int32_t *input; /* own; tensors */
    int32_t output[DLC_MAX_OUTPUTS];
    int32_t beyond; /* what reads an output that no layer has gets; or NO_TENSOR */
    net_edge *edge; /* own; one per input */
    int reaches_loss;
    int runs_backward;

    /* Of a loss: see dlc_net_set_loss_share; and the share of a batch chunk in that. */
    float loss_share, chunk_share;
    const double *counted;

    int32_t workspace_buffer;
    int32_t scratch_buffer[NET_RUNS];
    int32_t discarded_buffer; /* gradients of a frozen layer that has to write them */
    int32_t chunk_gradient_buffer; /* of a batch chunk, before they are added */
    int32_t chunk_metric_buffer;   /* a metric, added up over the batch chunks */
    int32_t first_param;           /* in net->param */
    void *scratch[NET_RUNS];
    void *param_diff[DLC_MAX_PARAMS]; /* where backward writes; NULL: it does not */
    uint64_t ns[DLC_NET_PARTS];       /* of the last pass, if the net is timed */
};

typedef struct net_param {
    dlc_net_param own; /* what others are told */
    net_op *op;
    int32_t index; /* in op->param */
    char *name;    /* own */
} net_param;

/* The most allocations: the arenas of weights, gradients, buffers and frozen
 * parameters, sharded ones of each, and the activations. */
enum { NET_MEMORIES = 9 };

typedef struct net_family {
    const dlc_family *family;
    void *context;
} net_family;

struct dlc_net {
    dlc_net_args args;
    int32_t ops;
    net_op **op;
    net_op **of_node; /* of each layer of the graph; NULL if it is not in this net */
    int32_t tensors;
    net_tensor *tensor;
    net_reads *reads; /* of each tensor, as of the last dlc_net_find_reads */
    int32_t families;
    net_family *family;

    int32_t params;
    net_param *param; /* in the order in which backward completes them */
    dlc_names param_names;
    dlc_segment *segment[DLC_PARAM_SETS];
    dlc_arenas arenas[DLC_PARAM_SETS];

    int32_t buffers_planned;
    dlc_buffer *buffer;
    size_t activation_bytes;
    char *activations;
    int32_t memories;
    dlc_memory memory[NET_MEMORIES]; /* own; arenas and activations */
    int32_t reorders;
    net_chunks chunks;

    /* The pass that is run. */
    size_t micro_batch_offset; /* of its buffers in `activations` */
    float loss_scale;
    int64_t iteration;
    int64_t sample;     /* position of the first of this rank's samples */
    int64_t all_sample; /* of the first of those of all ranks that share its layers */
    int timed;
};

/* ---- Operations and tensors ------------------------------------------------------ */

/* Inserts an operation of a kind, whose struct has `bytes`, so that it has this index.
 * It has one output, without a tensor yet. NULL: memory ran out. */
net_op *dlc_net_op_insert(dlc_net *net, int32_t index, const dlc_net_op_ops *ops,
                          size_t bytes, int32_t inputs);
/* Frees an operation; its outputs have neither a producer nor a shape then. Its place
 * is NULL until dlc_net_ops_close_up. */
void dlc_net_op_remove(dlc_net *net, net_op *op);
void dlc_net_ops_close_up(dlc_net *net);
void dlc_net_op_free(net_op *op);
/* NULL if the layer of the graph is not in this net, or if `net` is NULL. */
net_op *dlc_net_op_of_node(const dlc_net *net, int32_t node);

/* Adds a tensor, with a shape unless that is NULL. */
dlc_status dlc_net_tensor_add(dlc_net *net, const dlc_tensor *shape, net_op *producer,
                              int32_t *tensor);
/* Gives an operation's output a tensor unless it has one. */
dlc_status dlc_net_output_add(dlc_net *net, net_op *op, int32_t output);
void dlc_net_set_shape(dlc_net *net, int32_t tensor, const dlc_tensor *shape);
/* Notes that `to`, the output of an inserted operation, is `from` in another form. */
void dlc_net_note_conversion(dlc_net *net, int32_t from, int32_t to);
/* The name of the operation that writes it, for messages. */
const char *dlc_net_tensor_name(const dlc_net *net, int32_t tensor);
/* Finds out who reads each tensor, for the functions below. Call it again once a pass
 * has changed inputs, or what is read in backward. */
dlc_status dlc_net_find_reads(dlc_net *net);
/* The first and last step of backward that read the tensor; NO_STEP if none does. */
void dlc_net_backward_reads(const dlc_net *net, int32_t tensor, int32_t *first,
                            int32_t *last);

/* Does a later operation, whose backward runs first, also compute a gradient of this
 * tensor, which `op` reads? */
int dlc_net_later_gradient(const dlc_net *net, const net_op *op, int32_t tensor);

/* Prefixes the detail sentence of an operation's failure with its name, and with
 * `phase` unless that is NULL, if the sentence does not name the operation already. */
dlc_status dlc_net_blame(const net_op *op, const char *phase, dlc_status status);
/* Describes an operation that the core has inserted. */
void dlc_net_describe_inserted(const dlc_net *net, const net_op *op, dlc_net_row *row);

/* ---- Buffers --------------------------------------------------------------------- */

/* Adds a buffer that is in use from step `first` to `last`. */
dlc_status dlc_net_buffer_add(dlc_net *net, size_t bytes, int32_t first, int32_t last,
                              int32_t *buffer);
/* The address of a buffer in this pass; NULL if the index is none of a buffer. */
void *dlc_net_buffer_at(const dlc_net *net, int32_t buffer);
/* The elements of the gradients of the first `params` parameters, each of which begins
 * on a cache line, in a buffer of their own. */
size_t dlc_net_gradient_count(const dlc_net *net, const net_op *op, int32_t params);
/* Adds such a buffer for the operation's backward; none without parameters. */
dlc_status dlc_net_gradient_buffer_add(dlc_net *net, const net_op *op, int32_t *buffer);

/* ---- Facts ----------------------------------------------------------------------- */

/* Does the device work in host memory? */
int dlc_net_on_host(const dlc_net *net);
/* Submits a copy of device memory to the net's queue; 0 bytes are allowed. */
dlc_status dlc_net_copy(const dlc_net *net, void *dst, const void *src, size_t bytes);

/* The parts that backward of an operation has, as DLC_BACKWARD_ bits; whether they can
 * be run, and measured, separately; and the part that a single call is counted as. */
uint32_t dlc_net_backward_parts(const net_op *op);
int dlc_net_can_split_backward(const net_op *op);
dlc_net_part dlc_net_backward_part(const net_op *op);

/* The steps of a pass: forward of operation i is step i, its backward step 2n-1-i. */
static inline int32_t net_backward_step(const dlc_net *net, const net_op *op) {
    return 2 * net->ops - 1 - op->index;
}

/* build.c: the position in the batch of this rank's first sample, in this pass. */
void dlc_net_set_sample(dlc_net *net, int64_t sample);
/* build.c: points tensors, and all operations from this index on, to where buffers are
 * now. */
void dlc_net_point_from(dlc_net *net, int32_t first);

/* The tensors of the batch come first, in the order of its fields. Boundary tensors
 * follow: incoming ones, then outgoing ones. */
static inline int32_t net_boundary_in(const dlc_net *net, int32_t i) {
    return net->args.fields.count + i;
}

static inline int32_t net_boundary_out(const dlc_net *net, int32_t i) {
    return net_boundary_in(net, net->args.boundaries_in + i);
}

static inline int net_is_training(const dlc_net *net) {
    return net->args.phase == DLC_PHASE_TRAIN;
}

/* Does it have 16-bit elements, which not every layer supports? */
static inline int net_is_16_bit(const dlc_tensor *tensor) {
    return tensor->dtype == DLC_BF16 || tensor->dtype == DLC_F16;
}

/* Does the operation support the element type of the tensor? */
static inline int net_knows_type(const net_op *op, const dlc_tensor *tensor) {
    uint64_t bit = tensor->dtype == DLC_BF16 ? DLC_LAYER_BF16 : DLC_LAYER_F16;
    return !net_is_16_bit(tensor) || (op->caps & bit) != 0;
}

/* Is the parameter trained, rather than kept by the layer or frozen? */
static inline int net_is_trained(const net_op *op, int32_t param) {
    return !op->frozen && !(op->param[param].flags & DLC_PARAM_BUFFER);
}

/* Says that the operation is being set up. */
static inline dlc_status net_note_set_up(const dlc_net *net, const net_op *op) {
    return net->args.on_activity
               ? net->args.on_activity(net->args.activity_context, "set-up", op->name)
               : DLC_OK;
}

/* Is it a loss or a metric? */
static inline int net_is_metric(const net_op *op) {
    return !op->fused_into && op->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS);
}

/* ---- Passes ---------------------------------------------------------------------- */

/* The compiler passes that build a net. Each takes the net as the one before has left
 * it; build.c lists them in their order. */
typedef dlc_status dlc_net_pass_call(dlc_net *net);

dlc_net_pass_call dlc_net_pass_stage, dlc_net_pass_shard; /* pass_split.c */
dlc_net_pass_call dlc_net_pass_infer, dlc_net_pass_fuse,
    dlc_net_pass_layouts; /* pass_layers.c */
dlc_net_pass_call dlc_net_pass_gradients, dlc_net_pass_fork_sums,
    dlc_net_pass_recompute;                                       /* pass_backward.c */
dlc_net_pass_call dlc_net_pass_chunks, dlc_net_pass_chunk_memory; /* pass_chunks.c */
dlc_net_pass_call dlc_net_pass_params, dlc_net_pass_memory,
    dlc_net_pass_offsets; /* pass_memory.c */

/* Sets every offset; *total is the size of the block. Greedy by size: the largest
 * buffer first, each in the lowest gap between those that are in use at the same time
 * (Pisarchyk and Lee 2020, "Efficient memory management for deep neural net inference",
 * 5.2). */
dlc_status dlc_buffers_place(dlc_buffer *buffers, size_t count, size_t *total);

#endif

/* A net from inside: operations in the order of forward, the tensors between them,
 * and the buffers that those share.
 */
#ifndef DLC_NET_INTERNAL_H
#define DLC_NET_INTERNAL_H

#include "net/buffers.h"
#include "net/net.h"

/* Whose samples and channels a tensor has (split.h). */
typedef enum net_spread { SPREAD_OWN, SPREAD_WHOLE, SPREAD_SLICED } net_spread;

/* What flows from one operation to the next. */
typedef struct net_tensor {
    dlc_tensor tensor;
    int32_t producer;         /* operation; NO_OP for the batch */
    const dlc_family *family; /* whose layout it has; NULL while plain */
    void *context;            /* that family's, to reorder from it */
    int wants_gradient;       /* a trained parameter lies before it */
    int is_port;              /* comes from outside */
    net_spread spread;
    int64_t channels; /* of all ranks, where it is sliced */
    int of_portion;   /* has rows of a portion of the batch (portions.h) */

    /* Filled in by the plan. Buffers are indices; NO_BUFFER where the tensor has
     * none of its own (the batch in place, a gradient nobody wants). */
    int32_t data_buffer, diff_buffer;
    void *data, *diff;
    /* Made again before backward of this operation, into a buffer of its own; NO_OP
     * if backward finds it where forward left it. */
    int32_t again_before, again_buffer;
    void *again; /* where backward finds it */
} net_tensor;

/* PORT_BUFFER: in the memory of a port, which every pass has elsewhere. */
enum { NO_OP = -1, NO_BUFFER = -1, PORT_BUFFER = -2 };

/* The batch's tensors come first. */
enum { TENSOR_DATA = 0, TENSOR_LABEL = 1 };

/* How an operation hands on one input's gradient. */
typedef struct net_edge {
    int wanted;     /* backward writes it */
    int add;        /* not the first to write: goes to `part`, then is added */
    int into;       /* not the first to write, but adds to what is there by itself */
    int32_t buffer; /* of the part; NO_BUFFER: over the output's gradient */
    void *part;
} net_edge;

/* An operation's runs, each of which needs scratch memory for itself. */
enum { NET_RUN_FORWARD, NET_RUN_AGAIN, NET_RUN_BACKWARD, NET_RUNS };

typedef struct net_exchange net_exchange; /* split.h */

/* One step of forward: a layer, or a reorder or exchange that the core put in. */
typedef struct net_op {
    int32_t node; /* layer of the graph; NO_OP for what the core put in */
    const char *name;
    const dlc_feature *feature; /* NULL for what the core put in, */
    const dlc_layer_ops *ops;   /* this, too */
    net_exchange *exchange;     /* NULL: not one */
    int of_all;                 /* works on the samples of all ranks */
    int64_t slice_begin;        /* of a split layer: its first channel, */
    int64_t slice_whole;        /* of so many; 0: it isn't split */
    int64_t block_rows;         /* it is run for so many rows at a time; 0: for all */
    const dlc_net_port *port;   /* what it gives goes out; NULL: it doesn't */
    const dlc_family *family;
    void *context; /* the family's */
    dlc_layer *layer;
    dlc_reorder *there, *back; /* a reorder's two directions */
    int32_t absorbed_by;       /* operation that does this one's work, or NO_OP */

    dlc_layer_plan plan;
    dlc_tensor *in, *out; /* arrays of the plan */
    dlc_param *param;
    int32_t *input; /* tensors */
    int32_t *output;
    net_edge *edge; /* one an input */
    int reaches_loss;
    int runs_backward;

    int32_t workspace_buffer;
    int32_t scratch_buffer[NET_RUNS];
    int32_t sum_buffer;  /* of portions: gradients that are then added, */
    int32_t mean_buffer; /* and the sums of a metric */
    int32_t first_param; /* in net->param */
    void *scratch[NET_RUNS];
    dlc_layer_run run;
    const void **in_data;
    void **out_diff, **out_data, **in_diff, **params, **param_diffs;
    uint64_t ns[DLC_NET_PARTS]; /* of the last pass, where the net is timed */
} net_op;

/* See portions.h. */
typedef struct net_portions {
    int32_t count;    /* 0: the whole batch is taken at once */
    int32_t node;     /* the group's first layer of the graph */
    int64_t rows;     /* of a portion over all ranks, */
    int64_t own_rows; /* and of this one, at most */
    int64_t block;    /* rows that are consecutive samples */
    int32_t label;    /* tensor: of this rank's rows */
    int32_t first_op; /* the exchange that gathers the cut */
    int32_t at;       /* the portion at work */
    /* Buffers. The second places of the cut and its gradient; gradients from others. */
    int32_t other_data, other_diff, came[2];
    dlc_parcel *parcel;                       /* own; a list in the making */
    uint64_t gathered[2], came_home[2], sent; /* tickets */
    int64_t iteration, sample;                /* of the pass */
} net_portions;

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
    dlc_net_param *param; /* in the order in which backward finishes them */
    int32_t *param_op, *param_index;
    char **param_name;
    dlc_segment *segment, *split_segment;
    dlc_arenas arenas, split_arenas;
    dlc_memory weights, gradients, buffers, split_weights, split_gradients;

    int32_t buffers_planned, buffer_room;
    dlc_buffer *buffer;
    size_t activation_bytes;
    dlc_memory activations;
    int lent;              /* they are the twin's */
    size_t lane_at;        /* where the lane of the pass begins in them */
    float *gradients_into; /* see dlc_net_write_gradients */
    int32_t reorders;
    int timed;
    net_portions portions;
};

/* net.c: one tensor more; its index, or a negative status. */
int32_t dlc_net_tensor_add(dlc_net *net, const dlc_tensor *tensor, int32_t producer);

/* net.c: a layer's failure, its name (and `phase`, may be NULL) put before the
 * sentence unless that names it already. */
dlc_status dlc_net_blame(const net_op *op, const char *phase, dlc_status status);
/* net.c: destroys the layer or reorder and frees the arrays. */
void dlc_net_op_free(net_op *op);
/* ports.c: tensors from outside, and operations that give tensors to the outside. */
dlc_status dlc_net_add_ports_in(dlc_net *net);
int32_t dlc_net_port_tensor(const dlc_net *net, dlc_graph_input input); /* or NO_OP */
dlc_status dlc_net_add_port_op(dlc_net *net, net_op *op, const dlc_net_port *port);
dlc_status dlc_net_prepare_port(dlc_net *net, net_op *op);
dlc_status dlc_net_run_port(const dlc_net *net, dlc_reorder *reorder, const net_op *op,
                            const void *src, void *dst);
/* build.c: the operation that a layer of the graph became, NULL if it is not here; and
 * the arrays of one. */
net_op *dlc_net_op_of_node(const dlc_net *net, int32_t node);
dlc_status dlc_net_allocate_op(net_op *op, int32_t inputs);
/* plan.c: every pointer of a pass, from where buffers lie now; from operation `first`
 * on. */
void dlc_net_point(dlc_net *net);
void dlc_net_point_from(dlc_net *net, int32_t first);
/* plan.c: a buffer more, for steps `first` to `last`; and where it lies, NULL: none. */
int32_t dlc_net_buffer_add(dlc_net *net, size_t bytes, int32_t first, int32_t last);
void *dlc_net_buffer_at(const dlc_net *net, int32_t buffer);
/* run.c: one operation of a pass; those that another one does, or that have no
 * backward, are passed over. */
dlc_status dlc_net_forward_op(dlc_net *net, int32_t op, int64_t iteration,
                              int64_t sample);
dlc_status dlc_net_backward_op(dlc_net *net, int32_t op, float loss_scale,
                               dlc_status (*done)(void *context, size_t elements),
                               void *context);
/* run.c: does it end in a loss or metric? */
int dlc_net_is_metric(const net_op *op);
/* plan.c: bytes from one lane to the next. */
size_t dlc_net_lane_bytes(const dlc_net *net);
/* build.c: layers made, shapes inferred, layers absorbed, gradients traced. */
dlc_status dlc_net_make_layers(dlc_net *net);
/* prepare.c: layouts agreed on, reorders put in. */
dlc_status dlc_net_prepare(dlc_net *net);
/* params.c: places in the arenas, then memory and first values. */
dlc_status dlc_net_lay_out_params(dlc_net *net);
dlc_status dlc_net_take_params(dlc_net *net);
/* recompute.c: which tensors are made again in backward instead of being kept. */
void dlc_net_plan_again(dlc_net *net);
/* plan.c: lifetimes, buffers shared; then memory and pointers. */
dlc_status dlc_net_plan(dlc_net *net);
dlc_status dlc_net_take_memory(dlc_net *net);

/* describe.c: which halves of backward there are to do, as DLC_PART_ bits; and whether
 * they can be done, and measured, one by one. */
uint32_t dlc_net_halves(const net_op *op);
int dlc_net_can_part(const net_op *op);
/* What the backward of an operation that is done in one counts as. */
dlc_net_part dlc_net_whole_part(const net_op *op);

/* The steps of a pass: forward of operation i is step i, its backward 2n-1-i. */
static inline int32_t net_backward_step(const dlc_net *net, int32_t op) {
    return 2 * net->ops - 1 - op;
}

/* The operation whose forward or backward step it is. */
static inline int32_t net_op_at(const dlc_net *net, int32_t step) {
    return step < net->ops ? step : 2 * net->ops - 1 - step;
}

/* Has it elements that a layer must say it knows? */
static inline int net_is_16_bit(const dlc_tensor *tensor) {
    return tensor->dtype == DLC_BF16 || tensor->dtype == DLC_F16;
}

/* Does the layer read, and give, what is in the tensor? */
static inline int net_knows_type(const dlc_feature *feature, const dlc_tensor *tensor) {
    uint64_t bit = tensor->dtype == DLC_BF16 ? DLC_LAYER_BF16 : DLC_LAYER_F16;
    return !net_is_16_bit(tensor) || (feature->caps & bit) != 0;
}

static inline int net_is_running(const net_op *op) {
    return op->absorbed_by == NO_OP;
}

/* plan.c: first and last step of backward that reads the tensor; NO_OP if none does. */
void dlc_net_backward_reads(const dlc_net *net, int32_t tensor, int32_t *first,
                            int32_t *last);

/* Are tensors of this net in memory that the processor reads? */
int dlc_net_on_host(const dlc_net *net);

#endif

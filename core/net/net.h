/* A net: the graph's layers of one phase, built for one batch size on one device.
 *
 *     dlc_net_build      create, infer shapes, fuse, prepare, plan memory
 *     dlc_net_allocate   take the planned memory; fill the parameters
 *     dlc_net_forward, dlc_net_backward, ...
 *     dlc_net_free
 *
 * Building computes nothing on samples and allocates no tensor memory: `dlcore check`
 * stops after it. A net of the test phase is built with a training net, whose
 * parameters it reads.
 *
 * Threads: one thread at a time uses a net.
 */
#ifndef DLC_NET_NET_H
#define DLC_NET_NET_H

#include <math.h>

#include <dlcore/layer.h>

#include "comm/progress_engine.h"
#include "net/graph.h"
#include "solver/segment.h"

typedef struct dlc_net dlc_net;

/* How the tensor-parallel layers at the end of a net get the samples of all ranks
 * (chunks.h): the whole batch at once; in chunks of consecutive samples, so that
 * one rank after the other sends its own; or in chunks with a part of every rank's.
 * There are as many chunks as ranks. */
typedef enum dlc_tensor_schedule {
    DLC_TENSOR_WHOLE_BATCH,
    DLC_TENSOR_BY_RANK,
    DLC_TENSOR_CHUNKED,
    DLC_TENSOR_SCHEDULES
} dlc_tensor_schedule;

/* The ranks that share tensor-parallel layers (placement.h). */
typedef struct dlc_net_tensor_parallel {
    int32_t rank, ranks;
    const char *layers; /* one per layer of the graph: is it tensor-parallel? */
    /* ranks + 1 elements: of the samples of one pass over all ranks, rank r has
     * [first_sample[r], first_sample[r + 1]). */
    const int64_t *first_sample;
    /* ranks + 1 elements, ascending: channels are split in proportion to the
     * differences between neighbours. */
    const int64_t *channel_share;
    dlc_tensor_schedule schedule;
    /* What sends; NULL in a net that is never run. Batch chunks have an engine with a
     * thread, for dlc_net_max_transfers; reshard operations have another without. */
    dlc_progress_engine *reshard_engine, *chunk_engine;
} dlc_net_tensor_parallel;

/* The most transfers that a net with batch chunks has in flight. */
static inline int32_t dlc_net_max_transfers(int32_t ranks) {
    return 8 * ranks;
}

/* The first layer of the graph (in this phase) that can work on batch chunks: from
 * there on only tensor-parallel layers read what comes before, and that is a single
 * tensor. -1: there is none; the detail sentence says why. */
int32_t dlc_net_find_chunked_part(const dlc_graph *graph, dlc_phase phase,
                                  const char *is_parallel);

/* A tensor at the boundary of a pipeline stage: a net that is only a part of the graph.
 * It is transferred in plain layout, as float32 or integers. */
typedef struct dlc_net_boundary {
    int32_t layer, output; /* of the graph */
    dlc_dtype dtype;
    dlc_shape shape;
    int gradient; /* its gradient is transferred in the other direction */
} dlc_net_boundary;

/* A field of the batch, as the net reads it. */
typedef struct dlc_net_field {
    const char *name;
    int is_label;    /* layers compare with it: all bits of a sample that does not count
                        are set, which is DLC_LABEL_NONE, or NaN */
    dlc_dtype dtype; /* DLC_F32 or DLC_I32 */
    dlc_shape shape; /* of one sample; rank 0: one value */
} dlc_net_field;

/* In the order of the graph's fields. */
typedef struct dlc_net_fields {
    int32_t count;
    dlc_net_field field[DLC_NET_FIELDS];
} dlc_net_fields;

/* The bytes of one sample. */
static inline size_t dlc_net_field_bytes(const dlc_net_field *field) {
    return (size_t)dlc_shape_count(&field->shape) * dlc_dtype_bytes(field->dtype);
}

/* A net has two sets of parameters, in arenas of their own. */
enum {
    DLC_PARAMS_WHOLE, /* of layers that this rank has whole; with control words */
    DLC_PARAMS_ROWS,  /* of tensor-parallel layers: this rank's rows */
    DLC_PARAM_SETS
};

typedef struct dlc_net_args {
    const dlc_graph *graph;
    /* Only layers [first, end) of the graph; end 0: all. What they read of other
     * layers, and what other layers read of them, are boundary tensors. The tables must
     * outlive the net. */
    int32_t first, end;
    const char *layers; /* one per layer of the graph: is it in the net? NULL: all */
    int32_t boundaries_in, boundaries_out;
    const dlc_net_boundary *boundary_in, *boundary_out;
    /* Sets of activation buffers, one for each micro-batch that may be in flight; 0: 1.
     */
    int32_t micro_batch_buffers;
    /* Infer shapes and trace gradients only: nothing is prepared, and dlc_net_output,
     * dlc_net_wants_gradient and the rows are all there is. `device` may be NULL then,
     * if `on_misfit` is set: families infer shapes without a device, and layers of
     * families that cannot are left out. */
    int outline;
    /* Optional, for an outline, which then continues after a layer whose shapes do not
     * fit: called with the layer of the graph and the status; the detail sentence says
     * why. Such layers, those that the graph marks broken, and all that read one of
     * them are left out. */
    void (*on_misfit)(void *context, int32_t layer, dlc_status status);
    void *misfit_context;
    dlc_phase phase;
    const dlc_feature *device_feature;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_queue *queue;      /* passes are submitted to it; NULL: calls are synchronous */
    int32_t threads;       /* CPU threads for the layers */
    dlc_dtype precision;   /* of activations: DLC_F32, DLC_BF16 or DLC_F16 */
    uint32_t math;         /* DLC_MATH_ bits */
    int autotune;          /* layers may time the algorithms they choose from */
    int recompute;         /* recompute cheap activations in backward */
    dlc_net_fields fields; /* count 0: `data` of the shape `sample`, and a class */
    dlc_shape sample;
    int64_t batch; /* samples of one pass of this rank */
    uint64_t seed;
    int shared[DLC_PARAM_SETS]; /* peers may map these arenas: use memory that can be
                                   shared */
    /* For a test net: the training net whose parameters it reads. It must outlive this
     * net. The two may share the memory of activations: running one invalidates what
     * the other's last forward left. NULL: this net owns its parameters. */
    dlc_net *train_net;
    /* Optional: called before each layer is set up or runs, for the report on a lost
     * rank. A status other than DLC_OK ends the set-up. */
    dlc_status (*on_activity)(void *context, const char *phase, const char *layer);
    void *activity_context;
    /* Optional: called before a layer's forward reads elements [begin, end) of the
     * weights of a set, to wait for deferred updates. A status other than DLC_OK ends
     * forward. */
    dlc_status (*wait_for_weights)(void *context, int32_t set, size_t begin,
                                   size_t end);
    void *weights_context;
    /* As in dlc_layer_run; only with a queue, and NULL allowed. */
    const dlc_step *step_at;
    const float *loss_scale_at;
    const dlc_net_tensor_parallel *tensor_parallel; /* NULL: no layer is */
    const dlc_layer_group *group; /* for dlc_layer_args; NULL allowed */
    int empty; /* no samples: a pass only takes part in what collective layers exchange
                */
    /* One per layer of the graph: must its parameters have plain layout? NULL: none.
     * Must outlive the net. */
    const char *plain_params;
} dlc_net_args;

/* Builds a net without allocating it. The args' pointers must stay valid. */
dlc_status dlc_net_build(const dlc_net_args *args, dlc_net **net);
void dlc_net_free(dlc_net *net); /* NULL allowed */

/* The name of the first collective layer (dlc_layer_shapes), whose passes all ranks of
 * the group run together; NULL: there is none. */
const char *dlc_net_collective_layer(const dlc_net *net);

/* Allocates the memory and initializes the parameters with their fillers, each from its
 * own stream of random numbers. Call it once, before the calls below. */
dlc_status dlc_net_allocate(dlc_net *net);

/* ---- One batch --------------------------------------------------------------- */

/* The fields of the batch. */
const dlc_net_fields *dlc_net_batch_fields(const dlc_net *net);

/* Sets the batch: the values of each field, sample after sample, in host or device
 * memory. On a device that works in host memory the batch is read in place, later if
 * there is a queue, so it must stay valid. */
dlc_status dlc_net_set_batch(dlc_net *net, const void *const *value);
/* Sets a batch whose `data` is bytes, which the device's `normalize` converts to (byte
 * - mean) * scale; both have one value per channel. All are in device memory. */
dlc_status dlc_net_set_bytes(dlc_net *net, const void *const *value, const float *mean,
                             const float *scale);
/* Sets the batch of a net that reads two fields: data and classes. */
static inline dlc_status dlc_net_set_input(dlc_net *net, const float *data,
                                           const int32_t *labels) {
    const void *const value[] = {data, labels};
    return dlc_net_set_batch(net, value);
}

/* A micro-batch of a net that has several in flight or that has boundary tensors:
 * everything that follows dlc_net_begin_micro_batch works in the memory of this one,
 * until the next such call. Others may come between its forward and its backward;
 * set_input is called again after each dlc_net_begin_micro_batch. */
typedef struct dlc_net_micro_batch {
    int32_t buffers;           /* which set of activation buffers */
    int64_t iteration, sample; /* of backward, as in dlc_layer_run */
    /* One per boundary tensor, in device memory; `..._diff` elements are NULL if there
     * is no gradient. `in_diff` and `out` are written, the others are read. */
    void *const *in, *const *in_diff;
    void *const *out, *const *out_diff;
} dlc_net_micro_batch;

void dlc_net_begin_micro_batch(dlc_net *net, const dlc_net_micro_batch *batch);

/* `iteration` and `sample` are those of dlc_layer_run. When a net with batch chunks
 * trains, this runs only what comes before the chunked layers; these run, forward and
 * backward, in dlc_net_backward, after which metrics are valid. */
dlc_status dlc_net_forward(dlc_net *net, int64_t iteration, int64_t sample);

/* Computes the gradients of loss_scale times the weighted sum of the mean losses, each
 * times its share (dlc_net_set_loss_share). After
 * each layer with parameters `done(context, set, elements)` is called: the gradients of
 * that set are final up to `elements`. A status other than DLC_OK ends backward. */
typedef dlc_status dlc_net_done(void *context, int32_t set, size_t elements);

dlc_status dlc_net_backward(dlc_net *net, float loss_scale, dlc_net_done *done,
                            void *context);

typedef struct dlc_metric {
    const char *name; /* the layer's */
    int is_loss;
    double weight;     /* of a loss in the sum that is minimised */
    double sum, count; /* over the batch's counted samples */
} dlc_metric;

/* NaN if nothing counts. */
static inline double dlc_metric_mean(const dlc_metric *metric) {
    return metric->count > 0 ? metric->sum / metric->count : (double)NAN;
}

int32_t dlc_net_metrics(const dlc_net *net);
/* With a queue this blocks until the pass is complete. */
dlc_status dlc_net_metric(const dlc_net *net, int32_t i, dlc_metric *metric);
/* A loss of a net. */
typedef struct dlc_net_loss {
    int32_t number; /* among all losses of the graph that are trained */
    int32_t field;  /* whose values tell what counts; -1: every sample counts alike */
} dlc_net_loss;

/* In the order in which dlc_net_metric lists them. */
int32_t dlc_net_losses(const dlc_net *net);
dlc_net_loss dlc_net_loss_at(const dlc_net *net, int32_t i);
/* What counts in each of `samples` samples, whose values of loss i's field are in host
 * memory. */
dlc_status dlc_net_count(const dlc_net *net, int32_t i, const void *targets,
                         int64_t samples, double *counted);
/* Sets what backward multiplies loss i by, from now on: first 1. `counted`: what counts
 * in each sample of the pass, for nets with batch chunks; valid until backward is done;
 * NULL: all the same. */
void dlc_net_set_loss_share(dlc_net *net, int32_t i, float share,
                            const double *counted);
/* Adds share times the weight of loss i times its mean to *sum in device memory, on the
 * queue, without involving the CPU. */
dlc_status dlc_net_add_loss(const dlc_net *net, int32_t i, float share, float *sum);

/* Blocks until the queue is empty. */
dlc_status dlc_net_sync(const dlc_net *net);

/* ---- Parameters ---------------------------------------------------------------- */

/* The arenas of a set: float32, `count` elements each. The last `control_words` of them
 * are not parameters, but words that the core has all-reduced with the gradients. */
typedef struct dlc_arenas {
    size_t count, control_words;
    float *weights, *gradients; /* gradients: NULL in a test net */
    /* Set by dlc_net_allocate in the net that owns them; shared if peers may map them.
     */
    const dlc_memory *weight_memory, *gradient_memory;
    int32_t segments;
    const dlc_segment *segment;
    size_t buffer_count;
    float *buffers; /* running averages and the like, without gradients */
    size_t frozen_count;
    float *frozen; /* parameters of frozen layers, the same on all ranks */
} dlc_arenas;

/* Of the control words the first is the loss, and then come votes; the others are sums,
 * as the first is. */
#define DLC_CONTROL_WORDS 16

/* Counts and segments are valid after build, pointers after allocate. */
const dlc_arenas *dlc_net_arenas_of(const dlc_net *net, int32_t set);
const dlc_arenas *dlc_net_arenas(const dlc_net *net); /* of DLC_PARAMS_WHOLE */

typedef struct dlc_net_param {
    const char *name;     /* "conv1.weight" */
    dlc_shape shape;      /* plain */
    int is_buffer;        /* not trained, so without gradients and slots */
    int is_average;       /* a buffer that is no parameter: the layer updates it */
    int is_frozen;        /* a buffer that training never changes: of a frozen layer */
    int is_common;        /* made by a collective layer, the same on all its ranks */
    size_t offset, count; /* in its arena (dlc_net_param_arena) */
    int32_t set;          /* of DLC_PARAMS_ROWS `shape` is that of this rank's rows */
    dlc_shape whole;      /* the complete parameter's, over all ranks */
    int64_t first;        /* row of the complete parameter where this rank's begin */
    int32_t order;        /* in the graph; unique per parameter */
} dlc_net_param;

int32_t dlc_net_params(const dlc_net *net);
const dlc_net_param *dlc_net_param_at(const dlc_net *net, int32_t i);
/* The arena of its values: that of weights, of buffers or of frozen parameters; for a
 * row, that of its set. */
float *dlc_net_param_arena(const dlc_net *net, int32_t i);
/* Copy parameter i between plain host memory and an arena laid out like the weights
 * (weights, gradients, a solver's slot; its own arena if it is a buffer). */
dlc_status dlc_net_param_export(dlc_net *net, int32_t i, const float *arena,
                                float *plain);
dlc_status dlc_net_param_import(dlc_net *net, int32_t i, const float *plain,
                                float *arena);

/* ---- Outlines ----------------------------------------------------------------- */

/* Describes output `output` of a layer of the graph as a boundary tensor, without its
 * gradient. Returns 0 if there is no such layer in this phase, or no such output. */
int dlc_net_output(const dlc_net *net, int32_t layer, int32_t output,
                   dlc_net_boundary *boundary);
/* Does one of layers [first, end) compute a gradient of this output? */
int dlc_net_wants_gradient(const dlc_net *net, int32_t layer, int32_t output,
                           int32_t first, int32_t end);

/* ---- Description ----------------------------------------------------------------- */

/* The parts of an operation's pass, measured separately. In training backward is one
 * call; with dlc_net_time on, layers that can (DLC_LAYER_SPLIT_BACKWARD) compute the
 * gradients of data and of weights in two calls. For other layers all of backward
 * counts as the first of these two parts that it has. */
typedef enum dlc_net_part {
    DLC_NET_FORWARD,       /* including what is recomputed in backward */
    DLC_NET_BACKWARD_DATA, /* the gradients of inputs */
    DLC_NET_BACKWARD_WEIGHTS,
    DLC_NET_PARTS
} dlc_net_part;

/* The work of one part, for the whole batch; all 0: nothing runs. */
typedef struct dlc_net_work {
    int64_t multiply_adds;
    uint64_t bytes; /* moved at least: each tensor that is read or written, once */
} dlc_net_work;

/* One operation: a layer, or a reorder that the core inserted between two layers. */
typedef struct dlc_net_row {
    const char *name, *type; /* both "reorder" for one */
    int is_reorder;
    const char *producer, *reader; /* of a reorder: the operations ("data" or "label"
                                      for the batch) before and after it; else NULL */
    const char *fused_into;        /* the layer that does its work, or NULL */
    dlc_shape output;              /* of its first output */
    int64_t parameters;            /* logical count, buffers left out */
    int frozen;                    /* they are not trained */
    int64_t multiply_adds;         /* of the whole batch, forward */
    dlc_net_work work[DLC_NET_PARTS];
    size_t trained_begin, trained_count; /* its slice of the weights' arena */
    int32_t added;   /* gradients that are added to another layer's by an extra pass */
    char choice[96]; /* the algorithm, as described by the layer */
} dlc_net_row;

/* In the order of forward. */
int32_t dlc_net_rows(const dlc_net *net);
dlc_status dlc_net_row_at(const dlc_net *net, int32_t i, dlc_net_row *row);

typedef struct dlc_net_memory {
    size_t activations; /* workspaces and scratch memory included */
    size_t weights, gradients, buffers;
    int32_t reorders; /* inserted between layers of different layouts */
} dlc_net_memory;

/* The bytes that dlc_net_allocate allocates. */
dlc_net_memory dlc_net_memory_plan(const dlc_net *net);
/* Where the net keeps activations, which are of no use between passes; NULL before it
 * has memory. */
float *dlc_net_activations(const dlc_net *net, size_t *count);

/* Turns the measurement of each part of each operation on or off. */
void dlc_net_time(dlc_net *net, int on);
/* The seconds that row i (0 <= i < rows) took in the last pass; 0 where nothing ran. */
void dlc_net_seconds(const dlc_net *net, int32_t i, double seconds[DLC_NET_PARTS]);

#endif

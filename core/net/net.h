/* A net: the graph's layers of one phase, built for one batch size on one device.
 *
 *     dlc_net_build      create, infer shapes, fuse, prepare, plan memory
 *     dlc_net_allocate   take the planned memory; fill the parameters
 *     dlc_net_forward, dlc_net_backward, ...
 *     dlc_net_free
 *
 * Building computes nothing on samples and takes no tensor memory: `dlcore check`
 * stops after it. A net of the test phase is built as the *twin* of a training
 * net, whose parameters it reads.
 *
 * Threads: one net, one thread.
 */
#ifndef DLC_NET_NET_H
#define DLC_NET_NET_H

#include <dlcore/layer.h>
#include <dlcore/solver.h>

#include "net/courier.h"
#include "net/graph.h"

typedef struct dlc_net dlc_net;

/* How the split layers at the end of a net get the samples of all ranks (portions.h):
 * all at once; in portions of consecutive samples, so that one rank after the other
 * sends its own; or in portions with a part of every rank's. There are as many portions
 * as ranks. */
typedef enum dlc_split_way {
    DLC_SPLIT_WHOLE,
    DLC_SPLIT_ROTATING,
    DLC_SPLIT_SLICED,
    DLC_SPLIT_WAYS
} dlc_split_way;

/* The ranks among which layers are split (split.h). */
typedef struct dlc_net_split {
    int32_t rank, ranks;
    const char *layers; /* one a layer of the graph: is it split? */
    /* ranks + 1 elements: of the samples of one pass over all ranks, those of rank r
     * are [first[r], first[r + 1]). */
    const int64_t *first;
    /* As many: channels are shared out in these proportions. */
    const int64_t *cut;
    const dlc_mail *mail; /* its own; NULL in a net that is never run */
    dlc_split_way way;
    dlc_courier *courier; /* for portions; of a mail of its own, with room for
                             dlc_net_parcels; NULL as above */
} dlc_net_split;

static inline int32_t dlc_net_parcels(int32_t ranks) {
    return 8 * ranks;
}

/* The first layer of the graph that portions are taken for (of the phase): from there
 * on nothing but split layers reads what comes before, one tensor. -1: there is no such
 * layer; the detail sentence says why not. */
int32_t dlc_net_find_group(const dlc_graph *graph, dlc_phase phase, const char *split);

/* A tensor that crosses the edge of a net which is a part of the graph only. On its way
 * it is plain: float32, or whole numbers. */
typedef struct dlc_net_port {
    int32_t layer, output; /* of the graph */
    dlc_dtype dtype;
    dlc_shape shape;
    int gradient; /* its gradient goes the other way */
} dlc_net_port;

typedef struct dlc_net_args {
    const dlc_graph *graph;
    /* Layers [first, end) of the graph alone; end 0: all. What they read of others
     * comes in by ports, what others read of them goes out by ports; the tables stay.
     */
    int32_t first, end;
    int32_t ports_in, ports_out;
    const dlc_net_port *port_in, *port_out;
    int32_t lanes; /* passes that may be under way at once, each with activations of its
                      own; 0: 1 */
    int outline; /* shapes and the way of the gradients alone: nothing is prepared, and
                    dlc_net_output, dlc_net_is_wanted and rows are all there is. Then
                    `device` may be NULL, with `misfit`: families are asked
                    for shapes alone, and layers of those that can't tell are left out
                  */
    /* Optional, for an outline, which then goes on where a layer's shapes don't fit:
     * told the layer, of the graph, and the status; the detail sentence says why. Such
     * layers, those that the graph calls broken, and all that read one of them are left
     * out. */
    void (*misfit)(void *context, int32_t layer, dlc_status status);
    void *misfit_context;
    dlc_phase phase;
    const dlc_feature *device_feature;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    /* What a pass does is given to it, to be done later; NULL: done when a call
     * returns. */
    dlc_queue *queue;
    int32_t threads;     /* processor threads for the layers */
    dlc_dtype precision; /* of activations: DLC_F32, DLC_BF16 or DLC_F16 */
    uint32_t math;       /* DLC_MATH_ bits */
    int tune;            /* layers may time what they choose from */
    int low_memory;      /* make cheap activations again in backward */
    dlc_shape sample;    /* C, H, W of one sample */
    int64_t batch;       /* samples of one pass of this rank */
    uint64_t seed;
    int shared;    /* peers may map the arenas: memory that is dearer to reach */
    dlc_net *twin; /* the training net; must outlive this one, which reads its
                      parameters and may work in its memory: what forward of one
                      left is lost to the other. NULL: this net owns its own */
    /* Optional: told which layer is at work, for the report of a lost rank. */
    void (*watch)(void *context, const char *phase, const char *layer);
    void *watch_context;
    /* Optional: asked for elements [begin, end) of the weights before a layer's forward
     * reads them; what it returns ends forward if it isn't DLC_OK. */
    dlc_status (*need)(void *context, size_t begin, size_t end);
    void *need_context;
    /* Of dlc_layer_run; with a queue only, and NULL allowed. */
    const dlc_step *step_at;
    const float *loss_scale_at;
    const dlc_net_split *split; /* NULL: no layer is */
    /* One a layer of the graph: are its parameters to be plain? NULL: none. Stays. */
    const char *plain;
} dlc_net_args;

dlc_status dlc_net_build(const dlc_net_args *args, dlc_net **net);
void dlc_net_free(dlc_net *net); /* NULL allowed */

/* Takes the memory and fills parameters from their fillers, each drawn from its
 * own stream of the seed. Once, before the calls below. */
dlc_status dlc_net_allocate(dlc_net *net);

/* ---- One pass ---------------------------------------------------------------- */

/* The batch: N, C, H, W float32 and N labels, in host memory or the device's. On a
 * device that the processor shares memory with they are read in place, with a queue
 * later, so they must stay. */
dlc_status dlc_net_set_input(dlc_net *net, const float *data, const int32_t *labels);
/* The same of bytes, of which the device's `normalize` makes (byte - mean) * scale;
 * `mean` has one a channel. All are in the memory of a device that has its own. */
dlc_status dlc_net_set_bytes(dlc_net *net, const uint8_t *data, const float *mean,
                             float scale, const int32_t *labels);

/* One of several passes under way, or one with ports: everything that follows works in
 * its memory, up to the next call. Between its forward and its backward others may be
 * entered; the batch is shown (set_input) behind each call. */
typedef struct dlc_net_pass {
    int32_t lane;
    int64_t iteration, sample; /* of backward, as in dlc_layer_run */
    /* One a port, in the device's memory; `..._diff` NULL where there is no gradient.
     */
    void *const *in, *const *in_diff;   /* in_diff is written, the others are read */
    void *const *out, *const *out_diff; /* out is written */
} dlc_net_pass;

void dlc_net_enter(dlc_net *net, const dlc_net_pass *pass);

/* Backward writes the weights' gradients to this arena from here on, laid out like the
 * net's own; NULL: to that. Before the pass is entered. */
void dlc_net_write_gradients(dlc_net *net, float *arena);

/* `iteration` and `sample` as in dlc_layer_run. In training by portions, what comes
 * before them; they are done, forward and backward, by dlc_net_backward, behind which
 * metrics are there. */
dlc_status dlc_net_forward(dlc_net *net, int64_t iteration, int64_t sample);

/* Gradients of loss_scale times the weighted sum of the mean losses. Behind each
 * layer with parameters, `done(context, elements)` is told that the gradient arena
 * is final up to `elements`; what it returns ends backward if it isn't DLC_OK. */
dlc_status dlc_net_backward(dlc_net *net, float loss_scale,
                            dlc_status (*done)(void *context, size_t elements),
                            void *context);

typedef struct dlc_metric {
    const char *name; /* the layer's */
    int is_loss;
    double weight;     /* of a loss in the sum that is minimised */
    double sum, count; /* over the batch's counted samples */
} dlc_metric;

int32_t dlc_net_metrics(const dlc_net *net);
/* Until the pass is done, with a queue. */
dlc_status dlc_net_metric(const dlc_net *net, int32_t i, dlc_metric *metric);
/* *sum, in device memory, += share times the weighted sum of the mean losses: work for
 * the queue, where the processor need not see it. */
dlc_status dlc_net_add_losses(const dlc_net *net, float share, float *sum);

/* Until the queue has nothing to do. */
dlc_status dlc_net_sync(const dlc_net *net);

/* ---- Parameters ---------------------------------------------------------------- */

/* The arenas: float32, `count` elements each, the last `tail` of them no
 * parameters but words that the core has the exchange sum up. */
typedef struct dlc_arenas {
    size_t count, tail;
    float *weights, *gradients; /* gradients: NULL in a test net */
    /* Of the net that owns them, after allocate; shared where peers may map them. */
    const dlc_memory *weight_memory, *gradient_memory;
    int32_t segments;
    const dlc_segment *segment;
    size_t buffer_count;
    float *buffers; /* running averages and the like; no gradients */
} dlc_arenas;

#define DLC_ARENA_TAIL 16

/* Counts and segments are there after build, pointers after allocate. */
const dlc_arenas *dlc_net_arenas(const dlc_net *net);
/* The same of split layers' parameters, of which this rank has rows that nobody else
 * has: they are not exchanged, and there is no tail. */
const dlc_arenas *dlc_net_split_arenas(const dlc_net *net);

typedef struct dlc_net_param {
    const char *name; /* "conv1.weight" */
    dlc_shape shape;  /* plain */
    int is_buffer;
    size_t offset,
        count;       /* in the weights' (or buffers', or split) arena, own layout */
    int is_split;    /* `shape` is what this rank has: */
    dlc_shape whole; /* of the parameter over all ranks, */
    int64_t first;   /* from this row on */
    int32_t order;   /* that of the graph; differs among parameters */
} dlc_net_param;

int32_t dlc_net_params(const dlc_net *net);
const dlc_net_param *dlc_net_param_at(const dlc_net *net, int32_t i);
/* The arena that its values are in: the weights', the buffers', or that of split ones.
 */
float *dlc_net_param_arena(const dlc_net *net, int32_t i);
/* Between parameter i's place in an arena laid out like the weights (weights,
 * gradients, a solver's slot; the buffers for a buffer) and plain host memory. */
dlc_status dlc_net_param_export(dlc_net *net, int32_t i, const float *arena,
                                float *plain);
dlc_status dlc_net_param_import(dlc_net *net, int32_t i, const float *plain,
                                float *arena);

/* ---- Of an outline ----------------------------------------------------------- */

/* Output `output` of a layer of the graph, as a port, but for its gradient; 0: there is
 * no such layer in this phase, or no such output. */
int dlc_net_output(const dlc_net *net, int32_t layer, int32_t output,
                   dlc_net_port *port);
/* Does one of layers [first, end) give a gradient for it? */
int dlc_net_is_wanted(const dlc_net *net, int32_t layer, int32_t output, int32_t first,
                      int32_t end);

/* ---- For people ------------------------------------------------------------------ */

/* What a pass asks of an operation, measured one by one. Backward is one call in
 * training; dlc_net_time has layers that can (DLC_LAYER_PARTS) do the two halves of
 * it apart. The whole backward of the others counts as the first half that there is. */
typedef enum dlc_net_part {
    DLC_NET_FORWARD,       /* what is made again in backward, included */
    DLC_NET_BACKWARD_DATA, /* the gradients of its inputs */
    DLC_NET_BACKWARD_PARAM,
    DLC_NET_PARTS
} dlc_net_part;

/* The work in one part, of the whole batch; all 0: nothing runs. */
typedef struct dlc_net_work {
    int64_t multiply_adds;
    uint64_t bytes; /* moved at the least: each tensor that it reads or writes, once */
} dlc_net_work;

/* One operation: a layer, or a reorder that the core put in between two. */
typedef struct dlc_net_row {
    const char *name, *type; /* both "reorder" for one */
    int is_reorder;
    const char *producer, *reader; /* of a reorder: the operations, "data" or "label",
                                      from which and for which; else NULL */
    const char *absorbed_by;       /* the layer that does its work, or NULL */
    dlc_shape output;              /* of its first output */
    int64_t parameters;            /* logical count, buffers left out */
    int64_t multiply_adds;         /* of the whole batch, forward */
    dlc_net_work work[DLC_NET_PARTS];
    size_t trained_begin, trained_count; /* its slice of the weights' arena */
    int32_t added;   /* gradients that are added to another's by a pass of its own */
    char choice[96]; /* what the layer says it chose */
} dlc_net_row;

/* In the order of forward. */
int32_t dlc_net_rows(const dlc_net *net);
dlc_status dlc_net_row_at(const dlc_net *net, int32_t i, dlc_net_row *row);

typedef struct dlc_net_memory {
    size_t activations; /* workspaces and scratch memory included */
    size_t weights, gradients, buffers;
    int32_t reorders; /* put in between layers of different layouts */
} dlc_net_memory;

dlc_net_memory dlc_net_memory_plan(const dlc_net *net);

/* Begin (or end) to measure each part of each operation. */
void dlc_net_time(dlc_net *net, int on);
/* What row i (0 <= i < rows) took in the last pass; 0 where nothing ran. */
void dlc_net_seconds(const dlc_net *net, int32_t i, double seconds[DLC_NET_PARTS]);

#endif

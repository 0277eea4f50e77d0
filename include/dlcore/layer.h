/* Layers: what a net is made of.
 *
 * A layer type is a feature of kind DLC_KIND_LAYER, found by its name and device. All
 * types of one library (oneDNN, cuDNN) form a *family*: they share a context for each
 * net and understand each other's memory layouts.
 *
 * The life of a layer, in this order:
 *
 *     call                   needed    what it does
 *     create                 required  takes the settings; computes nothing
 *     infer                  required  input shapes -> output shapes, parameters, cost
 *     before_fork            optional  what every process would do once for itself
 *     fuse                   optional  may take over the layer that reads its output
 *     prepare                required  chooses memory layouts and buffers
 *     param_import           optional  parameters: plain layout -> the layer's layout
 *     forward                required  computes the outputs
 *     backward               optional  computes the gradients
 *     param_export           optional  parameters: the layer's layout -> plain layout
 *     describe               optional  what prepare chose, for people
 *     count                  optional  what counts in the samples of a loss
 *     destroy                required  releases the layer
 *
 *     call of the family     needed    what it does
 *     open close             required  a context for one net
 *     same_layout            required  compares two layouts
 *     reorder_create
 *       reorder_run
 *       reorder_destroy      required  converts between layouts
 *
 * Threads: all calls for one net come from one thread, the train thread. infer must be
 * cheap; prepare may take seconds (it may compile kernels). forward, backward and
 * reorder_run on a queue only submit work and never block (but see dlc_layer_group);
 * without a queue the work is done when they return.
 *
 * The core owns all memory. It plans activations by which layer reads which tensor
 * when, keeps all parameters in one arena and all gradients in another, in the order in
 * which backward finishes them, and inserts a reorder of the family where a reader
 * wants another layout than the writer provides. */
#ifndef DLCORE_LAYER_H
#define DLCORE_LAYER_H

#include <dlcore/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_layer dlc_layer;     /* defined by the plugin */
typedef struct dlc_family dlc_family;   /* see below */
typedef struct dlc_reorder dlc_reorder; /* defined by the plugin */

/* What a net is built for. */
typedef enum dlc_phase {
    DLC_PHASE_TRAIN = 1,
    DLC_PHASE_TEST = 2,
} dlc_phase;

/* Limits of one layer. */
#define DLC_MAX_INPUTS 64
#define DLC_MAX_OUTPUTS 8
#define DLC_MAX_PARAMS 8

/* Capability bits of a layer feature. */
enum {
    /* What it computes: a value to watch or to minimize. */

    /* Its output is two floats: the sum over samples of what it measures, and the
     * number of samples. Samples labelled DLC_LABEL_NONE, or whose targets are NaN (or
     * ignored by a setting), do not count. */
    DLC_LAYER_METRIC = 1u << 0,

    /* A metric that training minimizes; backward starts here. */
    DLC_LAYER_LOSS = 1u << 1,

    /* A loss or metric for classification: input 0 has a score for each class in its
     * channels (dimension 1), input 1 has the labels. Before training the core compares
     * the number of channels with the classes of the data source. */
    DLC_LAYER_CLASSIFIES = 1u << 2,

    /* A loss or metric of several classes: input 0 has a score x for each class in its
     * channels (dimension 1), which has the probability 1 / (1 + exp(-x)), input 1 a
     * target for each score. */
    DLC_LAYER_MULTI_LABEL = 1u << 12,

    /* A metric that is not needed in training (accuracy): it is in the test net only,
     * unless net.ini says otherwise. */
    DLC_LAYER_TEST_ONLY = 1u << 3,

    /* Which elements of its inputs an element of its output depends on. */

    /* Has one input and one output; each element of the output is a function of the
     * same element of the input. It has no parameters and no state. The layer before it
     * may fuse it. */
    DLC_LAYER_POINTWISE = 1u << 4,

    /* Has two inputs of one shape and one output; each element of the output is a
     * function of the same elements of the inputs. It has no parameters and no state.
     * The layer before one of the inputs may fuse it, and gets the other input as a
     * further one. */
    DLC_LAYER_BINARY = 1u << 5,

    /* Has no parameters and costs next to nothing, and its output for a sample depends
     * on that sample alone. If only tensor-parallel layers read it, every rank computes
     * it for the samples of all ranks. Pointwise layers may be treated in this way
     * without this bit. */
    DLC_LAYER_SAMPLEWISE = 1u << 6,

    /* Can compute a range of its output channels (dlc_layer_args.channel_begin).
     * Dimension 0 of each parameter is the channel of the only output that it
     * contributes to, and every input is read whole. */
    DLC_LAYER_CHANNEL_PARALLEL = 1u << 7,

    /* How its passes may be run. */

    /* Is cheap compared with the memory of its output, and a second forward from the
     * same inputs gives a bitwise identical output (dlc_layer_run.recompute). */
    DLC_LAYER_RECOMPUTABLE = 1u << 8,

    /* backward obeys dlc_layer_run.backward. */
    DLC_LAYER_SPLIT_BACKWARD = 1u << 9,

    /* The element types that it supports besides float32. */

    /* Reads and writes bfloat16 activations if dlc_family_args.precision is DLC_BF16.
     * Layers without this bit are given float32. */
    DLC_LAYER_BF16 = 1u << 10,

    /* Reads and writes IEEE half precision activations if dlc_family_args.precision is
     * DLC_F16. Layers without this bit are given float32. */
    DLC_LAYER_F16 = 1u << 11,
};

/* ---- The family ---------------------------------------------------------------- */

/* Bits of dlc_family_args.math: how float32 may be multiplied. */
enum {
    /* Inputs rounded to the 10 bits of TensorFloat-32; sums in float32. */
    DLC_MATH_TF32 = 1u << 0,
};

/* The arguments of dlc_family.open. The device and the queue are valid until close. */
typedef struct dlc_family_args {
    uint32_t size;
    const dlc_device_ops *device_ops;
    dlc_device *device; /* NULL: see dlc_family.infers_without_device */
    dlc_queue *queue;   /* for all layers of the net; NULL: work is done on return */
    int32_t threads;    /* number of CPU threads that this rank may use */
    dlc_phase phase;

    /* The type of activations and their gradients: DLC_F32, DLC_BF16 or DLC_F16.
     * Parameters, their gradients, accumulators and losses are always float32. A family
     * that does not support the type returns DLC_ERR_UNSUPPORTED with the reason. */
    dlc_dtype precision;

    uint32_t math; /* DLC_MATH_ bits */

    /* 1: prepare may time several algorithms and take the fastest, even if the last
     * bits of results then differ from run to run. It must not choose layouts by
     * timing: all ranks need the same ones. */
    int32_t autotune;
} dlc_family_args;

/* What the layers of one library have in common. Layers whose ops point to the same
 * dlc_family belong to one family. */
struct dlc_family {
    uint32_t size;
    const char *name; /* required, of a-z, 0-9, '-' and '_': "onednn" */

    /* 1: open also works without a device. The core then only creates, infers and
     * destroys layers of the family, in a process that forks later, so open must not
     * start threads or touch hardware. This lets mistakes in shapes be reported
     * together with all others before the ranks start. 0: they are reported when the
     * ranks build the net. */
    int32_t infers_without_device;

    /* Required. Creates a context for one net (an engine, a stream, caches, layouts),
     * which the caller owns. */
    dlc_status (*open)(const dlc_family_args *args, void **context);

    /* Required. Releases the context after all its layers and reorders; does nothing if
     * `context` is NULL. */
    void (*close)(void *context);

    /* Required. 1 if the two layouts arrange this tensor in the same way, otherwise 0.
     * A NULL layout is plain. */
    int (*same_layout)(const dlc_tensor *a, const dlc_tensor *b);

    /* Required. Prepares the conversion between two layouts of one shape, plain (NULL)
     * included, and between float32 and the 16-bit types that the family supports. The
     * caller owns *reorder. */
    dlc_status (*reorder_create)(void *context, const dlc_tensor *from,
                                 const dlc_tensor *to, dlc_reorder **reorder);

    /* Required. Converts the tensor in `src` and writes it to `dst`, both device
     * memory. */
    dlc_status (*reorder_run)(dlc_reorder *reorder, const void *src, void *dst);

    /* Required. Does nothing if `reorder` is NULL. */
    void (*reorder_destroy)(dlc_reorder *reorder);
};

/* ---- Reductions over ranks in a pass --------------------------------------------- */

/* One step of a reduction over ranks: the value of rank `into` becomes the combination
 * of the values of ranks `into` and `from`, in this order. It has no `size` and does
 * not change within a major version. */
typedef struct dlc_merge {
    int32_t into, from;
} dlc_merge;

/* The ranks that split the samples of a pass among them, for layers whose passes need
 * the samples of all of them (dlc_layer_shapes.collective). The core provides it. All
 * these ranks make the same calls in the same order. */
typedef struct dlc_layer_group {
    uint32_t size;
    int32_t rank, ranks; /* this rank, 0 .. ranks-1; at least 2 ranks */

    /* ranks-1 steps, one after the other, that leave the combination of all ranks with
     * rank 0: the pairwise tree over the ranks of each node, then over the nodes. Who
     * combines gathered values in this order gets bitwise identical results on every
     * rank and transport. Device memory; valid in passes. */
    const dlc_merge *merges;

    void *context; /* the first argument of all_gather */

    /* All-gather in device memory: of `ranks` blocks of `bytes` bytes, a multiple of 4,
     * at `values`, this rank provides block `rank` and gets all others, bit by bit.
     * Only in forward and backward. Without a queue it blocks until all ranks have made
     * the call. With one it comes after the work that is on the queue now, and later
     * work on the queue after it; it blocks only where the transport has no
     * stream-ordered collectives. It fails if the job is ending. */
    dlc_status (*all_gather)(void *context, void *values, size_t bytes);
} dlc_layer_group;

/* ---- Building a net ------------------------------------------------------------- */

/* The arguments of create. `name`, `settings` and `context` are valid until destroy. */
typedef struct dlc_layer_args {
    uint32_t size;
    const char *name;             /* the section of net.ini, for messages */
    const dlc_settings *settings; /* of the feature's option table */
    void *context;                /* of the family, for this net */
    dlc_phase phase;

    /* In the test phase: the layer of the train net whose parameters this layer reads,
     * in the layout that they have there. NULL: there is none. */
    dlc_layer *train_layer;

    uint64_t seed;  /* of the job */
    uint32_t index; /* of the layer in the net: the stream of its random numbers */

    /* DLC_LAYER_CHANNEL_PARALLEL: of the output's channels (dimension 1) this layer
     * computes only [channel_begin, channel_end), as if there were no others, and it
     * has only those rows of the parameters. Other ranks compute the rest. Both 0: all
     * channels. If the settings do not allow it, infer returns DLC_ERR_UNSUPPORTED with
     * a sentence. */
    int64_t channel_begin, channel_end;

    /* 1: parameters must be in plain layout, because ranks with different batch sizes,
     * threads or CPUs would choose different layouts. A family whose layouts do not
     * depend on these may ignore it. */
    int32_t plain_params;

    /* 1: the parameters are not trained, and keep their values in a training pass, too:
     * statistics are the running averages, as in a test. If backward runs at all,
     * DLC_BACKWARD_DATA comes alone for a DLC_LAYER_SPLIT_BACKWARD layer, whose
     * param_diff is NULL; gradients that another layer writes there are discarded. */
    int32_t frozen;

    /* The ranks that split the samples of a pass; valid until destroy. NULL: this rank
     * has all samples, or the net is a test net or only measured. */
    const dlc_layer_group *group;
} dlc_layer_args;

/* Flags of dlc_param. */
enum {
    /* Not trained but saved (running averages). The core averages it over the ranks
     * before each test and checkpoint. */
    DLC_PARAM_BUFFER = 1u << 0,
};

/* One parameter tensor. infer fills in what differs from the core's defaults, which are
 * 1 for the two factors and otherwise 0. */
typedef struct dlc_param {
    uint32_t size;
    uint32_t flags;   /* DLC_PARAM_BUFFER */
    const char *name; /* "weight", "bias"; unique in the layer, valid until destroy */
    dlc_shape shape;  /* the logical shape */

    /* Initial values, in the format of DLC_OPT_FILLER, valid until destroy; NULL:
     * zero. */
    const char *filler;

    int64_t fan_in; /* for the fillers xavier and msra */
    int64_t fan_out;
    double lr_mult;    /* factor on the learning rate */
    double decay_mult; /* factor on the weight decay */
} dlc_param;

/* What infer is told and what it answers: shapes. The core owns the arrays, and clears
 * all answers before the call. */
typedef struct dlc_layer_shapes {
    uint32_t size;

    /* Told by the core. */

    int32_t inputs;
    const dlc_tensor *in; /* shape and dtype */

    /* Answered by infer. */

    int32_t outputs; /* 1 if it does not set it */
    int32_t params;
    dlc_tensor *out;  /* shape and dtype; has room for DLC_MAX_OUTPUTS */
    dlc_param *param; /* has room for DLC_MAX_PARAMS */

    /* Inputs that never get a gradient (labels): bit i stands for in[i]. */
    uint64_t no_gradient;

    /* 1: its passes use dlc_layer_args.group if there is one. All ranks then run the
     * layer together, and in the same iteration, those without samples too
     * (dlc_layer_run.empty). Does not depend on `group`. */
    int32_t collective;

    int64_t multiply_adds; /* of one forward pass of the whole batch */
} dlc_layer_shapes;

/* What prepare is told and what it answers: layouts and memory. The core owns the
 * arrays, and clears all answers before the call. In the sets of inputs or outputs bit
 * i stands for in[i] or out[i]. */
typedef struct dlc_layer_memory {
    uint32_t size;

    /* Told by the core. */

    int32_t inputs; /* as infer was told, and one more for a fused binary layer */
    int32_t outputs, params; /* as infer answered */

    /* Inputs whose in_diff backward must compute; none in the test phase. */
    uint64_t wants_gradient;

    /* Inputs that other layers read too. The gradients of all readers are added. */
    uint64_t shared_gradient;

    /* Answered by prepare. */

    /* in: shape, dtype and the layout that the writer provides, or NULL if a layer of
     * another family writes it; prepare sets layout, bytes and dtype to what this layer
     * wants to read. out: shape and dtype (of the last fused layer's output); prepare
     * sets layout, bytes and dtype. The gradient of a tensor has the layout of the
     * tensor. */
    dlc_tensor *in, *out;

    /* float32 elements of each parameter in the layer's own layout, padding included.
     * The core has set it to the number of elements of the shape. Padding must stay
     * zero if its gradient and its initial value are zero. */
    int64_t *param_count;

    /* Those of shared_gradient for which backward can add to in_diff[i] instead of
     * overwriting it (dlc_layer_run.accumulate), which saves a pass over memory. */
    uint64_t accumulates_gradient;

    uint64_t reads_in;  /* inputs that backward reads */
    uint64_t reads_out; /* outputs that backward reads */

    /* Inputs that out[0] may overwrite, and whose in_diff may overwrite out_diff[0] in
     * backward. */
    uint64_t in_place;

    size_t workspace_bytes; /* of this layer, kept from forward to backward */
    size_t scratch_bytes;   /* shared by all layers, undefined between calls */
} dlc_layer_memory;

/* ---- Running a net -------------------------------------------------------------- */

/* Bits of dlc_layer_run.backward: which gradients to compute. */
enum {
    DLC_BACKWARD_DATA = 1u << 0,    /* of the inputs */
    DLC_BACKWARD_WEIGHTS = 1u << 1, /* of the parameters */
};

/* The position of a pass in the training, in device memory. It has no `size` and does
 * not change within a major version. */
typedef struct dlc_step {
    int64_t iteration, sample; /* as in dlc_layer_run */
} dlc_step;

/* The arguments of one forward or backward pass. Data pointers are device memory,
 * aligned to 64 bytes. They seldom change from one call to the next, so that it is
 * worth caching what is expensive to bind. The arrays of pointers are valid during the
 * call only. Between a forward and its backward other samples may pass in other memory,
 * so all that backward needs must be in the workspace or in tensors that prepare said
 * it reads. */
typedef struct dlc_layer_run {
    uint32_t size;

    int64_t iteration; /* of training; each micro-batch counts */

    /* Position of the first sample in the global batch. Random numbers drawn by
     * (seed, layer, iteration, sample) do not depend on the number of ranks. */
    int64_t sample;

    /* Not NULL: use this instead of iteration and sample; it is in device memory and
     * read when the work is done, so that a captured graph can be launched again. */
    const dlc_step *step_at;

    const void *const *in; /* the inputs */
    void *const *out;   /* the outputs: forward writes them, backward may read them */
    void *const *param; /* the parameters */
    void *workspace;    /* dlc_layer_memory.workspace_bytes */
    void *scratch;      /* dlc_layer_memory.scratch_bytes */

    /* forward of DLC_LAYER_RECOMPUTABLE. 1: the outputs are needed once more; do not
     * update running averages again, nor use the group. */
    uint32_t recompute;

    /* 1, only with dlc_layer_args.group: this rank has no samples in this pass. The
     * layer makes its calls of all_gather and updates running averages; inputs,
     * outputs and all gradients are neither read nor written, but an entry of in_diff
     * is NULL where it would be with samples. */
    uint32_t empty;

    /* backward: gradients of the outputs; the entries are NULL for a loss (see
     * loss_scale). They may be overwritten; nobody reads them again. */
    void *const *out_diff;

    /* backward: where to write the gradients of the inputs; an entry is NULL if that
     * gradient is not wanted. */
    void *const *in_diff;

    /* backward: where to write the gradients of the parameters, overwriting what is
     * there; an entry is NULL for a buffer, or if the layer is frozen and has
     * DLC_LAYER_SPLIT_BACKWARD. */
    void *const *param_diff;

    /* backward, a subset of dlc_layer_memory.accumulates_gradient. Bit i: add to
     * in_diff[i], which has gradients of other readers. The sum of 16-bit elements may
     * be rounded once. */
    uint64_t accumulate;

    /* backward of DLC_LAYER_SPLIT_BACKWARD: DLC_BACKWARD_ bits; 0 or both: all
     * gradients, as in training. When a layer is timed, DLC_BACKWARD_WEIGHTS comes
     * alone and then DLC_BACKWARD_DATA. If it is frozen, only DLC_BACKWARD_DATA
     * comes. */
    uint32_t backward;

    /* backward of a loss: the gradient of the *mean* loss over what counts in this
     * pass, times this: its share of what counts in the batch of all ranks (see count).
     * The core accumulates. */
    float loss_scale;

    /* Not NULL: multiplies loss_scale; in device memory, read when the work is done. */
    const float *loss_scale_at;
} dlc_layer_run;

/* The table of calls of a layer type. All are made by the train thread. The core owns
 * every argument; those that a layer may keep say so. */
typedef struct dlc_layer_ops {
    uint32_t size;
    const dlc_family *family; /* required */

    /* Required; does not block. Creates a layer, which the caller owns and which is not
     * NULL. */
    dlc_status (*create)(const dlc_layer_args *args, dlc_layer **layer);

    /* Required. Releases the layer, once no pass of it is in flight; does nothing if
     * `layer` is NULL. */
    void (*destroy)(dlc_layer *layer);

    /* Required; does not block, and does not touch the device. Computes the shapes of
     * the outputs from those of the inputs, and describes the parameters. If the shapes
     * do not fit: DLC_ERR_CONFIG with a sentence that names them (the core puts the
     * name of the layer before it). It may be called again, with the same shapes or
     * others: the last answer counts, and depends on nothing but `shapes`. prepare need
     * not follow. */
    dlc_status (*infer)(dlc_layer *layer, dlc_layer_shapes *shapes);

    /* Optional; does not block. Only `next`, a DLC_LAYER_POINTWISE or DLC_LAYER_BINARY
     * layer, reads the only output of this layer. Either take over its work in forward
     * and backward (DLC_OK), or change nothing (DLC_ERR_UNSUPPORTED). Called between
     * infer and prepare; after DLC_OK it is called again for the layer after `next`,
     * but for at most one binary layer. The other input of a binary layer comes after
     * the layer's own inputs in prepare and in every pass. `next` and `settings` are
     * valid during the call. NULL: nothing is fused. */
    dlc_status (*fuse)(dlc_layer *layer, const dlc_feature *next,
                       const dlc_settings *settings);

    /* Required; may take seconds, and may wait for the device. Chooses layouts and
     * buffers. Called once, after infer. */
    dlc_status (*prepare)(dlc_layer *layer, dlc_layer_memory *memory);

    /* Required; does not block on a queue. Computes the outputs. */
    dlc_status (*forward)(dlc_layer *layer, const dlc_layer_run *run);

    /* Optional; does not block on a queue. Computes the gradients. NULL: the layer has
     * none. */
    dlc_status (*backward)(dlc_layer *layer, const dlc_layer_run *run);

    /* Optional, both or none; they block until it is done. Convert parameter `index`,
     * or a gradient or solver state of the same shape, between the layer's own layout
     * (`own`: dlc_layer_memory.param_count[index] elements of device memory) and plain
     * float32 in host memory (`plain`). param_import writes zeros to the padding. NULL:
     * all parameters are in plain layout. */

    dlc_status (*param_import)(dlc_layer *layer, int32_t index, const float *plain,
                               float *own);
    dlc_status (*param_export)(dlc_layer *layer, int32_t index, const float *own,
                               float *plain);

    /* Optional; does not block. Writes what prepare chose to `text`, for people:
     * "jit:avx512_core nChw16c". `bytes` is the size of `text`; the result always ends
     * with a NUL. NULL: nothing is said. */
    void (*describe)(dlc_layer *layer, char *text, size_t bytes);

    /* Optional; does not block. Does once what every process that runs such layers
     * would do for itself, such as generating code. Called, maybe again, in a process
     * that is about to fork ranks with layers of this type, so it must not start
     * threads or touch hardware. */
    void (*before_fork)(void);

    /* Optional, of a DLC_LAYER_LOSS layer; does not block, and does not touch the
     * device. For each of `samples` samples, whose targets (input 1) are in host memory
     * in plain layout: how much of it counts, as forward adds that up in its output.
     * The core asks before the pass, so that the parts of a batch, which ranks and
     * micro-batches have, get the weight of what counts in them. NULL: every sample
     * counts alike. */
    dlc_status (*count)(dlc_layer *layer, const void *targets, int64_t samples,
                        double *counted);
} dlc_layer_ops;

#ifdef __cplusplus
}
#endif
#endif

/* Layers: what a net is made of.
 *
 * A layer type is a feature of kind DLC_KIND_LAYER, found by its name and device.
 * All types of one library (oneDNN, cuDNN) form a *family*: they share a context
 * per net and understand each other's layouts.
 *
 * Life of a layer, always in this order and on one thread, the train thread:
 *
 *     create     settings in hand; nothing is computed
 *     infer      shapes in -> shapes out, parameters, cost       (cheap)
 *     absorb*    may take over the layer that alone reads its output
 *     prepare    layouts in -> layouts wanted and given, memory  (may compile)
 *     forward, backward, ...
 *     destroy
 *
 * The core owns all memory: it plans activations by who reads what when, lays
 * parameters and gradients out in one arena each, in the order in which backward
 * finishes them, and puts in the family's reorder where a reader wants another
 * layout than the writer gives.
 */
#ifndef DLCORE_LAYER_H
#define DLCORE_LAYER_H

#include <dlcore/device.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dlc_layer dlc_layer;     /* the plugin's own */
typedef struct dlc_family dlc_family;   /* below */
typedef struct dlc_reorder dlc_reorder; /* the family's own */

typedef enum dlc_phase {
    DLC_PHASE_TRAIN = 1,
    DLC_PHASE_TEST = 2,
} dlc_phase;

#define DLC_MAX_INPUTS 64 /* inputs of one layer */
#define DLC_MAX_OUTPUTS 8
#define DLC_MAX_PARAMS 8

/* Capability bits of a layer feature. */
enum {
    /* Its output is {sum over samples, number of samples} of what it measures, as
     * two floats; samples labelled DLC_LABEL_NONE (or ignored) don't count. */
    DLC_LAYER_METRIC = 1u << 0,
    /* A metric that training minimises: backward starts here. */
    DLC_LAYER_LOSS = 1u << 1,
    /* Has no use in training beyond being watched (accuracy): test only, unless
     * the INI says otherwise. */
    DLC_LAYER_TEST_ONLY = 1u << 2,
    /* Each element of its only output is a function of the same element of its only
     * input, without parameters or memory: what comes before may absorb it. */
    DLC_LAYER_POINTWISE = 1u << 3,
    /* The same of exactly two inputs of one shape: what comes before one of them may
     * absorb it and gets the other one as a further input. */
    DLC_LAYER_JOIN = 1u << 7,
    /* Reads and gives bfloat16 activations where dlc_family_args.precision asks for
     * it. Layers without this bit are shown float32 alone. */
    DLC_LAYER_BF16 = 1u << 4,
    /* The same with IEEE half precision, DLC_F16. */
    DLC_LAYER_F16 = 1u << 8,
    /* Costs little beside the memory of its output, which forward can make again from
     * the same inputs, to the bit (dlc_layer_run.again). */
    DLC_LAYER_REPEATABLE = 1u << 5,
    /* Backward looks at dlc_layer_run.parts. */
    DLC_LAYER_PARTS = 1u << 6,
    /* Can make a slice of its outputs' channels (dlc_layer_args.slice_begin): dimension
     * 0 of each parameter is the channel of the only output that it makes, and each of
     * its inputs is read whole. */
    DLC_LAYER_SLICES = 1u << 9,
    /* Has no parameters and costs next to nothing, and what it gives for a sample
     * depends on that sample alone: where only split layers read it, every rank does it
     * for the samples of all. Pointwise layers may be treated so without this bit. */
    DLC_LAYER_SAMPLEWISE = 1u << 10,
    /* A loss or metric of a classification: input 0 has a score for each class in its
     * channels (dimension 1), input 1 the labels. The core compares the channels with
     * the classes that the data source knows before training starts. */
    DLC_LAYER_CLASSIFIES = 1u << 11,
};

/* What backward is to compute (dlc_layer_run.parts). */
enum {
    DLC_PART_DATA = 1u << 0,  /* the gradients of its inputs */
    DLC_PART_PARAM = 1u << 1, /* those of its parameters */
};

/* How float32 may be multiplied (dlc_family_args.math). */
enum {
    /* Rounded to TensorFloat-32's 10 bits first; sums stay float32. */
    DLC_MATH_TF32 = 1u << 0,
};

/* Which part of the training a pass is, in device memory. Frozen, no `size`. */
typedef struct dlc_step {
    int64_t iteration, sample; /* as in dlc_layer_run */
} dlc_step;

typedef struct dlc_family_args {
    uint32_t size;
    const dlc_device_ops *device_ops;
    dlc_device *device; /* NULL: see dlc_family.shapes_alone */
    dlc_queue *queue;   /* all layers of the net work on it; NULL: synchronous */
    int32_t threads;    /* processor threads that this rank may use */
    dlc_phase phase;
    /* Of activations and their gradients: DLC_F32, DLC_BF16 or DLC_F16. Parameters,
     * their gradients, sums and losses are float32 always. A family that cannot answers
     * DLC_ERR_UNSUPPORTED with the reason. */
    dlc_dtype precision;
    uint32_t math; /* DLC_MATH_ bits */
    /* 1: prepare may time ways to do the same and take the fastest, though results may
     * then differ in their last bits from run to run. Layouts are never chosen so: all
     * ranks must have them alike. */
    int32_t tune;
} dlc_family_args;

/* What the layers of one library have in common. Layers belong to one family if
 * their ops point to one dlc_family. */
struct dlc_family {
    uint32_t size;
    const char *name; /* "onednn" */

    /* A context for one net (engine, stream, caches, its layouts). */
    dlc_status (*open)(const dlc_family_args *args, void **context);
    /* After all its layers and reorders are destroyed. NULL allowed. */
    void (*close)(void *context);

    /* Are two layouts the same bytes for this tensor? NULL is plain. */
    int (*same_layout)(const dlc_tensor *a, const dlc_tensor *b);
    /* Between two layouts of one shape, plain (NULL) included; and between float32
     * and the 16-bit floats that the family has layers for. */
    dlc_status (*reorder_create)(void *context, const dlc_tensor *from,
                                 const dlc_tensor *to, dlc_reorder **reorder);
    dlc_status (*reorder_run)(dlc_reorder *reorder, const void *src, void *dst);
    void (*reorder_destroy)(dlc_reorder *reorder); /* NULL allowed */

    /* 1: open may get no device. Then nothing but create, infer and destroy of the
     * family's layers follows, in a process that forks later: open starts no thread and
     * touches no hardware. So mistakes in shapes are told along with all others, before
     * a job is started; 0: when its ranks build the net. */
    int32_t shapes_alone;
};

typedef struct dlc_layer_args {
    uint32_t size;
    const char *name;             /* section of the INI, for messages */
    const dlc_settings *settings; /* of the feature's option table */
    void *context;                /* the family's, of this net */
    dlc_phase phase;
    /* TEST: the layer of the training net whose parameters this one reads, with
     * the layout they have there; NULL when there is none. */
    dlc_layer *twin;
    uint64_t seed;  /* of the job */
    uint32_t index; /* of the layer: the stream of its random numbers */
    /* DLC_LAYER_SLICES: of the output's channels (dimension 1) only [begin, end) are
     * made here, as if there were no others, and only those rows of the parameters are
     * here; the rest are other ranks'. Both 0: all. What cannot be sliced so is refused
     * by infer with DLC_ERR_UNSUPPORTED and a sentence. */
    int64_t slice_begin, slice_end;
    /* 1: parameters are to be plain (row-major) in memory, because ranks whose batches,
     * threads or processors differ would lay them out in different ways. Who lays them
     * out alike on all ranks anyway need not care. */
    int32_t plain_params;
} dlc_layer_args;

/* Flags of dlc_param. */
enum {
    /* Not trained by a gradient, but kept and saved (running averages). The core
     * averages it over the ranks before each test and checkpoint. */
    DLC_PARAM_BUFFER = 1u << 0,
};

/* One parameter tensor. The layer fills in all but what is marked. */
typedef struct dlc_param {
    uint32_t size;
    uint32_t flags;
    const char *name;   /* "weight", "bias"; unique in the layer */
    dlc_shape shape;    /* logical */
    int64_t count;      /* prepare: float32 elements in the layer's own layout,
                           padding included; padding must stay zero when
                           gradient and weight start as zero there */
    const char *filler; /* DLC_OPT_FILLER text; NULL: zero */
    int64_t fan_in;     /* for xavier and msra */
    int64_t fan_out;
    double rate;  /* multiplier of the learning rate */
    double decay; /* multiplier of the weight decay */
} dlc_param;

/* What the core and a layer tell each other while the net is built. One struct
 * for infer and prepare: the core sets what is marked "in", and clears the rest
 * before infer. */
typedef struct dlc_layer_plan {
    uint32_t size;
    int32_t inputs;        /* in */
    dlc_tensor *in;        /* in: as the writer gives them (layout: from prepare
                              on; NULL from a stranger). prepare: set layout,
                              bytes and dtype to what the layer wants to read */
    int32_t outputs;       /* infer: 1 unless set */
    dlc_tensor *out;       /* infer: shape and dtype; prepare: layout, bytes. Room
                              for DLC_MAX_OUTPUTS. Gradients have the layout of
                              the tensor that they belong to */
    int32_t params;        /* infer */
    dlc_param *param;      /* infer, prepare. Room for DLC_MAX_PARAMS */
    int64_t multiply_adds; /* infer: of one forward pass of the whole batch */

    /* Bit i: input i. */
    uint64_t no_gradient; /* infer: never gives a gradient for it (labels) */
    uint64_t reads_in;    /* prepare: backward reads in[i] */
    uint64_t in_place;    /* prepare: out[0] may be written over in[i] and, in
                             backward, in_diff[i] over out_diff[0] */
    /* Bit i: output i. */
    uint64_t reads_out; /* prepare: backward reads out[i] */

    /* in, before prepare. Bit i: backward will be asked for in_diff[i] (never in the
     * test phase). */
    uint64_t wants_gradient;

    size_t workspace_bytes; /* prepare: its own, kept from forward to backward */
    size_t scratch_bytes;   /* prepare: shared by all layers, lost between calls */

    /* in, before prepare. Bit i: others that read the same tensor give a gradient for
     * it, too, and may have done so when this layer's backward comes; all of them are
     * added up. */
    uint64_t shares_gradient;
    /* prepare, of those bits. Bit i: backward can add what it finds to in_diff[i] as it
     * writes it (dlc_layer_run.adds), which saves a pass over memory. */
    uint64_t adds_gradient;
} dlc_layer_plan;

/* One pass. Pointers are device memory, 64-byte aligned; they may change from one
 * call to the next but seldom do, so what is costly to bind may be cached. On a queue
 * (dlc_family_args.queue) forward and backward only give it work, and never block; the
 * arrays of pointers are gone when they return. Between a forward and its backward
 * other samples may pass, in other memory: what backward needs of forward lies in the
 * workspace or in what the plan says it reads. */
typedef struct dlc_layer_run {
    uint32_t size;
    int64_t iteration; /* of training; micro-batches count */
    int64_t sample;    /* position of the batch's first sample in the
                          global batch: random numbers that are drawn by
                          (seed, layer, iteration, sample) do not depend
                          on the number of ranks */
    const void *const *in;
    void *const *out;
    void *const *out_diff; /* backward; of a loss: NULL, see loss_scale. May be
                              written over: nobody reads it again */
    void *const *in_diff;  /* backward: written; an entry is NULL where the
                              gradient is not wanted */
    void *const *param;
    void *const *param_diff; /* backward: overwritten; NULL for buffers */
    void *workspace;
    void *scratch;
    float loss_scale; /* backward of a loss: the gradient of its *mean*
                         over the batch's counted samples, times this */
    uint32_t parts; /* backward: DLC_PART_ bits, both (or 0) in training; when they are
                       timed first PARAM alone, then DATA, of DLC_LAYER_PARTS
                       only */
    uint32_t again; /* forward, of DLC_LAYER_REPEATABLE: what it wrote is needed
                       once more; running averages have seen this batch */
    /* On a queue, in device memory; read when the work is done, so that it can be
     * recorded and run again. Each may be NULL. */
    const dlc_step *step_at;    /* in place of iteration and sample */
    const float *loss_scale_at; /* one more factor of loss_scale */
    /* backward, of plan.adds_gradient. Bit i: in_diff[i] has the gradients of others,
     * to which this one is added. Of 16-bit elements the sum may be rounded once. */
    uint64_t adds;
} dlc_layer_run;

typedef struct dlc_layer_ops {
    uint32_t size;
    const dlc_family *family; /* never NULL */

    dlc_status (*create)(const dlc_layer_args *args, dlc_layer **layer);
    void (*destroy)(dlc_layer *layer); /* NULL allowed */

    /* Shapes out of shapes; DLC_ERR_CONFIG with a sentence that names the shapes
     * where they don't fit (the core puts the layer's name before it). Also called
     * without prepare ever following. */
    dlc_status (*infer)(dlc_layer *layer, dlc_layer_plan *plan);

    /* Optional. `next`, which is DLC_LAYER_POINTWISE or DLC_LAYER_JOIN, alone reads
     * this layer's only output: take its work over, forward and backward (DLC_OK), or
     * leave all as it was (DLC_ERR_UNSUPPORTED). Between infer and prepare; may be
     * called again for the layer after that, but for one JOIN only. The other input
     * of a JOIN stands behind the layer's own in prepare and in every pass. */
    dlc_status (*absorb)(dlc_layer *layer, const dlc_feature *next,
                         const dlc_settings *settings);

    dlc_status (*prepare)(dlc_layer *layer, dlc_layer_plan *plan);

    dlc_status (*forward)(dlc_layer *layer, const dlc_layer_run *run);
    /* NULL: the layer gives no gradient at all. */
    dlc_status (*backward)(dlc_layer *layer, const dlc_layer_run *run);

    /* Parameter `index` between its own layout (`own`, dlc_param.count elements
     * in device memory) and plain row-major float32 in host memory (`plain`).
     * Also used for gradients and solver state of the same parameter. Import
     * writes zeros into the padding. Optional: NULL where layouts are plain. */
    dlc_status (*param_import)(dlc_layer *layer, int32_t index, const float *plain,
                               float *own);
    dlc_status (*param_export)(dlc_layer *layer, int32_t index, const float *own,
                               float *plain);

    /* Optional: what was chosen, for people: "jit:avx512_core nChw16c". Always
     * ends with a NUL. */
    void (*describe)(dlc_layer *layer, char *text, size_t bytes);
} dlc_layer_ops;

#ifdef __cplusplus
}
#endif
#endif

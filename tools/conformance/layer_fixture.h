/* Runs one layer for given inputs, through the public interface alone. Values are plain
 * arrays; the reorders of the layer's family convert them to and from the layouts that
 * the layer chooses. Guards are around all memory that the layer is given. */
#ifndef DLC_TOOLS_CONFORMANCE_LAYER_FIXTURE_H
#define DLC_TOOLS_CONFORMANCE_LAYER_FIXTURE_H

#include <dlcore/layer.h>

#include "device_fixture.h"

enum { FIXTURE_INPUTS = 3 };

/* The inputs of a layer, float32 or (labels) int32. */
typedef struct layer_inputs {
    int32_t count;
    int targets; /* the last input is a probability of each class */
    dlc_shape shape[FIXTURE_INPUTS];
    dlc_dtype dtype[FIXTURE_INPUTS];
} layer_inputs;

typedef struct layer_fixture layer_fixture;

/* What a net asks of a layer when it builds it. */
typedef struct layer_build {
    dlc_phase phase;
    dlc_dtype precision; /* of the family; 0: float32 */
    uint64_t seed;       /* of the job, beside the usual one */
    uint32_t index;      /* of the layer, beside the usual one */
    int infers_others;   /* infer is called for another batch first */
    int float32_inputs;  /* although the precision is another */
    uint64_t unwanted;   /* inputs whose gradient nobody wants */
    int32_t threads;     /* 0: one */
    int alone;           /* without a group of ranks */
    int frozen, plain_params;
    int64_t channel_begin, channel_end; /* as dlc_layer_args */
    const layer_fixture *trained;       /* in a test: whose parameters it reads */
    const dlc_feature *fused;           /* the layer that it takes over, or NULL */
    const dlc_settings *fused_settings;
} layer_build;

/* The device memory of one pass, in the layouts that the layer chose. */
typedef struct layer_memory {
    void *in[FIXTURE_INPUTS], *in_diff[FIXTURE_INPUTS];
    void *out[DLC_MAX_OUTPUTS], *out_diff[DLC_MAX_OUTPUTS];
    void *param[DLC_MAX_PARAMS], *param_diff[DLC_MAX_PARAMS];
    void *workspace, *scratch;
} layer_memory;

/* What nets may do with the memory of a layer. A value that is not a number (NaN) shows
 * up in the results if the layer reads it. */
enum {
    /* Outputs and gradients are NaN before the call that writes them. */
    LAYER_POISON_WRITTEN = 1u << 0,
    /* Scratch memory is NaN before each call. */
    LAYER_POISON_SCRATCH = 1u << 1,
    /* Before backward, what it did not say that it reads is NaN. */
    LAYER_POISON_UNDECLARED = 1u << 2,
    /* Each call is given memory at other addresses, and the memory of the call before
     * is NaN. The workspace keeps its address from forward to backward. */
    LAYER_MOVE = 1u << 3,
    /* The output is written over input `shared`, and that input's gradient over the
     * gradient of the output. */
    LAYER_IN_PLACE = 1u << 4,
    /* backward comes in two calls: DLC_BACKWARD_WEIGHTS, then DLC_BACKWARD_DATA. */
    LAYER_SPLIT_BACKWARD = 1u << 5,
};

struct layer_fixture {
    suite_run *run;
    device_fixture device;
    const dlc_layer_ops *ops;
    layer_build build;
    layer_inputs inputs;
    void *family;
    dlc_layer *layer;
    dlc_layer_shapes shapes;
    dlc_layer_memory prepared;
    dlc_tensor in[DLC_MAX_INPUTS], out[DLC_MAX_OUTPUTS];
    dlc_tensor plain_in[DLC_MAX_INPUTS], plain_out[DLC_MAX_OUTPUTS];
    dlc_param param[DLC_MAX_PARAMS];
    int64_t param_count[DLC_MAX_PARAMS];

    /* Values in plain layout: inputs, outputs, parameters and their gradients. Fill in
     * x and p, read the others. Labels are int32_t in the memory of x. */
    float *x[FIXTURE_INPUTS], *dx[FIXTURE_INPUTS];
    float *y, *dy; /* all outputs, one after the other; see y_at */
    float *p[DLC_MAX_PARAMS], *dp[DLC_MAX_PARAMS];
    size_t x_count[FIXTURE_INPUTS], y_count, p_count[DLC_MAX_PARAMS];
    size_t y_at[DLC_MAX_OUTPUTS + 1]; /* where an output begins in y */

    layer_memory bank[2], *memory; /* `memory` is the one that the next call gets */

    unsigned habits;           /* LAYER_ bits, for the next calls */
    int32_t shared;            /* LAYER_IN_PLACE: the input that shares memory */
    int64_t iteration, sample; /* of the next calls */
    uint32_t recompute;        /* of the next forward */
    uint32_t empty;            /* the next calls have no samples */
    float loss_scale;          /* of the next backward */
    uint64_t accumulate; /* bit i: backward adds to dx[i], whose values it is given */
    int gathered;        /* calls of all_gather so far */

    /* In training the layer is rank 0 of 2, whose other rank has the same samples: its
     * gradient is then the derivative of its own outputs, as without it. */
    dlc_layer_group group;
};

/* Creates and prepares the layer. Returns DLC_ERR_CONFIG or DLC_ERR_UNSUPPORTED if it
 * does not accept these inputs, or does not take over build->fused, and then leaves
 * nothing to be closed; any other error fails the check. */
dlc_status layer_fixture_open(suite_run *run, const layer_build *build,
                              const layer_inputs *inputs, layer_fixture *f);
void layer_fixture_close(layer_fixture *f);

/* Fills x and p with random numbers; labels are classes. */
void layer_fixture_fill(layer_fixture *f, uint64_t seed);

/* Computes y from x and p. Fails the check if the layer writes what it may only read,
 * or beyond its memory. */
void layer_fixture_forward(layer_fixture *f);

/* Copies p to the memory of the next call, as forward does first. */
void layer_fixture_import(layer_fixture *f);

/* Call param_import from p[i] to the memory of the next call, and param_export from
 * `own`, memory of the layer, to dp[i]. */
void layer_fixture_import_one(layer_fixture *f, int32_t i);
void layer_fixture_export_one(layer_fixture *f, int32_t i, const void *own);

/* Computes dx and dp from dy. Fails the check as layer_fixture_forward does. */
void layer_fixture_backward(layer_fixture *f);

/* Forward and backward of a rank that has no samples. Fails the check if they write
 * results. */
void layer_fixture_run_empty(layer_fixture *f);

/* The next calls belong to another pass, which has memory of its own. Calling it twice
 * returns to the first one. */
void layer_fixture_switch_pass(layer_fixture *f);

/* 1 if the output may be written over input i in a net. */
int layer_fixture_can_share(const layer_fixture *f, int32_t i);

/* 1 if the layer is a metric or a loss. */
int layer_fixture_is_metric(const layer_fixture *f);

/* 1 if it is built for training and has a backward. */
int layer_fixture_has_backward(const layer_fixture *f);

/* Bytes of parameter i in the layer's own layout. */
static inline size_t layer_param_bytes(const layer_fixture *f, int32_t i) {
    return (size_t)f->param_count[i] * sizeof(float);
}

/* ---- The grid --------------------------------------------------------------- */

/* Calls `visit` for all inputs of a grid of shapes, and of those that the user has
 * given, that the layer accepts. If it accepts none, the check is not run. */
typedef void layer_visitor(layer_fixture *f);
void layer_over_grid(suite_run *run, dlc_phase phase, layer_visitor *visit);
/* The same for a few shapes of more than 65,536 elements; the number of accepted ones.
 */
int layer_over_large(suite_run *run, layer_visitor *visit);
/* The same as the first for a layer that is built in another way. */
void layer_over_grid_of(suite_run *run, const layer_build *build, layer_visitor *visit);

#endif

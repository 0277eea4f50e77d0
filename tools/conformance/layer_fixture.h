/* Runs one layer for given inputs, through the public interface alone. Values are plain
 * arrays; the reorders of the layer's family convert them to and from the layouts that
 * the layer chooses. Guard bytes follow all memory that the layer writes. */
#ifndef DLC_TOOLS_CONFORMANCE_LAYER_FIXTURE_H
#define DLC_TOOLS_CONFORMANCE_LAYER_FIXTURE_H

#include <dlcore/layer.h>

#include "device_fixture.h"

enum { FIXTURE_INPUTS = 3 };

/* The guard bytes after each buffer of a layer: their number and value. */
enum { LAYER_GUARD = 64, LAYER_GUARD_BYTE = 0x6b };

/* The inputs of a layer. */
typedef struct layer_inputs {
    int32_t count;
    int labels; /* the last input is labels, one integer for each sample */
    dlc_shape shape[FIXTURE_INPUTS];
} layer_inputs;

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
};

typedef struct layer_fixture {
    suite_run *run;
    device_fixture device;
    const dlc_layer_ops *ops;
    dlc_phase phase;
    uint64_t unwanted; /* inputs whose gradient nobody wants */
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
    float *y, *dy; /* output 0 */
    float *p[DLC_MAX_PARAMS], *dp[DLC_MAX_PARAMS];
    size_t x_count[FIXTURE_INPUTS], y_count, p_count[DLC_MAX_PARAMS];

    layer_memory bank[2], *memory; /* `memory` is the one that the next call gets */

    unsigned habits;     /* LAYER_ bits, for the next calls */
    int32_t shared;      /* LAYER_IN_PLACE: the input that shares memory */
    int64_t iteration;   /* of the next calls */
    uint32_t recompute;  /* of the next forward */
    uint64_t accumulate; /* bit i: backward adds to dx[i], whose values it is given */

    /* In training the layer is rank 0 of 2, whose other rank has the same samples: its
     * gradient is then the derivative of its own outputs, as without it. */
    dlc_layer_group group;
} layer_fixture;

/* Fills x and p with random numbers; labels are 0 or 1. */
void layer_fixture_fill(layer_fixture *f, uint64_t seed);

/* Computes y from x and p. Fails the check if the layer writes what it may only read,
 * or beyond its memory. */
void layer_fixture_forward(layer_fixture *f);

/* Computes dx and dp from dy. Fails the check as layer_fixture_forward does. */
void layer_fixture_backward(layer_fixture *f);

/* The next calls belong to another pass, which has memory of its own. Calling it twice
 * returns to the first one. */
void layer_fixture_switch_pass(layer_fixture *f);

/* 1 if the output may be written over input i in a net. */
int layer_fixture_can_share(const layer_fixture *f, int32_t i);

/* Bytes of parameter i in the layer's own layout. */
static inline size_t layer_param_bytes(const layer_fixture *f, int32_t i) {
    return (size_t)f->param_count[i] * sizeof(float);
}

/* Calls `visit` for all inputs of a grid of shapes that the layer accepts. Skips the
 * check if it accepts none. */
typedef void layer_visitor(layer_fixture *f);
void layer_over_grid(suite_run *run, dlc_phase phase, layer_visitor *visit);
/* The same in training, where input 0 is data: nobody wants its gradient. */
void layer_over_grid_of_data(suite_run *run, layer_visitor *visit);

/* 1 if the layer is a metric or a loss. */
int layer_fixture_is_metric(const layer_fixture *f);

#endif

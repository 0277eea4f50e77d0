/* Runs one layer for given inputs, through the public interface alone. Values are plain
 * arrays; the reorders of the layer's family convert them to and from the layouts that
 * the layer chooses. Guard bytes follow all memory that the layer writes. */
#ifndef DLC_TOOLS_CONFORMANCE_LAYER_FIXTURE_H
#define DLC_TOOLS_CONFORMANCE_LAYER_FIXTURE_H

#include <dlcore/layer.h>

#include "device_fixture.h"

enum { FIXTURE_INPUTS = 3 };

/* The inputs of a layer. */
typedef struct layer_inputs {
    int32_t count;
    int labels; /* the last input is labels, one integer for each sample */
    dlc_shape shape[FIXTURE_INPUTS];
} layer_inputs;

typedef struct layer_fixture {
    suite_run *run;
    device_fixture device;
    const dlc_layer_ops *ops;
    void *family;
    dlc_layer *layer;
    dlc_layer_plan plan;
    dlc_tensor in[DLC_MAX_INPUTS], out[DLC_MAX_OUTPUTS];
    dlc_tensor plain_in[DLC_MAX_INPUTS], plain_out[DLC_MAX_OUTPUTS];
    dlc_param param[DLC_MAX_PARAMS];

    /* Values in plain layout: inputs, outputs, parameters and their gradients. Fill in
     * x and p, read the others. Labels are int32_t in the memory of x. */
    float *x[FIXTURE_INPUTS], *dx[FIXTURE_INPUTS];
    float *y, *dy; /* output 0 */
    float *p[DLC_MAX_PARAMS], *dp[DLC_MAX_PARAMS];
    size_t x_count[FIXTURE_INPUTS], y_count, p_count[DLC_MAX_PARAMS];

    /* The same values in the layouts that the layer chose, in device memory. */
    void *in_own[FIXTURE_INPUTS], *in_diff[FIXTURE_INPUTS];
    void *out_own[DLC_MAX_OUTPUTS], *out_diff[DLC_MAX_OUTPUTS];
    void *param_own[DLC_MAX_PARAMS], *param_diff[DLC_MAX_PARAMS];
    void *workspace, *scratch;
    int changed;         /* forward overwrote an input that is not in_place */
    uint64_t accumulate; /* bit i: backward adds to dx[i], whose values it is given */
} layer_fixture;

/* Creates and prepares the layer. Returns DLC_ERR_CONFIG or DLC_ERR_UNSUPPORTED if it
 * does not accept these inputs; any other error fails the check. */
dlc_status layer_fixture_open(suite_run *run, dlc_phase phase,
                              const layer_inputs *inputs, layer_fixture *f);
void layer_fixture_close(layer_fixture *f);

/* Fills x and p with random numbers; labels are 0 or 1. */
void layer_fixture_fill(layer_fixture *f, uint64_t seed);

/* Computes y from x and p. Fails the check if the layer writes beyond its memory. */
void layer_fixture_forward(layer_fixture *f);

/* Computes dx and dp from dy. Fails the check if the layer writes beyond its memory. */
void layer_fixture_backward(layer_fixture *f);

/* 1 if the layer is a metric or a loss. */
int layer_fixture_is_metric(const layer_fixture *f);

#endif

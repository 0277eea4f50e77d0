/* A stand for one layer: built for given inputs through the public contract alone, with
 * its family's reorders between plain arrays and whatever layouts it wants. All memory
 * that it writes is fenced. */
#ifndef DLC_TOOLS_CONFORMANCE_STAND_H
#define DLC_TOOLS_CONFORMANCE_STAND_H

#include <dlcore/layer.h>

#include "bed.h"

enum { STAND_INPUTS = 3 };

/* What goes in. */
typedef struct stand_inputs {
    int32_t count;
    int labels; /* the last input is whole numbers, one a sample */
    dlc_shape shape[STAND_INPUTS];
} stand_inputs;

typedef struct stand {
    suite_run *run;
    suite_bed bed;
    const dlc_layer_ops *ops;
    void *family;
    dlc_layer *layer;
    dlc_layer_plan plan;
    dlc_tensor in[DLC_MAX_INPUTS], out[DLC_MAX_OUTPUTS];
    dlc_tensor plain_in[DLC_MAX_INPUTS], plain_out[DLC_MAX_OUTPUTS];
    dlc_param param[DLC_MAX_PARAMS];

    /* Plain; fill in `x` and `p`, read the others. Labels are int32_t in x's memory. */
    float *x[STAND_INPUTS], *dx[STAND_INPUTS];
    float *y, *dy; /* of output 0 */
    float *p[DLC_MAX_PARAMS], *dp[DLC_MAX_PARAMS];
    size_t x_count[STAND_INPUTS], y_count, p_count[DLC_MAX_PARAMS];

    /* In the layer's layouts, in device memory. */
    void *in_own[STAND_INPUTS], *in_diff[STAND_INPUTS];
    void *out_own[DLC_MAX_OUTPUTS], *out_diff[DLC_MAX_OUTPUTS];
    void *param_own[DLC_MAX_PARAMS], *param_diff[DLC_MAX_PARAMS];
    void *workspace, *scratch;
    int changed;   /* forward wrote over an input, unlike it had said */
    uint64_t adds; /* bit i: backward adds to dx[i], which has numbers */
} stand;

/* Up to prepare. DLC_ERR_CONFIG or DLC_ERR_UNSUPPORTED: it does not take these inputs;
 * anything else that goes wrong fails the check. */
dlc_status stand_open(suite_run *run, dlc_phase phase, const stand_inputs *inputs,
                      stand *s);
void stand_close(stand *s);

/* x and p drawn anew: numbers for data, 0 .. 1 for labels. */
void stand_fill(stand *s, uint64_t seed);

/* From x and p to y; from dy to dx and dp. A write beyond its room fails the check. */
void stand_forward(stand *s);
void stand_backward(stand *s);

int stand_is_metric(const stand *s);

#endif

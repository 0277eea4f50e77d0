/* Taking over a relu, or a clip, that reads a layer's output: forward in the same
 * kernel, backward by the output, which tells what was read. */
#ifndef DLCORE_CUDNN_RELU_H
#define DLCORE_CUDNN_RELU_H

#include "../shared/bounds.h"
#include "cudnn.h"

typedef struct relu_absorbed {
    int on;
    bounds bounds; /* of a relu from zero on, or those of a clip */
} relu_absorbed;

/* DLC_ERR_UNSUPPORTED unless `next` is this plugin's relu and none is absorbed. */
dlc_status relu_absorb(relu_absorbed *relu, const dlc_feature *next,
                       const dlc_settings *settings);
/* The same, for who takes a clip as well. A clip that doesn't leave zero at zero is
 * refused, as on the processor. */
dlc_status relu_or_clip_absorb(relu_absorbed *relu, const dlc_feature *next,
                               const dlc_settings *settings);
/* Is `next` this plugin's eltwise, and a plain sum? (eltwise.c) */
int eltwise_is_sum(const dlc_feature *next, const dlc_settings *settings);
/* " +relu", " +clip" or nothing, for people. */
const char *relu_text(const relu_absorbed *relu);
/* `bounds` where something was taken over. */
bounds relu_bounds(const relu_absorbed *relu);
/* What was taken over as the numbers of `dtype` hold it: backward, which tells by the
 * output where it was bounded, compares with these. */
bounds relu_stored(const relu_absorbed *relu, dlc_dtype dtype);

#endif

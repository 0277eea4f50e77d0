/* Fusing a relu or a clip into the layer whose output it reads: forward computes it in
 * the same kernel, backward tells from the output where it was bounded. */
#ifndef DLCORE_CUDNN_RELU_H
#define DLCORE_CUDNN_RELU_H

#include "../shared/bounds.h"
#include "cudnn.h"

typedef struct fused_relu {
    int on;
    bounds bounds; /* of the relu or clip */
} fused_relu;

/* DLC_ERR_UNSUPPORTED unless `next` is the relu of this plugin and nothing is fused
 * yet. */
dlc_status relu_fuse(fused_relu *relu, const dlc_feature *next,
                     const dlc_settings *settings);
/* Also accepts a clip, unless clip(0) is not 0: the family on the CPU refuses that
 * too. */
dlc_status relu_or_clip_fuse(fused_relu *relu, const dlc_feature *next,
                             const dlc_settings *settings);
/* Is `next` an eltwise of this plugin that computes a plain sum? (eltwise.c) */
int eltwise_is_sum(const dlc_feature *next, const dlc_settings *settings);
/* " +relu", " +clip" or "", for describe. */
const char *relu_text(const fused_relu *relu);
/* The bounds of what was fused, or BOUNDS_NONE. */
bounds relu_bounds(const fused_relu *relu);
/* Those bounds rounded to `dtype`: backward compares them with the stored output. */
bounds relu_stored(const fused_relu *relu, dlc_dtype dtype);

#endif

/* Fusing a relu, or a clip, into the layer whose output it reads. Backward tells from
 * the output where it was bounded. */
#ifndef LAYERS_SHARED_RELU_H
#define LAYERS_SHARED_RELU_H

#include "bounds.h"
#include "layer.h"

typedef struct fused_relu {
    int on;
    bounds bounds; /* of a relu (from zero on) or of a clip */
} fused_relu;

/* Fails with DLC_ERR_UNSUPPORTED unless `next` is this plugin's relu and none is fused
 * yet. */
dlc_status relu_fuse(fused_relu *relu, const dlc_feature *next,
                     const dlc_settings *settings);
/* Like relu_fuse, for layers that support a clip as well and use only `bounds`. A clip
 * that does not map zero to zero is refused: the padding of layouts must stay zero. */
dlc_status relu_or_clip_fuse(fused_relu *relu, const dlc_feature *next,
                             const dlc_settings *settings);
/* " +relu", " +clip" or "", for people. */
const char *relu_text(const fused_relu *relu);
/* `bounds` of the fused activation, or BOUNDS_NONE. */
bounds relu_bounds(const fused_relu *relu);
/* Checks the options of a clip. */
dlc_status clip_check(const dlc_layer_args *args);

#endif

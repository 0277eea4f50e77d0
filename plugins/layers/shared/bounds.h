/* relu, leaky relu and clip as one function, so that a layer that can fuse one of them
 * can fuse all: a v up to `low` becomes low + slope * v, a v from `high` on becomes
 * `high`. One of low and slope is zero. NaN stays NaN. */
#ifndef LAYERS_SHARED_BOUNDS_H
#define LAYERS_SHARED_BOUNDS_H

#include <math.h>

#include "host_device.h"

typedef struct bounds {
    float low, high, slope;
} bounds;

/* The identity. */
#define BOUNDS_NONE ((bounds){.low = -INFINITY, .high = INFINITY})

BODY float bounds_apply(const bounds *b, float v) {
    if (v <= b->low)
        v = b->slope != 0 ? b->slope * v : b->low;
    return v >= b->high ? b->high : v;
}

/* `diff` times the slope at v, which is the input or the output of the function. */
BODY float bounds_gradient(const bounds *b, float v, float diff) {
    if (v <= b->low)
        diff = b->slope != 0 ? b->slope * diff : 0;
    return v >= b->high ? 0 : diff;
}

#endif

/* relu, leaky relu and clip as one function, so that whoever takes one of them over
 * takes all: v up to `low` becomes low + slope * v, from `high` on it is `high`. One of
 * low and slope is zero. What is no number stays none. */
#ifndef LAYERS_SHARED_BOUNDS_H
#define LAYERS_SHARED_BOUNDS_H

#include <math.h>

#include "host_device.h"

typedef struct bounds {
    float low, high, slope;
} bounds;

/* The function that does nothing. */
#define BOUNDS_NONE ((bounds){.low = -INFINITY, .high = INFINITY})

BODY float bounds_apply(const bounds *b, float v) {
    if (v <= b->low)
        v = b->slope != 0 ? b->slope * v : b->low;
    return v >= b->high ? b->high : v;
}

/* `diff` times the slope at v, which is what was read or what was given. */
BODY float bounds_gradient(const bounds *b, float v, float diff) {
    if (v <= b->low)
        diff = b->slope != 0 ? b->slope * diff : 0;
    return v >= b->high ? 0 : diff;
}

#endif

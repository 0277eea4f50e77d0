/* Text of shapes for messages. */
#ifndef LAYERS_SHARED_SHAPES_H
#define LAYERS_SHARED_SHAPES_H

#include <dlcore/tensor.h>

/* Text of a shape: "64x20x24x24". */
typedef struct shape_text {
    char text[128];
} shape_text;
shape_text shape_print(const dlc_shape *shape);

#endif

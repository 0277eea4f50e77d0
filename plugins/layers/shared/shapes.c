/* Prints shapes for messages. */
#include "shapes.h"

#include <stdio.h>

shape_text shape_print(const dlc_shape *shape) {
    shape_text out = {"scalar"};
    size_t used = 0;
    for (int32_t i = 0; i < shape->rank && used < sizeof out.text; i++) {
        int n = snprintf(out.text + used, sizeof out.text - used, "%s%lld",
                         i ? "x" : "", (long long)shape->dims[i]);
        used += n > 0 ? (size_t)n : 0;
    }
    return out;
}

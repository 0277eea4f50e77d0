/* References for the layers: plain loops in double precision, on plain arrays, written
 * for readability. Forward only; gradients are checked by finite differences of these.
 */
#ifndef REFERENCE_H
#define REFERENCE_H

#include "layer_fixture.h"

/* Values of a layer, as doubles. `out` has fixture_out_count elements. */
typedef struct ref_values {
    double *in[DLC_MAX_INPUTS];
    double *param[DLC_MAX_PARAMS];
    double *out;
    const int32_t *labels;
} ref_values;

typedef void (*ref_forward)(const fixture *r, const ref_values *v);

/* The reference of a layer type; fails the test if there is none. */
ref_forward ref_find(const char *type);

#endif

/* Segments: the parameter tensors in an arena. The net lays them out; the solver
 * updates each with its multipliers. */
#ifndef DLC_SOLVER_SEGMENT_H
#define DLC_SOLVER_SEGMENT_H

#include <stddef.h>

typedef struct dlc_segment {
    const char *name;  /* "conv1.weight" */
    size_t offset;     /* in elements, from the beginning of the arena */
    size_t count;      /* in elements */
    double lr_mult;    /* factor on the learning rate */
    double decay_mult; /* factor on the weight decay */
} dlc_segment;

#endif

/* The results of a pass of a layer, kept to be compared with those of another one. */
#ifndef DLC_TOOLS_CONFORMANCE_LAYER_VALUES_H
#define DLC_TOOLS_CONFORMANCE_LAYER_VALUES_H

#include "layer_fixture.h"

/* Copies of output 0, and of the gradients of inputs and parameters. */
typedef struct layer_values {
    float *y, *dx[FIXTURE_INPUTS], *dp[DLC_MAX_PARAMS];
} layer_values;

void layer_values_keep(const layer_fixture *f, layer_values *kept);
void layer_values_drop(layer_values *kept);

/* Fills x, p and dy with random numbers. */
void layer_values_show(layer_fixture *f, uint64_t seed);
/* 1 if it is a metric whose last input are labels or targets, which samples may lack.
 */
int layer_values_has_labels(const layer_fixture *f);
/* Labels and targets of samples in [begin, end) become those of padding. */
void layer_values_remove_labels(layer_fixture *f, int64_t begin, int64_t end);
/* Forward, and backward if it has one. */
void layer_values_pass(layer_fixture *f);

/* Fail the check unless the results are bitwise identical. `why`: "where NAME". */
void layer_values_same_output(const layer_fixture *f, const layer_values *wanted,
                              const char *why);
void layer_values_same_gradients(const layer_fixture *f, const layer_values *wanted,
                                 const char *why);

/* Fail the check if values differ by more than `tolerance` times their size and their
 * root mean square. */
void layer_values_near(const layer_fixture *f, const layer_values *wanted,
                       double tolerance, const char *why);
void layer_near(const layer_fixture *f, const float *got, const float *wanted,
                size_t count, double tolerance, const char *why, const char *what);

/* Fails the check unless gradients agree with finite differences for the x and p that
 * are there. */
void layer_compare_slopes(layer_fixture *f);
/* The same for each of so many blocks of every array, in a random direction, with the
 * gradients and dy of the last pass. */
void layer_compare_blocks(layer_fixture *f, size_t blocks, uint64_t seed);

/* Opens the layer for the same inputs in another way. */
void layer_open_like(const layer_fixture *f, const layer_build *build,
                     const layer_inputs *inputs, layer_fixture *other);

/* The root mean square, to which errors are compared. */
double layer_typical(const float *x, size_t count);

#endif

/* Holds a layer against its reference: forward, gradients, repeatability. */
#ifndef CHECKER_H
#define CHECKER_H

#include <check.h>

#include "rig.h"

#define COUNT(table) ((int)(sizeof(table) / sizeof *(table)))

/* Well-spread values without ties, the same for the same `salt`: finite differences
 * then meet no kink of max or relu. */
void fill_values(float *data, int64_t count, uint64_t salt, double reach);
/* Labels 0 .. classes-1. */
void fill_labels(void *data, int64_t count, int64_t classes);

/* Builds the layer of `spec`, fills inputs and parameters, and compares forward, and
 * in training backward, with the reference; runs both twice and wants the same bits.
 * `tolerance`: relative to the size of what is compared. */
void check_layer(const rig_spec *spec, double tolerance);
/* check_layer in training and in test phase, from plain, channels-last and blocked
 * input where it has four dimensions. */
void check_all_ways(const rig_spec *spec, double tolerance);

/* Building must fail with `status`, and the detail sentence must hold `words`. */
void check_refused(const rig_spec *spec, dlc_status status, const char *words);

/* Runs the suite that `tests` makes up; the exit code. */
int run_suite(const char *name, TCase *tests);
/* Says why not; the exit code. */
int skip_suite(const char *why);

/* Largest difference of two arrays. */
double far_apart(const float *a, const float *b, int64_t count);

#endif

/* Holds a layer against its reference, and against itself where nothing may change:
 * forward, gradients, repeatability. */
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

/* Inputs, none of them labels, parameters and the output's gradient, the same for
 * every rig that is built alike. */
void fill_rig(rig *r);
/* Opens and fills `r` and runs it forward, in training backward too. */
void run_rig(rig *r, const rig_spec *spec);

/* Builds the layer of `spec`, fills inputs and parameters, and compares forward, and
 * in training backward, with the reference; runs both twice and wants the same bits.
 * `tolerance`: relative to the size of what is compared. */
void check_layer(const rig_spec *spec, double tolerance);
/* check_layer in training and in test phase, from plain, channels-last and blocked
 * input where it has four dimensions. */
void check_all_ways(const rig_spec *spec, double tolerance);

/* The same numbers, to the bit. */
void check_same_bits(const float *a, const float *b, int64_t count);
/* Two rigs that were built alike must have come to the same: outputs, gradients of all
 * inputs and parameters, running averages. */
void check_same_results(const rig *a, const rig *b);
/* A test net that reads the parameters of a training net, its twin, as they lie there
 * must compute what it computes alone, up to `most`. Specs may differ in settings and
 * batch. */
void check_twin(const rig_spec *train, const rig_spec *test, double most);

/* Building must fail with `status`, and the detail sentence must hold `words`. */
void check_refused(const rig_spec *spec, dlc_status status, const char *words);

/* Runs the suite that `tests` makes up; the exit code. */
int run_suite(const char *name, TCase *tests);
/* Says why not; the exit code. */
int skip_suite(const char *why);

/* Largest difference of two arrays; NaN if there is one. */
double far_apart(const float *a, const float *b, int64_t count);

#endif

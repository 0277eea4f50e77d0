/* Compares a layer with its reference, and with itself where nothing may change:
 * forward, gradients, repeatability. */
#ifndef CHECKER_H
#define CHECKER_H

#include "layer_fixture.h"
#include "support/test.h"

/* Fills with well-spread values without ties, equal for equal `salt`: finite
 * differences then meet no kink of max or relu. */
void fill_values(float *data, int64_t count, uint64_t salt, double reach);
/* Fills with labels 0 .. classes-1. */
void fill_labels(void *data, int64_t count, int64_t classes);

/* Fills inputs that are not labels, parameters and the output's gradient, equally for
 * all fixtures with the same spec. */
void fill_fixture(fixture *r);
/* Opens and fills `r` and runs forward, in training also backward. */
void run_fixture(fixture *r, const layer_spec *spec);

/* Builds the layer of `spec`, fills inputs and parameters, and compares forward, and in
 * training backward, with the reference; runs both twice and requires bitwise identical
 * results. `tolerance` is relative to the magnitude of what is compared. */
void check_layer(const layer_spec *spec, double tolerance);
/* Runs check_layer in the training and the test phase, with plain, channels_last and
 * blocked input if it has four dimensions. */
void check_all_ways(const layer_spec *spec, double tolerance);

/* Fails unless the arrays are bitwise identical. */
void check_same_bits(const float *a, const float *b, int64_t count);
/* Fails unless two fixtures with the same spec have the same results: outputs,
 * gradients of all inputs and parameters, running averages. */
void check_same_results(const fixture *a, const fixture *b);
/* Fails unless any number of threads gives the same results. */
void check_any_number_of_threads(layer_spec spec);
/* Does the layer that is built from `spec` describe itself with these words? No if it
 * cannot be built. */
int describes(const layer_spec *spec, const char *words);
/* Fails unless a test net that reads the parameters of a train net in their layout
 * computes what it computes with its own, up to `most`. Specs may differ in settings
 * and batch size. */
void check_test_net(const layer_spec *train, const layer_spec *test, double most);

/* Building must fail with `status`, and a message that contains `words`. */
void check_refused(const layer_spec *spec, dlc_status status, const char *words);

/* For TEST_SETTINGS: loads the plugin, or skips all tests and says why. */
int layers_begin(int argc, char **argv);

/* Largest difference of two arrays; NaN if there is one. */
double largest_difference(const float *a, const float *b, int64_t count);

#endif

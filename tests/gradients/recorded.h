/* The reference that reference.py has recorded of a net: how to fill its parameters and
 * its batch, and the results of PyTorch. Both sides use random numbers that are
 * functions of an index. Used by test_gradients.c. */
#ifndef TEST_GRADIENTS_RECORDED_H
#define TEST_GRADIENTS_RECORDED_H

#include <dlcore/tensor.h>
#include <stddef.h>
#include <stdint.h>

enum { SKETCH = 16 };

/* The norm of a gradient, and a sketch: random signs times its elements, in a few sums.
 */
typedef struct sketch {
    double norm, sum[SKETCH];
} sketch;

typedef struct recorded_tensor {
    dlc_shape shape;
    double center, amplitude; /* center + amplitude * random number */
    /* Or one choice per channel; NULL if there are none. */
    char *choices;
    double closed, base, step; /* what '0' means; base + step * (choice - '0') */
    sketch gradient;
} recorded_tensor;

typedef struct recorded {
    dlc_shape sample; /* C, H, W */
    int32_t classes;
    int64_t batch, cell; /* images; pixels of a cell's side */
    double largest;      /* value of a pixel */
    uint64_t seed;       /* of the images */
    double loss;
    size_t tensors;
    recorded_tensor *tensor; /* in the net's order */
} recorded;

/* Reads tests/gradients/<net>.ref; fails the test if that is not possible. */
void recorded_read(const char *net, recorded *found);
void recorded_free(recorded *found);

/* Fills in the values of tensor k. */
void recorded_fill(const recorded *found, size_t k, float *values);
/* Fills in the batch. */
void recorded_images(const recorded *found, float *images);
void recorded_labels(const recorded *found, int32_t *labels);

void sketch_make(const float *values, size_t count, sketch *made);
/* An estimate of the norm of the difference between the two sketched gradients. */
double sketch_distance(const sketch *a, const sketch *b);

#endif

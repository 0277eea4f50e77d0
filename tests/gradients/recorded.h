/* What reference.py recorded of a net: how to fill it, and what PyTorch found. The
 * two share numbers that are functions of their index. */
#ifndef TEST_GRADIENTS_RECORDED_H
#define TEST_GRADIENTS_RECORDED_H

#include <dlcore/tensor.h>
#include <stddef.h>
#include <stdint.h>

enum { SKETCH = 16 };

/* A gradient's norm, and its elements added up by index into a few sums. */
typedef struct sketch {
    double norm, sum[SKETCH];
} sketch;

typedef struct recorded_tensor {
    dlc_shape shape;
    double center, amplitude; /* center + amplitude * random number */
    /* Or a letter a channel; NULL where there are none. */
    char *letters;
    double closed, base, step; /* what '0' means; base + step * (letter - '0') */
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

/* Reads tests/gradients/<net>.ref; ends the test where it cannot. */
void recorded_read(const char *net, recorded *found);
void recorded_free(recorded *found);

/* The values of tensor k. */
void recorded_fill(const recorded *found, size_t k, float *values);
/* The batch. */
void recorded_images(const recorded *found, float *images);
void recorded_labels(const recorded *found, int32_t *labels);

void sketch_make(const float *values, size_t count, sketch *made);
/* The norm of the difference of what the two were made from, estimated. */
double sketch_distance(const sketch *a, const sketch *b);

#endif

/* Layers of weighted sums, convolution and inner_product: their options, and the shapes
 * of their outputs, weights and biases. */
#ifndef LAYERS_SHARED_LINEAR_H
#define LAYERS_SHARED_LINEAR_H

#include "params.h"
#include "window.h"

typedef struct linear {
    int64_t num_output; /* of this rank */
    int is_slice;       /* other ranks compute other outputs */
    int has_bias;
    param_settings weight, bias;
    dlc_shape shape; /* of the weights; set by infer */
} linear;

/* Reads the options that both types have. */
void linear_read(const dlc_layer_args *args, linear *l);

/* Checks the input, sets the shape of the output, whose type is `dtype`, and describes
 * the parameters. */
dlc_status inner_product_infer(dlc_layer *layer, linear *l, dlc_dtype dtype,
                               dlc_layer_shapes *shapes);

/* The options of a convolution; windows of an image. */
typedef struct filters {
    sliding_window window;
    int64_t group;
    int direct; /* no transform: algorithm = direct */
} filters;

dlc_status convolution_read(const char *layer, const dlc_settings *settings,
                            filters *f);
dlc_status convolution_infer(dlc_layer *layer, linear *l, filters *f, dlc_dtype dtype,
                             dlc_layer_shapes *shapes);

/* A transposed convolution. Weights are stored as PyTorch and Caffe do: channels of the
 * input first. */
dlc_status deconvolution_read(const char *layer, const dlc_settings *settings,
                              filters *f);
dlc_status deconvolution_infer(dlc_layer *layer, linear *l, filters *f, dlc_dtype dtype,
                               dlc_layer_shapes *shapes);

#endif

/* A depthwise convolution by our own kernels (depthwise.h). */
#ifndef ONEDNN_CONVOLUTION_DEPTHWISE_H
#define ONEDNN_CONVOLUTION_DEPTHWISE_H

#include "depthwise.h"
#include "weighted.h"

typedef struct convolution_depthwise {
    depthwise_conv conv;
    const depthwise_kernels
        *kernels; /* NULL: this convolution uses another implementation */
} convolution_depthwise;

/* Is it depthwise, its window small enough, and oneDNN's kernel not faster? In a test
 * net it also depends on the layout of the train net's weights. `last`: as below. */
int convolution_depthwise_fits(const weighted *w, const sliding_window *window,
                               int64_t group, int last, const dlc_layer_memory *memory,
                               convolution_depthwise *depthwise);
/* Takes the input as it is stored if its channels are last or in blocks; else, or with
 * `last`, asks for channels last. */
dlc_status convolution_depthwise_prepare(weighted *w, convolution_depthwise *depthwise,
                                         int last, dlc_layer_memory *memory,
                                         const dlc_shape *weights);
dlc_status convolution_depthwise_forward(weighted *w,
                                         const convolution_depthwise *depthwise,
                                         const dlc_layer_run *run);
dlc_status convolution_depthwise_backward(weighted *w,
                                          const convolution_depthwise *depthwise,
                                          const dlc_layer_run *run);
void convolution_depthwise_describe(const weighted *w,
                                    const convolution_depthwise *depthwise, char *text,
                                    size_t bytes);

#endif

/* A convolution by our own Winograd transform (winograd.h). */
#ifndef ONEDNN_CONVOLUTION_WINOGRAD_H
#define ONEDNN_CONVOLUTION_WINOGRAD_H

#include "weighted.h"
#include "winograd.h"

typedef struct convolution_winograd {
    winograd_conv conv;
    const winograd_kernels
        *kernels; /* NULL: this convolution uses another implementation */
} convolution_winograd;

/* Is it possible, and likely faster than a direct convolution? Computed from the shapes
 * alone, so that a net computes the same numbers on every run. In a test net it also
 * depends on the layout of the train net's weights. */
int convolution_winograd_fits(const weighted *w, const sliding_window *window,
                              int64_t group, const dlc_layer_memory *memory,
                              convolution_winograd *winograd);
dlc_status convolution_winograd_prepare(weighted *w,
                                        const convolution_winograd *winograd,
                                        dlc_layer_memory *memory,
                                        const dlc_shape *weights);
dlc_status convolution_winograd_forward(weighted *w,
                                        const convolution_winograd *winograd,
                                        const dlc_layer_run *run);
dlc_status convolution_winograd_backward(weighted *w,
                                         const convolution_winograd *winograd,
                                         const dlc_layer_run *run);
void convolution_winograd_describe(const weighted *w,
                                   const convolution_winograd *winograd, char *text,
                                   size_t bytes);

#endif

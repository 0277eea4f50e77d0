/* The weights' gradient of a convolution over images of a few colours by our own
 * kernels (colours.h); oneDNN does its other passes. */
#ifndef ONEDNN_CONVOLUTION_COLOURS_H
#define ONEDNN_CONVOLUTION_COLOURS_H

#include "colours.h"
#include "weighted.h"

typedef struct convolution_colours {
    colours_conv conv;
    const colours_kernels *kernels; /* NULL: not for this convolution */
} convolution_colours;

/* Chooses by the shapes alone, which do not depend on this machine's threads. */
void convolution_colours_plan(const weighted *w, const sliding_window *window,
                              int64_t group, const dlc_layer_memory *memory,
                              convolution_colours *colours);
/* The bytes of scratch memory; 0 if the layouts of `w` do not suit the kernels. */
size_t convolution_colours_bytes(const weighted *w, convolution_colours *colours);

#endif

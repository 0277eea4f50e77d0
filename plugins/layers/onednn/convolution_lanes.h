/* A convolution whose images lie in the vector's lanes (lanes.h). */
#ifndef ONEDNN_CONVOLUTION_LANES_H
#define ONEDNN_CONVOLUTION_LANES_H

#include "lanes.h"
#include "weighted.h"

typedef struct convolution_lanes {
    lanes_conv conv;
    void *tables; /* NULL: this convolution is oneDNN's */
    size_t mask_bytes, space_bytes;
} convolution_lanes;

/* Can (`forced`: whether or not it is faster) it lie so? A test net goes by the
 * layout of its twin's weights too. */
int convolution_lanes_fits(const weighted *w, const sliding_window *window,
                           int64_t group, const dlc_layer_plan *plan, int forced,
                           convolution_lanes *lanes);
dlc_status convolution_lanes_prepare(weighted *w, convolution_lanes *lanes,
                                     dlc_layer_plan *plan, const dlc_shape *weights);
dlc_status convolution_lanes_forward(weighted *w, const convolution_lanes *lanes,
                                     const dlc_layer_run *run);
dlc_status convolution_lanes_backward(weighted *w, const convolution_lanes *lanes,
                                      const dlc_layer_run *run);
void convolution_lanes_describe(const weighted *w, const convolution_lanes *lanes,
                                char *text, size_t bytes);

#endif

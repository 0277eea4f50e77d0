/* A convolution in the batch-blocked layout (batch_blocked.h). */
#ifndef ONEDNN_CONVOLUTION_LANES_H
#define ONEDNN_CONVOLUTION_LANES_H

#include "batch_blocked.h"
#include "weighted.h"

typedef struct convolution_batch_blocked {
    batch_blocked_conv conv;
    void *tables; /* NULL: this convolution uses another implementation */
    size_t mask_bytes, space_bytes;
} convolution_batch_blocked;

/* Is the layout possible, and (unless `forced`) likely faster? In a test net it also
 * depends on the layout of the train net's weights. */
int convolution_batch_blocked_fits(const weighted *w, const sliding_window *window,
                                   int64_t group, const dlc_layer_memory *memory,
                                   int forced, convolution_batch_blocked *state);
dlc_status convolution_batch_blocked_prepare(weighted *w,
                                             convolution_batch_blocked *state,
                                             dlc_layer_memory *memory,
                                             const dlc_shape *weights);
dlc_status convolution_batch_blocked_forward(weighted *w,
                                             const convolution_batch_blocked *state,
                                             const dlc_layer_run *run);
dlc_status convolution_batch_blocked_backward(weighted *w,
                                              const convolution_batch_blocked *state,
                                              const dlc_layer_run *run);
void convolution_batch_blocked_describe(const weighted *w,
                                        const convolution_batch_blocked *state,
                                        char *text, size_t bytes);

#endif

/* Sweeps and gradients of weights (amx_plan.h), compiled once for AMX and once for its
 * emulation. */
#ifndef ONEDNN_AMX_PRODUCTS_H
#define ONEDNN_AMX_PRODUCTS_H

#include "amx_plan.h"
#include "per_isa.h"

/* Where the weights are, in numbers: of a row and a column of the window, a channel of
 * the source, a result, and a group. Either rows of the window lie side by side for
 * each result (column = channels, channel = 1), or results do (result = 1). */
typedef struct sweep_weights {
    const float *at;
    ptrdiff_t row, column, channel, result, group;
} sweep_weights;

/* `bias` may be NULL. `add`: to what is in `out`. */
void PER_ISA(sweep_run_)(const sweep *s, const bf16 *source,
                         const sweep_weights *weights, const float *bias,
                         const bounds *limit, int add, bf16 *out, void *space);

/* `space`: gradient_space() bytes. `bias_diff` may be NULL. */
void PER_ISA(gradient_run_)(const amx_conv *conv, const bf16 *in, const bf16 *out_diff,
                            float *weights_diff, float *bias_diff, void *space);

#endif

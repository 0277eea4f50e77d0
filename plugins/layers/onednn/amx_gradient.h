/* Gradients of weights by products of tiles (amx_gradient.c). Compiled once for each
 * instruction set. */
#ifndef ONEDNN_AMX_GRADIENT_H
#define ONEDNN_AMX_GRADIENT_H

#include "amx.h"

size_t PER_ISA(gradient_space_)(const amx_conv *conv);
/* `bias_diff` may be NULL. */
void PER_ISA(gradient_run_)(const amx_conv *conv, const bf16 *in, const bf16 *out_diff,
                            float *weights_diff, float *bias_diff, void *space);

#endif

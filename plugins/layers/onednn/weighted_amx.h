/* Convolutions and inner products in bfloat16 by AMX's tiles (amx.h). */
#ifndef ONEDNN_WEIGHTED_AMX_H
#define ONEDNN_WEIGHTED_AMX_H

#include "amx.h"
#include "weighted.h"

typedef struct weighted_amx {
    amx_conv conv;
    const amx_kernels *kernels; /* NULL: the layer uses another implementation */
    op from_plain, to_plain;    /* of plain parameters; pd NULL: no reorder */
    size_t reordered_bytes;     /* of these weights, the first part of scratch */
} weighted_amx;

/* The tiles of this CPU, if the system lets this process use them and
 * ONEDNN_MAX_CPU_ISA allows it; DLCORE_AMX = off forbids them, DLCORE_AMX = emulated
 * takes the emulation on any CPU. NULL: none. */
const amx_kernels *amx_here(void);

/* Chooses layouts, memory and the order of the weights. `src`, `dst`: of the samples;
 * `shape`, `order`: the weights' own shape, and the layout that the kernels read. */
dlc_status weighted_amx_prepare(weighted *w, weighted_amx *amx,
                                dlc_layer_memory *memory, const dlc_layout *src,
                                const dlc_layout *dst, const dlc_shape *shape,
                                const dlc_layout *order);
dlc_status weighted_amx_forward(weighted *w, weighted_amx *amx,
                                const dlc_layer_run *run);
dlc_status weighted_amx_backward(weighted *w, weighted_amx *amx,
                                 const dlc_layer_run *run);
void weighted_amx_describe(const weighted *w, const weighted_amx *amx, char *text,
                           size_t bytes);
void weighted_amx_clear(weighted_amx *amx);

#endif

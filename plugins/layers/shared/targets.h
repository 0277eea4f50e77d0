/* What both families do for losses that compare each value with a target. */
#ifndef LAYERS_SHARED_TARGETS_H
#define LAYERS_SHARED_TARGETS_H

#include "layer.h"
#include "pair_loss.h"

/* The whole layer. */
typedef struct pair_loss_layer {
    dlc_layer head;
    pair_loss_args args; /* without the pointers */
} pair_loss_layer;

dlc_status sigmoid_cross_entropy_loss_create(const dlc_layer_args *args,
                                             dlc_layer **layer);
dlc_status euclidean_loss_create(const dlc_layer_args *args, dlc_layer **layer);
/* Checks the inputs (values, targets), and makes out[0] {sum, count}. */
dlc_status pair_loss_infer(dlc_layer *layer, dlc_layer_shapes *shapes);
/* Everything is in plain layout. Scratch: {sum, count} of each sample. Backward reads
 * both inputs, and the count. */
dlc_status pair_loss_prepare(dlc_layer *layer, dlc_layer_memory *memory);
/* What counts of each of `samples` samples. */
dlc_status pair_loss_count(dlc_layer *layer, const void *targets, int64_t samples,
                           double *counted);
/* The arguments of a forward pass. */
pair_loss_args pair_loss_of_run(const dlc_layer *layer, const dlc_layer_run *run);

#endif

/* What both families do for losses that compare each value with a target. */
#ifndef LAYERS_SHARED_TARGETS_H
#define LAYERS_SHARED_TARGETS_H

#include "layer.h"
#include "pair_loss.h"

/* Reads the options. */
void pair_loss_read(const dlc_settings *settings, pair_loss_kind kind,
                    pair_loss_args *args);
/* Checks the inputs (values, targets), and makes out[0] {sum, count}. */
dlc_status pair_loss_infer(const dlc_layer *layer, dlc_layer_shapes *shapes,
                           pair_loss_args *args);
/* Everything is in plain layout. Scratch: {sum, count} of each sample. Backward reads
 * both inputs, and the count. */
void pair_loss_prepare(const dlc_layer *layer, const pair_loss_args *args,
                       dlc_layer_memory *memory);

#endif

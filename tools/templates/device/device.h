/* Declarations shared by the two files of the plugin. */
#ifndef DEVICE_H
#define DEVICE_H

#include <dlcore/layer.h>

extern const dlc_host *host; /* set by load */

/* Layers, see layers.c. */
extern const dlc_layer_ops inner_product_ops, softmax_loss_ops, accuracy_ops;
extern const dlc_option inner_product_options[];

#endif

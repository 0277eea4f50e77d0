/* The calls of a layer that tell the core numbers: they are made here only, and nothing
 * that the layer returns is used before it was checked. Called by build.c and
 * prepare.c. */
#ifndef DLC_NET_LAYER_CALLS_H
#define DLC_NET_LAYER_CALLS_H

#include "net/internal.h"

/* Call infer or prepare of the operation's layer, and check what it has answered. A
 * failure names the layer; a wrong answer is a DLC_ERR_PLUGIN. `train`: the net is
 * trained. */
dlc_status dlc_layer_infer(net_op *op, int train);
dlc_status dlc_layer_prepare(net_op *op);

#endif

/* Makes the planner's layers from a net, one entry per layer of the graph. Called by
 * `dlcore plan` and at the start of training. */
#ifndef DLC_PLAN_LAYERS_H
#define DLC_PLAN_LAYERS_H

#include "net/net.h"
#include "plan/cost.h"

/* The work of a part of an operation that was not measured: the bytes that a device
 * moves in the same time, whether its arithmetic or its memory traffic takes longer. */
double dlc_plan_work(const dlc_net_row *row, int part);

/* Fills in graph->layers elements of `layer`, in the graph's order; layers that are not
 * part of this net are light, with zeros. Times are estimated from the work for a
 * device that moves `memory_bytes` per second; if that is 0 they are 0, to be filled in
 * by dlc_plan_layers_time. `batch` is the net's; `sample` is the C, H, W of its input.
 * Names point into the graph. `net` may be an outline, with shapes and parameters only.
 */
dlc_status dlc_plan_layers_read(const dlc_graph *graph, const dlc_net *net,
                                int64_t batch, const dlc_shape *sample,
                                double memory_bytes, dlc_plan_layer *layer);

/* Adds the measured seconds of operation `row` of the net to its layer (for a reorder,
 * the layer that reads it). The fixed part is estimated as the time to read the layer's
 * weights at memory_bytes per second; 0: there is none. */
dlc_status dlc_plan_layers_time(const dlc_graph *graph, const dlc_net *net, int32_t row,
                                int64_t batch, double memory_bytes,
                                const double seconds[DLC_NET_PARTS],
                                dlc_plan_layer *layer);

/* The work of the graph's layers in training, from an outline: one number for each
 * layer of the graph, in bytes, with that of transforming filters, and of adding up the
 * gradients if there are several `micro_batches`; and which of them may begin a
 * pipeline stage, so that each stage has something to train and none begins with a
 * layer that belongs to the one before it. Release both with dlc_free. */
dlc_status dlc_plan_layers_weigh(const dlc_graph *graph, const dlc_net *outline,
                                 int32_t micro_batches, double **work,
                                 char **may_begin);

#endif

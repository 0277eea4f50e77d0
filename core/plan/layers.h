/* Makes the planner's layers from a net, one entry per layer of the graph. Called by
 * `dlcore plan` and at the start of training. */
#ifndef DLC_PLAN_LAYERS_H
#define DLC_PLAN_LAYERS_H

#include "net/net.h"
#include "plan/cost.h"

/* A device's performance, for layers that were not measured. */
typedef struct dlc_plan_speed {
    double multiply_adds; /* per second */
    double bytes;         /* of memory traffic per second */
    double start;         /* seconds of the smallest operation */
} dlc_plan_speed;

/* Fills in graph->layers elements of `layer`, in the graph's order; layers that are not
 * part of this net are light, with zeros. Times are computed from the work that
 * dlc_net_row_at reports and `speed`; with NULL they are 0, to be filled in by
 * dlc_plan_layers_time. `batch` is the net's; `sample` is the C, H, W of its input.
 * Names point into the graph. `net` may be an outline, with shapes and parameters only.
 */
dlc_status dlc_plan_layers_read(const dlc_graph *graph, const dlc_net *net,
                                int64_t batch, const dlc_shape *sample,
                                const dlc_plan_speed *speed, dlc_plan_layer *layer);

/* Adds the measured seconds of operation `row` of the net to its layer (for a reorder,
 * the layer that reads it). The fixed part is estimated as the time to read the layer's
 * weights at memory_bytes per second; 0: there is none. */
dlc_status dlc_plan_layers_time(const dlc_graph *graph, const dlc_net *net, int32_t row,
                                int64_t batch, double memory_bytes,
                                const double seconds[DLC_NET_PARTS],
                                dlc_plan_layer *layer);

#endif

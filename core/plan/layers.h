/* The layers of a net as the planner sees them: one entry a layer of the graph. */
#ifndef DLC_PLAN_LAYERS_H
#define DLC_PLAN_LAYERS_H

#include "net/net.h"
#include "plan/cost.h"

/* How fast a device is, for layers that were not measured. */
typedef struct dlc_plan_speed {
    double multiply_adds; /* a second */
    double bytes;         /* of memory moved a second */
    double start;         /* seconds that the smallest piece of work takes */
} dlc_plan_speed;

/* `layer` gets graph->layers elements in the graph's order, also of layers that are not
 * in this net (light, all else 0). Times follow from the work that dlc_net_row_at tells
 * and `speed`; with NULL they are 0, for dlc_plan_layers_time to fill in. `batch`: of
 * the net; `sample`: C, H, W of what it reads. Names are the graph's. `net` may be an
 * outline: shapes and parameters are enough. */
dlc_status dlc_plan_layers_read(const dlc_graph *graph, const dlc_net *net,
                                int64_t batch, const dlc_shape *sample,
                                const dlc_plan_speed *speed, dlc_plan_layer *layer);

/* Adds what operation `row` of the net took, measured at `batch`, to its layer (that of
 * a reorder is its reader): how much of it depends on the batch is guessed from the
 * bytes of the layer's weights, moved at memory_bytes a second; 0: all of it does. */
dlc_status dlc_plan_layers_time(const dlc_graph *graph, const dlc_net *net, int32_t row,
                                int64_t batch, double memory_bytes,
                                const double seconds[DLC_NET_PARTS],
                                dlc_plan_layer *layer);

#endif

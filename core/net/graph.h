/* The graph: the layers that `net.ini` lists, found among the plugins, with their
 * settings checked and their inputs resolved. It knows both phases and no shapes.
 */
#ifndef DLC_NET_GRAPH_H
#define DLC_NET_GRAPH_H

#include <dlcore/layer.h>

#include "config/config.h"
#include "plugin/registry.h"

/* Where an input comes from: output `output` of layer `layer`; layer DLC_FROM_DATA
 * is the batch, output 0 its data and 1 its labels. */
typedef struct dlc_graph_input {
    int32_t layer, output;
} dlc_graph_input;

#define DLC_FROM_DATA (-1)

/* How the ranks of a job share a layer: its samples, or the channels of its output; or
 * whichever is faster. */
typedef enum dlc_parallel {
    DLC_PARALLEL_DATA,
    DLC_PARALLEL_MODEL,
    DLC_PARALLEL_AUTO,
} dlc_parallel;

typedef struct dlc_graph_layer {
    char *name;
    const dlc_feature *feature;
    dlc_settings *settings;
    unsigned phases;    /* dlc_phase values or-ed */
    double loss_weight; /* of a loss in the sum that is minimised */
    dlc_parallel parallel;
    int32_t inputs;
    dlc_graph_input *input;
    int broken; /* its section has mistakes: `settings` and inputs may be missing */
} dlc_graph_layer;

typedef struct dlc_graph {
    int32_t layers;
    dlc_graph_layer *layer; /* in the order of the file; inputs come before */
} dlc_graph;

/* The core's own keys of a layer's section: type, input, phase, loss_weight, parallel.
 */
extern const dlc_option dlc_graph_options[];

/* Makes the graph of every section that isn't one of `reserved` (NULL-terminated:
 * "net", "data", ...). All mistakes go to `problems`; where there were any, the graph
 * is good for looking for more and for nothing else. DLC_OK unless memory ran out. */
dlc_status dlc_graph_make(const dlc_config *config, const char *const *reserved,
                          const dlc_registry *registry, const char *device,
                          dlc_problems *problems, dlc_graph **graph);
void dlc_graph_free(dlc_graph *graph); /* NULL allowed */

#endif

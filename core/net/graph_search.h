/* Looks for things in a graph: an output by its name, the scores of classes, and the
 * layers that an output depends on. Used by sessions that hand out an output. */
#ifndef DLC_NET_GRAPH_SEARCH_H
#define DLC_NET_GRAPH_SEARCH_H

#include "base/text.h"
#include "net/graph.h"

/* The first output of the layer of this name, in the test net. DLC_ERR_CONFIG if there
 * is none. */
dlc_status dlc_graph_find_layer(const dlc_graph *graph, const char *name,
                                dlc_graph_input *output);
/* Appends what an unknown layer's name may mean, of those in all of `phases`. */
void dlc_graph_suggest(const dlc_graph *graph, unsigned phases, const char *name,
                       dlc_text *advice);
/* What the last layer of a kind in the test net, DLC_LAYER_CLASSIFIES or
 * DLC_LAYER_MULTI_LABEL, reads: a loss rather than a metric. DLC_ERR_CONFIG if there is
 * none. */
dlc_status dlc_graph_find_scores(const dlc_graph *graph, uint64_t kind,
                                 dlc_graph_input *output);

/* The losses among the layers before layer `end` that are trained. */
int32_t dlc_graph_losses(const dlc_graph *graph, int32_t end);

/* One char per layer: does the output depend on it? Release it with dlc_free; NULL if
 * memory ran out. */
char *dlc_graph_needed(const dlc_graph *graph, dlc_graph_input output);

#endif

/* Searches a graph. */
#include "net/graph.h"

#include <string.h>

#include "base/memory.h"
#include "config/suggest.h"

static int is_read_by_tests(const dlc_graph_layer *layer) {
    return (layer->phases & DLC_PHASE_TEST) != 0;
}

void dlc_graph_suggest(const dlc_graph *graph, unsigned phases, const char *name,
                       dlc_text *advice) {
    const char **names = dlc_alloc((size_t)graph->layers, sizeof *names);
    size_t count = 0;
    for (int32_t i = 0; names && i < graph->layers; i++)
        if ((graph->layer[i].phases & phases) == phases)
            names[count++] = graph->layer[i].name;
    if (names)
        dlc_suggest(advice, name, names, count);
    dlc_free(names);
}

int32_t dlc_graph_losses(const dlc_graph *graph, int32_t end) {
    int32_t losses = 0;
    for (int32_t i = 0; i < end; i++)
        losses += (graph->layer[i].feature->caps & DLC_LAYER_LOSS) != 0 &&
                  (graph->layer[i].phases & DLC_PHASE_TRAIN) != 0;
    return losses;
}

dlc_status dlc_graph_find_layer(const dlc_graph *graph, const char *name,
                                dlc_graph_input *output) {
    int32_t layer = dlc_graph_layer_named(graph, name);
    if (layer >= 0 && is_read_by_tests(&graph->layer[layer])) {
        *output = (dlc_graph_input){.layer = layer};
        return DLC_OK;
    }
    dlc_text advice = {0};
    dlc_graph_suggest(graph, DLC_PHASE_TEST, name, &advice);
    dlc_status status = dlc_fail(DLC_ERR_CONFIG,
                                 "the net has no layer '%s' in a test%s", name,
                                 dlc_text_string(&advice));
    dlc_text_free(&advice);
    return status;
}

/* Is the layer of a kind, and reads an output of a layer that the test net has? */
static int reads_scores(const dlc_graph *graph, const dlc_graph_layer *layer,
                        uint64_t caps) {
    return (layer->feature->caps & caps) == caps && layer->inputs > 0 &&
           layer->input[0].layer != DLC_FROM_DATA &&
           is_read_by_tests(&graph->layer[layer->input[0].layer]);
}

dlc_status dlc_graph_find_scores(const dlc_graph *graph, uint64_t kind,
                                 dlc_graph_input *output) {
    const uint64_t caps[] = {kind | DLC_LAYER_LOSS, kind};
    for (size_t k = 0; k < sizeof caps / sizeof *caps; k++)
        for (int32_t i = graph->layers - 1; i >= 0; i--) {
            const dlc_graph_layer *layer = &graph->layer[i];
            if (!reads_scores(graph, layer, caps[k]))
                continue;
            *output = layer->input[0];
            return DLC_OK;
        }
    return dlc_fail(DLC_ERR_CONFIG,
                    "the net has no loss for classification, so it has no "
                    "scores of classes");
}

char *dlc_graph_needed(const dlc_graph *graph, dlc_graph_input output) {
    char *needed = dlc_alloc((size_t)graph->layers, 1);
    if (!needed)
        return NULL;
    needed[output.layer] = 1;
    for (int32_t i = output.layer; i >= 0; i--) /* inputs come before */
        for (int32_t j = 0; needed[i] && j < graph->layer[i].inputs; j++)
            if (graph->layer[i].input[j].layer != DLC_FROM_DATA)
                needed[graph->layer[i].input[j].layer] = 1;
    return needed;
}

/* The graph: the layers of `net.ini`, looked up among the plugins, with checked
 * settings and resolved inputs, for both phases and without shapes. Made by the setup;
 * nets are built from it.
 */
#ifndef DLC_NET_GRAPH_H
#define DLC_NET_GRAPH_H

#include <dlcore/layer.h>

#include "base/names.h"
#include "base/text.h"
#include "config/config.h"
#include "plugin/registry.h"

/* The source of an input: output `output` of layer `layer`. Layer DLC_FROM_DATA is the
 * batch, whose outputs are the fields of the graph. */
typedef struct dlc_graph_input {
    int32_t layer, output;
} dlc_graph_input;

#define DLC_FROM_DATA (-1)

/* The first two fields of every graph, whether they are read or not: `data`, which is
 * the image of simple samples, and `label`, which is their class. */
enum { DLC_FIELD_DATA = 0, DLC_FIELD_LABEL = 1 };

/* The most fields of a graph: all of a sample by name, and these two. */
#define DLC_NET_FIELDS 18

/* A field of the samples that layers read. */
typedef struct dlc_graph_field {
    char *name;
    unsigned phases; /* in which it is read */
    int is_label;    /* a loss or metric compares with it */
    int is_input;    /* a layer computes with it */
} dlc_graph_field;

/* How the ranks of a job split a layer: by samples, or by the channels of its output;
 * or whichever is faster. */
typedef enum dlc_parallel {
    DLC_PARALLEL_DATA,
    DLC_PARALLEL_TENSOR,
    DLC_PARALLEL_AUTO,
} dlc_parallel;

typedef struct dlc_graph_layer {
    char *name;
    const dlc_feature *feature;
    dlc_settings *settings;
    unsigned phases;    /* dlc_phase values or-ed */
    double loss_weight; /* of a loss in the sum that is minimised */
    dlc_parallel parallel;
    int frozen; /* its parameters are not trained */
    int32_t inputs;
    dlc_graph_input *input;
    int broken; /* its section has mistakes: `settings` and inputs may be missing */
} dlc_graph_layer;

typedef struct dlc_graph {
    int32_t layers;
    dlc_graph_layer *layer; /* in the order of the file; inputs come before */
    dlc_names names;        /* of layers: their places */
    int32_t fields;
    dlc_graph_field field[DLC_NET_FIELDS];
} dlc_graph;

/* The names of the fields of the samples; all 0 if they are not known. */
typedef struct dlc_field_names {
    int is_known;
    int32_t count;
    const char *name[DLC_NET_FIELDS];
    const char *data, *label; /* what these two are called; NULL: there is none */
} dlc_field_names;

/* The core's own keys of a layer's section: type, input, label, phase, loss_weight,
 * parallel, frozen. */
extern const dlc_option dlc_graph_options[];

/* Makes the graph of all sections whose names are not in `reserved` (NULL-terminated:
 * "net", "data", ...). While the names of the fields are not known, an input that is no
 * layer is taken for one. Mistakes are added to `problems`; if there are any, the graph
 * may only be used to look for more. Returns DLC_OK unless memory runs out. */
dlc_status dlc_graph_make(const dlc_config *config, const char *const *reserved,
                          const dlc_field_names *fields, const dlc_registry *registry,
                          const char *device, dlc_problems *problems,
                          dlc_graph **graph);
void dlc_graph_free(dlc_graph *graph); /* NULL allowed */

/* The layer of a name, or of the first `length` bytes of a name; -1: there is none. */
int32_t dlc_graph_layer_named(const dlc_graph *graph, const char *name);
int32_t dlc_graph_layer_named_part(const dlc_graph *graph, const char *name,
                                   size_t length);

/* To be called once the graph is complete, before ranks are forked. */
void dlc_graph_before_fork(const dlc_graph *graph);

/* ---- Searches (graph_search.c) --------------------------------------------------- */

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

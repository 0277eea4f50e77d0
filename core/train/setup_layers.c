/* Shapes of all layers, and scores against classes, before anything is started: see
 * setup_checks.h. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "train/nets.h"
#include "train/setup_checks.h"

/* One phase of the net, being looked at. */
typedef struct looked {
    const dlc_setup *setup;
    dlc_problems *problems;
    const dlc_data_setup *data; /* that the phase reads */
    const char *section;        /* of it */
    dlc_phase phase;
    int refused; /* the family cannot do it at all, which was told */
    char *told;  /* one a layer of the graph: what has been complained of */
} looked;

enum { TOLD_SHAPE = 1, TOLD_CLASSES = 2 };

static const dlc_section *section_of(const looked *at, int32_t layer) {
    return dlc_config_find(at->setup->config, at->setup->graph->layer[layer].name);
}

/* ---- Shapes ------------------------------------------------------------------ */

/* The sentence without "layer 'conv1': " in front, since the section is named anyway.
 */
static const char *without_name(const char *detail, const char *name) {
    static const char begin[] = "layer '";
    size_t length = strlen(name);
    const char *rest = detail + sizeof begin - 1;
    if (strncmp(detail, begin, sizeof begin - 1) != 0 ||
        strncmp(rest, name, length) != 0 || rest[length] != '\'')
        return detail;
    rest += length + 1;
    return rest + strspn(rest, ": ");
}

static void tell_misfit(void *context, int32_t layer, dlc_status status) {
    const looked *at = context;
    (void)status;
    if (at->told[layer])
        return;
    at->told[layer] = TOLD_SHAPE;
    char *copy = dlc_strdup(
        without_name(dlc_detail(), at->setup->graph->layer[layer].name));
    dlc_problems_in(at->problems, at->setup->config, section_of(at, layer), NULL, "%s",
                    copy ? copy : "its shapes do not fit");
    dlc_free(copy);
}

static dlc_status outline(looked *at, const dlc_shape *sample, dlc_net **net) {
    const dlc_setup *setup = at->setup;
    const dlc_net_args args = {.graph = setup->graph,
                               .phase = at->phase,
                               .outline = 1,
                               .misfit = tell_misfit,
                               .misfit_context = at,
                               .device_feature = setup->device,
                               .device_ops = setup->device->ops,
                               .threads = 1,
                               .tune = dlc_settings_get_bool(setup->train_settings, "autotune"),
                               .precision = dlc_nets_precision(setup),
                               .sample = *sample,
                               .batch = at->data->batch > 0 ? at->data->batch : 1,
                               .seed = setup->seed};
    dlc_status status = dlc_net_build(&args, net);
    if (status == DLC_OK || status == DLC_ERR_NOMEM)
        return status;
    /* A family's refusal: of the precision, mostly. */
    at->refused = 1;
    dlc_problems_failed(at->problems, setup->config,
                        dlc_settings_line(setup->train_settings, "precision"), "train", status);
    return DLC_OK;
}

/* ---- Classes ----------------------------------------------------------------- */

static int64_t channels_of(const dlc_net *net, dlc_graph_input input) {
    dlc_net_port port;
    if (input.layer == DLC_FROM_DATA ||
        !dlc_net_output(net, input.layer, input.output, &port))
        return 0;
    return port.shape.rank > 1 ? port.shape.dims[1] : 1;
}

/* The layer that made these channels: behind it come only layers that hand them on. */
static int32_t maker_of(const looked *at, const dlc_net *net, int32_t layer) {
    const dlc_graph *graph = at->setup->graph;
    for (;;) {
        const dlc_graph_layer *from = &graph->layer[layer];
        int hands_on = from->inputs == 1 &&
                       !dlc_settings_is_set(from->settings, "num_output");
        if (!hands_on || from->input[0].layer == DLC_FROM_DATA ||
            channels_of(net, from->input[0]) !=
                channels_of(net, (dlc_graph_input){layer, 0}))
            return layer;
        layer = from->input[0].layer;
    }
}

/* The same where shapes are not known, since one below does not fit: the number that is
 * written is enough, if only pointwise layers come behind it. -1: none. */
static int32_t maker_written(const looked *at, int32_t layer, int64_t *channels) {
    const dlc_graph *graph = at->setup->graph;
    for (;;) {
        const dlc_graph_layer *from = &graph->layer[layer];
        if (from->broken)
            return -1;
        if (dlc_settings_is_set(from->settings, "num_output")) {
            *channels = dlc_settings_get_int(from->settings, "num_output");
            return layer;
        }
        if (!(from->feature->caps & DLC_LAYER_POINTWISE) || from->inputs != 1 ||
            from->input[0].layer == DLC_FROM_DATA)
            return -1;
        layer = from->input[0].layer;
    }
}

/* Where that number is written, if it is written anywhere. */
static const char *channels_key(const dlc_graph_layer *layer) {
    return dlc_settings_is_set(layer->settings, "num_output") ? "num_output" : NULL;
}

static void tell_too_few(looked *at, int32_t maker, int32_t reader, int64_t channels,
                         int64_t classes) {
    const dlc_graph_layer *layer = &at->setup->graph->layer[maker];
    const dlc_section *section = section_of(at, maker);
    const char *key = channels_key(layer);
    char what[64];
    (void)snprintf(what, sizeof what, "%s%s%lld", key ? key : "gives",
                   key ? " = " : " ", (long long)channels);
    dlc_problems_in(at->problems, at->setup->config, section, key,
                    "%s%s, but [%s] compares its scores with the labels of [%s] "
                    "(%s), which has %lld classes: one output a class is needed, or "
                    "labels from %lld on would have none",
                    what, key ? "" : " channels", at->setup->graph->layer[reader].name,
                    at->section, dlc_settings_where(at->data->settings, "source"),
                    (long long)classes, (long long)channels);
    at->told[maker] |= TOLD_CLASSES;
}

static void tell_too_many(looked *at, int32_t maker, int64_t channels,
                          int64_t classes) {
    const char *key = channels_key(&at->setup->graph->layer[maker]);
    dlc_problems_warn_in(at->problems, at->setup->config, section_of(at, maker), key,
                         "has %lld outputs, but [%s] (%s) has %lld classes: the others "
                         "are never right and only cost time",
                         (long long)channels, at->section,
                         dlc_settings_where(at->data->settings, "source"),
                         (long long)classes);
    at->told[maker] |= TOLD_CLASSES;
}

/* More outputs than classes are a warning: it trains well, and is meant where a net
 * made for many classes is tried on few of them. */
static void compare(looked *at, const dlc_net *net, int32_t reader) {
    const dlc_graph_layer *layer = &at->setup->graph->layer[reader];
    const dlc_data_info *info = &at->data->info;
    int64_t known = info->classes;
    int64_t least = known ? known : (int64_t)at->data->largest_label + 1;
    if (layer->inputs < 2 || layer->input[1].layer != DLC_FROM_DATA ||
        layer->input[0].layer == DLC_FROM_DATA)
        return;
    int64_t channels = channels_of(net, layer->input[0]);
    int has_shape = channels > 0;
    int32_t maker = has_shape ? maker_of(at, net, layer->input[0].layer)
                              : maker_written(at, layer->input[0].layer, &channels);
    if (maker < 0 || (at->told[maker] & TOLD_CLASSES))
        return;
    /* The label that doesn't count may be far above the others. */
    if (channels < least && dlc_settings_is_set(layer->settings, "ignore_label"))
        return;
    if (channels < least)
        tell_too_few(at, maker, reader, channels, least);
    else if (has_shape && known && channels > known && at->phase == DLC_PHASE_TRAIN)
        tell_too_many(at, maker, channels, known);
}

static void compare_all(looked *at, const dlc_net *net) {
    const dlc_graph *graph = at->setup->graph;
    for (int32_t i = 0; at->data->source && !at->data->broken && i < graph->layers; i++)
        if (!graph->layer[i].broken && !at->told[i] &&
            (graph->layer[i].phases & (unsigned)at->phase) &&
            (graph->layer[i].feature->caps & DLC_LAYER_CLASSIFIES))
            compare(at, net, i);
}

/* ---- Phases ------------------------------------------------------------------ */

/* A layer of tests alone has nothing to read its parameters from. */
static dlc_status check_parameters(looked *at, const dlc_net *net) {
    const dlc_graph *graph = at->setup->graph;
    for (int32_t i = 0; i < dlc_net_rows(net); i++) {
        dlc_net_row row;
        DLC_TRY(dlc_net_row_at(net, i, &row));
        for (int32_t k = 0; row.parameters > 0 && k < graph->layers; k++) {
            if (strcmp(graph->layer[k].name, row.name) != 0 || at->told[k] ||
                graph->layer[k].phases != DLC_PHASE_TEST)
                continue;
            at->told[k] |= TOLD_SHAPE;
            dlc_problems_in(at->problems, at->setup->config, section_of(at, k), "phase",
                            "takes part in tests only, but has parameters, which "
                            "nothing trains: leave out `phase`");
        }
    }
    return DLC_OK;
}

static dlc_status look(looked *at, const dlc_shape *sample) {
    dlc_net *net = NULL;
    DLC_TRY(outline(at, sample, &net));
    if (!net)
        return DLC_OK;
    compare_all(at, net);
    dlc_status status = check_parameters(at, net);
    dlc_net_free(net);
    return status;
}

/* The sample of one of the sections that could be read; 0: of none. */
static int find_sample(const dlc_setup *setup, const dlc_data_setup *first,
                       dlc_shape *sample) {
    const dlc_data_setup *either[] = {first, &setup->train, &setup->test};
    for (size_t i = 0; i < sizeof either / sizeof *either; i++)
        if (either[i]->source && !either[i]->broken)
            return dlc_setup_sample_shape(either[i], sample) == DLC_OK;
    return 0;
}

static dlc_status look_at_phase(looked *at) {
    dlc_shape sample;
    if (!find_sample(at->setup, at->data, &sample)) {
        dlc_problems_warn(at->problems, at->setup->config, DLC_LINE_FILE,
                          "the layers' shapes were not checked, since no data section "
                          "could be read");
        return DLC_OK;
    }
    return look(at, &sample);
}

dlc_status dlc_setup_check_layers(const dlc_setup *setup, unsigned phases,
                                  dlc_problems *problems) {
    if (!setup->graph || !setup->train_settings || setup->graph->layers == 0)
        return DLC_OK;
    char *told = dlc_alloc((size_t)setup->graph->layers, 1);
    if (!told)
        return DLC_ERR_NOMEM;
    looked train = {setup, problems, &setup->train, "data", DLC_PHASE_TRAIN, 0, told};
    looked test = {setup, problems, &setup->test, "data.test", DLC_PHASE_TEST, 0, told};
    dlc_status status = DLC_OK;
    if (phases & DLC_PHASE_TRAIN)
        status = look_at_phase(&train);
    if (status == DLC_OK && (phases & DLC_PHASE_TEST) && setup->test.present &&
        !train.refused && (setup->test.source || !(phases & DLC_PHASE_TRAIN)))
        status = look_at_phase(&test);
    dlc_free(told);
    return status;
}

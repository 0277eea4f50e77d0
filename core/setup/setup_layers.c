/* Checks the shapes of all layers, and scores against classes, before anything is
 * started; called by dlc_setup_open. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "net/net.h"
#include "setup/setup_checks.h"

/* The phase of the net that is being checked. */
typedef struct checked_phase {
    dlc_setup *setup;
    dlc_problems *problems;
    const dlc_data_setup *data; /* that the phase reads */
    const char *section;        /* name of its section */
    dlc_phase phase;
    int refused;    /* a layer family refused the net, which was reported */
    char *reported; /* per layer of the graph: mistakes reported, REPORTED_* bits */
} checked_phase;

enum { REPORTED_SHAPE = 1, REPORTED_CLASSES = 2 };

static const dlc_section *section_of(const checked_phase *at, int32_t layer) {
    return dlc_config_find(at->setup->config, at->setup->graph->layer[layer].name);
}

/* ---- Shapes ------------------------------------------------------------------ */

/* The sentence without its prefix "layer 'conv1': ", since the report names the section
 * anyway. */
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

static void report_misfit(void *context, int32_t layer, dlc_status status) {
    const checked_phase *at = context;
    if (at->reported[layer])
        return;
    at->reported[layer] = REPORTED_SHAPE;
    char *copy = status == DLC_ERR_NOMEM
                     ? NULL
                     : dlc_strdup(without_name(dlc_detail(),
                                               at->setup->graph->layer[layer].name));
    if (copy)
        dlc_problems_add_in(at->problems, at->setup->config, section_of(at, layer),
                            NULL, "%s", copy);
    else
        at->problems->failed = 1;
    dlc_free(copy);
}

static dlc_status build_outline(checked_phase *at, const dlc_net_fields *fields,
                                dlc_net **net) {
    const dlc_setup *setup = at->setup;
    const dlc_net_args args = {
        .graph = setup->graph,
        .phase = at->phase,
        .outline = 1,
        .on_misfit = report_misfit,
        .misfit_context = at,
        .device_feature = setup->device,
        .device_ops = setup->device->ops,
        .threads = 1,
        .autotune = dlc_settings_get_bool(setup->train_settings, "autotune"),
        .precision = dlc_setup_precision(setup),
        .fields = *fields,
        .batch = at->data->batch > 0 ? at->data->batch : 1,
        .seed = setup->seed};
    dlc_status status = dlc_net_build(&args, net);
    if (status == DLC_OK || status == DLC_ERR_NOMEM)
        return status;
    /* A layer family refused the net, mostly because of the precision. */
    at->refused = 1;
    dlc_problems_add_failure(at->problems, setup->config,
                             dlc_settings_line(setup->train_settings, "precision"),
                             "train", status);
    return DLC_OK;
}

/* ---- Classes ----------------------------------------------------------------- */

static int64_t channels_of(const dlc_net *net, dlc_graph_input input) {
    dlc_net_boundary output;
    if (input.layer == DLC_FROM_DATA ||
        !dlc_net_output(net, input.layer, input.output, &output))
        return 0;
    return output.shape.rank > 1 ? output.shape.dims[1] : 1;
}

/* Was the option given? Not every type of layer has it. */
static int is_given(const dlc_graph_layer *layer, const char *option) {
    return dlc_settings_text(layer->settings, option) &&
           dlc_settings_is_set(layer->settings, option);
}

/* The layer that determines the number of channels that `layer` outputs; the layers
 * after it pass them on unchanged. */
static int32_t source_of_channels(const checked_phase *at, const dlc_net *net,
                                  int32_t layer) {
    const dlc_graph *graph = at->setup->graph;
    for (;;) {
        const dlc_graph_layer *from = &graph->layer[layer];
        int passes_on = from->inputs == 1 && !is_given(from, "num_output");
        if (!passes_on || from->input[0].layer == DLC_FROM_DATA ||
            channels_of(net, from->input[0]) !=
                channels_of(net, (dlc_graph_input){layer, 0}))
            return layer;
        layer = from->input[0].layer;
    }
}

/* Finds the layer that sets the number of channels where shapes are not known because a
 * layer below does not fit: num_output is enough if only pointwise layers follow it.
 * -1: none. */
static int32_t source_of_num_output(const checked_phase *at, int32_t layer,
                                    int64_t *channels) {
    const dlc_graph *graph = at->setup->graph;
    for (;;) {
        const dlc_graph_layer *from = &graph->layer[layer];
        if (from->broken)
            return -1;
        if (is_given(from, "num_output")) {
            *channels = dlc_settings_get_int(from->settings, "num_output");
            return layer;
        }
        if (!(from->feature->caps & DLC_LAYER_POINTWISE) || from->inputs != 1 ||
            from->input[0].layer == DLC_FROM_DATA)
            return -1;
        layer = from->input[0].layer;
    }
}

/* The key that sets the number of channels; NULL if there is none. */
static const char *channels_key(const dlc_graph_layer *layer) {
    return is_given(layer, "num_output") ? "num_output" : NULL;
}

static void report_too_few(checked_phase *at, int32_t source, int32_t reader,
                           int64_t channels, int64_t classes) {
    const dlc_graph_layer *layer = &at->setup->graph->layer[source];
    const dlc_section *section = section_of(at, source);
    const char *key = channels_key(layer);
    char what[64];
    (void)snprintf(what, sizeof what, "%s%s%lld", key ? key : "gives",
                   key ? " = " : " ", (long long)channels);
    dlc_problems_add_in(
        at->problems, at->setup->config, section, key,
        "%s%s, but [%s] compares its scores with the labels of [%s] "
        "(%s), which has %lld classes: it needs one output per class, or "
        "labels from %lld on have no score",
        what, key ? "" : " channels", at->setup->graph->layer[reader].name, at->section,
        dlc_settings_where(at->data->settings, "source"), (long long)classes,
        (long long)channels);
    at->reported[source] |= REPORTED_CLASSES;
}

static void report_too_many(checked_phase *at, int32_t source, int64_t channels,
                            int64_t classes) {
    const char *key = channels_key(&at->setup->graph->layer[source]);
    dlc_problems_warn_in(at->problems, at->setup->config, section_of(at, source), key,
                         "has %lld outputs, but [%s] (%s) has %lld classes: the others "
                         "are never right and only cost time",
                         (long long)channels, at->section,
                         dlc_settings_where(at->data->settings, "source"),
                         (long long)classes);
    at->reported[source] |= REPORTED_CLASSES;
}

/* The classes of a field, 0: not known; and the fewest that there can be. */
static void count_classes(const checked_phase *at, int32_t field, int64_t *known,
                          int64_t *least) {
    const dlc_samples *samples = &at->data->samples;
    int32_t source = at->data->fields.source[field];
    *known = source < 0 ? 0 : dlc_samples_field(samples, source)->classes;
    *least = *known || source != samples->label ? *known
                                                : (int64_t)at->data->largest_label + 1;
}

/* More outputs than classes are only a warning: the net trains well, and it may be on
 * purpose, as when a net for many classes is tried on a few of them. */
static void compare_layers(checked_phase *at, const dlc_net *net, int32_t reader) {
    const dlc_graph_layer *layer = &at->setup->graph->layer[reader];
    if (layer->inputs < 2 || layer->input[1].layer != DLC_FROM_DATA ||
        layer->input[0].layer == DLC_FROM_DATA)
        return;
    int64_t known, least, channels = channels_of(net, layer->input[0]);
    count_classes(at, layer->input[1].output, &known, &least);
    int has_shape = channels > 0;
    int32_t source = has_shape
                         ? source_of_channels(at, net, layer->input[0].layer)
                         : source_of_num_output(at, layer->input[0].layer, &channels);
    if (source < 0 || (at->reported[source] & REPORTED_CLASSES))
        return;
    /* The label to ignore may be far above the others, as 255 often is. */
    if (channels < least && is_given(layer, "ignore_label"))
        return;
    if (channels < least)
        report_too_few(at, source, reader, channels, least);
    else if (has_shape && known && channels > known && at->phase == DLC_PHASE_TRAIN)
        report_too_many(at, source, channels, known);
}

static void compare_all(checked_phase *at, const dlc_net *net) {
    const dlc_graph *graph = at->setup->graph;
    for (int32_t i = 0; at->data->source && !at->data->broken && i < graph->layers; i++)
        if (!graph->layer[i].broken && !at->reported[i] &&
            (graph->layer[i].phases & (unsigned)at->phase) &&
            (graph->layer[i].feature->caps & DLC_LAYER_CLASSIFIES))
            compare_layers(at, net, i);
}

/* ---- Phases ------------------------------------------------------------------ */

/* A layer that takes part in tests only cannot have parameters: nothing trains them. */
static dlc_status check_parameters(checked_phase *at, const dlc_net *net) {
    const dlc_graph *graph = at->setup->graph;
    for (int32_t i = 0; i < dlc_net_rows(net); i++) {
        dlc_net_row row;
        DLC_TRY(dlc_net_row_at(net, i, &row));
        int32_t k = row.parameters > 0 ? dlc_graph_layer_named(graph, row.name) : -1;
        if (k < 0 || at->reported[k] || graph->layer[k].phases != DLC_PHASE_TEST)
            continue;
        at->reported[k] |= REPORTED_SHAPE;
        dlc_problems_add_in(at->problems, at->setup->config, section_of(at, k), "phase",
                            "takes part in tests only, but has parameters, which "
                            "nothing trains: remove `phase`");
    }
    return DLC_OK;
}

/* Are its parameters unknown until the ranks build the net? */
static int is_inferred_later(const dlc_graph_layer *layer) {
    const dlc_layer_ops *ops = layer->feature->ops;
    return !DLC_HAS(ops->family, infers_without_device) ||
           !ops->family->infers_without_device;
}

/* Refuses to train a net without trained parameters, unless some may be missing. */
static void check_trained(checked_phase *at, const dlc_net *net) {
    int frozen = 0;
    for (int32_t i = 0; i < dlc_net_params(net); i++) {
        const dlc_net_param *param = dlc_net_param_at(net, i);
        if (!param->is_buffer)
            return;
        frozen |= param->is_frozen;
    }
    for (int32_t i = 0; i < at->setup->graph->layers; i++)
        if (at->reported[i] || at->setup->graph->layer[i].broken ||
            is_inferred_later(&at->setup->graph->layer[i]))
            return;
    if (at->phase == DLC_PHASE_TRAIN)
        dlc_problems_add(at->problems, at->setup->config, DLC_LINE_FILE,
                         frozen ? "every layer with parameters is frozen, so there is "
                                  "nothing to train; remove `frozen` from one of them"
                                : "the net has no parameters to train");
}

static dlc_status add_up_bytes(const dlc_net *net, double *bytes) {
    double count = 0;
    for (int32_t i = 0; i < dlc_net_rows(net); i++) {
        dlc_net_row row;
        DLC_TRY(dlc_net_row_at(net, i, &row));
        count += (double)dlc_shape_count(&row.output);
        count += row.frozen ? 0 : (double)row.parameters;
    }
    *bytes = count * sizeof(float);
    return DLC_OK;
}

static dlc_status check_net(checked_phase *at, const dlc_net_fields *fields) {
    dlc_net *net = NULL;
    DLC_TRY(build_outline(at, fields, &net));
    if (!net)
        return DLC_OK;
    compare_all(at, net);
    dlc_status status = check_parameters(at, net);
    check_trained(at, net);
    if (status == DLC_OK && at->phase == DLC_PHASE_TRAIN)
        status = add_up_bytes(net, &at->setup->train_bytes);
    dlc_net_free(net);
    return status;
}

/* The fields of a sample of the first section that could be read; 0: none could. */
static int find_fields(const checked_phase *at, dlc_net_fields *fields) {
    const dlc_setup *setup = at->setup;
    const dlc_data_setup *either[] = {at->data, &setup->train, &setup->test};
    for (size_t i = 0; i < sizeof either / sizeof *either; i++)
        if (either[i]->source && !either[i]->broken)
            return dlc_setup_sample_fields(setup, either[i], at->phase, fields) ==
                   DLC_OK;
    return 0;
}

static dlc_status check_phase(checked_phase *at) {
    dlc_net_fields fields;
    if (!find_fields(at, &fields)) {
        dlc_problems_warn(at->problems, at->setup->config, DLC_LINE_FILE,
                          "the layers' shapes were not checked, since no data section "
                          "could be read");
        return DLC_OK;
    }
    return check_net(at, &fields);
}

dlc_status dlc_setup_check_layers(dlc_setup *setup, unsigned phases,
                                  dlc_problems *problems) {
    if (!setup->graph || !setup->train_settings || setup->graph->layers == 0)
        return DLC_OK;
    char *reported = dlc_alloc((size_t)setup->graph->layers, 1);
    if (!reported)
        return DLC_ERR_NOMEM;
    checked_phase train = {setup,           problems, &setup->train, "data",
                           DLC_PHASE_TRAIN, 0,        reported};
    checked_phase test = {setup,          problems, &setup->test, "data.test",
                          DLC_PHASE_TEST, 0,        reported};
    dlc_status status = DLC_OK;
    if (phases & DLC_PHASE_TRAIN)
        status = check_phase(&train);
    if (status == DLC_OK && (phases & DLC_PHASE_TEST) && setup->test.present &&
        !train.refused && (setup->test.source || !(phases & DLC_PHASE_TRAIN)))
        status = check_phase(&test);
    dlc_free(reported);
    return status;
}

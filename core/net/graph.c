/* Makes the graph from the sections of net.ini, and reports mistakes in them. */
#include "net/graph.h"

#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "config/suggest.h"

const dlc_option dlc_graph_options[] = {
    DLC_OPTION("type", DLC_OPT_STRING, DLC_OPT_REQUIRED, NULL, 0, 0, NULL,
               "the type of layer; `dlcore plugin list` shows the types"),
    DLC_STRING("input", NULL,
               "what it reads, separated by commas: layers, or fields of the samples, "
               "of which data is the image and label the class; default: the layer "
               "above, and `label` for a loss or metric"),
    DLC_STRING("label", NULL,
               "what a loss or metric compares its input with: a field of the samples, "
               "or a layer; default: label"),
    DLC_CHOICE(
        "phase", NULL, "both|train|test",
        "the phases it takes part in; default: both, or test for a metric such as "
        "accuracy"),
    DLC_FLOAT("loss_weight", "1", 0, 1e6,
              "factor of a loss in the sum that training minimises"),
    DLC_CHOICE(
        "parallel", "data", "data|tensor|auto",
        "how ranks split the layer; data: each has samples of its own; tensor: "
        "each computes some channels of the output, for all samples, and holds only "
        "the weights of these; auto: whichever is expected to be faster"),
    DLC_BOOL("frozen", "no",
             "keep its parameters as they are, as for fine-tuning: no gradients, no "
             "updates, less memory; batch_norm keeps its running averages and uses "
             "them, as in tests"),
    DLC_OPTIONS_END};

/* The state while the graph is made. */
typedef struct graph_maker {
    const dlc_config *config;
    const dlc_registry *registry;
    const char *device;
    const char *const *reserved; /* names of sections that are not layers, and NULL */
    const dlc_field_names *fields;
    dlc_problems *problems;
    dlc_graph *graph;
    int unknown; /* a layer has an unknown type, which was reported */
} graph_maker;

/* A layer of an unknown type, without a feature, stays in the graph, so that layers
 * that read it are not reported as reading a missing one. */
static int is_metric(const dlc_graph_layer *layer) {
    return layer->feature &&
           (layer->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)) != 0;
}

/* Reports a mistake in a key of a layer's section. */
#define COMPLAIN(maker, layer, key, ...) \
    dlc_problems_add_in((maker)->problems, (maker)->config, \
                        dlc_config_find((maker)->config, (layer)->name), key, \
                        __VA_ARGS__)

int32_t dlc_graph_layer_named(const dlc_graph *graph, const char *name) {
    return (int32_t)dlc_names_find(&graph->names, name);
}

int32_t dlc_graph_layer_named_part(const dlc_graph *graph, const char *name,
                                   size_t length) {
    return (int32_t)dlc_names_find_part(&graph->names, name, length);
}

/* The nearest name of an input; NULL if there is none, or if memory ran out, which is
 * noted in maker->problems. */
static const char *nearest_input(const graph_maker *maker, const char *name) {
    size_t count = 0, groups = 0;
    while (dlc_config_group(maker->config, groups))
        groups++;
    const char **names = dlc_alloc(
        (size_t)maker->graph->layers + groups + DLC_NET_FIELDS + 2, sizeof *names);
    if (!names) {
        maker->problems->failed = 1;
        return NULL;
    }
    names[count++] = "data";
    names[count++] = "label";
    for (int32_t i = 0; i < maker->fields->count; i++)
        names[count++] = maker->fields->name[i];
    for (int32_t i = 0; i < maker->graph->layers; i++)
        names[count++] = maker->graph->layer[i].name;
    for (size_t i = 0; i < groups; i++)
        names[count++] = dlc_config_group(maker->config, i)->name;
    const char *nearest = dlc_nearest(name, names, count);
    dlc_free(names);
    return nearest;
}

/* The nearest layer above `index` that has an output in every phase of `phases`. */
static dlc_graph_input input_above(const graph_maker *maker, int32_t index,
                                   unsigned phases) {
    for (int32_t i = index - 1; i >= 0; i--) {
        const dlc_graph_layer *above = &maker->graph->layer[i];
        if (!is_metric(above) && (above->phases & phases) == phases)
            return (dlc_graph_input){i, 0};
    }
    return (dlc_graph_input){DLC_FROM_DATA, 0};
}

/* Resolves "res2a", the last layer of a group, and "res2a.in", the default input of its
 * first layer. */
static int resolve_group(const graph_maker *maker, unsigned phases, const char *name,
                         size_t length, dlc_graph_input *input) {
    const dlc_graph *graph = maker->graph;
    const dlc_group *group = dlc_config_find_group(maker->config, name, length);
    if (group) {
        input->layer = dlc_graph_layer_named(graph, group->last);
        return input->layer >= 0;
    }
    if (length < 3 || memcmp(name + length - 3, ".in", 3) != 0)
        return 0;
    group = dlc_config_find_group(maker->config, name, length - 3);
    if (!group || !group->open)
        return 0;
    int32_t first = dlc_graph_layer_named(graph, group->first);
    *input = input_above(maker, first < 0 ? graph->layers : first, phases);
    return 1;
}

/* Adds a field that layers read; 0: memory ran out, which is noted. */
static int add_field(const graph_maker *maker, const char *name) {
    dlc_graph *graph = maker->graph;
    char *copy = graph->fields < DLC_NET_FIELDS ? dlc_strdup(name) : NULL;
    if (!copy) {
        maker->problems->failed = 1;
        return 0;
    }
    graph->field[graph->fields++].name = copy;
    return 1;
}

/* May a name that is no layer's be that of a field? */
static int is_field(const graph_maker *maker, const char *name) {
    const dlc_field_names *fields = maker->fields;
    if (!fields->is_known)
        return maker->graph->fields < DLC_NET_FIELDS;
    for (int32_t i = 0; i < fields->count; i++)
        if (strcmp(fields->name[i], name) == 0)
            return 1;
    return 0;
}

/* Resolves the name of a field, which becomes one of the graph's. */
static int resolve_field(const graph_maker *maker, const char *name,
                         dlc_graph_input *input) {
    const dlc_graph *graph = maker->graph;
    int32_t field = 0;
    if (maker->fields->data && strcmp(maker->fields->data, name) == 0)
        name = "data";
    else if (maker->fields->label && strcmp(maker->fields->label, name) == 0)
        name = "label";
    while (field < graph->fields && strcmp(graph->field[field].name, name) != 0)
        field++;
    if (field == graph->fields && (!is_field(maker, name) || !add_field(maker, name)))
        return 0;
    *input = (dlc_graph_input){DLC_FROM_DATA, field};
    return 1;
}

/* Resolves "conv1", "slice:1", "data" or "mask". */
static int resolve_input(const graph_maker *maker, unsigned phases, const char *name,
                         dlc_graph_input *input) {
    const char *colon = strchr(name, ':');
    size_t length = colon ? (size_t)(colon - name) : strlen(name);
    int output = 0;
    if (colon) {
        if (colon[1] < '0' || colon[1] > '9' || colon[2])
            return 0;
        output = colon[1] - '0';
    }
    int32_t layer = dlc_graph_layer_named_part(maker->graph, name, length);
    *input = (dlc_graph_input){layer, output};
    return layer >= 0 || resolve_group(maker, phases, name, length, input) ||
           (!colon && resolve_field(maker, name, input));
}

static int add_input(graph_maker *maker, dlc_graph_layer *layer,
                     dlc_graph_input input) {
    size_t count = (size_t)layer->inputs;
    dlc_graph_input *grown = dlc_grow_by_one(layer->input, count, sizeof *grown);
    if (!grown) {
        maker->problems->failed = 1;
        return 0;
    }
    layer->input = grown;
    layer->input[layer->inputs++] = input;
    return 1;
}

static void add_named_input(graph_maker *maker, dlc_graph_layer *layer, const char *key,
                            const char *name) {
    dlc_graph_input input;
    if (layer->inputs == DLC_MAX_INPUTS) {
        COMPLAIN(maker, layer, key, "has more than %d inputs", DLC_MAX_INPUTS);
    } else if (resolve_input(maker, layer->phases, name, &input)) {
        add_input(maker, layer, input);
    } else if (strcmp(name, layer->name) == 0) {
        COMPLAIN(maker, layer, key, "cannot be its own input");
    } else {
        const char *nearest = dlc_problems_want_advice(maker->problems)
                                  ? nearest_input(maker, name)
                                  : NULL;
        dlc_text fields = {0};
        for (int32_t i = 0; !nearest && i < maker->fields->count; i++)
            dlc_text_add(&fields, i ? ", %s" : "; they have %s",
                         maker->fields->name[i]);
        COMPLAIN(maker, layer, key,
                 "%s = %s: there is no layer of that name above%s%s%s%s%s", key, name,
                 maker->fields->is_known ? ", and the samples have no such field" : "",
                 dlc_text_string(&fields), nearest ? "; did you mean '" : "",
                 nearest ? nearest : "", nearest ? "'?" : "");
        dlc_text_free(&fields);
    }
}

static void add_listed_inputs(graph_maker *maker, dlc_graph_layer *layer,
                              const char *list) {
    char name[128];
    for (const char *at = list;; at++) {
        at += strspn(at, " \t");
        size_t length = strcspn(at, ",");
        size_t used = length;
        while (used && (at[used - 1] == ' ' || at[used - 1] == '\t'))
            used--;
        if (used == 0 || used >= sizeof name) {
            COMPLAIN(maker, layer, "input", "input: an empty or overlong name in '%s'",
                     list);
        } else {
            memcpy(name, at, used);
            name[used] = '\0';
            add_named_input(maker, layer, "input", name);
        }
        at += length;
        if (!*at)
            return;
    }
}

/* Adds what a loss or metric compares with, unless it is among its inputs. */
static void add_label(graph_maker *maker, dlc_graph_layer *layer) {
    const char *label = dlc_settings_get_string(layer->settings, "label");
    if (label && !is_metric(layer))
        COMPLAIN(maker, layer, "label",
                 "label = %s: only losses and metrics compare with a label", label);
    else if (label && layer->inputs > 1)
        COMPLAIN(maker, layer, "label",
                 "label = %s: its second input is what it compares with; give one of "
                 "the two",
                 label);
    else if (label)
        add_named_input(maker, layer, "label", label);
    else if (is_metric(layer) && layer->inputs == 1)
        add_input(maker, layer, (dlc_graph_input){DLC_FROM_DATA, DLC_FIELD_LABEL});
}

/* Notes who reads a field. */
static void note_field(graph_maker *maker, const dlc_graph_layer *layer, int32_t i) {
    dlc_graph_field *field = &maker->graph->field[layer->input[i].output];
    field->phases |= layer->phases;
    field->is_label |= i > 0 && is_metric(layer);
    field->is_input |= i == 0 || !is_metric(layer);
}

static void find_inputs(graph_maker *maker, dlc_graph_layer *layer) {
    const char *list = dlc_settings_get_string(layer->settings, "input");
    if (list)
        add_listed_inputs(maker, layer, list);
    else
        add_input(maker, layer,
                  input_above(maker, maker->graph->layers, layer->phases));
    add_label(maker, layer);
    for (int32_t i = 0; i < layer->inputs; i++) {
        int32_t from = layer->input[i].layer;
        if (from == DLC_FROM_DATA) {
            note_field(maker, layer, i);
            continue;
        }
        const dlc_graph_layer *source = &maker->graph->layer[from];
        if ((source->phases & layer->phases) != layer->phases)
            COMPLAIN(maker, layer, "input", "reads '%s', which takes part in %s only",
                     source->name,
                     source->phases == DLC_PHASE_TRAIN ? "training" : "tests");
        if (is_metric(source))
            COMPLAIN(maker, layer, "input", "reads '%s', which only measures",
                     source->name);
    }
}

static unsigned phases_of(const dlc_graph_layer *layer) {
    const char *phase = dlc_settings_get_string(layer->settings, "phase");
    if (!phase)
        return layer->feature->caps & DLC_LAYER_TEST_ONLY
                   ? DLC_PHASE_TEST
                   : DLC_PHASE_TRAIN | DLC_PHASE_TEST;
    if (strcmp(phase, "train") == 0)
        return DLC_PHASE_TRAIN;
    if (strcmp(phase, "test") == 0)
        return DLC_PHASE_TEST;
    return DLC_PHASE_TRAIN | DLC_PHASE_TEST;
}

static dlc_parallel parallel_of(graph_maker *maker, const dlc_graph_layer *layer) {
    const dlc_settings *settings = layer->settings;
    int can = (layer->feature->caps & DLC_LAYER_CHANNEL_PARALLEL) != 0;
    if (!can && dlc_settings_is(settings, "parallel", "tensor"))
        COMPLAIN(maker, layer, "parallel",
                 "parallel = tensor: layers of type '%s' do not support it",
                 layer->feature->name);
    if (!can || dlc_settings_is(settings, "parallel", "data"))
        return DLC_PARALLEL_DATA;
    return dlc_settings_is(settings, "parallel", "auto") ? DLC_PARALLEL_AUTO
                                                         : DLC_PARALLEL_TENSOR;
}

/* The reserved section that a name such as "optimizer" or "sovler" is meant to be. A
 * name that is only spelled similarly counts if that section is missing. */
static const char *meant_section(const graph_maker *maker, const char *name) {
    size_t count = 0;
    while (maker->reserved[count])
        count++;
    const char *meant = dlc_nearest_synonym(name, maker->reserved, count);
    if (meant)
        return meant;
    meant = dlc_nearest(name, maker->reserved, count);
    return meant && !dlc_config_find(maker->config, meant) ? meant : NULL;
}

/* Reports an unknown type: as dlc_detail() says, or as a misspelled section name. */
static void report_type(graph_maker *maker, const dlc_section *section,
                        const char *type) {
    const char *meant = meant_section(maker, dlc_section_name(section));
    if (!meant) {
        dlc_problems_add_in(maker->problems, maker->config, section, "type", "%s",
                            dlc_detail());
        return;
    }
    dlc_text advice = {0};
    dlc_advise(&advice, " ", type);
    dlc_problems_add_in(maker->problems, maker->config, section, NULL,
                        "is not a section of settings, and there is no layer type "
                        "\"%s\"; did you mean [%s]?%s",
                        type, meant, dlc_text_string(&advice));
    dlc_text_free(&advice);
}

static void report_no_type(graph_maker *maker, const dlc_section *section) {
    const char *meant = meant_section(maker, dlc_section_name(section));
    if (meant)
        dlc_problems_add_in(
            maker->problems, maker->config, section, NULL,
            "is not a section of settings, nor a layer, since it has no "
            "`type`; did you mean [%s]?",
            meant);
    else
        dlc_problems_add_in(maker->problems, maker->config, section, NULL,
                            "has no `type`");
}

/* The layer type of a section; NULL after reporting the mistake. */
static const dlc_feature *find_layer_type(graph_maker *maker,
                                          const dlc_section *section) {
    const char *type = dlc_section_value(section, "type");
    const dlc_feature *feature = NULL;
    if (!type) {
        report_no_type(maker, section);
    } else if (!dlc_section_is_broken(section, "type")) {
        dlc_status status = dlc_registry_find(maker->registry, DLC_KIND_LAYER, type,
                                              maker->device, &feature);
        if (status == DLC_ERR_NOMEM)
            maker->problems->failed = 1;
        else if (status != DLC_OK)
            report_type(maker, section, type);
    }
    return feature;
}

/* Adds a layer, whose name the graph owns from now on. */
static dlc_status append_layer(dlc_graph *graph, const dlc_graph_layer *layer) {
    graph->layer[graph->layers++] = *layer;
    return dlc_names_add(&graph->names, layer->name, (size_t)graph->layers - 1);
}

static dlc_status add_layer(graph_maker *maker, const dlc_section *section) {
    const char *name = dlc_section_name(section);
    dlc_graph *graph = maker->graph;
    if (strcmp(name, "data") == 0 || strcmp(name, "label") == 0) {
        dlc_problems_add(maker->problems, maker->config, dlc_section_line(section),
                         "[%s] is reserved for the batch; give the layer another name",
                         name);
        return DLC_OK;
    }
    size_t found = maker->problems->found;
    const dlc_feature *feature = find_layer_type(maker, section);
    size_t count = (size_t)graph->layers;
    dlc_graph_layer *grown = dlc_grow_by_one(graph->layer, count, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    graph->layer = grown;
    dlc_graph_layer layer = {.feature = feature};
    layer.phases = DLC_PHASE_TRAIN | DLC_PHASE_TEST;
    layer.name = dlc_strdup(name);
    if (!feature && layer.name) {
        maker->unknown = layer.broken = 1;
        return append_layer(graph, &layer);
    }
    const dlc_option *tables[] = {dlc_graph_options, feature ? feature->options : NULL};
    dlc_status status = DLC_ERR_NOMEM;
    if (layer.name)
        status = dlc_settings_make(maker->config, name, tables, 2, maker->problems,
                                   &layer.settings);
    if (status != DLC_OK) {
        dlc_free(layer.name);
        return status;
    }
    layer.loss_weight = dlc_settings_get_float(layer.settings, "loss_weight");
    layer.phases = phases_of(&layer);
    layer.parallel = parallel_of(maker, &layer);
    layer.frozen = dlc_settings_get_bool(layer.settings, "frozen");
    find_inputs(maker, &layer);
    layer.broken = maker->problems->found != found;
    return append_layer(graph, &layer);
}

/* A layer whose output no other layer reads is a mistake. */
static dlc_status check_all_read(graph_maker *maker) {
    const dlc_graph *graph = maker->graph;
    int losses = 0;
    char *is_read = dlc_alloc((size_t)graph->layers, 1);
    if (!is_read)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < graph->layers; i++)
        for (int32_t k = 0; k < graph->layer[i].inputs; k++)
            if (graph->layer[i].input[k].layer != DLC_FROM_DATA)
                is_read[graph->layer[i].input[k].layer] = 1;
    for (int32_t i = 0; i < graph->layers; i++) {
        const dlc_graph_layer *layer = &graph->layer[i];
        losses += (layer->feature->caps & DLC_LAYER_LOSS) != 0 &&
                  (layer->phases & DLC_PHASE_TRAIN) != 0;
        if (!is_read[i] && !is_metric(layer))
            COMPLAIN(maker, layer, "type", "no layer reads its output");
    }
    if (!losses)
        dlc_problems_add(maker->problems, maker->config, DLC_LINE_FILE,
                         "no layer is a loss, so there is nothing to train");
    dlc_free(is_read);
    return DLC_OK;
}

dlc_status dlc_graph_make(const dlc_config *config, const char *const *reserved,
                          const dlc_field_names *fields, const dlc_registry *registry,
                          const char *device, dlc_problems *problems,
                          dlc_graph **graph) {
    dlc_graph *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    graph_maker maker = {.config = config,
                         .registry = registry,
                         .device = device,
                         .reserved = reserved,
                         .fields = fields,
                         .problems = problems,
                         .graph = made};
    size_t before = problems->errors;
    const dlc_section *section = NULL;
    dlc_status status = add_field(&maker, "data") && add_field(&maker, "label")
                            ? DLC_OK
                            : DLC_ERR_NOMEM;
    while (status == DLC_OK && (section = dlc_config_next(config, section)))
        if (!dlc_is_listed(reserved, dlc_section_name(section)))
            status = add_layer(&maker, section);
    if (status == DLC_OK && problems->errors == before && !maker.unknown)
        status = check_all_read(&maker);
    if (status != DLC_OK) {
        dlc_graph_free(made);
        made = NULL;
    }
    *graph = made;
    return status;
}

void dlc_graph_free(dlc_graph *graph) {
    if (!graph)
        return;
    for (int32_t i = 0; i < graph->layers; i++) {
        dlc_settings_free(graph->layer[i].settings);
        dlc_free(graph->layer[i].input);
        dlc_free(graph->layer[i].name);
    }
    for (int32_t i = 0; i < graph->fields; i++)
        dlc_free(graph->field[i].name);
    dlc_names_free(&graph->names);
    dlc_free(graph->layer);
    dlc_free(graph);
}

void dlc_graph_before_fork(const dlc_graph *graph) {
    for (int32_t i = 0; i < graph->layers; i++) {
        const dlc_layer_ops *ops = graph->layer[i].feature->ops;
        if (DLC_CAN(ops, before_fork))
            ops->before_fork();
    }
}

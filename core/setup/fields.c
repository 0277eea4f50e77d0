/* Binds the fields that layers read to those of the samples. */
#include "setup/fields.h"

#include <string.h>

#include "setup/data_source.h"

/* ---- Names ------------------------------------------------------------------- */

static void add_field_name(dlc_field_names *names, const char *name) {
    for (int32_t i = 0; i < names->count; i++)
        if (strcmp(names->name[i], name) == 0)
            return;
    if (names->count < DLC_FIELDS_MAX)
        names->name[names->count++] = name;
}

static void add_field_names(dlc_field_names *names, const dlc_data_setup *data) {
    const dlc_samples *samples = &data->samples;
    if (!data->source || data->broken)
        return;
    names->is_known = 1;
    for (int32_t f = 0; f < samples->info.field_count; f++)
        add_field_name(names, dlc_samples_field(samples, f)->name);
    if (names->data)
        return;
    names->data = dlc_samples_field(samples, samples->image)->name;
    if (samples->target >= 0)
        names->label = dlc_samples_field(samples, samples->target)->name;
}

void dlc_setup_field_names(const dlc_setup *setup, dlc_field_names *names) {
    *names = (dlc_field_names){.count = 0};
    add_field_names(names, &setup->train);
    add_field_names(names, &setup->test);
}

/* ---- Binding ----------------------------------------------------------------- */

static int32_t source_of_field(const dlc_graph *graph, int32_t i,
                               const dlc_samples *samples) {
    return i == DLC_FIELD_DATA    ? samples->image
           : i == DLC_FIELD_LABEL ? samples->target
                                  : dlc_samples_find(samples, graph->field[i].name);
}

void dlc_setup_bind_fields(const dlc_setup *setup, dlc_phase phase,
                           dlc_data_setup *data) {
    const dlc_graph *graph = setup->graph;
    const dlc_samples *samples = &data->samples;
    dlc_batch_fields fields = {.count = graph->fields};
    for (int32_t i = 0; i < graph->fields; i++) {
        int32_t source = source_of_field(graph, i, samples);
        int is_read = (graph->field[i].phases & (unsigned)phase) != 0;
        fields.source[i] = source;
        if (graph->field[i].is_label || i == DLC_FIELD_LABEL)
            fields.labels |= 1u << i;
        if (graph->field[i].is_input)
            fields.inputs |= 1u << i;
        /* The class of a sample is for reports, too. */
        if (!is_read && i != DLC_FIELD_DATA &&
            (i != DLC_FIELD_LABEL || source != samples->label))
            fields.unread |= 1u << i;
    }
    data->fields = fields;
}

/* ---- What the net reads ------------------------------------------------------ */

static dlc_status open_loader(const dlc_data_setup *data, dlc_phase phase,
                              dlc_loader *loader, dlc_mix_settings *mix) {
    dlc_feed_args feed;
    dlc_data_source_feed(data, &feed);
    feed.test = phase == DLC_PHASE_TEST;
    *mix = feed.test ? (dlc_mix_settings){0, 0} : feed.mix;
    dlc_loader_args args = dlc_feed_loader_args(&feed);
    return dlc_loader_open(&args, loader);
}

dlc_status dlc_setup_sample_fields(const dlc_setup *setup, const dlc_data_setup *data,
                                   dlc_phase phase, dlc_net_fields *fields) {
    const dlc_graph *graph = setup->graph;
    dlc_loader loader = {0};
    dlc_mix_settings mix;
    DLC_TRY(open_loader(data, phase, &loader, &mix));
    *fields = (dlc_net_fields){.count = loader.fields};
    for (int32_t i = 0; i < loader.fields; i++)
        fields->field[i] = (dlc_net_field){.name = graph->field[i].name,
                                           .is_label = loader.field[i].is_label,
                                           .dtype = loader.field[i].dtype,
                                           .shape = loader.field[i].shape};
    dlc_loader_close(&loader);
    return DLC_OK;
}

/* ---- Checks ------------------------------------------------------------------ */

/* The first layer that reads the field in this phase. */
static const char *reader_of(const dlc_graph *graph, int32_t field, dlc_phase phase) {
    for (int32_t i = 0; i < graph->layers; i++)
        for (int32_t j = 0; j < graph->layer[i].inputs; j++)
            if (graph->layer[i].input[j].layer == DLC_FROM_DATA &&
                graph->layer[i].input[j].output == field &&
                graph->layer[i].phases & (unsigned)phase)
                return graph->layer[i].name;
    return "";
}

static void report_missing_field(dlc_setup *setup, dlc_problems *problems,
                                 dlc_data_setup *data, dlc_phase phase, int32_t field) {
    const dlc_graph *graph = setup->graph;
    (void)dlc_fail(DLC_ERR_CONFIG,
                   "the samples have no field %s, which layer '%s' reads",
                   graph->field[field].name, reader_of(graph, field, phase));
    dlc_problems_add_failure(
        problems, setup->config, dlc_settings_line(data->settings, "source"),
        phase == DLC_PHASE_TEST ? "data.test" : "data", DLC_ERR_CONFIG);
    data->broken = 1;
}

/* Whether samples can be loaded, and mixed, with these fields. */
static dlc_status try_loader(const dlc_data_setup *data, dlc_phase phase,
                             const char **key) {
    dlc_loader loader = {0};
    dlc_mix_settings mix;
    *key = "source";
    DLC_TRY(open_loader(data, phase, &loader, &mix));
    dlc_status status = DLC_OK;
    *key = mix.mixup > 0 ? "mixup" : "cutmix";
    if (dlc_mix_is_on(&mix))
        status = dlc_mix_check(&mix, &loader);
    dlc_loader_close(&loader);
    return status;
}

static dlc_status check_field(dlc_setup *setup, dlc_problems *problems,
                              dlc_data_setup *data, dlc_phase phase) {
    const dlc_graph *graph = setup->graph;
    const char *key;
    if (!data->source || data->broken)
        return DLC_OK;
    dlc_setup_bind_fields(setup, phase, data);
    /* Samples without a label can be predicted, though not learned from. */
    int32_t first = phase == DLC_PHASE_TEST ? DLC_FIELD_LABEL + 1 : DLC_FIELD_LABEL;
    for (int32_t i = first; i < graph->fields; i++)
        if (data->fields.source[i] < 0 && graph->field[i].phases & (unsigned)phase)
            report_missing_field(setup, problems, data, phase, i);
    dlc_status status = data->broken ? DLC_OK : try_loader(data, phase, &key);
    if (status == DLC_OK || status == DLC_ERR_NOMEM)
        return status;
    data->broken = 1;
    dlc_problems_add_failure(problems, setup->config,
                             dlc_settings_line(data->settings, key),
                             phase == DLC_PHASE_TEST ? "data.test" : "data", status);
    return DLC_OK;
}

dlc_status dlc_setup_check_fields(dlc_setup *setup, dlc_problems *problems) {
    DLC_TRY(check_field(setup, problems, &setup->train, DLC_PHASE_TRAIN));
    return check_field(setup, problems, &setup->test, DLC_PHASE_TEST);
}

/* Parses [parallel] stages, and cuts a net into stages of about equal time. */
#include "setup/stage_cut.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/suggest.h"
#include "plan/layers.h"
#include "plan/stages.h"

void dlc_stage_cut_free(dlc_stage_cut *cut) {
    dlc_free(cut->first);
    *cut = (dlc_stage_cut){0};
}

int dlc_stage_cut_is_wanted(const dlc_setup *setup) {
    return !dlc_settings_is(setup->parallel_settings, "stages", "1");
}

/* ---- [parallel] stages ----------------------------------------------------------- */

static int32_t find_layer(const dlc_graph *graph, const char *name, size_t length) {
    for (int32_t i = 0; i < graph->layers; i++)
        if (strlen(graph->layer[i].name) == length &&
            memcmp(graph->layer[i].name, name, length) == 0)
            return i;
    return -1;
}

/* A layer of that name, or the first layer of a block of that name. */
static int32_t find_first(const dlc_setup *setup, const char *name, size_t length) {
    int32_t layer = find_layer(setup->graph, name, length);
    const dlc_group *group = dlc_config_find_group(setup->config, name, length);
    return layer < 0 && group
               ? find_layer(setup->graph, group->first, strlen(group->first))
               : layer;
}

static dlc_status unknown(const dlc_setup *setup, const char *name, size_t length) {
    const dlc_graph *graph = setup->graph;
    const char **names = dlc_alloc((size_t)graph->layers, sizeof *names);
    char *word = dlc_format("%.*s", (int)length, name);
    const char *nearest = NULL;
    for (int32_t i = 0; names && i < graph->layers; i++)
        names[i] = graph->layer[i].name;
    if (names && word)
        nearest = dlc_nearest(word, names, (size_t)graph->layers);
    dlc_status status = dlc_fail(DLC_ERR_CONFIG, "stages: there is no layer '%s'%s%s%s",
                                 word ? word : "", nearest ? "; did you mean '" : "",
                                 nearest ? nearest : "", nearest ? "'?" : "");
    dlc_free(word);
    dlc_free(names);
    return status;
}

static dlc_status add_name(const dlc_setup *setup, const char *name, size_t length,
                           dlc_stage_cut *cut) {
    int32_t layer = find_first(setup, name, length);
    if (layer < 0)
        return unknown(setup, name, length);
    if (layer <= cut->first[cut->stages - 1])
        return dlc_fail(DLC_ERR_CONFIG,
                        "stages: '%.*s' comes before the layers of the stage that it "
                        "should end; name the first layer of each stage but the "
                        "first, in the order of the net",
                        (int)length, name);
    cut->first[cut->stages++] = layer;
    return DLC_OK;
}

static dlc_status parse_names(const dlc_setup *setup, const char *text,
                              dlc_stage_cut *cut) {
    static const char *const between = ", \t";
    cut->first = dlc_alloc(strlen(text) + 3, sizeof *cut->first);
    if (!cut->first)
        return DLC_ERR_NOMEM;
    cut->stages = 1;
    for (text += strspn(text, between); *text; text += strspn(text, between)) {
        size_t length = strcspn(text, between);
        DLC_TRY(add_name(setup, text, length, cut));
        text += length;
    }
    cut->first[cut->stages] = setup->graph->layers;
    return DLC_OK;
}

dlc_status dlc_stage_cut_parse(const dlc_setup *setup, dlc_stage_cut *cut) {
    const char *text = dlc_settings_get_string(setup->parallel_settings, "stages");
    dlc_stage_cut made = {0};
    char *end = NULL;
    long number = strtol(text, &end, 10);
    if (end != text && !*end) {
        if (number < 1 || number > 1024)
            return dlc_fail(DLC_ERR_CONFIG, "stages = %s: must be from 1 to 1024",
                            text);
        made.stages = (int32_t)number;
    } else if (strcmp(text, "auto") != 0) {
        dlc_status status = parse_names(setup, text, &made);
        if (status != DLC_OK) {
            dlc_stage_cut_free(&made);
            return status;
        }
    }
    *cut = made;
    return DLC_OK;
}

/* ---- Cutting by work ------------------------------------------------------------- */

/* As in exchange_schedule.c: multiply-adds in the time in which a device moves a byte.
 */
enum { OPERATIONS_A_BYTE = 10 };

static double work_of(const dlc_net_row *row) {
    double sum = 0;
    for (int part = 0; part < DLC_NET_PARTS; part++)
        sum += fmax(2.0 * (double)row->work[part].multiply_adds / OPERATIONS_A_BYTE,
                    (double)row->work[part].bytes);
    return sum;
}

dlc_status dlc_stage_cut_weigh(const dlc_graph *graph, const dlc_net *outline,
                               double **work, char **may_begin) {
    double *weight = dlc_alloc((size_t)graph->layers, sizeof *weight);
    char *may = dlc_alloc((size_t)graph->layers, 1);
    dlc_status status = weight && may ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t i = 0; status == DLC_OK && i < dlc_net_rows(outline); i++) {
        dlc_net_row row;
        status = dlc_net_row_at(outline, i, &row);
        int32_t layer = status == DLC_OK ? find_layer(graph, row.name, strlen(row.name))
                                         : -1;
        if (layer < 0)
            continue;
        weight[layer] = work_of(&row);
        may[layer] = row.parameters > 0 && row.multiply_adds > 0;
    }
    if (status != DLC_OK) {
        dlc_free(weight);
        dlc_free(may);
        return status;
    }
    *work = weight;
    *may_begin = may;
    return DLC_OK;
}

/* The first layer that may begin a stage; what comes before it is part of the first
 * stage. */
static int32_t first_place(const char *may_begin, int32_t layers) {
    int32_t i = 0;
    while (i < layers && !may_begin[i])
        i++;
    return i;
}

/* Layers that must stay together: from one possible cut to the next. */
typedef struct units {
    dlc_plan_layer *layer; /* own */
    int32_t *first;        /* own; in the graph */
    int32_t count;
} units;

static dlc_status gather_units(const double *work, const char *may_begin,
                               const double *boundary_cost, int32_t layers,
                               units *made) {
    int32_t none = first_place(may_begin, layers);
    made->layer = dlc_alloc((size_t)layers, sizeof *made->layer);
    made->first = dlc_alloc((size_t)layers, sizeof *made->first);
    if (!made->layer || !made->first)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < layers; i++) {
        if (i == 0 || (may_begin[i] && i != none)) {
            if (i > 0 && boundary_cost)
                made->layer[made->count - 1].cut_bytes = boundary_cost[i];
            made->first[made->count++] = i;
        }
        made->layer[made->count - 1].forward.fixed += work[i];
    }
    return DLC_OK;
}

static dlc_status cut_units(const units *made, int32_t stages, int32_t *first) {
    /* Boundary tensors are priced in units of work already. */
    const dlc_plan_link link = {.bandwidth = 1};
    dlc_plan_stage *stage = dlc_alloc((size_t)stages, sizeof *stage);
    if (!stage)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_plan_stages_cut(made->layer, (size_t)made->count, &link, 1,
                                            stages, stage);
    for (int32_t s = 0; status == DLC_OK && s < stages; s++)
        first[s] = made->first[stage[s].first];
    dlc_free(stage);
    return status;
}

dlc_status dlc_stage_cut_balance(const double *work, const char *may_begin,
                                 const double *boundary_cost, int32_t layers,
                                 int32_t stages, int32_t *first) {
    units made = {0};
    dlc_status status = gather_units(work, may_begin, boundary_cost, layers, &made);
    if (status == DLC_OK && stages > made.count)
        status = dlc_fail(DLC_ERR_CONFIG,
                          "the net has layers with weights for %d stages, not for %d",
                          (int)made.count, (int)stages);
    if (status == DLC_OK)
        status = cut_units(&made, stages, first);
    if (status == DLC_OK)
        first[stages] = layers;
    dlc_free(made.first);
    dlc_free(made.layer);
    return status;
}

/* ---- Boundary tensors ------------------------------------------------------------ */

dlc_status dlc_stage_cut_price(const dlc_graph *graph, const dlc_net *outline,
                               int64_t batch, const dlc_shape *sample,
                               const dlc_plan_link *link, double work_a_second,
                               double *boundary_cost) {
    dlc_plan_layer *layer = dlc_alloc((size_t)graph->layers, sizeof *layer);
    if (!layer)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_plan_layers_read(graph, outline, batch, sample, NULL,
                                             layer);
    for (int32_t i = 1; status == DLC_OK && i < graph->layers; i++)
        boundary_cost[i] = (link->latency +
                            layer[i - 1].cut_bytes * (double)batch / link->bandwidth) *
                           work_a_second;
    dlc_free(layer);
    return status;
}

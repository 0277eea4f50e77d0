/* See stage_cut.h. */
#include "train/pipeline/stage_cut.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

void dlc_stage_cut_free(dlc_stage_cut *cut) {
    dlc_free(cut->first);
    *cut = (dlc_stage_cut){0};
}

int dlc_stage_cut_is_wanted(const dlc_setup *setup) {
    const char *text = dlc_settings_get_string(setup->run, "stages");
    return strcmp(text, "1") != 0;
}

/* ---- What [run] says ---------------------------------------------------------------
 */

static int32_t find_layer(const dlc_graph *graph, const char *name, size_t length) {
    for (int32_t i = 0; i < graph->layers; i++)
        if (strlen(graph->layer[i].name) == length &&
            memcmp(graph->layer[i].name, name, length) == 0)
            return i;
    return -1;
}

/* A layer of that name; or a block's, whose first one it is. */
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
                        "stages: '%.*s' stands before the layers of the stage that it "
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
    const char *text = dlc_settings_get_string(setup->run, "stages");
    dlc_stage_cut made = {0};
    char *end = NULL;
    long number = strtol(text, &end, 10);
    if (end != text && !*end) {
        if (number < 1 || number > 1024)
            return dlc_fail(DLC_ERR_CONFIG, "stages = %s: from 1 to 1024 can be made",
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

/* ---- By work -----------------------------------------------------------------------
 */

/* As in schedule.c: operations in the time in which a device moves a byte. */
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

/* Cuts greedily: a stage gets as much as it may have, `most`. Returns how many stages
 * that takes, or more than `stages`. */
static int32_t fill_up(const double *work, const char *may_begin, int32_t layers,
                       double most, int32_t stages, int32_t *first) {
    int32_t count = 1;
    double sum = 0, since = 0; /* since: the work from the last place to cut on */
    int32_t place = 0;
    first[0] = 0;
    for (int32_t i = 0; i < layers; i++) {
        if (may_begin[i] && i > 0) {
            place = i;
            since = 0;
        }
        sum += work[i];
        since += work[i];
        if (sum <= most)
            continue;
        if (place == first[count - 1] || count == stages)
            return stages + 1;
        first[count++] = place;
        sum = since;
        if (sum > most)
            return stages + 1;
    }
    return count;
}

/* Where there are fewer stages than wanted, the largest that can be is cut again. */
static int split_largest(const double *work, const char *may_begin, int32_t layers,
                         int32_t *stages, int32_t *first) {
    int32_t best = -1, at = 0;
    double least = INFINITY;
    for (int32_t s = 0; s < *stages; s++) {
        int32_t end = s + 1 < *stages ? first[s + 1] : layers;
        double whole = 0, before = 0;
        for (int32_t i = first[s]; i < end; i++)
            whole += work[i];
        for (int32_t i = first[s]; i < end; i++) {
            double larger = fmax(before, whole - before);
            if (i > first[s] && may_begin[i] && larger - whole < least) {
                least = larger - whole;
                best = s;
                at = i;
            }
            before += work[i];
        }
    }
    if (best < 0)
        return 0;
    memmove(&first[best + 2], &first[best + 1],
            (size_t)(*stages - best - 1) * sizeof *first);
    first[best + 1] = at;
    (*stages)++;
    return 1;
}

/* Nothing to train stands before the first place to cut: it is the first stage's. */
static void forbid_first(char *may_begin, int32_t layers) {
    for (int32_t i = 0; i < layers; i++)
        if (may_begin[i]) {
            may_begin[i] = 0;
            return;
        }
}

dlc_status dlc_stage_cut_balance(const double *work, const char *may_begin,
                                 int32_t layers, int32_t stages, int32_t *first) {
    char *may = dlc_alloc((size_t)layers, 1);
    double low = 0, high = 0;
    int32_t places = 0;
    if (!may)
        return DLC_ERR_NOMEM;
    memcpy(may, may_begin, (size_t)layers);
    forbid_first(may, layers);
    for (int32_t i = 0; i < layers; i++) {
        high += work[i];
        places += may[i] != 0;
    }
    if (stages > places + 1) {
        dlc_free(may);
        return dlc_fail(DLC_ERR_CONFIG,
                        "the net has layers with weights for %d stages, not for %d",
                        (int)places + 1, (int)stages);
    }
    for (int step = 0; step < 64; step++) { /* the least that is enough */
        double middle = (low + high) / 2;
        if (fill_up(work, may, layers, middle, stages, first) <= stages)
            high = middle;
        else
            low = middle;
    }
    int32_t made = fill_up(work, may, layers, high, stages, first);
    while (made < stages && split_largest(work, may, layers, &made, first))
        ;
    first[stages] = layers;
    dlc_free(may);
    return DLC_OK;
}

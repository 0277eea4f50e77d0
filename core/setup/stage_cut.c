/* Parses [parallel] pipeline. */
#include "setup/stage_cut.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "net/graph.h"

void dlc_stage_cut_free(dlc_stage_cut *cut) {
    dlc_free(cut->first);
    *cut = (dlc_stage_cut){0};
}

/* A layer of that name, or the first layer of a block of that name. */
static int32_t find_first(const dlc_setup *setup, const char *name, size_t length) {
    int32_t layer = dlc_graph_layer_named_part(setup->graph, name, length);
    const dlc_group *group = dlc_config_find_group(setup->config, name, length);
    return layer < 0 && group ? dlc_graph_layer_named(setup->graph, group->first)
                              : layer;
}

static dlc_status unknown(const dlc_setup *setup, const char *name, size_t length) {
    char *word = dlc_strndup(name, length);
    dlc_text advice = {0};
    if (word)
        dlc_graph_suggest(setup->graph, 0, word, &advice);
    dlc_status status = dlc_fail(DLC_ERR_CONFIG, "pipeline: there is no layer '%.*s'%s",
                                 (int)length, name, dlc_text_string(&advice));
    dlc_text_free(&advice);
    dlc_free(word);
    return status;
}

static dlc_status add_stage_name(const dlc_setup *setup, const char *name,
                                 size_t length, dlc_stage_cut *cut) {
    int32_t layer = find_first(setup, name, length);
    if (layer < 0)
        return unknown(setup, name, length);
    if (layer <= cut->first[cut->stages - 1])
        return dlc_fail(DLC_ERR_CONFIG,
                        "pipeline: '%.*s' comes before the layers of the stage that it "
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
        DLC_TRY(add_stage_name(setup, text, length, cut));
        text += length;
    }
    cut->first[cut->stages] = setup->graph->layers;
    return DLC_OK;
}

dlc_status dlc_stage_cut_parse(const dlc_setup *setup, dlc_stage_cut *cut) {
    const char *text = dlc_settings_get_string(setup->parallel_settings, "pipeline");
    dlc_stage_cut made = {0};
    char *end = NULL;
    long number = strtol(text, &end, 10);
    if (end != text && !*end) {
        if (number < 1 || number > 1024)
            return dlc_fail(DLC_ERR_CONFIG, "pipeline = %s: must be from 1 to 1024",
                            text);
        made.stages = (int32_t)number;
    } else if (!dlc_is_auto(text)) {
        dlc_status status = parse_names(setup, text, &made);
        if (status != DLC_OK) {
            dlc_stage_cut_free(&made);
            return status;
        }
    }
    *cut = made;
    return DLC_OK;
}

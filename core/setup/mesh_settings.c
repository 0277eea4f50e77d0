/* Parses the settings of the mesh. */
#include "setup/mesh_settings.h"
#include "base/text.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { MOST = 1024 };

/* ---- Numbers --------------------------------------------------------------------- */

/* Parses a number from 1 on at *text, up to a comma or the end, and moves behind it. */
static dlc_status parse_number(const char *key, const char **text, int32_t *number) {
    char *end = NULL;
    long value = strtol(*text, &end, 10);
    end += strspn(end, " \t");
    if (end == *text || (*end && *end != ',') || value < 1 || value > MOST)
        return dlc_fail(DLC_ERR_CONFIG, "%s: '%s' is not a number from 1 to %d", key,
                        *text, MOST);
    *number = (int32_t)value;
    *text = end;
    return DLC_OK;
}

static dlc_status parse_size(const dlc_settings *parallel, const char *key,
                             int32_t *size) {
    const char *text = dlc_settings_get_string(parallel, key);
    if (dlc_is_auto(text))
        return DLC_OK;
    DLC_TRY(parse_number(key, &text, size));
    return *text ? dlc_fail(DLC_ERR_CONFIG, "%s: must be one number or auto", key)
                 : DLC_OK;
}

/* ---- Stages ---------------------------------------------------------------------- */

static dlc_status parse_stage_ranks(const dlc_settings *parallel, dlc_mesh_sizes *sizes,
                                    int32_t **stage_ranks) {
    const char *text = dlc_settings_get_string(parallel, "pipeline_ranks");
    int32_t stages = 0;
    if (strcmp(text, "equal") == 0)
        return DLC_OK;
    int32_t *ranks = *stage_ranks = dlc_alloc(strlen(text) + 1, sizeof *ranks);
    if (!ranks)
        return DLC_ERR_NOMEM;
    for (;; text++) {
        DLC_TRY(parse_number("pipeline_ranks", &text, &ranks[stages++]));
        if (!*text)
            break;
    }
    if (sizes->pipeline > 1 && sizes->pipeline != stages)
        return dlc_fail(DLC_ERR_CONFIG,
                        "pipeline_ranks: has %d numbers for %d stages; give one number "
                        "for each stage",
                        (int)stages, (int)sizes->pipeline);
    sizes->pipeline = stages;
    sizes->stage_ranks = ranks;
    return DLC_OK;
}

dlc_status dlc_mesh_settings_parse(const dlc_settings *parallel, int32_t stages,
                                   dlc_mesh_sizes *sizes, int32_t **stage_ranks) {
    sizes->pipeline = stages;
    DLC_TRY(parse_size(parallel, "data", &sizes->data));
    DLC_TRY(parse_size(parallel, "tensor", &sizes->tensor));
    return parse_stage_ranks(parallel, sizes, stage_ranks);
}

const char *dlc_mesh_settings_key(const dlc_settings *parallel) {
    static const char *const keys[] = {"pipeline_ranks", "tensor", "data"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (dlc_settings_is_set(parallel, keys[i]))
            return keys[i];
    return "pipeline";
}

/* Finds an accelerator, and parses lists of device indices. */
#include "setup/device_indices.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "plugin/answers.h"

int32_t dlc_device_count(const dlc_feature *device) {
    int32_t count = 0;
    return dlc_answer_devices(device, &count) == DLC_OK ? count : 0;
}

/* The number of layers that are made for this device in particular. */
static size_t count_layers_for(const dlc_registry *registry,
                               const dlc_feature_entry *device) {
    const dlc_feature_entry *layer;
    size_t count = 0;
    for (size_t i = 0; (layer = dlc_registry_usable(registry, DLC_KIND_LAYER, i)); i++)
        count += layer->device && strcmp(layer->device, device->name) == 0;
    return count;
}

dlc_status dlc_find_accelerator(const dlc_registry *registry,
                                const dlc_feature **device) {
    const dlc_feature_entry *entry;
    const dlc_feature *found = NULL;
    size_t most = 0;
    *device = NULL;
    for (size_t i = 0; (entry = dlc_registry_feature(registry, DLC_KIND_DEVICE, i));
         i++) {
        if (entry->state != DLC_ENTRY_USABLE || (entry->caps & DLC_DEVICE_HOST))
            continue;
        size_t layers = count_layers_for(registry, entry);
        if (layers <= most)
            continue;
        dlc_status status = dlc_registry_use(registry, entry, &found);
        if (status == DLC_ERR_NOMEM)
            return status;
        int32_t count = 0;
        if (status == DLC_OK && dlc_answer_devices(found, &count) == DLC_ERR_PLUGIN)
            dlc_warn("%s; it is not used", dlc_detail());
        if (status != DLC_OK || count == 0)
            continue;
        *device = found;
        most = layers;
    }
    return DLC_OK;
}

static dlc_status check_index(const char *text, const dlc_feature *device, long index,
                              const int32_t *list, int32_t count) {
    int32_t present = dlc_device_count(device);
    if (index < 0 || index >= present)
        return dlc_fail(DLC_ERR_CONFIG,
                        "gpu = %s: there is no '%s' device %ld here, only 0 to %d",
                        text, device->name, index, present - 1);
    for (int32_t i = 0; i < count; i++)
        if (list[i] == index)
            return dlc_fail(DLC_ERR_CONFIG, "gpu = %s: device %ld is listed twice",
                            text, index);
    return DLC_OK;
}

static dlc_status parse_indices(const char *text, const dlc_feature *device,
                                int32_t *list, int32_t *count) {
    const char *at = text;
    char *end = NULL;

    for (*count = 0;; at = end + 1) {
        errno = 0;
        long index = strtol(at, &end, 10);
        int is_number = end != at && *at >= '0' && *at <= '9' && !errno;
        if (!is_number || (*end && *end != ','))
            return dlc_fail(
                DLC_ERR_CONFIG,
                "gpu = %s: expected numbers separated by commas, as in 0,1, "
                "or all",
                text);
        DLC_TRY(check_index(text, device, index, list, *count));
        list[(*count)++] = (int32_t)index;
        if (!*end)
            return DLC_OK;
    }
}

dlc_status dlc_device_indices_parse(const char *text, const dlc_feature *device,
                                    int32_t **list, int32_t *count) {
    int32_t there = dlc_device_count(device);
    int32_t *made = dlc_alloc((size_t)there + 1, sizeof *made);
    dlc_status status = DLC_OK;

    if (!made)
        return DLC_ERR_NOMEM;
    int32_t named = there;
    if (strcmp(text, "all") != 0)
        status = parse_indices(text, device, made, &named);
    else
        for (int32_t i = 0; i < there; i++)
            made[i] = i;
    if (status == DLC_OK && named == 0)
        status = dlc_fail(DLC_ERR_CONFIG, "gpu = all: there is no '%s' device here",
                          device->name);
    if (status != DLC_OK) {
        dlc_free(made);
        return status;
    }
    *list = made;
    *count = named;
    return DLC_OK;
}

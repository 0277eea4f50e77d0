/* The device "accelerator": two simulated ones with memory of their own (memory.c),
 * which do the work of each queue on a thread (queue.c, kernels.c). layers.c has
 * layers. */
#include "accelerator.h"

#include <stdio.h>

const dlc_host *host;

static dlc_status check_index(int32_t index) {
    if (index >= 0 && index < DEVICES)
        return DLC_OK;
    return host->fail(DLC_ERR_CONFIG, "there is no accelerator %d, only 0 to %d", index,
                      DEVICES - 1);
}

static void write_address(int32_t index, char *text, size_t bytes) {
    (void)snprintf(text, bytes, "0000:a%d:00.0", (int)index);
}

dlc_status device_count(int32_t *count) {
    *count = DEVICES;
    return DLC_OK;
}

/* Another version of the core may have more or fewer fields, so it asks DLC_HAS. */
dlc_status device_describe(int32_t index, dlc_device_info *info) {
    dlc_status status = check_index(index);
    if (status != DLC_OK)
        return status;
    if (DLC_HAS(info, name))
        (void)snprintf(info->name, sizeof info->name, "Simulated Accelerator");
    if (DLC_HAS(info, memory_bytes))
        info->memory_bytes = (uint64_t)1 << 30;
    if (DLC_HAS(info, compute_units))
        info->compute_units = 1;
    if (DLC_HAS(info, address))
        write_address(index, info->address, sizeof info->address);
    if (DLC_HAS(info, numa))
        info->numa = -1;
    return DLC_OK;
}

/* One link to the other device. */
dlc_status device_links(int32_t index, dlc_link *links, int32_t capacity,
                        int32_t *count) {
    dlc_status status = check_index(index);
    if (status != DLC_OK)
        return status;
    *count = 1;
    if (capacity < 1)
        return DLC_OK;
    links->kind = DLC_LINK_OTHER;
    links->end = DLC_LINK_TO_DEVICE;
    links->width = 1;
    links->gbs = 2;
    write_address(1 - index, links->peer, sizeof links->peer);
    return DLC_OK;
}

dlc_status device_open(const dlc_device_args *args, dlc_device **device) {
    dlc_status status = check_index(args->index);
    if (status != DLC_OK)
        return status;
    dlc_device *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->index = args->index;
    made->capacity = (size_t)host->get_int(args->settings, "device_memory");
    *device = made;
    return DLC_OK;
}

void device_close(dlc_device *device) {
    host->free(device);
}

dlc_status device_can_access_peer(dlc_device *device, int32_t from, int32_t to,
                                  int *can_access) {
    (void)device;
    dlc_status status = check_index(from);
    if (status == DLC_OK)
        status = check_index(to);
    if (status == DLC_OK)
        *can_access = 1;
    return status;
}

/* ---- The plugin ------------------------------------------------------------- */

static dlc_status load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_BYTES("device_memory", "1G", 1 << 20, 1e12, "memory of each accelerator"),
    DLC_OPTIONS_END,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DEVICE,
     .name = "accelerator",
     .help = "two simulated accelerators with memory of their own",
     .options = options,
     .ops = &device_ops},
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_LAYER,
     .name = "inner_product",
     .help = "each output is a weighted sum of all inputs of its sample",
     .device = "accelerator",
     .options = inner_product_options,
     .ops = &inner_product_ops},
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_LAYER,
     .name = "softmax_loss",
     .help = "cross entropy of softmax(scores) and labels; inputs: scores, labels",
     .device = "accelerator",
     .caps = DLC_LAYER_METRIC | DLC_LAYER_LOSS | DLC_LAYER_CLASSIFIES,
     .ops = &softmax_loss_ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("accelerator", PLUGIN_VERSION, "BSD-2-Clause", features, load);

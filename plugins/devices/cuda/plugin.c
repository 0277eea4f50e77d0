/* NVIDIA GPUs as a device.
 *
 * The runtime is linked in, the driver never: load() looks for it and tells what is
 * missing, without starting CUDA, so that the process can fork its ranks. */
#include <stdlib.h>

#include "driver.h"
#include "gpu.h"
#include "machine.h"

const dlc_host *host;

static dlc_status load(const dlc_host *the_host) {
    host = the_host;
    dlc_status status = driver_check();
    if (status != DLC_OK)
        return status;
    /* CUDA's own order is by speed; this one is what nvidia-smi shows and machine.c
     * has. No thread runs yet, and ranks inherit it. */
    (void)setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
    return machine_read();
}

static const dlc_device_ops ops = {
    .size = sizeof ops,
    .count = machine_count,
    .describe = machine_describe,
    .open = gpu_open,
    .close = gpu_close,
    .alloc = memory_alloc,
    .free = memory_free,
    .copy = compute_copy,
    .fill = compute_fill,
    .queue_open = queue_open,
    .queue_close = queue_close,
    .queue_sync = queue_sync,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_done = event_done,
    .scale = compute_scale,
    .add = compute_add,
    .axpy = compute_axpy,
    .convert = compute_convert,
    .sum = compute_sum,
    .norm2 = compute_norm2,
    .momentum = compute_momentum,
    .share_export = share_export,
    .share_import = share_import,
    .add_bf16 = compute_add_bf16,
    .links = machine_links,
    .sum_to = compute_sum_to,
    .event_sync = event_sync,
    .record_begin = record_begin,
    .record_end = record_end,
    .record_run = record_run,
    .record_close = record_close,
    .add_mean = compute_add_mean,
    .add_f16 = compute_add_f16,
    .adapt_scale = compute_adapt_scale,
    .pin = pin,
    .unpin = unpin,
    .reaches = share_reaches,
    .range_begin = range_begin,
    .range_end = range_end,
    .queue_words = queue_words,
    .normalize = compute_normalize,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DEVICE,
     .name = DLC_CUDA_DEVICE,
     .help = "NVIDIA GPUs",
     .caps = DLC_DEVICE_SHARES | DLC_DEVICE_ASYNC,
     .ops = &ops},
    DLC_FEATURES_END,
};

const dlc_plugin dlc_plugin_v1 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "cuda",
    .version = DLC_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = load,
};

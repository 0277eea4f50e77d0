/* The cuda device: NVIDIA GPUs. Declares its operations.
 *
 * The runtime is linked in, the driver never is: load() looks for it and reports what
 * is missing, without starting CUDA, so that the process can fork its ranks.
 */
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
    /* CUDA's default order is by performance; this one is what nvidia-smi and machine.c
     * use. No thread runs yet, and ranks inherit it. */
    (void)setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0);
    return machine_read();
}

static const dlc_device_queue_ops queue_ops = {
    .size = sizeof queue_ops,
    .queue_open = queue_open,
    .queue_close = queue_close,
    .queue_sync = queue_sync,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_done = event_done,
    .event_sync = event_sync,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_close = graph_close,
    .queue_semaphores = queue_semaphores,
};

static const dlc_device_ops ops = {
    .size = sizeof ops,
    .count = machine_count,
    .describe = machine_describe,
    .links = machine_links,
    .open = gpu_open,
    .close = gpu_close,
    .queues = &queue_ops,
    .native = gpu_native,
    .alloc = memory_alloc,
    .free = memory_free,
    .copy = compute_copy,
    .fill = compute_fill,
    .can_access_peer = ipc_can_access_peer,
    .pin = pin,
    .unpin = unpin,
    .ipc_export = ipc_export,
    .ipc_import = ipc_import,
    .scale = compute_scale,
    .add = compute_add,
    .axpy = compute_axpy,
    .convert = compute_convert,
    .sum = compute_sum,
    .square_sums = compute_square_sums,
    .total = compute_total,
    .update = compute_update,
    .add_bf16 = compute_add_bf16,
    .add_f16 = compute_add_f16,
    .add_mean = compute_add_mean,
    .sum_to = compute_sum_to,
    .normalize = compute_normalize,
    .update_loss_scale = compute_update_loss_scale,
    .range_begin = range_begin,
    .range_end = range_end,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DEVICE,
     .name = DLC_CUDA_DEVICE,
     .help = "NVIDIA GPUs",
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("cuda", DLC_VERSION, "BSD-2-Clause", features, load);

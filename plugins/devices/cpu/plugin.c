/* The cpu device: host memory, OpenMP threads, no queues. Declares its operations. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cpu.h"

const dlc_host *host;

static dlc_status load(const dlc_host *the_host) {
    host = the_host;
    return DLC_OK;
}

static dlc_status device_count(int32_t *count) {
    *count = 1;
    return DLC_OK;
}

/* The CPU's name from /proc/cpuinfo; unchanged if it cannot be read. */
static void read_name(char *name, size_t room) {
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "re");
    if (!file)
        return;
    while (fgets(line, sizeof line, file)) {
        const char *text = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : 0;
        if (!text)
            continue;
        text += strspn(text, ": \t");
        (void)snprintf(name, room, "%.*s", (int)strcspn(text, "\n"), text);
        break;
    }
    (void)fclose(file);
}

static int32_t usable_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0)
        return CPU_COUNT(&set);
    return (int32_t)sysconf(_SC_NPROCESSORS_ONLN); /* more CPUs than the set can hold */
}

static dlc_status device_describe(int32_t index, dlc_device_info *info) {
    if (index != 0)
        return host->fail(DLC_ERR_CONFIG, "there is no cpu device %d, only 0", index);
    if (DLC_HAS(info, name)) {
        (void)snprintf(info->name, sizeof info->name, "CPU");
        read_name(info->name, sizeof info->name);
    }
    if (DLC_HAS(info, memory_bytes))
        info->memory_bytes = (uint64_t)sysconf(_SC_PHYS_PAGES) *
                             (uint64_t)sysconf(_SC_PAGESIZE);
    if (DLC_HAS(info, compute_units))
        info->compute_units = usable_cores();
    if (DLC_HAS(info, address))
        info->address[0] = '\0';
    if (DLC_HAS(info, numa))
        info->numa = -1;
    return DLC_OK;
}

static void device_close(dlc_device *device) {
    if (device)
        threads_close(device);
    host->free(device);
}

static dlc_status device_open(const dlc_device_args *args, dlc_device **device) {
    if (args->index != 0)
        return host->fail(DLC_ERR_CONFIG, "there is no cpu device %d, only 0",
                          args->index);
    dlc_device *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_status status = threads_open(args, made);
    if (status != DLC_OK) {
        device_close(made);
        return status;
    }
    *device = made;
    return DLC_OK;
}

static const dlc_device_ops ops = {
    .size = sizeof ops,
    .count = device_count,
    .describe = device_describe,
    .open = device_open,
    .close = device_close,
    .alloc = memory_alloc,
    .free = memory_free,
    .copy = compute_copy,
    .fill = compute_fill,
    .scale = compute_scale,
    .add = compute_add,
    .axpy = compute_axpy,
    .convert = compute_convert,
    .sum = compute_sum,
    .square_sums = compute_square_sums,
    .total = compute_total,
    .update = compute_update,
    .ipc_export = memory_export,
    .ipc_import = memory_import,
    .add_bf16 = compute_add_bf16,
    .sum_to = compute_sum_to,
    .add_mean = compute_add_mean,
    .add_f16 = compute_add_f16,
    .update_loss_scale = compute_update_loss_scale,
    .update_to = compute_update_to,
    .normalize = compute_normalize,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_DEVICE,
     .name = "cpu",
     .help = "the CPU, with as many threads as a rank has cores",
     .caps = DLC_DEVICE_HOST,
     .ops = &ops},
    DLC_FEATURES_END,
};

DLC_PLUGIN("cpu", DLC_VERSION, "BSD-2-Clause", features, load);

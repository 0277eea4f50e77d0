/* Wraps the CPU device and sets a high bit in all addresses that it hands out. */
#include "discrete_device.h"

#include <dlcore/transport.h>

#include "base/status.h"

static const dlc_device_ops *cpu_ops;

/* With bit 62 set an address is invalid in any x86-64 or arm64 process. */
#define DEVICE_BIT ((uintptr_t)1 << 62)

static void *to_cpu(const void *address) {
    return (void *)((uintptr_t)address & ~DEVICE_BIT);
}

static int is_device(const void *address) {
    return ((uintptr_t)address & DEVICE_BIT) != 0;
}

static dlc_status device_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                               dlc_memory *memory) {
    DLC_TRY(cpu_ops->alloc(device, bytes, flags, memory));
    if (!(flags & DLC_MEM_STAGING))
        memory->base = (void *)((uintptr_t)memory->base | DEVICE_BIT);
    return DLC_OK;
}

static void device_free(dlc_device *device, dlc_memory *memory) {
    memory->base = to_cpu(memory->base);
    cpu_ops->free(device, memory);
}

static dlc_status device_copy(dlc_device *device, dlc_queue *queue, void *dst,
                              const void *src, size_t bytes) {
    return cpu_ops->copy(device, queue, to_cpu(dst), to_cpu(src), bytes);
}

static dlc_status device_sum(dlc_device *device, dlc_queue *queue, size_t n,
                             const float *const *sources, int32_t count, float *dst) {
    const float *all[64];
    if (!is_device(dst))
        return dlc_fail(DLC_ERR_DEVICE, "sum: the destination isn't device memory");
    for (int32_t i = 0; i < count; i++) {
        if (!is_device(sources[i]))
            return dlc_fail(DLC_ERR_DEVICE, "sum: source %d isn't device memory", i);
        all[i] = to_cpu(sources[i]);
    }
    return cpu_ops->sum(device, queue, n, all, count, to_cpu(dst));
}

static dlc_status device_queue_open(dlc_device *device, dlc_queue **queue) {
    (void)device;
    *queue = NULL;
    return DLC_OK;
}

const dlc_device_ops *discrete_device(const dlc_device_ops *cpu) {
    static const dlc_device_queue_ops queue_ops = {.size = sizeof queue_ops,
                                                   .queue_open = device_queue_open};
    static dlc_device_ops ops;
    cpu_ops = cpu;
    ops = (dlc_device_ops){.size = sizeof ops,
                           .count = cpu->count,
                           .describe = cpu->describe,
                           .open = cpu->open,
                           .close = cpu->close,
                           .queues = &queue_ops,
                           .alloc = device_alloc,
                           .free = device_free,
                           .copy = device_copy,
                           .sum = device_sum};
    return &ops;
}

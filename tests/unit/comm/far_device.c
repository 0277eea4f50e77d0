#include "far_device.h"

#include <dlcore/transport.h>

#include "base/status.h"

static const dlc_device_ops *near;

/* Bit 62 makes an address that no x86-64 or arm64 process has. */
#define FAR ((uintptr_t)1 << 62)

static void *to_near(const void *address) {
    return (void *)((uintptr_t)address & ~FAR);
}

static int is_far(const void *address) {
    return ((uintptr_t)address & FAR) != 0;
}

static dlc_status far_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                            dlc_memory *memory) {
    DLC_TRY(near->alloc(device, bytes, flags, memory));
    if (!(flags & DLC_MEM_STAGING))
        memory->base = (void *)((uintptr_t)memory->base | FAR);
    return DLC_OK;
}

static void far_free(dlc_device *device, dlc_memory *memory) {
    memory->base = to_near(memory->base);
    near->free(device, memory);
}

static dlc_status far_copy(dlc_device *device, dlc_queue *queue, void *dst,
                           const void *src, size_t bytes) {
    return near->copy(device, queue, to_near(dst), to_near(src), bytes);
}

static dlc_status far_sum(dlc_device *device, dlc_queue *queue, size_t n,
                          const float *const *sources, int32_t count, float *dst) {
    const float *all[64];
    if (!is_far(dst))
        return dlc_fail(DLC_ERR_DEVICE, "sum: not of this device");
    for (int32_t i = 0; i < count; i++) {
        if (!is_far(sources[i]))
            return dlc_fail(DLC_ERR_DEVICE, "sum: source %d not of this device", i);
        all[i] = to_near(sources[i]);
    }
    return near->sum(device, queue, n, all, count, to_near(dst));
}

static dlc_status far_queue_open(dlc_device *device, dlc_queue **queue) {
    (void)device;
    *queue = NULL;
    return DLC_OK;
}

const dlc_device_ops *far_device(const dlc_device_ops *cpu) {
    static dlc_device_ops ops;
    near = cpu;
    ops = (dlc_device_ops){.size = sizeof ops,
                           .count = cpu->count,
                           .describe = cpu->describe,
                           .open = cpu->open,
                           .close = cpu->close,
                           .alloc = far_alloc,
                           .free = far_free,
                           .copy = far_copy,
                           .sum = far_sum,
                           .queue_open = far_queue_open};
    return &ops;
}

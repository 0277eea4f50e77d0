/* Allocates and frees memory of a device. */
#include "base/device_memory.h"

dlc_status dlc_device_alloc(const dlc_device_ops *ops, dlc_device *device, size_t bytes,
                            uint32_t flags, dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    return ops->alloc(device, bytes, flags, memory);
}

void dlc_device_free(const dlc_device_ops *ops, dlc_device *device,
                     dlc_memory *memory) {
    if (memory->base)
        ops->free(device, memory);
    *memory = (dlc_memory){.size = sizeof *memory};
}

/* Memory of a device. */
#ifndef DLC_BASE_DEVICE_MEMORY_H
#define DLC_BASE_DEVICE_MEMORY_H

#include <dlcore/device.h>

/* Allocates it; `memory` has no base if that fails. */
dlc_status dlc_device_alloc(const dlc_device_ops *ops, dlc_device *device, size_t bytes,
                            uint32_t flags, dlc_memory *memory);
/* Frees and clears it, if there is any. */
void dlc_device_free(const dlc_device_ops *ops, dlc_device *device, dlc_memory *memory);

#endif

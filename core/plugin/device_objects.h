/* What devices are, and their memory, queues and events. What a device gives is checked
 * here, so that an answer that is none ends the job with the name of the plugin. */
#ifndef DLC_PLUGIN_DEVICE_OBJECTS_H
#define DLC_PLUGIN_DEVICE_OBJECTS_H

#include <dlcore/device.h>

/* Describes a device; its texts end. */
dlc_status dlc_device_describe(const dlc_device_ops *ops, int32_t index,
                               dlc_device_info *info);

/* Allocates memory; `memory` has no base if that fails. */
dlc_status dlc_device_alloc(const dlc_device_ops *ops, dlc_device *device, size_t bytes,
                            uint32_t flags, dlc_memory *memory);
/* Frees and clears it, if there is any. */
void dlc_device_free(const dlc_device_ops *ops, dlc_device *device, dlc_memory *memory);

/* Open a queue or an event of a device with queues, which the caller closes. */
dlc_status dlc_device_open_queue(const dlc_device_ops *ops, dlc_device *device,
                                 dlc_queue **queue);
dlc_status dlc_device_open_event(const dlc_device_ops *ops, dlc_device *device,
                                 dlc_event **event);
/* Open and close an array of `count` events; NULL may be closed. */
dlc_status dlc_device_open_events(const dlc_device_ops *ops, dlc_device *device,
                                  int32_t count, dlc_event ***events);
void dlc_device_close_events(const dlc_device_ops *ops, dlc_device *device,
                             int32_t count, dlc_event **events);

#endif

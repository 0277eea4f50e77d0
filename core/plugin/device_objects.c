/* Describes devices; allocates, opens and frees what they have. */
#include "plugin/device_objects.h"

#include "base/memory.h"
#include "plugin/answers.h"

dlc_status dlc_device_describe(const dlc_device_ops *ops, int32_t index,
                               dlc_device_info *info) {
    *info = (dlc_device_info){.size = sizeof *info, .numa = -1};
    DLC_TRY(DLC_ASK(ops, "describe", ops->describe(index, info)));
    info->name[sizeof info->name - 1] = '\0';
    info->address[sizeof info->address - 1] = '\0';
    info->software[sizeof info->software - 1] = '\0';
    return DLC_OK;
}

dlc_status dlc_device_alloc(const dlc_device_ops *ops, dlc_device *device, size_t bytes,
                            uint32_t flags, dlc_memory *memory) {
    enum { ALIGNMENT = 64 };
    *memory = (dlc_memory){.size = sizeof *memory};
    DLC_TRY(DLC_ASK(ops, "alloc", ops->alloc(device, bytes, flags, memory)));
    if (bytes == 0 || (memory->base && (uintptr_t)memory->base % ALIGNMENT == 0 &&
                       memory->bytes >= bytes))
        return DLC_OK;
    dlc_memory wrong = *memory;
    *memory = (dlc_memory){.size = sizeof *memory};
    return dlc_answer_refuse(
        ops, "alloc of %zu bytes gives %zu at %p, not as many at a multiple of %d",
        bytes, wrong.bytes, wrong.base, ALIGNMENT);
}

void dlc_device_free(const dlc_device_ops *ops, dlc_device *device,
                     dlc_memory *memory) {
    if (memory->base)
        ops->free(device, memory);
    *memory = (dlc_memory){.size = sizeof *memory};
}

dlc_status dlc_device_open_queue(const dlc_device_ops *ops, dlc_device *device,
                                 dlc_queue **queue) {
    DLC_TRY(DLC_ASK(ops, "queue_open", ops->queues->queue_open(device, queue)));
    return dlc_answer_check_opened(ops, "queue_open", *queue);
}

dlc_status dlc_device_open_event(const dlc_device_ops *ops, dlc_device *device,
                                 dlc_event **event) {
    DLC_TRY(DLC_ASK(ops, "event_open", ops->queues->event_open(device, event)));
    return dlc_answer_check_opened(ops, "event_open", *event);
}

dlc_status dlc_device_open_events(const dlc_device_ops *ops, dlc_device *device,
                                  int32_t count, dlc_event ***events) {
    dlc_event **made = dlc_alloc((size_t)count, sizeof(dlc_event *));
    dlc_status status = made ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t i = 0; status == DLC_OK && i < count; i++)
        status = dlc_device_open_event(ops, device, &made[i]);
    if (status != DLC_OK) {
        dlc_device_close_events(ops, device, count, made);
        return status;
    }
    *events = made;
    return DLC_OK;
}

void dlc_device_close_events(const dlc_device_ops *ops, dlc_device *device,
                             int32_t count, dlc_event **events) {
    for (int32_t i = 0; events && i < count; i++)
        if (events[i])
            ops->queues->event_close(device, events[i]);
    dlc_free(events);
}

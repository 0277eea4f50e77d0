/* Describes devices; allocates, opens and frees what they have. */
#include "plugin/device_objects.h"

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

static dlc_status check_opened(const dlc_device_ops *ops, const char *call,
                               const void *opened, dlc_status status) {
    DLC_TRY(dlc_answer_explain(ops, call, status));
    return opened ? DLC_OK
                  : dlc_answer_refuse(ops, "%s succeeds, but opens nothing", call);
}

dlc_status dlc_device_open_queue(const dlc_device_ops *ops, dlc_device *device,
                                 dlc_queue **queue) {
    dlc_detail_clear();
    dlc_status status = ops->queues->queue_open(device, queue);
    return check_opened(ops, "queue_open", *queue, status);
}

dlc_status dlc_device_open_event(const dlc_device_ops *ops, dlc_device *device,
                                 dlc_event **event) {
    dlc_detail_clear();
    dlc_status status = ops->queues->event_open(device, event);
    return check_opened(ops, "event_open", *event, status);
}

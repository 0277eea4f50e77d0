/* Implements the memory of calls of layers. */
#include "device_call.h"

#include "guard.h"

static void copy(const device_call *call, void *to, const void *from, size_t bytes) {
    const device_fixture *device = call->device;
    suite_must(call->run,
               device->ops->copy(device->handle, device->queue, to, from, bytes),
               "the device's copy");
}

void *device_call_take(device_call *call, const void *here, size_t bytes) {
    const device_fixture *device = call->device;
    void *own = (void *)(uintptr_t)here;
    if (!here || device->is_host)
        return own;
    for (int i = 0; i < call->count; i++)
        if (call->copy[i].here == own)
            return call->copy[i].there.base;
    struct device_copy *made = &call->copy[call->count++];
    *made = (struct device_copy){own, bytes, {.size = sizeof made->there}};
    suite_must(call->run, device->ops->alloc(device->handle, bytes, 0, &made->there),
               "the device's alloc");
    copy(call, made->there.base, own, bytes);
    return made->there.base;
}

void device_call_finish(device_call *call, dlc_status status, const char *name) {
    const device_fixture *device = call->device;
    suite_must(call->run, status, name);
    for (int i = 0; i < call->count; i++)
        copy(call, call->copy[i].here, call->copy[i].there.base, call->copy[i].bytes);
    device_fixture_sync(call->run, device, name);
    for (int i = 0; i < call->count; i++)
        device->ops->free(device->handle, &call->copy[i].there);
    call->count = 0;
    guard_check(call->run, name);
}

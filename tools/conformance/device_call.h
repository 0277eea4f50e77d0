/* The memory of one call of a layer. Checks keep theirs where the CPU can read and
 * write it; a layer whose device has memory of its own gets copies there, which are
 * copied back and released after the call. The layer fixture uses it. */
#ifndef DLC_TOOLS_CONFORMANCE_DEVICE_CALL_H
#define DLC_TOOLS_CONFORMANCE_DEVICE_CALL_H

#include <dlcore/layer.h>

#include "device_fixture.h"

enum { DEVICE_CALL_MOST = 2 * (DLC_MAX_OUTPUTS + DLC_MAX_PARAMS) + 16 };

typedef struct device_call {
    suite_run *run;
    const device_fixture *device;
    int count;
    struct device_copy {
        void *here;
        size_t bytes;
        dlc_memory there;
    } copy[DEVICE_CALL_MOST];
} device_call;

/* The address of `here` for the layer. The same memory gets the same address; NULL
 * stays NULL. */
void *device_call_take(device_call *call, const void *here, size_t bytes);

/* Fails the check unless the call succeeded, waits for its work, and copies what it
 * wrote. `name` is for the message. */
void device_call_finish(device_call *call, dlc_status status, const char *name);

#endif

#include "rig.h"

#include <math.h>

const dlc_device_ops *ops;
dlc_device *device;
dlc_queue *q1, *q2;
dlc_event *e1, *e2;
float *buffer[RIG_BUFFERS];
float *host_floats;
static dlc_memory memory[RIG_BUFFERS + 1];

void rig_setup(void) {
    ops = plugin_find(DLC_KIND_DEVICE, "later")->ops;
    dlc_device_args args = {.size = sizeof args, .threads = 1};
    OK(ops->open(&args, &device));
    for (int i = 0; i <= RIG_BUFFERS; i++) {
        memory[i] = (dlc_memory){.size = sizeof memory[i]};
        OK(ops->alloc(device, RIG_FLOATS * sizeof(float),
                      i == RIG_BUFFERS ? DLC_MEM_STAGING : 0, &memory[i]));
    }
    for (int i = 0; i < RIG_BUFFERS; i++)
        buffer[i] = memory[i].base;
    host_floats = memory[RIG_BUFFERS].base;
    OK(ops->queue_open(device, &q1));
    OK(ops->queue_open(device, &q2));
    OK(ops->event_open(device, &e1));
    OK(ops->event_open(device, &e2));
}

void rig_teardown(void) {
    ops->event_close(device, e1);
    ops->event_close(device, e2);
    ops->queue_close(device, q1);
    ops->queue_close(device, q2);
    for (int i = 0; i <= RIG_BUFFERS; i++)
        ops->free(device, &memory[i]);
    ops->close(device);
    plugins_close();
}

void rig_set(float *at, float value) {
    for (int i = 0; i < RIG_FLOATS; i++)
        host_floats[i] = value;
    OK(ops->copy(device, NULL, at, host_floats, RIG_FLOATS * sizeof(float)));
}

float rig_value(const float *at) {
    OK(ops->copy(device, NULL, host_floats, at, RIG_FLOATS * sizeof(float)));
    for (int i = 1; i < RIG_FLOATS; i++)
        if (host_floats[i] != host_floats[0])
            return NAN;
    return host_floats[0];
}

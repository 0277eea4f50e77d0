/* Opens the device "async" with some memory, queues and events. */
#include "fixture.h"

#include <math.h>

const dlc_device_ops *ops;
dlc_device *device;
dlc_queue *q1, *q2;
dlc_event *e1, *e2;
float *buffer[FIXTURE_BUFFERS];
float *host_floats;
static dlc_memory memory[FIXTURE_BUFFERS + 1];

void fixture_setup(void) {
    ops = plugin_find(DLC_KIND_DEVICE, "async")->ops;
    dlc_device_args args = {.size = sizeof args, .threads = 1};
    OK(ops->open(&args, &device));
    for (int i = 0; i <= FIXTURE_BUFFERS; i++) {
        memory[i] = (dlc_memory){.size = sizeof memory[i]};
        OK(ops->alloc(device, FIXTURE_FLOATS * sizeof(float),
                      i == FIXTURE_BUFFERS ? DLC_MEM_STAGING : 0, &memory[i]));
    }
    for (int i = 0; i < FIXTURE_BUFFERS; i++)
        buffer[i] = memory[i].base;
    host_floats = memory[FIXTURE_BUFFERS].base;
    OK(ops->queues->queue_open(device, &q1));
    OK(ops->queues->queue_open(device, &q2));
    OK(ops->queues->event_open(device, &e1));
    OK(ops->queues->event_open(device, &e2));
}

void fixture_teardown(void) {
    ops->queues->event_close(device, e1);
    ops->queues->event_close(device, e2);
    ops->queues->queue_close(device, q1);
    ops->queues->queue_close(device, q2);
    for (int i = 0; i <= FIXTURE_BUFFERS; i++)
        ops->free(device, &memory[i]);
    ops->close(device);
    plugins_close();
}

void fixture_set(float *at, float value) {
    for (int i = 0; i < FIXTURE_FLOATS; i++)
        host_floats[i] = value;
    OK(ops->copy(device, NULL, at, host_floats, FIXTURE_FLOATS * sizeof(float)));
}

float fixture_value(const float *at) {
    OK(ops->copy(device, NULL, host_floats, at, FIXTURE_FLOATS * sizeof(float)));
    for (int i = 1; i < FIXTURE_FLOATS; i++)
        if (host_floats[i] != host_floats[0])
            return NAN;
    return host_floats[0];
}

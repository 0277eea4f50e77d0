/* The device under test, and what the files with checks of devices share. */
#ifndef DLC_TOOLS_CONFORMANCE_DEVICE_CHECKS_H
#define DLC_TOOLS_CONFORMANCE_DEVICE_CHECKS_H

#include "device_fixture.h"

typedef struct device_check {
    suite_run *run;
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue; /* NULL: work is done when a call returns */
} device_check;

/* Open the device, the first or another one, and a queue if it has queues. Skip the
 * check if this machine has no such device. */
void device_check_open(suite_run *run, device_check *check);
void device_check_open_index(suite_run *run, device_check *check, int32_t index);

/* Waits for the work of the queue, if there is one. */
void device_check_finish(const device_check *check);

/* A host array of `count` floats and a guard word, which the caller frees. */
float *device_check_floats(const device_check *check, size_t count);

/* Device memory, and a copy after which all work is done. Memory is never freed. */
void *device_check_take(const device_check *check, size_t bytes);
void device_check_copy(const device_check *check, void *to, const void *from,
                       size_t bytes);

/* Fills a host array, *here, and a device array, which is returned, with the same
 * random numbers. A guard word follows both. */
float *device_check_upload(const device_check *check, size_t count, uint64_t seed,
                           float **here);

/* Fails unless the device array has the expected values and its guard word is
 * intact. */
void device_check_compare(const device_check *check, const char *call,
                          const float *there, const float *wanted, size_t count,
                          double tolerance);

#endif

/* A device on which layers, solvers and transports are checked, and helpers to compare
 * and to generate floats. The checks of these kinds use it. */
#ifndef DLC_TOOLS_CONFORMANCE_DEVICE_FIXTURE_H
#define DLC_TOOLS_CONFORMANCE_DEVICE_FIXTURE_H

#include <dlcore/device.h>

#include "suite.h"

typedef struct device_fixture {
    const char *name;
    const dlc_device_ops *ops;
    dlc_device *handle;
    dlc_queue *queue; /* NULL: work is done when a call returns */
    int is_host;      /* the CPU can read its memory */
} device_fixture;

/* Opens the device that the feature is for, first of all that of the file under test,
 * or any device whose memory the CPU can read; only layers are checked on others. Skips
 * the check if there is none. */
void device_fixture_open(suite_run *run, device_fixture *device);
void device_fixture_close(device_fixture *device);

/* Waits for the work of `call`, and fails the check if it failed. */
void device_fixture_sync(suite_run *run, const device_fixture *device,
                         const char *call);

/* Allocate device memory, which stays until the process ends: zeroed, or a copy of
 * `from`. Fail the check if memory runs out. If the CPU can read it, guards are before
 * and behind it (guard.h), which call it `what`. */
void *device_fixture_bytes(suite_run *run, const device_fixture *device, size_t bytes,
                           const char *what);
float *device_fixture_floats(suite_run *run, const device_fixture *device,
                             size_t count);
void *device_fixture_copy_of(suite_run *run, const device_fixture *device,
                             const void *from, size_t bytes);

/* The bits of a float, which distinguish 0 from -0. */
uint32_t suite_bits(float x);
/* 1 if the arrays are bitwise identical. */
int suite_same(const float *a, const float *b, size_t count);

/* Fills x with random numbers in -1 .. 1, which depend on the seed alone. */
void suite_random(float *x, size_t count, uint64_t seed);

#endif

/* A device to check other plugins on. */
#ifndef DLC_TOOLS_CONFORMANCE_BED_H
#define DLC_TOOLS_CONFORMANCE_BED_H

#include <dlcore/device.h>

#include "suite.h"

typedef struct suite_bed {
    const char *name;
    const dlc_device_ops *ops;
    dlc_device *device;
} suite_bed;

/* The device that the feature is for, or any whose memory the processor reads; where
 * there is none the check is skipped. */
void suite_bed_open(suite_run *run, suite_bed *bed);
void suite_bed_close(suite_bed *bed);

/* Zeroed; stays until the process ends. */
float *suite_bed_floats(suite_run *run, const suite_bed *bed, size_t count);

/* A number's bits, which tell 0 from -0. */
uint32_t suite_bits(float x);
/* Are they the same, to the bit? */
int suite_same(const float *a, const float *b, size_t count);

/* The same numbers for the same seed, in -1 .. 1. */
void suite_random(float *x, size_t count, uint64_t seed);

#endif

/* One test suite for all devices: the device that DLCORE_TEST_DEVICE names (else
 * "cpu"), through operations that take host memory, whatever the device's memory is. */
#ifndef TEST_MIRROR_H
#define TEST_MIRROR_H

#include <dlcore/device.h>

/* For TEST_SETTINGS(.begin = ...): skips all tests, and prints why, unless that device
 * is usable here. */
int mirror_begin(int argc, char **argv);

/* Its operations. If the CPU cannot access the device's memory (or DLCORE_TEST_MIRROR
 * is set) the kernels, copy and fill take host pointers: each call copies its operands
 * to the device, with the same alignment, and back, and checks that nothing else was
 * written. One device is open at a time. */
const dlc_device_ops *mirror_ops(void);

#endif

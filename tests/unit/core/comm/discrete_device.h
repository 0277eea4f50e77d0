/* A device whose memory the CPU cannot read, like that of a discrete GPU: its addresses
 * are invalid on the CPU, so that any access other than through its calls crashes. */
#ifndef TEST_DISCRETE_DEVICE_H
#define TEST_DISCRETE_DEVICE_H

#include <dlcore/device.h>

/* Wraps the CPU device, which does the work. */
const dlc_device_ops *discrete_device(const dlc_device_ops *cpu);

#endif

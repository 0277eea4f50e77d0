/* A device whose memory the processor cannot read: its addresses are no addresses of
 * ours. Whoever touches them other than through its calls dies. */
#ifndef TEST_FAR_DEVICE_H
#define TEST_FAR_DEVICE_H

#include <dlcore/device.h>

/* Made over a device of the processor, which does the work. */
const dlc_device_ops *far_device(const dlc_device_ops *cpu);

#endif

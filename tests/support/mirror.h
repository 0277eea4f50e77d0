/* One suite for all devices: the device that DLCORE_TEST_DEVICE names (else "cpu"),
 * with calls that take host memory, whatever the device's own is. */
#ifndef TEST_MIRROR_H
#define TEST_MIRROR_H

#include <dlcore/device.h>

/* Is that device usable here? Where not, it says so, and a test program ends
 * with 77: skipped. */
int mirror_available(void);

/* Its calls. Of one whose memory the processor does not reach (or where
 * DLCORE_TEST_MIRROR is set) the kernels, copy and fill take host pointers: each call
 * copies what it reads and writes to the device, lying as it lies here, and back, and
 * checks that nothing was written elsewhere. One device is open at a time. */
const dlc_device_ops *mirror_ops(void);

#endif

/* What the verdict on a plugin may depend on besides its file, in one number: a library
 * may be installed, a device appear, or a variable hide it. Used by resolve.c. */
#ifndef DLC_PLUGIN_SYSTEM_STAMP_H
#define DLC_PLUGIN_SYSTEM_STAMP_H

#include <stdint.h>

/* A number that changes when a plugin that could not be used may have become usable,
 * and once an hour for what cannot be seen. Never 0. */
uint64_t dlc_system_stamp(void);

#endif

/* Which of a device's units ("0,1", "all") a job's ranks compute on. */
#ifndef DLC_TRAIN_UNITS_H
#define DLC_TRAIN_UNITS_H

#include <dlcore/device.h>

#include "plugin/registry.h"

/* The accelerator that is there: memory of its own, at least one unit, and layers made
 * for it; NULL: there is none. Fails only when memory runs out. */
dlc_status dlc_units_accelerator(const dlc_registry *registry,
                                 const dlc_feature **device);

/* What `text` names among the units of the device: rising or not, each once. Release
 * *list with dlc_free. DLC_ERR_CONFIG with a sentence where it names none, one twice,
 * or one that isn't there. */
dlc_status dlc_units_parse(const char *text, const dlc_feature *device, int32_t **list,
                           int32_t *count);

/* How many there are; 0 where the device cannot say. */
int32_t dlc_units_count(const dlc_feature *device);

#endif

/* Parses [train] gpu: the indices of the devices ("0,1", "all") that a job's ranks
 * compute on. Called by the setup. */
#ifndef DLC_SETUP_DEVICE_INDICES_H
#define DLC_SETUP_DEVICE_INDICES_H

#include <dlcore/device.h>

#include "plugin/registry.h"

/* Finds the accelerator that can be used and has the most layers: one with memory of
 * its own, at least one device present, and layers made for it. *device is NULL if
 * there is none. Fails only when memory runs out. */
dlc_status dlc_find_accelerator(const dlc_registry *registry,
                                const dlc_feature **device);

/* Parses a list of indices, in any order, each at most once, or "all". Release *list
 * with dlc_free. DLC_ERR_CONFIG if the list is malformed or empty, or if it names an
 * index twice or one that does not exist. */
dlc_status dlc_device_indices_parse(const char *text, const dlc_feature *device,
                                    int32_t **list, int32_t *count);

/* The number of devices that are present; 0 if the plugin cannot tell. */
int32_t dlc_device_count(const dlc_feature *device);

#endif

/* The NVLinks of one GPU, as NVML reports them. */
#ifndef LINKS_H
#define LINKS_H

#include <dlcore/device.h>

#include "nvml.h"

/* Formats an address, "0000:1b:00.0"; "" if it is none, as of a switch that a virtual
 * machine hides. */
void links_address(const nvml_pci *pci, char *to, size_t bytes);

/* Fills in the links that are up, with all that lead to one peer as one; returns how
 * many there are. */
int32_t links_read(const nvml_calls *nvml, nvml_gpu *gpu, dlc_link *links,
                   int32_t room);

#endif

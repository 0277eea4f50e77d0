/* The NVLinks of one GPU, as NVML tells them. */
#ifndef LINKS_H
#define LINKS_H

#include <dlcore/device.h>

#include "nvml.h"

/* "0000:1b:00.0"; "" where it is none, as of a switch that a virtual machine hides. */
void links_address(const nvml_pci *pci, char *to, size_t bytes);

/* Fills in those that are up, all that lead to one place as one; returns how many. */
int32_t links_read(const nvml_calls *nvml, nvml_gpu *gpu, dlc_link *links,
                   int32_t room);

#endif

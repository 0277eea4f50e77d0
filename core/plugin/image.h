/* Checks that a file is a complete shared object for this machine: the dynamic loader
 * maps what the headers say without checking the size of the file, so a truncated
 * download would kill the process. Called by object.c. */
#ifndef DLC_PLUGIN_IMAGE_H
#define DLC_PLUGIN_IMAGE_H

#include <dlcore/status.h>

/* DLC_ERR_PLUGIN with a sentence if it is not; DLC_ERR_IO if it cannot be read now. */
dlc_status dlc_image_check(const char *path);

#endif

/* Is a file a whole shared object for this machine? The dynamic loader maps what
 * the headers promise without looking whether the file goes that far, so that a
 * truncated download would kill the process. */
#ifndef DLC_PLUGIN_IMAGE_H
#define DLC_PLUGIN_IMAGE_H

#include <dlcore/status.h>

dlc_status dlc_image_check(const char *path);

#endif

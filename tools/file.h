/* A file that is there whole or not at all. */
#ifndef DLC_TOOLS_FILE_H
#define DLC_TOOLS_FILE_H

#include <stddef.h>

#include "base/status.h"

/* Could it be written? Asked before the work whose result it is to hold; leaves nothing
 * behind. */
dlc_status dlc_tool_file_check(const char *path);

/* Writes it to the side and renames it; what was there is replaced. */
dlc_status dlc_tool_file_write(const char *path, const char *bytes, size_t size);

#endif

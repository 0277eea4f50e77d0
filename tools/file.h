/* Writes a file completely or not at all; for pictures and other results of commands.
 */
#ifndef DLC_TOOLS_FILE_H
#define DLC_TOOLS_FILE_H

#include <stddef.h>

#include "base/status.h"

/* Can the file be written? Commands ask before a long measurement. Leaves nothing
 * behind. */
dlc_status dlc_tool_file_check(const char *path);

/* Writes a temporary file and renames it; replaces an existing file. */
dlc_status dlc_tool_file_write(const char *path, const char *bytes, size_t size);

#endif

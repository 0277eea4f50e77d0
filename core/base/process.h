/* What this process was started with: its working directory, to which paths are
 * relative whatever a plugin does, and its limit of open files. */
#ifndef DLC_BASE_PROCESS_H
#define DLC_BASE_PROCESS_H

#include <stddef.h>

/* To be called first: keeps the working directory, and raises the limit of open files
 * as far as the system allows, since each connection to another rank takes some. */
void dlc_process_begin(void);

/* Returns to the working directory that dlc_process_begin has kept: called after
 * plugins were loaded, and before a file is opened by a path that the user has given.
 * Does nothing without dlc_process_begin. */
void dlc_process_return(void);

#define DLC_FILES_TEXT 80

/* " (this process may have 1024 open files: see ulimit -n)", the end of a message. */
const char *dlc_files_limit(char text[DLC_FILES_TEXT]);

/* The same if `error` says that there are too many of them; otherwise "". */
const char *dlc_files_reason(int error, char text[DLC_FILES_TEXT]);

#endif

/* What this process was started with: its working directory, to which paths are
 * relative whatever a plugin does, and its limit of open files. And what /proc tells of
 * another process. */
#ifndef DLC_BASE_PROCESS_H
#define DLC_BASE_PROCESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

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

/* The state of the process or thread whose `stat` file in /proc is at `path`: 'R'
 * running or runnable, 'S' sleeping, 'D' waiting for a disk, 'T' stopped; '?' if the
 * file cannot be read. */
char dlc_process_state_at(const char *path);

/* What the threads of a process have done. */
typedef struct dlc_process_threads {
    uint64_t busy_ns;      /* that they ran, or waited for a CPU, taken together; 0 if
                              the kernel does not tell */
    uint64_t longest_wait; /* nanoseconds that one of them waited for a CPU */
    int waits_for_disk;    /* one of them does */
} dlc_process_threads;

dlc_process_threads dlc_process_threads_read(pid_t pid);

#endif

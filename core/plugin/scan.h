/* Inspects files in child processes, where they can do no harm: they are opened there,
 * and their load() is called. A file that crashes or hangs its child is detected and
 * refused. Called by registry.c. */
#ifndef DLC_PLUGIN_SCAN_H
#define DLC_PLUGIN_SCAN_H

#include <stdint.h>
#include <sys/stat.h>

#include "base/text.h"

typedef struct dlc_scan_file {
    const char *path;
    struct stat info;
    dlc_text report; /* out; own; see entry.h */
} dlc_scan_file;

/* Reports on every file; with `load`, also calls its load() if it is valid. One thread
 * at a time. Blocks. A child is a fork without exec, so no separate program is needed;
 * several work at a time, so that one that hangs holds up nothing but the end. Fails if
 * memory runs out. */
dlc_status dlc_scan_run(dlc_scan_file *file, size_t files, int load);

/* For tests: sets how long each of the two steps of a file, opening and load(), may
 * take; 0: as by default, 5 s, and 60 s for load() of a plugin that offers a device. */
void dlc_scan_timeout(int64_t ms);

#endif

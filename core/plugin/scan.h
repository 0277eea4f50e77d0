/* Inspection where it can do no harm: files are opened, and their load() is called, in
 * a child of this process. One that crashes there, or does not come back, is found out
 * and left out; the child holds what it did to itself. */
#ifndef DLC_PLUGIN_SCAN_H
#define DLC_PLUGIN_SCAN_H

#include <stdint.h>
#include <sys/stat.h>

#include "base/text.h"

typedef struct dlc_scan_file {
    const char *path;
    struct stat info;
    dlc_text report; /* out, own: see report.h */
} dlc_scan_file;

/* Reports on every file; `load`: calls its load(), too, if it is sound. To be called by
 * one thread at a time. The child is a fork without exec, so that this needs no program
 * of ours; one child does all files that don't kill it. Fails when memory runs out. */
dlc_status dlc_scan_run(dlc_scan_file *file, size_t files, int load);

/* How long each of a file's two steps, being opened and load(), may take; returns what
 * it was. */
int64_t dlc_scan_patience(int64_t ms);

#endif

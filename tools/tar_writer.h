/* Writes tar archives (ustar) that are complete or do not exist. Used by `dlcore data
 * convert`. */
#ifndef DLC_TOOLS_TAR_WRITER_H
#define DLC_TOOLS_TAR_WRITER_H

#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* What is written is in a temporary file beside it until the end. Start with {0}. */
typedef struct dlc_tar_writer {
    char *part; /* own */
    FILE *file; /* NULL: none is being written */
    uint64_t bytes;
} dlc_tar_writer;

/* The ending of temporary files. */
#define DLC_TAR_PART ".part"

/* Starts a file; a temporary file of that name is replaced. */
dlc_status dlc_tar_writer_open(dlc_tar_writer *writer, const char *part);
/* Adds a file, whose name has at most 99 bytes. The time of all files is 0, so that an
 * archive depends on its contents alone. */
dlc_status dlc_tar_writer_add(dlc_tar_writer *writer, const char *name,
                              const void *bytes, uint64_t count);
/* Writes the end to disk and renames the file. */
dlc_status dlc_tar_writer_finish(dlc_tar_writer *writer, const char *path);
/* Removes what is not finished. */
void dlc_tar_writer_close(dlc_tar_writer *writer);

#endif

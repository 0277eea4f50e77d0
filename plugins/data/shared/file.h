/* A file that samples are read from, by several threads and after a fork: nothing moves
 * its file offset, and it is not mapped, since another program may cut it short. */
#ifndef DATA_FILE_H
#define DATA_FILE_H

#include <stddef.h>
#include <stdint.h>

#include <dlcore/plugin.h>

extern const dlc_host *host; /* set by the plugin's load */

/* Start with {.fd = -1}. `path` is the caller's, for messages. */
typedef struct data_file {
    const char *path;
    int fd;
    int64_t bytes;
} data_file;

/* Opens a file and checks that it is one; DLC_ERR_DATA with the reason. */
dlc_status file_open(const char *path, data_file *made);
void file_close(data_file *of);

/* Reads bytes that are known to be in the file. */
dlc_status file_read(const data_file *in, int64_t begin, void *to, size_t bytes);

/* Makes a file without a name, for data that are unpacked, in $TMPDIR or /var/tmp; it
 * is gone when it is closed. */
dlc_status file_make_unnamed(data_file *made);
/* Appends to such a file. */
dlc_status file_append(data_file *to, const void *bytes, size_t count);

#endif

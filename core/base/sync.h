/* Files of which other processes may have names: flushing to the disk, on file systems
 * that may lack it, and whether a file is still where it was. */
#ifndef DLC_BASE_SYNC_H
#define DLC_BASE_SYNC_H

/* Whether `path`, not followed if it is a link, names the open file. 1, 0, or -1 with
 * errno. */
int dlc_is_file_at(int fd, const char *path);

/* Whether an error of a system call says that the file system does not have what was
 * asked for, and not that it has failed. */
int dlc_is_unsupported(int error);

/* fsync(), again if a signal interrupts it. Returns 0, or an errno. A file system that
 * cannot flush this is no error: one warning says so, with `path`. */
int dlc_sync(int fd, const char *path);

#endif

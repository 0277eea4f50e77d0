/* Writing to a file, pipe or socket. */
#ifndef DLC_BASE_WRITE_H
#define DLC_BASE_WRITE_H

#include <stddef.h>

/* Writes `bytes` bytes in as many calls as it takes: one, if possible, so that lines of
 * several processes are not mixed. Returns how many were written; if fewer, errno is
 * the error. Any thread. */
size_t dlc_write_all(int fd, const void *from, size_t bytes);

#endif

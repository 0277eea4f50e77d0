/* Reading a file from a given byte on. */
#ifndef DATA_READ_H
#define DATA_READ_H

#include <stddef.h>
#include <sys/types.h>

/* Reads `bytes` bytes from byte `begin` on, in as many calls as it takes. Returns how
 * many there were; if fewer, errno is the error, or 0 where the file ends. Any thread;
 * moves no file offset. */
size_t read_at(int fd, void *into, size_t bytes, off_t begin);

#endif

/* File descriptors that other processes fetch: memory that is shared has one. */
#ifndef FDS_H
#define FDS_H

#include <stddef.h>
#include <stdint.h>

/* 1: processes of this user may fetch each other's; 0: something forbids it (an old
 * kernel, a container's filter, Yama). */
int fds_pass(void);
/* Lets others fetch this process's, where Yama asks for that. */
void fds_allow(void);

/* A memory file of `bytes`, sealed so that nobody shrinks it. -1: errno says why. */
int fds_make(size_t bytes);
/* Tells this file from every other of this machine, until it is gone. */
uint64_t fds_identity(int fd);

/* A duplicate of what `fd` is in that process. -1: errno says why. */
int fds_take(uint32_t pid, int fd);

#endif

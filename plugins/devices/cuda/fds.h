/* File descriptors that other processes fetch, which shared memory is identified by. */
#ifndef FDS_H
#define FDS_H

#include <stddef.h>
#include <stdint.h>

/* Returns 1 if processes of this user may fetch each other's descriptors; 0 if
 * something forbids it (an old kernel, a container's filter, Yama). */
int fds_pass(void);
/* Lets other processes fetch this process's descriptors, where Yama requires that. */
void fds_allow(void);

/* Creates a memory file of `bytes`, sealed so that nobody can shrink it. -1: see errno.
 */
int fds_make(size_t bytes);
/* Identifies this file among all of this machine, until it is closed. */
uint64_t fds_identity(int fd);

/* Duplicates descriptor `fd` of that process. -1: see errno. */
int fds_take(uint32_t pid, int fd);

#endif

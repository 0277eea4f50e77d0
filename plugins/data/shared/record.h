/* Reading records from all over a memory larger than the caches. */
#ifndef SHARED_RECORD_H
#define SHARED_RECORD_H

#include <stddef.h>

/* Begins to fetch a record into the caches, while another one is being copied. The CPU
 * sees by itself how a copy goes on, but not where the next one begins. */
static inline void record_fetch(const unsigned char *record, size_t bytes) {
    enum { LINE = 64, AHEAD = 256 };
    for (size_t at = 0; at < bytes && at < AHEAD; at += LINE)
        __builtin_prefetch(record + at);
}

#endif

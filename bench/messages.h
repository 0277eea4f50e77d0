/* Loops of messages as in ucx_perftest, between two ranks: one buffer to send from and
 * one to receive in, both in shared memory. */
#ifndef BENCH_MESSAGES_H
#define BENCH_MESSAGES_H

#include "base/memory.h"
#include "group.h"

enum { WINDOW = 32 }; /* messages of a stream in flight */

typedef struct buffers {
    dlc_memory out, in;
} buffers;

void buffers_open(group *g, size_t bytes, buffers *b);
void buffers_close(group *g, buffers *b);
void bind_to(int cpu);

/* `count` round trips. */
void transport_ping_pong(group *g, const buffers *b, size_t bytes, int count);
/* `count` messages from rank 0 to rank 1, WINDOW in flight, then an acknowledgment. */
void transport_stream(group *g, const buffers *b, size_t bytes, int count);

#endif

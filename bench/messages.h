/* Loops of messages as ucx_perftest has them, between two ranks: one buffer to send
 * from and one to receive in, both in memory that processes can share.
 */
#ifndef BENCH_MESSAGES_H
#define BENCH_MESSAGES_H

#include "base/memory.h"
#include "group.h"

enum { WINDOW = 32 }; /* messages under way in a stream */

typedef struct buffers {
    dlc_memory out, in;
} buffers;

void buffers_open(group *g, size_t bytes, buffers *b);
void buffers_close(group *g, buffers *b);
void bind_to(int processor);

/* There and back, `count` times. */
void transport_ping_pong(group *g, const buffers *b, size_t bytes, int count);
/* `count` from rank 0 to rank 1, WINDOW under way, then a word back. */
void transport_stream(group *g, const buffers *b, size_t bytes, int count);

#endif

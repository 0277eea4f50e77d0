/* The loops of messages.h with UCX's own tag calls, as in ucx_perftest's tag_lat and
 * tag_bw.
 */
#ifndef BENCH_UCX_TAGS_H
#define BENCH_UCX_TAGS_H

#include "messages.h"

typedef struct tags tags;

/* Opens a separate context and worker, with UCX's defaults and UCX_* variables. */
tags *tags_open(test_rank *rank);
void tags_close(tags *t);

void tags_ping_pong(tags *t, const buffers *b, size_t bytes, int count);
void tags_stream(tags *t, const buffers *b, size_t bytes, int count);

#endif

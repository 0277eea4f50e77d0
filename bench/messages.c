/* Loops of messages through a transport's send and recv. */
#include "messages.h"

#include <sched.h>
#include <string.h>

void bind_to(int cpu) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

void buffers_open(group *g, size_t bytes, buffers *b) {
    b->out.size = b->in.size = sizeof b->out;
    RANK_OK(g->rank, g->device_ops->alloc(g->device, bytes, DLC_MEM_SHARED, &b->out));
    RANK_OK(g->rank, g->device_ops->alloc(g->device, bytes, DLC_MEM_SHARED, &b->in));
    memset(b->out.base, 1, bytes);
    memset(b->in.base, 1, bytes);
}

void buffers_close(group *g, buffers *b) {
    g->device_ops->free(g->device, &b->in);
    g->device_ops->free(g->device, &b->out);
}

/* Doesn't use group_send, which also handles memory that the CPU cannot read. */

static inline dlc_request *begin_send(group *g, const buffers *b, size_t bytes,
                                      int peer) {
    dlc_request *request;
    RANK_OK(g->rank, g->ops->send(g->endpoint, peer, 1, b->out.base, bytes, &request));
    return request;
}

static inline dlc_request *begin_recv(group *g, const buffers *b, size_t bytes,
                                      int peer) {
    dlc_request *request;
    RANK_OK(g->rank, g->ops->recv(g->endpoint, peer, 1, b->in.base, bytes, &request));
    return request;
}

static inline void end(group *g, dlc_request *request) {
    RANK_OK(g->rank, g->ops->wait(g->endpoint, request));
}

/* As there, a send is waited for before the next one: while its answer is awaited it
 * may still be on its way. */
void transport_ping_pong(group *g, const buffers *b, size_t bytes, int count) {
    int me = g->rank->rank, peer = 1 - me;
    dlc_request *out = NULL;

    for (int i = 0; i < 2 * count; i++)
        if (i % 2 == me) {
            if (out)
                end(g, out);
            out = begin_send(g, b, bytes, peer);
        } else {
            end(g, begin_recv(g, b, bytes, peer));
        }
    end(g, out);
}

void transport_stream(group *g, const buffers *b, size_t bytes, int count) {
    int sends = g->rank->rank == 0, peer = sends;
    dlc_request *request[WINDOW];

    for (int i = 0; i < count; i++) {
        dlc_request **slot = &request[(unsigned)i % WINDOW];
        if (i >= WINDOW)
            end(g, *slot);
        *slot = sends ? begin_send(g, b, bytes, peer) : begin_recv(g, b, bytes, peer);
    }
    for (int i = count > WINDOW ? count - WINDOW : 0; i < count; i++)
        end(g, request[(unsigned)i % WINDOW]);
    end(g, sends ? begin_recv(g, b, 0, peer) : begin_send(g, b, 0, peer));
}

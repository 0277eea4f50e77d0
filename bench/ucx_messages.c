/* Messages of a transport as ucx_perftest measures UCX's: two processes, each bound to
 * a processor, one buffer to send from and one to receive in, both in memory that
 * processes can share. bench/ucx.sh runs it:
 *
 *     ucx_messages TRANSPORT lat|bw BYTES ITERATIONS [OPTION=VALUE...]
 *
 * prints the mean latency one way (microseconds), or the rate (GB/s), after a tenth as
 * many iterations to warm up.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "group.h"

enum { WINDOW = 32 };

typedef struct task {
    group_kind kind;
    int latency;
    size_t bytes;
    int iterations, warm_up;
} task;

typedef struct buffers {
    dlc_memory out, in;
} buffers;

static void bind_to(int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

static void open_buffers(group *g, size_t bytes, buffers *b) {
    b->out.size = b->in.size = sizeof b->out;
    RANK_OK(g->rank, g->device_ops->alloc(g->device, bytes, DLC_MEM_SHARED, &b->out));
    RANK_OK(g->rank, g->device_ops->alloc(g->device, bytes, DLC_MEM_SHARED, &b->in));
    memset(b->out.base, 1, bytes);
    memset(b->in.base, 1, bytes);
}

static void close_buffers(group *g, buffers *b) {
    g->device_ops->free(g->device, &b->in);
    g->device_ops->free(g->device, &b->out);
}

/* As there, a send is waited for before the next one: while its answer is awaited it
 * may still be on its way. */
static void ping_pong(group *g, const task *t, const buffers *b) {
    int me = g->rank->rank;
    dlc_request *out = NULL, *in;
    uint64_t since = 0;

    for (int i = 0; i < t->warm_up + t->iterations; i++) {
        if (i == t->warm_up)
            since = dlc_now_ns();
        for (int turn = 0; turn < 2; turn++) {
            if (turn == me) {
                if (out)
                    group_wait(g, out);
                group_send(g, 1 - me, 1, b->out.base, t->bytes, &out);
            } else {
                group_recv(g, 1 - me, 1, b->in.base, t->bytes, &in);
                group_wait(g, in);
            }
        }
    }
    if (me == 0)
        printf("%.3f\n", dlc_since(since) * 1e6 / t->iterations / 2);
    group_wait(g, out);
}

/* One way, WINDOW under way; then a word back. */
static void stream(group *g, const task *t, const buffers *b) {
    int me = g->rank->rank, all = t->warm_up + t->iterations;
    dlc_request *request[WINDOW], *word;
    uint64_t since = 0;

    for (int i = 0; i < all; i++) {
        dlc_request **slot = &request[i % WINDOW];
        if (i >= WINDOW)
            group_wait(g, *slot);
        if (i == t->warm_up)
            since = dlc_now_ns();
        if (me == 0)
            group_send(g, 1, 1, b->out.base, t->bytes, slot);
        else
            group_recv(g, 0, 1, b->in.base, t->bytes, slot);
    }
    for (int i = all > WINDOW ? all - WINDOW : 0; i < all; i++)
        group_wait(g, request[i % WINDOW]);
    if (me == 1)
        group_send(g, 0, 1, b->out.base, 0, &word);
    else
        group_recv(g, 1, 1, b->in.base, 0, &word);
    group_wait(g, word);
    if (me == 0)
        printf("%.4f\n", (double)t->bytes * t->iterations / (dlc_since(since) * 1e9));
}

static void body(test_rank *rank, void *context) {
    const task *t = context;
    buffers b = {0};
    group g;

    group_open(&g, rank, &t->kind);
    open_buffers(&g, t->bytes, &b);
    bind_to(rank->rank);
    if (t->latency)
        ping_pong(&g, t, &b);
    else
        stream(&g, t, &b);
    (void)fflush(stdout);
    ranks_barrier(rank);
    close_buffers(&g, &b);
    group_close(&g);
}

int main(int count, char **arguments) {
    if (count < 5) {
        fprintf(stderr, "usage: ucx_messages TRANSPORT lat|bw BYTES ITERATIONS "
                        "[OPTION=VALUE...]\n");
        return 2;
    }
    task t = {.kind = {arguments[1], (const char *const *)arguments + 5},
              .latency = strcmp(arguments[2], "lat") == 0,
              .bytes = strtoul(arguments[3], NULL, 10),
              .iterations = (int)strtol(arguments[4], NULL, 10)};
    if (t.iterations < 1 || t.bytes < 1)
        return 2;
    t.warm_up = t.iterations / 10 + 1;
    return ranks_run(2, 120, body, &t) ? 1 : 0;
}

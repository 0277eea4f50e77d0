/* Messages of a transport as ucx_perftest measures UCX's: two processes, each bound to
 * a processor, one buffer on each side. bench/ucx.sh runs it:
 *
 *     ucx_messages TRANSPORT lat|bw BYTES ITERATIONS
 *
 * prints the median of the latencies one way (microseconds), or the rate (GB/s).
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "group.h"

enum { WINDOW = 32, BATCH = 16 };

typedef struct task {
    group_kind kind;
    int latency;
    size_t bytes;
    int iterations;
} task;

static void bind_to(int processor) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(processor, &one);
    (void)sched_setaffinity(0, sizeof one, &one);
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void send_one(group *g, void *buffer, size_t bytes) {
    dlc_request *request;
    group_send(g, 1 - g->rank->rank, 1, buffer, bytes, &request);
    group_wait(g, request);
}

static void recv_one(group *g, void *buffer, size_t bytes) {
    dlc_request *request;
    group_recv(g, 1 - g->rank->rank, 1, buffer, bytes, &request);
    group_wait(g, request);
}

static void there_and_back(group *g, const task *t, char *buffer) {
    if (g->rank->rank == 0)
        send_one(g, buffer, t->bytes);
    recv_one(g, buffer, t->bytes);
    if (g->rank->rank == 1)
        send_one(g, buffer, t->bytes);
}

static void ping_pong(group *g, const task *t, char *buffer) {
    int batches = t->iterations / BATCH + 1;
    double *us = dlc_alloc((size_t)batches, sizeof *us);

    RANK_CHECK(g->rank, us);
    for (int i = -batches / 10; i < batches; i++) {
        uint64_t since = dlc_now_ns();
        for (int k = 0; k < BATCH; k++)
            there_and_back(g, t, buffer);
        us[i < 0 ? 0 : i] = (double)(dlc_now_ns() - since) / (2000.0 * BATCH);
    }
    qsort(us, (size_t)batches, sizeof *us, compare);
    if (g->rank->rank == 0)
        printf("%.3f\n", us[batches / 2]);
    dlc_free(us);
}

/* One way, WINDOW under way; then a word back. */
static void stream(group *g, const task *t, char *buffer) {
    dlc_request *request[WINDOW];
    uint64_t since = 0;
    int warm_up = t->iterations / 10, all = warm_up + t->iterations;
    for (int i = 0; i < all; i++) {
        dlc_request **slot = &request[i % WINDOW];
        if (i >= WINDOW)
            group_wait(g, *slot);
        if (i == warm_up)
            since = dlc_now_ns();
        if (g->rank->rank == 0)
            group_send(g, 1, 1, buffer, t->bytes, slot);
        else
            group_recv(g, 0, 1, buffer, t->bytes, slot);
    }
    for (int i = all > WINDOW ? all - WINDOW : 0; i < all; i++)
        group_wait(g, request[i % WINDOW]);
    if (g->rank->rank == 1) {
        send_one(g, buffer, 0);
        return;
    }
    recv_one(g, buffer, 0);
    printf("%.4f\n", (double)t->bytes * t->iterations / (dlc_since(since) * 1e9));
}

static void body(test_rank *rank, void *context) {
    const task *t = context;
    char *buffer = dlc_alloc(t->bytes + 1, 1);
    group g;

    RANK_CHECK(rank, buffer);
    memset(buffer, 1, t->bytes);
    group_open(&g, rank, &t->kind);
    bind_to(rank->rank);
    if (t->latency)
        ping_pong(&g, t, buffer);
    else
        stream(&g, t, buffer);
    (void)fflush(stdout);
    ranks_barrier(rank);
    group_close(&g);
    dlc_free(buffer);
}

int main(int count, char **arguments) {
    if (count != 5) {
        fprintf(stderr, "usage: ucx_messages TRANSPORT lat|bw BYTES ITERATIONS\n");
        return 2;
    }
    task t = {.kind = {arguments[1], NULL},
              .latency = strcmp(arguments[2], "lat") == 0,
              .bytes = strtoul(arguments[3], NULL, 10),
              .iterations = (int)strtol(arguments[4], NULL, 10)};
    if (t.iterations < 1 || t.bytes < 1)
        return 2;
    return ranks_run(2, 120, body, &t) ? 1 : 0;
}

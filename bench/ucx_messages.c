/* Measures a transport's messages as ucx_perftest does: two processes, each bound to a
 * CPU. bench/ucx.sh runs it:
 *
 *     ucx_messages TRANSPORT lat|bw BYTES ITERATIONS [OPTION=VALUE...]
 *
 * prints the mean one-way latency (microseconds), or the bandwidth (GB/s), after a
 * tenth as many iterations for warm-up.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "messages.h"

typedef struct task {
    group_kind kind;
    int latency;
    size_t bytes;
    int iterations;
} task;

static void body(test_rank *rank, void *context) {
    const task *t = context;
    buffers b = {0};
    group g;

    group_open(&g, rank, &t->kind);
    buffers_open(&g, t->bytes, &b);
    bind_to(rank->rank);
    void (*loop)(group *, const buffers *, size_t,
                 int) = t->latency ? transport_ping_pong : transport_stream;
    loop(&g, &b, t->bytes, t->iterations / 10 + 1);
    uint64_t since = dlc_now_ns();
    loop(&g, &b, t->bytes, t->iterations);
    double each = dlc_since(since) / t->iterations;
    if (rank->rank == 0 && t->latency)
        printf("%.3f\n", each * 1e6 / 2);
    else if (rank->rank == 0)
        printf("%.4f\n", (double)t->bytes / (each * 1e9));
    (void)fflush(stdout);
    ranks_barrier(rank);
    buffers_close(&g, &b);
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
    return ranks_run(2, 120, body, &t) ? 1 : 0;
}

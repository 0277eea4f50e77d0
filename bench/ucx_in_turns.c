/* Compares messages of the ucx transport with UCX's own tag calls, alternating every
 * few milliseconds within one pair of processes:
 *
 *     ucx_in_turns [TURNS [SIZES...]]         (21 turns; 8 B .. 16 MiB)
 *
 * If a host moves the CPUs of its virtual machines, two runs measure different
 * placements. Here both loops use the same CPUs at nearly the same time, and the same
 * buffers; the result is the median of the ratios dlcore / UCX. The processes are bound
 * to CPUs 0 and 1. UCX_* variables apply to both sides.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "messages.h"
#include "ucx_tags.h"

enum { MOST = 1000 /* turns */, TURN_NS = 4000000 };

typedef struct task {
    int turns;
    const size_t *sizes; /* 0: the end */
} task;

typedef struct pair {
    group g;
    tags *t;
    buffers b;
    int streams, theirs; /* which loop, and whether UCX's */
} pair;

static void loop(pair *p, size_t bytes, int count) {
    if (p->streams)
        p->theirs ? tags_stream(p->t, &p->b, bytes, count)
                  : transport_stream(&p->g, &p->b, bytes, count);
    else
        p->theirs ? tags_ping_pong(p->t, &p->b, bytes, count)
                  : transport_ping_pong(&p->g, &p->b, bytes, count);
}

/* Seconds per message in this turn; the first tenth synchronizes the two ranks. */
static double turn(pair *p, size_t bytes, int count) {
    loop(p, bytes, count / 10 + 1);
    uint64_t since = dlc_now_ns();
    loop(p, bytes, count);
    return dlc_since(since) / count / (p->streams ? 1 : 2);
}

/* The number of messages per turn; both ranks must agree. */
static int count_for(pair *p, size_t bytes) {
    double mine = turn(p, bytes, 2 * WINDOW), all[2];
    RANK_OK(p->g.rank, ranks_all_gather(p->g.rank, &mine, sizeof mine, all));
    double count = TURN_NS * 1e-9 / all[0];
    return count < 2 * WINDOW ? 2 * WINDOW : (int)count;
}

static int compare(const void *one, const void *other) {
    double a = *(const double *)one, b = *(const double *)other;
    return (a > b) - (a < b);
}

static double median(double *of, int count) {
    qsort(of, (size_t)count, sizeof *of, compare);
    return (of[(count - 1) / 2] + of[count / 2]) / 2;
}

/* The medians over the turns of both times per message, and of their ratio. */
static void take_turns(pair *p, int streams, size_t bytes, int turns,
                       double median_of[3]) {
    double seconds[2][MOST], ratio[MOST];
    int count;

    p->streams = streams;
    p->theirs = 0;
    (void)turn(p, bytes, WINDOW);
    count = count_for(p, bytes);
    for (int i = 0; i < turns; i++) {
        for (int k = 0; k < 2; k++) {
            p->theirs = (i + k) % 2;
            seconds[p->theirs][i] = turn(p, bytes, count);
        }
        ratio[i] = seconds[0][i] / seconds[1][i];
    }
    median_of[0] = median(seconds[0], turns);
    median_of[1] = median(seconds[1], turns);
    median_of[2] = median(ratio, turns);
}

static void body(test_rank *rank, void *context) {
    const group_kind kind = {.transport = "ucx"};
    const task *todo = context;
    pair p = {.t = NULL};

    group_open(&p.g, rank, &kind);
    p.t = tags_open(rank);
    bind_to(rank->rank);
    if (rank->rank == 0)
        printf("%10s %12s %8s %6s %10s %8s %6s\n", "bytes", "one way, us", "tags",
               "ratio", "GB/s", "tags", "ratio");
    for (const size_t *bytes = todo->sizes; *bytes > 0; bytes++) {
        double way[3], rate[3], gb = (double)*bytes * 1e-9;
        buffers_open(&p.g, *bytes, &p.b);
        take_turns(&p, 0, *bytes, todo->turns, way);
        take_turns(&p, 1, *bytes, todo->turns, rate);
        buffers_close(&p.g, &p.b);
        if (rank->rank == 0)
            printf("%10zu %12.3f %8.3f %6.2f %10.3f %8.3f %6.2f\n", *bytes,
                   way[0] * 1e6, way[1] * 1e6, way[2], gb / rate[0], gb / rate[1],
                   1 / rate[2]);
        (void)fflush(stdout);
    }
    ranks_barrier(rank);
    tags_close(p.t);
    group_close(&p.g);
}

int main(int count, char **arguments) {
    static const size_t usual[] = {8,     64,     512,     4096,     16384,
                                   65536, 262144, 1048576, 16777216, 0};
    size_t sizes[32] = {0};
    task todo = {.turns = count > 1 ? (int)strtol(arguments[1], NULL, 10) : 21,
                 .sizes = count > 2 ? sizes : usual};

    for (int i = 2; i < count && i < 33; i++)
        sizes[i - 2] = strtoul(arguments[i], NULL, 10);
    if (todo.turns < 1 || todo.turns > MOST || todo.sizes[0] == 0 || count > 33) {
        fprintf(stderr, "usage: ucx_in_turns [TURNS [SIZES...]]\n");
        return 2;
    }
    return ranks_run(2, 600, body, &todo) ? 1 : 0;
}

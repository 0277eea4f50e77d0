/* The ranks start a block of operations together and run it without reading the clock.
 * A rank's time is that of the block divided by its operations; the result is the time
 * of the slowest rank. That measures a microsecond as accurately as a second. */
#include "bench_measure.h"

#include "base/clock.h"
#include "base/memory.h"
#include "comm/tags.h"

#define BLOCK_SECONDS 0.2
#define WARM_UP_SECONDS 0.05
#define ITERATIONS_MOST UINT64_C(1000000)

enum { WINDOW = 16 }; /* messages of a stream in flight */

#define TAG_DATA dlc_tag_of(DLC_TAG_BENCHMARK, 0)
#define TAG_BACK dlc_tag_of(DLC_TAG_BENCHMARK, 1)

/* ---- One operation --------------------------------------------------------------- */

typedef struct run {
    dlc_bench_group *group;
    dlc_bench_op op;
    size_t bytes, count;
    char *out, *in; /* the two buffers */
} run;

static dlc_status send(const run *r, int32_t to, dlc_tag tag, const void *from,
                       size_t bytes, dlc_request **request) {
    dlc_team *via = r->group->messages;
    return via->ops->send(via->endpoint, to, tag, from, bytes, request);
}

static dlc_status recv(const run *r, int32_t from, dlc_tag tag, void *to, size_t bytes,
                       dlc_request **request) {
    dlc_team *via = r->group->messages;
    return via->ops->recv(via->endpoint, from, tag, to, bytes, request);
}

static dlc_status wait(const run *r, dlc_request *request) {
    dlc_team *via = r->group->messages;
    return via->ops->wait(via->endpoint, request);
}

static dlc_status send_now(const run *r, int32_t to, dlc_tag tag, const void *from,
                           size_t bytes) {
    dlc_request *request = NULL;
    DLC_TRY(send(r, to, tag, from, bytes, &request));
    return wait(r, request);
}

static dlc_status recv_now(const run *r, int32_t from, dlc_tag tag, void *to,
                           size_t bytes) {
    dlc_request *request = NULL;
    DLC_TRY(recv(r, from, tag, to, bytes, &request));
    return wait(r, request);
}

/* Sends to the next rank and receives from the previous one. */
static dlc_status shift(const run *r) {
    const dlc_bench_group *g = r->group;
    int32_t next = (g->rank + 1) % g->ranks;
    int32_t before = (g->rank + g->ranks - 1) % g->ranks;
    dlc_request *in = NULL, *out = NULL;
    DLC_TRY(recv(r, before, TAG_DATA, r->in, r->bytes, &in));
    DLC_TRY(send(r, next, TAG_DATA, r->out, r->bytes, &out));
    DLC_TRY(wait(r, in));
    return wait(r, out);
}

/* One round trip between the first rank and the last. */
static dlc_status ping_pong(const run *r) {
    const dlc_bench_group *g = r->group;
    int32_t last = g->ranks - 1;
    if (g->rank == 0) {
        DLC_TRY(send_now(r, last, TAG_DATA, r->out, r->bytes));
        return recv_now(r, last, TAG_BACK, r->in, r->bytes);
    }
    if (g->rank != last)
        return DLC_OK;
    DLC_TRY(recv_now(r, 0, TAG_DATA, r->in, r->bytes));
    return send_now(r, 0, TAG_BACK, r->in, r->bytes);
}

static dlc_status collective(const run *r) {
    dlc_comm *comm = r->group->connection.comm;
    float *buffer = (float *)(void *)r->out;
    switch (r->op) {
    case BENCH_ALL_REDUCE:
        return dlc_comm_all_reduce(comm, buffer, r->count);
    case BENCH_BROADCAST:
        return dlc_comm_broadcast(comm, 0, buffer, r->bytes);
    case BENCH_ALL_GATHER:
        return dlc_comm_all_gather(comm, buffer, r->count);
    default:
        return dlc_comm_reduce_scatter(comm, buffer, r->count);
    }
}

/* ---- Blocks of operations
 * ---------------------------------------------------------------- */

/* Starts one message of a stream, after waiting for the oldest in flight. */
static dlc_status stream_one(const run *r, uint64_t i, size_t window,
                             dlc_request **request) {
    const dlc_bench_group *g = r->group;
    size_t slot = (size_t)(i % window), at = slot * r->bytes;
    if (i >= window)
        DLC_TRY(wait(r, request[slot]));
    request[slot] = NULL;
    return g->rank == 0
               ? send(r, g->ranks - 1, TAG_DATA, r->out + at, r->bytes, &request[slot])
               : recv(r, 0, TAG_DATA, r->in + at, r->bytes, &request[slot]);
}

/* Streams messages from the first rank to the last, which acknowledges the end. Each
 * message in flight has a buffer of its own. */
static dlc_status stream(const run *r, uint64_t iterations) {
    const dlc_bench_group *g = r->group;
    dlc_request *request[WINDOW] = {NULL};
    size_t room = g->memory[0].bytes / r->bytes;
    size_t window = room < WINDOW ? room : WINDOW;
    int32_t last = g->ranks - 1;
    char word = 0;
    if (g->rank != 0 && g->rank != last)
        return DLC_OK;
    for (uint64_t i = 0; i < iterations; i++)
        DLC_TRY(stream_one(r, i, window, request));
    for (uint64_t i = iterations < window ? 0 : iterations - window; i < iterations;
         i++)
        DLC_TRY(wait(r, request[i % window]));
    return g->rank == 0 ? recv_now(r, last, TAG_BACK, &word, 1)
                        : send_now(r, 0, TAG_BACK, &word, 1);
}

static dlc_status many(const run *r, uint64_t iterations) {
    if (r->op == BENCH_STREAM)
        return stream(r, iterations);
    for (uint64_t i = 0; i < iterations; i++) {
        if (r->op == BENCH_SEND_RECV)
            DLC_TRY(shift(r));
        else if (r->op == BENCH_PING_PONG)
            DLC_TRY(ping_pong(r));
        else
            DLC_TRY(collective(r));
    }
    return DLC_OK;
}

/* ---- Time ------------------------------------------------------------------------ */

typedef struct report {
    double seconds;
    int64_t stop; /* a signal was received */
} report;

/* Gives the largest of all ranks' seconds, and whether any rank was told to stop. */
static dlc_status agree(const run *r, double mine, double *most) {
    dlc_bench_group *group = r->group;
    size_t ranks = (size_t)group->ranks;
    report own = {mine, (dlc_job_requests(group->job) & DLC_JOB_STOP) != 0};
    report *all = dlc_alloc(ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(group->job, &own, sizeof own, all);
    if (status == DLC_OK) {
        *most = all[0].seconds;
        for (size_t i = 0; i < ranks; i++) {
            *most = all[i].seconds > *most ? all[i].seconds : *most;
            group->stopped |= all[i].stop != 0;
        }
    }
    dlc_free(all);
    return status;
}

/* Gives the seconds of one operation. */
static dlc_status block(const run *r, uint64_t iterations, double *seconds) {
    dlc_job_activity(r->group->job, "bench", dlc_bench_op_name((int)r->op), r->bytes);
    DLC_TRY(dlc_comm_barrier(r->group->connection.comm));
    uint64_t start = dlc_now_ns();
    DLC_TRY(many(r, iterations));
    double mine = dlc_since(start) / (double)iterations;
    if (r->op == BENCH_PING_PONG)
        mine /= 2;
    return agree(r, mine, seconds);
}

/* Runs blocks, each longer than the last, until one takes long enough. */
static dlc_status warm_up(const run *r, const dlc_bench_options *options,
                          double *seconds) {
    uint64_t iterations = options->warm_up ? options->warm_up : 1;
    for (;;) {
        DLC_TRY(block(r, iterations, seconds));
        if (r->group->stopped || options->warm_up ||
            *seconds * (double)iterations >= WARM_UP_SECONDS ||
            iterations >= ITERATIONS_MOST)
            return DLC_OK;
        iterations *= 4;
    }
}

static uint64_t iterations_for(const dlc_bench_options *options, double seconds) {
    if (options->iterations)
        return options->iterations;
    double wanted = seconds > 0 ? BLOCK_SECONDS / seconds : (double)ITERATIONS_MOST;
    return wanted < 3                         ? 3
           : wanted > (double)ITERATIONS_MOST ? ITERATIONS_MOST
                                              : (uint64_t)wanted;
}

/* ---- Checking results --------------------------------------------------------------
 */

enum { CHUNK = 1 << 16 }; /* elements that are made or compared at a time */

/* The pattern: small integers, so that sums are exact. */
static float pattern(size_t i) {
    return (float)(i * UINT64_C(0x9e3779b97f4a7c15) >> 58);
}

/* Fills elements [begin, end) of `target` with the pattern plus `more`. */
static dlc_status put_pattern(const run *r, char *target, size_t begin, size_t end,
                              float more, float *room) {
    const dlc_bench_group *g = r->group;
    for (size_t at = begin; at < end; at += CHUNK) {
        size_t n = end - at < CHUNK ? end - at : CHUNK;
        for (size_t i = 0; i < n; i++)
            room[i] = pattern(at + i) + more;
        DLC_TRY(g->device_ops->copy(g->device, NULL, target + at * sizeof(float), room,
                                    n * sizeof(float)));
    }
    return DLC_OK;
}

/* Counts the elements of [begin, end) that differ from the pattern times `times` plus
 * `more`. */
static dlc_status count_wrong(const run *r, const char *source, size_t begin,
                              size_t end, float times, float more, float *room,
                              double *wrong) {
    const dlc_bench_group *g = r->group;
    for (size_t at = begin; at < end; at += CHUNK) {
        size_t n = end - at < CHUNK ? end - at : CHUNK;
        DLC_TRY(g->device_ops->copy(g->device, NULL, room, source + at * sizeof(float),
                                    n * sizeof(float)));
        for (size_t i = 0; i < n; i++) {
            float is = room[i], should = pattern(at + i) * times + more;
            *wrong += is < should || is > should || is != is;
        }
    }
    return DLC_OK;
}

/* Fills in the input: pattern + k on rank k for reductions; the pattern for a
 * broadcast's root and for shards to be gathered, and pattern - 1 for what is to be
 * overwritten. */
static dlc_status prepare(const run *r, size_t begin, size_t end, float *room) {
    const dlc_bench_group *g = r->group;
    float rank = (float)g->rank;
    if (r->in)
        DLC_TRY(put_pattern(r, r->in, 0, r->count, -1, room));
    switch (r->op) {
    case BENCH_BROADCAST:
        return put_pattern(r, r->out, 0, r->count, g->rank == 0 ? 0 : -1, room);
    case BENCH_ALL_GATHER:
        DLC_TRY(put_pattern(r, r->out, 0, r->count, -1, room));
        return put_pattern(r, r->out, begin, end, 0, room);
    default:
        return put_pattern(r, r->out, 0, r->count, rank, room);
    }
}

static dlc_status compare(const run *r, size_t begin, size_t end, float *room,
                          double *wrong) {
    const dlc_bench_group *g = r->group;
    float ranks = (float)g->ranks, sum = ranks * (ranks - 1) / 2;
    int32_t last = g->ranks - 1;
    switch (r->op) {
    case BENCH_ALL_REDUCE:
        return count_wrong(r, r->out, 0, r->count, ranks, sum, room, wrong);
    case BENCH_REDUCE_SCATTER:
        return count_wrong(r, r->out, begin, end, ranks, sum, room, wrong);
    case BENCH_SEND_RECV:
        return count_wrong(r, r->in, 0, r->count, 1,
                           (float)((g->rank + last) % g->ranks), room, wrong);
    case BENCH_PING_PONG:
        return g->rank == 0 || g->rank == last
                   ? count_wrong(r, r->in, 0, r->count, 1, 0, room, wrong)
                   : DLC_OK;
    case BENCH_STREAM:
        return g->rank == last ? count_wrong(r, r->in, 0, r->count, 1, 0, room, wrong)
                               : DLC_OK;
    default:
        return count_wrong(r, r->out, 0, r->count, 1, 0, room, wrong);
    }
}

static dlc_status sum_wrong(const run *r, double mine, int64_t *wrong) {
    size_t ranks = (size_t)r->group->ranks;
    double *all = dlc_alloc(ranks, sizeof *all), sum = 0;
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(r->group->job, &mine, sizeof mine, all);
    for (size_t i = 0; status == DLC_OK && i < ranks; i++)
        sum += all[i];
    if (status == DLC_OK)
        *wrong = (int64_t)sum;
    dlc_free(all);
    return status;
}

static dlc_status check(const run *r, int64_t *wrong) {
    size_t begin = 0, end = r->count;
    double mine = 0;
    float *room = dlc_alloc(CHUNK, sizeof *room);
    if (!room)
        return DLC_ERR_NOMEM;
    dlc_comm_shard(r->group->connection.comm, r->count, &begin, &end);
    dlc_status status = prepare(r, begin, end, room);
    if (status == DLC_OK)
        status = dlc_comm_barrier(r->group->connection.comm);
    if (status == DLC_OK)
        status = many(r, 1);
    if (status == DLC_OK)
        status = compare(r, begin, end, room, &mine);
    dlc_free(room);
    return status == DLC_OK ? sum_wrong(r, mine, wrong) : status;
}

/* ---- Measuring ------------------------------------------------------------------- */

static dlc_status zero(const run *r) {
    const dlc_bench_group *g = r->group;
    for (int i = 0; i < 2; i++)
        if (g->memory[i].base)
            DLC_TRY(
                g->device_ops->fill(g->device, NULL, g->memory[i].base, 0, r->bytes));
    return DLC_OK;
}

dlc_status dlc_bench_measure(dlc_bench_group *group, const dlc_bench_options *options,
                             dlc_bench_op op, size_t bytes, dlc_bench_row *row) {
    run r = {.group = group,
             .op = op,
             .bytes = bytes,
             .count = bytes / sizeof(float),
             .out = group->memory[0].base,
             .in = group->memory[1].base};
    double seconds = 0;
    dlc_bench_row made = {.op = op, .bytes = bytes, .wrong = -1};
    /* Zeros stay zeros, however often they are reduced. */
    DLC_TRY(zero(&r));
    DLC_TRY(warm_up(&r, options, &seconds));
    made.iterations = iterations_for(options, seconds);
    if (!group->stopped)
        DLC_TRY(block(&r, made.iterations, &made.seconds));
    if (options->check && !group->stopped)
        DLC_TRY(check(&r, &made.wrong));
    dlc_job_activity(group->job, NULL, NULL, 0);
    *row = made;
    return DLC_OK;
}

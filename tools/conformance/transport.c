/* The checks of transports: predictions, messages and collectives. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "group.h"

enum { RANKS_MAX = 5 };

/* ---- Predictions ------------------------------------------------------------ */

static dlc_transport_prediction ask(suite_run *run, suite_member *member,
                                    char reason[256]) {
    dlc_transport_prediction made = {.size = sizeof made};
    suite_must(run, member->ops->predict(&member->args, &made, reason, 256), "predict");
    return made;
}

/* Whether each time and rate is one; none has to be if it cannot connect the group. */
static int is_plausible(const dlc_transport_prediction *p) {
    return !(p->bandwidth < 0 || p->bandwidth > 0) ||
           (p->bandwidth > 0 && isfinite(p->bandwidth) && p->small_bandwidth > 0 &&
            isfinite(p->small_bandwidth) && p->latency > 0 && isfinite(p->latency));
}

static int is_same(const dlc_transport_prediction *a,
                   const dlc_transport_prediction *b) {
    return a->size == b->size && a->latency == b->latency &&
           a->small_bandwidth == b->small_bandwidth && a->bandwidth == b->bandwidth;
}

static void predict_once(suite_run *run, const device_fixture *device, int32_t ranks,
                         int32_t nodes) {
    dlc_transport_prediction first = {.latency = 0};
    for (int32_t rank = 0; rank < ranks; rank++) {
        suite_member member = {.rank = rank, .device = *device};
        char reason[256] = "", again[256] = "";
        suite_group_arguments(run, ranks, nodes, &member);
        dlc_transport_prediction made = ask(run, &member, reason);
        dlc_transport_prediction second = ask(run, &member, again);
        first = rank > 0 ? first : made;
        if (!is_plausible(&made))
            suite_fail(run,
                       "for %d ranks on %d nodes it predicts %g s, %g and %g bytes/s, "
                       "which must be above 0",
                       ranks, nodes, made.latency, made.small_bandwidth,
                       made.bandwidth);
        if (!reason[0])
            suite_fail(run, "its prediction for %d ranks has no reason", ranks);
        if (!is_same(&made, &second) || !is_same(&made, &first))
            suite_fail(run,
                       "for %d ranks on %d nodes it predicts %g s in one call and %g s "
                       "in another",
                       ranks, nodes, first.latency,
                       rank > 0 ? made.latency : second.latency);
    }
}

static void predictions(suite_run *run) {
    device_fixture device;
    device_fixture_open(run, &device);
    for (int32_t ranks = 2; ranks <= RANKS_MAX; ranks++)
        for (int32_t nodes = 1; nodes <= ranks; nodes++)
            predict_once(run, &device, ranks, nodes);
}

/* A reason that is longer than its buffer must be truncated. */
static void truncates_its_reason(suite_run *run) {
    suite_member member = {.rank = 0};
    dlc_transport_prediction made = {.size = sizeof made};
    char buffer[16];
    device_fixture_open(run, &member.device);
    suite_group_arguments(run, 2, 1, &member);
    memset(buffer, 0x7e, sizeof buffer);
    suite_must(run, member.ops->predict(&member.args, &made, buffer, 8), "predict");
    for (size_t i = 8; i < sizeof buffer; i++)
        if (buffer[i] != 0x7e)
            suite_fail(run, "predict writes beyond the buffer for its reason");
    if (!memchr(buffer, '\0', 8))
        suite_fail(run, "the reason of a prediction does not end with a NUL");
}

/* ---- Messages --------------------------------------------------------------- */

static unsigned char byte_of(int32_t from, int32_t to, dlc_tag tag, size_t i) {
    return (unsigned char)((size_t)from * 31 + (size_t)to * 17 + (size_t)tag * 7 +
                           i * 13 + (i >> 8));
}

static void fill(unsigned char *buffer, size_t bytes, int32_t from, int32_t to,
                 dlc_tag tag) {
    for (size_t i = 0; i < bytes; i++)
        buffer[i] = byte_of(from, to, tag, i);
}

static void verify(suite_member *m, const unsigned char *buffer, size_t bytes,
                   int32_t from, dlc_tag tag) {
    for (size_t i = 0; i < bytes; i++)
        if (buffer[i] != byte_of(from, m->rank, tag, i))
            suite_fail(m->run,
                       "byte %zu of a message of %zu from rank %d to rank %d "
                       "(tag %llu) is wrong",
                       i, bytes, from, m->rank, (unsigned long long)tag);
}

/* Each rank sends to every other rank. */
static void swap_all(suite_member *m, size_t bytes, dlc_tag tag) {
    dlc_request *requests[2 * GROUP_MOST];
    unsigned char *in[GROUP_MOST] = {NULL}, *out[GROUP_MOST] = {NULL};
    int count = 0;
    for (int32_t r = 0; r < m->ranks; r++) {
        if (r == m->rank)
            continue;
        in[r] = suite_group_bytes(m, bytes);
        out[r] = suite_group_bytes(m, bytes);
        fill(out[r], bytes, m->rank, r, tag);
        suite_group_recv(m, r, tag, in[r], bytes, &requests[count++]);
        suite_group_send(m, r, tag, out[r], bytes, &requests[count++]);
    }
    while (count > 0)
        suite_group_wait(m, requests[--count]);
    for (int32_t r = 0; r < m->ranks; r++)
        if (in[r])
            verify(m, in[r], bytes, r, tag);
}

static void all_sizes(suite_member *m) {
    static const size_t sizes[] = {0,    1,    3,     8,     63,      64,     65,
                                   1000, 4096, 65535, 65537, 1000003, 3 << 20};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        swap_all(m, sizes[i], 100 + i);
}

static void messages_arrive(suite_run *run) {
    suite_group_play(run, 2, 0, all_sizes);
    suite_group_play(run, 3, 0, all_sizes);
}

/* Receives in another order than the peer sends; messages with one tag keep their
 * order. */
static void backwards(suite_member *m) {
    enum { TAGS = 6, BYTES = 300 };
    const dlc_tag high = (dlc_tag)1 << 63;
    int32_t peer = 1 - m->rank;
    dlc_request *sent[2 * TAGS], *got;
    unsigned char *out[2 * TAGS];
    for (int i = 0; i < 2 * TAGS; i++) {
        dlc_tag tag = high + (dlc_tag)(i % TAGS);
        out[i] = suite_group_bytes(m, BYTES);
        fill(out[i], BYTES, m->rank, peer, tag + (dlc_tag)(i / TAGS) * 1000);
        suite_group_send(m, peer, tag, out[i], BYTES, &sent[i]);
    }
    for (int i = TAGS - 1; i >= 0; i--)
        for (int again = 0; again < 2; again++) {
            unsigned char *in = suite_group_bytes(m, BYTES);
            dlc_tag tag = high + (dlc_tag)i;
            suite_group_recv(m, peer, tag, in, BYTES, &got);
            suite_group_wait(m, got);
            verify(m, in, BYTES, peer, tag + (dlc_tag)again * 1000);
        }
    for (int i = 0; i < 2 * TAGS; i++)
        suite_group_wait(m, sent[i]);
}

/* Tags that differ in one bit, of any weight. */
static void all_bits(suite_member *m) {
    enum { BITS = 64, BYTES = 8 };
    int32_t peer = 1 - m->rank;
    dlc_request *sent[BITS], *got;
    for (int i = 0; i < BITS; i++) {
        dlc_tag tag = (dlc_tag)1 << i;
        unsigned char *out = suite_group_bytes(m, BYTES);
        fill(out, BYTES, m->rank, peer, (dlc_tag)i);
        suite_group_send(m, peer, tag, out, BYTES, &sent[i]);
    }
    for (int i = BITS - 1; i >= 0; i--) {
        unsigned char *in = suite_group_bytes(m, BYTES);
        suite_group_recv(m, peer, (dlc_tag)1 << i, in, BYTES, &got);
        suite_group_wait(m, got);
        verify(m, in, BYTES, peer, (dlc_tag)i);
    }
    for (int i = 0; i < BITS; i++)
        suite_group_wait(m, sent[i]);
}

static void tags_match(suite_run *run) {
    suite_group_play(run, 2, 0, backwards);
    suite_group_play(run, 2, 0, all_bits);
}

static void flood(suite_member *m) {
    enum { COUNT = 300, BYTES = 700 };
    int32_t peer = 1 - m->rank;
    dlc_request *sent[COUNT];
    unsigned char *out = suite_group_bytes(m, BYTES);
    fill(out, BYTES, m->rank, peer, 9);
    for (int i = 0; i < COUNT; i++)
        suite_group_send(m, peer, 9, out, BYTES, &sent[i]);
    for (int i = 0; i < COUNT; i++) {
        dlc_request *got;
        unsigned char *in = suite_group_bytes(m, BYTES);
        suite_group_recv(m, peer, 9, in, BYTES, &got);
        suite_group_wait(m, got);
        verify(m, in, BYTES, peer, 9);
    }
    for (int i = 0; i < COUNT; i++)
        suite_group_wait(m, sent[i]);
}

static void floods_pass(suite_run *run) {
    suite_group_play(run, 2, 0, flood);
}

/* Both ranks send before either receives. */
static void send_first(suite_member *m) {
    enum { BYTES = 6 << 20 };
    int32_t peer = 1 - m->rank;
    dlc_request *sent, *got;
    unsigned char *out = suite_group_bytes(m, BYTES), *in = suite_group_bytes(m, BYTES);
    fill(out, BYTES, m->rank, peer, 4);
    suite_group_send(m, peer, 4, out, BYTES, &sent);
    suite_group_barrier(m);
    suite_group_recv(m, peer, 4, in, BYTES, &got);
    suite_group_wait(m, sent);
    suite_group_wait(m, got);
    verify(m, in, BYTES, peer, 4);
}

static void large_both_ways(suite_run *run) {
    suite_group_play(run, 2, 0, send_first);
}

static void by_test_alone(suite_member *m) {
    enum { BYTES = 100000 };
    int32_t peer = 1 - m->rank;
    dlc_request *requests[2];
    unsigned char *out = suite_group_bytes(m, BYTES), *in = suite_group_bytes(m, BYTES);
    fill(out, BYTES, m->rank, peer, 5);
    suite_group_recv(m, peer, 5, in, BYTES, &requests[0]);
    suite_group_send(m, peer, 5, out, BYTES, &requests[1]);
    for (int left = 2; left > 0;)
        for (int i = 0; i < 2; i++) {
            int done = 0;
            if (!requests[i])
                continue;
            suite_must(m->run, m->ops->test(m->endpoint, requests[i], &done), "test");
            if (done) {
                requests[i] = NULL;
                left--;
            }
        }
    verify(m, in, BYTES, peer, 5);
}

static void test_moves_on(suite_run *run) {
    suite_group_play(run, 2, 0, by_test_alone);
}

/* ---- Collectives ------------------------------------------------------------ */

static const size_t counts[] = {1, 2, 3, 5, 16, 17, 255, 1000, 4097, 65537, 300001};

static void summand(float *x, size_t count, int32_t rank, uint64_t turn) {
    suite_random(x, count, 1000 * turn + (uint64_t)rank);
}

/* The sum over the ranks in pairwise order. */
static void expect_sum(suite_member *m, float *sum, size_t count, uint64_t turn) {
    const float *sources[GROUP_MOST];
    for (int32_t r = 0; r < m->ranks; r++) {
        float *x = device_fixture_floats(m->run, &m->device, count);
        summand(x, count, r, turn);
        sources[r] = x;
    }
    suite_must(
        m->run,
        m->device.ops->sum(m->device.handle, NULL, count, sources, m->ranks, sum),
        "the device's sum");
}

static void compare(suite_member *m, const char *call, const float *x,
                    const float *wanted, size_t begin, size_t end, size_t count) {
    int exact = (m->run->feature->caps & DLC_TRANSPORT_PAIRWISE) != 0;
    for (size_t i = begin; i < end; i++) {
        double error = fabs((double)x[i] - (double)wanted[i]);
        if (exact ? suite_bits(x[i]) != suite_bits(wanted[i])
                  : !(error <= 1e-5 * (1 + fabs((double)wanted[i]))))
            suite_fail(m->run,
                       "%s of %zu elements over %d ranks: element %zu is %.9g, "
                       "not %.9g%s",
                       call, count, m->ranks, i, (double)x[i], (double)wanted[i],
                       exact ? " (it is DLC_TRANSPORT_PAIRWISE)" : "");
    }
}

static size_t slice(size_t count, int32_t r, int32_t ranks) {
    return count * (size_t)r / (size_t)ranks;
}

static void try_all_reduce(suite_member *m, size_t count, uint64_t turn, float *x,
                           const float *wanted) {
    if (!DLC_CAN(m->ops, all_reduce))
        return;
    summand(x, count, m->rank, turn);
    suite_must(m->run, m->ops->all_reduce(m->endpoint, x, count), "all_reduce");
    compare(m, "all_reduce", x, wanted, 0, count, count);
}

static void try_reduce_scatter(suite_member *m, size_t count, uint64_t turn, float *x,
                               const float *wanted) {
    if (!DLC_CAN(m->ops, reduce_scatter))
        return;
    summand(x, count, m->rank, turn);
    suite_must(m->run, m->ops->reduce_scatter(m->endpoint, x, count), "reduce_scatter");
    compare(m, "reduce_scatter", x, wanted, slice(count, m->rank, m->ranks),
            slice(count, m->rank + 1, m->ranks), count);
}

static void try_all_gather(suite_member *m, size_t count, float *x,
                           const float *wanted) {
    size_t begin = slice(count, m->rank, m->ranks);
    size_t end = slice(count, m->rank + 1, m->ranks);
    if (!DLC_CAN(m->ops, all_gather))
        return;
    memset(x, 0, count * sizeof *x);
    memcpy(x + begin, wanted + begin, (end - begin) * sizeof *x);
    suite_must(m->run, m->ops->all_gather(m->endpoint, x, count), "all_gather");
    compare(m, "all_gather", x, wanted, 0, count, count);
}

static void try_broadcast(suite_member *m, size_t count, uint64_t turn, float *x,
                          const float *wanted) {
    if (!DLC_CAN(m->ops, broadcast))
        return;
    int32_t root = (int32_t)(turn % (uint64_t)m->ranks);
    memset(x, 0, count * sizeof *x);
    if (m->rank == root)
        memcpy(x, wanted, count * sizeof *x);
    suite_must(m->run, m->ops->broadcast(m->endpoint, root, x, count * sizeof *x),
               "broadcast");
    compare(m, "broadcast", x, wanted, 0, count, count);
}

/* `skewed`: the ranks enter each collective at different times. */
static void collectives(suite_member *m, int skewed) {
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        size_t count = counts[c];
        float *x = device_fixture_floats(m->run, &m->device, count);
        float *wanted = device_fixture_floats(m->run, &m->device, count);
        expect_sum(m, wanted, count, c + 1);
        for (int32_t call = 0; call < 4; call++) {
            if (skewed)
                suite_group_delay(m, (int32_t)c * 4 + call);
            if (call == 0)
                try_all_reduce(m, count, c + 1, x, wanted);
            else if (call == 1)
                try_reduce_scatter(m, count, c + 1, x, wanted);
            else if (call == 2)
                try_all_gather(m, count, x, wanted);
            else
                try_broadcast(m, count, c + 1, x, wanted);
        }
    }
}

static void collect_at_once(suite_member *m) {
    collectives(m, 0);
}

static void collect_skewed(suite_member *m) {
    collectives(m, 1);
}

static void must_collect(suite_run *run) {
    const dlc_transport_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, all_reduce) && !DLC_CAN(ops, reduce_scatter) &&
        !DLC_CAN(ops, all_gather) && !DLC_CAN(ops, broadcast))
        suite_skip(run, "it has no collectives; the core builds them from messages");
}

static void collectives_are_right(suite_run *run) {
    must_collect(run);
    for (int32_t ranks = 2; ranks <= RANKS_MAX; ranks++)
        suite_group_play(run, ranks, 0, collect_at_once);
}

static void ranks_may_be_skewed(suite_run *run) {
    must_collect(run);
    suite_group_play(run, 3, 0, collect_skewed);
}

/* All-reduce at several offsets of registered memory. */
static void in_registered_memory(suite_member *m) {
    enum { COUNT = 100003 };
    dlc_memory memory = {.size = sizeof memory};
    suite_must(m->run,
               m->device.ops->alloc(m->device.handle, sizeof(float) * 2 * COUNT,
                                    DLC_MEM_SHARED, &memory),
               "the device's alloc");
    suite_must(m->run, m->ops->register_buffer(m->endpoint, &memory),
               "register_buffer");
    float *wanted = device_fixture_floats(m->run, &m->device, COUNT);
    expect_sum(m, wanted, COUNT, 77);
    for (size_t at = 0; at <= COUNT; at += 33333)
        try_all_reduce(m, COUNT, 77, (float *)memory.base + at, wanted);
}

static void registers_buffers(suite_run *run) {
    const dlc_transport_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, register_buffer) || !DLC_CAN(ops, all_reduce))
        suite_skip(run, "it has no register_buffer");
    suite_group_play(run, 2, 0, in_registered_memory);
    suite_group_play(run, 3, 0, in_registered_memory);
}

static void messages_between_collectives(suite_member *m) {
    float *x = device_fixture_floats(m->run, &m->device, 1000);
    float *wanted = device_fixture_floats(m->run, &m->device, 1000);
    expect_sum(m, wanted, 1000, 3);
    for (int i = 0; i < 10; i++) {
        swap_all(m, 500, (dlc_tag)i);
        try_all_reduce(m, 1000, 3, x, wanted);
    }
}

static void mixes(suite_run *run) {
    must_collect(run);
    suite_group_play(run, 3, 0, messages_between_collectives);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_TRANSPORT, 0, SUITE_LOADED, 60, run }

const suite_check suite_transport_checks[] = {
    CHECK("transport.predict",
          "predictions are plausible, the same on every rank, with a reason",
          predictions),
    CHECK("transport.reason", "the reason is truncated to its buffer",
          truncates_its_reason),
    CHECK("transport.messages", "messages of any size arrive whole", messages_arrive),
    CHECK("transport.tags", "messages are matched by tag and keep their order",
          tags_match),
    CHECK("transport.flood", "any number of requests can be in flight", floods_pass),
    CHECK("transport.large", "both ranks may send before they receive",
          large_both_ways),
    CHECK("transport.test", "test alone makes progress", test_moves_on),
    CHECK("transport.collectives",
          "collectives are right for any count on 2 to 5 ranks", collectives_are_right),
    CHECK("transport.skew", "ranks may enter a collective at different times",
          ranks_may_be_skewed),
    CHECK("transport.register_buffer", "collectives work in registered memory",
          registers_buffers),
    CHECK("transport.mixed", "messages and collectives can be mixed", mixes),
    {.name = NULL},
};

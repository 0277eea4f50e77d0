/* Copies into shared memory, with plain or streaming stores, whichever is faster on
 * this machine at this time.
 *
 * A cache line of a slot is in the cache of the rank that read it last, and a plain
 * store first fetches it from there. Between cores that share a cache that is fastest;
 * between cores that don't it is slow (measured on a Zen 4 machine: 30 GB/s and 2
 * GB/s), and streaming stores to memory do much better (16 GB/s). Which cores the ranks
 * run on is not known here, and on a virtual machine it changes; so a small part of the
 * copies is used to time both ways.
 *
 * Each writer chooses for itself; readers need not know.
 */
#include <string.h>

#include "shm.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum {
    LEAST = 4096,  /* bytes worth the choice */
    PROBE = 16384, /* bytes long enough to time */
    EVERY = 64,    /* copies between two timings of one way */
};

/* Plain stores win unless streaming takes less than half the time: the reader fetches
 * streamed data from memory and not from a cache. */
#define PLAIN_UP_TO 2.0

/* Bypasses the caches; dst is aligned to 16 bytes, bytes is a multiple of 64. */
static void stream(void *dst, const void *src, size_t bytes) {
#if defined(__x86_64__)
    __m128i *to = dst;
    const __m128i *from = src;
    for (size_t i = 0; i < bytes / sizeof *to; i += 4) {
        __m128i a = _mm_loadu_si128(from + i), b = _mm_loadu_si128(from + i + 1);
        __m128i c = _mm_loadu_si128(from + i + 2), d = _mm_loadu_si128(from + i + 3);
        _mm_stream_si128(to + i, a);
        _mm_stream_si128(to + i + 1, b);
        _mm_stream_si128(to + i + 2, c);
        _mm_stream_si128(to + i + 3, d);
    }
    _mm_sfence(); /* before the counter that publishes them */
#else
    memcpy(dst, src, bytes);
#endif
}

static void copy(int streamed, unsigned char *dst, const unsigned char *src,
                 size_t bytes) {
    size_t lines = streamed ? bytes / LINE * LINE : 0;
    if (lines > 0)
        stream(dst, src, lines);
    if (bytes > lines)
        memcpy(dst + lines, src + lines, bytes - lines);
}

/* Nanoseconds per byte, as a moving average: a new time counts for one half. */
static void time_copy(copy_cost *p, int streamed, unsigned char *dst,
                      const unsigned char *src, size_t bytes) {
    uint64_t since = host->now_ns();
    copy(streamed, dst, src, bytes);
    double cost = (double)(host->now_ns() - since) / (double)bytes;
    double *usual = &p->cost[streamed];

    *usual = *usual > 0.0 ? (*usual + cost) / 2.0 : cost;
    p->streamed = p->cost[1] > 0.0 && p->cost[0] > PLAIN_UP_TO * p->cost[1];
}

void stage(copy_cost *p, void *dst, const void *src, size_t bytes) {
    unsigned round = bytes < PROBE ? EVERY : p->copies++ % EVERY;

    if (round < 2)
        time_copy(p, round == 0, dst, src, bytes);
    else
        copy(p->streamed && bytes >= LEAST, dst, src, bytes);
}

/* A cache line that its reader only reads stays shared by both cores, and writing it
 * again is slow: 7 GB/s on a Zen 4 machine. A line that the reader writes becomes
 * exclusive to the reader, and is rewritten at 37 GB/s. So the first word of each line
 * is written back. */
void drain(void *dst, void *shared, size_t bytes) {
    unsigned char *to = dst, *from = shared;
    size_t i = 0;

    for (; i + LINE <= bytes; i += LINE) {
        uint64_t first;
        memcpy(to + i, from + i, LINE);
        memcpy(&first, to + i, sizeof first);
        *(volatile uint64_t *)(void *)(from + i) = first;
    }
    if (i < bytes)
        memcpy(to + i, from + i, bytes - i);
}

dlc_status copy_in(dlc_endpoint *e, void *shared, const void *src, size_t bytes) {
    if (!e->host_memory)
        return copy_queue_add(e, &e->message_copies, shared, src, bytes);
    stage(&e->copy_cost, shared, src, bytes);
    return DLC_OK;
}

dlc_status copy_out(dlc_endpoint *e, void *dst, void *shared, size_t bytes) {
    if (!e->host_memory)
        return copy_queue_add(e, &e->message_copies, dst, shared, bytes);
    drain(dst, shared, bytes);
    return DLC_OK;
}

dlc_status copies_done(dlc_endpoint *e) {
    if (!e->message_copies.pending)
        return DLC_OK;
    dlc_status status = copy_queue_record(e, &e->message_copies, 0);
    return status == DLC_OK ? copy_queue_wait(e, &e->message_copies, 0) : status;
}

/* For devices without sum_to. */
static dlc_status sum_and_copy(dlc_endpoint *e, dlc_queue *order, size_t n,
                               int32_t targets) {
    const dlc_device_ops *ops = e->args->device_ops;
    dlc_device *device = e->args->device;
    float *sum = e->targets[0];
    dlc_status status = ops->sum(device, order, n, e->sources, e->ranks, sum);

    for (int32_t i = 1; i < targets && status == DLC_OK; i++)
        status = ops->copy(device, order, e->targets[i], sum, n * sizeof *sum);
    return status;
}

static dlc_status sum_piece(dlc_endpoint *e, dlc_queue *order, size_t n,
                            int32_t targets) {
    const dlc_transport_args *args = e->args;

    if (targets == 1 || !DLC_CAN(args->device_ops, sum_to))
        return sum_and_copy(e, order, n, targets);
    return args->device_ops->sum_to(args->device, order, n, e->sources, e->ranks,
                                    e->targets, targets);
}

dlc_status sum_to(dlc_endpoint *e, dlc_queue *order, size_t n, int32_t targets) {
    dlc_status status = DLC_OK;

    size_t most = e->host_memory ? SERIAL : n;
    for (size_t at = 0; at < n && status == DLC_OK; at += most) {
        size_t piece = n - at < most ? n - at : most;
        status = sum_piece(e, order, piece, targets);
        for (int32_t r = 0; r < e->ranks; r++)
            e->sources[r] += piece;
        for (int32_t i = 0; i < targets; i++)
            e->targets[i] += piece;
    }
    return status;
}

/* Copies into shared memory, in whichever of two ways is faster here and now.
 *
 * A line of a slot lies in the cache of the rank that read it last. Writing to it in
 * the plain way first fetches it from there. Between cores that share a cache that
 * is the fastest; between cores that don't it is slow (measured on a Zen 4 machine:
 * 30 GB/s and 2 GB/s), and stores that go past the caches to memory are much better
 * there (16 GB/s). Where the ranks' cores lie is not ours to know, and on a virtual
 * machine it changes; so a small part of the copies is used to time both ways.
 *
 * How it is written is each writer's own affair: a reader need not know.
 */
#include <string.h>

#include "shm.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum {
    LEAST = 4096,  /* bytes that are worth a thought */
    PROBE = 16384, /* bytes that are worth timing */
    EVERY = 64,    /* copies between two timings of one way */
};

/* Plain stores unless the others take less than half the time: what was streamed
 * comes to its reader from memory, not from a cache. */
#define PLAIN_UP_TO 2.0

/* Past the caches; dst is at a multiple of 16 bytes, bytes a multiple of 64. */
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
    _mm_sfence(); /* before the word that tells of them */
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

/* Nanoseconds a byte; a new time counts for a half. */
static void time_copy(pace *p, int streamed, unsigned char *dst,
                      const unsigned char *src, size_t bytes) {
    uint64_t since = host->now_ns();
    copy(streamed, dst, src, bytes);
    double cost = (double)(host->now_ns() - since) / (double)bytes;
    double *usual = &p->cost[streamed];

    *usual = *usual > 0.0 ? (*usual + cost) / 2.0 : cost;
    p->streamed = p->cost[1] > 0.0 && p->cost[0] > PLAIN_UP_TO * p->cost[1];
}

void stage(pace *p, void *dst, const void *src, size_t bytes) {
    unsigned turn = bytes < PROBE ? EVERY : p->copies++ % EVERY;

    if (turn < 2)
        time_copy(p, turn == 0, dst, src, bytes);
    else
        copy(p->streamed && bytes >= LEAST, dst, src, bytes);
}

/* A line that its reader only reads stays with both cores, and to write it again is
 * slow: 7 GB/s on a Zen 4 machine. One that the reader writes, too, belongs to the
 * reader alone, and comes back at 37 GB/s. So each line gets its first word written to
 * it. */
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
        return lane_copy(e, &e->pass, shared, src, bytes);
    stage(&e->pace, shared, src, bytes);
    return DLC_OK;
}

dlc_status copy_out(dlc_endpoint *e, void *dst, void *shared, size_t bytes) {
    if (!e->host_memory)
        return lane_copy(e, &e->pass, dst, shared, bytes);
    drain(dst, shared, bytes);
    return DLC_OK;
}

dlc_status copies_done(dlc_endpoint *e) {
    if (!e->pass.given)
        return DLC_OK;
    dlc_status status = lane_mark(e, &e->pass, 0);
    return status == DLC_OK ? lane_await(e, &e->pass, 0) : status;
}

/* For devices that have no such call. */
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

/* See stretches.h. */
#include "stretches.h"

/* The core's promises that the cutting relies on. */
static dlc_status check_args(const dlc_host *host, const dlc_solver_args *args) {
    const dlc_exchange *exchange = args->exchange;
    const dlc_segment *segment = args->segment;
    size_t end = 0;
    for (int32_t s = 0; s < args->segments; s++, segment = DLC_NEXT(segment)) {
        if (segment->offset < end)
            return host->fail(DLC_ERR_INTERNAL, "segment %s lies before the one before",
                              segment->name);
        end = segment->offset + segment->count;
    }
    if (args->tail > args->count || end > args->count - args->tail)
        return host->fail(DLC_ERR_INTERNAL, "the segments reach into the tail");
    if (exchange->buckets < 1 || exchange->bucket_begin[0] != 0 ||
        exchange->bucket_begin[exchange->buckets] != args->count)
        return host->fail(DLC_ERR_INTERNAL, "the buckets don't cover the arena");
    return DLC_OK;
}

/* Joins a part of a segment to the stretch before it in the bucket (which begins with
 * stretch `first`), or begins a new one. What lies between two segments is padding:
 * zero stays zero. */
static size_t add(stretch *at, size_t first, size_t count, size_t begin, size_t end,
                  const dlc_segment *segment) {
    float rate = (float)segment->rate, decay = (float)segment->decay;
    stretch *next = &at[count];
    if (end <= begin || segment->rate == 0)
        return count;
    if (count > first && next[-1].rate == rate && next[-1].decay == decay) {
        next[-1].count = end - next[-1].begin;
        return count;
    }
    *next = (stretch){
        .begin = begin, .count = end - begin, .rate = rate, .decay = decay};
    return count + 1;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static void cut_segments(const dlc_solver_args *args, const size_t *own_begin,
                         const size_t *own_end, stretches *cut) {
    const size_t *border = args->exchange->bucket_begin;
    const dlc_segment *segment = args->segment;
    int32_t s = 0;
    size_t count = 0;
    for (int32_t b = 0; b < args->exchange->buckets; b++) {
        size_t begin = own_begin ? own_begin[b] : border[b];
        size_t end = own_end ? own_end[b] : border[b + 1];
        size_t first = count;
        cut->first[b] = first;
        while (s < args->segments && segment->offset < border[b + 1]) {
            size_t segment_end = segment->offset + segment->count;
            count = add(cut->at, first, count, larger(segment->offset, begin),
                        smaller(segment_end, end), segment);
            if (segment_end > border[b + 1])
                break; /* the rest of it is in the next bucket */
            s++;
            segment = DLC_NEXT(segment);
        }
    }
    cut->first[args->exchange->buckets] = count;
}

dlc_status stretches_cut(const dlc_host *host, const dlc_solver_args *args,
                         const size_t *own_begin, const size_t *own_end,
                         stretches *cut) {
    dlc_status status = check_args(host, args);
    if (status != DLC_OK)
        return status;
    /* Each border cuts at most one segment in two. */
    size_t buckets = (size_t)args->exchange->buckets;
    stretches made = {
        .at = host->alloc(((size_t)args->segments + buckets) * sizeof *made.at),
        .first = host->alloc((buckets + 1) * sizeof *made.first)};
    if (!made.at || !made.first) {
        stretches_free(host, &made);
        return DLC_ERR_NOMEM;
    }
    cut_segments(args, own_begin, own_end, &made);
    *cut = made;
    return DLC_OK;
}

void stretches_free(const dlc_host *host, stretches *cut) {
    host->free(cut->at);
    host->free(cut->first);
    *cut = (stretches){0};
}

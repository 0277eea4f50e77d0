/* Cuts the segments of an arena at bucket borders and joins neighbours with equal
 * multipliers. */
#include "param_ranges.h"

/* Checks what the core promises about segments and buckets. */
static dlc_status check_args(const dlc_host *host, const dlc_solver_args *args) {
    const dlc_exchange *exchange = args->exchange;
    const dlc_segment *segment = args->segment;
    size_t end = 0;
    for (int32_t s = 0; s < args->segments; s++, segment = DLC_NEXT(segment)) {
        if (segment->offset < end)
            return host->fail(DLC_ERR_INTERNAL,
                              "segment %s begins before the end of the one before it",
                              segment->name);
        end = segment->offset + segment->count;
    }
    if (args->control_words > args->count || end > args->count - args->control_words)
        return host->fail(DLC_ERR_INTERNAL, "the segments overlap the control words");
    if (exchange->buckets < 1 || exchange->bucket_begin[0] != 0 ||
        exchange->bucket_begin[exchange->buckets] != args->count)
        return host->fail(DLC_ERR_INTERNAL, "the buckets don't cover the arena");
    return DLC_OK;
}

/* Appends [begin, end) of a segment: extends the previous range of this bucket (whose
 * first range is number `first`) where the multipliers are equal, or begins a new one.
 * The gap between two segments is padding, which stays zero under any update. */
static size_t add(param_range *at, size_t first, size_t count, size_t begin, size_t end,
                  const dlc_segment *segment) {
    float lr_mult = (float)segment->lr_mult, decay_mult = (float)segment->decay_mult;
    param_range *next = &at[count];
    if (end <= begin || segment->lr_mult == 0)
        return count;
    if (count > first && next[-1].lr_mult == lr_mult &&
        next[-1].decay_mult == decay_mult) {
        next[-1].count = end - next[-1].begin;
        return count;
    }
    *next = (param_range){.begin = begin,
                          .count = end - begin,
                          .lr_mult = lr_mult,
                          .decay_mult = decay_mult};
    return count + 1;
}

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

static void cut_segments(const dlc_solver_args *args, const size_t *shard_begin,
                         const size_t *shard_end, param_ranges *ranges) {
    const size_t *border = args->exchange->bucket_begin;
    const dlc_segment *segment = args->segment;
    int32_t s = 0;
    size_t count = 0;
    for (int32_t b = 0; b < args->exchange->buckets; b++) {
        size_t begin = shard_begin ? shard_begin[b] : border[b];
        size_t end = shard_end ? shard_end[b] : border[b + 1];
        size_t first = count;
        ranges->first[b] = first;
        while (s < args->segments && segment->offset < border[b + 1]) {
            size_t segment_end = segment->offset + segment->count;
            count = add(ranges->at, first, count, larger(segment->offset, begin),
                        smaller(segment_end, end), segment);
            if (segment_end > border[b + 1])
                break; /* the rest of the segment is in the next bucket */
            s++;
            segment = DLC_NEXT(segment);
        }
    }
    ranges->first[args->exchange->buckets] = count;
}

dlc_status param_ranges_make(const dlc_host *host, const dlc_solver_args *args,
                             const size_t *shard_begin, const size_t *shard_end,
                             param_ranges *ranges) {
    dlc_status status = check_args(host, args);
    if (status != DLC_OK)
        return status;
    /* Each bucket border cuts at most one segment in two. */
    size_t buckets = (size_t)args->exchange->buckets;
    param_ranges made = {
        .at = host->alloc(((size_t)args->segments + buckets) * sizeof *made.at),
        .first = host->alloc((buckets + 1) * sizeof *made.first)};
    if (!made.at || !made.first) {
        param_ranges_free(host, &made);
        return DLC_ERR_NOMEM;
    }
    cut_segments(args, shard_begin, shard_end, &made);
    *ranges = made;
    return DLC_OK;
}

void param_ranges_free(const dlc_host *host, param_ranges *ranges) {
    host->free(ranges->at);
    host->free(ranges->first);
    *ranges = (param_ranges){0};
}

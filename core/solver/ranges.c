/* Cuts the segments of an arena at bucket borders and joins neighbours with equal
 * multipliers. */
#include "solver/ranges.h"

#include "base/memory.h"
#include "base/status.h"

static dlc_status check_args(const dlc_param_ranges_args *args, const size_t *border,
                             int32_t buckets) {
    size_t end = 0;
    for (int32_t s = 0; s < args->segments; s++) {
        const dlc_segment *segment = &args->segment[s];
        if (segment->offset < end)
            return dlc_fail(DLC_ERR_INTERNAL,
                            "segment %s begins before the end of the one before it",
                            segment->name);
        end = segment->offset + segment->count;
    }
    if (end > args->count)
        return dlc_fail(DLC_ERR_INTERNAL, "the segments overlap the control words");
    if (buckets < 1 || border[0] != 0 || border[buckets] < args->count)
        return dlc_fail(DLC_ERR_INTERNAL, "the buckets don't cover the arena");
    return DLC_OK;
}

/* Appends [begin, end) of a segment: extends the previous range of this bucket (whose
 * first range is number `first`) where the multipliers are equal, or begins a new one.
 * The gap between two segments is padding, which has no gradient. A segment that is
 * left out is no gap. */
static size_t add_range(const dlc_param_ranges_args *args, dlc_param_range *at,
                        size_t first, size_t count, size_t begin, size_t end,
                        const dlc_segment *segment) {
    float lr_mult = (float)segment->lr_mult, decay_mult = (float)segment->decay_mult;
    dlc_param_range *next = &at[count];
    if (end <= begin || segment->lr_mult == 0)
        return count;
    if (!args->whole && count > first && segment[-1].lr_mult != 0 &&
        next[-1].lr_mult == lr_mult && next[-1].decay_mult == decay_mult) {
        next[-1].count = end - next[-1].begin;
        return count;
    }
    *next = (dlc_param_range){.begin = begin,
                              .count = end - begin,
                              .slot_begin = begin,
                              .segment = (int32_t)(segment - args->segment),
                              .lr_mult = lr_mult,
                              .decay_mult = decay_mult};
    return count + 1;
}

static size_t greater(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t lesser(size_t a, size_t b) {
    return a < b ? a : b;
}

static void cut_segments(const dlc_param_ranges_args *args, const size_t *border,
                         dlc_param_ranges *ranges) {
    int32_t s = 0;
    size_t count = 0;
    for (int32_t b = 0; b < ranges->buckets; b++) {
        size_t begin = args->shard_begin ? args->shard_begin[b] : border[b];
        size_t end = args->shard_end ? args->shard_end[b] : border[b + 1];
        size_t first = count;
        ranges->first[b] = first;
        for (; s < args->segments && args->segment[s].offset < border[b + 1]; s++) {
            const dlc_segment *segment = &args->segment[s];
            size_t segment_end = segment->offset + segment->count;
            count = add_range(args, ranges->at, first, count,
                              greater(segment->offset, begin), lesser(segment_end, end),
                              segment);
            if (segment_end > border[b + 1])
                break; /* the rest of the segment is in the next bucket */
        }
    }
    ranges->first[ranges->buckets] = count;
}

/* Slots have only shards, one after the other. */
static void place_in_slots(const dlc_param_ranges_args *args,
                           const dlc_param_ranges *ranges) {
    for (int32_t b = 0; args->slot_begin && b < ranges->buckets; b++)
        for (size_t i = ranges->first[b]; i < ranges->first[b + 1]; i++)
            ranges->at[i].slot_begin += args->slot_begin[b] - args->shard_begin[b];
}

dlc_status dlc_param_ranges_make(const dlc_param_ranges_args *args,
                                 dlc_param_ranges *ranges) {
    const size_t whole_arena[] = {0, args->count};
    const size_t *border = args->bucket_begin ? args->bucket_begin : whole_arena;
    int32_t buckets = args->bucket_begin ? args->buckets : 1;
    DLC_TRY(check_args(args, border, buckets));
    /* Each bucket border cuts at most one segment in two. */
    size_t most = (size_t)args->segments + (size_t)buckets;
    dlc_param_ranges made = {
        .at = dlc_alloc(most, sizeof *made.at),
        .first = dlc_alloc((size_t)buckets + 1, sizeof *made.first),
        .buckets = buckets};
    if (!made.at || !made.first) {
        dlc_param_ranges_free(&made);
        return DLC_ERR_NOMEM;
    }
    cut_segments(args, border, &made);
    place_in_slots(args, &made);
    *ranges = made;
    return DLC_OK;
}

void dlc_param_ranges_free(dlc_param_ranges *ranges) {
    dlc_free(ranges->at);
    dlc_free(ranges->first);
    *ranges = (dlc_param_ranges){0};
}

/* Cuts the gradient arena into buckets (dlc_exchange_plan_buckets). */
#include <stdint.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/exchange.h"
#include "comm/team.h"

/* A segment isn't cut into buckets smaller than this. */
enum { MIN_BYTES = 64 << 10 };

/* How many buckets `count` elements make. */
static size_t parts_of(size_t count, size_t target_bytes) {
    size_t least = target_bytes > MIN_BYTES ? target_bytes : MIN_BYTES;
    size_t parts = count * sizeof(float) / least;
    return parts > 1 ? parts : 1;
}

/* Where part i of `parts` ends, rounded to whole cache lines. */
static size_t part_end(size_t begin, size_t end, size_t i, size_t parts) {
    if (i + 1 == parts)
        return end;
    return begin + dlc_slice(end - begin, (int32_t)(i + 1), (int32_t)parts) / 16 * 16;
}

dlc_status dlc_exchange_plan_buckets(const size_t *segment_end, size_t segments,
                                     size_t target_bytes, size_t **begin,
                                     int32_t *buckets) {
    size_t all = segments ? segment_end[segments - 1] : 0;
    size_t room = segments + parts_of(all, target_bytes) +
                  1; /* no part is smaller than target_bytes */
    size_t *cut = dlc_alloc(room, sizeof *cut);
    size_t count = 0;

    if (!cut)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < segments; i++) {
        size_t from = cut[count], end = segment_end[i];
        if (end < from || end > all || room > INT32_MAX) {
            dlc_free(cut);
            return dlc_fail(DLC_ERR_INTERNAL, "segment %zu ends before it begins", i);
        }
        if ((end - from) * sizeof(float) < target_bytes && i + 1 < segments)
            continue;
        size_t parts = parts_of(end - from, target_bytes);
        for (size_t k = 0; k < parts; k++)
            cut[++count] = part_end(from, end, k, parts);
    }
    *begin = cut;
    *buckets = (int32_t)count;
    return DLC_OK;
}

/* Chooses the size of buckets, and cuts the gradient arena, or the layers' gradients,
 * into them. */
#include "plan/buckets.h"

#include <math.h>

#include "base/memory.h"
#include "base/slice.h"

enum { MAX_PARTS = 4096 };

double dlc_plan_best_bucket(double cost, double bandwidth, double bytes) {
    return fmax(sqrt(bytes * cost * bandwidth), DLC_PLAN_MIN_BUCKET);
}

double dlc_plan_bucket_bytes(const dlc_plan_cluster *cluster,
                             dlc_plan_algorithm algorithm, double bytes) {
    double latency = dlc_plan_all_reduce(cluster, algorithm, 0);
    double rest = dlc_plan_all_reduce(cluster, algorithm, bytes) - latency;
    if (bytes <= 0 || rest <= 0)
        return DLC_PLAN_MIN_BUCKET;
    return dlc_plan_best_bucket(latency + cluster->handover, bytes / rest, bytes);
}

double dlc_plan_reduction(const dlc_transport_prediction *prediction, double bytes) {
    double bucket = dlc_plan_best_bucket(prediction->latency + DLC_PLAN_HANDOVER,
                                         prediction->bandwidth, bytes);
    double buckets = fmax(floor(bytes / bucket), 1);
    double bandwidth = bytes / buckets <= (double)DLC_SMALL_REDUCTION
                           ? prediction->small_bandwidth
                           : prediction->bandwidth;
    return buckets * prediction->latency + bytes / bandwidth;
}

static dlc_status add_bucket(dlc_plan_buckets *buckets, dlc_plan_bucket bucket) {
    dlc_plan_bucket *grown = dlc_grow_by_one(buckets->bucket, buckets->count,
                                             sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    buckets->bucket = grown;
    buckets->bucket[buckets->count++] = bucket;
    return DLC_OK;
}

/* Cuts a bucket that holds several times the target into as many. */
static dlc_status close_bucket(dlc_plan_buckets *buckets, double target,
                               dlc_plan_bucket bucket) {
    double parts = fmin(fmax(floor(bucket.bytes / target), 1), MAX_PARTS);
    bucket.bytes /= parts;
    for (int i = 0; i < (int)parts; i++)
        DLC_TRY(add_bucket(buckets, bucket));
    return DLC_OK;
}

dlc_status dlc_plan_buckets_cut(const double *bytes, size_t layers, double target,
                                dlc_plan_buckets *buckets) {
    dlc_plan_buckets made = {.count = 0};
    dlc_plan_bucket bucket = {.bytes = 0};
    dlc_status status = DLC_OK;
    for (size_t i = layers; status == DLC_OK && i-- > 0;) {
        if (bytes[i] <= 0)
            continue;
        if (bucket.bytes <= 0)
            bucket.last = i;
        bucket.bytes += bytes[i];
        bucket.first = i;
        if (bucket.bytes >= target) {
            status = close_bucket(&made, target, bucket);
            bucket.bytes = 0;
        }
    }
    if (status == DLC_OK && bucket.bytes > 0)
        status = close_bucket(&made, target, bucket);
    if (status == DLC_OK)
        *buckets = made;
    else
        dlc_plan_buckets_free(&made);
    return status;
}

void dlc_plan_buckets_free(dlc_plan_buckets *buckets) {
    dlc_free(buckets->bucket);
    *buckets = (dlc_plan_buckets){.count = 0};
}

/* ---- The gradient arena ---------------------------------------------------------- */

/* How many buckets `count` elements make. */
static size_t parts_of(size_t count, size_t target_bytes) {
    size_t least = target_bytes > DLC_PLAN_MIN_BUCKET ? target_bytes
                                                      : DLC_PLAN_MIN_BUCKET;
    size_t parts = count * sizeof(float) / least;
    return parts > 1 ? parts : 1;
}

/* Where part i of `parts` ends, rounded to whole cache lines. */
static size_t part_end(size_t begin, size_t end, size_t i, size_t parts) {
    if (i + 1 == parts)
        return end;
    return begin + dlc_slice(end - begin, (int32_t)(i + 1), (int32_t)parts) / 16 * 16;
}

dlc_status dlc_plan_arena_buckets(const size_t *segment_end, size_t segments,
                                  size_t target_bytes, size_t **begin,
                                  int32_t *buckets) {
    size_t all = segments ? segment_end[segments - 1] : 0;
    size_t room = segments + parts_of(all, target_bytes) +
                  2; /* no part is smaller than target_bytes; one that is cut off */
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

void dlc_plan_cut_shards(size_t unit, size_t count, size_t *begin, int32_t *buckets) {
    size_t end = begin[*buckets];
    int32_t kept = 0;
    for (int32_t b = 1; b <= *buckets; b++) {
        size_t border = (begin[b] < count ? begin[b] : count) / unit * unit;
        if (border > begin[kept])
            begin[++kept] = border;
    }
    if (end > begin[kept])
        begin[++kept] = end;
    *buckets = kept;
}

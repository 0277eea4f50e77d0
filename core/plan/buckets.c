/* Chooses the size of buckets, and cuts the layers' gradients into them. */
#include "plan/buckets.h"

#include <math.h>

#include "base/memory.h"

enum { MIN_BUCKET_BYTES = 64 << 10, MAX_PARTS = 4096 };

double dlc_plan_bucket_bytes(const dlc_plan_cluster *cluster,
                             dlc_plan_algorithm algorithm, double bytes) {
    double latency = dlc_plan_all_reduce(cluster, algorithm, 0);
    double rest = dlc_plan_all_reduce(cluster, algorithm, bytes) - latency;
    if (bytes <= 0 || rest <= 0)
        return MIN_BUCKET_BYTES;
    return fmax(sqrt(bytes * (latency + cluster->handover) * bytes / rest),
                MIN_BUCKET_BYTES);
}

static dlc_status add(dlc_plan_buckets *buckets, size_t *room, dlc_plan_bucket bucket) {
    if (buckets->count == *room) {
        size_t more = *room * 2 + 16;
        dlc_plan_bucket *grown = dlc_grow(buckets->bucket, *room, more, sizeof *grown);
        if (!grown)
            return DLC_ERR_NOMEM;
        buckets->bucket = grown;
        *room = more;
    }
    buckets->bucket[buckets->count++] = bucket;
    return DLC_OK;
}

/* Cuts a bucket that holds several times the target into as many. */
static dlc_status close_bucket(dlc_plan_buckets *buckets, size_t *room, double target,
                               dlc_plan_bucket bucket) {
    double parts = fmin(fmax(floor(bucket.bytes / target), 1), MAX_PARTS);
    bucket.bytes /= parts;
    for (int i = 0; i < (int)parts; i++)
        DLC_TRY(add(buckets, room, bucket));
    return DLC_OK;
}

dlc_status dlc_plan_buckets_cut(const double *bytes, size_t layers, double target,
                                dlc_plan_buckets *buckets) {
    dlc_plan_buckets made = {.count = 0};
    dlc_plan_bucket bucket = {.bytes = 0};
    dlc_status status = DLC_OK;
    size_t room = 0;
    for (size_t i = layers; status == DLC_OK && i-- > 0;) {
        if (bytes[i] <= 0)
            continue;
        if (bucket.bytes <= 0)
            bucket.last = i;
        bucket.bytes += bytes[i];
        bucket.first = i;
        if (bucket.bytes >= target) {
            status = close_bucket(&made, &room, target, bucket);
            bucket.bytes = 0;
        }
    }
    if (status == DLC_OK && bucket.bytes > 0)
        status = close_bucket(&made, &room, target, bucket);
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

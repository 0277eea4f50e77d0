/* The gradients of a net cut into buckets, as core/comm does it. */
#include "plan/buckets.h"

#include <math.h>

#include "base/memory.h"

enum { LEAST_BUCKET = 64 << 10, MOST_PIECES = 4096 };

double dlc_plan_bucket(const dlc_plan_cluster *cluster, dlc_plan_way way,
                       double bytes) {
    double price = dlc_plan_all_reduce(cluster, way, 0);
    double rest = dlc_plan_all_reduce(cluster, way, bytes) - price;
    if (bytes <= 0 || rest <= 0)
        return LEAST_BUCKET;
    return fmax(sqrt(bytes * (price + cluster->handover) * bytes / rest), LEAST_BUCKET);
}

static dlc_status add(dlc_plan_buckets *buckets, size_t *room, dlc_plan_piece piece) {
    if (buckets->count == *room) {
        size_t more = *room * 2 + 16;
        dlc_plan_piece *grown = dlc_grow(buckets->piece, *room, more, sizeof *grown);
        if (!grown)
            return DLC_ERR_NOMEM;
        buckets->piece = grown;
        *room = more;
    }
    buckets->piece[buckets->count++] = piece;
    return DLC_OK;
}

/* A bucket that holds several times the target is cut in as many. */
static dlc_status close_bucket(dlc_plan_buckets *buckets, size_t *room, double target,
                               dlc_plan_piece piece) {
    double pieces = fmin(fmax(floor(piece.bytes / target), 1), MOST_PIECES);
    piece.bytes /= pieces;
    for (int i = 0; i < (int)pieces; i++)
        DLC_TRY(add(buckets, room, piece));
    return DLC_OK;
}

dlc_status dlc_plan_buckets_cut(const double *bytes, size_t layers, double target,
                                dlc_plan_buckets *buckets) {
    dlc_plan_buckets made = {.count = 0};
    dlc_plan_piece piece = {.bytes = 0};
    dlc_status status = DLC_OK;
    size_t room = 0;
    for (size_t i = layers; status == DLC_OK && i-- > 0;) {
        if (bytes[i] <= 0)
            continue;
        if (piece.bytes <= 0)
            piece.last = i;
        piece.bytes += bytes[i];
        piece.first = i;
        if (piece.bytes >= target) {
            status = close_bucket(&made, &room, target, piece);
            piece.bytes = 0;
        }
    }
    if (status == DLC_OK && piece.bytes > 0)
        status = close_bucket(&made, &room, target, piece);
    if (status == DLC_OK)
        *buckets = made;
    else
        dlc_plan_buckets_free(&made);
    return status;
}

void dlc_plan_buckets_free(dlc_plan_buckets *buckets) {
    dlc_free(buckets->piece);
    *buckets = (dlc_plan_buckets){.count = 0};
}

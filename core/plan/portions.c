/* See portions.h. The portions of a step are played through: one link, one worker. */
#include "plan/portions.h"

#include <math.h>

/* Another way must be faster than the whole batch at once by so much: predictions are
 * no better, and who runs again is to get the same choice. */
static const double MARGIN = 0.05;

/* To add a gradient it is read, the sum is read, and written. */
enum { MOVES_OF_A_SUM = 3 };

const char *dlc_plan_split_way_text(dlc_split_way way) {
    static const char *const text[DLC_SPLIT_WAYS] = {"whole_batch", "by_rank", "chunked"};
    return way < DLC_SPLIT_WAYS ? text[way] : "?";
}

/* ---- A portion ------------------------------------------------------------------- */

/* One rank sends `bytes` to every other, through the adapter of its machine; or gets as
 * many of each. */
static double one_to_all(const dlc_plan_cluster *cluster, double bytes) {
    double inside = 0, between = 0;
    if (cluster->each > 1)
        inside = cluster->inside.latency +
                 bytes * (cluster->each - 1) / cluster->inside.bandwidth;
    if (cluster->nodes > 1)
        between = cluster->between.latency + bytes * (cluster->nodes - 1) *
                                                 cluster->each /
                                                 cluster->between.bandwidth;
    return inside + between;
}

/* Of the cut of a portion, one way. */
static double moving(const dlc_plan_group *group, const dlc_plan_cluster *cluster,
                     dlc_split_way way, int32_t count) {
    double bytes = group->cut_bytes * group->samples * dlc_plan_ranks(cluster) / count;
    return way == DLC_SPLIT_ROTATING ? one_to_all(cluster, bytes)
                                     : dlc_plan_gather(cluster, bytes);
}

static double computing(const dlc_plan_group *group, const dlc_plan_cluster *cluster,
                        int32_t count, int32_t portion) {
    double seconds = group->work.each * group->samples / count +
                     group->work.fixed / dlc_plan_ranks(cluster);
    double sums = MOVES_OF_A_SUM * group->parameter_bytes;
    return portion > 0 && group->memory > 0 ? seconds + sums / group->memory : seconds;
}

/* ---- The step -------------------------------------------------------------------- */

static void play(const dlc_plan_group *group, const dlc_plan_cluster *cluster,
                 dlc_split_way way, dlc_plan_portions *made) {
    double move = moving(group, cluster, way, made->count);
    double link = move, there = move; /* until when it is in use; when it is gathered */
    double now = 0, computed = 0;
    for (int32_t k = 0; k < made->count; k++) {
        double work = computing(group, cluster, made->count, k);
        now = fmax(now, there);
        if (k + 1 < made->count) {
            link = fmax(link, now) + move;
            there = link;
        }
        now += work;
        computed += work;
        if (!group->no_gradient)
            link = fmax(link, now) + move;
    }
    made->seconds = fmax(now, link);
    made->exchange = move * made->count * (group->no_gradient ? 1 : 2);
    made->exposed = made->seconds - computed;
}

/* What was gathered and its gradient have two places each where there are portions, and
 * so has what comes of the others' gradients. */
static double memory_of(const dlc_plan_group *group, const dlc_plan_cluster *cluster,
                        dlc_split_way way, int32_t count) {
    double ranks = dlc_plan_ranks(cluster), rows = group->samples * ranks / count;
    double own = way == DLC_SPLIT_ROTATING ? group->samples : group->samples / count;
    double places = count > 1 ? 2 : 1;
    double gradients = group->no_gradient ? 0 : 1;
    return rows * (group->kept_bytes + places * (1 + gradients) * group->cut_bytes) +
           places * gradients * (ranks - 1) * own * group->cut_bytes +
           (count > 1 ? group->largest_bytes : 0);
}

dlc_status dlc_plan_portions_of(const dlc_plan_group *group,
                                const dlc_plan_cluster *cluster, dlc_split_way way,
                                dlc_plan_portions *portions) {
    DLC_TRY(dlc_plan_check(cluster));
    dlc_plan_portions made = {
        .count = way == DLC_SPLIT_WHOLE ? 1 : dlc_plan_ranks(cluster)};
    play(group, cluster, way, &made);
    made.bytes = memory_of(group, cluster, way, made.count);
    *portions = made;
    return DLC_OK;
}

/* ---- The choice ------------------------------------------------------------------ */

dlc_split_way dlc_plan_split_way(const dlc_plan_portions portions[DLC_SPLIT_WAYS],
                                 double room, const char **reason) {
    dlc_split_way best = DLC_SPLIT_WAYS, least = DLC_SPLIT_WHOLE;
    double seconds = INFINITY;
    for (dlc_split_way way = 0; way < DLC_SPLIT_WAYS; way++) {
        const dlc_plan_portions *p = &portions[way];
        double counted = p->seconds * (way == DLC_SPLIT_WHOLE ? 1 - MARGIN : 1);
        if (p->count == 0)
            continue;
        least = p->bytes < portions[least].bytes ? way : least;
        if ((room > 0 && p->bytes > room) || counted >= seconds)
            continue;
        seconds = counted;
        best = way;
    }
    int others_fit = room <= 0 || portions[DLC_SPLIT_WHOLE].bytes <= room;
    *reason = best == DLC_SPLIT_WAYS ? "it needs least memory, which is short"
              : !others_fit          ? "the whole batch at once needs more memory than "
                                       "there is"
              : best == DLC_SPLIT_WHOLE ? "nothing else is clearly faster"
                                        : "it is the fastest";
    return best == DLC_SPLIT_WAYS ? least : best;
}

/* Simulates the chunks of a step with one link and one worker, and chooses one of the
 * tensor-parallel schedules. */
#include "plan/batch_chunks.h"

#include <math.h>

/* Another schedule must be faster than the whole batch at once by this margin:
 * predictions are no more accurate, and repeated runs should choose the same. */
static const double MARGIN = 0.05;

/* To accumulate a gradient, both operands are read and one is written. */
enum { MOVES_PER_SUM = 3 };

const char *dlc_plan_schedule_text(dlc_tensor_schedule schedule) {
    static const char *const text[DLC_TENSOR_SCHEDULES] = {"whole_batch", "by_rank",
                                                           "chunked"};
    return schedule < DLC_TENSOR_SCHEDULES ? text[schedule] : "?";
}

/* ---- A chunk ------------------------------------------------------------------- */

/* Seconds in which one rank sends `bytes` to every other through the adapter of its
 * machine, or receives as many from each. */
static double one_to_all(const dlc_plan_cluster *cluster, double bytes) {
    double inside = 0, between = 0;
    if (cluster->ranks_per_node > 1)
        inside = cluster->inside.latency +
                 bytes * (cluster->ranks_per_node - 1) / cluster->inside.bandwidth;
    if (cluster->nodes > 1)
        between = cluster->between.latency + bytes * (cluster->nodes - 1) *
                                                 cluster->ranks_per_node /
                                                 cluster->between.bandwidth;
    return inside + between;
}

/* Seconds of transferring a chunk of the group's input, or its gradient. */
static double transfer_of(const dlc_plan_tensor_group *group,
                          const dlc_plan_cluster *cluster, dlc_tensor_schedule schedule,
                          int32_t count) {
    double bytes = group->cut_bytes * group->samples * dlc_plan_ranks(cluster) / count;
    return schedule == DLC_TENSOR_BY_RANK ? one_to_all(cluster, bytes)
                                          : dlc_plan_all_gather(cluster, bytes);
}

/* Seconds of computing a chunk, with the accumulation of gradients for all but the
 * first. */
static double compute_of(const dlc_plan_tensor_group *group,
                         const dlc_plan_cluster *cluster, int32_t count,
                         int32_t chunk) {
    double seconds = group->work.per_sample * group->samples / count +
                     group->work.fixed / dlc_plan_ranks(cluster);
    double sums = MOVES_PER_SUM * group->parameter_bytes;
    return chunk > 0 && group->memory > 0 ? seconds + sums / group->memory : seconds;
}

/* ---- The step -------------------------------------------------------------------- */

static void simulate_chunks(const dlc_plan_tensor_group *group,
                            const dlc_plan_cluster *cluster,
                            dlc_tensor_schedule schedule, dlc_plan_chunks *made) {
    double move = transfer_of(group, cluster, schedule, made->count);
    double link = move,
           arrived = move; /* end of the link's use; arrival of the chunk */
    double now = 0, computed = 0;
    for (int32_t k = 0; k < made->count; k++) {
        double work = compute_of(group, cluster, made->count, k);
        now = fmax(now, arrived);
        if (k + 1 < made->count) {
            link = fmax(link, now) + move;
            arrived = link;
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

/* With chunks there are two buffers each for the gathered input, its gradient, and the
 * gradients received from other ranks. */
static double memory_of(const dlc_plan_tensor_group *group,
                        const dlc_plan_cluster *cluster, dlc_tensor_schedule schedule,
                        int32_t count) {
    double ranks = dlc_plan_ranks(cluster), rows = group->samples * ranks / count;
    double own = schedule == DLC_TENSOR_BY_RANK ? group->samples
                                                : group->samples / count;
    double buffers = count > 1 ? 2 : 1;
    double gradients = group->no_gradient ? 0 : 1;
    return rows * (group->kept_bytes + buffers * (1 + gradients) * group->cut_bytes) +
           buffers * gradients * (ranks - 1) * own * group->cut_bytes +
           (count > 1 ? group->largest_bytes : 0);
}

dlc_status dlc_plan_chunks_of(const dlc_plan_tensor_group *group,
                              const dlc_plan_cluster *cluster,
                              dlc_tensor_schedule schedule, dlc_plan_chunks *chunks) {
    DLC_TRY(dlc_plan_check(cluster));
    dlc_plan_chunks made = {
        .count = schedule == DLC_TENSOR_WHOLE_BATCH ? 1 : dlc_plan_ranks(cluster)};
    simulate_chunks(group, cluster, schedule, &made);
    made.bytes = memory_of(group, cluster, schedule, made.count);
    *chunks = made;
    return DLC_OK;
}

/* ---- The choice ------------------------------------------------------------------ */

dlc_tensor_schedule
dlc_plan_choose_schedule(const dlc_plan_chunks chunks[DLC_TENSOR_SCHEDULES],
                         double room, const char **reason) {
    dlc_tensor_schedule best = DLC_TENSOR_SCHEDULES, least = DLC_TENSOR_WHOLE_BATCH;
    double seconds = INFINITY;
    for (dlc_tensor_schedule schedule = 0; schedule < DLC_TENSOR_SCHEDULES;
         schedule++) {
        const dlc_plan_chunks *p = &chunks[schedule];
        double counted = p->seconds *
                         (schedule == DLC_TENSOR_WHOLE_BATCH ? 1 - MARGIN : 1);
        if (p->count == 0)
            continue;
        least = p->bytes < chunks[least].bytes ? schedule : least;
        if ((room > 0 && p->bytes > room) || counted >= seconds)
            continue;
        seconds = counted;
        best = schedule;
    }
    int others_fit = room <= 0 || chunks[DLC_TENSOR_WHOLE_BATCH].bytes <= room;
    *reason = best == DLC_TENSOR_SCHEDULES ? "none fits in memory, and it needs least"
              : !others_fit ? "the whole batch at once needs more memory than "
                              "there is"
              : best == DLC_TENSOR_WHOLE_BATCH ? "no other is clearly faster"
                                               : "it is the fastest";
    return best == DLC_TENSOR_SCHEDULES ? least : best;
}

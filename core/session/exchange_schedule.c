/* Chooses bucket size, optimizer sharding and overlap with forward from the settings, a
 * communication benchmark and the work of backward. */
#include "session/exchange_schedule.h"

#include "base/log.h"
#include "comm/comm_benchmark.h"
#include "plan/buckets.h"
#include "plan/exchange.h"
#include "plan/layers.h"

/* Estimates the seconds of backward. Returns the slowest rank's, so that all ranks
 * decide alike. */
static dlc_status guess_backward(const dlc_session *session, const dlc_param_set *set,
                                 const dlc_comm_cost *cost, double *seconds) {
    double sum = 0;
    for (int32_t i = 0; i < dlc_net_rows(session->net); i++) {
        dlc_net_row row;
        DLC_TRY(dlc_net_row_at(session->net, i, &row));
        for (int part = DLC_NET_BACKWARD_DATA; part < DLC_NET_PARTS; part++)
            sum += dlc_plan_work(&row, part);
    }
    *seconds = sum / cost->in_place;
    return dlc_comm_max_seconds(set->comm, seconds);
}

/* Is there more to reduce than backward can hide? Gradients become ready in the course
 * of backward, and it is an estimate: half of it counts. */
static dlc_status find_overlap(const dlc_session *session, const dlc_param_set *set,
                               const dlc_comm_cost *cost, int *overlap_forward) {
    double backward = 0;
    DLC_TRY(guess_backward(session, set, cost, &backward));
    size_t bytes = set->arenas->count * sizeof(float);
    *overlap_forward = (double)bytes / cost->bandwidth > backward / 2;
    return DLC_OK;
}

/* Does [transport] set this option to "yes", "no" or "auto"? */
static int is_set_to(const dlc_session *session, const char *name, const char *text) {
    return dlc_settings_is(session->setup->transport_settings, name, text);
}

int dlc_exchange_schedule_is_fused(const dlc_session *session, const dlc_comm *comm) {
    return dlc_session_may_fuse(session) &&
           !is_set_to(session, "shard_optimizer", "no") &&
           dlc_comm_can_fuse_update(comm);
}

/* The fused pass over memory moves fewer bytes than any other method. */
static int choose_sharding(const dlc_session *session, const dlc_comm *comm,
                           const dlc_comm_cost *cost) {
    if (!dlc_session_may_shard(session) || !dlc_comm_has_shards(comm))
        return 0;
    if (!is_set_to(session, "shard_optimizer", "auto"))
        return is_set_to(session, "shard_optimizer", "yes");
    return dlc_exchange_schedule_is_fused(session, comm) ||
           dlc_plan_favors_sharding(cost->bandwidth,
                                    cost->in_place /
                                        dlc_plan_update_moves(session->solver.slots),
                                    dlc_comm_ranks(comm));
}

static dlc_status choose_overlap(const dlc_session *session, const dlc_param_set *set,
                                 const dlc_comm_cost *cost, int *overlap_forward) {
    if (!dlc_session_may_defer(session))
        return DLC_OK;
    if (is_set_to(session, "overlap_forward", "auto"))
        return find_overlap(session, set, cost, overlap_forward);
    *overlap_forward = is_set_to(session, "overlap_forward", "yes");
    return DLC_OK;
}

/* Buckets are 1 / PARTS of the arena where the link, or another rank, is the
 * bottleneck. */
enum { PARTS = 8 };

/* [transport] bucket_bytes; 0: not set. */
static size_t given_bucket(const dlc_session *session) {
    return (size_t)dlc_settings_get_int(session->setup->transport_settings,
                                        "bucket_bytes");
}

/* If forward overlaps communication, the link is the bottleneck, and it is idle between
 * two buckets until the threads that reduce them are scheduled. Few large buckets cost
 * least; eight let those that the next forward needs first overtake the rest. */
static size_t choose_bucket(const dlc_session *session, const dlc_param_set *set,
                            const dlc_comm_cost *cost, int overlap_forward) {
    size_t submitted = given_bucket(session);
    size_t bytes = set->arenas->count * sizeof(float);
    if (submitted)
        return submitted;
    size_t best = (size_t)dlc_plan_best_bucket(cost->latency + DLC_PLAN_HANDOVER,
                                               cost->bandwidth, (double)bytes);
    return overlap_forward && best < bytes / PARTS ? bytes / PARTS : best;
}

/* What was measured, beside what was predicted when the transports were chosen. */
static void compare_schedules(const dlc_session *session, const dlc_param_set *set,
                              const dlc_comm_cost *cost) {
    const dlc_transport_prediction measured = {.size = sizeof measured,
                                               .latency = cost->latency,
                                               .small_bandwidth = cost->bandwidth,
                                               .bandwidth = cost->bandwidth};
    double bytes = (double)(set->arenas->count * sizeof(float));
    dlc_info("    measured %.3g ms to reduce %.3g MB, predicted %.3g ms",
             dlc_plan_reduction(&measured, bytes) * 1e3, bytes / 1e6,
             session->connection.predicted * 1e3);
}

static void announce_exchange(const dlc_comm_cost *cost,
                              const dlc_exchange_schedule *schedule) {
    const char *method = schedule->shard_optimizer
                             ? "each rank updates a shard of the weights"
                         : schedule->overlap_forward
                             ? "forward overlaps the rest of the communication"
                             : "each rank updates all weights";
    dlc_info("exchange: latency %.1f us, bandwidth %.2f GB/s: buckets of %.2f MB; %s",
             cost->latency * 1e6, cost->bandwidth / 1e9,
             (double)schedule->bucket_bytes / 1e6, method);
}

/* With a p2p channel of its own, each rank goes on as soon as it may. Buckets are small
 * enough to be in flight while backward makes the next, and large enough that their
 * transfer takes longer than waking up the receiver. */
static dlc_exchange_schedule choose_for_staleness(const dlc_session *session,
                                                  const dlc_param_set *set) {
    enum { LEAST = 1 << 20, MOST = 4 << 20 };
    size_t part = set->arenas->count * sizeof(float) / PARTS;
    size_t bucket = given_bucket(session);
    if (bucket == 0)
        bucket = part < LEAST ? LEAST : part > MOST ? MOST : part;
    int overlap_forward = dlc_session_may_defer(session);
    if (session->rank == 0)
        dlc_info(
            "%sbuckets of %.2f MB%s",
            session->needs.allows_skew ? "ranks may be in different iterations; " : "",
            (double)bucket / 1e6,
            overlap_forward ? "; forward overlaps the rest of the communication" : "");
    return (dlc_exchange_schedule){.bucket_bytes = bucket,
                                   .overlap_forward = overlap_forward};
}

dlc_status dlc_exchange_schedule_make(const dlc_session *session,
                                      const dlc_param_set *set,
                                      dlc_exchange_schedule *schedule) {
    const dlc_arenas *arenas = set->arenas;
    dlc_comm *comm = set->comm;
    dlc_exchange_schedule made = {.bucket_bytes = SIZE_MAX};
    dlc_comm_cost cost;

    *schedule = made; /* one rank: nothing to overlap, one pass over memory */
    if (dlc_comm_ranks(comm) == 1)
        return DLC_OK;
    if (session->staleness) {
        *schedule = choose_for_staleness(session, set);
        return DLC_OK;
    }
    DLC_TRY(dlc_comm_benchmark(comm, session->device_ops, session->device,
                               arenas->gradients, arenas->count, &cost));
    made.shard_optimizer = choose_sharding(session, comm, &cost);
    if (!made.shard_optimizer)
        DLC_TRY(choose_overlap(session, set, &cost, &made.overlap_forward));
    made.bucket_bytes = choose_bucket(session, set, &cost, made.overlap_forward);
    if (session->rank == 0) {
        announce_exchange(&cost, &made);
        if (set == &session->set[DLC_PARAMS_WHOLE] && session->connection.predicted > 0)
            compare_schedules(session, set, &cost);
    }
    *schedule = made;
    return DLC_OK;
}

/* Opens the sets of parameters of a session, and updates them. */
#include "session/param_sets.h"

#include "base/memory.h"
#include "plan/buckets.h"
#include "plugin/answers.h"
#include "session/exchange_schedule.h"

/* ---- The exchange ---------------------------------------------------------------- */

/* Registers the arenas with the transports, which then work in place. */
static dlc_status attach_arenas(const dlc_param_set *set) {
    if (dlc_comm_ranks(set->comm) == 1)
        return DLC_OK;
    DLC_TRY(dlc_comm_register_buffer(set->comm, set->arenas->gradient_memory));
    return dlc_comm_register_buffer(set->comm, set->arenas->weight_memory);
}

/* The end of each segment in the arena; release it with dlc_free. */
static size_t *segment_ends(const dlc_arenas *arenas) {
    size_t segments = (size_t)arenas->segments;
    size_t *ends = dlc_alloc(segments + 1, sizeof *ends);
    for (size_t i = 0; ends && i < segments; i++)
        ends[i] = arenas->segment[i].offset + arenas->segment[i].count;
    if (ends) /* padding and control words belong to the last bucket, or are one */
        ends[segments ? segments - 1 : 0] = arenas->count;
    return ends;
}

static dlc_status cut_buckets(const dlc_exchange_schedule *schedule,
                              dlc_param_set *set) {
    const dlc_arenas *arenas = set->arenas;
    size_t segments = arenas->segments ? (size_t)arenas->segments : 1;
    size_t *ends = segment_ends(arenas);
    if (!ends)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_plan_arena_buckets(ends, segments, schedule->bucket_bytes,
                                               &set->bucket_begin, &set->buckets);
    dlc_free(ends);
    if (status == DLC_OK && schedule->shard_optimizer)
        dlc_plan_cut_shards((size_t)dlc_comm_ranks(set->comm) * DLC_SQUARE_PIECE,
                            arenas->count - arenas->control_words, set->bucket_begin,
                            &set->buckets);
    return status;
}

static void note_exchange_activity(void *job, const char *what, uint64_t bytes) {
    dlc_job_exchange_activity(job, what, bytes);
}

/* A job notes one exchange at a time: that of the set that all nets have. */
static dlc_status open_exchange(dlc_session *session, dlc_param_set *set) {
    const dlc_arenas *arenas = set->arenas;
    int is_noted = set == &session->set[DLC_PARAMS_WHOLE];
    dlc_exchange_schedule schedule;
    DLC_TRY(attach_arenas(set));
    DLC_TRY(dlc_exchange_schedule_make(session, set, &schedule));
    DLC_TRY(cut_buckets(&schedule, set));
    set->deferred_update = schedule.overlap_forward;
    dlc_exchange_args args = {.comm = set->comm,
                              .device_ops = session->device_ops,
                              .device = session->device,
                              .queue = session->queue,
                              .gradients = arenas->gradients,
                              .weights = arenas->weights,
                              .begin = set->bucket_begin,
                              .buckets = set->buckets,
                              .shard_optimizer = schedule.shard_optimizer,
                              .newest_first = schedule.overlap_forward,
                              .on_activity = is_noted ? note_exchange_activity : NULL,
                              .activity_context = session->job};
    return dlc_exchanger_open(&args, &set->exchanger);
}

dlc_status dlc_param_sets_open_exchange(dlc_session *session) {
    session->set[DLC_PARAMS_WHOLE].comm = session->connection.comm;
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++) {
        dlc_param_set *set = &session->set[s];
        const dlc_arenas *arenas = dlc_net_arenas_of(session->net, s);
        set->arenas = arenas->count ? arenas : NULL;
        if (set->arenas)
            DLC_TRY(open_exchange(session, set));
        if (set->replicas.oob) /* other groups may have the set */
            DLC_TRY(dlc_oob_finish(set->replicas.oob, DLC_OK));
    }
    return DLC_OK;
}

void dlc_param_sets_close_exchange(dlc_session *session) {
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++) {
        dlc_exchanger_close(session->set[s].exchanger);
        dlc_free(session->set[s].bucket_begin);
        session->set[s] = (dlc_param_set){.comm = NULL};
    }
}

dlc_exchange_stats dlc_param_sets_exchanged(const dlc_session *session) {
    dlc_exchange_stats sum = {.bytes = 0};
    DLC_EACH_PARAM_SET(session, set) {
        dlc_exchange_stats stats = dlc_exchanger_stats(set->exchanger);
        dlc_exchange_stats_add(&stats, &sum);
    }
    return sum;
}

int dlc_param_sets_are_stream_ordered(const dlc_session *session) {
    int any = 0;
    DLC_EACH_PARAM_SET(session, set)
    any |= dlc_exchanger_is_stream_ordered(set->exchanger);
    return any;
}

dlc_status dlc_param_sets_poll(const dlc_session *session) {
    DLC_EACH_PARAM_SET(session, set)
    DLC_TRY(dlc_comm_poll(set->comm));
    return DLC_OK;
}

/* ---- Slots ----------------------------------------------------------------------- */

dlc_status dlc_param_sets_open_slots(dlc_session *session) {
    DLC_EACH_PARAM_SET(session, set) {
        set->accumulator = (dlc_accumulator){
            .ops = session->device_ops,
            .device = session->device,
            .queue = session->queue,
            .steps = session->solver.accumulation_steps * session->micro_batches,
            .gradients = set->arenas->gradients,
            .count = set->arenas->count - set->arenas->control_words};
        DLC_TRY(dlc_slots_open(&session->solver, session->device_ops, session->device,
                               dlc_exchanger_slot_count(set->exchanger), set->slot));
        DLC_TRY(dlc_accumulator_open(&set->accumulator));
    }
    return DLC_OK;
}

void dlc_param_sets_close_slots(dlc_session *session) {
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++) {
        dlc_accumulator_close(&session->set[s].accumulator);
        dlc_slots_close(session->device_ops, session->device, session->set[s].slot);
    }
}

/* ---- Models ---------------------------------------------------------------------- */

/* NULL with deferred updates: they belong to the iteration before the one that the
 * control block describes. */
static const dlc_rule_values *values_at(const dlc_session *session,
                                        const dlc_param_set *set) {
    return dlc_session_async_queue(session) && !set->deferred_update
               ? &session->control.on_device->values
               : NULL;
}

static dlc_status open_updater(const dlc_session *session, dlc_param_set *set) {
    dlc_update_target target = dlc_session_update_target(session, set->arenas);
    target.peers = &set->peers;
    target.values_at = values_at(session, set);
    target.loss_scale = session->loss_scale.base;
    return dlc_solver_updater_open(&target, &set->updater);
}

static dlc_consistency_args model_args(const dlc_session *session,
                                       const dlc_param_set *set) {
    const dlc_arenas *arenas = set->arenas;
    const dlc_replicas *replicas = &set->replicas;
    int is_second = set == &session->set[DLC_PARAMS_ROWS];
    dlc_consistency_args args = {.size = sizeof args,
                                 .settings = session->setup->consistency_settings,
                                 .device_ops = session->device_ops,
                                 .device = session->device,
                                 .queue = session->queue,
                                 .count = arenas->count,
                                 .control_words = arenas->control_words,
                                 .weights = arenas->weights,
                                 .gradients = arenas->gradients,
                                 .p2p = replicas->p2p ? dlc_p2p_table(replicas->p2p)
                                                      : NULL,
                                 .batch_split = replicas->samples,
                                 .job_rank = session->rank,
                                 .parameters = is_second ? "rows" : NULL,
                                 .iteration = session->iteration,
                                 .updater = dlc_solver_updater_table(set->updater),
                                 .exchange = dlc_exchanger_table(set->exchanger)};
    for (int32_t i = 0; i < session->solver.slots; i++)
        args.slots[i] = set->slot[i].base;
    return args;
}

/* A worker's steps by the norm of all gradients are made once that is known, which the
 * model of the whole parameters asks for. */
static dlc_status open_model(dlc_session *session, dlc_param_set *set) {
    const dlc_consistency_ops *ops = session->consistency_ops;
    int is_second = set == &session->set[DLC_PARAMS_ROWS];
    DLC_TRY(open_updater(session, set));
    dlc_consistency_args args = model_args(session, set);
    DLC_TRY(DLC_ASK(ops, "create", ops->create(&args, &set->model)));
    set->is_late = is_second && session->needs.allows_skew &&
                   dlc_session_needs_all_gradients(session);
    if (session->model_state && !is_second)
        DLC_TRY(DLC_ASK(
            ops, "load",
            ops->load(set->model, session->model_state, session->model_state_bytes)));
    return set->deferred_update
               ? dlc_updates_open(ops, set->model, set->bucket_begin, set->buckets,
                                  &set->ema, &set->updates)
               : DLC_OK;
}

dlc_status dlc_param_sets_open_models(dlc_session *session) {
    DLC_EACH_PARAM_SET(session, set)
    DLC_TRY(open_model(session, set));
    return DLC_OK;
}

void dlc_param_sets_close_models(dlc_session *session) {
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++) {
        dlc_param_set *set = &session->set[s];
        dlc_updates_close(&set->updates);
        dlc_p2p_cancel(set->replicas.p2p); /* nobody waits for a peer that has left */
        if (set->model)
            session->consistency_ops->destroy(set->model);
        dlc_solver_updater_close(set->updater);
        dlc_replicas_close(&set->replicas);
    }
}

/* ---- An iteration ---------------------------------------------------------------- */

static dlc_status tell_late_model(const dlc_session *session,
                                  const dlc_param_set *set) {
    for (int32_t b = 0; set->is_late && b < set->buckets; b++)
        DLC_TRY(DLC_ASK(
            session->consistency_ops, "ready",
            session->consistency_ops->ready(set->model, session->iteration, b)));
    return DLC_OK;
}

/* If updates are deferred, only the bucket with control words is updated. */
static dlc_status update_set(const dlc_session *session, dlc_param_set *set,
                             int waits) {
    size_t count = set->arenas->count;
    DLC_TRY(tell_late_model(session, set));
    if (!set->deferred_update) {
        DLC_TRY(
            DLC_ASK(session->consistency_ops, "finish",
                    session->consistency_ops->finish(set->model, session->iteration)));
        return dlc_ema_update(&set->ema, 0, SIZE_MAX);
    }
    dlc_updates_defer(&set->updates, session->iteration);
    if (waits)
        return dlc_updates_finish(&set->updates);
    return dlc_updates_need(&set->updates, count - set->arenas->control_words, count);
}

/* Rows are updated while the last buckets of whole parameters are being reduced, or, if
 * updates need norms, after these have been taken of all gradients. */
dlc_status dlc_param_sets_update(dlc_session *session, int waits) {
    int rows_first = !dlc_session_needs_all_gradients(session);
    for (int32_t i = 0; i < DLC_PARAM_SETS; i++) {
        dlc_param_set *set = &session->set[rows_first ? DLC_PARAM_SETS - 1 - i : i];
        if (set->arenas)
            DLC_TRY(update_set(session, set, waits));
    }
    return DLC_OK;
}

dlc_status dlc_param_sets_need(void *context, int32_t set, size_t begin, size_t end) {
    dlc_session *session = context;
    return dlc_updates_need(&session->set[set].updates, begin, end);
}

dlc_status dlc_param_sets_finish(dlc_session *session) {
    DLC_EACH_PARAM_SET(session, set)
    DLC_TRY(dlc_updates_finish(&set->updates));
    return DLC_OK;
}

dlc_status dlc_param_set_gradient_square(const dlc_param_set *set,
                                         const double **square) {
    *square = NULL;
    if (!set->model)
        return DLC_OK;
    const dlc_exchange *exchange = dlc_exchanger_table(set->exchanger);
    for (int32_t b = 0; !set->is_late && b < set->buckets; b++)
        DLC_TRY(exchange->wait(exchange->context, b));
    return dlc_solver_updater_gradient_square(set->updater, exchange,
                                              set->arenas->gradients, square);
}

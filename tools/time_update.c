/* Runs an update per layer on the layer's slice of the session's arenas. */
#include "time_update.h"

#include "base/clock.h"
#include "base/memory.h"
#include "local_update.h"
#include "session/full_state.h"
#include "solver/synchronous.h"

/* One layer with parameters. */
typedef struct layer_update {
    dlc_segment *segment; /* the layer's, relative to the slice's begin; NULL: none */
    size_t count;
    dlc_local_update update;
} layer_update;

struct dlc_time_update {
    const dlc_session *session;
    const dlc_memory *slot;         /* of whole parameters: the session's, or `own` */
    dlc_memory own[DLC_MAX_STATES]; /* if the session has only shards */
    size_t rows;
    layer_update *slice; /* one per row; without segments if it has no parameters */
};

static int is_in(const dlc_segment *segment, const dlc_net_row *row) {
    return segment->offset >= row->trained_begin &&
           segment->offset < row->trained_begin + row->trained_count;
}

static dlc_status copy_segments(const dlc_arenas *arenas, const dlc_net_row *row,
                                layer_update *slice, int32_t *count) {
    int32_t found = 0;
    slice->segment = dlc_alloc((size_t)arenas->segments, sizeof *slice->segment);
    if (!slice->segment)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < arenas->segments; i++) {
        if (!is_in(&arenas->segment[i], row))
            continue;
        slice->segment[found] = arenas->segment[i];
        slice->segment[found++].offset -= row->trained_begin;
    }
    *count = found;
    return DLC_OK;
}

static dlc_status open_slice(const dlc_time_update *update, const dlc_net_row *row,
                             layer_update *slice) {
    const dlc_session *session = update->session;
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    dlc_update_target target = dlc_session_update_target(session, arenas);
    dlc_consistency_args args = {.size = sizeof args,
                                 .device_ops = session->device_ops,
                                 .device = session->device,
                                 .count = row->trained_count,
                                 .weights = arenas->weights + row->trained_begin,
                                 .gradients = arenas->gradients + row->trained_begin};
    for (int32_t i = 0; i < session->solver.slots; i++)
        args.slots[i] = (float *)update->slot[i].base + row->trained_begin;
    DLC_TRY(copy_segments(arenas, row, slice, &target.segments));
    target.segment = slice->segment;
    target.count = slice->count = row->trained_count;
    target.queue = NULL; /* it is done when the clock is read */
    return dlc_local_update_open(&target, &dlc_synchronous_ops, &args,
                                 session->solver.accumulation_steps, &slice->update);
}

/* With sharded updates the session has no whole slots. */
static dlc_status find_slots(dlc_time_update *update) {
    const dlc_session *session = update->session;
    int has_shards = dlc_full_state_is_sharded(session);
    update->slot = has_shards ? update->own : session->set[DLC_PARAMS_WHOLE].slot;
    return has_shards
               ? dlc_slots_open(&session->solver, session->device_ops, session->device,
                                dlc_net_arenas(session->net)->count, update->own)
               : DLC_OK;
}

dlc_status dlc_time_update_open(const dlc_session *session, const dlc_net_row *rows,
                                size_t count, dlc_time_update **update) {
    dlc_time_update *made = dlc_alloc(1, sizeof *made);
    dlc_status status = made ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK) {
        *made = (dlc_time_update){.session = session,
                                  .rows = count,
                                  .slice = dlc_alloc(count, sizeof *made->slice)};
        status = made->slice ? DLC_OK : DLC_ERR_NOMEM;
    }
    if (status == DLC_OK)
        status = find_slots(made);
    for (size_t i = 0; status == DLC_OK && i < count; i++)
        if (rows[i].trained_count)
            status = open_slice(made, &rows[i], &made->slice[i]);
    if (status == DLC_OK)
        *update = made;
    else
        dlc_time_update_close(made);
    return status;
}

void dlc_time_update_close(dlc_time_update *update) {
    if (!update)
        return;
    for (size_t i = 0; update->slice && i < update->rows; i++) {
        dlc_local_update_close(&update->slice[i].update);
        dlc_free(update->slice[i].segment);
    }
    dlc_slots_close(update->session->device_ops, update->session->device, update->own);
    dlc_free(update->slice);
    dlc_free(update);
}

dlc_net_work dlc_time_update_work(const dlc_time_update *update, size_t i) {
    const dlc_session *session = update->session;
    uint64_t arenas = 3; /* gradients read, weights read and written */
    if (!update->slice[i].segment || session->accumulation_steps > 1)
        return (dlc_net_work){0};
    arenas += 2 * (uint64_t)session->solver.slots;
    return (dlc_net_work){.bytes = arenas * sizeof(float) * update->slice[i].count};
}

/* Runs all micro-batches of one iteration. */
static dlc_status update_slice(const dlc_session *session,
                               const dlc_local_update *update, int64_t iteration) {
    for (int32_t micro = 0; micro < session->accumulation_steps; micro++)
        DLC_TRY(dlc_local_update_ready(update, iteration, micro));
    return dlc_local_update_finish(update, iteration);
}

dlc_status dlc_time_update_run(dlc_time_update *update, int64_t iteration,
                               double *seconds) {
    const dlc_session *session = update->session;
    for (size_t i = update->rows; i-- > 0;) {
        if (!update->slice[i].segment)
            continue;
        uint64_t start = dlc_now_ns();
        DLC_TRY(update_slice(session, &update->slice[i].update, iteration));
        seconds[i * TIME_PARTS + TIME_UPDATE] = dlc_since(start) /
                                                (double)session->accumulation_steps;
    }
    return DLC_OK;
}

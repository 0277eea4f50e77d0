/* Runs a solver per layer on the layer's slice of the session's arenas. */
#include "time_update.h"

#include "base/clock.h"
#include "base/memory.h"

/* One layer with parameters. */
typedef struct layer_update {
    dlc_solver *solver;
    dlc_segment *segment; /* the layer's, relative to the slice's begin */
    size_t border[2];     /* begin and end of the only bucket */
    dlc_exchange exchange;
} layer_update;

struct dlc_time_update {
    const dlc_session *session;
    size_t rows;
    layer_update *slice; /* one per row; without a solver if it has no parameters */
};

static dlc_status nothing_to_exchange(void *context, int32_t bucket) {
    (void)context;
    (void)bucket;
    return DLC_OK;
}

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

static dlc_status open_slice(const dlc_session *session, const dlc_net_row *row,
                             layer_update *slice) {
    const dlc_arenas *arenas = dlc_net_arenas(session->net);
    slice->border[1] = row->trained_count;
    slice->exchange = (dlc_exchange){.size = sizeof slice->exchange,
                                     .ranks = 1,
                                     .buckets = 1,
                                     .bucket_begin = slice->border,
                                     .start = nothing_to_exchange,
                                     .wait = nothing_to_exchange};
    dlc_solver_args args = {.size = sizeof args,
                            .settings = session->setup->solver_settings,
                            .device_ops = session->device_ops,
                            .device = session->device,
                            .count = row->trained_count,
                            .weights = arenas->weights + row->trained_begin,
                            .gradients = arenas->gradients + row->trained_begin,
                            .exchange = &slice->exchange,
                            .max_iterations = session->max_iterations,
                            .epoch_iterations = session->epoch_iterations};
    for (int32_t i = 0; i < session->needs.slots; i++)
        args.slots[i] = (float *)session->slot[i].base + row->trained_begin;
    DLC_TRY(copy_segments(arenas, row, slice, &args.segments));
    args.segment = slice->segment;
    return session->solver_ops->create(&args, &slice->solver);
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
    for (size_t i = 0; status == DLC_OK && i < count; i++)
        if (rows[i].trained_count)
            status = open_slice(session, &rows[i], &made->slice[i]);
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
        if (update->slice[i].solver)
            update->session->solver_ops->destroy(update->slice[i].solver);
        dlc_free(update->slice[i].segment);
    }
    dlc_free(update->slice);
    dlc_free(update);
}

dlc_net_work dlc_time_update_work(const dlc_time_update *update, size_t i) {
    const dlc_session *session = update->session;
    uint64_t arenas = 3; /* gradients read, weights read and written */
    if (!update->slice[i].solver || session->accumulation_steps > 1)
        return (dlc_net_work){0};
    for (int32_t slot = 0; slot < session->needs.slots; slot++)
        if (session->needs.slot_saved >> slot & 1)
            arenas += 2;
    return (dlc_net_work){.bytes = arenas * sizeof(float) * update->slice[i].border[1]};
}

/* Runs all micro-batches of one iteration. */
static dlc_status update_slice(const dlc_session *session, dlc_solver *solver,
                               int64_t iteration) {
    for (int32_t micro = 0; micro < session->accumulation_steps; micro++)
        DLC_TRY(session->solver_ops->ready(solver, iteration, micro, 0));
    return session->solver_ops->finish(solver, iteration);
}

dlc_status dlc_time_update_run(dlc_time_update *update, int64_t iteration,
                               double *seconds) {
    const dlc_session *session = update->session;
    for (size_t i = update->rows; i-- > 0;) {
        if (!update->slice[i].solver)
            continue;
        uint64_t start = dlc_now_ns();
        DLC_TRY(update_slice(session, update->slice[i].solver, iteration));
        seconds[i * TIME_PARTS + TIME_UPDATE] = dlc_since(start) /
                                                (double)session->accumulation_steps;
    }
    return DLC_OK;
}

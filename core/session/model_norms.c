/* Gathers the squares that each rank has, and adds them. */
#include "session/model_norms.h"

#include <string.h>

#include "base/clock.h"
#include "comm/all_gather.h"

/* ---- Sums over ranks ------------------------------------------------------------- */

/* Adds `count` numbers of each rank; *sum is in host memory, until the next call. The
 * rows that arrive begin with this rank's own. */
static dlc_status add_over(dlc_session *session, dlc_gather_group members,
                           const double *values, int32_t count, double **sum) {
    double *rows = session->model_norms.numbers.base;
    size_t n = (size_t)count, ranks = (size_t)members.ranks;
    members.tag = DLC_TAG_NORMS;
    members.pending = &session->model_norms.pending;
    double *total = rows + ranks * n;
    DLC_TRY(session->device_ops->copy(session->device, session->queue, rows, values,
                                      n * sizeof *rows));
    DLC_TRY(dlc_net_sync(session->net));
    dlc_job_activity(session->job, "norms of the model", NULL, 0);
    uint64_t began = dlc_now_ns();
    DLC_TRY(dlc_gather_blocks(&members, rows, n * sizeof *rows));
    session->model_norms.waited += dlc_since(began);
    for (size_t i = 0; i < n; i++)
        total[i] = 0;
    for (size_t r = 0; r < ranks; r++) {
        const double *row = rows + (r + ranks - (size_t)members.rank) % ranks * n;
        for (size_t i = 0; i < n; i++)
            total[i] += row[i];
    }
    *sum = total;
    return DLC_OK;
}

static dlc_status sum_rows(void *context, double *squares, int32_t count) {
    dlc_session *session = context;
    const dlc_gather_group members = {
        .engine = session->model_norms.rows,
        .rank = dlc_mesh_place_of(&session->mesh, session->rank).tensor,
        .ranks = session->mesh.tensor};
    double *sum = NULL;
    DLC_TRY(add_over(session, members, squares, count, &sum));
    return session->device_ops->copy(session->device, session->queue, squares, sum,
                                     (size_t)count * sizeof *sum);
}

/* All ranks; or, if they may be in different iterations, those that compute the same
 * gradient: a rank of each stage. */
static dlc_gather_group ranks_of_gradient(const dlc_session *session) {
    dlc_mesh_group ranks = {.stride = 1, .ranks = session->ranks};
    if (session->needs.allows_skew)
        ranks = dlc_mesh_column(&session->mesh, session->rank);
    return (dlc_gather_group){.engine = session->model_norms.all,
                              .first = ranks.first,
                              .rank = (session->rank - ranks.first) / ranks.stride,
                              .ranks = ranks.ranks,
                              .stride = ranks.stride};
}

/* Of several ranks that have the same gradient, the first counts: shared parameters on
 * the first rank of a stage, rows on the first that has them. */
static dlc_status sum_model(void *context, double *square) {
    dlc_session *session = context;
    const dlc_device_ops *ops = session->device_ops;
    dlc_mesh_place place = dlc_mesh_place_of(&session->mesh, session->rank);
    int is_first = session->needs.allows_skew || place.data + place.tensor == 0;
    const double *of[2] = {is_first ? square : NULL, NULL};
    double *own = session->model_norms.square.base, *sum = NULL;
    if (place.data == 0)
        DLC_TRY(dlc_local_update_gradient_square(&session->sharded.update, &of[1]));
    for (int i = 0; i < 2; i++)
        DLC_TRY(of[i] ? ops->copy(session->device, session->queue, own + i, of[i],
                                  sizeof *own)
                      : ops->fill(session->device, session->queue, own + i, 0,
                                  sizeof *own));
    DLC_TRY(add_over(session, ranks_of_gradient(session), own, 2, &sum));
    sum[0] += sum[1];
    DLC_TRY(ops->copy(session->device, session->queue, own, sum, sizeof *own));
    return ops->copy(session->device, session->queue, square, own, sizeof *own);
}

/* ---- Opening --------------------------------------------------------------------- */

static dlc_status take(const dlc_session *session, size_t count, uint32_t flags,
                       dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    return session->device_ops->alloc(session->device, count * sizeof(double), flags,
                                      memory);
}

dlc_status dlc_model_norms_open(dlc_session *session) {
    dlc_memory *square = &session->model_norms.square;
    if (!session->model_norms.all || !dlc_session_needs_all_gradients(session))
        return DLC_OK;
    size_t most = 2 + (size_t)dlc_net_sharded_arenas(session->net)->segments;
    DLC_TRY(take(session, 2, 0, square));
    DLC_TRY(take(session, ((size_t)session->ranks + 1) * most, DLC_MEM_STAGING,
                 &session->model_norms.numbers));
    session->model_norms.shared = (dlc_norm_peers){.context = session,
                                                   .sum_model = sum_model};
    session->model_norms.sharded = (dlc_norm_peers){
        .context = session, .sum_rows = sum_rows, .square = square->base};
    return DLC_OK;
}

void dlc_model_norms_close(dlc_session *session) {
    dlc_memory *own[] = {&session->model_norms.numbers, &session->model_norms.square};
    for (int i = 0; i < 2; i++)
        if (own[i]->base)
            session->device_ops->free(session->device, own[i]);
    memset(&session->model_norms, 0, sizeof session->model_norms);
}

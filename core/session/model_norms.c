/* Gathers the squares that each rank has, and adds them. */
#include "session/model_norms.h"

#include <string.h>

#include "comm/progress_engine.h"
#include "plugin/device_objects.h"
#include "session/param_sets.h"

/* ---- Sums over ranks ------------------------------------------------------------- */

/* Waits for `count` numbers that the device computes; *numbers: in host memory, as the
 * first row of those that are gathered. */
static dlc_status fetch(const dlc_session *session, const double *values, int32_t count,
                        double **numbers) {
    double *row = session->model_norms.numbers.base;
    DLC_TRY(session->device_ops->copy(session->device, session->queue, row, values,
                                      (size_t)count * sizeof *row));
    DLC_TRY(dlc_net_sync(session->net));
    *numbers = row;
    return DLC_OK;
}

/* Adds the first rows of the ranks, in their order; *sum stays until the next call. The
 * rows that arrive begin with this rank's own. */
static dlc_status add_over(dlc_session *session, dlc_gather_group members,
                           int32_t count, double **sum) {
    double *rows = session->model_norms.numbers.base;
    size_t n = (size_t)count, ranks = (size_t)members.ranks;
    members.tag = DLC_TAG_NORMS;
    members.pending = &session->model_norms.pending;
    double *total = rows + ranks * n;
    dlc_job_activity(session->job, "norms of the model", NULL, 0);
    DLC_TRY(dlc_gather_blocks(&members, rows, n * sizeof *rows));
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
    double *numbers = NULL, *sum = NULL;
    DLC_TRY(fetch(session, squares, count, &numbers));
    DLC_TRY(add_over(session, members, count, &sum));
    return session->device_ops->copy(session->device, session->queue, squares, sum,
                                     (size_t)count * sizeof *sum);
}

static dlc_gather_group members_of(const dlc_session *session, dlc_mesh_group ranks) {
    return (dlc_gather_group){.engine = session->model_norms.all,
                              .first = ranks.first,
                              .rank = (session->rank - ranks.first) / ranks.stride,
                              .ranks = ranks.ranks,
                              .stride = ranks.stride};
}

/* Squares of the two arenas, of parameters that a stage shares and of rows. Of several
 * ranks that have the same gradient the first counts: the first rank of a stage, and
 * the first that has these rows. */
static dlc_status fetch_squares(dlc_session *session, const double *square,
                                double **numbers) {
    const dlc_device_ops *ops = session->device_ops;
    dlc_mesh_place place = dlc_mesh_place_of(&session->mesh, session->rank);
    int has_own = session->needs.allows_skew;
    const double *of[2] = {has_own || place.data + place.tensor == 0 ? square : NULL,
                           NULL};
    double *own = session->model_norms.square.base;
    DLC_TRY(dlc_param_set_gradient_square(&session->set[DLC_PARAMS_ROWS], &of[1]));
    if (!has_own && place.data > 0)
        of[1] = NULL;
    for (int i = 0; i < 2; i++)
        DLC_TRY(of[i] ? ops->copy(session->device, session->queue, own + i, of[i],
                                  sizeof *own)
                      : ops->fill(session->device, session->queue, own + i, 0,
                                  sizeof *own));
    return fetch(session, own, 2, numbers);
}

/* The norm of the job's gradient: the sum of squares[] of all ranks. */
static dlc_status sum_job(dlc_session *session, double *squares) {
    const dlc_mesh_group all = {.stride = 1, .ranks = session->ranks};
    double *sum = NULL;
    DLC_TRY(add_over(session, members_of(session, all), 2, &sum));
    squares[0] = squares[1] = sum[0] + sum[1];
    return DLC_OK;
}

/* What part of its stage's samples a rank has, and its tensor group. */
typedef struct shares {
    double own, group;
} shares;

static shares shares_of(const dlc_session *session) {
    const dlc_replicas *replicas = &session->set[DLC_PARAMS_WHOLE].replicas;
    dlc_mesh_group group = dlc_mesh_tensor_group(&session->mesh, session->rank);
    double own = 0, of_group = 0, all = 0;
    for (int32_t i = 0; i < replicas->ranks.ranks; i++) {
        int32_t rank = dlc_replicas_rank(replicas, i);
        double samples = (double)replicas->samples[i];
        all += samples;
        own += rank == session->rank ? samples : 0;
        of_group += rank >= group.first && rank < group.first + group.ranks ? samples
                                                                            : 0;
    }
    return (shares){own / all, of_group / all};
}

/* The norm of a worker's gradient, where ranks may be in different iterations. A worker
 * is the ranks that wait for each other inside of one: a tensor group in each stage,
 * or, where stages have unequal numbers of ranks, all. Each rank makes steps by the
 * mean gradient of its own samples, and with rows by that of its group's. So the
 * worker's square is, of each stage, the mean of its ranks' squares, by their samples.
 * That is at least the square of their mean gradient (Jensen): a step is never longer
 * than the limit. The gradients in the arenas are weighted by shares of the samples, as
 * the result must be. */
static dlc_status sum_worker(dlc_session *session, double *squares) {
    dlc_mesh_group column = dlc_mesh_column(&session->mesh, session->rank);
    int is_column = column.ranks > 0;
    const dlc_mesh_group all = {.stride = 1, .ranks = session->ranks};
    const dlc_mesh_group group = dlc_mesh_tensor_group(&session->mesh, session->rank);
    const shares part = shares_of(session);
    double of_worker = is_column ? part.group : 1, *sum = NULL;
    squares[0] /= part.own * of_worker;
    squares[1] /= part.group * of_worker;
    DLC_TRY(add_over(session, members_of(session, is_column ? group : all), 2, &sum));
    squares[0] = sum[0];
    squares[1] = sum[1];
    if (is_column)
        DLC_TRY(add_over(session, members_of(session, column), 2, &sum));
    double mean = sum[0] + sum[1];
    squares[0] = mean * part.own * part.own;
    squares[1] = mean * part.group * part.group;
    return DLC_OK;
}

static dlc_status sum_model(void *context, double *square) {
    dlc_session *session = context;
    const dlc_device_ops *ops = session->device_ops;
    double *numbers = NULL;
    DLC_TRY(fetch_squares(session, square, &numbers));
    DLC_TRY(session->needs.allows_skew ? sum_worker(session, numbers)
                                       : sum_job(session, numbers));
    DLC_TRY(
        ops->copy(session->device, session->queue, square, numbers, sizeof *square));
    return ops->copy(session->device, session->queue, session->model_norms.square.base,
                     numbers + 1, sizeof *square);
}

/* ---- Opening --------------------------------------------------------------------- */

dlc_status dlc_model_norms_open(dlc_session *session) {
    dlc_memory *square = &session->model_norms.square;
    if (!session->model_norms.all || !dlc_session_needs_all_gradients(session))
        return DLC_OK;
    size_t most = 2 +
                  (size_t)dlc_net_arenas_of(session->net, DLC_PARAMS_ROWS)->segments;
    DLC_TRY(dlc_device_alloc(session->device_ops, session->device, 2 * sizeof(double),
                             0, square));
    DLC_TRY(dlc_device_alloc(session->device_ops, session->device,
                             ((size_t)session->ranks + 1) * most * sizeof(double),
                             DLC_MEM_STAGING, &session->model_norms.numbers));
    session->set[DLC_PARAMS_WHOLE].peers = (dlc_norm_peers){.context = session,
                                                            .sum_model = sum_model};
    session->set[DLC_PARAMS_ROWS].peers = (dlc_norm_peers){
        .context = session, .sum_rows = sum_rows, .square = square->base};
    return DLC_OK;
}

void dlc_model_norms_close(dlc_session *session) {
    dlc_device_free(session->device_ops, session->device,
                    &session->model_norms.numbers);
    dlc_device_free(session->device_ops, session->device, &session->model_norms.square);
    memset(&session->model_norms, 0, sizeof session->model_norms);
}

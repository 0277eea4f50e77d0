/* Gathers the running averages of all ranks for a checkpoint, and restores them. */
#include "checkpoint/running_averages.h"

#include "base/memory.h"
#include "session/averages.h"

/* The number of elements that each rank saves. If no rank has all parameters, only the
 * mean is saved. */
static size_t count_each(const dlc_session *session) {
    size_t each = 0;
    if (session->ranks == 1 || session->shards || !session->net)
        return 0;
    for (int32_t i = 0; i < dlc_net_params(session->net); i++) {
        const dlc_net_param *param = dlc_net_param_at(session->net, i);
        if (param->is_buffer && !param->is_frozen)
            each += (size_t)dlc_shape_count(&param->shape);
    }
    return each;
}

int32_t dlc_running_averages_ranks(const dlc_session *session) {
    return session->ranks - session->setup->servers;
}

/* Copies this rank's averages between the arena and `plain`. */
static dlc_status move(dlc_session *session, float *plain, int to_arena) {
    dlc_net *net = session->net;
    for (int32_t i = 0; i < dlc_net_params(net); i++) {
        const dlc_net_param *param = dlc_net_param_at(net, i);
        float *arena = dlc_net_param_arena(net, i);
        if (!param->is_buffer || param->is_frozen)
            continue;
        DLC_TRY(to_arena ? dlc_net_param_import(net, i, plain, arena)
                         : dlc_net_param_export(net, i, arena, plain));
        plain += dlc_shape_count(&param->shape);
    }
    return DLC_OK;
}

/* A rank that has seen no samples saves the mean, in case it has some after resuming.
 */
static dlc_status gather(dlc_session *session, dlc_running_averages *running) {
    float *mine = dlc_alloc(running->each, sizeof *mine);
    running->all = dlc_alloc((size_t)session->ranks * running->each,
                             sizeof *running->all);
    dlc_status status = mine && running->all ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = move(session, mine, 0);
    if (status == DLC_OK)
        status = dlc_averages_begin(session, &running->own);
    if (status == DLC_OK && session->local_batch == 0)
        status = move(session, mine, 0);
    if (status == DLC_OK)
        status = dlc_job_all_gather(session->job, mine, running->each * sizeof *mine,
                                    running->all);
    dlc_free(mine);
    return status;
}

dlc_status dlc_running_averages_begin(dlc_session *session,
                                      dlc_running_averages *running) {
    *running = (dlc_running_averages){.each = count_each(session),
                                      .own = {.size = sizeof running->own}};
    return running->each ? gather(session, running) : dlc_averages_mean(session);
}

dlc_status dlc_running_averages_end(dlc_session *session,
                                    dlc_running_averages *running) {
    dlc_status status = dlc_averages_end(session, &running->own);
    dlc_free(running->all);
    *running = (dlc_running_averages){0};
    return status;
}

/* Does the file hold running averages of this shape? Only rank 0 has a file; elsewhere
 * it is NULL. */
static int has_averages(const dlc_safetensors *file, const dlc_shape *shape) {
    const dlc_safetensor *found = file ? dlc_safetensors_get(
                                             file, DLC_RUNNING_AVERAGES_TENSOR)
                                       : NULL;
    return found && found->dtype == DLC_F32 && dlc_shape_equal(&found->shape, shape);
}

dlc_status dlc_running_averages_restore(dlc_session *session,
                                        const dlc_safetensors *file) {
    int32_t ranks = dlc_running_averages_ranks(session);
    size_t each = count_each(session), count = (size_t)ranks * each;
    const dlc_shape shape = {.rank = 2, .dims = {ranks, (int64_t)each}};
    void *all = NULL;
    if (!each)
        return DLC_OK;
    int there = has_averages(file, &shape);
    DLC_TRY(dlc_job_broadcast(session->job, 0, &there, sizeof there));
    if (!there)
        return DLC_OK;
    if (file) /* on rank 0 */
        DLC_TRY(dlc_safetensors_read(file, DLC_RUNNING_AVERAGES_TENSOR, DLC_F32, &shape,
                                     &all));
    else
        all = dlc_alloc(count, sizeof(float));
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_broadcast(session->job, 0, all, count * sizeof(float));
    if (status == DLC_OK && session->rank < ranks)
        status = move(session, (float *)all + (size_t)session->rank * each, 1);
    dlc_free(all);
    return status;
}

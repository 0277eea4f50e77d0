/* Lists the parameters of a session's net as shards, and copies them. */
#include "checkpoint/param_shards.h"

#include <string.h>

#include "base/memory.h"
#include "session/full_state.h"

static float *arena_of(const dlc_session *session, int32_t i, int32_t slot) {
    return slot < 0 ? dlc_net_param_arena(session->net, i)
                    : dlc_full_state_arena(session, i, slot);
}

static dlc_status prepare_state(void *context, int32_t slot) {
    return dlc_full_state_take(context, slot);
}

static dlc_status export_shard(void *context, int32_t i, int32_t slot, float *plain) {
    const dlc_session *session = context;
    return dlc_net_param_export(session->net, i, arena_of(session, i, slot), plain);
}

static dlc_status import_shard(void *context, int32_t i, int32_t slot,
                               const float *plain) {
    const dlc_session *session = context;
    return dlc_net_param_import(session->net, i, plain, arena_of(session, i, slot));
}

static dlc_status lend(void *context, size_t least, dlc_scratch *plain) {
    return dlc_scratch_take(context, least, plain);
}

static dlc_status give_back(void *context, dlc_scratch *plain) {
    return dlc_scratch_give_back(context, plain);
}

static void describe(const dlc_net_param *param, dlc_shard *shard) {
    shard->shape = param->whole;
    shard->first = param->first;
    shard->rows = param->shape.rank > 0 ? param->shape.dims[0] : 1;
    shard->order = param->order;
    shard->is_buffer = param->is_buffer;
    strncpy(shard->name, param->name, DLC_SHARD_NAME - 1);
}

dlc_status dlc_param_shards_open(dlc_session *session, dlc_progress_engine *engine) {
    int32_t count = dlc_net_params(session->net);
    if (session->shards)
        return DLC_OK;
    dlc_shard *shard = dlc_alloc((size_t)count, sizeof *shard);
    if (!shard)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < count; i++)
        describe(dlc_net_param_at(session->net, i), &shard[i]);
    dlc_shards_args args = {
        .job = session->job,
        .engine = engine,
        .device_ops = session->device_ops,
        .device = session->device,
        .on_host = (session->setup->device->caps & DLC_DEVICE_HOST) != 0,
        .shard = shard,
        .shards = count,
        .prepare = prepare_state,
        .export = export_shard,
        .import = import_shard,
        .lend = lend,
        .give_back = give_back,
        .context = session};
    dlc_status status = dlc_shards_open(&args, &session->shards);
    dlc_free(shard);
    return status;
}

void dlc_param_shards_close(dlc_session *session) {
    dlc_shards_close(session->shards);
    session->shards = NULL;
}

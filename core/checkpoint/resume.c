/* Reads checkpoints: rank 0 loads the file and broadcasts what the other ranks need. */
#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/compatibility.h"
#include "checkpoint/full_params.h"
#include "checkpoint/listing.h"
#include "checkpoint/resume_schedule.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/running_averages.h"
#include "checkpoint/safetensors.h"
#include "session/ema.h"
#include "session/full_state.h"
#include "session/loss_scale.h"

static dlc_status import_param(dlc_session *session, dlc_net *net, int32_t i,
                               const dlc_safetensors *file, const char *prefix,
                               int32_t slot) {
    dlc_full_param param = dlc_full_param_at(session, net, i);
    void *data = NULL;
    char *name = dlc_format("%s%s", prefix, param.name);
    if (!name)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_safetensors_read(file, name, DLC_F32, param.shape, &data);
    if (status == DLC_OK)
        status = dlc_full_param_import(session, net, i, slot, data);
    dlc_free(data);
    dlc_free(name);
    return status;
}

static dlc_status import_weights(dlc_session *session, dlc_net *net,
                                 const dlc_safetensors *file) {
    for (int32_t i = 0; i < dlc_full_param_count(session, net); i++)
        DLC_TRY(import_param(session, net, i, file, "", -1));
    return DLC_OK;
}

static dlc_status import_slots(dlc_session *session, const dlc_safetensors *file) {
    for (int32_t slot = 0; slot < dlc_solver_states(&session->solver); slot++) {
        char prefix[128];
        snprintf(prefix, sizeof prefix, "%s/",
                 dlc_solver_state_name(&session->solver, slot));
        int needs = dlc_compatibility_needs(session, file, slot);
        for (int32_t i = 0; needs && i < dlc_full_param_count(session, session->net);
             i++)
            if (!dlc_full_param_at(session, session->net, i).is_buffer)
                DLC_TRY(import_param(session, session->net, i, file, prefix, slot));
    }
    return DLC_OK;
}

/* Keeps the consistency model's bytes, which it takes ownership of, until the model is
 * started. Called again if another file is tried. */
static void keep_model_bytes(dlc_session *session, void *bytes, size_t count) {
    dlc_free(session->model_state);
    session->model_state = bytes;
    session->model_state_bytes = count;
}

static dlc_status import_model_bytes(dlc_session *session,
                                     const dlc_safetensors *file) {
    void *bytes = NULL;
    if (!DLC_CAN(session->consistency_ops, load))
        return DLC_OK;
    DLC_TRY(dlc_safetensors_read(file, DLC_MODEL_STATE_TENSOR, DLC_U8, NULL, &bytes));
    const dlc_safetensor *state = dlc_safetensors_get(file, DLC_MODEL_STATE_TENSOR);
    keep_model_bytes(session, bytes, (size_t)dlc_shape_count(&state->shape));
    return DLC_OK;
}

/* A run that used another precision before has no loss scale in its checkpoint. */
static dlc_status import_loss_scale(dlc_session *session, const dlc_safetensors *file) {
    const char *text = dlc_safetensors_metadata(file, "dlcore.loss_scale");
    dlc_loss_scale value;
    if (!session->loss_scale.base || !text)
        return DLC_OK;
    if (dlc_loss_scale_parse(text, &value) != DLC_OK)
        return dlc_fail(DLC_ERR_DATA, "%s: dlcore.loss_scale: %s",
                        dlc_safetensors_path(file), dlc_detail());
    return dlc_loss_scale_write(session->device_ops, session->device,
                                &session->loss_scale, &value);
}

/* Checks the whole file before loading any of it. */
static dlc_status resume_from(dlc_session *session, const dlc_safetensors *file) {
    dlc_run_state *state = &session->run_folder->state;
    DLC_TRY(dlc_compatibility_check(session, file));
    DLC_TRY(dlc_resume_schedule_from(session, file));
    session->iteration = state->begin;
    if (state->is_nothing_left) {
        dlc_info("%s is from a finished run: nothing to do",
                 dlc_safetensors_path(file));
        return DLC_OK;
    }
    DLC_TRY(import_weights(session, session->net, file));
    DLC_TRY(import_slots(session, file));
    DLC_TRY(import_model_bytes(session, file));
    DLC_TRY(import_loss_scale(session, file));
    dlc_info("resumed from %s at iteration %" PRId64, dlc_safetensors_path(file),
             session->iteration);
    return DLC_OK;
}

/* *broken is an error if the file is damaged or cannot be read. Otherwise *file is open
 * and the caller closes it. */
static dlc_status resume_path(dlc_session *session, const char *path,
                              dlc_status *broken, dlc_safetensors **file) {
    *broken = dlc_safetensors_open(path, file);
    DLC_TRY(*broken);
    return resume_from(session, *file);
}

/* Skips checkpoints that are damaged or cannot be read, and tries the one before. A
 * checkpoint that does not match the run is an error. */
static dlc_status resume_newest(dlc_session *session, dlc_safetensors **file) {
    const dlc_run_folder *folder = session->run_folder;
    dlc_checkpoints listing;
    DLC_TRY(dlc_checkpoints_read(folder->from, session->setup->name, &listing));
    dlc_status status = DLC_ERR_DATA, broken = DLC_ERR_DATA;
    for (size_t i = listing.count; broken != DLC_OK && i > 0; i--) {
        status = resume_path(session, listing.file[i - 1].path, &broken, file);
        if (broken == DLC_ERR_NOMEM)
            break;
        if (broken != DLC_OK && i > 1)
            dlc_warn("%s; trying the one before", dlc_detail());
    }
    if (!listing.count)
        status = dlc_fail(DLC_ERR_DATA, "%s holds no checkpoint to resume from",
                          folder->from);
    dlc_checkpoints_free(&listing);
    return status;
}

/* Broadcasts the consistency model's bytes from rank 0, which may have none. */
static dlc_status share_model_bytes(dlc_session *session) {
    uint64_t count = session->model_state ? session->model_state_bytes : UINT64_MAX;
    DLC_TRY(dlc_job_broadcast(session->job, 0, &count, sizeof count));
    if (count == UINT64_MAX)
        return DLC_OK;
    if (session->rank != 0) {
        void *bytes = dlc_alloc((size_t)count, 1);
        if (!bytes)
            return DLC_ERR_NOMEM;
        keep_model_bytes(session, bytes, (size_t)count);
    }
    return dlc_job_broadcast(session->job, 0, session->model_state, (size_t)count);
}

/* Broadcasts the arenas from rank 0, unless parameters are sharded. */
static dlc_status share_arenas(dlc_session *session, dlc_net *net, int with_solver) {
    const dlc_arenas *arenas = dlc_net_arenas(net);
    if (dlc_full_param_shards(session, net)) /* every rank has received its shards */
        return DLC_OK;
    DLC_TRY(dlc_comm_broadcast(session->connection.comm, 0, arenas->weights,
                               arenas->count * sizeof(float)));
    if (arenas->buffer_count)
        DLC_TRY(dlc_comm_broadcast(session->connection.comm, 0, arenas->buffers,
                                   arenas->buffer_count * sizeof(float)));
    if (arenas->frozen_count)
        DLC_TRY(dlc_comm_broadcast(session->connection.comm, 0, arenas->frozen,
                                   arenas->frozen_count * sizeof(float)));
    with_solver = with_solver && !dlc_full_state_is_sharded(session);
    for (int32_t i = 0; with_solver && i < dlc_solver_states(&session->solver); i++)
        if (dlc_solver_saves(&session->solver, i))
            DLC_TRY(dlc_comm_broadcast(session->connection.comm, 0,
                                       session->set[DLC_PARAMS_WHOLE].slot[i].base,
                                       arenas->count * sizeof(float)));
    return DLC_OK;
}

/* Over the whole job: the communicator may be that of a pipeline stage. */
static dlc_status share_loss_scale(const dlc_session *session) {
    const dlc_device_ops *ops = session->device_ops;
    dlc_loss_scale value;
    if (!session->loss_scale.base)
        return DLC_OK;
    DLC_TRY(dlc_loss_scale_read(ops, session->device, &session->loss_scale, &value));
    DLC_TRY(dlc_job_broadcast(session->job, 0, &value, sizeof value));
    return dlc_loss_scale_write(ops, session->device, &session->loss_scale, &value);
}

/* Broadcasts what rank 0 has read. */
static dlc_status share_state(dlc_session *session, dlc_net *net, int with_solver) {
    if (session->ranks == 1)
        return DLC_OK;
    DLC_TRY(share_arenas(session, net, with_solver));
    if (with_solver)
        DLC_TRY(share_loss_scale(session));
    if (with_solver)
        DLC_TRY(dlc_job_broadcast(session->job, 0, &session->solver.plateau,
                                  sizeof session->solver.plateau));
    if (with_solver)
        DLC_TRY(share_model_bytes(session));
    return dlc_job_broadcast(session->job, 0, &session->iteration,
                             sizeof session->iteration);
}

/* Begins the average of the weights if the checkpoint has none. Only rank 0 has the
 * file. */
static dlc_status begin_average(dlc_session *session, const dlc_safetensors *file) {
    int state = session->solver.slots;
    int begins = session->rank == 0 && session->solver.ema > 0 &&
                 !dlc_compatibility_needs(session, file, state);
    DLC_TRY(dlc_job_broadcast(session->job, 0, &begins, sizeof begins));
    if (begins && session->rank == 0)
        dlc_info("%s has no average of the weights: it begins with these weights",
                 dlc_safetensors_path(file));
    return begins ? dlc_session_ema_begin(session) : DLC_OK;
}

static dlc_status take_file(dlc_session *session, dlc_safetensors **file) {
    const dlc_run_folder *folder = session->run_folder;
    dlc_status status = DLC_OK, broken;
    dlc_full_state_write(session, !session->shards);
    if (session->rank == 0)
        status = folder->begin == DLC_RUN_NEWEST
                     ? resume_newest(session, file)
                     : resume_path(session, folder->from, &broken, file);
    status = dlc_full_params_end(session, session->net, status);
    DLC_TRY(dlc_broadcast_status(session, status));
    DLC_TRY(dlc_job_broadcast(session->job, 0, &session->run_folder->state,
                              sizeof session->run_folder->state));
    session->iteration = session->run_folder->state.begin;
    if (session->run_folder->state.is_nothing_left)
        return DLC_OK;
    DLC_TRY(share_state(session, session->net, 1));
    DLC_TRY(begin_average(session, *file));
    return dlc_running_averages_restore(session, *file);
}

dlc_status dlc_checkpoint_resume(dlc_session *session) {
    dlc_safetensors *file = NULL;
    dlc_status status = take_file(session, &file);
    dlc_safetensors_close(file);
    DLC_TRY(status);
    if (!session->feed || session->run_folder->state.is_nothing_left)
        return DLC_OK; /* a parameter server has no feed */
    return dlc_feed_seek(session->feed,
                         session->iteration * session->accumulation_steps);
}

dlc_status dlc_checkpoint_load_weights(dlc_session *session, dlc_net *net,
                                       const dlc_weights *weights) {
    dlc_status status = DLC_OK;
    if (session->rank == 0)
        status = dlc_weights_take(session, net, weights);
    status = dlc_full_params_end(session, net, status);
    DLC_TRY(dlc_broadcast_status(session, status));
    return share_state(session, net, 0);
}

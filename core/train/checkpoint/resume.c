/* Reading checkpoints; see checkpoint.h. */
#include "train/checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "train/checkpoint/listing.h"
#include "train/checkpoint/run_folder.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/tensors.h"
#include "train/loss_scale.h"

static dlc_status import_param(dlc_session *session, dlc_net *net, int32_t i,
                               const dlc_safetensors *file, const char *prefix,
                               int32_t slot) {
    dlc_whole_param param = dlc_whole_at(session, net, i);
    const void *data = NULL;
    char *name = dlc_format("%s%s", prefix, param.name);
    if (!name)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_safetensors_find(file, name, DLC_F32, param.shape, &data);
    dlc_free(name);
    return status == DLC_OK ? dlc_whole_import(session, net, i, slot, data) : status;
}

static dlc_status import_weights(dlc_session *session, dlc_net *net,
                                 const dlc_safetensors *file) {
    for (int32_t i = 0; i < dlc_whole_count(session, net); i++)
        DLC_TRY(import_param(session, net, i, file, "", -1));
    return DLC_OK;
}

static dlc_status import_solver(dlc_session *session, const dlc_safetensors *file) {
    for (int32_t slot = 0; slot < session->needs.slots; slot++) {
        char prefix[128];
        snprintf(prefix, sizeof prefix, "%s/", session->needs.slot_name[slot]);
        for (int32_t i = 0; dlc_whole_slot_is_saved(session, slot) &&
                            i < dlc_whole_count(session, session->net);
             i++)
            if (!dlc_whole_at(session, session->net, i).is_buffer)
                DLC_TRY(import_param(session, session->net, i, file, prefix, slot));
    }
    return DLC_OK;
}

/* Until the solver is started; the last file that is tried counts. */
static dlc_status keep_solver_bytes(dlc_session *session, const void *bytes,
                                    size_t count) {
    dlc_free(session->saved);
    session->saved_bytes = 0;
    session->saved = dlc_alloc(count, 1);
    if (!session->saved)
        return DLC_ERR_NOMEM;
    if (bytes)
        memcpy(session->saved, bytes, count);
    session->saved_bytes = count;
    return DLC_OK;
}

static dlc_status import_solver_bytes(dlc_session *session,
                                      const dlc_safetensors *file) {
    const dlc_solver_ops *ops = session->solver_ops;
    if (!DLC_CAN(ops, load))
        return DLC_OK;
    const dlc_safetensor *solver = dlc_safetensors_get(file, "solver");
    if (!solver)
        return dlc_fail(DLC_ERR_DATA, "%s: it has no solver state",
                        dlc_safetensors_path(file));
    return keep_solver_bytes(session, solver->data,
                             (size_t)dlc_shape_count(&solver->shape));
}

/* A run in another precision before had none. */
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

/* A whole number of the metadata. */
static dlc_status metadata_number(const dlc_safetensors *file, const char *key,
                                  int64_t *number) {
    const char *text = dlc_safetensors_metadata(file, key);
    char *end = NULL;
    errno = 0;
    long long value = text ? strtoll(text, &end, 10) : -1;
    if (!text || end == text || *end || errno || value < 0)
        return dlc_fail(DLC_ERR_DATA,
                        "%s: no checkpoint of a run (%s is missing or no "
                        "number); --weights takes weights alone",
                        dlc_safetensors_path(file), key);
    *number = value;
    return DLC_OK;
}

/* Can this run's solver do with the tensor what that of the file did? */
static int has_use(const dlc_session *session, const char *name) {
    const char *slash = strchr(name, '/');
    if (strcmp(name, "solver") == 0)
        return DLC_CAN(session->solver_ops, load);
    for (int32_t i = 0; i < dlc_whole_count(session, session->net); i++)
        if (strcmp(dlc_whole_at(session, session->net, i).name, name) == 0)
            return 1;
    for (int32_t slot = 0; slash && slot < session->needs.slots; slot++) {
        const char *mine = session->needs.slot_name[slot];
        if (dlc_whole_slot_is_saved(session, slot) &&
            strlen(mine) == (size_t)(slash - name) &&
            strncmp(mine, name, strlen(mine)) == 0)
            return 1;
    }
    return 0;
}

/* Solvers may have the same state. What is missing of it, or of another shape, is told
 * where it is read. */
static dlc_status check_solver(const dlc_session *session,
                               const dlc_safetensors *file) {
    const char *solver = dlc_safetensors_metadata(file, "dlcore.solver");
    const char *mine = session->setup->solver->name;
    if (solver && strcmp(solver, mine) == 0)
        return DLC_OK;
    for (size_t i = 0; i < dlc_safetensors_count(file); i++) {
        const char *name = dlc_safetensors_at(file, i)->name;
        if (!has_use(session, name))
            return dlc_fail(
                DLC_ERR_CONFIG,
                "%s was written by solver '%s', and this run has '%s', which has no use "
                "for its %s; give --weights to start anew from its weights",
                dlc_safetensors_path(file), solver ? solver : "?", mine, name);
    }
    dlc_info("%s was written by solver '%s'; '%s' goes on from its state",
             dlc_safetensors_path(file), solver ? solver : "?", mine);
    return DLC_OK;
}

static dlc_status check_same_run(dlc_session *session, const dlc_safetensors *file) {
    int64_t seed = 0, batch = 0;
    DLC_TRY(metadata_number(file, "dlcore.seed", &seed));
    DLC_TRY(metadata_number(file, "dlcore.effective_batch", &batch));
    if ((uint64_t)seed != session->setup->seed)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s was written with seed %" PRId64 ", this run has %" PRIu64
                        "; give --seed %" PRId64
                        ", or --weights to start anew from its weights",
                        dlc_safetensors_path(file), seed, session->setup->seed, seed);
    DLC_TRY(check_solver(session, file));
    if (batch != dlc_session_samples(session))
        dlc_warn("%s was written with an effective batch of %" PRId64
                 ", this run has %" PRId64 ": it will not repeat the run",
                 dlc_safetensors_path(file), batch, dlc_session_samples(session));
    return DLC_OK;
}

static dlc_status resume_from(dlc_session *session, const dlc_safetensors *file) {
    int64_t iteration = 0;
    DLC_TRY(metadata_number(file, "dlcore.iteration", &iteration));
    DLC_TRY(check_same_run(session, file));
    DLC_TRY(import_weights(session, session->net, file));
    DLC_TRY(import_solver(session, file));
    DLC_TRY(import_solver_bytes(session, file));
    DLC_TRY(import_loss_scale(session, file));
    session->iteration = iteration;
    dlc_info("resumed from %s at iteration %" PRId64, dlc_safetensors_path(file),
             iteration);
    return DLC_OK;
}

static dlc_status resume_path(dlc_session *session, const char *path) {
    dlc_safetensors *file = NULL;
    DLC_TRY(dlc_safetensors_open(path, &file));
    dlc_status status = resume_from(session, file);
    dlc_safetensors_close(file);
    return status;
}

/* A damaged checkpoint is passed over for the one before it. */
static dlc_status resume_newest(dlc_session *session) {
    const dlc_run_folder *folder = session->run_folder;
    dlc_checkpoints listing;
    DLC_TRY(dlc_checkpoints_read(folder->from, session->setup->name, &listing));
    dlc_status status = DLC_ERR_DATA;
    for (size_t i = listing.count; status == DLC_ERR_DATA && i > 0; i--) {
        status = resume_path(session, listing.file[i - 1].path);
        if (status == DLC_ERR_DATA && i > 1)
            dlc_warn("%s; trying the one before", dlc_detail());
    }
    if (!listing.count)
        status = dlc_fail(DLC_ERR_DATA, "%s holds no checkpoint to resume from",
                          folder->from);
    dlc_checkpoints_free(&listing);
    return status;
}

/* From rank 0, which may have none. */
static dlc_status share_solver_bytes(dlc_session *session) {
    uint64_t count = session->saved ? session->saved_bytes : UINT64_MAX;
    DLC_TRY(dlc_job_broadcast(session->job, 0, &count, sizeof count));
    if (count == UINT64_MAX)
        return DLC_OK;
    if (session->rank != 0)
        DLC_TRY(keep_solver_bytes(session, NULL, (size_t)count));
    return dlc_job_broadcast(session->job, 0, session->saved, (size_t)count);
}

/* The arenas that all ranks have alike, from rank 0. */
static dlc_status share_arenas(dlc_session *session, dlc_net *net, int with_solver) {
    const dlc_arenas *arenas = dlc_net_arenas(net);
    if (dlc_whole_pieces(session, net)) /* everybody has got what is its */
        return DLC_OK;
    DLC_TRY(dlc_comm_broadcast(session->connection.comm, 0, arenas->weights,
                               arenas->count * sizeof(float)));
    if (arenas->buffer_count)
        DLC_TRY(dlc_comm_broadcast(session->connection.comm, 0, arenas->buffers,
                                   arenas->buffer_count * sizeof(float)));
    for (int32_t i = 0; with_solver && i < session->needs.slots; i++)
        if (dlc_whole_slot_is_saved(session, i))
            DLC_TRY(dlc_comm_broadcast(session->connection.comm, 0,
                                       session->slot[i].base,
                                       arenas->count * sizeof(float)));
    return DLC_OK;
}

/* What rank 0 read, to all. */
static dlc_status share_state(dlc_session *session, dlc_net *net, int with_solver) {
    if (session->ranks == 1)
        return DLC_OK;
    DLC_TRY(share_arenas(session, net, with_solver));
    if (with_solver && session->loss_scale.base)
        DLC_TRY(dlc_comm_broadcast(session->connection.comm, 0,
                                   session->loss_scale.base, sizeof(dlc_loss_scale)));
    if (with_solver)
        DLC_TRY(share_solver_bytes(session));
    return dlc_job_broadcast(session->job, 0, &session->iteration,
                             sizeof session->iteration);
}

dlc_status dlc_checkpoint_resume(dlc_session *session) {
    const dlc_run_folder *folder = session->run_folder;
    dlc_status status = DLC_OK;
    if (session->rank == 0)
        status = folder->begin == DLC_RUN_NEWEST ? resume_newest(session)
                                                 : resume_path(session, folder->from);
    status = dlc_whole_end(session, session->net, status);
    DLC_TRY(dlc_whole_share_status(session, status));
    DLC_TRY(share_state(session, session->net, 1));
    if (!session->feed) /* a server has none */
        return DLC_OK;
    return dlc_feed_seek(session->feed, session->iteration * session->micro_batches);
}

dlc_status dlc_checkpoint_load_weights(dlc_session *session, dlc_net *net,
                                       const char *path) {
    dlc_status status = DLC_OK;
    if (session->rank == 0) {
        dlc_safetensors *file = NULL;
        status = dlc_safetensors_open(path, &file);
        if (status == DLC_OK)
            status = import_weights(session, net, file);
        dlc_safetensors_close(file);
    }
    status = dlc_whole_end(session, net, status);
    DLC_TRY(dlc_whole_share_status(session, status));
    return share_state(session, net, 0);
}

/* Writes checkpoints: rank 0 lists the tensors, gathers each one when it is written,
 * and applies retention. */
#include "checkpoint/checkpoint.h"

#include <stdio.h>

#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/full_params.h"
#include "checkpoint/listing.h"
#include "checkpoint/metadata.h"
#include "checkpoint/run_folder.h"
#include "checkpoint/running_averages.h"
#include "checkpoint/safetensors.h"
#include "session/scratch.h"

/* A parameter, whose plain copy is made when it is written. */
typedef struct param_copy {
    dlc_session *session;
    int32_t index, slot;
    const dlc_scratch *plain;
    int *failed;
} param_copy;

typedef struct tensor_list {
    dlc_safetensor *tensor;
    char **name;
    param_copy *copy;
    size_t count;
    void *blob; /* own; the consistency model's state */
    dlc_scratch plain;
    int failed; /* a tensor's values could not be read; the file is not to blame */
} tensor_list;

static void list_free(tensor_list *list) {
    for (size_t i = 0; i < list->count; i++)
        dlc_free(list->name[i]);
    dlc_free(list->blob);
    dlc_free(list->name);
    dlc_free(list->copy);
    dlc_free(list->tensor);
}

static dlc_status make_plain(void *context, size_t at, const void **data,
                             size_t *bytes) {
    const param_copy *copy = context;
    const float *plain = NULL;
    size_t count = 0;
    dlc_status status = dlc_full_param_export(copy->session, copy->index, copy->slot,
                                              at / sizeof *plain, copy->plain->base,
                                              copy->plain->count, &plain, &count);
    *copy->failed |= status != DLC_OK;
    *data = plain;
    *bytes = count * sizeof *plain;
    return status;
}

static dlc_status list_add_param(tensor_list *list, dlc_session *session, int32_t i,
                                 const char *prefix, int32_t slot) {
    dlc_full_param param = dlc_full_param_at(session, session->net, i);
    char *name = dlc_format("%s%s", prefix, param.name);
    if (!name)
        return DLC_ERR_NOMEM;
    size_t at = list->count++;
    list->name[at] = name;
    list->copy[at] = (param_copy){session, i, slot, &list->plain, &list->failed};
    list->tensor[at] = (dlc_safetensor){.name = name,
                                        .dtype = DLC_F32,
                                        .shape = *param.shape,
                                        .get = make_plain,
                                        .context = &list->copy[at]};
    return DLC_OK;
}

static dlc_status list_add_slot(tensor_list *list, dlc_session *session, int32_t slot) {
    char prefix[128];
    snprintf(prefix, sizeof prefix, "%s/",
             dlc_solver_state_name(&session->solver, slot));
    for (int32_t i = 0; i < dlc_full_param_count(session, session->net); i++)
        if (!dlc_full_param_at(session, session->net, i).is_buffer)
            DLC_TRY(list_add_param(list, session, i, prefix, slot));
    return DLC_OK;
}

static dlc_status list_add_model(tensor_list *list, const dlc_session *session) {
    const dlc_consistency_ops *ops = session->consistency_ops;
    dlc_consistency *model = session->set[DLC_PARAMS_WHOLE].model;
    size_t bytes = 0;
    if (!DLC_CAN(ops, save))
        return DLC_OK;
    DLC_TRY(ops->save(model, NULL, &bytes));
    list->blob = dlc_alloc(bytes, 1);
    if (!list->blob)
        return DLC_ERR_NOMEM;
    DLC_TRY(ops->save(model, list->blob, &bytes));
    size_t at = list->count;
    list->name[at] = dlc_strdup(DLC_MODEL_STATE_TENSOR);
    if (!list->name[at])
        return DLC_ERR_NOMEM;
    list->count++;
    list->tensor[at] = (dlc_safetensor){.name = list->name[at],
                                        .dtype = DLC_U8,
                                        .shape = {.rank = 1, .dims = {(int64_t)bytes}},
                                        .data = list->blob};
    return DLC_OK;
}

static dlc_status list_add_running(tensor_list *list, const dlc_session *session,
                                   const dlc_running_averages *running) {
    size_t at = list->count;
    list->name[at] = dlc_strdup(DLC_RUNNING_AVERAGES_TENSOR);
    if (!list->name[at])
        return DLC_ERR_NOMEM;
    list->count++;
    list->tensor[at] = (dlc_safetensor){
        .name = list->name[at],
        .dtype = DLC_F32,
        .shape = {.rank = 2,
                  .dims = {dlc_running_averages_ranks(session),
                           (int64_t)running->each}},
        .data = running->all};
    return DLC_OK;
}

static dlc_status list_fill(tensor_list *list, dlc_session *session,
                            const dlc_running_averages *running) {
    size_t params = (size_t)dlc_full_param_count(session, session->net);
    size_t room = params * (size_t)(1 + dlc_solver_states(&session->solver)) + 2;
    list->tensor = dlc_alloc(room, sizeof *list->tensor);
    list->name = dlc_alloc(room, sizeof *list->name);
    list->copy = dlc_alloc(room, sizeof *list->copy);
    if (!list->tensor || !list->name || !list->copy)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < (int32_t)params; i++)
        DLC_TRY(list_add_param(list, session, i, "", -1));
    for (int32_t slot = 0; slot < dlc_solver_states(&session->solver); slot++)
        if (dlc_solver_saves(&session->solver, slot))
            DLC_TRY(list_add_slot(list, session, slot));
    if (running->all)
        DLC_TRY(list_add_running(list, session, running));
    return list_add_model(list, session);
}

static dlc_status write_file(dlc_session *session, const dlc_running_averages *running,
                             const char *path, const dlc_metadata *metadata,
                             int *refused) {
    tensor_list list = {0};
    DLC_TRY(dlc_scratch_take(session, dlc_full_params_room(session, session->net),
                             &list.plain));
    dlc_status status = list_fill(&list, session, running);
    if (status == DLC_OK)
        status = dlc_safetensors_write(path, list.tensor, list.count, metadata->pair,
                                       metadata->count);
    *refused = !list.failed;
    list_free(&list);
    dlc_status given = dlc_scratch_give_back(session, &list.plain);
    return status == DLC_OK ? given : status;
}

/* Removes checkpoints that are not kept, now that the new one is safely on disk. */
static void apply_retention(const dlc_session *session, dlc_run_folder *folder) {
    dlc_status status = DLC_OK;
    folder->retention.best = folder->state.best;
    if (!folder->has_file)
        status = dlc_retention_set_aside(folder->path, folder->net, session->iteration);
    folder->has_file = 1;
    if (status == DLC_OK)
        status = dlc_retention_apply(folder->path, folder->net, session->iteration,
                                     &folder->retention);
    if (status != DLC_OK)
        dlc_warn("old checkpoints were not removed: %s", dlc_detail());
}

/* *refused: the file could not be written. Any other failure ends the run. */
static dlc_status save_as_rank_0(dlc_session *session,
                                 const dlc_running_averages *running, char **path,
                                 int *refused) {
    dlc_run_folder *folder = session->run_folder;
    *refused = 1;
    DLC_TRY(dlc_run_folder_claim(folder));
    char *made = dlc_checkpoint_path(folder->path, session->setup->name,
                                     session->iteration);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_metadata metadata;
    dlc_status status = dlc_metadata_make(session, &metadata);
    if (status == DLC_OK)
        status = write_file(session, running, made, &metadata, refused);
    dlc_metadata_free(&metadata);
    if (status != DLC_OK) {
        dlc_free(made);
        return status;
    }
    apply_retention(session, folder);
    *path = made;
    return DLC_OK;
}

/* Broadcasts rank 0's outcome. A file that could not be written is no error yet. */
static dlc_status share_outcome(dlc_session *session, dlc_status status, int refused,
                                int *written) {
    int is_refusal = session->rank == 0 && status == DLC_ERR_IO && refused;
    char *reason = is_refusal ? dlc_strdup(dlc_detail()) : NULL;
    DLC_TRY(dlc_broadcast_status(session, is_refusal ? DLC_OK : status));
    DLC_TRY(dlc_job_broadcast(session->job, 0, &is_refusal, sizeof is_refusal));
    if (is_refusal)
        (void)dlc_fail(DLC_ERR_IO, "%s",
                       reason ? reason : "rank 0 cannot write the checkpoint");
    dlc_free(reason);
    *written = !is_refusal;
    return DLC_OK;
}

dlc_status dlc_checkpoint_save(dlc_session *session, int *written, char **path) {
    int refused = 0;
    *path = NULL;
    dlc_running_averages running;
    dlc_status status = dlc_running_averages_begin(session, &running);
    if (status != DLC_OK) {
        (void)dlc_running_averages_end(session, &running);
        return status;
    }
    if (session->rank == 0)
        status = save_as_rank_0(session, &running, path, &refused);
    status = dlc_full_params_end(session, session->net, status);
    dlc_status ended = dlc_running_averages_end(
        session, &running); /* the run goes on with these */
    status = share_outcome(session, status, refused, written);
    return status == DLC_OK ? ended : status;
}

/* Decides when a checkpoint is due, and writes it: rank 0 lists the tensors, gathers
 * each one when it is written, and removes checkpoints that are not kept. */
#include "checkpoint/checkpoint.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/full_params.h"
#include "checkpoint/metadata.h"
#include "checkpoint/run_folder.h"
#include "session/scratch.h"

/* ---- The tensors --------------------------------------------------------- */

typedef struct tensor_list tensor_list;

/* A parameter, whose plain copy is made when it is written. */
typedef struct param_copy {
    tensor_list *list;
    int32_t index, slot;
} param_copy;

struct tensor_list {
    dlc_session *session;
    dlc_safetensor *tensor; /* own, with the names */
    param_copy *copy;       /* own */
    size_t count;
    void *blob; /* own; the consistency model's state */
    dlc_scratch plain;
    int failed; /* a tensor's values could not be read; the file is not to blame */
};

static void list_free(tensor_list *list) {
    for (size_t i = 0; i < list->count; i++)
        dlc_free((char *)list->tensor[i].name);
    dlc_free(list->blob);
    dlc_free(list->copy);
    dlc_free(list->tensor);
}

static dlc_status export_param(void *context, size_t at, const void **data,
                               size_t *bytes) {
    const param_copy *copy = context;
    tensor_list *list = copy->list;
    const float *plain = NULL;
    size_t count = 0;
    dlc_status status = dlc_full_param_export(list->session, copy->index, copy->slot,
                                              at / sizeof *plain, list->plain.base,
                                              list->plain.count, &plain, &count);
    list->failed |= status != DLC_OK;
    *data = plain;
    *bytes = count * sizeof *plain;
    return status;
}

static dlc_status list_add(tensor_list *list, const char *name, dlc_safetensor tensor) {
    tensor.name = dlc_strdup(name);
    if (!tensor.name)
        return DLC_ERR_NOMEM;
    list->tensor[list->count++] = tensor;
    return DLC_OK;
}

static dlc_status list_add_param(void *context, const dlc_full_tensor *param) {
    tensor_list *list = context;
    param_copy *copy = &list->copy[list->count];
    *copy = (param_copy){list, param->i, param->slot};
    return list_add(list, param->name,
                    (dlc_safetensor){.dtype = DLC_F32,
                                     .shape = *param->shape,
                                     .get = export_param,
                                     .context = copy});
}

static dlc_status list_add_model(tensor_list *list) {
    const dlc_consistency_ops *ops = list->session->consistency_ops;
    dlc_consistency *model = list->session->set[DLC_PARAMS_WHOLE].model;
    size_t bytes = 0;
    if (!DLC_CAN(ops, save))
        return DLC_OK;
    DLC_TRY(ops->save(model, NULL, &bytes));
    list->blob = dlc_alloc(bytes, 1);
    if (!list->blob)
        return DLC_ERR_NOMEM;
    DLC_TRY(ops->save(model, list->blob, &bytes));
    return list_add(list, DLC_MODEL_STATE_TENSOR,
                    (dlc_safetensor){.dtype = DLC_U8,
                                     .shape = {.rank = 1, .dims = {(int64_t)bytes}},
                                     .data = list->blob});
}

static dlc_status list_fill(tensor_list *list, const dlc_running_averages *running) {
    const dlc_session *session = list->session;
    size_t params = (size_t)dlc_full_param_count(session, session->net);
    size_t room = params * (size_t)(1 + dlc_solver_states(&session->solver)) + 2;
    list->tensor = dlc_alloc(room, sizeof *list->tensor);
    list->copy = dlc_alloc(room, sizeof *list->copy);
    if (!list->tensor || !list->copy)
        return DLC_ERR_NOMEM;
    DLC_TRY(dlc_full_tensors_visit(session, list_add_param, list));
    if (running->all)
        DLC_TRY(list_add(
            list, DLC_RUNNING_AVERAGES_TENSOR,
            (dlc_safetensor){.dtype = DLC_F32,
                             .shape = {.rank = 2,
                                       .dims = {dlc_running_averages_ranks(session),
                                                (int64_t)running->each}},
                             .data = running->all}));
    return list_add_model(list);
}

/* ---- The file ------------------------------------------------------------ */

static dlc_status write_file(dlc_session *session, const dlc_running_averages *running,
                             const char *path, const dlc_metadata *metadata,
                             int *refused) {
    tensor_list list = {.session = session};
    DLC_TRY(dlc_scratch_take(session, dlc_full_params_room(session, session->net),
                             &list.plain));
    dlc_status status = list_fill(&list, running);
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
    DLC_TRY(dlc_broadcast_status(session->job, is_refusal ? DLC_OK : status));
    DLC_TRY(dlc_job_broadcast(session->job, 0, &is_refusal, sizeof is_refusal));
    if (is_refusal)
        (void)dlc_fail(DLC_ERR_IO, "%s",
                       reason ? reason : "rank 0 cannot write the checkpoint");
    dlc_free(reason);
    *written = !is_refusal;
    return DLC_OK;
}

/* Writes NET-ITERATION.safetensors into the run's folder, and removes checkpoints that
 * are not kept. Collective. If the file cannot be written *written is 0 on all ranks,
 * dlc_detail() says why, and nothing has changed. *path is the file on rank 0, to be
 * released with dlc_free; NULL on other ranks and if nothing was written. */
static dlc_status save_checkpoint(dlc_session *session, int *written, char **path) {
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

/* ---- When --------------------------------------------------------------------- */

void dlc_checkpointer_init(dlc_checkpointer *checkpointer, dlc_session *session) {
    const dlc_settings *run = session->setup->train_settings;
    *checkpointer = (dlc_checkpointer){
        .session = session,
        .interval = dlc_settings_get_int(run, "checkpoint_interval"),
        .seconds = 60 * dlc_settings_get_float(run, "checkpoint_minutes"),
        .last = dlc_settings_get_bool(run, "checkpoint_last"),
        .keeps_best = dlc_settings_get_bool(run, "keep_best") &&
                      dlc_run_folder_is_planned(session->setup),
        .tried = dlc_now_ns(),
        .written = -1,
    };
}

int dlc_checkpointer_must_ask(dlc_checkpointer *checkpointer) {
    const dlc_session *session = checkpointer->session;
    if (session->rank != session->ranks - 1 || checkpointer->seconds <= 0 ||
        checkpointer->asked || dlc_since(checkpointer->tried) < checkpointer->seconds)
        return 0;
    checkpointer->asked = 1;
    return 1;
}

static int is_best_so_far(const dlc_run_state *state,
                          const dlc_evaluation *evaluation) {
    if (!isnan(evaluation->accuracy))
        return isnan(state->best_accuracy) ||
               evaluation->accuracy > state->best_accuracy;
    return !isnan(evaluation->loss) &&
           (isnan(state->best_loss) || evaluation->loss < state->best_loss);
}

void dlc_checkpointer_note_test(dlc_checkpointer *checkpointer,
                                const dlc_evaluation *evaluation) {
    if (!checkpointer->session->run_folder)
        return;
    dlc_run_state *state = &checkpointer->session->run_folder->state;
    state->test_loss = evaluation->loss;
    state->accuracy = evaluation->accuracy;
    state->tested = checkpointer->session->iteration;
    checkpointer->improved = checkpointer->keeps_best &&
                             is_best_so_far(state, evaluation);
}

void dlc_checkpointer_note_loss(dlc_checkpointer *checkpointer, double loss) {
    if (checkpointer->session->run_folder)
        checkpointer->session->run_folder->state.training_loss = loss;
}

int dlc_checkpointer_is_due(const dlc_checkpointer *checkpointer) {
    return checkpointer->improved ||
           (checkpointer->interval > 0 &&
            checkpointer->session->iteration % checkpointer->interval == 0);
}

/* The last one is also a line of the results, which takes the place of the message. */
static void report_written(const dlc_checkpointer *checkpointer, int is_last) {
    if (!checkpointer->path)
        return;
    if (!is_last)
        dlc_info("checkpoint: %s", checkpointer->path);
    dlc_json event = dlc_log_event_begin("checkpoint");
    dlc_json_int(&event, "iteration", checkpointer->session->iteration);
    dlc_json_string(&event, "path", checkpointer->path);
    dlc_log_event_end(&event);
}

/* The state with the file that is about to be written as the best one. If writing
 * fails, the previous best stays. */
static dlc_run_state with_best(const dlc_checkpointer *checkpointer) {
    dlc_run_state state = checkpointer->session->run_folder->state;
    if (checkpointer->improved) {
        state.best = checkpointer->session->iteration;
        state.best_accuracy = state.accuracy;
        state.best_loss = state.test_loss;
    }
    return state;
}

dlc_status dlc_checkpointer_write(dlc_checkpointer *checkpointer, int must) {
    dlc_session *session = checkpointer->session;
    if (checkpointer->written == session->iteration || !session->run_folder)
        return DLC_OK;
    dlc_run_state before = session->run_folder->state;
    int written = 0;
    char *path = NULL;
    session->run_folder->state = with_best(checkpointer);
    dlc_status status = save_checkpoint(session, &written, &path);
    checkpointer->tried = dlc_now_ns();
    checkpointer->asked = checkpointer->improved = 0;
    if (status == DLC_OK && written) {
        checkpointer->written = session->iteration;
        dlc_free(checkpointer->path);
        checkpointer->path = path;
        report_written(checkpointer, must);
        return DLC_OK;
    }
    session->run_folder->state = before;
    if (status != DLC_OK || must)
        return status == DLC_OK ? DLC_ERR_IO : status;
    if (session->rank == 0)
        dlc_warn(
            "no checkpoint at iteration %lld: %s; training goes on, and tries again "
            "when the next one is due",
            (long long)session->iteration, dlc_detail());
    return DLC_OK;
}

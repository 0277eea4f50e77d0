/* Reads checkpoints: rank 0 loads the file and broadcasts what the other ranks need.
 * Determines how the resumed run continues: from which iteration, for how long, and at
 * which position of the learning-rate schedule, if the batch or the length of the run
 * has changed. */
#include "checkpoint/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/full_params.h"
#include "checkpoint/metadata.h"
#include "checkpoint/run_folder.h"
#include "session/ema.h"
#include "session/full_state.h"
#include "session/loss_scale.h"

/* ---- The position in the schedule --------------------------------------------- */

/* The run that wrote the checkpoint. */
typedef struct past_run {
    int64_t iteration, max_iterations, epochs, epoch_iterations, batch;
} past_run;

static dlc_status read_past_run(const dlc_safetensors *file, past_run *past) {
    DLC_TRY(dlc_metadata_number(file, "dlcore.iteration", &past->iteration));
    DLC_TRY(dlc_metadata_number(file, "dlcore.effective_batch", &past->batch));
    past->max_iterations = dlc_metadata_int(file, "dlcore.max_iterations", -1);
    past->epochs = dlc_metadata_int(file, "dlcore.epochs", -1);
    past->epoch_iterations = dlc_metadata_int(file, "dlcore.epoch_iterations", 1);
    return past->batch > 0 ? DLC_OK
                           : dlc_fail(DLC_ERR_DATA, "%s: dlcore.effective_batch is 0",
                                      dlc_safetensors_path(file));
}

static void read_run_state(const dlc_safetensors *file, dlc_run_state *state) {
    double unknown = (double)NAN;
    state->training_loss = dlc_metadata_float(file, "dlcore.training_loss", unknown);
    state->test_loss = dlc_metadata_float(file, "dlcore.test_loss", unknown);
    state->accuracy = dlc_metadata_float(file, "dlcore.accuracy", unknown);
    state->tested = dlc_metadata_int(file, "dlcore.tested", -1);
    state->best = dlc_metadata_int(file, "dlcore.best", -1);
    state->best_loss = dlc_metadata_float(file, "dlcore.best_loss", unknown);
    state->best_accuracy = dlc_metadata_float(file, "dlcore.best_accuracy", unknown);
}

static void read_plateau(const dlc_safetensors *file, dlc_lr_plateau *plateau) {
    const char *text = dlc_safetensors_metadata(file, "dlcore.plateau");
    if (plateau->is_used && text && !dlc_lr_plateau_read(plateau, text))
        dlc_warn("%s: dlcore.plateau is damaged, so policy plateau begins anew",
                 dlc_safetensors_path(file));
}

static void read_schedule(const dlc_safetensors *file, dlc_run_state *state) {
    const char *text = dlc_safetensors_metadata(file, "dlcore.schedule");
    dlc_lr_schedule *read = &state->schedule;
    state->has_schedule = text &&
                          sscanf(text,
                                 "%" SCNd64 " %" SCNd64 " %" SCNd64 " %lf %lf %lf %lf",
                                 &read->max_iterations, &read->epoch_iterations,
                                 &read->begin, &read->from, &read->step,
                                 &read->from_to_end, &read->step_to_end) == 7;
}

/* The iteration of this run that corresponds to as many samples. If both runs take the
 * same number of epochs, rounding must not make this one end differently. */
static int64_t count_iterations(const dlc_session *session, const past_run *past) {
    int64_t batch = dlc_session_samples(session);
    if (batch == past->batch)
        return past->iteration;
    double exact = (double)past->iteration * (double)past->batch / (double)batch;
    int64_t done = (int64_t)exact;
    int64_t last = session->max_iterations;
    int same_epochs = session->setup->iterations < 0 &&
                      session->setup->epochs == past->epochs;
    if (same_epochs && (past->iteration >= past->max_iterations || done > last))
        return last;
    return done;
}

/* Continues the previous schedule, stretching its remainder over the rest of the run.
 */
static void stretch_schedule(const dlc_session *session, const past_run *past,
                             dlc_run_state *state) {
    int64_t left = session->max_iterations - state->begin;
    double since = (double)(past->iteration - state->schedule.begin);
    dlc_lr_schedule before = state->schedule;
    if (!state->has_schedule)
        before = (dlc_lr_schedule){.max_iterations = past->max_iterations,
                                   .epoch_iterations = past->epoch_iterations,
                                   .step = 1,
                                   .step_to_end = 1};
    if (!state->has_schedule)
        since = (double)past->iteration;
    double batches = (double)dlc_session_samples(session) / (double)past->batch;
    dlc_lr_schedule now = {.max_iterations = before.max_iterations,
                           .epoch_iterations = before.epoch_iterations,
                           .begin = state->begin,
                           .from = before.from + since * before.step,
                           .step = before.step * batches,
                           .from_to_end = before.from_to_end +
                                          since * before.step_to_end};
    double rest = (double)now.max_iterations - now.from_to_end;
    now.step_to_end = left > 0 && rest > 0 ? rest / (double)left : 0;
    state->schedule = now;
    state->has_schedule = 1;
}

static void say_changes(const dlc_session *session, const past_run *past,
                        int64_t begin) {
    int64_t batch = dlc_session_samples(session);
    if (batch != past->batch)
        dlc_warn("the effective batch was %" PRId64 " and is now %" PRId64 ": %" PRId64
                 " earlier iterations count as %" PRId64
                 ", by the number of samples; the run will not be bitwise repeatable",
                 past->batch, batch, past->iteration, begin);
    if (session->max_iterations != past->max_iterations)
        dlc_info("the run was to end after %" PRId64
                 " iterations and now ends after %" PRId64
                 "; the learning rate continues from where it was, and a schedule that "
                 "ends with the run is stretched to the new end",
                 past->max_iterations, session->max_iterations);
}

/* Fills the state of the session's run folder and logs what has changed. DLC_ERR_CONFIG
 * if the run would end before the iteration of the checkpoint. */
static dlc_status take_schedule(dlc_session *session, const dlc_safetensors *file) {
    dlc_run_folder *folder = session->run_folder;
    dlc_run_state *state = &folder->state;
    past_run past;
    DLC_TRY(read_past_run(file, &past));
    read_run_state(file, state);
    read_schedule(file, state);
    read_plateau(file, &session->solver.plateau);
    if (past.max_iterations < 0)
        past.max_iterations = session->max_iterations;
    state->begin = count_iterations(session, &past);
    state->was_done = past.iteration >= past.max_iterations;
    if (dlc_session_samples(session) != past.batch) /* iterations are renumbered */
        state->best = state->tested = session->solver.plateau.tested = -1;
    folder->retention.was_best = state->best;
    if (state->begin > session->max_iterations)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "%s has completed %" PRId64 " iterations, but this run is to end after "
            "%" PRId64 ": ask for more (--iterations, --epochs) or start a new run",
            dlc_safetensors_path(file), state->begin, session->max_iterations);
    state->is_nothing_left = state->begin == session->max_iterations && !folder->fresh;
    if (state->is_nothing_left)
        return DLC_OK;
    int changed = dlc_session_samples(session) != past.batch ||
                  session->max_iterations != past.max_iterations;
    if (changed) {
        say_changes(session, &past, state->begin);
        stretch_schedule(session, &past, state);
    }
    return DLC_OK;
}

/* ---- What rank 0 imports --------------------------------------------------------- */

typedef struct import_from {
    dlc_session *session;
    const dlc_safetensors *file;
    int has_average;
} import_from;

static dlc_status import_tensor(void *context, const dlc_full_tensor *tensor) {
    const import_from *from = context;
    dlc_session *session = from->session;
    void *data = NULL;
    if (tensor->slot >= session->solver.slots && !from->has_average)
        return DLC_OK;
    dlc_status status = dlc_safetensors_read(from->file, tensor->name, DLC_F32,
                                             tensor->shape, &data);
    if (status == DLC_OK)
        status = dlc_full_param_import(session, session->net, tensor->i, tensor->slot,
                                       data);
    dlc_free(data);
    return status;
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
    DLC_TRY(take_schedule(session, file));
    session->iteration = state->begin;
    if (state->is_nothing_left) {
        dlc_info("%s is from a finished run: nothing to do",
                 dlc_safetensors_path(file));
        return DLC_OK;
    }
    import_from from = {session, file, dlc_compatibility_has_average(file)};
    DLC_TRY(dlc_full_tensors_visit(session, import_tensor, &from));
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

/* ---- What all ranks get ------------------------------------------------------- */

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
static dlc_status share_state(dlc_session *session) {
    if (session->ranks == 1)
        return DLC_OK;
    DLC_TRY(dlc_full_params_share(session, session->net, 1));
    DLC_TRY(share_loss_scale(session));
    DLC_TRY(dlc_job_broadcast(session->job, 0, &session->solver.plateau,
                              sizeof session->solver.plateau));
    return share_model_bytes(session);
}

/* Begins the average of the weights if the checkpoint has none. Only rank 0 has the
 * file. */
static dlc_status begin_average(dlc_session *session, const dlc_safetensors *file) {
    int begins = session->rank == 0 && session->solver.ema > 0 &&
                 !dlc_compatibility_has_average(file);
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
    DLC_TRY(dlc_broadcast_status(session->job, status));
    DLC_TRY(dlc_job_broadcast(session->job, 0, &session->run_folder->state,
                              sizeof session->run_folder->state));
    session->iteration = session->run_folder->state.begin;
    if (session->run_folder->state.is_nothing_left)
        return DLC_OK;
    DLC_TRY(share_state(session));
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

dlc_status dlc_resume_schedule_check_rate(const dlc_session *session) {
    const dlc_run_state *state = &session->run_folder->state;
    if (!state->was_done || state->begin >= session->max_iterations ||
        dlc_solver_learning_rate(&session->solver, session->iteration) > 0)
        return DLC_OK;
    return dlc_fail(
        DLC_ERR_CONFIG,
        "the run has finished and its learning rate has reached 0: more iterations would "
        "change nothing; start a new run, with its own schedule, from its weights: "
        "--weights FILE instead of --resume");
}

/* Translates the iteration and the schedule of a checkpoint to those of this run. */
#include "checkpoint/resume_schedule.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/log.h"
#include "checkpoint/metadata.h"
#include "checkpoint/run_folder.h"

/* The run that wrote the checkpoint. */
typedef struct past_run {
    int64_t iteration, max_iterations, epochs, epoch_iterations, batch;
} past_run;

static dlc_status read_past(const dlc_safetensors *file, past_run *past) {
    DLC_TRY(dlc_metadata_number(file, "dlcore.iteration", &past->iteration));
    DLC_TRY(dlc_metadata_number(file, "dlcore.effective_batch", &past->batch));
    past->max_iterations = dlc_metadata_int(file, "dlcore.max_iterations", -1);
    past->epochs = dlc_metadata_int(file, "dlcore.epochs", -1);
    past->epoch_iterations = dlc_metadata_int(file, "dlcore.epoch_iterations", 1);
    return past->batch > 0 ? DLC_OK
                           : dlc_fail(DLC_ERR_DATA, "%s: dlcore.effective_batch is 0",
                                      dlc_safetensors_path(file));
}

static void read_state(const dlc_safetensors *file, dlc_run_state *state) {
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

dlc_status dlc_resume_schedule_from(dlc_session *session, const dlc_safetensors *file) {
    dlc_run_folder *folder = session->run_folder;
    dlc_run_state *state = &folder->state;
    past_run past;
    DLC_TRY(read_past(file, &past));
    read_state(file, state);
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

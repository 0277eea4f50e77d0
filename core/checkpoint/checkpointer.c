/* Decides when a checkpoint is due, and has it written (checkpoint/save.c). */
#include "checkpoint/checkpointer.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/run_folder.h"

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

static int is_better(const dlc_run_state *state, const dlc_evaluation *evaluation) {
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
    checkpointer->improved = checkpointer->keeps_best && is_better(state, evaluation);
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
static void say(const dlc_checkpointer *checkpointer, int is_last) {
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
    dlc_status status = dlc_checkpoint_save(session, &written, &path);
    checkpointer->tried = dlc_now_ns();
    checkpointer->asked = checkpointer->improved = 0;
    if (status == DLC_OK && written) {
        checkpointer->written = session->iteration;
        dlc_free(checkpointer->path);
        checkpointer->path = path;
        say(checkpointer, must);
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

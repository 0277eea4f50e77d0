/* See saves.h. */
#include "train/saves.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_folder.h"

void dlc_saves_begin(dlc_saves *saves, dlc_session *session) {
    const dlc_settings *run = session->setup->train_settings;
    *saves = (dlc_saves){
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

int dlc_saves_must_ask(dlc_saves *saves) {
    if (saves->session->rank != 0 || saves->seconds <= 0 || saves->asked ||
        dlc_since(saves->tried) < saves->seconds)
        return 0;
    saves->asked = 1;
    return 1;
}

static int is_better(const dlc_run_state *state, const dlc_evaluation *evaluation) {
    if (!isnan(evaluation->accuracy))
        return isnan(state->best_accuracy) ||
               evaluation->accuracy > state->best_accuracy;
    return !isnan(evaluation->loss) &&
           (isnan(state->best_loss) || evaluation->loss < state->best_loss);
}

void dlc_saves_note_test(dlc_saves *saves, const dlc_evaluation *evaluation) {
    if (!saves->session->run_folder)
        return;
    dlc_run_state *state = &saves->session->run_folder->state;
    state->test_loss = evaluation->loss;
    state->accuracy = evaluation->accuracy;
    state->tested = saves->session->iteration;
    saves->improved = saves->keeps_best && is_better(state, evaluation);
}

void dlc_saves_note_loss(dlc_saves *saves, double loss) {
    if (saves->session->run_folder)
        saves->session->run_folder->state.training_loss = loss;
}

int dlc_saves_is_due(const dlc_saves *saves) {
    return saves->improved ||
           (saves->interval > 0 && saves->session->iteration % saves->interval == 0);
}

static void say(const dlc_saves *saves) {
    if (!saves->path)
        return;
    dlc_info("checkpoint: %s", saves->path);
    dlc_json event = dlc_log_event_begin("checkpoint");
    dlc_json_int(&event, "iteration", saves->session->iteration);
    dlc_json_string(&event, "path", saves->path);
    dlc_log_event_end(&event);
}

/* The file that is about to be written is the best one; until it lies there, the one
 * before is kept. */
static dlc_run_state with_best(const dlc_saves *saves) {
    dlc_run_state state = saves->session->run_folder->state;
    if (saves->improved) {
        state.best = saves->session->iteration;
        state.best_accuracy = state.accuracy;
        state.best_loss = state.test_loss;
    }
    return state;
}

dlc_status dlc_saves_write(dlc_saves *saves, int must) {
    dlc_session *session = saves->session;
    if (saves->written == session->iteration || !session->run_folder)
        return DLC_OK;
    dlc_run_state before = session->run_folder->state;
    int written = 0;
    char *path = NULL;
    session->run_folder->state = with_best(saves);
    dlc_status status = dlc_checkpoint_save(session, &written, &path);
    saves->tried = dlc_now_ns();
    saves->asked = saves->improved = 0;
    if (status == DLC_OK && written) {
        saves->written = session->iteration;
        dlc_free(saves->path);
        saves->path = path;
        say(saves);
        return DLC_OK;
    }
    session->run_folder->state = before;
    if (status != DLC_OK || must)
        return status == DLC_OK ? DLC_ERR_IO : status;
    if (session->rank == 0)
        dlc_warn("no checkpoint at iteration %lld: %s; training goes on, and the next "
                 "one that is due is tried",
                 (long long)session->iteration, dlc_detail());
    return DLC_OK;
}

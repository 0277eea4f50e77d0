/* Gathers the metadata of a checkpoint, and reads numbers back from it. */
#include "checkpoint/metadata.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "checkpoint/net_ini.h"
#include "checkpoint/provenance.h"
#include "checkpoint/run_folder.h"
#include "session/loss_scale.h"

#define FORMAT "1"

/* ---- Gathering --------------------------------------------------------------- */

/* Takes ownership of the value; NULL: memory ran out. */
static void add_own(dlc_metadata *metadata, const char *key, char *value) {
    size_t count = metadata->count;
    dlc_safetensors_pair *grown = value ? dlc_grow_by_one(metadata->pair, count,
                                                          sizeof *grown)
                                        : NULL;
    if (!grown) {
        dlc_free(value);
        metadata->failed = 1;
        return;
    }
    metadata->pair = grown;
    grown[metadata->count++] = (dlc_safetensors_pair){key, value};
}

static void add(dlc_metadata *metadata, const char *key, const char *value) {
    if (value)
        add_own(metadata, key, dlc_strdup(value));
}

static void add_int(dlc_metadata *metadata, const char *key, int64_t value) {
    add_own(metadata, key, dlc_format("%" PRId64, value));
}

/* Adds nothing for NaN, which stands for an unknown number. */
static void add_float(dlc_metadata *metadata, const char *key, double value) {
    if (!isnan(value))
        add_own(metadata, key, dlc_format("%.9g", value));
}

/* Adds the text unless it is empty, and frees it. */
static void add_text(dlc_metadata *metadata, const char *key, dlc_text *text) {
    if (dlc_text_status(text) != DLC_OK)
        metadata->failed = 1;
    else if (text->length)
        add(metadata, key, dlc_text_string(text));
    dlc_text_free(text);
}

static void add_date(dlc_metadata *metadata) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) && strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc))
        add(metadata, "dlcore.date", date);
}

static void add_origin(dlc_metadata *metadata, const dlc_setup *setup) {
    dlc_text text = {0};
    add(metadata, "dlcore.version", DLC_VERSION);
    dlc_provenance_plugins(setup->registry, &text);
    add_text(metadata, "dlcore.plugins", &text);
    dlc_provenance_libraries(&text);
    add_text(metadata, "dlcore.libraries", &text);
    dlc_provenance_command(&text);
    add_text(metadata, "dlcore.command", &text);
    dlc_net_ini_print(setup, &text);
    add_text(metadata, "dlcore.net_ini", &text);
}

static void add_shape(dlc_metadata *metadata, const char *key, const dlc_shape *shape) {
    dlc_text text = {0};
    for (int32_t i = 0; i < shape->rank; i++)
        dlc_text_add(&text, i ? ",%" PRId64 : "%" PRId64, shape->dims[i]);
    add_text(metadata, key, &text);
}

/* Adds the names of the classes, one per line. */
static void add_classes(dlc_metadata *metadata, const dlc_data_info *info) {
    dlc_text text = {0};
    for (int32_t i = 0; info->class_names && i < info->classes; i++)
        dlc_text_add(&text, i ? "\n%s" : "%s", info->class_names[i]);
    add_text(metadata, "dlcore.data.class_names", &text);
}

static void add_data(dlc_metadata *metadata, const dlc_data_setup *data) {
    dlc_text text = {0};
    add(metadata, "dlcore.data.source", data->feature->name);
    dlc_provenance_paths(data->settings, &text);
    add_text(metadata, "dlcore.data.paths", &text);
    add_int(metadata, "dlcore.data.samples", data->info.samples);
    add_shape(metadata, "dlcore.data.shape", &data->info.shape);
    add_int(metadata, "dlcore.data.classes", data->info.classes);
    add_classes(metadata, &data->info);
    add_own(metadata, "dlcore.data.digest", dlc_format("%016" PRIx64, data->digest));
}

static void add_state(dlc_metadata *metadata, const dlc_session *session) {
    const dlc_run_state *state = &session->run_folder->state;
    add_float(metadata, "dlcore.training_loss", state->training_loss);
    if (state->tested >= 0)
        add_int(metadata, "dlcore.tested", state->tested);
    add_float(metadata, "dlcore.test_loss", state->test_loss);
    add_float(metadata, "dlcore.accuracy", state->accuracy);
    if (state->best >= 0)
        add_int(metadata, "dlcore.best", state->best);
    add_float(metadata, "dlcore.best_loss", state->best_loss);
    add_float(metadata, "dlcore.best_accuracy", state->best_accuracy);
    if (session->solver.plateau.is_used) {
        char text[DLC_LR_PLATEAU_TEXT];
        dlc_lr_plateau_print(&session->solver.plateau, text);
        add(metadata, "dlcore.plateau", text);
    }
    if (state->has_schedule) {
        const dlc_lr_schedule *schedule = &state->schedule;
        add_own(metadata, "dlcore.schedule",
                dlc_format("%" PRId64 " %" PRId64 " %" PRId64
                           " %.17g %.17g %.17g %.17g",
                           schedule->max_iterations, schedule->epoch_iterations,
                           schedule->begin, schedule->from, schedule->step,
                           schedule->from_to_end, schedule->step_to_end));
    }
}

static void add_progress(dlc_metadata *metadata, const dlc_session *session) {
    const dlc_setup *setup = session->setup;
    add_int(metadata, "dlcore.iteration", session->iteration);
    add_own(metadata, "dlcore.epoch",
            dlc_format("%.9g",
                       (double)session->iteration / (double)session->epoch_iterations));
    add_int(metadata, "dlcore.max_iterations", session->max_iterations);
    if (setup->iterations < 0)
        add_int(metadata, "dlcore.epochs", setup->epochs);
    add_int(metadata, "dlcore.epoch_iterations", session->epoch_iterations);
    add_int(metadata, "dlcore.effective_batch", dlc_session_samples(session));
    add_own(metadata, "dlcore.seed", dlc_format("%" PRIu64, setup->seed));
    add_int(metadata, "dlcore.ranks", session->ranks);
}

static dlc_status add_loss_scale(dlc_metadata *metadata, const dlc_session *session) {
    dlc_loss_scale value;
    char text[DLC_LOSS_SCALE_TEXT];
    if (!session->loss_scale.base)
        return DLC_OK;
    DLC_TRY(dlc_loss_scale_read(session->device_ops, session->device,
                                &session->loss_scale, &value));
    dlc_loss_scale_print(&value, text);
    add(metadata, "dlcore.loss_scale", text);
    return DLC_OK;
}

dlc_status dlc_metadata_make(dlc_session *session, dlc_metadata *metadata) {
    const dlc_setup *setup = session->setup;
    *metadata = (dlc_metadata){0};
    add(metadata, "dlcore.format", FORMAT);
    add_date(metadata);
    add(metadata, "dlcore.net", setup->name);
    add(metadata, "dlcore.device", setup->device->name);
    add(metadata, "dlcore.solver", setup->solver->name);
    add(metadata, "dlcore.consistency", setup->consistency->name);
    add_progress(metadata, session);
    add_state(metadata, session);
    DLC_TRY(add_loss_scale(metadata, session));
    add_data(metadata, &setup->train);
    add_origin(metadata, setup);
    return metadata->failed ? dlc_fail(DLC_ERR_NOMEM, "out of memory") : DLC_OK;
}

void dlc_metadata_free(dlc_metadata *metadata) {
    for (size_t i = 0; i < metadata->count; i++)
        dlc_free((char *)metadata->pair[i].value);
    dlc_free(metadata->pair);
    *metadata = (dlc_metadata){0};
}

/* ---- Reading ----------------------------------------------------------------- */

int64_t dlc_metadata_int(const dlc_safetensors *file, const char *key,
                         int64_t otherwise) {
    const char *text = dlc_safetensors_metadata(file, key);
    char *end = NULL;
    errno = 0;
    long long value = text ? strtoll(text, &end, 10) : -1;
    return !text || end == text || *end || errno || value < 0 ? otherwise : value;
}

double dlc_metadata_float(const dlc_safetensors *file, const char *key,
                          double otherwise) {
    const char *text = dlc_safetensors_metadata(file, key);
    char *end = NULL;
    double value = text ? strtod(text, &end) : otherwise;
    return !text || end == text || *end ? otherwise : value;
}

dlc_status dlc_metadata_number(const dlc_safetensors *file, const char *key,
                               int64_t *number) {
    *number = dlc_metadata_int(file, key, -1);
    return *number >= 0
               ? DLC_OK
               : dlc_fail(DLC_ERR_DATA,
                          "%s is not a checkpoint of a run (%s is missing or not a "
                          "number); use --weights to load weights alone",
                          dlc_safetensors_path(file), key);
}

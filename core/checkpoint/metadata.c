/* Gathers the metadata of a checkpoint, and reads numbers back from it. Asks the
 * dynamic loader and /proc where a run comes from. */
#include "checkpoint/metadata.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <link.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "base/read.h"
#include "checkpoint/run_folder.h"
#include "session/loss_scale.h"

#define FORMAT "1"

/* ---- Settings, as net.ini --------------------------------------------------- */

static void print_value(dlc_text *text, const char *value) {
    size_t length = strlen(value);
    int needs_quotes = !length || strpbrk(value, ";#'") || value[0] == ' ' ||
                       value[length - 1] == ' ';
    dlc_text_add(text, needs_quotes ? "\"%s\"\n" : "%s\n", value);
}

static void print_setting(dlc_text *text, const dlc_setting *setting) {
    if (!setting->text)
        return;
    dlc_text_add(text, "%s%s = ", setting->is_set ? "" : "; ", setting->name);
    print_value(text, setting->text);
}

static void print_section(dlc_text *text, const char *section,
                          const dlc_settings *settings) {
    if (!settings)
        return;
    dlc_text_add(text, "%s[%s]\n", text->length ? "\n" : "", section);
    for (size_t i = 0; i < dlc_settings_count(settings); i++) {
        dlc_setting setting = dlc_settings_at(settings, i);
        print_setting(text, &setting);
    }
}

/* Inputs are written in full: a layer's default input depends on what is above it. */
static void print_inputs(dlc_text *text, const dlc_graph *graph,
                         const dlc_graph_layer *layer) {
    for (int32_t i = 0; i < layer->inputs; i++) {
        dlc_graph_input from = layer->input[i];
        dlc_text_add(text, i ? ", " : "input = ");
        if (from.layer == DLC_FROM_DATA)
            dlc_text_add(text, "%s", graph->field[from.output].name);
        else
            dlc_text_add(text, "%s", graph->layer[from.layer].name);
        if (from.layer != DLC_FROM_DATA && from.output)
            dlc_text_add(text, ":%d", (int)from.output);
    }
    if (layer->inputs)
        dlc_text_add(text, "\n");
}

static void print_layer(dlc_text *text, const dlc_graph *graph,
                        const dlc_graph_layer *layer) {
    dlc_text_add(text, "\n[%s]\n", layer->name);
    for (size_t i = 0; i < dlc_settings_count(layer->settings); i++) {
        dlc_setting setting = dlc_settings_at(layer->settings, i);
        if (strcmp(setting.name, "input") == 0)
            print_inputs(text, graph, layer);
        else if (strcmp(setting.name, "label") != 0) /* it is one of the inputs */
            print_setting(text, &setting);
    }
}

void dlc_metadata_settings(const dlc_setup *setup, dlc_text *text) {
    print_section(text, "net", setup->net_settings);
    print_section(text, "data", setup->train.settings);
    print_section(text, "data.test", setup->test.settings);
    print_section(text, "solver", setup->solver_settings);
    print_section(text, "consistency", setup->consistency_settings);
    print_section(text, "train", setup->train_settings);
    print_section(text, "parallel", setup->parallel_settings);
    print_section(text, "transport", setup->transport_settings);
    for (int32_t i = 0; setup->graph && i < setup->graph->layers; i++)
        print_layer(text, setup->graph, &setup->graph->layer[i]);
}

/* ---- Where the run comes from ----------------------------------------------- */

typedef struct loaded_files {
    const dlc_registry *registry; /* NULL: libraries, not plugins */
    dlc_text *text;
} loaded_files;

static void add_metadata_line(dlc_text *text, const char *first, const char *second) {
    dlc_text_add(text, "%s%s%s%s", text->length ? "\n" : "", first, second ? " " : "",
                 second ? second : "");
}

static void add_plugin(const loaded_files *files, const char *path) {
    const dlc_plugin_entry *plugin;
    for (size_t i = 0; (plugin = dlc_registry_plugin(files->registry, i)); i++)
        if (plugin->version && strcmp(plugin->path, path) == 0)
            add_metadata_line(files->text, plugin->name, plugin->version);
}

static int add_loaded_file(struct dl_phdr_info *info, size_t size, void *context) {
    const loaded_files *files = context;
    char path[PATH_MAX];
    (void)size;
    if (!info->dlpi_name[0] || !realpath(info->dlpi_name, path))
        return 0; /* the program itself, or the kernel's own */
    const char *slash = strrchr(path, '/');
    if (files->registry)
        add_plugin(files, path);
    else if (slash && strncmp(slash + 1, "lib", 3) == 0)
        add_metadata_line(files->text, slash + 1, NULL);
    return 0;
}

static void add_plugins(const dlc_registry *registry, dlc_text *text) {
    loaded_files files = {registry, text};
    (void)dl_iterate_phdr(add_loaded_file, &files);
}

static void add_libraries(dlc_text *text) {
    loaded_files files = {NULL, text};
    (void)dl_iterate_phdr(add_loaded_file, &files);
}

/* ---- Command and paths ------------------------------------------------------- */

static int is_plain(const char *word) {
    return *word && !word[strspn(word, "abcdefghijklmnopqrstuvwxyz"
                                       "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                       "0123456789_-./=,:+@%")];
}

/* Other programs read metadata as UTF-8, which a command line need not be. */
static void add_byte(dlc_text *text, char byte) {
    if (byte == '\'')
        dlc_text_add(text, "'\\''");
    else if ((unsigned char)byte < ' ' || (unsigned char)byte > '~')
        dlc_text_add(text, "?");
    else
        dlc_text_append(text, &byte, 1);
}

static void add_word(dlc_text *text, const char *word) {
    if (text->length)
        dlc_text_add(text, " ");
    if (is_plain(word)) {
        dlc_text_add(text, "%s", word);
        return;
    }
    dlc_text_add(text, "'");
    for (; *word; word++)
        add_byte(text, *word);
    dlc_text_add(text, "'");
}

static void add_command(dlc_text *text) {
    enum { MOST = 65536 };
    char words[MOST];
    size_t bytes = dlc_read_text("/proc/self/cmdline", words, sizeof words);
    for (size_t at = 0; at < bytes; at += strlen(words + at) + 1)
        add_word(text, words + at);
}

static void add_paths(const dlc_settings *settings, dlc_text *text) {
    for (size_t i = 0; i < dlc_settings_count(settings); i++) {
        dlc_setting setting = dlc_settings_at(settings, i);
        char path[PATH_MAX];
        if (setting.option->type != DLC_OPT_PATH || !setting.text)
            continue;
        const char *given = dlc_settings_get_string(settings, setting.name);
        dlc_text_add(text, "%s%s = %s", text->length ? "\n" : "", setting.name,
                     given && realpath(given, path) ? path : setting.text);
    }
}

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

static void add_metadata_copy(dlc_metadata *metadata, const char *key,
                              const char *value) {
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
        add_metadata_copy(metadata, key, dlc_text_string(text));
    dlc_text_free(text);
}

static void add_date(dlc_metadata *metadata) {
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    if (gmtime_r(&now, &utc) && strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc))
        add_metadata_copy(metadata, "dlcore.date", date);
}

static void add_origin(dlc_metadata *metadata, const dlc_setup *setup) {
    dlc_text text = {0};
    add_metadata_copy(metadata, "dlcore.version", DLC_VERSION);
    add_plugins(setup->registry, &text);
    add_text(metadata, "dlcore.plugins", &text);
    add_libraries(&text);
    add_text(metadata, "dlcore.libraries", &text);
    add_command(&text);
    add_text(metadata, "dlcore.command", &text);
    dlc_metadata_settings(setup, &text);
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
    add_metadata_copy(metadata, "dlcore.data.source", data->feature->name);
    add_paths(data->settings, &text);
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
        add_metadata_copy(metadata, "dlcore.plateau", text);
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
    add_metadata_copy(metadata, "dlcore.loss_scale", text);
    return DLC_OK;
}

dlc_status dlc_metadata_make(dlc_session *session, dlc_metadata *metadata) {
    const dlc_setup *setup = session->setup;
    *metadata = (dlc_metadata){0};
    add_metadata_copy(metadata, "dlcore.format", FORMAT);
    add_date(metadata);
    add_metadata_copy(metadata, "dlcore.net", setup->name);
    add_metadata_copy(metadata, "dlcore.device", setup->device->name);
    add_metadata_copy(metadata, "dlcore.solver", setup->solver->name);
    add_metadata_copy(metadata, "dlcore.consistency", setup->consistency->name);
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

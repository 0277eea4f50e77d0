/* Compares settings, tensors, solver, data and seed of a checkpoint with those of a
 * run. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/full_params.h"
#include "checkpoint/metadata.h"

enum { MAX_REPORTED = 20 };

typedef struct fit_state {
    const dlc_session *session;
    const dlc_safetensors *file;
    int has_average; /* the file has an average of the weights */
    int differences; /* that are refused */
    dlc_status status;
} fit_state;

/* Logs a difference that is refused; NULL stands for a setting that is not there. */
static void refuse_checkpoint(fit_state *fit, const char *what, const char *before,
                              const char *now) {
    fit->differences++;
    if (fit->differences == 1)
        dlc_error("%s does not match this run (checkpoint -> run):",
                  dlc_safetensors_path(fit->file));
    if (fit->differences <= MAX_REPORTED)
        dlc_error("  %s: %s -> %s", what, before ? before : "none", now ? now : "none");
}

/* ---- The lines of two texts (dlc_metadata_settings) -------------------------- */

typedef struct line {
    const char *section, *key, *value; /* key NULL: the section begins */
} line;

typedef struct lines {
    line *list; /* own */
    size_t count;
    dlc_names sections; /* where each begins */
} lines;

static dlc_status add_difference(lines *all, line one) {
    line *grown = dlc_grow_by_one(all->list, all->count, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    all->list = grown;
    grown[all->count++] = one;
    return one.key ? DLC_OK
                   : dlc_names_add(&all->sections, one.section, all->count - 1);
}

static dlc_status parse_settings(char *text, lines *all) {
    const char *section = "";
    char *rest = NULL;
    for (char *at = strtok_r(text, "\n", &rest); at; at = strtok_r(NULL, "\n", &rest)) {
        char *equals = strstr(at, " = "), *end = strchr(at, ']');
        if (at[0] == '[' && end) {
            *end = '\0';
            section = at + 1;
            DLC_TRY(add_difference(all, (line){section, NULL, NULL}));
        } else if (equals) {
            *equals = '\0';
            const char *key = strncmp(at, "; ", 2) == 0 ? at + 2 : at;
            DLC_TRY(add_difference(all, (line){section, key, equals + 3}));
        }
    }
    return DLC_OK;
}

static int has_section(const lines *all, const char *section) {
    return dlc_names_find(&all->sections, section) >= 0;
}

/* The same line in a list, or NULL. */
static const line *find_line(const lines *all, const line *wanted) {
    ptrdiff_t begin = dlc_names_find(&all->sections, wanted->section);
    if (begin < 0)
        return NULL;
    const line *at = &all->list[begin], *end = &all->list[all->count];
    if (!wanted->key)
        return at;
    for (at++; at < end && at->key; at++) /* to the next section */
        if (strcmp(at->key, wanted->key) == 0)
            return at;
    return NULL;
}

/* ---- Settings ---------------------------------------------------------------- */

static const dlc_settings *settings_of_section(const dlc_setup *setup,
                                               const char *section) {
    const dlc_graph *graph = setup->graph;
    if (strcmp(section, "net") == 0)
        return setup->net_settings;
    if (strcmp(section, "data") == 0)
        return setup->train.settings;
    if (strcmp(section, "data.test") == 0)
        return setup->test.settings;
    if (strcmp(section, "solver") == 0)
        return setup->solver_settings;
    if (strcmp(section, "consistency") == 0)
        return setup->consistency_settings;
    int32_t layer = dlc_graph_layer_named(graph, section);
    return layer < 0 ? NULL : graph->layer[layer].settings;
}

static uint32_t type_of(const dlc_settings *settings, const char *key) {
    for (size_t i = 0; settings && i < dlc_settings_count(settings); i++) {
        dlc_setting setting = dlc_settings_at(settings, i);
        if (strcmp(setting.name, key) == 0)
            return setting.option->type;
    }
    return 0;
}

/* Is it a key of the core in a layer's section? Apart from `type` and `input` these
 * only say how the layer is trained. */
static int is_training_key(const char *key) {
    if (strcmp(key, "type") == 0 || strcmp(key, "input") == 0)
        return 0;
    for (const dlc_option *option = dlc_graph_options; option->name;
         option = DLC_NEXT(option))
        if (strcmp(option->name, key) == 0)
            return 1;
    return 0;
}

typedef enum change_kind {
    CHANGE_NONE,     /* it has no effect on the result, or is checked elsewhere */
    CHANGE_REPORTED, /* the run continues with it */
    CHANGE_REFUSED   /* it makes another net */
} change_kind;

/* A section as a whole if `key` is NULL. */
static change_kind classify(const dlc_setup *setup, const char *section,
                            const char *key) {
    const dlc_settings *settings = settings_of_section(setup, section);
    if (strcmp(section, "train") == 0 || strcmp(section, "parallel") == 0 ||
        strcmp(section, "transport") == 0)
        return CHANGE_NONE;
    if (strcmp(section, "net") == 0)
        return CHANGE_REFUSED;
    if (!key)
        return dlc_is_listed(dlc_reserved_sections, section) ? CHANGE_REPORTED
                                                             : CHANGE_REFUSED;
    if (strcmp(section, "solver") == 0 && strcmp(key, "type") == 0)
        return CHANGE_NONE;
    if (strcmp(section, "data") == 0 &&
        (strcmp(key, "batch") == 0 || strcmp(key, "source") == 0))
        return CHANGE_NONE;
    if (dlc_is_listed(dlc_reserved_sections, section) || is_training_key(key))
        return CHANGE_REPORTED;
    /* Real numbers (rates, ratios, slopes) may be tuned during a run; integers and
     * choices define what a layer is. */
    uint32_t type = type_of(settings, key);
    return type == DLC_OPT_FILLER  ? CHANGE_NONE
           : type == DLC_OPT_FLOAT ? CHANGE_REPORTED
                                   : CHANGE_REFUSED;
}

/* Reports a difference in a line; a value is NULL where there is no such line. */
static void report_line(fit_state *fit, const line *at, const char *before,
                        const char *now) {
    change_kind change = classify(fit->session->setup, at->section, at->key);
    char *what = dlc_format("[%s]%s%s", at->section, at->key ? " " : "",
                            at->key ? at->key : "");
    if (!what)
        fit->status = DLC_ERR_NOMEM;
    else if (change == CHANGE_REFUSED)
        refuse_checkpoint(fit, what, before, now);
    else if (change == CHANGE_REPORTED)
        dlc_info("changed since the checkpoint: %s: %s -> %s", what,
                 before ? before : "none", now ? now : "none");
    dlc_free(what);
}

/* Reports the lines of the checkpoint that differ in the run's settings, then the lines
 * that only the run has. A section that is missing as a whole is reported once. */
static void compare_lines(fit_state *fit, const lines *before, const lines *now) {
    for (int is_new = 0; is_new < 2; is_new++) {
        const lines *one = is_new ? now : before, *other = is_new ? before : now;
        for (size_t i = 0; i < one->count; i++) {
            const line *at = &one->list[i], *match = find_line(other, at);
            const char *value = at->key ? at->value : "present";
            if (match && (is_new || !at->key || strcmp(value, match->value) == 0))
                continue;
            if (!match && at->key && !has_section(other, at->section))
                continue;
            const char *theirs = match ? match->value : NULL;
            report_line(fit, at, is_new ? theirs : value, is_new ? value : theirs);
        }
    }
}

static void compare_settings(fit_state *fit) {
    const char *text = dlc_safetensors_metadata(fit->file, "dlcore.net_ini");
    dlc_text now = {0};
    char *before = text ? dlc_strdup(text) : NULL;
    lines old = {0}, new = {0};
    dlc_metadata_settings(fit->session->setup, &now);
    if (dlc_text_status(&now) != DLC_OK || (text && !before))
        fit->status = DLC_ERR_NOMEM;
    else if (before)
        fit->status = parse_settings(before, &old);
    if (before && fit->status == DLC_OK)
        fit->status = parse_settings(now.bytes, &new);
    if (before && fit->status == DLC_OK)
        compare_lines(fit, &old, &new);
    dlc_names_free(&old.sections);
    dlc_names_free(&new.sections);
    dlc_free(old.list);
    dlc_free(new.list);
    dlc_free(before);
    dlc_text_free(&now);
}

/* ---- Tensors ----------------------------------------------------------------- */

static int is_of_average(const char *name) {
    return strncmp(name, DLC_EMA_NAME "/", sizeof DLC_EMA_NAME) == 0;
}

int dlc_compatibility_has_average(const dlc_safetensors *file) {
    for (size_t i = 0; i < dlc_safetensors_count(file); i++)
        if (is_of_average(dlc_safetensors_at(file, i)->name))
            return 1;
    return 0;
}

static dlc_status find_tensor(void *context, const dlc_full_tensor *tensor) {
    const fit_state *fit = context;
    return tensor->slot < fit->session->solver.slots || fit->has_average
               ? dlc_safetensors_find(fit->file, tensor->name, DLC_F32, tensor->shape)
               : DLC_OK;
}

static dlc_status find_model_state(const fit_state *fit) {
    if (!DLC_CAN(fit->session->consistency_ops, load))
        return DLC_OK;
    if (!dlc_safetensors_get(fit->file, DLC_MODEL_STATE_TENSOR))
        return dlc_fail(DLC_ERR_DATA, "%s has no state of a consistency model",
                        dlc_safetensors_path(fit->file));
    return dlc_safetensors_find(fit->file, DLC_MODEL_STATE_TENSOR, DLC_U8, NULL);
}

/* Does this run, with these parameters, have a use for the tensor? */
static int has_use(const dlc_session *session, const dlc_names *params,
                   const char *name) {
    const char *slash = strchr(name, '/');
    if (strcmp(name, DLC_RUNNING_AVERAGES_TENSOR) == 0)
        return 1; /* not needed: the file has their means, too */
    if (strcmp(name, DLC_MODEL_STATE_TENSOR) == 0)
        return 1; /* compare_tensors says when it is missing */
    if (is_of_average(name))
        return 1; /* of the core, whatever the solver */
    if (dlc_names_find(params, name) >= 0)
        return 1;
    for (int32_t slot = 0; slash && slot < dlc_solver_states(&session->solver);
         slot++) {
        const char *mine = dlc_solver_state_name(&session->solver, slot);
        if (dlc_solver_saves(&session->solver, slot) &&
            strlen(mine) == (size_t)(slash - name) &&
            strncmp(mine, name, strlen(mine)) == 0)
            return 1;
    }
    return 0;
}

/* Finds differences that the settings do not show. */
static void compare_tensors(fit_state *fit) {
    dlc_status status = dlc_full_tensors_visit(fit->session, find_tensor, fit);
    if (status == DLC_OK)
        status = find_model_state(fit);
    if (status == DLC_ERR_DATA)
        refuse_checkpoint(fit, "tensors", dlc_detail(), "required");
    else if (status != DLC_OK)
        fit->status = status;
}

/* The first tensor that this run has no use for; NULL if there is none. */
static dlc_status find_useless(const fit_state *fit, const char **useless) {
    const dlc_session *session = fit->session;
    dlc_names params = {0};
    dlc_status status = dlc_full_params_index(session, session->net, &params);
    *useless = NULL;
    for (size_t i = 0;
         status == DLC_OK && !*useless && i < dlc_safetensors_count(fit->file); i++) {
        const char *name = dlc_safetensors_at(fit->file, i)->name;
        if (!has_use(session, &params, name))
            *useless = name;
    }
    dlc_names_free(&params);
    return status;
}

/* Another solver may continue if it has the same kind of state. */
static void compare_solvers(fit_state *fit) {
    const char *solver = dlc_safetensors_metadata(fit->file, "dlcore.solver");
    const char *mine = fit->session->setup->solver->name, *useless;
    if (solver && strcmp(solver, mine) == 0)
        return;
    dlc_status status = find_useless(fit, &useless);
    if (status != DLC_OK) {
        fit->status = status;
        return;
    }
    if (useless) {
        char *what = dlc_format("[solver] type (the new solver cannot use %s)",
                                useless);
        refuse_checkpoint(fit, what ? what : "[solver] type", solver ? solver : "?",
                          mine);
        dlc_free(what);
        return;
    }
    dlc_info("%s was written by solver '%s'; '%s' continues from its state",
             dlc_safetensors_path(fit->file), solver ? solver : "?", mine);
}

/* ---- Data and seed ----------------------------------------------------------- */

static void compare_text(fit_state *fit, const char *key, const char *what,
                         const char *mine) {
    const char *theirs = dlc_safetensors_metadata(fit->file, key);
    if (theirs && strcmp(theirs, mine) != 0)
        refuse_checkpoint(fit, what, theirs, mine);
}

static void compare_int(fit_state *fit, const char *key, const char *what,
                        int64_t mine) {
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, mine);
    compare_text(fit, key, what, text);
}

static void compare_data(fit_state *fit) {
    const dlc_data_setup *data = &fit->session->setup->train;
    char digest[32];
    int before = fit->differences;
    compare_text(fit, "dlcore.data.source", "[data] source", data->feature->name);
    compare_int(fit, "dlcore.data.samples", "number of training samples",
                data->info.samples);
    compare_int(fit, "dlcore.data.classes", "number of classes", data->info.classes);
    snprintf(digest, sizeof digest, "%016" PRIx64, data->digest);
    if (fit->differences == before && data->digest)
        compare_text(fit, "dlcore.data.digest", "training samples (their digest)",
                     digest);
}

static void compare_seed(fit_state *fit) {
    int64_t seed = dlc_metadata_int(fit->file, "dlcore.seed", -1);
    char *what = dlc_format("seed (use --seed %" PRId64 " for that of the checkpoint)",
                            seed);
    compare_int(fit, "dlcore.seed", what ? what : "seed",
                (int64_t)fit->session->setup->seed);
    dlc_free(what);
}

dlc_status dlc_compatibility_check(const dlc_session *session,
                                   const dlc_safetensors *file) {
    fit_state fit = {.session = session,
                     .file = file,
                     .has_average = dlc_compatibility_has_average(file)};
    int64_t number;
    DLC_TRY(dlc_metadata_number(file, "dlcore.iteration", &number));
    DLC_TRY(dlc_metadata_number(file, "dlcore.seed", &number));
    DLC_TRY(dlc_metadata_number(file, "dlcore.effective_batch", &number));
    compare_text(&fit, "dlcore.net", "[net] name", session->setup->name);
    if (!fit.differences)
        compare_settings(&fit);
    if (!fit.differences && fit.status == DLC_OK)
        compare_solvers(&fit);
    if (!fit.differences && fit.status == DLC_OK)
        compare_tensors(&fit);
    compare_data(&fit);
    compare_seed(&fit);
    DLC_TRY(fit.status);
    if (fit.differences)
        return dlc_fail(
            DLC_ERR_DATA,
            "%s cannot be resumed: %d difference%s, above; undo the change, "
            "or start a new run from its weights with --weights %s",
            dlc_safetensors_path(file), fit.differences, fit.differences > 1 ? "s" : "",
            dlc_safetensors_path(file));
    return DLC_OK;
}

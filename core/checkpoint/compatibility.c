/* Compares settings, tensors, solver, data and seed of a checkpoint with those of a
 * run. */
#include "checkpoint/compatibility.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "checkpoint/full_params.h"
#include "checkpoint/metadata.h"
#include "checkpoint/net_ini.h"
#include "checkpoint/running_averages.h"

enum { MAX_REPORTED = 20 };

typedef struct fit_state {
    const dlc_session *session;
    const dlc_safetensors *file;
    int differences; /* that are refused */
    dlc_status status;
} fit_state;

/* Logs a difference that is refused; NULL stands for a setting that is not there. */
static void refuse(fit_state *fit, const char *what, const char *before,
                   const char *now) {
    fit->differences++;
    if (fit->differences == 1)
        dlc_error("%s does not match this run (checkpoint -> run):",
                  dlc_safetensors_path(fit->file));
    if (fit->differences <= MAX_REPORTED)
        dlc_error("  %s: %s -> %s", what, before ? before : "none", now ? now : "none");
}

/* ---- Settings ---------------------------------------------------------------- */

static const dlc_settings *settings_of(const dlc_setup *setup, const char *section) {
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

static int is_reserved(const char *section) {
    for (size_t i = 0; dlc_reserved_sections[i]; i++)
        if (strcmp(dlc_reserved_sections[i], section) == 0)
            return 1;
    return 0;
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

static change_kind classify(const dlc_setup *setup,
                            const dlc_net_ini_difference *difference) {
    const char *section = difference->section, *key = difference->key;
    const dlc_settings *settings = settings_of(setup, section);
    if (strcmp(section, "train") == 0 || strcmp(section, "parallel") == 0 ||
        strcmp(section, "transport") == 0)
        return CHANGE_NONE;
    if (strcmp(section, "net") == 0)
        return CHANGE_REFUSED;
    if (!key)
        return is_reserved(section) ? CHANGE_REPORTED : CHANGE_REFUSED;
    if (strcmp(section, "solver") == 0 && strcmp(key, "type") == 0)
        return CHANGE_NONE;
    if (strcmp(section, "data") == 0 &&
        (strcmp(key, "batch") == 0 || strcmp(key, "source") == 0))
        return CHANGE_NONE;
    if (is_reserved(section) || is_training_key(key))
        return CHANGE_REPORTED;
    /* Real numbers (rates, ratios, slopes) may be tuned during a run; integers and
     * choices define what a layer is. */
    uint32_t type = type_of(settings, key);
    return type == DLC_OPT_FILLER  ? CHANGE_NONE
           : type == DLC_OPT_FLOAT ? CHANGE_REPORTED
                                   : CHANGE_REFUSED;
}

static void visit_difference(void *context, const dlc_net_ini_difference *difference) {
    fit_state *fit = context;
    change_kind change = classify(fit->session->setup, difference);
    char *what = dlc_format("[%s]%s%s", difference->section, difference->key ? " " : "",
                            difference->key ? difference->key : "");
    if (!what) {
        fit->status = DLC_ERR_NOMEM;
        return;
    }
    const char *present = difference->key ? NULL : "present";
    const char *before = difference->before && present ? present : difference->before;
    const char *now = difference->now && present ? present : difference->now;
    if (change == CHANGE_REFUSED)
        refuse(fit, what, before, now);
    else if (change == CHANGE_REPORTED)
        dlc_info("changed since the checkpoint: %s: %s -> %s", what,
                 before ? before : "none", now ? now : "none");
    dlc_free(what);
}

static void compare_settings(fit_state *fit) {
    const char *text = dlc_safetensors_metadata(fit->file, "dlcore.net_ini");
    dlc_text now = {0};
    char *before = text ? dlc_strdup(text) : NULL;
    dlc_net_ini_print(fit->session->setup, &now);
    if (dlc_text_status(&now) != DLC_OK || (text && !before))
        fit->status = DLC_ERR_NOMEM;
    else if (before)
        fit->status = dlc_net_ini_compare(before, now.bytes, visit_difference, fit);
    dlc_free(before);
    dlc_text_free(&now);
}

/* ---- Tensors ----------------------------------------------------------------- */

static dlc_status find_param(const dlc_session *session, const dlc_net *net, int32_t i,
                             const dlc_safetensors *file, const char *prefix) {
    dlc_full_param param = dlc_full_param_at(session, net, i);
    char *name = dlc_format("%s%s", prefix, param.name);
    if (!name)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_safetensors_find(file, name, DLC_F32, param.shape);
    dlc_free(name);
    return status;
}

static dlc_status find_weights(const dlc_session *session,
                               const dlc_safetensors *file) {
    for (int32_t i = 0; i < dlc_full_param_count(session, session->net); i++)
        DLC_TRY(find_param(session, session->net, i, file, ""));
    return DLC_OK;
}

static int is_of_average(const char *name) {
    return strncmp(name, DLC_EMA_NAME "/", sizeof DLC_EMA_NAME) == 0;
}

static int has_average(const dlc_safetensors *file) {
    for (size_t i = 0; i < dlc_safetensors_count(file); i++)
        if (is_of_average(dlc_safetensors_at(file, i)->name))
            return 1;
    return 0;
}

int dlc_compatibility_needs(const dlc_session *session, const dlc_safetensors *file,
                            int32_t state) {
    return dlc_solver_saves(&session->solver, state) &&
           (state < session->solver.slots || has_average(file));
}

static dlc_status find_slots(const dlc_session *session, const dlc_safetensors *file) {
    char prefix[128];
    for (int32_t slot = 0; slot < dlc_solver_states(&session->solver); slot++) {
        snprintf(prefix, sizeof prefix, "%s/",
                 dlc_solver_state_name(&session->solver, slot));
        int needs = dlc_compatibility_needs(session, file, slot);
        for (int32_t i = 0; needs && i < dlc_full_param_count(session, session->net);
             i++)
            if (!dlc_full_param_at(session, session->net, i).is_buffer)
                DLC_TRY(find_param(session, session->net, i, file, prefix));
    }
    if (!DLC_CAN(session->consistency_ops, load))
        return DLC_OK;
    if (!dlc_safetensors_get(file, DLC_MODEL_STATE_TENSOR))
        return dlc_fail(DLC_ERR_DATA, "%s has no state of a consistency model",
                        dlc_safetensors_path(file));
    return dlc_safetensors_find(file, DLC_MODEL_STATE_TENSOR, DLC_U8, NULL);
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
    const dlc_session *session = fit->session;
    dlc_status status = find_weights(session, fit->file);
    if (status == DLC_OK)
        status = find_slots(session, fit->file);
    if (status == DLC_ERR_DATA)
        refuse(fit, "tensors", dlc_detail(), "required");
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
        refuse(fit, what ? what : "[solver] type", solver ? solver : "?", mine);
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
        refuse(fit, what, theirs, mine);
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
    fit_state fit = {.session = session, .file = file};
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

/* Reads [consistency] on rank 0, sends the settings to all ranks and hands them to
 * the consistency model. */
#include "parallel/staleness/staleness.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "plugin/answers.h"

/* ---- Reading ----------------------------------------------------------------- */

static dlc_status make_settings(const dlc_setup *setup, const dlc_config *config,
                                dlc_problems *problems, dlc_settings **settings) {
    const dlc_option *tables[] = {dlc_consistency_section_options,
                                  setup->consistency->options};
    return dlc_settings_make(config, "consistency", tables, 2, problems, settings);
}

static int is_same(const char *one, const char *other) {
    return strcmp(one ? one : "", other ? other : "") == 0;
}

/* Reports settings that differ but can't change in a running job. */
static void check_changes(const dlc_setup *setup, const dlc_config *config,
                          const dlc_settings *settings, dlc_problems *problems) {
    for (size_t i = 0; i < dlc_settings_count(settings); i++) {
        dlc_setting it = dlc_settings_at(settings, i);
        const char *was = dlc_settings_text(setup->consistency_settings, it.name);
        if (!(it.option->flags & DLC_OPT_LIVE) && !is_same(was, it.text))
            dlc_problems_add(
                problems, config, dlc_settings_line(settings, it.name),
                "[consistency] %s cannot be changed while the job runs: it is %s",
                it.name, was ? was : "not set");
    }
}

/* Reports every mistake. `path` NULL: only `sets`. */
static dlc_status read_consistency(const dlc_setup *setup, const char *path,
                                   const char *const *sets, size_t count,
                                   dlc_settings **settings) {
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    dlc_settings *made = NULL;
    dlc_status status = dlc_config_load(path, dlc_reserved_sections, sets, count,
                                        &problems, &config);
    if (status == DLC_OK)
        status = make_settings(setup, config, &problems, &made);
    if (status == DLC_OK) {
        check_changes(setup, config, made, &problems);
        status = dlc_problems_report(&problems);
    }
    dlc_problems_free(&problems);
    dlc_config_free(config);
    if (status != DLC_OK) {
        dlc_settings_free(made);
        return status;
    }
    *settings = made;
    return DLC_OK;
}

/* ---- From rank 0 to all ------------------------------------------------------ */

/* Appends "consistency.NAME=VALUE" for each setting, NUL-terminated. */
static dlc_status pack(const dlc_settings *settings, dlc_text *text) {
    for (size_t i = 0; i < dlc_settings_count(settings); i++) {
        dlc_setting it = dlc_settings_at(settings, i);
        if (!it.is_set)
            continue;
        dlc_text_add(text, "consistency.%s=%s", it.name, it.text);
        dlc_text_append(text, "", 1);
    }
    return dlc_text_status(text);
}

static dlc_status unpack(const dlc_setup *setup, const char *bytes, size_t length,
                         dlc_settings **settings) {
    size_t count = 0;
    for (size_t i = 0; i < length; i++)
        count += bytes[i] == '\0';
    const char **sets = dlc_alloc(count, sizeof *sets);
    if (!sets)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < count; i++, bytes += strlen(bytes) + 1)
        sets[i] = bytes;
    dlc_status status = read_consistency(setup, NULL, sets, count, settings);
    dlc_free(sets);
    return status;
}

/* Broadcasts rank 0's text; `length` is SIZE_MAX if it has none. */
static dlc_status broadcast_text(dlc_session *session, const dlc_text *text,
                                 char **bytes, size_t *length) {
    uint64_t size = text ? text->length : UINT64_MAX;
    DLC_TRY(dlc_job_broadcast(session->job, 0, &size, sizeof size));
    *length = (size_t)size;
    *bytes = NULL;
    if (size == UINT64_MAX || size == 0)
        return DLC_OK;
    char *made = dlc_alloc((size_t)size, 1);
    if (!made)
        return DLC_ERR_NOMEM;
    if (text)
        memcpy(made, dlc_text_string(text), (size_t)size);
    dlc_status status = dlc_job_broadcast(session->job, 0, made, (size_t)size);
    if (status != DLC_OK) {
        dlc_free(made);
        return status;
    }
    *bytes = made;
    return DLC_OK;
}

/* Collective. Returns equal settings on all ranks, or NULL where rank 0 found, and has
 * reported, mistakes. */
static dlc_status read_on_rank_0(dlc_session *session, dlc_settings **settings) {
    const dlc_setup *setup = session->setup;
    dlc_settings *made = NULL;
    dlc_text text = {0};
    char *bytes = NULL;
    size_t length = 0;
    int sound = session->rank == 0 &&
                read_consistency(setup, setup->path, (const char *const *)setup->sets,
                                 setup->set_count, &made) == DLC_OK &&
                pack(made, &text) == DLC_OK;
    dlc_status status = broadcast_text(session, sound ? &text : NULL, &bytes, &length);
    if (status == DLC_OK && length != SIZE_MAX && session->rank != 0)
        status = unpack(setup, bytes, length, &made);
    dlc_free(bytes);
    dlc_text_free(&text);
    if (status != DLC_OK || length == SIZE_MAX) {
        dlc_settings_free(made);
        made = NULL;
    }
    *settings = made;
    return status;
}

/* ---- Taking ------------------------------------------------------------------ */

static void log_changes(const dlc_settings *before, const dlc_settings *now) {
    int changes = 0;
    for (size_t i = 0; i < dlc_settings_count(now); i++) {
        dlc_setting it = dlc_settings_at(now, i);
        const char *was = dlc_settings_text(before, it.name);
        if (is_same(was, it.text))
            continue;
        dlc_info("[consistency] %s = %s, was %s", it.name,
                 it.text ? it.text : "(unset)", was ? was : "(unset)");
        changes++;
    }
    if (!changes)
        dlc_info("[consistency] was read again: nothing has changed");
}

static dlc_status apply_reload(dlc_session *session, dlc_settings *settings) {
    dlc_setup *setup = session->setup;
    DLC_TRY(dlc_setup_add_consistency_settings(setup, settings));
    const dlc_consistency_ops *ops = session->consistency_ops;
    dlc_status status = DLC_OK;
    DLC_EACH_PARAM_SET(session, set)
    if (status == DLC_OK)
        status = DLC_ASK(ops, "configure", ops->configure(set->model, settings));
    if (status == DLC_OK && session->rank == 0)
        log_changes(setup->consistency_settings, settings);
    if (status == DLC_OK)
        dlc_setup_use_added_settings(setup);
    else if (session->rank == 0)
        dlc_error("[consistency] is unchanged: %s", dlc_detail());
    return DLC_OK;
}

dlc_status dlc_consistency_reload(dlc_session *session) {
    dlc_settings *settings = NULL;

    if (!DLC_CAN(session->consistency_ops, configure)) {
        if (session->rank == 0)
            dlc_warn(
                "consistency '%s' cannot be changed while the job runs: [consistency] is "
                "unchanged",
                session->setup->consistency->name);
        return DLC_OK;
    }
    DLC_TRY(read_on_rank_0(session, &settings));
    if (settings)
        return apply_reload(session, settings);
    if (session->rank == 0)
        dlc_error("[consistency] is unchanged: %s", dlc_detail());
    return DLC_OK;
}

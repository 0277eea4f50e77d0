/* Opens and probes a communicator, and keeps what does not work. */
#include "session/connection_trial.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "comm/probe.h"
#include "job/job.h"

/* RDMA adapters lock the memory that they read and write. */
#define LOCKED_LEAST ((rlim_t)8 << 20)

/* With fewer files than this, that is likely to be the reason. */
#define FILES_LEAST 64
#define FILES_PER_RANK 8

/* ---- Findings ---------------------------------------------------------------- */

/* Where a finding is, or is to be: NULL if memory is out. */
static dlc_transport_finding *place_for(dlc_connection_trial *t,
                                        const dlc_transport_finding *what) {
    for (size_t i = 0; i < t->findings; i++) {
        dlc_transport_finding *f = &t->finding[i];
        if (strcmp(f->name, what->name) == 0 &&
            dlc_comm_scope_is_same(f->scope, what->scope))
            return f;
    }
    dlc_transport_finding *grown = dlc_grow_by_one(t->finding, t->findings,
                                                   sizeof *grown);
    if (!grown)
        return NULL;
    t->finding = grown;
    grown[t->findings] = (dlc_transport_finding){.slowdown = 0};
    return &grown[t->findings++];
}

/* What cannot be used stays so, and what is known to be slow does not get slower. */
dlc_status dlc_connection_trial_add(dlc_connection_trial *t,
                                    const dlc_transport_finding *what, int *again) {
    char scope[48] = "";
    dlc_transport_finding *f = place_for(t, what);
    if (!f)
        return DLC_ERR_NOMEM;
    if (f->name[0] && (!(f->slowdown > 0) || what->slowdown > 0))
        return DLC_OK;
    *f = *what;
    *again = 1;
    if (!f->everywhere)
        dlc_comm_scope_text(f->scope, scope);
    if (t->how->rank == 0)
        dlc_warn("transport %s%s %s: %s", f->name, scope,
                 f->slowdown > 0 ? "is slow" : "is not used", f->text);
    return DLC_OK;
}

/* Adds a finding about a level of the choice. */
static dlc_status add_finding(dlc_connection_trial *t, int32_t level, double slowdown,
                              const char *text, int *again) {
    const dlc_transport_level *its = &t->choice->level[level];
    dlc_transport_finding what = {.scope = its->scope, .slowdown = slowdown};
    (void)snprintf(what.name, sizeof what.name, "%s", its->feature->name);
    (void)snprintf(what.text, sizeof what.text, "%s", text);
    return dlc_connection_trial_add(t, &what, again);
}

/* ---- Opening ----------------------------------------------------------------- */

void dlc_connection_withdraw(void *job, dlc_status status) {
    struct rlimit locked, files;
    char text[DLC_FAILURE_TEXT], hint[DLC_FILES_TEXT] = "";
    rlim_t ranks = (rlim_t)dlc_job_ranks(job);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 &&
        files.rlim_cur < FILES_LEAST + FILES_PER_RANK * ranks)
        (void)dlc_files_limit(hint);
    else if (getrlimit(RLIMIT_MEMLOCK, &locked) == 0 && locked.rlim_cur < LOCKED_LEAST)
        (void)snprintf(hint, sizeof hint,
                       " (locked memory is limited to %llu KiB: see ulimit -l)",
                       (unsigned long long)locked.rlim_cur >> 10);
    (void)snprintf(text, sizeof text, "%.*s%s", (int)(sizeof text - 1 - strlen(hint)),
                   dlc_detail(), hint);
    dlc_job_withdraw(job, status, text);
}

/* Opening a level has failed with `status`, on all ranks; all know why. Another choice
 * may do. */
static dlc_status keep_failure(dlc_connection_trial *t, dlc_status status,
                               int32_t level, int *again) {
    DLC_TRY(dlc_job_check(t->job));
    dlc_status known = dlc_job_withdrawal(t->job);
    if (!t->may_replace)
        return known == DLC_OK ? status : known;
    return add_finding(t, level, 0, dlc_detail(), again);
}

/* ---- Probing ----------------------------------------------------------------- */

static dlc_status keep_findings(dlc_connection_trial *t,
                                const dlc_probe_finding *finding, int *again,
                                int *usable) {
    *usable = 1;
    for (int32_t i = 0; i < t->how->levels; i++) {
        if (finding[i].from < 0)
            continue;
        *usable &= finding[i].slowdown > 0;
        DLC_TRY(add_finding(t, i, finding[i].slowdown, finding[i].text, again));
    }
    return DLC_OK;
}

static dlc_status probe(dlc_connection_trial *t, dlc_comm **comm, int *again) {
    dlc_transport_path path[DLC_COMM_LEVELS];
    dlc_probe_finding finding[DLC_COMM_LEVELS];
    const dlc_probe_args args = {t->how, path, t->device};
    dlc_probe its = {.memory = {.size = 0}};
    int usable = 0;
    for (int32_t i = 0; i < t->how->levels; i++) {
        path[i] = t->choice->level[i].path;
        finding[i] = (dlc_probe_finding){.from = -1};
    }
    dlc_job_activity(t->job, "probe of transport", t->name, 0);
    uint64_t began = dlc_now_ns();
    dlc_status status = dlc_probe_run(&its, &args, *comm, finding);
    if (t->how->rank == 0)
        dlc_debug("probed in %.1f ms", dlc_since(began) * 1e3);
    if (status == DLC_OK)
        status = keep_findings(t, finding, again, &usable);
    if (!usable) {
        dlc_comm_close(*comm);
        *comm = NULL;
    }
    dlc_probe_close(&its, &args);
    return status;
}

dlc_status dlc_connection_try(dlc_connection_trial *trial, dlc_comm **comm,
                              int *again) {
    int32_t failed = -1;
    *again = 0;
    dlc_job_activity(trial->job, "opening of transport", trial->name, 0);
    dlc_status status = dlc_comm_try_open(trial->how, comm, &failed);
    if (status != DLC_OK)
        return failed < 0 ? status : keep_failure(trial, status, failed, again);
    return trial->probes ? probe(trial, comm, again) : DLC_OK;
}

/* Finds out which launcher has started this process, if any, and checks what it says.
 */
#include "job/external.h"

#include <string.h>

#include "job/environment.h"
#include "job/external_kinds.h"

/* ---- Launchers ------------------------------------------------------------------ */

/* Whether a variable holds a number above 1: tools that start a single process set
 * these variables, too, and a process alone may start ranks of its own. */
static int several(const char *name) {
    const char *text = dlc_environment_text(name);
    return text && strcmp(text, "1") != 0 && strcmp(text, "0") != 0;
}

static int is_by_pmix(void) {
    return dlc_environment_text("PMIX_NAMESPACE") != NULL;
}

static int is_by_variables(void) {
    return dlc_environment_text("RANK") || dlc_environment_text("WORLD_SIZE") ||
           dlc_environment_text("MASTER_ADDR") || dlc_environment_text("MASTER_PORT");
}

static int is_by_pmi(void) {
    return several("PMI_SIZE");
}

static int is_by_slurm(void) {
    return several("SLURM_STEP_NUM_TASKS");
}

/* Launchers by whose variables alone ranks do not find each other: without the service
 * that should come with them, each process would train alone. */
static const struct {
    const char *size, *who, *service;
} foreign[] = {
    {"OMPI_COMM_WORLD_SIZE", "Open MPI", "PMIx (PMIX_NAMESPACE)"},
    {"MV2_COMM_WORLD_SIZE", "MVAPICH", "PMI (PMI_SIZE)"},
    {"JSM_NAMESPACE_SIZE", "jsrun", "PMIx (PMIX_NAMESPACE)"},
    {"FLUX_JOB_SIZE", "Flux", "PMI (PMI_SIZE)"},
    {"HOROVOD_SIZE", "horovodrun", "MASTER_ADDR"},
};

enum { FOREIGN = sizeof foreign / sizeof *foreign };

/* FOREIGN: none. */
static int find_foreign(void) {
    int i = 0;
    while (i < FOREIGN && !several(foreign[i].size))
        i++;
    return i;
}

static int is_by_foreign(void) {
    return find_foreign() < FOREIGN;
}

static dlc_status refuse_foreign(dlc_external *external) {
    int i = find_foreign();
    (void)external;
    return dlc_fail(DLC_ERR_CONFIG,
                    "%s=%s in the environment: %s has started this process as one of "
                    "several, but without %s, by which they would find each other. Let "
                    "the launcher pass that on (into a container, too), or set RANK, "
                    "WORLD_SIZE, MASTER_ADDR and MASTER_PORT; to train in this process "
                    "alone, unset %s",
                    foreign[i].size, dlc_environment_text(foreign[i].size),
                    foreign[i].who, foreign[i].service, foreign[i].size);
}

/* The first that is present is taken: srun sets its variables for every launcher that
 * it starts, or whose library it serves. */
static const struct {
    dlc_external_kind kind;
    int (*is_present)(void);
    dlc_status (*read)(dlc_external *external);
} launchers[] = {
    {DLC_EXTERNAL_PMIX, is_by_pmix, dlc_external_read_pmix},
    {DLC_EXTERNAL_VARIABLES, is_by_variables, dlc_external_read_variables},
    {DLC_EXTERNAL_PMI, is_by_pmi, dlc_external_read_pmi},
    {DLC_EXTERNAL_SLURM, is_by_slurm, dlc_external_read_slurm},
    {DLC_EXTERNAL_NONE, is_by_foreign, refuse_foreign},
};

enum { LAUNCHERS = sizeof launchers / sizeof *launchers };

/* LAUNCHERS: none. */
static int find_launcher(void) {
    int i = 0;
    while (i < LAUNCHERS && !launchers[i].is_present())
        i++;
    return i;
}

int dlc_job_is_external(void) {
    return find_launcher() < LAUNCHERS;
}

static dlc_status check_asked(int asked, const dlc_external *external) {
    if (asked != 1 && external->ranks >= 0 && asked != external->ranks)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "--ranks=%d (or [parallel] ranks) starts ranks on this machine, but "
            "this process was started as one of %d: use only one of them",
            asked, external->ranks);
    return DLC_OK;
}

dlc_status dlc_external_read(int asked, dlc_external *external) {
    dlc_external made = {.kind = DLC_EXTERNAL_NONE,
                         .rank = -1,
                         .ranks = -1,
                         .local_rank = -1,
                         .local_ranks = -1};
    int found = find_launcher();
    if (found < LAUNCHERS) {
        long port;
        DLC_TRY(launchers[found].read(&made));
        made.kind = launchers[found].kind;
        DLC_TRY(check_asked(asked, &made));
        DLC_TRY(dlc_environment_number("DLCORE_PORT", UINT16_MAX, &port));
        if (port > 0)
            made.port = (uint16_t)port;
    }
    *external = made;
    return DLC_OK;
}

/* Reads and checks the variables that launchers set in the environment. */
#include "job/external.h"

#include <stdlib.h>
#include <string.h>

/* The value of a variable; NULL if it is not set or empty. */
static const char *text_of(const char *name) {
    const char *text = getenv(name);
    return text && text[0] ? text : NULL;
}

/* *number is -1 if the variable is not set. */
static dlc_status number_of(const char *name, long most, long *number) {
    const char *text = text_of(name);
    *number = -1;
    if (!text)
        return DLC_OK;
    char *end;
    long value = strtol(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || end - text > 9 || value > most)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s=%s in the environment is not a number from 0 to %ld", name,
                        text, most);
    *number = value;
    return DLC_OK;
}

static dlc_status check_rank(const char *rank_name, long rank, const char *size_name,
                             long size) {
    if (size == 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s=0 in the environment: a job has 1 or more "
                        "ranks",
                        size_name);
    if (rank >= 0 && size >= 0 && rank >= size)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s=%ld and %s=%ld contradict each other: ranks count from 0, "
                        "so the last one is %ld",
                        rank_name, rank, size_name, size, size - 1);
    return DLC_OK;
}

/* ---- RANK, WORLD_SIZE ... ------------------------------------------------------ */

static dlc_status need_all(void) {
    static const char *const needed[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR",
                                         "MASTER_PORT"};
    const char *there = NULL, *missing = NULL;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (text_of(needed[i]))
            there = there ? there : needed[i];
        else
            missing = missing ? missing : needed[i];
    if (missing)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s is set in the environment, but %s is not: for a rank of a "
                        "larger job set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, "
                        "else unset all of them",
                        there, missing);
    return DLC_OK;
}

static dlc_status read_variables(dlc_external *external) {
    long rank, ranks, local_rank, local_ranks;
    DLC_TRY(number_of("RANK", DLC_JOB_RANKS_MAX - 1, &rank));
    DLC_TRY(number_of("WORLD_SIZE", DLC_JOB_RANKS_MAX, &ranks));
    DLC_TRY(number_of("LOCAL_RANK", DLC_JOB_RANKS_MAX - 1, &local_rank));
    DLC_TRY(number_of("LOCAL_WORLD_SIZE", DLC_JOB_RANKS_MAX, &local_ranks));
    DLC_TRY(check_rank("RANK", rank, "WORLD_SIZE", ranks));
    DLC_TRY(check_rank("LOCAL_RANK", local_rank, "LOCAL_WORLD_SIZE", local_ranks));
    if (ranks >= 0 && local_ranks > ranks)
        return dlc_fail(DLC_ERR_CONFIG,
                        "LOCAL_WORLD_SIZE=%ld and WORLD_SIZE=%ld contradict each other",
                        local_ranks, ranks);
    if (rank >= 0 && local_rank > rank)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "LOCAL_RANK=%ld and RANK=%ld contradict each other: the rank on "
            "one machine cannot exceed the rank in the whole job",
            local_rank, rank);
    external->rank = (int)rank;
    external->ranks = (int)ranks;
    external->local_rank = (int)local_rank;
    return DLC_OK;
}

/* torchrun's own agent listens at MASTER_PORT wherever its workers are meant to be
 * clients of that store (torch 1.13 without --standalone; any use of torch 2.4), and
 * sets this variable then. */
static int torchrun_owns_port(void) {
    const char *store = text_of("TORCHELASTIC_USE_AGENT_STORE");
    return store && strcmp(store, "True") == 0;
}

static dlc_status read_address(dlc_external *external) {
    long port;
    external->host = text_of("MASTER_ADDR");
    DLC_TRY(number_of("MASTER_PORT", UINT16_MAX, &port));
    if (port == 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "MASTER_PORT=0 in the environment: the ranks must know the "
                        "port, so give them one from 1 to 65535");
    if (port > 0 && torchrun_owns_port())
        port += port < UINT16_MAX ? 1
                                  : -1; /* the next port, which all ranks can derive */
    external->port = port > 0 ? (uint16_t)port : 0;
    return DLC_OK;
}

/* ---- PMIx ---------------------------------------------------------------------- */

static dlc_status read_pmix(dlc_external *external) {
    long rank;
    DLC_TRY(number_of("PMIX_RANK", DLC_JOB_RANKS_MAX - 1, &rank));
    if (rank < 0)
        return dlc_fail(DLC_ERR_CONFIG, "PMIX_NAMESPACE is set in the environment, but "
                                        "PMIX_RANK is not: mpirun and srun set both");
    DLC_TRY(read_variables(external)); /* which may be set, too */
    if (external->rank >= 0 && external->rank != rank)
        return dlc_fail(DLC_ERR_CONFIG,
                        "PMIX_RANK=%ld and RANK=%d in the environment contradict each "
                        "other: unset RANK, or start without mpirun and srun",
                        rank, external->rank);
    external->rank = (int)rank;
    external->kind = DLC_EXTERNAL_PMIX;
    external->host = NULL;
    external->port = 0;
    return DLC_OK;
}

/* Refuses launches of several processes that cannot find each other: each would train
 * on its own and write the same files. */
static dlc_status refuse_unsupported_launchers(void) {
    long size;
    DLC_TRY(number_of("PMI_SIZE", DLC_JOB_RANKS_MAX, &size));
    if (size > 1)
        return dlc_fail(DLC_ERR_CONFIG,
                        "this is one of %ld processes that were started through PMI-1 "
                        "or PMI-2, which dlcore does not support: use srun --mpi=pmix, "
                        "Open MPI's mpirun, or RANK, WORLD_SIZE, MASTER_ADDR and "
                        "MASTER_PORT",
                        size);
    DLC_TRY(number_of("SLURM_STEP_NUM_TASKS", INT32_MAX, &size));
    if (size > 1)
        return dlc_fail(DLC_ERR_CONFIG,
                        "this is one of %ld tasks of srun, but without PMIx they "
                        "cannot find each other: use srun --mpi=pmix",
                        size);
    return DLC_OK;
}

static int is_by_pmix(void) {
    return text_of("PMIX_NAMESPACE") != NULL;
}

static int any_variable(void) {
    return text_of("RANK") || text_of("WORLD_SIZE") || text_of("MASTER_ADDR") ||
           text_of("MASTER_PORT");
}

int dlc_job_is_external(void) {
    return is_by_pmix() || any_variable();
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
    dlc_external made = {
        .kind = DLC_EXTERNAL_NONE, .rank = -1, .ranks = -1, .local_rank = -1};
    long port;
    if (is_by_pmix()) {
        DLC_TRY(read_pmix(&made));
    } else if (any_variable()) {
        DLC_TRY(need_all());
        DLC_TRY(read_variables(&made));
        DLC_TRY(read_address(&made));
        made.kind = DLC_EXTERNAL_VARIABLES;
    } else {
        DLC_TRY(refuse_unsupported_launchers());
    }
    if (made.kind != DLC_EXTERNAL_NONE) {
        DLC_TRY(check_asked(asked, &made));
        DLC_TRY(number_of("DLCORE_PORT", UINT16_MAX, &port));
        if (port > 0)
            made.port = (uint16_t)port;
    }
    *external = made;
    return DLC_OK;
}

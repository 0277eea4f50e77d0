/* Finds out which launcher has started this process, if any, and reads and checks what
 * it says. */
#include <stdio.h>
#include <string.h>

#include "job/job.h"
#include "job/launch/environment.h"

/* ---- What several of them set --------------------------------------------------- */

/* The variables by which a launcher says who this process is; NULL: there is none. */
typedef struct number_names {
    const char *rank, *ranks, *local_rank, *local_ranks;
} number_names;

static dlc_status read_number(const char *name, int most, int *number) {
    long value = -1;
    if (name)
        DLC_TRY(dlc_environment_number(name, most, &value));
    *number = (int)value;
    return DLC_OK;
}

/* Whether a rank and a number of ranks, -1 where unknown, can both be true. */
static dlc_status check_rank(const char *rank_name, int rank, const char *size_name,
                             int size) {
    if (size == 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s=0 in the environment: a job has 1 or more ranks",
                        size_name);
    if (rank >= 0 && size >= 0 && rank >= size)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%s=%d and %s=%d contradict each other: ranks count from 0, "
                        "so the last one is %d",
                        rank_name, rank, size_name, size, size - 1);
    return DLC_OK;
}

/* Reads the numbers, as far as they are set. */
static dlc_status read_numbers(const number_names *names, dlc_external *external) {
    int last = DLC_JOB_RANKS_MAX - 1;
    DLC_TRY(read_number(names->rank, last, &external->rank));
    DLC_TRY(read_number(names->ranks, DLC_JOB_RANKS_MAX, &external->ranks));
    DLC_TRY(read_number(names->local_rank, last, &external->local_rank));
    DLC_TRY(read_number(names->local_ranks, DLC_JOB_RANKS_MAX, &external->local_ranks));
    return check_rank(names->rank, external->rank, names->ranks, external->ranks);
}

/* ---- RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT ------------------------------- */

static int is_by_variables(void) {
    return dlc_environment_text("RANK") || dlc_environment_text("WORLD_SIZE") ||
           dlc_environment_text("MASTER_ADDR") || dlc_environment_text("MASTER_PORT");
}

static dlc_status need_all_variables(void) {
    static const char *const needed[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR",
                                         "MASTER_PORT"};
    const char *there = NULL, *missing = NULL;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (dlc_environment_text(needed[i]))
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

static dlc_status read_torch_numbers(dlc_external *external) {
    static const number_names names = {"RANK", "WORLD_SIZE", "LOCAL_RANK",
                                       "LOCAL_WORLD_SIZE"};
    DLC_TRY(read_numbers(&names, external));
    DLC_TRY(check_rank(names.local_rank, external->local_rank, names.local_ranks,
                       external->local_ranks));
    if (external->ranks >= 0 && external->local_ranks > external->ranks)
        return dlc_fail(DLC_ERR_CONFIG,
                        "LOCAL_WORLD_SIZE=%d and WORLD_SIZE=%d contradict each other",
                        external->local_ranks, external->ranks);
    if (external->rank >= 0 && external->local_rank > external->rank)
        return dlc_fail(DLC_ERR_CONFIG,
                        "LOCAL_RANK=%d and RANK=%d contradict each other: the rank on "
                        "one machine cannot exceed the rank in the whole job",
                        external->local_rank, external->rank);
    return DLC_OK;
}

/* torchrun's own agent listens at MASTER_PORT wherever its workers are meant to be
 * clients of that store (torch 1.13 without --standalone; any use of torch 2.4), and
 * sets this variable then. */
static int torchrun_owns_port(void) {
    const char *store = dlc_environment_text("TORCHELASTIC_USE_AGENT_STORE");
    return store && strcmp(store, "True") == 0;
}

/* Kubernetes' PyTorchJob gives the master pod MASTER_ADDR=localhost (the service's name
 * may not resolve yet), and the workers the name of its service. */
static int is_master_pod(const dlc_external *external) {
    return external->rank == 0 && external->local_ranks < 0 && external->ranks > 1 &&
           dlc_environment_text("KUBERNETES_SERVICE_HOST");
}

/* "[fd88::1]" is how URLs spell an IPv6 address. */
static dlc_status read_master_host(dlc_external *external) {
    const char *text = dlc_environment_text("MASTER_ADDR");
    size_t length = strlen(text);
    int brackets = text[0] == '[' && text[length - 1] == ']';
    if (length >= sizeof external->host)
        return dlc_fail(DLC_ERR_CONFIG,
                        "MASTER_ADDR in the environment is too long for a host's name");
    (void)snprintf(external->host, sizeof external->host, "%.*s",
                   (int)(brackets ? length - 2 : length), text + brackets);
    return DLC_OK;
}

static dlc_status read_variables(dlc_external *external) {
    long port;
    DLC_TRY(need_all_variables());
    DLC_TRY(read_torch_numbers(external));
    DLC_TRY(read_master_host(external));
    DLC_TRY(dlc_environment_number("MASTER_PORT", UINT16_MAX, &port));
    if (port == 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "MASTER_PORT=0 in the environment: the ranks must know the "
                        "port, so give them one from 1 to 65535");
    if (torchrun_owns_port()) /* the next port, which all ranks can derive */
        port += port < UINT16_MAX ? 1 : -1;
    external->port = (uint16_t)port;
    external->anywhere = is_master_pod(external);
    return DLC_OK;
}

/* ---- PMIx, which may come with these variables ----------------------------------- */

static int is_by_pmix(void) {
    return dlc_environment_text("PMIX_NAMESPACE") != NULL;
}

static dlc_status read_pmix(dlc_external *external) {
    int rank;
    DLC_TRY(read_number("PMIX_RANK", DLC_JOB_RANKS_MAX - 1, &rank));
    if (rank < 0)
        return dlc_fail(DLC_ERR_CONFIG, "PMIX_NAMESPACE is set in the environment, but "
                                        "PMIX_RANK is not: mpirun and srun set both");
    DLC_TRY(read_torch_numbers(external));
    if (external->rank >= 0 && external->rank != rank)
        return dlc_fail(DLC_ERR_CONFIG,
                        "PMIX_RANK=%d and RANK=%d in the environment contradict each "
                        "other: unset RANK, or start without mpirun and srun",
                        rank, external->rank);
    external->rank = rank;
    return DLC_OK;
}

/* ---- PMI: mpiexec without PMIx, srun --mpi=pmi2 ---------------------------------- */

/* Whether a variable holds a number above 1: tools that start a single process set
 * these variables, too, and a process alone may start ranks of its own. */
static int is_above_one(const char *name) {
    const char *text = dlc_environment_text(name);
    return text && strcmp(text, "1") != 0 && strcmp(text, "0") != 0;
}

static int is_by_pmi(void) {
    return is_above_one("PMI_SIZE");
}

static dlc_status read_pmi(dlc_external *external) {
    static const number_names names = {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID",
                                       "MPI_LOCALNRANKS"};
    DLC_TRY(read_numbers(&names, external));
    if (external->rank < 0 || !dlc_environment_text("PMI_FD"))
        return dlc_fail(DLC_ERR_CONFIG,
                        "this is one of %d processes that were started through PMI, "
                        "but %s is not set in the environment: use mpiexec without "
                        "-pmi-port, srun --mpi=pmi2 or --mpi=pmix, or set RANK, "
                        "WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                        external->ranks, external->rank < 0 ? "PMI_RANK" : "PMI_FD");
    return DLC_OK;
}

/* ---- srun without PMI ------------------------------------------------------------ */

static int is_by_slurm(void) {
    return is_above_one("SLURM_STEP_NUM_TASKS");
}

static dlc_status refuse_slurm(const char *missing) {
    return dlc_fail(DLC_ERR_CONFIG,
                    "SLURM_STEP_NUM_TASKS=%s is set in the environment, but %s is not: "
                    "srun sets both",
                    dlc_environment_text("SLURM_STEP_NUM_TASKS"), missing);
}

/* The first name of a list such as "gpu[03-05,9]-ib,login": "gpu03-ib". */
static dlc_status first_node(const char *list, char name[DLC_EXTERNAL_HOST]) {
    size_t length = 0;
    int inside = 0, skipping = 0; /* in brackets; after their first number */
    for (const char *at = list; *at && (inside || *at != ','); at++) {
        if (*at == '[' || *at == ']') {
            inside = *at == '[';
            skipping = 0;
            continue;
        }
        skipping |= inside && (*at == '-' || *at == ',');
        if (skipping)
            continue;
        if (length + 1 == DLC_EXTERNAL_HOST)
            return dlc_fail(DLC_ERR_CONFIG,
                            "SLURM_STEP_NODELIST=%s in the environment begins with a "
                            "name that is too long",
                            list);
        name[length++] = *at;
    }
    name[length] = '\0';
    return DLC_OK;
}

/* Rank 0 is on the first node of the step. */
static dlc_status read_slurm_host(dlc_external *external) {
    const char *nodes = dlc_environment_text("SLURM_STEP_NODELIST");
    long count;
    DLC_TRY(dlc_environment_number("SLURM_STEP_NUM_NODES", INT32_MAX, &count));
    if (count == 1) {
        (void)snprintf(external->host, sizeof external->host, "127.0.0.1");
        return DLC_OK;
    }
    if (!nodes)
        return refuse_slurm("SLURM_STEP_NODELIST");
    external->anywhere = 1; /* its own name may mean loopback there */
    return first_node(nodes, external->host);
}

static dlc_status read_slurm(dlc_external *external) {
    static const number_names names = {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                                       "SLURM_LOCALID", NULL};
    long job, step;
    DLC_TRY(read_numbers(&names, external));
    if (external->rank < 0)
        return refuse_slurm("SLURM_PROCID");
    DLC_TRY(dlc_environment_number("SLURM_JOB_ID", UINT32_MAX, &job));
    DLC_TRY(dlc_environment_number("SLURM_STEP_ID", UINT32_MAX, &step));
    if (job < 0 || step < 0)
        return refuse_slurm(job < 0 ? "SLURM_JOB_ID" : "SLURM_STEP_ID");
    /* Steps of a job run side by side; so do jobs whose numbers are near each other. */
    external->port = (uint16_t)(DLC_FIRST_PORT + (job * 61 + step) % DLC_PORTS);
    return read_slurm_host(external);
}

/* ---- Others ---------------------------------------------------------------------- */

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
    while (i < FOREIGN && !is_above_one(foreign[i].size))
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

/* ---- All ------------------------------------------------------------------------- */

/* The first that is present is taken: srun sets its variables for every launcher that
 * it starts, or whose library it serves. */
static const struct {
    dlc_external_kind kind;
    int (*is_present)(void);
    dlc_status (*read)(dlc_external *external);
} launchers[] = {
    {DLC_EXTERNAL_PMIX, is_by_pmix, read_pmix},
    {DLC_EXTERNAL_VARIABLES, is_by_variables, read_variables},
    {DLC_EXTERNAL_PMI, is_by_pmi, read_pmi},
    {DLC_EXTERNAL_SLURM, is_by_slurm, read_slurm},
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

dlc_status dlc_external_read(int asked, dlc_external *external) {
    dlc_external made = {.kind = DLC_EXTERNAL_NONE};
    int found = find_launcher();
    if (found < LAUNCHERS) {
        long port;
        DLC_TRY(launchers[found].read(&made));
        made.kind = launchers[found].kind;
        if (asked != 1 && made.ranks >= 0 && asked != made.ranks)
            return dlc_fail(
                DLC_ERR_CONFIG,
                "--ranks=%d (or [parallel] ranks) starts ranks on this machine, but "
                "this process was started as one of %d: use only one of them",
                asked, made.ranks);
        DLC_TRY(dlc_environment_number("DLCORE_PORT", UINT16_MAX, &port));
        if (port > 0)
            made.port = (uint16_t)port;
    }
    *external = made;
    return DLC_OK;
}

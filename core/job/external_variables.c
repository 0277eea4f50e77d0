/* RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun, Kubernetes and compatible
 * launchers set them. */
#include <stdio.h>
#include <string.h>

#include "job/environment.h"
#include "job/external_kinds.h"
#include "job/job.h"

static dlc_status need_all(void) {
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

/* The numbers, as far as they are set. */
static dlc_status read_numbers(dlc_external *external) {
    long rank, ranks, local_rank, local_ranks;
    DLC_TRY(dlc_environment_number("RANK", DLC_JOB_RANKS_MAX - 1, &rank));
    DLC_TRY(dlc_environment_number("WORLD_SIZE", DLC_JOB_RANKS_MAX, &ranks));
    DLC_TRY(dlc_environment_number("LOCAL_RANK", DLC_JOB_RANKS_MAX - 1, &local_rank));
    DLC_TRY(
        dlc_environment_number("LOCAL_WORLD_SIZE", DLC_JOB_RANKS_MAX, &local_ranks));
    DLC_TRY(dlc_environment_check_rank("RANK", rank, "WORLD_SIZE", ranks));
    DLC_TRY(dlc_environment_check_rank("LOCAL_RANK", local_rank, "LOCAL_WORLD_SIZE",
                                       local_ranks));
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
    external->local_ranks = (int)local_ranks;
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
static dlc_status read_host(dlc_external *external) {
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

static dlc_status read_address(dlc_external *external) {
    long port;
    DLC_TRY(read_host(external));
    DLC_TRY(dlc_environment_number("MASTER_PORT", UINT16_MAX, &port));
    if (port == 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "MASTER_PORT=0 in the environment: the ranks must know the "
                        "port, so give them one from 1 to 65535");
    if (port > 0 && torchrun_owns_port())
        port += port < UINT16_MAX ? 1
                                  : -1; /* the next port, which all ranks can derive */
    external->port = (uint16_t)port;
    external->anywhere = is_master_pod(external);
    return DLC_OK;
}

dlc_status dlc_external_read_variables(dlc_external *external) {
    DLC_TRY(need_all());
    DLC_TRY(read_numbers(external));
    return read_address(external);
}

/* ---- PMIx, which may come with these variables ---------------------------------- */

dlc_status dlc_external_read_pmix(dlc_external *external) {
    long rank;
    DLC_TRY(dlc_environment_number("PMIX_RANK", DLC_JOB_RANKS_MAX - 1, &rank));
    if (rank < 0)
        return dlc_fail(DLC_ERR_CONFIG, "PMIX_NAMESPACE is set in the environment, but "
                                        "PMIX_RANK is not: mpirun and srun set both");
    DLC_TRY(read_numbers(external));
    if (external->rank >= 0 && external->rank != rank)
        return dlc_fail(DLC_ERR_CONFIG,
                        "PMIX_RANK=%ld and RANK=%d in the environment contradict each "
                        "other: unset RANK, or start without mpirun and srun",
                        rank, external->rank);
    external->rank = (int)rank;
    return DLC_OK;
}

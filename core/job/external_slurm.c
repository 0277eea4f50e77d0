/* Tasks of srun without PMI: rank 0 is on the first node of the step, and all of them
 * compute its port from the numbers of job and step. */
#include <stdio.h>
#include <string.h>

#include "job/environment.h"
#include "job/external_kinds.h"
#include "job/job.h"

/* Below the ports that Linux gives to outgoing connections (32768 and up). */
enum { FIRST_PORT = 16384, PORTS = 16384 };

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

static dlc_status read_port(uint16_t *port) {
    long job, step;
    DLC_TRY(dlc_environment_number("SLURM_JOB_ID", UINT32_MAX, &job));
    DLC_TRY(dlc_environment_number("SLURM_STEP_ID", UINT32_MAX, &step));
    if (job < 0 || step < 0)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "SLURM_STEP_NUM_TASKS is set in the environment, but %s is not: "
            "srun sets both",
            job < 0 ? "SLURM_JOB_ID" : "SLURM_STEP_ID");
    /* Steps of a job run side by side; so do jobs whose numbers are near each other. */
    *port = (uint16_t)(FIRST_PORT + (job * 61 + step) % PORTS);
    return DLC_OK;
}

static dlc_status read_place(dlc_external *external) {
    const char *nodes = dlc_environment_text("SLURM_STEP_NODELIST");
    long count;
    DLC_TRY(dlc_environment_number("SLURM_STEP_NUM_NODES", INT32_MAX, &count));
    if (count == 1) {
        (void)snprintf(external->host, sizeof external->host, "127.0.0.1");
        return DLC_OK;
    }
    if (!nodes)
        return dlc_fail(DLC_ERR_CONFIG,
                        "SLURM_STEP_NUM_TASKS is set in the environment, but "
                        "SLURM_STEP_NODELIST is not: srun sets both");
    external->anywhere = 1; /* its own name may mean loopback there */
    return first_node(nodes, external->host);
}

dlc_status dlc_external_read_slurm(dlc_external *external) {
    long rank, ranks, local_rank;
    DLC_TRY(dlc_environment_number("SLURM_PROCID", DLC_JOB_RANKS_MAX - 1, &rank));
    DLC_TRY(dlc_environment_number("SLURM_STEP_NUM_TASKS", DLC_JOB_RANKS_MAX, &ranks));
    DLC_TRY(
        dlc_environment_number("SLURM_LOCALID", DLC_JOB_RANKS_MAX - 1, &local_rank));
    DLC_TRY(dlc_environment_check_rank("SLURM_PROCID", rank, "SLURM_STEP_NUM_TASKS",
                                       ranks));
    if (rank < 0)
        return dlc_fail(DLC_ERR_CONFIG,
                        "SLURM_STEP_NUM_TASKS=%ld is set in the environment, but "
                        "SLURM_PROCID is not: srun sets both",
                        ranks);
    external->rank = (int)rank;
    external->ranks = (int)ranks;
    external->local_rank = (int)local_rank;
    DLC_TRY(read_port(&external->port));
    return read_place(external);
}

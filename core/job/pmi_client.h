/* PMI-1, the line protocol by which the processes of an MPI job exchange short texts:
 * mpiexec and srun --mpi=pmi2 speak it over the descriptor that PMI_FD names. There is
 * no library for it apart from each MPI's own (Balaji et al., "PMI: A Scalable Parallel
 * Process-Management Interface for Extreme-Scale Systems", EuroMPI 2010). Called by
 * external_run.c. */
#ifndef DLC_JOB_PMI_CLIENT_H
#define DLC_JOB_PMI_CLIENT_H

#include "base/status.h"

#define DLC_PMI_LINE_MAX 2048

typedef struct dlc_pmi {
    int fd;                      /* own; -1: closed */
    double timeout;              /* seconds to wait for an answer */
    char space[256];             /* the name of the job's key-value space */
    char line[DLC_PMI_LINE_MAX]; /* the last answer */
} dlc_pmi;

/* Joins through the descriptor that PMI_FD names, and removes PMI's variables from the
 * environment, so that no library tries to join a second time. */
dlc_status dlc_pmi_open(double timeout, dlc_pmi *pmi);
/* Tells the launcher that this process needs PMI no more. A process that ends without
 * having called it has failed: the launcher ends the others. */
dlc_status dlc_pmi_finalize(dlc_pmi *pmi);
void dlc_pmi_close(dlc_pmi *pmi);

/* Publishes a text without blanks for all processes; seen after the next barrier. */
dlc_status dlc_pmi_put(dlc_pmi *pmi, const char *key, const char *value);
/* Waits until all processes of the job have called it. */
dlc_status dlc_pmi_barrier(dlc_pmi *pmi);
/* *value is part of `pmi`, and valid until the next call. */
dlc_status dlc_pmi_get(dlc_pmi *pmi, const char *key, char **value);

#endif

/* Consistency models that let ranks be in different iterations: what they cannot be
 * combined with, synchronization, statistics. All ranks count iterations alike, so each
 * comes to the next test or checkpoint by itself, and there they synchronize.
 *
 * Threads: the training thread. */
#ifndef DLC_PARALLEL_STALENESS_STALENESS_H
#define DLC_PARALLEL_STALENESS_STALENESS_H

#include "base/json.h"
#include "session/session.h"

/* How stale the weights were that iterations of all ranks computed with, how long ranks
 * waited, and for which rank. */
typedef struct dlc_staleness_report {
    int32_t ranks; /* 0: not gathered, or the consistency model has no statistics */
    int64_t reads, bin[DLC_STALENESS_BINS];
    double *waited;  /* own; seconds, for each rank */
    int32_t slowest; /* the rank that others waited for longest; -1: none */
    double slowest_wait_seconds;
} dlc_staleness_report;

typedef struct dlc_staleness {
    dlc_session *session;
    int64_t synchronized; /* iteration after which all ranks last had equal weights */
    dlc_consistency_stats earlier; /* of models that were closed */
    dlc_staleness_report report;   /* once training has ended */
} dlc_staleness;

/* Refuses what the job's consistency model cannot be combined with; also of models
 * whose ranks are all in the same iteration. */
dlc_status dlc_staleness_check(const dlc_session *session);
/* If the ranks may be in different iterations: opens session->staleness. */
dlc_status dlc_staleness_plan(dlc_session *session);
/* Weights, slots and iteration have the values that training begins with. */
void dlc_staleness_start(dlc_staleness *staleness);
/* Collective, between iterations: waits until all ranks are after this iteration, with
 * the same weights; nothing is in flight then. */
dlc_status dlc_staleness_synchronize(dlc_staleness *staleness);
/* Before the consistency models are closed: keeps their statistics. */
dlc_status dlc_staleness_keep(dlc_staleness *staleness);
void dlc_staleness_close(dlc_staleness *staleness); /* NULL is allowed */

/* reload.c. Collective, right after a synchronization: the user has changed net.ini.
 * Rank 0 reads [consistency] again; --set still takes precedence. A mistake, or a
 * setting that the model can't change any more, is logged and leaves everything as it
 * was. */
dlc_status dlc_consistency_reload(dlc_session *session);

/* ---- Reporting; report.c -------------------------------------------------------- */

/* This rank's statistics so far; zeros if the model has none. */
dlc_status dlc_staleness_read(const dlc_staleness *staleness,
                              dlc_consistency_stats *stats);
/* Adds "staleness" and "waited" of this rank, so far. */
void dlc_staleness_progress(const dlc_staleness *staleness, dlc_json *json);
/* Collective, at the end of training: gathers the statistics and logs them. In:
 * *images_per_s of this rank; out: of all replicas. */
dlc_status dlc_staleness_report_end(dlc_staleness *staleness, double *images_per_s);
/* Adds "staleness", "waited" and "slowest" of all ranks to the open object. */
void dlc_staleness_json(const dlc_staleness *staleness, dlc_json *json);

#endif

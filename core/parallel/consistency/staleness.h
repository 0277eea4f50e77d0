/* Statistics of a consistency model whose ranks need not be in the same iteration: how
 * stale the weights were that iterations computed with, how long ranks waited, and for
 * which rank. */
#ifndef DLC_PARALLEL_CONSISTENCY_STALENESS_H
#define DLC_PARALLEL_CONSISTENCY_STALENESS_H

#include "base/json.h"
#include "session/session.h"

/* Of all ranks. Initialize with {0}, release with dlc_staleness_free. */
typedef struct dlc_staleness {
    int32_t ranks; /* 0: the consistency model has no statistics */
    int64_t reads, bin[DLC_STALENESS_BINS];
    double *waited;  /* own; seconds, for each rank */
    int32_t slowest; /* the rank that others waited for longest; -1: none */
    double slowest_wait_seconds;
} dlc_staleness;

/* This rank's statistics: `earlier` ones, of models that were closed, and those of the
 * model that is open. Zeros if it has none. */
dlc_status dlc_staleness_read(const dlc_session *session,
                              const dlc_consistency_stats *earlier,
                              dlc_consistency_stats *stats);
/* Has the consistency model statistics? */
int dlc_staleness_is_known(const dlc_session *session);

/* Collective: gathers those of all ranks. */
dlc_status dlc_staleness_gather(const dlc_session *session,
                                const dlc_consistency_stats *mine,
                                dlc_staleness *staleness);
void dlc_staleness_free(dlc_staleness *staleness);

/* Logs a few lines for people. */
void dlc_staleness_log(const dlc_staleness *staleness);
/* Adds "staleness", "waited" and "slowest" to the open object. */
void dlc_staleness_json(const dlc_staleness *staleness, dlc_json *json);

/* Adds "staleness" and "waited" of one rank. */
void dlc_staleness_rank_json(const dlc_consistency_stats *stats, dlc_json *json);

#endif

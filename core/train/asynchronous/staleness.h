/* What a solver whose ranks need not be in the same iteration has seen: how stale the
 * weights were that were computed with, how long ranks waited, and for whom. */
#ifndef DLC_TRAIN_STALENESS_H
#define DLC_TRAIN_STALENESS_H

#include "base/json.h"
#include "train/session.h"

/* Of all ranks; start with {0}, release with dlc_staleness_free. */
typedef struct dlc_staleness {
    int32_t ranks; /* 0: the solver says nothing */
    int64_t reads, bin[DLC_STALENESS_BINS];
    double *waited;  /* own; seconds, one a rank */
    int32_t slowest; /* the rank that others waited for longest, -1: none */
    double slowest_waited;
} dlc_staleness;

/* All ranks together. */
dlc_status dlc_staleness_gather(dlc_session *session, dlc_staleness *staleness);
void dlc_staleness_free(dlc_staleness *staleness);

/* Notes what this rank's solver has seen, before it is closed for another. */
dlc_status dlc_staleness_keep(dlc_session *session);

/* A few lines for a person. */
void dlc_staleness_say(const dlc_staleness *staleness);
/* "staleness", "waited", "slowest" of the object that is open. */
void dlc_staleness_json(const dlc_staleness *staleness, dlc_json *json);

/* The same of this rank alone, as it is now; nothing where the solver says nothing. */
void dlc_staleness_note(const dlc_session *session, dlc_json *json);

#endif

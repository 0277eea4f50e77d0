/* [run] shares = auto in a running job: at the end of each epoch the ranks compare what
 * they computed with the time that they took, but for what they waited for others.
 * Where another way to share the batch out would be clearly faster, nets and all that
 * hangs on them are built anew for it; weights, running averages and the solver's state
 * go on.
 *
 * Threads: the train thread.
 */
#ifndef DLC_TRAIN_RESHARE_H
#define DLC_TRAIN_RESHARE_H

#include "train/session.h"

/* Since the ranks last compared. Start with {0}. */
typedef struct dlc_reshare {
    uint64_t began;     /* the iteration under way */
    double spent;       /* seconds, in all iterations, */
    double waited;      /* in and before them, for others */
    int64_t iterations; /* so many */
} dlc_reshare;

/* Around each iteration. */
void dlc_reshare_begin(dlc_reshare *reshare);
void dlc_reshare_end(dlc_reshare *reshare);

/* Is it time to compare, behind the session's iteration? The same on all ranks. */
int dlc_reshare_is_due(const dlc_reshare *reshare, const dlc_session *session);
/* All ranks together, with no iteration under way: compares. *changed: shares are
 * others from now on, and dlc_reshare_run must follow. */
dlc_status dlc_reshare_compare(dlc_reshare *reshare, dlc_session *session,
                               int *changed);
/* All ranks together: the session with its new shares. What pointed to nets and feeds
 * of the old one must have been closed. */
dlc_status dlc_reshare_run(dlc_session *session);

#endif

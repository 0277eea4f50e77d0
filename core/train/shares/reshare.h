/* [parallel] batch_split = auto in a running job: at the end of each epoch the ranks compare how
 * fast they compute, and what an iteration costs them beside, but for what they waited
 * for others. Ranks that may be ahead of each other compare more often: after 20
 * iterations, then each time after twice as many as the last time, up to 320: soon, and
 * not for every moment that a rank is slow, which is what staleness is for. Whatever
 * staleness is allowed, a rank that is always slow would set the pace else (Harlap et
 * al., "Addressing the straggler problem for iterative convergent parallel ML", SoCC
 * 2016).
 *
 * Where another way to share the batch out would be clearly faster, nets and all that
 * hangs on them are built anew for it, and once more for the way before if it was not
 * (dlc_shares_prove); weights, running averages and the solver's state go on.
 *
 * Threads: the train thread.
 */
#ifndef DLC_TRAIN_RESHARE_H
#define DLC_TRAIN_RESHARE_H

#include "train/session.h"

/* Since the ranks last compared. Start with {0}. */
typedef struct dlc_reshare {
    uint64_t began;     /* the iteration under way */
    double cpu_began;   /* ... seconds of processor time */
    int32_t first;      /* iterations that don't count: all is set up in them */
    double spent;       /* seconds, in all iterations, */
    double computed;    /* in them, with samples */
    double cpu;         /* of processor time, in them */
    double waited;      /* in and before them, for others */
    int64_t iterations; /* so many */
    int64_t patience;   /* iterations until the next look; 0: as at the start */
} dlc_reshare;

/* Around each iteration, where shares may change; `computed`: seconds of it with
 * samples. */
void dlc_reshare_begin(dlc_reshare *reshare, const dlc_session *session);
void dlc_reshare_end(dlc_reshare *reshare, const dlc_session *session, double computed);

/* Is it time to compare, behind the session's iteration? The same on all ranks. */
int dlc_reshare_is_due(const dlc_reshare *reshare, const dlc_session *session);
/* All ranks together, behind the same iteration: compares. *changed: shares are others
 * from now on, and dlc_reshare_run must follow. */
dlc_status dlc_reshare_compare(dlc_reshare *reshare, dlc_session *session,
                               int *changed);
/* All ranks together, with no iteration under way: the session with its new shares.
 * What pointed to nets and feeds of the old one must have been closed. */
dlc_status dlc_reshare_run(dlc_session *session);

#endif

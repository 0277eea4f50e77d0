/* Which checkpoints of a run stay: the last ones and the best. Rank 0, behind each that
 * was written. */
#ifndef DLC_TRAIN_RETENTION_H
#define DLC_TRAIN_RETENTION_H

#include <stdint.h>

#include "base/status.h"

typedef struct dlc_retention {
    int64_t keep;     /* the last so many; 0: all */
    int64_t best;     /* this one, too; -1: there is none */
    int64_t first;    /* older ones are not this run's to remove, */
    int64_t was_best; /* but for the one that was the best when it resumed; -1 */
} dlc_retention;

/* For a run that goes on in a folder: the last `keep` that lie there are its own. */
dlc_status dlc_retention_take_over(const char *folder, const char *net,
                                   dlc_retention *retention);

/* A run that was resumed has written its first checkpoint, of this iteration. What lies
 * there with a higher one is of before: damaged, or counted in iterations of another
 * batch. It gets another name, so that it is not taken for the newest. */
dlc_status dlc_retention_set_aside(const char *folder, const char *net,
                                   int64_t iteration);

/* Removes what is not kept. What cannot be removed is told, and stays. */
dlc_status dlc_retention_apply(const char *folder, const char *net,
                               const dlc_retention *retention);

#endif

/* One run at a time in a folder: an exclusive lock on the file .lock in it, which names
 * the process that holds it. The kernel lets go of the lock when that process ends,
 * even when it is killed; the file stays, and means nothing by itself.
 */
#ifndef DLC_TRAIN_RUN_LOCK_H
#define DLC_TRAIN_RUN_LOCK_H

#include "base/status.h"

typedef struct dlc_run_lock {
    int descriptor; /* -1: not held */
    int made;       /* the file was not there before */
} dlc_run_lock;

/* Waits some seconds for another process that holds it, which may be about to end. Then
 * DLC_ERR_CONFIG, naming that process. Where the file system has no locks this warns
 * and succeeds. */
dlc_status dlc_run_lock_take(const char *folder, dlc_run_lock *lock);
/* Not held: nothing is done. */
void dlc_run_lock_leave(dlc_run_lock *lock);

#endif

/* Allows one run at a time in a folder, by an exclusive lock on the file .lock in it,
 * which names the process that holds it. The kernel releases the lock when that process
 * ends, even if it is killed; the file stays, and means nothing by itself.
 */
#ifndef DLC_CHECKPOINT_RUN_LOCK_H
#define DLC_CHECKPOINT_RUN_LOCK_H

#include "base/status.h"

typedef struct dlc_run_lock {
    int descriptor; /* -1: not held */
    int made;       /* the file did not exist before */
} dlc_run_lock;

/* Waits a few seconds for a process that holds the lock, since it may be about to end,
 * then fails with DLC_ERR_CONFIG, naming that process. DLC_ERR_AGAIN: the folder has
 * been removed meanwhile. If the file system has no locks this warns and succeeds. */
dlc_status dlc_run_lock_take(const char *folder, dlc_run_lock *lock);
/* Does nothing if the lock is not held. */
void dlc_run_lock_release(dlc_run_lock *lock);

#endif

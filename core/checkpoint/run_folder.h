/* The folder of one run: it holds the run's checkpoints, is known to be writable, and
 * is locked against other runs. It also knows which checkpoint a resumed run begins
 * with. `dlcore train` opens it before anything is computed.
 *
 * Its path is [train] run_dir, or else runs/NET-TIME in the current folder. Rank 0
 * chooses it and works in it; the other ranks only learn its path. It holds
 * NET-ITERATION.safetensors (listing.h) and .lock (run_lock.h).
 */
#ifndef DLC_CHECKPOINT_RUN_FOLDER_H
#define DLC_CHECKPOINT_RUN_FOLDER_H

#include "checkpoint/retention.h"
#include "checkpoint/run_choice.h"
#include "checkpoint/run_lock.h"
#include "checkpoint/run_state.h"
#include "job/job.h"
#include "setup/setup.h"

typedef struct dlc_run_folder {
    const char *net;
    char *path; /* own; NULL: none yet, since no checkpoint is planned */
    dlc_run_begin begin;
    char *from;    /* own; rank 0 */
    int fresh;     /* rank 0: it must not hold checkpoints of another run */
    int made_runs; /* rank 0: this run has created the parent folder `runs` */
    int made;      /* rank 0: this run has created the folder */
    int has_file;  /* rank 0: this run has written a checkpoint into it */
    dlc_run_state state;
    dlc_retention retention; /* rank 0 */
    dlc_run_lock lock;       /* rank 0: held as soon as the folder can be used */
} dlc_run_folder;

/* Collective. `resume`: NULL (a new run), "auto", or the path of a checkpoint or of a
 * folder of them. If a checkpoint is planned (dlc_run_folder_is_planned) the folder is
 * writable and locked on return. On failure there is nothing to close. */
dlc_status dlc_run_folder_open(const dlc_setup *setup, dlc_job *job, const char *resume,
                               dlc_run_folder *folder);

/* Rank 0: creates and locks the folder and checks that it is writable, unless that has
 * been done. */
dlc_status dlc_run_folder_claim(dlc_run_folder *folder);

/* Does [train] ask for any checkpoint? A signal may ask for one in any run. */
int dlc_run_folder_is_planned(const dlc_setup *setup);

/* The solver's schedule in a resumed run whose batch or length has changed; otherwise
 * NULL. `folder` may be NULL. */
const dlc_lr_schedule *dlc_run_folder_schedule(const dlc_run_folder *folder);

/* Unlocks the folder. Removes folders that this run has created and that hold no
 * checkpoint. */
void dlc_run_folder_close(dlc_run_folder *folder);

#endif

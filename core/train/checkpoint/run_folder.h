/* The folder of one run: where its checkpoints go, that it can be written, that no
 * other run uses it, and which checkpoint a run that resumes begins with. `dlcore
 * train` opens it before anything is computed.
 *
 * Named by [train] run_dir, or else runs/NET-TIME in the current folder. Rank 0 chooses
 * and works in it; the others learn its name. It holds NET-ITERATION.safetensors
 * (listing.h) and .lock (run_lock.h).
 */
#ifndef DLC_TRAIN_RUN_FOLDER_H
#define DLC_TRAIN_RUN_FOLDER_H

#include "job/job.h"
#include "train/checkpoint/retention.h"
#include "train/checkpoint/run_lock.h"
#include "train/checkpoint/run_state.h"
#include "train/setup.h"

typedef enum dlc_run_begin {
    DLC_RUN_NEW,    /* without a checkpoint */
    DLC_RUN_FILE,   /* `from` is the checkpoint */
    DLC_RUN_NEWEST, /* the newest one of this net in the folder `from` */
} dlc_run_begin;

typedef struct dlc_run_folder {
    const char *net;
    char *path; /* own; NULL: none yet, since no checkpoint is planned */
    dlc_run_begin begin;
    char *from;    /* own; rank 0 */
    int fresh;     /* rank 0: it must not hold checkpoints of another run */
    int made_runs; /* rank 0: this run has made what it lies in, */
    int made;      /* and the folder, */
    int has_file;  /* and has written a checkpoint into it */
    dlc_run_state state;
    dlc_retention retention; /* rank 0 */
    dlc_run_lock lock;       /* rank 0: held as soon as the folder can be used */
} dlc_run_folder;

/* All ranks together. `resume`: NULL (a new run), "auto", or the path of a checkpoint
 * or of a folder of them. Unless no checkpoint is planned (dlc_run_folder_is_planned)
 * the folder can be written and is this run's when it returns. On failure there is
 * nothing to close. */
dlc_status dlc_run_folder_open(const dlc_setup *setup, dlc_job *job, const char *resume,
                               dlc_run_folder *folder);

/* Rank 0: the folder can be written and is this run's from now on, if it wasn't yet. */
dlc_status dlc_run_folder_need(dlc_run_folder *folder);

/* Does [train] ask for any checkpoint? Signals may ask for one in any run. */
int dlc_run_folder_is_planned(const dlc_setup *setup);

/* For the solver; NULL where iterations count as what they are. `folder` may be NULL.
 */
const dlc_rate_schedule *dlc_run_folder_schedule(const dlc_run_folder *folder);

/* Lets other runs in. What this run has made and left without a checkpoint is removed.
 */
void dlc_run_folder_close(dlc_run_folder *folder);

#endif

/* The folder of one run: it holds the run's checkpoints, is known to be writable, and
 * is locked against other runs. It also knows which checkpoint a resumed run begins
 * with. `dlcore train` opens it before anything is computed.
 *
 * Its path is [train] run_dir, or else runs/NET-TIME in the current folder. Rank 0
 * chooses it and works in it; the other ranks only learn its path. It holds
 * NET-ITERATION.safetensors (listing.h), and .lock, which names the process that works
 * in it. The kernel releases the lock when that process ends, even if it is killed; the
 * file stays, and means nothing by itself.
 */
#ifndef DLC_CHECKPOINT_RUN_FOLDER_H
#define DLC_CHECKPOINT_RUN_FOLDER_H

#include "checkpoint/listing.h"
#include "job/job.h"
#include "setup/setup.h"
#include "solver/schedule.h"

/* The parent of the run folders that the user has not named. */
#define DLC_RUNS "runs"

typedef enum dlc_run_begin {
    DLC_RUN_NEW,    /* without a checkpoint */
    DLC_RUN_FILE,   /* `from` is the checkpoint */
    DLC_RUN_NEWEST, /* the newest one of this net in the folder `from` */
} dlc_run_begin;

/* The state of a run that a checkpoint records besides tensors, and that a resumed run
 * takes from it: plain numbers, the same on all ranks. */
typedef struct dlc_run_state {
    /* Losses and accuracies are NaN while they are unknown. */
    double training_loss;
    double test_loss, accuracy; /* of the last test */
    int64_t tested;             /* iteration after which that was; -1: none yet */
    int64_t best;               /* iteration of the best checkpoint; -1: none yet */
    double best_loss, best_accuracy;
    int has_schedule; /* it was resumed with another batch or length */
    dlc_lr_schedule schedule;

    /* In a resumed run. */
    int64_t begin;       /* its first iteration */
    int was_done;        /* the earlier run had finished */
    int is_nothing_left; /* there are no iterations left to run */
} dlc_run_state;

/* The state of a run that has not begun. */
dlc_run_state dlc_run_state_new(void);

typedef struct dlc_run_lock {
    int descriptor; /* -1: not held */
    int made;       /* the file did not exist before */
} dlc_run_lock;

/* Does nothing if the lock is not held. */
void dlc_run_lock_release(dlc_run_lock *lock);

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

/* Rank 0, called by dlc_run_folder_open: chooses the folder and the checkpoint that the
 * run begins with (path, begin, from, fresh) for the run of `folder->net`. `named` is
 * [train] run_dir or NULL. Changes nothing on disk. `path` and `from` are the caller's,
 * even on failure; `path` stays NULL if a new folder is to be named after the time.
 * DLC_ERR_DATA if the requested checkpoint does not exist, DLC_ERR_IO if a folder
 * cannot be read. */
dlc_status dlc_run_choose(const char *named, const char *resume,
                          dlc_run_folder *folder);

/* The parent folder of `path`; release it with dlc_free. NULL if memory runs out. */
char *dlc_run_parent(const char *path);

/* Rank 0: creates and locks the folder and checks that it is writable, unless that has
 * been done. Waits a few seconds for a process that holds the lock, since it may be
 * about to end, then fails with DLC_ERR_CONFIG, naming that process. */
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

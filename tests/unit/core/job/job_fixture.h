/* Fixture of the job tests: runs a job in a process of its own, as a user would;
 * captures its output, waits for its end, and fails if it leaves processes behind. */
#ifndef JOB_FIXTURE_H
#define JOB_FIXTURE_H

#include <check.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/text.h"
#include "job/job.h"

#define SHARED_RANKS 16

/* Memory shared by the test and all ranks of all its jobs. */
typedef struct shared_state {
    _Atomic pid_t pid[SHARED_RANKS];     /* of the ranks; 0: not started yet */
    _Atomic unsigned seen[SHARED_RANKS]; /* set by a rank, read by the test */
    _Atomic int count;
    _Atomic int go;
} shared_state;
extern shared_state *shared;

typedef struct job_process {
    pid_t pid; /* the launcher */
    int output;
    dlc_text text; /* stdout and stderr together */
} job_process;

/* Check fixture: zeroes the shared state; makes this process the reaper of orphans. */
void fixture_setup(void);
/* Check fixture: fails if a process is left behind. */
void fixture_teardown(void);

/* Fails if this process has a child, its own or inherited from its children. */
void check_no_process_left(void);

job_process process_start(int ranks, dlc_job_main main, void *argument);
job_process process_start_options(const dlc_job_options *options, dlc_job_main main,
                                  void *argument);
/* With these variables added to the environment: "NAME=value", NULL-terminated. */
job_process process_start_environment(const char *const *environment,
                                      const dlc_job_options *options, dlc_job_main main,
                                      void *argument);
/* Waits for the launcher; returns its exit code, or minus the signal that killed it. */
int process_wait(job_process *process);
/* Starts a job and waits for it; *text is its output. Returns what process_wait does.
 */
int process_run(int ranks, dlc_job_main main, void *argument, dlc_text *text);

/* ---- External launch: one process for each rank */

typedef struct external_job {
    int ranks, port;
    job_process process[SHARED_RANKS];
    int code[SHARED_RANKS]; /* set by external_wait */
} external_job;

/* A loopback port that is not in use. */
int free_port(void);
/* Starts rank `rank` of `job` with the variables that launchers set and `extra` ones,
 * or NULL, which take precedence. Sets options->external. */
void external_start_rank(external_job *job, int rank, const char *const *extra,
                         const dlc_job_options *options, dlc_job_main main,
                         void *argument);
/* Starts all ranks of a new job. */
external_job external_start(int ranks, const dlc_job_options *options,
                            dlc_job_main main, void *argument);
/* Waits for all of them; fails unless all end with `code`. */
void external_wait(external_job *job, int code);
void external_free(external_job *job);
/* Whether the process of rank `rank` has printed `text`. */
int external_prints(const external_job *job, int rank, const char *text);

/* Records a rank's pid in the shared state; call it at the start of a rank's main. */
void shared_enter(const dlc_job *job);
/* Waits until so many ranks have called shared_enter. */
void shared_wait_ranks(int ranks);
/* Waits until `word` is `value` or more. */
void shared_wait_for(_Atomic int *word, int value);

#endif

/* A job in a process of its own, as a user would start it: its output is caught,
 * its end awaited, and whatever it leaves behind is found. */
#ifndef SESSION_H
#define SESSION_H

#include <check.h>
#include <stdatomic.h>
#include <sys/types.h>

#include "base/text.h"
#include "job/job.h"

#define BOARD_RANKS 16

/* Memory that the test and all ranks of all its sessions share. */
typedef struct board {
    _Atomic pid_t pid[BOARD_RANKS];     /* of the ranks; 0: not yet there */
    _Atomic unsigned seen[BOARD_RANKS]; /* what a rank wants to tell */
    _Atomic int count;
    _Atomic int go;
} board;
extern board *board_shared;

typedef struct job_session {
    pid_t pid; /* the launcher */
    int output;
    dlc_text text; /* stdout and stderr together */
} job_session;

/* Check fixture: a fresh board; makes this process the one that orphans go to. */
void session_setup(void);
/* Check fixture: fails if any process was left behind. */
void session_teardown(void);

/* Fails if this process has a child, of its own or inherited from its children. */
void session_nothing_left(void);

job_session session_start(int ranks, dlc_job_main main, void *argument);
job_session session_start_options(const dlc_job_options *options, dlc_job_main main,
                                  void *argument);
/* In an environment with these variables, too: "NAME=value", NULL at the end. */
job_session session_start_in(const char *const *environment,
                             const dlc_job_options *options, dlc_job_main main,
                             void *argument);
/* Waits for the launcher: its exit code, or minus the signal that killed it. */
int session_end(job_session *session);
/* Start, end, and the text of it; returns what session_end does. */
int session_run(int ranks, dlc_job_main main, void *argument, dlc_text *text);

/* ---- Ranks from outside: one session each */

typedef struct outside_job {
    int ranks, port;
    job_session session[BOARD_RANKS];
    int code[BOARD_RANKS]; /* set by outside_end */
} outside_job;

/* A port of loopback that nobody has now. */
int free_port(void);
/* Starts rank `rank` of `job` with the variables that launchers set and `extra` ones,
 * or NULL, which win. options->outside is seen to. */
void outside_start_rank(outside_job *job, int rank, const char *const *extra,
                        const dlc_job_options *options, dlc_job_main main,
                        void *argument);
/* All ranks of a new job, each an own session. */
outside_job outside_start(int ranks, const dlc_job_options *options, dlc_job_main main,
                          void *argument);
/* Waits for all of them; fails unless all end with `code`. */
void outside_end(outside_job *job, int code);
void outside_free(outside_job *job);
/* Is it in what rank `rank`'s session printed? */
int outside_says(const outside_job *job, int rank, const char *text);

/* Notes a rank's process on the board; call at the start of a rank's main. */
void board_enter(const dlc_job *job);
/* Until that many ranks have entered. */
void board_wait(int ranks);
/* Until `word` is `value` or more. */
void board_wait_for(_Atomic int *word, int value);

/* Under valgrind, everything takes fifty times as long: do less. */
int session_is_slow(void);

int run_tests(const char *name, TCase *tests);

#endif

/* A job is the ranks that train together. This is everything that they need beside the
 * exchange of gradients: it launches them, lets them find each other, tells all of them
 * about failures and signals, and ends them together. Called by the commands (tools/)
 * and by core/train.
 *
 * A rank is a process. Every rank has one control channel, a byte stream of framed
 * messages to the hub (hub/). Where this process forks the ranks (launch/), it is the
 * hub and the streams are socket pairs. Where a launcher has started one process per
 * rank, the process of rank 0 is the hub, and the others relay frames between it and
 * their ranks over TCP. Nothing large or frequent goes over the control channel. The
 * functions that take a dlc_job are called in a rank (rank/).
 */
#ifndef DLC_JOB_JOB_H
#define DLC_JOB_JOB_H

#include <stddef.h>
#include <stdint.h>

#include <dlcore/transport.h>

#include "base/status.h"

#define DLC_JOB_RANKS_MAX 1024

typedef struct dlc_job dlc_job;

/* The function that a rank runs. Its return value is the rank's exit code (0 .. 255;
 * see dlc_exit_code). */
typedef int (*dlc_job_main)(dlc_job *job, void *argument);

/* How much hardware to discover. Ranks on one machine that compute on its cores need
 * only the cores; ranks on several need to know the adapters near to them. */
typedef enum dlc_job_discovery {
    DLC_DISCOVER_NOTHING,
    DLC_DISCOVER_CORES, /* all, if another launcher has started the ranks */
    DLC_DISCOVER_ALL
} dlc_job_discovery;

/* Zero is a good default for everything but `ranks`. */
typedef struct dlc_job_options {
    int ranks;   /* to fork on this machine, 1 .. DLC_JOB_RANKS_MAX */
    int threads; /* compute threads per rank; 0: one for each core of its share */
    int unbound; /* do not set the ranks' CPU affinity */
    /* Devices for dlc_job_rank_info: local rank i gets device_index[i % devices]. Ranks
     * are counted per machine, or by LOCAL_RANK where a launcher sets it. */
    const char *device;          /* NULL: "" */
    const int32_t *device_index; /* NULL: 0, 1, 2 ... */
    int devices;                 /* 0: every rank gets index 0 */

    dlc_job_discovery discover; /* for dlc_job_machine (machines.h), if there are
                                   several ranks */
    int external; /* a launcher may have started this process: see dlc_job_run */
    /* The settings that must be the same on all ranks, in lines "[section] key = value"
     * or "[section]". NULL: none. */
    const char *settings;
    double rendezvous_timeout; /* seconds to wait for external ranks; 0: 60 */
    double hang_timeout; /* seconds without progress after which a rank counts as hung;
                          * 0: never. The only rank of a job then ends with exit code 5,
                          * too, unless it is computing. */
} dlc_job_options;

/* Runs `main` as every rank of a new job; blocks until all of them have ended.
 *
 * One rank runs in this process; several are forked from it, without exec, so they have
 * everything that the caller has set up. The caller must be single-threaded. The ranks'
 * standard input is empty. Rank 0 writes to the caller's stdout and stderr; the lines
 * of the others are written whole to stderr, prefixed by "[rank N] ". Ranks are killed
 * when the caller dies. A forked rank ends with dlc_exit(), so functions that the
 * caller has registered with atexit() run in each rank as well.
 *
 * *exit_code, set when DLC_OK is returned, is what the command should exit with:
 *   0      every rank returned 0
 *   5      a rank was killed, or ended while others waited for it. The log says which
 *          and what it was doing; the others saw it in dlc_job_check and had 1.5 s to
 *          end.
 *   128+n  SIGINT or SIGTERM asked the job to stop, and it did. A second signal to the
 *          same process, 0.2 s or more later, kills the ranks at once; so does the
 *          first when a rank then makes no progress for `hang_timeout` seconds.
 *   else   the highest exit code of a rank, except those that ended because of another
 * A rank that returns anything but 0 ends the job for the others, too. A forked rank
 * that ends with exit code 0 before `main` has returned, by _exit(), counts as failed
 * with exit code 1.
 * An error status means that no rank has run `main`, or that they were killed.
 *
 * With `external`, and with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT or PMIx's
 * variables in the environment, this process is one rank of a larger job, whose size
 * comes from there and not from `ranks` (which must be 1 or agree). The rank is a child
 * process here, too, and the caller connects it to the others. stdout and stderr are
 * not redirected. Every process of the job ends with the same exit code. */
dlc_status dlc_job_run(const dlc_job_options *options, dlc_job_main main,
                       void *argument, int *exit_code);

/* Whether a launcher (torchrun, mpirun, srun) has started this process as a rank of a
 * larger job, according to the environment, which dlc_job_run then checks. */
int dlc_job_is_external(void);

int dlc_job_rank(const dlc_job *job);
int dlc_job_ranks(const dlc_job *job);
/* How many threads this rank should compute with: at least 1. */
int dlc_job_threads(const dlc_job *job);
/* One hardware thread for each compute thread, each on a core of its own; NULL if they
 * are not to be bound. Valid as long as the job. */
const int32_t *dlc_job_cpus(const dlc_job *job);
/* With `on`, moves the calling thread to those CPUs of the rank's share that the
 * compute threads leave free, if there are any; with 0, moves it back. Threads that it
 * starts in between inherit the spare CPUs, so that they do not disturb the compute
 * threads. */
void dlc_job_use_spare_cpus(dlc_job *job, int on);
/* Host, process and device of rank `r`; NULL if there is no such rank. The entries are
 * in rank order: dlc_job_rank_info(job, 0) fits dlc_transport_args.rank_info. Valid as
 * long as the job. */
const dlc_rank_info *dlc_job_rank_info(const dlc_job *job, int r);

/* Out-of-band collectives over the control channel, for set-up and small messages. All
 * ranks make the same calls in the same order; if they do not (another call, root or
 * size), all of them get an error that names the ranks. They block; when another rank
 * is lost they return the status of dlc_job_check. One thread at a time. */

/* Gathers `bytes` bytes of every rank at every rank, in rank order. Takes void, to fit
 * dlc_transport_args.oob_all_gather. */
dlc_status dlc_job_all_gather(void *job, const void *mine, size_t bytes, void *all);
/* Sends rank root's bytes to all, in place. */
dlc_status dlc_job_broadcast(dlc_job *job, int root, void *data, size_t bytes);
dlc_status dlc_job_barrier(dlc_job *job);

/* DLC_OK, or an error with its detail once the job has to end because of another rank
 * (DLC_ERR_PEER: "rank 1 (host x, pid 123) was killed by signal 9 (Killed) during
 * backward conv1"). Cheap and non-blocking; any thread. Whoever waits for another rank
 * must call it often: that is how the watchdog tells waiting from hanging, and, where
 * the thread that runs `main` calls it, from computing. Takes void, to fit
 * dlc_transport_args.check. */
dlc_status dlc_job_check(void *job);

/* Bytes of a rank's reason for failing, with its NUL; longer ones are cut. */
#define DLC_FAILURE_TEXT 1024

/* Tells all ranks, before the next collective, that this one cannot take part in what
 * they are opening together: until then dlc_job_check fails on the others with `status`
 * and "rank 1 (host x, pid 77): WHY", and collectives work as before. */
void dlc_job_withdraw(dlc_job *job, dlc_status status, const char *why);
/* That error, of the first rank that did so in the last opening. The same on all ranks;
 * DLC_OK: none has. */
dlc_status dlc_job_withdrawal(dlc_job *job);

/* Reports to the hub why this rank is about to end with `status`, an error, before
 * `main` returns. Where several ranks fail for the same reason, the job prints it once.
 * 0: the caller has to print it, since this is the only rank of the job or the hub
 * cannot be reached. */
int dlc_job_report_failure(dlc_job *job, dlc_status status, const char *why);

/* Records what this rank is doing, for error reports about it: "during forward conv1",
 * "during broadcast weights (1048576 bytes)". Copies the strings (cut to 23 and 63
 * characters) into memory shared with the parent: cheap enough for every layer. `name`
 * may be NULL, 0 bytes are not mentioned; a NULL `phase` clears it. Each call counts as
 * progress, see dlc_job_options.hang_timeout. */
void dlc_job_activity(dlc_job *job, const char *phase, const char *name,
                      uint64_t bytes);
/* The phase before training, in which a rank may compute for long. */
#define DLC_SETUP "set-up"

/* Records the gradient exchange that runs beside that, from the exchange's own thread:
 * "and exchange of bucket 3 (1048576 bytes)". `name` is cut to 23 characters; NULL
 * clears it. Counts as progress. */
void dlc_job_exchange_activity(dlc_job *job, const char *name, uint64_t bytes);

/* Counts as progress: a part of what these have named is done. Cheap; any thread. Takes
 * void, to fit dlc_comm_args.on_progress. */
void dlc_job_progress(void *job);

/* Records that a message by this transport is awaited, from or by a rank (-1: not
 * known), until the next progress: "over A with rank 1". To be called again while the
 * wait lasts. Cheap; any thread. Takes void, to fit dlc_comm_args.on_wait. */
void dlc_job_wait(void *job, const char *transport, int32_t rank);

/* What signals have asked for since the last call, as a set of these bits. A signal to
 * the launcher or to any rank reaches every rank, but not at the same moment: ranks
 * must agree before they act. Any thread. */
enum {
    DLC_JOB_STOP = 1u << 0,       /* SIGINT, SIGTERM: checkpoint, then return 0 */
    DLC_JOB_CHECKPOINT = 1u << 1, /* SIGHUP: checkpoint and continue */
    DLC_JOB_RELOAD = 1u << 2,     /* SIGUSR1: reload changeable settings and continue */
};
unsigned dlc_job_requests(dlc_job *job);

/* With `on`, this rank has nothing to save: a request to stop makes dlc_job_check fail,
 * dlc_job_was_stopped says so, and the rank should return 0. With 0 it looks at its
 * requests, and rank 0 tells the user that it will stop. Without a call nothing is
 * said. */
void dlc_job_stop_at_once(dlc_job *job, int on);
int dlc_job_was_stopped(const dlc_job *job);

#endif

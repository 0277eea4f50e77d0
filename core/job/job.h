/* A job: the ranks that train together, and what they need besides the exchange
 * of gradients: to be started, to find each other, to learn of a death, of a
 * signal, and to end together.
 *
 * A rank is a process. Every rank has one control channel, a byte stream of
 * framed messages to the hub. The hub is the launching process and the streams are
 * socket pairs; or, where others have started one process a rank, it is the process of
 * rank 0, and the other processes pass on between it and their ranks over TCP. Nothing
 * large or frequent goes over it.
 */
#ifndef DLC_JOB_JOB_H
#define DLC_JOB_JOB_H

#include <stddef.h>
#include <stdint.h>

#include <dlcore/transport.h>

#include "base/status.h"

#define DLC_JOB_RANKS_MAX 1024

typedef struct dlc_job dlc_job;

/* What a rank runs; its return value is the rank's exit code (0 .. 255; see
 * dlc_exit_code). */
typedef int (*dlc_job_main)(dlc_job *job, void *argument);

/* All zero but `ranks` is a good choice. */
typedef struct dlc_job_options {
    int ranks;   /* on this machine, 1 .. DLC_JOB_RANKS_MAX */
    int threads; /* of each rank; 0: one a core of its share */
    int unbound; /* leave the ranks' affinity alone */
    /* For dlc_job_place: rank i of those of a machine gets device_index[i % devices].
     * Ranks that others have started are counted by LOCAL_RANK, where it is set. */
    const char *device;          /* NULL: "" */
    const int32_t *device_index; /* NULL: 0, 1, 2 ... */
    int devices;                 /* 0: every rank gets index 0 */

    /* Let the environment say that this process is one rank of a job that others have
     * started: see dlc_job_run. */
    int outside;
    uint64_t digest;   /* of what must be the same for all ranks; compared then */
    double rendezvous; /* so long ranks are waited for, seconds; 0: 60 */
    double deadline; /* so long a rank may hang, seconds; 0: for ever. The only rank of
                      * a job ends with exit code 5 then, too, unless it computes. */
} dlc_job_options;

/* Runs `main` as every rank of a new job and waits for all of them.
 *
 * One rank runs in this process; more are forked from it, without exec: they have
 * everything that the caller has set up. The caller must have one thread only.
 * The ranks' standard input is empty. Rank 0 writes to the caller's stdout and
 * stderr; lines of the others come out whole on stderr, with "[rank N] " before.
 * Ranks are killed when the caller dies. A forked rank ends with exit(), so what
 * the caller has given to atexit() is called in each of them, too.
 *
 * *exit_code, set when DLC_OK is returned, is for the command to end with:
 *   0      every rank returned 0
 *   5      a rank was killed, or left while others waited for it: the log says
 *          who and what it was doing. The others were told (dlc_job_check) and
 *          had 1.5 s to end.
 *   128+n  SIGINT or SIGTERM asked the job to stop, and it did. A second one to the
 *          same process, 0.2 s or more later, kills the ranks at once; so does the
 *          first when a rank makes no progress for `deadline` seconds since.
 *   else   the highest code of a rank, those aside that ended because of another
 * A rank that returns anything but 0 ends the job for the others, too.
 * An error status means that no rank has run `main`, or that they were killed.
 *
 * With `outside`, and RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT or what PMIx needs
 * in the environment, this process is one rank of a larger job, and there are as many
 * ranks as that says, not `ranks` (1, or the same). The rank is a child here, too; the
 * calling process connects it with the others. stdout and stderr are left alone. Every
 * process of the job ends with the same exit code. */
dlc_status dlc_job_run(const dlc_job_options *options, dlc_job_main main,
                       void *argument, int *exit_code);

/* Does the environment say that others have started this process as a rank of a larger
 * job? Whether it says so rightly, dlc_job_run finds out. */
int dlc_job_is_from_outside(void);

int dlc_job_rank(const dlc_job *job);
int dlc_job_ranks(const dlc_job *job);
/* How many threads this rank should compute with: at least 1. */
int dlc_job_threads(const dlc_job *job);
/* A hardware thread for each of them, each of another core; NULL where they are not to
 * be bound. Lives as long as the job. */
const int32_t *dlc_job_cpus(const dlc_job *job);
/* With `on`, the calling thread moves to what the compute threads leave of the rank's
 * processors, if they leave anything; without, back. Threads that it starts in between
 * stay there. They are not bound to a core where others compute. */
void dlc_job_aside(dlc_job *job, int on);
/* Where rank `r` is; NULL if there is no such rank. The places lie in rank order
 * (dlc_transport_args.places is dlc_job_place(job, 0)). */
const dlc_place *dlc_job_place(const dlc_job *job, int r);

/* Collectives over the control channel, for set-up and small things. All ranks
 * make the same calls in the same order; when they don't (another call, root or
 * size), all of them get an error that names the ranks. They block, but not
 * longer than the job lives: when another rank is lost, they return what
 * dlc_job_check returns. From one thread at a time. */

/* Every rank's `bytes` bytes to all, in rank order. Fits
 * dlc_transport_args.allgather, hence void. */
dlc_status dlc_job_allgather(void *job, const void *mine, size_t bytes, void *all);
/* Rank root's bytes to all, in place. */
dlc_status dlc_job_broadcast(dlc_job *job, int root, void *data, size_t bytes);
dlc_status dlc_job_barrier(dlc_job *job);

/* DLC_OK, or an error with its detail once the job has to end because of another
 * rank (DLC_ERR_PEER: "rank 1 (host x, pid 123) was killed by signal 9 (Killed)
 * during backward conv1"). Reads one word; any thread may call. Fits
 * dlc_transport_args.check, hence void. */
dlc_status dlc_job_check(void *job);

/* Says why this rank ends with `status`, an error, before `main` returns: where the
 * ranks fail alike, or one because of another, the job says it once. 0: the caller has
 * to say it, since this is the only rank of the job, or nobody can be told. */
int dlc_job_fails(dlc_job *job, dlc_status status, const char *why);

/* Notes what this rank does now, for the report should it die in it: "during
 * forward conv1", "during broadcast weights (1048576 bytes)". Copies the words
 * (cut to 23 and 63 letters) into memory that the hub sees: cheap enough for every
 * layer. `name` may be NULL, 0 bytes are not mentioned; a NULL `phase` ends it. Each
 * call is progress, see dlc_job_options.deadline. */
void dlc_job_doing(dlc_job *job, const char *phase, const char *name, uint64_t bytes);

/* The same for the exchange that goes on beside it, from a thread of its own: "and
 * exchange of bucket 3 (1048576 bytes)". A name is cut to 23 letters; NULL ends it. */
void dlc_job_exchanging(dlc_job *job, const char *name, uint64_t bytes);

/* What signals asked for since the last call. A signal to the launcher or to any
 * rank reaches every rank, but not at the same moment: ranks must agree before
 * they act. Any thread may call. */
enum {
    DLC_JOB_STOP = 1u << 0,       /* SIGINT, SIGTERM: checkpoint, then return 0 */
    DLC_JOB_CHECKPOINT = 1u << 1, /* SIGHUP: checkpoint, go on */
    DLC_JOB_CHANGE = 1u << 2,     /* SIGUSR1: read what may change again, go on */
};
unsigned dlc_job_requests(dlc_job *job);

#endif

/* The probe: before training, neighbors on each level of a communicator try what they
 * will use. Called by session/connection.c, which chooses again without what fails.
 *
 * Neighbors are the ranks next to each other in a team, and its first and last. Between
 * them are tried (see the ways below): the memory of the next rank, read and written,
 * where the transport maps it; messages of the transport, both ways. All bytes must be
 * right, and the bandwidth about what the topology and the transport predict.
 *
 * A slow machine is not a slow link. What peer memory should do is measured against
 * copies of the device's own memory at the same moment, and what looks slow is tried
 * again, several times, of which the fastest counts. */
#ifndef DLC_COMM_PROBE_H
#define DLC_COMM_PROBE_H

#include <dlcore/consistency.h>

#include "comm/choose.h"
#include "comm/comm.h"

/* What is wrong with a level. */
typedef struct dlc_probe_finding {
    int32_t from, to; /* ranks of the job, between which bytes went; -1: nothing */
    double slowdown;  /* as in dlc_transport_finding */
    char text[200];   /* which pair, which way, what, and what to look at */
} dlc_probe_finding;

typedef struct dlc_probe_args {
    const dlc_comm_args *how;       /* what the communicator was opened with */
    const dlc_transport_path *path; /* one per level: what is expected */
    dlc_device *device;             /* another opening of the communicator's */
} dlc_probe_args;

/* Start with {0}. The memory that is sent and received. */
typedef struct dlc_probe {
    dlc_memory memory; /* owned */
} dlc_probe;

/* Collective. Fills in the worst finding of any rank for each level, the same on all
 * ranks. If there is one, the communicator may be unusable. An error is one of the job,
 * or of this rank's device. */
dlc_status dlc_probe_run(dlc_probe *probe, const dlc_probe_args *args, dlc_comm *comm,
                         dlc_probe_finding finding[DLC_COMM_LEVELS]);

/* After a finding: call it when the communicator is closed, which may still receive. */
void dlc_probe_close(dlc_probe *probe, const dlc_probe_args *args);

/* ---- The ways (probe_ways.c) ----------------------------------------------------- */

/* The ways in which the probe moves bytes from one rank to another: a table, and one
 * function to try each. They know p2p channels and devices, but no teams. */

enum { DLC_PROBE_BYTES = 256 << 10 };

/* The parts of dlc_probe.memory, of DLC_PROBE_BYTES each. */
typedef enum dlc_probe_part {
    DLC_PROBE_OWN,      /* a pattern, read by the previous rank and sent */
    DLC_PROBE_WRITTEN,  /* by the previous rank, in this rank's memory */
    DLC_PROBE_RECEIVED, /* read or received by this rank */
    DLC_PROBE_PARTS
} dlc_probe_part;

typedef enum dlc_probe_way {
    DLC_PROBE_READ,     /* this rank reads the memory of the next one */
    DLC_PROBE_WRITE,    /* ... and writes it */
    DLC_PROBE_FORWARD,  /* messages from the previous rank */
    DLC_PROBE_BACKWARD, /* messages from the next rank */
    DLC_PROBE_WAYS
} dlc_probe_way;

/* One rank's part of the probe on one level. */
typedef struct dlc_probe_trial {
    const dlc_device_ops *ops;
    dlc_device *device;
    const dlc_p2p_channel *p2p;
    int32_t rank, next, previous;             /* of the job */
    int32_t next_position, previous_position; /* in the channel */
    char *base;                               /* of dlc_probe.memory */
    char *next_base;                          /* of the next rank's; NULL: not mapped */
    uint64_t salt;     /* of what is written; another one in each attempt */
    uint64_t *scratch; /* host memory, DLC_PROBE_BYTES */
    double bandwidth[DLC_PROBE_WAYS]; /* expected; 0: whatever it is will do */
    int is_timed; /* a way of messages of some rank of the team is: all send as many */
    double latency;              /* expected of messages */
    double best[DLC_PROBE_WAYS]; /* seconds; 0: not tried */
    double small;                /* the most seconds of a small message */
    double local;                /* seconds of a copy of own memory */
    dlc_probe_finding finding;
} dlc_probe_trial;

/* Writes this rank's pattern into its own part. */
dlc_status dlc_probe_prepare(const dlc_probe_trial *trial);

/* Tries a way and keeps the best time. Wrong bytes are a finding; an error is one of
 * the device, or of the channel. */
dlc_status dlc_probe_try(dlc_probe_trial *trial, dlc_probe_way way);

/* Compares what the previous rank has written. */
dlc_status dlc_probe_check_written(dlc_probe_trial *trial);

/* Finds that bytes cannot go from one rank to another. The first such finding stays. */
void dlc_probe_unusable(dlc_probe_trial *trial, dlc_probe_way way, int32_t from,
                        int32_t to, const char *why);

/* Finds, by the best times, which way is slowest, and too slow. */
void dlc_probe_judge(dlc_probe_trial *trial);

#endif

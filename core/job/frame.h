/* The control channel's messages: a fixed header, then its payload. Numbers are
 * in the byte order of the machine: all of ours are little-endian. */
#ifndef DLC_JOB_FRAME_H
#define DLC_JOB_FRAME_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum dlc_frame_kind {
    /* Rank to hub. */
    DLC_FRAME_ALLGATHER = 1, /* size: bytes of each rank; payload: the sender's */
    DLC_FRAME_BROADCAST = 2, /* number: root; size; payload: the root's alone */
    DLC_FRAME_SIGNAL = 3,    /* number: the signal that the rank got */
    /* Hub to rank. */
    DLC_FRAME_RESULT = 4,  /* payload: of the collective that all have called */
    DLC_FRAME_REQUEST = 5, /* number: DLC_JOB_STOP ... */
    DLC_FRAME_NEWS = 6,    /* number: the status to stop with; payload: its detail */

    /* Between the hub and the agent of a rank that others have started. */
    DLC_FRAME_PULSE = 7, /* agent: how its rank is (dlc_pulse); hub: it is there */
    DLC_FRAME_ENDED = 8, /* agent: its rank has; number: code or signal; size: 1 for
                            a signal */
    DLC_FRAME_KILL = 9,  /* hub: number: the signal that the rank is to get */
    DLC_FRAME_DONE = 10, /* hub: all have ended; number: the job's exit code */

    /* Between a rank that PMIx knows and the process that forked it: see pmix.h. */
    DLC_FRAME_WHO = 11,
    DLC_FRAME_WHERE = 12,
} dlc_frame_kind;

typedef struct dlc_frame {
    uint32_t kind;
    int32_t number;
    uint64_t size;
    uint64_t bytes; /* of the payload */
} dlc_frame;

/* No frame has more: what is large goes another way. */
#define DLC_FRAME_BYTES_MAX ((uint64_t)1 << 30)

/* Both block until everything is through. A closed channel is DLC_ERR_PEER. */
dlc_status dlc_frame_send(int fd, const dlc_frame *frame, const void *payload);
dlc_status dlc_frame_read(int fd, void *buffer, size_t bytes);

#endif

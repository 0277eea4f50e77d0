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
    DLC_FRAME_FAILED =
        13, /* number: the status that the rank ends with; payload: why */
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

/* Bytes of a rank's reason for failing, with its NUL; what is longer is cut. */
#define DLC_FAILURE_TEXT 1024

/* After a failed send: the other side is gone, which reading from it tells as well. */
int dlc_send_is_closed(int error);
/* After a failed send without blocking: nothing is wrong, but there is no room now. */
int dlc_send_is_full(int error);

/* A payload that is coming in. Start with zeros; release with dlc_payload_free. */
typedef struct dlc_payload {
    char *bytes; /* own; a NUL follows what is there */
    size_t got, room;
} dlc_payload;

/* Makes room for more of a payload of `total` bytes. A header may promise anything, so
 * there is never much more room than bytes that have come. Fails for more than
 * DLC_FRAME_BYTES_MAX, too; what is there stays. */
dlc_status dlc_payload_reserve(dlc_payload *payload, uint64_t total);
void dlc_payload_free(dlc_payload *payload);

/* Both block until everything is through. A closed channel is DLC_ERR_PEER; one that
 * cannot be sent on, though nobody has closed it, DLC_ERR_IO. */
dlc_status dlc_frame_send(int fd, const dlc_frame *frame, const void *payload);
dlc_status dlc_frame_read(int fd, void *buffer, size_t bytes);
/* Blocks as well. The payload of a frame whose header has been read; `payload` comes
 * zeroed. */
dlc_status dlc_frame_read_payload(int fd, uint64_t bytes, dlc_payload *payload);

#endif

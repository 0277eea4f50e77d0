/* The control channel: messages (frames) with a fixed header and a payload, on a
 * socket. A rank sends and reads them blocking; hub and agents use a dlc_channel, which
 * never blocks. Numbers are in the byte order of the machine: all supported ones are
 * little-endian. */
#ifndef DLC_JOB_CHANNEL_H
#define DLC_JOB_CHANNEL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"

typedef enum dlc_frame_kind {
    /* Rank to hub. */
    DLC_FRAME_ALL_GATHER = 1, /* size: bytes of each rank; payload: the sender's */
    DLC_FRAME_BROADCAST = 2,  /* number: root; size; payload: from the root only */
    DLC_FRAME_SIGNAL = 3,     /* number: the signal that the rank received */
    DLC_FRAME_FAILED = 13,    /* number: the status it ends with; payload: the reason */
    DLC_FRAME_RETURNED = 14,  /* its main has returned */
    DLC_FRAME_WITHDRAWN = 15, /* it does not take part in what ranks open together:
                                 number: the status; size: collectives so far; payload:
                                 the reason. The hub sends it to all ranks. */
    /* Hub to rank. */
    DLC_FRAME_RESULT = 4,  /* payload: the result of the collective */
    DLC_FRAME_REQUEST = 5, /* number: DLC_JOB_STOP ... */
    DLC_FRAME_ABORT = 6,   /* number: the status to end with; payload: the reason */

    /* Between the hub and the agent of an external rank. */
    DLC_FRAME_HEARTBEAT = 7, /* agent: its rank's dlc_heartbeat; hub: no payload */
    DLC_FRAME_ENDED = 8,     /* agent: its rank has ended; number: exit code or signal;
                                size: 1 for a signal */
    DLC_FRAME_KILL = 9,      /* hub: number: the signal to send to the rank */
    DLC_FRAME_DONE = 10, /* hub: all ranks have ended; number: the job's exit code */

    /* Between a rank that uses PMIx and the process that forked it: see launch/pmi.h.
     */
    DLC_FRAME_PMIX_IDENTITY = 11,
    DLC_FRAME_PMIX_ADDRESS = 12,
} dlc_frame_kind;

typedef struct dlc_frame {
    uint32_t kind;
    int32_t number;
    uint64_t size;
    uint64_t bytes; /* of the payload */
} dlc_frame;

/* The largest payload: what is larger does not belong on the control channel. */
#define DLC_FRAME_BYTES_MAX ((uint64_t)1 << 30)

/* A payload that is being received. Start with zeros; release with dlc_payload_free. */
typedef struct dlc_payload {
    char *bytes; /* own; a NUL follows what is there */
    size_t got, room;
} dlc_payload;

/* Makes room for more of a payload of `total` bytes. A header may claim any size, so
 * the room grows with what has arrived. Fails, without loss, if `total` is more than
 * DLC_FRAME_BYTES_MAX. */
dlc_status dlc_payload_reserve(dlc_payload *payload, uint64_t total);
void dlc_payload_free(dlc_payload *payload);

/* ---- Blocking */

/* Block until the whole frame is sent, or `bytes` bytes are read. DLC_ERR_PEER if the
 * channel is closed; DLC_ERR_IO if sending fails although nobody has closed it. */
dlc_status dlc_frame_send(int fd, const dlc_frame *frame, const void *payload);
dlc_status dlc_frame_read(int fd, void *buffer, size_t bytes);
/* Reads the payload of a frame whose header has been read, blocking. `payload` must be
 * zeroed. */
dlc_status dlc_frame_read_payload(int fd, uint64_t bytes, dlc_payload *payload);

/* ---- Non-blocking */

/* Start with {.fd = ...}; release with dlc_channel_close. */
typedef struct dlc_channel {
    int fd;    /* own; -1: closed */
    int error; /* why it was closed, an errno; 0: by the other end */

    dlc_frame frame; /* that is being received, and its payload */
    size_t frame_got;
    dlc_payload payload;

    dlc_text out; /* what is being sent, with `shared` inserted at `shared_at` */
    size_t out_sent;
    const char *shared; /* NULL: nothing */
    size_t shared_bytes, shared_at, shared_sent;
} dlc_channel;

void dlc_channel_close(dlc_channel *channel);

/* Reads what is available. 1: `frame` and `payload` are a whole frame, valid until the
 * next call; 0: no whole frame yet, or the channel was closed (fd is -1). */
int dlc_channel_read(dlc_channel *channel);
/* The same in two steps, for a reader that looks at the header first: 1 from when the
 * header is complete, or the payload. With `discard` the payload is not kept. */
int dlc_channel_read_header(dlc_channel *channel);
int dlc_channel_read_payload(dlc_channel *channel, int discard);

/* Queues a frame; dlc_channel_flush sends what is queued. If memory runs out,
 * dlc_text_status(&channel->out) reports it. */
void dlc_channel_send(dlc_channel *channel, const dlc_frame *frame,
                      const void *payload);
/* The same for a payload that is not copied, and must stay where it is until it was
 * sent. Only one such payload may be queued at a time. */
void dlc_channel_send_shared(dlc_channel *channel, const dlc_frame *frame,
                             const void *payload);
/* Sends as much as the socket accepts. DLC_ERR_IO: the socket fails although nobody has
 * closed it; the channel is closed then. */
dlc_status dlc_channel_flush(dlc_channel *channel);
/* Whether anything is queued. */
int dlc_channel_has_output(const dlc_channel *channel);

#endif

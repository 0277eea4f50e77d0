/* A stream of whole frames on a socket, without blocking: what an agent passes on. */
#ifndef DLC_JOB_CHANNEL_H
#define DLC_JOB_CHANNEL_H

#include "base/text.h"
#include "job/frame.h"

/* Start with {.fd = ...}; release with dlc_channel_close. */
typedef struct dlc_channel {
    int fd; /* own; -1: closed */
    dlc_frame frame;
    size_t frame_got;
    dlc_payload payload;
    dlc_text out;
    size_t out_sent;
} dlc_channel;

void dlc_channel_close(dlc_channel *channel);

/* Reads on. 1: `frame` and `payload` are a whole frame, until the next call; 0: no more
 * now, or the channel was closed. */
int dlc_channel_read(dlc_channel *channel);

/* Queues a frame; what is queued goes out with dlc_channel_flush. */
void dlc_channel_put(dlc_channel *channel, const dlc_frame *frame, const void *payload);
/* Sends as much as the socket takes. A failed queue is told by dlc_text_status.
 * DLC_ERR_IO: the socket takes nothing more, though nobody has closed it; the channel
 * was closed. */
dlc_status dlc_channel_flush(dlc_channel *channel);
int dlc_channel_wants_out(const dlc_channel *channel);

#endif

/* A non-blocking stream of whole frames on a socket: both connections of an agent. */
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

/* Reads what is available. 1: `frame` and `payload` are a whole frame, valid until the
 * next call; 0: no whole frame yet, or the channel was closed (fd is -1). */
int dlc_channel_read(dlc_channel *channel);

/* Queues a frame; dlc_channel_flush sends what is queued. If memory runs out,
 * dlc_text_status(&channel->out) reports it. */
void dlc_channel_send(dlc_channel *channel, const dlc_frame *frame,
                      const void *payload);
/* Sends as much as the socket accepts. DLC_ERR_IO: the socket fails although nobody has
 * closed it; the channel is closed then. */
dlc_status dlc_channel_flush(dlc_channel *channel);
/* Whether anything is queued. */
int dlc_channel_has_output(const dlc_channel *channel);

#endif

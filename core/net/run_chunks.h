/* The schedule of batch chunks (chunks.h): what comes before the chunked part of a net
 * runs once, on this rank's samples; the chunked part runs forward and backward for
 * each chunk in turn. Its gradients are added up in the order of the chunks, so runs
 * are bitwise repeatable:
 *
 *     forward of the rest
 *     chunk 0:  all-gather             | all-gather 1
 *               forward, backward      |
 *     chunk 1:  forward, backward      | all-gather 2, reduce gradients of 0
 *     ...
 *     backward of the rest
 */
#ifndef DLC_NET_RUN_CHUNKS_H
#define DLC_NET_RUN_CHUNKS_H

#include "net/run_op.h"

/* Run the chunked part for all chunks of a batch: forward alone, or with backward.
 * Without batch chunks there is no such part, and they do nothing. */
dlc_status dlc_net_chunks_forward(dlc_net *net);
dlc_status dlc_net_chunks_train(dlc_net *net, const net_done *done);

#endif

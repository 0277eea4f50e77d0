/* Batch chunks: the tensor-parallel layers at the end of a net process the batch in
 * chunks (Krizhevsky 2014, arXiv:1404.5997, section 4, schemes b and c), so that only a
 * part of the ranks' activations is gathered at a time, and the next chunk is
 * transferred while one is computed.
 *
 * The *chunked part* of a net is what comes after a tensor, its *input*, that only
 * tensor-parallel layers read: from the first tensor-parallel layer to the loss. In the
 * net's list of operations it is a suffix that begins with the reshard operation that
 * gathers the input. What comes before runs once, on this rank's samples; the chunked
 * part runs forward and backward for each chunk in turn. Its gradients are added up in
 * the order of the chunks, so runs are bitwise repeatable:
 *
 *     forward of the rest
 *     chunk 0:  all-gather             | all-gather 1
 *               forward, backward      |
 *     chunk 1:  forward, backward      | all-gather 2, reduce gradients of 0
 *     ...
 *     backward of the rest
 *
 * In the memory plan the steps of the chunked part are adjacent, so buffers that are
 * used only there are reused by the next chunk. The gathered input and its gradient are
 * double-buffered.
 *
 * Chunks are of equal size but for the last. Unused rows of the last one are zero,
 * without a label, and so are their gradients. Included by the files of core/net only.
 */
#ifndef DLC_NET_BATCH_CHUNKS_H
#define DLC_NET_BATCH_CHUNKS_H

#include "net/tensor_parallel.h"

/* A rank's rows in a chunk: `count` rows of the chunk from `at` on, which are the
 * rank's samples from `own` on. */
typedef struct net_rows {
    int64_t at, own, count;
} net_rows;

net_rows dlc_net_chunk_rows(const dlc_net *net, int32_t chunk, int32_t rank);

/* Called before any layer is made: finds the chunked part and the size of chunks; does
 * nothing if the whole batch is processed at once. */
dlc_status dlc_net_chunks_open(dlc_net *net);

/* Is a layer of the graph, or an operation of the net, in the chunked part? */
int dlc_net_is_chunked(const dlc_net *net, int32_t node);
int dlc_net_op_is_chunked(const dlc_net *net, int32_t op);

/* build.c: the rows per block of a layer that depends on sample positions but gets rows
 * of several ranks. It is made for that many rows, which are consecutive samples, and
 * run once per block; 0: it is run once for all rows. */
int64_t dlc_net_block_rows(const dlc_net *net, const net_op *op);
/* run.c: runs forward or backward of a layer, block by block if necessary. */
dlc_status dlc_net_run_layer(const dlc_net *net, net_op *op,
                             dlc_status (*run)(dlc_layer *layer,
                                               const dlc_layer_run *run));
/* The position, in the batch of all ranks, of the first sample that an operation of the
 * chunked part sees. `sample` is the position of this rank's first sample. */
int64_t dlc_net_chunk_sample(const dlc_net *net, const net_op *op, int64_t sample);

/* build.c: checks that a layer supports being in the chunked part. */
dlc_status dlc_net_check_chunks(const dlc_net *net, const net_op *op);
/* plan.c: of an operation, all blocks'. */
size_t dlc_net_workspace(const dlc_net *net, const net_op *op);

/* run.c: does this rank have none of the chunk's rows, so that the operation is idle?
 */
int dlc_net_is_idle(const dlc_net *net, const net_op *op);
/* run.c: called before and after an operation's backward: the gradients of later chunks
 * are computed in a buffer and then added to those of the first. */
void dlc_net_redirect_gradients(const dlc_net *net, net_op *op);
dlc_status dlc_net_add_gradients(const dlc_net *net, net_op *op);
/* run.c: called after a metric's forward, to add it to that of earlier chunks. */
dlc_status dlc_net_add_metric(const dlc_net *net, const net_op *op);

/* plan.c: finds where the group begins; is a tensor in use until its end, at least?
 * Buffers that a chunk leaves to the next. */
void dlc_net_chunks_find(dlc_net *net);
int dlc_net_outlives_chunk(const dlc_net *net, int32_t tensor);
dlc_status dlc_net_chunks_plan(dlc_net *net);

/* Run the chunked part for all chunks of a batch: forward alone, or with backward. */
dlc_status dlc_net_chunks_forward(dlc_net *net);
dlc_status dlc_net_chunks_train(dlc_net *net, float loss_scale,
                                dlc_status (*done)(void *context, size_t elements),
                                void *context);

#endif

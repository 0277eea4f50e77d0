/* Tensor parallelism, in numbers: which samples and channels each rank has of a tensor.
 * Each rank computes some channels of a layer's output, for the samples of all ranks
 * (Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks",
 * arXiv:1404.5997). Included by the files of core/net only.
 *
 * Batch chunks: the tensor-parallel layers at the end of a net process the batch in
 * chunks (section 4, schemes b and c), so that only a part of the ranks' activations is
 * gathered at a time, and the next chunk is transferred while one is computed. The
 * *chunked part* of a net is what comes after a tensor, its *input*, that only
 * tensor-parallel layers read: from the first tensor-parallel layer to the loss. In the
 * net's list of operations it is a suffix that begins with the reshard operation that
 * gathers the input. The passes `chunks` and `chunk_memory` plan its memory, and
 * run_chunks.c runs it.
 *
 * Chunks are of equal size but for the last. Unused rows of the last one are zero,
 * without a label, and so are their gradients.
 */
#ifndef DLC_NET_PLACEMENT_H
#define DLC_NET_PLACEMENT_H

#include "base/status.h"
#include "net/net.h"

/* The samples and channels that a rank has of a tensor. */
typedef enum net_placement {
    SAMPLE_SHARDED, /* its own samples, all channels: away from tensor-parallel layers
                     */
    REPLICATED, /* the samples of all ranks, all channels: what such a layer reads */
    CHANNEL_SHARDED /* the samples of all ranks, its own channels: such a layer's output
                     */
} net_placement;

/* Is a layer of the graph tensor-parallel? `tp` may be NULL. */
int dlc_net_is_tensor_parallel(const dlc_net_tensor_parallel *tp, int32_t node);

/* Is a layer cheap enough to be computed along with tensor-parallel ones: by every rank
 * for the samples of all ranks? */
int dlc_net_is_light(const dlc_graph_layer *layer);

/* The first of `channels` that a rank computes; its last one comes before the first of
 * the next rank (that of rank `ranks` is `channels`). Channels are split in proportion
 * to channel_share, but each rank has at least one; there must be that many. */
int64_t dlc_net_channel_begin(const dlc_net_tensor_parallel *tp, int64_t channels,
                              int32_t rank);

/* Checks that there is a channel of layer `name` for every rank. */
dlc_status dlc_net_check_channels(const dlc_net_tensor_parallel *tp, const char *name,
                                  int64_t channels);

/* The i-th other rank; each rank begins with the one after it, to balance the load. */
static inline int32_t net_other_rank(const dlc_net_tensor_parallel *tp, int32_t i) {
    return (tp->rank + i) % tp->ranks;
}

/* ---- Batch chunks ---------------------------------------------------------------- */

typedef struct net_chunks {
    const dlc_net_tensor_parallel *tp;
    int32_t count;      /* 0: the whole batch is processed at once */
    int32_t node;       /* first layer of the graph that works on chunks */
    int64_t rows;       /* of a chunk, over all ranks */
    int64_t local_rows; /* of a chunk, at most, that are this rank's samples */
    int64_t block;      /* rows that are consecutive samples */

    int32_t
        label[DLC_NET_FIELDS]; /* tensors: those of this rank's rows; or NO_TENSOR */
    int32_t first_op;          /* that works on chunks: it gathers their input */
    /* Buffers: the second of two for the gathered input and its gradient, and two for
     * gradients received from other ranks. */
    int32_t next_data, next_diff, received[2];

    /* The state of a pass. */
    int32_t current; /* the chunk that is being computed */
    int64_t sample;  /* position of the first sample of all ranks in the batch */
    int32_t transfers;
    dlc_transfer *transfer;                 /* own; the list being made */
    const float **part;                     /* own; each rank's part of a gradient */
    uint64_t gathered[2], reduced[2], sent; /* handles of transfers */
} net_chunks;

/* A rank's rows in a chunk: `count` rows of the chunk from `at` on, which are the
 * rank's samples from `own` on. */
typedef struct net_rows {
    int64_t at, own, count;
} net_rows;

/* Finds the chunked part of the graph and the size of chunks; their count stays 0 if
 * the whole batch is processed at once. */
dlc_status dlc_net_chunks_open(net_chunks *chunks, const dlc_net_args *args);
void dlc_net_chunks_close(net_chunks *chunks);

/* Is a layer of the graph in the chunked part? */
int dlc_net_is_chunked(const net_chunks *chunks, int32_t node);

net_rows dlc_net_chunk_rows(const net_chunks *chunks, int32_t chunk, int32_t rank);

/* The position in the batch of a row of the current chunk. */
int64_t dlc_net_chunk_sample(const net_chunks *chunks, int64_t row);

#endif

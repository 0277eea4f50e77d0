/* The shards of parameters that no rank has completely: with tensor parallelism each
 * rank has some rows of a parameter, with pipeline stages some of the parameters. The
 * tensors of a checkpoint are complete. Rank 0 reads and writes the file; it gathers
 * shards from the ranks that have them, rows by rows, so that it needs no room for a
 * whole tensor that it does not have, and scatters what it has read, one tensor at a
 * time.
 *
 *     dlc_shards_open                      all ranks, each with its shards
 *     rank 0: dlc_shards_get or _put ...; dlc_shards_end
 *     others: dlc_shards_serve             until rank 0 ends
 *
 * Threads: the train thread, between iterations.
 */
#ifndef DLC_CHECKPOINT_SHARDS_H
#define DLC_CHECKPOINT_SHARDS_H

#include "session/session.h"

enum { DLC_SHARD_NAME = 128 };

/* A rank's shard of one tensor. */
typedef struct dlc_shard {
    char name[DLC_SHARD_NAME]; /* "conv1.weight" */
    dlc_shape shape;           /* of the complete tensor */
    int64_t first, rows;       /* this rank has rows [first, first + rows) */
    int32_t order;             /* position in files, ascending; unique per tensor */
    int32_t is_buffer;         /* not trained, so without solver slots */
} dlc_shard;

typedef struct dlc_shards dlc_shards;

/* Collective, once the slots are open: sets session->shards, unless it is set, from the
 * parameters, or rows of them, that this rank's net has. `engine` connects all ranks;
 * nobody else uses it between iterations. DLC_ERR_INTERNAL if ranks disagree on a
 * tensor, or if no rank has some of its rows. Several ranks may have the same rows,
 * with equal values. */
dlc_status dlc_shards_open(dlc_session *session, dlc_progress_engine *engine);
/* While the engine is still open; again is allowed. */
void dlc_shards_close(dlc_session *session);

/* All tensors, over all ranks, in the order of files; `first` and `rows` describe the
 * complete tensor. */
int32_t dlc_shards_count(const dlc_shards *shards);
const dlc_shard *dlc_shards_at(const dlc_shards *shards, int32_t tensor);

/* The elements that copies need at least. */
size_t dlc_shards_room(const dlc_shards *shards);

/* Rank 0: gathers elements from `at` on, which begins a row, of tensor `tensor`, or of
 * the solver's slot `slot` of it (-1: the tensor itself). `plain` has room for `room`
 * elements, dlc_shards_room at least; *data is in there, with *count elements, at least
 * one row. Blocks. */
dlc_status dlc_shards_get(dlc_shards *shards, int32_t tensor, int32_t slot, size_t at,
                          float *plain, size_t room, const float **data, size_t *count);
/* Rank 0: scatters all of `plain` to the ranks that have any of its rows. Blocks. */
dlc_status dlc_shards_put(dlc_shards *shards, int32_t tensor, int32_t slot,
                          const float *plain);
/* Rank 0: ends dlc_shards_serve on the other ranks; called even after a failure. */
dlc_status dlc_shards_end(dlc_shards *shards);

/* Other ranks: serve rank 0's requests until it ends; blocks. */
dlc_status dlc_shards_serve(dlc_shards *shards);

#endif

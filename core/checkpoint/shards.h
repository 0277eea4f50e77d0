/* The shards of tensors that no rank has completely: with tensor parallelism each rank
 * has some rows of a parameter, with pipeline stages some of the parameters. The
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

#include "comm/progress_engine.h"
#include "job/job.h"
#include "session/scratch.h"

enum { DLC_SHARD_NAME = 128 };

/* A rank's shard of one tensor. */
typedef struct dlc_shard {
    char name[DLC_SHARD_NAME]; /* "conv1.weight" */
    dlc_shape shape;           /* of the complete tensor */
    int64_t first, rows;       /* this rank has rows [first, first + rows) */
    int32_t order;             /* position in files, ascending; unique per tensor */
    int32_t is_buffer;         /* not trained, so without solver slots */
} dlc_shard;

typedef struct dlc_shards_args {
    dlc_job *job;
    dlc_progress_engine *engine;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    int on_host;            /* its memory is host memory (DLC_DEVICE_HOST) */
    const dlc_shard *shard; /* this rank's; copied by dlc_shards_open */
    int32_t shards;
    /* Called on all ranks, with the same slots in the same order, before slot `slot` of
     * a tensor is copied. */
    dlc_status (*prepare)(void *context, int32_t slot);

    /* Copy the rows of this rank's shard `i` to and from plain host memory: of the
     * tensor itself (slot -1) or of the solver's slot `slot` of it. */
    dlc_status (*export)(void *context, int32_t i, int32_t slot, float *plain);
    dlc_status (*import)(void *context, int32_t i, int32_t slot, const float *plain);
    /* Lends host memory for at least so many elements, which is used until it is given
     * back; on all ranks but rank 0, while they serve. */
    dlc_status (*lend)(void *context, size_t least, dlc_scratch *plain);
    dlc_status (*give_back)(void *context, dlc_scratch *plain);
    void *context;
} dlc_shards_args;

typedef struct dlc_shards dlc_shards;

/* Collective. DLC_ERR_INTERNAL if ranks disagree on a tensor, or if no rank has some of
 * its rows. Several ranks may have the same rows, with equal values. */
dlc_status dlc_shards_open(const dlc_shards_args *args, dlc_shards **shards);
void dlc_shards_close(dlc_shards *shards); /* NULL allowed */

/* All tensors, over all ranks, in the order of files; `first` and `rows` describe the
 * complete tensor. */
int32_t dlc_shards_count(const dlc_shards *shards);
const dlc_shard *dlc_shards_at(const dlc_shards *shards, int32_t tensor);

/* The elements that copies need at least. */
size_t dlc_shards_room(const dlc_shards *shards);

/* Rank 0: gathers rows from `row` on of tensor `tensor`, or of its slot `slot` (-1: the
 * tensor itself). `plain` has room for `room` elements, dlc_shards_room at least; *data
 * is in there, with *rows rows, at least one. Blocks. */
dlc_status dlc_shards_get(dlc_shards *shards, int32_t tensor, int32_t slot, int64_t row,
                          float *plain, size_t room, const float **data, int64_t *rows);
/* Rank 0: scatters all of `plain` to the ranks that have any of its rows. Blocks. */
dlc_status dlc_shards_put(dlc_shards *shards, int32_t tensor, int32_t slot,
                          const float *plain);
/* Rank 0: ends dlc_shards_serve on the other ranks; called even after a failure. */
dlc_status dlc_shards_end(dlc_shards *shards);

/* Other ranks: serve rank 0's requests until it ends; blocks. */
dlc_status dlc_shards_serve(dlc_shards *shards);

#endif

/* Tensors of which no rank has everything: split layers leave each rank some rows of a
 * parameter, stages some of the parameters. A checkpoint knows nothing of that: its
 * tensors are whole. Rank 0 writes and reads it; what it lacks it fetches from those
 * who have it, and what it has read it hands to them, one tensor at a time.
 *
 *     dlc_pieces_open                      all ranks, each with what it has
 *     rank 0: dlc_pieces_get or _put ...; dlc_pieces_end
 *     others: dlc_pieces_serve             until rank 0 ends
 *
 * Threads: the train thread, between iterations.
 */
#ifndef DLC_TRAIN_PIECES_H
#define DLC_TRAIN_PIECES_H

#include <dlcore/solver.h>

#include "job/job.h"

enum { DLC_PIECE_NAME = 128 };

/* What a rank has of one tensor. */
typedef struct dlc_piece {
    char name[DLC_PIECE_NAME]; /* "conv1.weight" */
    dlc_shape shape;           /* of the whole tensor */
    int64_t first, rows;       /* of dimension 0, [first, first + rows) are here */
    int32_t order;             /* in files: lower ones first; differs among tensors */
    int32_t is_buffer;         /* a running average: it has no slots */
} dlc_piece;

typedef struct dlc_pieces_args {
    dlc_job *job;
    const dlc_mail
        *mail; /* nobody else uses it while pieces are fetched or handed out */
    const dlc_device_ops *device_ops;
    dlc_device *device;
    int on_host;            /* its memory is the processor's (DLC_DEVICE_HOST) */
    const dlc_piece *piece; /* this rank's; copied */
    int32_t pieces;
    /* This rank's rows of its piece `i`, plain in the processor's memory, from and to
     * their place: the tensor itself (slot -1) or the solver's slot `slot` of it. */
    dlc_status (*export)(void *context, int32_t i, int32_t slot, float *plain);
    dlc_status (*import)(void *context, int32_t i, int32_t slot, const float *plain);
    void *context;
} dlc_pieces_args;

typedef struct dlc_pieces dlc_pieces;

/* All ranks together. DLC_ERR_INTERNAL where ranks disagree on a tensor, or nobody has
 * some of its rows. Several may have the same rows, which are then the same numbers. */
dlc_status dlc_pieces_open(const dlc_pieces_args *args, dlc_pieces **pieces);
void dlc_pieces_close(dlc_pieces *pieces); /* NULL allowed */

/* The tensors that there are, over all ranks, in the order of files; `first` and `rows`
 * are those of the whole. */
int32_t dlc_pieces_count(const dlc_pieces *pieces);
const dlc_piece *dlc_pieces_at(const dlc_pieces *pieces, int32_t tensor);

/* Rank 0: tensor `tensor`, or slot `slot` of it (-1: itself), whole, into `plain`; and
 * from there to everyone who has any of its rows, rank 0 too. */
dlc_status dlc_pieces_get(dlc_pieces *pieces, int32_t tensor, int32_t slot,
                          float *plain);
dlc_status dlc_pieces_put(dlc_pieces *pieces, int32_t tensor, int32_t slot,
                          const float *plain);
/* Rank 0: no more of them; also where one has failed. */
dlc_status dlc_pieces_end(dlc_pieces *pieces);

/* The others: does what rank 0 asks for until it ends. */
dlc_status dlc_pieces_serve(dlc_pieces *pieces);

#endif

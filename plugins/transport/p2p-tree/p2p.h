/* What the files of the p2p-tree transport share.
 *
 * Memory that has been attached is mapped by every rank, so a collective in it reads
 * and writes everybody's where it lies. Its addresses are the device's: they are only
 * handed to the device's operations. Marks (see ../shm/shm.h) say who may touch what.
 */
#ifndef P2P_H
#define P2P_H

#include "../shm/shm.h"

/* Attached memory. */
typedef struct arena {
    dlc_memory *memory; /* one a rank; this rank's is the caller's */
    size_t bytes;
} arena;

typedef struct words words; /* words.c */

enum { BOUNCE_BYTES = 4 << 20 };

typedef struct arenas {
    arena *list;
    uint32_t count;
    lane lane;         /* where the device has such */
    int tree;          /* schedule of the reducing collectives */
    uint64_t calls;    /* in attached memory, since the start */
    uint64_t chunks;   /* of the tree, since the start */
    dlc_memory bounce; /* own; see bounce.c */
    words *words;      /* own; NULL: queues can't keep step, the processor does */
} arenas;

/* A collective at a place in attached memory. */
typedef enum call_kind {
    ALL_REDUCE = 1,
    REDUCE_SCATTER,
    ALL_GATHER,
    BROADCAST,
    UPDATE
} call_kind;

typedef struct call {
    call_kind kind;
    uint32_t arena;
    size_t offset, count; /* bytes into it; elements, of a broadcast bytes */
    dlc_queue *queue;     /* all of it is given to it; NULL: the processor takes part */
} call;

/* Of what gradients in one arena and weights in another become. */
typedef struct update {
    call gradients, weights; /* of the kind UPDATE */
    int is_summed;           /* this rank's gradients are the sums already */
    const dlc_weight_step *steps;
    int32_t count;
} update;

/* arenas.c */
dlc_status arenas_open(dlc_endpoint *endpoint, int tree);
void arenas_close(dlc_endpoint *endpoint);
dlc_status arenas_attach(dlc_endpoint *endpoint, const dlc_memory *memory);
/* 1 and the place, where all of the buffer lies in one arena. */
int arenas_find(const dlc_endpoint *endpoint, const void *buffer, size_t bytes,
                call *place);
/* A rank's own of what `place` says, `at` elements into it. */
float *arenas_at(const dlc_endpoint *endpoint, const call *place, int32_t rank,
                 size_t at);

/* calls.c: everybody has come to this collective, and to the same; everybody (of ranks
 * first .. end-1; of a call for a queue, all) is through with it. */
dlc_status call_enter(dlc_endpoint *endpoint, const call *call, int32_t first,
                      int32_t end);
dlc_status call_leave(dlc_endpoint *endpoint, const call *call, int32_t first,
                      int32_t end);
/* The work given to the device is done, and the job goes on. */
dlc_status call_sync(dlc_endpoint *endpoint);
/* The same at the end of a collective, which may have failed; nothing of one for a
 * queue, which goes on. */
dlc_status call_finish(dlc_endpoint *endpoint, const call *call, dlc_status status);
/* Where its work goes; NULL: it is done when a call returns. */
dlc_queue *call_queue(const dlc_endpoint *endpoint, const call *call);
/* Where a rank's slice begins. */
size_t call_slice(const dlc_endpoint *endpoint, const call *call, int32_t rank);
/* Elements to work on at a time, by which schedule. */
size_t call_chunk(const dlc_endpoint *endpoint, const call *call, int tree);

/* By the schedule that suits: all but broadcasts. */
dlc_status call_run(dlc_endpoint *endpoint, const call *call);

/* direct.c, tree.c */
dlc_status direct_reduce(dlc_endpoint *endpoint, const call *call);
dlc_status direct_gather(dlc_endpoint *endpoint, const call *call);
dlc_status direct_broadcast(dlc_endpoint *endpoint, const call *call, int32_t root);
dlc_status tree_run(dlc_endpoint *endpoint, const call *call);
dlc_status direct_update(dlc_endpoint *endpoint, const update *update);

/* bounce.c: for memory that the processor cannot read. All ranks open together. */
dlc_status bounce_open(dlc_endpoint *endpoint);
void bounce_close(dlc_endpoint *endpoint);
dlc_status bounce_all_reduce(dlc_endpoint *endpoint, float *buffer, size_t count);

/* words.c: steps of queues, in turns. */
enum { TURN_ENTER, TURN_LEAVE, TURN_STAGE }; /* of the tree, from there on */
typedef struct span {
    int32_t turn, first, end; /* ranks first .. end-1, but this one */
} span;
/* All ranks open together, with lanes and arenas. No words are no error. */
dlc_status words_open(dlc_endpoint *endpoint);
void words_close(dlc_endpoint *endpoint);
dlc_status words_tell(const dlc_endpoint *endpoint, dlc_queue *order, const span *to,
                      uint32_t value);
/* `is_last`: nobody tells more in this turn before all have met. */
dlc_status words_await(const dlc_endpoint *endpoint, dlc_queue *order, const span *from,
                       uint32_t value, int is_last);
/* All ranks wait for all; in ENTER and LEAVE by turns. */
dlc_status words_meet(const dlc_endpoint *endpoint, dlc_queue *order, int32_t turn);
/* dlc_transport_ops.poll */
dlc_status words_poll(dlc_endpoint *endpoint);

/* queued.c: as dlc_transport_ops has them. */
dlc_status queue_all_reduce(dlc_endpoint *endpoint, dlc_queue *order, float *buffer,
                            size_t count);
dlc_status queue_reduce_scatter(dlc_endpoint *endpoint, dlc_queue *order, float *buffer,
                                size_t count);
dlc_status queue_all_gather(dlc_endpoint *endpoint, dlc_queue *order, float *buffer,
                            size_t count);
dlc_status queues(dlc_endpoint *endpoint, int *may);

#endif

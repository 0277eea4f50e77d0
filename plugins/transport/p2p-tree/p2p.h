/* Internals of the p2p-tree transport.
 *
 * Every rank maps the other ranks' registered memory, so a collective reads and writes
 * it in place. The addresses are the device's: they are only passed to the device's
 * operations. Progress counters (see ../shm/shm.h) order the accesses.
 */
#ifndef P2P_H
#define P2P_H

#include "../shm/shm.h"

/* Registered memory. */
typedef struct arena {
    dlc_memory *memory; /* one per rank; this rank's belongs to the caller */
    size_t bytes;
} arena;

typedef struct semaphores semaphores; /* semaphores.c */

enum { BOUNCE_BYTES = 4 << 20 };

typedef struct arenas {
    arena *list;
    uint32_t count;
    copy_queue work;        /* of collectives that are not stream-ordered */
    int tree;               /* reduce in the tree schedule, else direct */
    uint64_t calls;         /* in registered memory, since the start */
    uint64_t chunks;        /* of the tree, since the start */
    dlc_memory bounce;      /* owned; see bounce_buffer.c */
    semaphores *semaphores; /* owned; NULL: the device has none and the CPU waits
                               between steps */
} arenas;

/* A collective at an offset of an arena. */
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
    size_t offset, count; /* offset in bytes; count in elements, in a broadcast bytes */
    dlc_queue *queue;     /* NULL: not stream-ordered, the CPU waits between steps */
} call;

/* A fused reduce-scatter, update and all-gather: gradients in one arena, weights in
 * another. */
typedef struct update {
    call gradients, weights; /* of the kind UPDATE */
    int is_reduced;          /* this rank's slice of the gradients is reduced already */
    const dlc_update_range *steps;
    int32_t count;
} update;

/* arenas.c: arenas_open and arenas_register are collective over the group. */
dlc_status arenas_open(dlc_endpoint *endpoint, int tree);
void arenas_close(dlc_endpoint *endpoint);
dlc_status arenas_register(dlc_endpoint *endpoint, const dlc_memory *memory);
/* Returns 1 and fills in arena and offset if one arena contains the whole buffer. */
int arenas_find(const dlc_endpoint *endpoint, const void *buffer, size_t bytes,
                call *place);
/* Address in rank `rank`'s memory, `at` elements after the beginning of the call. */
float *arenas_at(const dlc_endpoint *endpoint, const call *place, int32_t rank,
                 size_t at);

/* calls.c: call_enter returns when ranks first .. end-1 have entered this collective,
 * and fails if theirs differs; call_leave returns when they have left it.
 * Stream-ordered calls synchronize all ranks in the queue and return at once. */
dlc_status call_enter(dlc_endpoint *endpoint, const call *call, int32_t first,
                      int32_t end);
dlc_status call_leave(dlc_endpoint *endpoint, const call *call, int32_t first,
                      int32_t end);
/* Waits for the work given to the device, and calls args->check. */
dlc_status call_sync(dlc_endpoint *endpoint);
/* Waits at the end of a collective, also when it has failed; returns the first error.
 * Does nothing for a stream-ordered call. */
dlc_status call_finish(dlc_endpoint *endpoint, const call *call, dlc_status status);
/* The queue that its work goes to; NULL: work is done when a call returns. */
dlc_queue *call_queue(const dlc_endpoint *endpoint, const call *call);
/* First element of a rank's slice. */
size_t call_slice(const dlc_endpoint *endpoint, const call *call, int32_t rank);
/* Elements to work on at a time, by schedule. */
size_t call_chunk(const dlc_endpoint *endpoint, const call *call, int tree);

/* Runs a reduction or an all-gather by the schedule that suits its size. */
dlc_status call_run(dlc_endpoint *endpoint, const call *call);

/* direct.c and tree.c: the two schedules. All block unless the call is stream-ordered.
 */
dlc_status direct_reduce(dlc_endpoint *endpoint, const call *call);
dlc_status direct_gather(dlc_endpoint *endpoint, const call *call);
dlc_status direct_broadcast(dlc_endpoint *endpoint, const call *call, int32_t root);
dlc_status tree_run(dlc_endpoint *endpoint, const call *call);
dlc_status direct_update(dlc_endpoint *endpoint, const update *update);

/* bounce_buffer.c: for memory that the CPU cannot read. Opening is collective. */
dlc_status bounce_open(dlc_endpoint *endpoint);
void bounce_close(dlc_endpoint *endpoint);
dlc_status bounce_all_reduce(dlc_endpoint *endpoint, float *buffer, size_t count);

/* semaphores.c: synchronizes the ranks' queues, phase by phase. */
enum { PHASE_ENTER, PHASE_LEAVE, PHASE_STAGE }; /* first of the tree's phases */
typedef struct span {
    int32_t phase, first, end; /* ranks first .. end-1, without this one */
} span;
/* Collective over the group, after copy queues and arenas were opened. Leaves
 * arenas->semaphores NULL, without an error, where the device has no semaphores. */
dlc_status semaphores_open(dlc_endpoint *endpoint);
void semaphores_close(dlc_endpoint *endpoint);
dlc_status semaphores_signal(const dlc_endpoint *endpoint, dlc_queue *order,
                             const span *to, uint32_t value);
/* `is_last`: no rank signals this phase again before the next barrier. */
dlc_status semaphores_wait(const dlc_endpoint *endpoint, dlc_queue *order,
                           const span *from, uint32_t value, int is_last);
/* All ranks wait for all; PHASE_ENTER and PHASE_LEAVE alternate. */
dlc_status semaphores_barrier(const dlc_endpoint *endpoint, dlc_queue *order,
                              int32_t phase);
/* Implements dlc_transport_queue_ops.poll. */
dlc_status semaphores_poll(dlc_endpoint *endpoint);

/* stream_ordered.c: the other calls of dlc_transport_queue_ops. */
dlc_status queue_all_reduce(dlc_endpoint *endpoint, dlc_queue *order, float *buffer,
                            size_t count);
dlc_status queue_reduce_scatter(dlc_endpoint *endpoint, dlc_queue *order, float *buffer,
                                size_t count);
dlc_status queue_all_gather(dlc_endpoint *endpoint, dlc_queue *order, float *buffer,
                            size_t count);
dlc_status supports_queues(dlc_endpoint *endpoint, int *may);

#endif

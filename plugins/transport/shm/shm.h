/* Shared parts of the transports between ranks of one machine (host-staged, p2p-tree):
 * memory files, message rings, waiting, progress counters, and collectives staged
 * through the files. A static library; each of those plugins links its own copy.
 *
 * Each rank creates one memory file and all ranks of the group map it. Rank r's file
 * holds, in this order:
 *
 *     head       whether r sleeps, and its progress counters
 *     ring[s]    a bounded ring of slots for every sender s (r included)
 *     window[k]  for step k (modulo the number of windows) of a collective: room for
 *                a chunk of each rank's slice, see staged.c and staged_device.c
 *
 * Memory order. Every word that a reader checks before it touches bytes written by
 * another rank has a single writer, which stores it after those bytes: a ring's
 * `written` belongs to its sender, its `read` to its receiver, a progress counter to
 * its owner. These stores and loads are sequentially consistent, for two reasons: the
 * bytes before the store are visible after the load (release, acquire), and a rank that
 * goes to sleep cannot miss the store (see wait.c).
 */
#ifndef SHM_H
#define SHM_H

#include <stdatomic.h>

#include <dlcore/transport.h>

extern const dlc_host *host;

enum {
    LINE = 64,
    STEPS = 4,        /* windows of a file: steps of a collective in flight */
    DEVICE_STEPS = 6, /* the number where the CPU cannot read the device's memory */
    /* Up to this many elements a device computes on the calling thread alone, which
     * leaves the other threads to the layers. */
    SERIAL = 16384,
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "atomics shared between processes must be lock-free");

/* ---- Shared memory --------------------------------------------------------- */

/* Progress counters of a rank. They only grow; each has a cache line of its own. */
enum {
    PROGRESS_FILLED,  /* staged collectives: steps whose window this rank has filled */
    PROGRESS_SUMMED,  /* steps in which it has reduced (or offered) a chunk of its own
                       * slice
                       */
    PROGRESS_TAKEN,   /* steps in which it has copied out the other ranks' slices */
    PROGRESS_ENTERED, /* collectives in registered memory that it has entered */
    PROGRESS_LEFT,    /* collectives in registered memory that it has left */
    PROGRESS_STAGE, /* first of the counters of chunks done by each stage of the tree */
    PROGRESS_COUNTERS = PROGRESS_STAGE + 64,
    SIGNATURE = 3, /* 64-bit words */
};

typedef struct progress_counter {
    _Alignas(LINE) _Atomic uint64_t steps;
    uint64_t signature[2][SIGNATURE]; /* which collective was called, for even and odd
                                         steps */
} progress_counter;

/* The condition that ranks first .. end-1 have reached `steps`. */
typedef struct goal {
    uint32_t counter;
    int32_t first, end;
    uint64_t steps;
} goal;

typedef struct head {
    uint64_t magic;
    uint64_t nonce; /* tells a stale or foreign file from the announced one */
    /* Futex: 1 while the owner sleeps. The fields below say what it waits for; end 0:
     * anything. */
    _Alignas(LINE) _Atomic uint32_t asleep;
    _Atomic uint32_t counter;
    _Atomic int32_t first, end;
    _Atomic uint64_t steps;
    progress_counter progress[PROGRESS_COUNTERS];
} head;

typedef struct ring {
    _Alignas(LINE) _Atomic uint64_t written; /* slots, since the start */
    _Alignas(LINE) _Atomic uint64_t read;
    _Alignas(LINE) unsigned char slots[];
} ring;

/* A slot holds one piece of a message. A message of 0 bytes takes one as well. */
typedef struct slot {
    _Alignas(LINE) dlc_tag tag;
    uint64_t bytes; /* of the whole message */
    uint64_t piece; /* bytes of it in this slot */
    _Alignas(LINE) unsigned char data[];
} slot;

/* ---- State of one rank ------------------------------------------------------ */

struct dlc_request {
    dlc_request *next; /* in its queue, or in the free list */
    dlc_request *made; /* list of all requests, for close */
    dlc_tag tag;
    size_t bytes, moved;
    const unsigned char *source; /* of a send */
    unsigned char *target;       /* of a receive */
    int owned;                   /* an unexpected message: the request owns `target` */
    int done;
    dlc_status status; /* DLC_ERR_CONFIG: the sizes differ, and */
    size_t sent;       /* this is the sender's size */
    int32_t from;
};

typedef struct queue {
    dlc_request *first, *last;
} queue;

/* Another rank, or this one. */
typedef struct peer {
    char *map;      /* its memory file */
    head *head;     /* at the beginning of the file */
    ring *out, *in; /* to it, in its file; from it, in this rank's file */
    uint64_t written, read;
    queue sends, receives; /* not done yet */
    queue unexpected;      /* arrived before their receive was posted */
    dlc_request *current;  /* being received; NULL: the next slot starts a message */
    int32_t rank;
} peer;

/* stage.c: measured cost of the two ways to copy. */
typedef struct copy_cost {
    double cost[2]; /* nanoseconds per byte; 0: not measured yet */
    int streamed;   /* 1: streaming stores are the faster way */
    unsigned copies;
} copy_cost;

/* copy_queue.c: a queue of the device with an event for each of the last steps. */
typedef struct copy_queue {
    dlc_queue *queue;               /* NULL: work is done when a call returns */
    dlc_event *event[DEVICE_STEPS]; /* NULL without a queue */
    int pending;                    /* copies were queued since the last event */
} copy_queue;

struct dlc_endpoint {
    const dlc_transport_args *args;
    peer *peers;
    int32_t rank, ranks;
    head *head;
    size_t slots, slot_bytes; /* slots of a ring, and the payload of each */
    size_t chunk_bytes;       /* of each slice, for each step of a collective */
    size_t windows;           /* of a file */
    size_t file_bytes;
    int fd;
    int host_memory;    /* the CPU can read this device's memory */
    int oversubscribed; /* more ranks than cores */
    uint64_t spin_ns;   /* how long to poll before sleeping */
    /* Where the CPU cannot read the device's memory: copies of collectives from the
     * device and to the device, and copies of messages. */
    copy_queue fetch, store, message_copies;
    int32_t pinned; /* number of files pinned, those of ranks 0, 1, ... */
    copy_cost copy_cost;
    uint64_t step;               /* of collectives, since the start */
    const float **sources;       /* scratch, one per rank */
    float **targets;             /* scratch, one per rank */
    dlc_request *made;           /* all requests */
    dlc_request *free;           /* requests to reuse */
    size_t sending, receiving;   /* requests in flight */
    int32_t turn;                /* of wait_any: the request to look at first */
    atomic_int wakeup_requested; /* wait_any returns at once */
    struct arenas *arenas;       /* of a plugin that registers memory; else NULL */
};

/* endpoint.c: plugin entry points that all these transports share. Called by the core
 * at load time. */
dlc_status endpoint_load(const dlc_host *the_host);
/* Returns 1 if all ranks run as one user on one node, else 0 with `reason` filled in.
 */
int endpoint_same_node(const dlc_transport_args *args, char *reason,
                       size_t reason_bytes);
dlc_status endpoint_open(const dlc_transport_args *args, dlc_endpoint **endpoint);
void endpoint_close(dlc_endpoint *endpoint);
/* Pins all ranks' memory files, so that the device copies from and to them at full
 * speed. Logs a warning where the device cannot. */
void endpoint_pin(dlc_endpoint *endpoint);

#define SHM_OPTIONS \
    DLC_INT( \
        "slots", "0", 0, 4096, \
        "pieces of messages in flight between two ranks; 0: by the number of ranks"), \
        DLC_BYTES("slot_bytes", "0", 0, 1 << 26, \
                  "size of such a piece; 0: by the device"), \
        DLC_BYTES( \
            "chunk_bytes", "0", 0, 1 << 26, \
            "bytes that a rank reduces at a time; 0: by device and number of ranks"), \
        DLC_INT("spin_us", "20", 0, 1000000, "microseconds to poll before sleeping")

/* files.c: creates this rank's memory file and maps all ranks' files. Collective over
 * the group. */
dlc_status files_open(dlc_endpoint *endpoint);
void files_close(dlc_endpoint *endpoint);
unsigned char *files_window(const dlc_endpoint *endpoint, int32_t rank, uint64_t step);

/* stage.c: copies to shared memory; dst is aligned to a cache line. */
void stage(copy_cost *copy_cost, void *dst, const void *src, size_t bytes);
/* Copies from shared memory that no other rank reads, aligned to a cache line. */
void drain(void *dst, void *shared, size_t bytes);
/* stage() and drain() from and to the device's memory; complete after copies_done. */
dlc_status copy_in(dlc_endpoint *endpoint, void *shared, const void *src, size_t bytes);
dlc_status copy_out(dlc_endpoint *endpoint, void *dst, void *shared, size_t bytes);
dlc_status copies_done(dlc_endpoint *endpoint);
/* Writes the pairwise sum of endpoint->sources to the first `targets` of
 * endpoint->targets and advances all these pointers by n. */
dlc_status sum_to(dlc_endpoint *endpoint, dlc_queue *queue, size_t n, int32_t targets);

/* copy_queue.c: copies stay in flight until a wait or drain. Steps count from 0; the
 * last DEVICE_STEPS of them can be waited for. */
dlc_status copy_queue_open(const dlc_endpoint *endpoint, copy_queue *copy_queue);
void copy_queue_close(const dlc_endpoint *endpoint, copy_queue *copy_queue);
dlc_status copy_queue_add(const dlc_endpoint *endpoint, copy_queue *copy_queue,
                          void *dst, const void *src, size_t bytes);
/* Marks everything queued so far as belonging to this step. */
dlc_status copy_queue_record(const dlc_endpoint *endpoint, copy_queue *copy_queue,
                             uint64_t step);
/* Blocks until a step's work is done. Depends on no peer, so args->check is not called.
 */
dlc_status copy_queue_wait(const dlc_endpoint *endpoint, const copy_queue *copy_queue,
                           uint64_t step);
/* Blocks until the queue is empty, also when `status` is a failure, so that nothing
 * accesses the caller's memory afterwards. Returns `status`, or else the error of the
 * queue. */
dlc_status copy_queue_drain(const dlc_endpoint *endpoint, const copy_queue *copy_queue,
                            dlc_status status);

/* pairwise.c: the sum in the SDK's order, computed by the CPU. dst may be one of the
 * sources. */
void pairwise_sum(size_t n, const float *const *sources, int32_t count, float *dst);

/* staged_device.c: collectives through the files for memory that the CPU cannot read.
 */
dlc_status staged_device_reduce(dlc_endpoint *endpoint, float *buffer, size_t count,
                                int gather);
dlc_status staged_device_gather(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status staged_device_broadcast(dlc_endpoint *endpoint, int32_t root, void *buffer,
                                   size_t bytes);

/* wait.c: blocks until `holds` returns non-zero, while messages make progress. `aim` is
 * the progress to be woken for; NULL: anything. */
typedef int condition(const dlc_endpoint *endpoint, const void *what);
dlc_status wait_until(dlc_endpoint *endpoint, condition *holds, const void *what,
                      const goal *aim);
/* Wakes the rank that sleeps on this head, if it does. */
void wake_rank(head *sleeper);
/* wait_any and wakeup of dlc_transport_ops; wakeup may be called on any thread. */
dlc_status wait_any(dlc_endpoint *endpoint, dlc_request *const *requests, int32_t count,
                    double seconds, int32_t *which);
void wait_wakeup(dlc_endpoint *endpoint);

/* progress.c: sets one of this rank's counters and wakes those of ranks first .. end-1
 * that wait for it. */
void progress_publish(dlc_endpoint *endpoint, uint32_t which, uint64_t steps,
                      int32_t first, int32_t end);
dlc_status progress_wait(dlc_endpoint *endpoint, uint32_t which, uint64_t steps,
                         int32_t first, int32_t end);

/* messages.c: makes progress on all sends and receives; *moved becomes 1 where any byte
 * moved. */
dlc_status messages_move(dlc_endpoint *endpoint, int *moved);
void messages_close(dlc_endpoint *endpoint);
dlc_status messages_send(dlc_endpoint *endpoint, int32_t to, dlc_tag tag,
                         const void *buffer, size_t bytes, dlc_request **request);
dlc_status messages_recv(dlc_endpoint *endpoint, int32_t from, dlc_tag tag,
                         void *buffer, size_t bytes, dlc_request **request);
dlc_status messages_test(dlc_endpoint *endpoint, dlc_request *request, int *done);
dlc_status messages_wait(dlc_endpoint *endpoint, dlc_request *request);
/* Index of the first request that is done, counted from endpoint->turn, or -1. */
int32_t messages_find(const dlc_endpoint *endpoint, dlc_request *const *requests,
                      int32_t count);
/* Releases a request that is done and returns its status. */
dlc_status messages_finish(dlc_endpoint *endpoint, dlc_request *request);

/* staged.c: collectives through the files. staged_is_small: is an all-reduce of `count`
 * elements done in one step? */
int staged_is_small(const dlc_endpoint *endpoint, size_t count);
dlc_status staged_all_reduce(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status staged_reduce_scatter(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status staged_all_gather(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status staged_broadcast(dlc_endpoint *endpoint, int32_t root, void *buffer,
                            size_t bytes);

#endif

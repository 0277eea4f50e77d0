/* What transports share that join the ranks of one machine by shared memory: memory
 * files, rings, messages, waiting, marks, and collectives staged through the files.
 * A static library; each of those plugins has its own copy.
 *
 * Each rank makes one memory file and all ranks of the group map it. In rank r's
 * file lie, in this order:
 *
 *     head       whether r sleeps, and its marks: how far it is
 *     ring[s]    a bounded ring of slots for every sender s (r itself too)
 *     window[k]  for step k (modulo their number) of a collective: room for a chunk of
 *                each rank's slice, see staged.c and far.c
 *
 * Memory order. Each word that a reader looks at before it touches bytes that
 * another rank wrote is written by one rank only, and only after those bytes:
 * a ring's `written` by its sender, its `read` by its receiver, a mark by its owner.
 * A writer stores it and a reader loads it sequentially consistent, which covers two
 * needs: the bytes before the store are seen after the load (release, acquire), and
 * a rank that goes to sleep cannot miss the store (see wait.c).
 */
#ifndef SHM_H
#define SHM_H

#include <stdatomic.h>

#include <dlcore/transport.h>

extern const dlc_host *host;

enum {
    LINE = 64,
    STEPS = 4,     /* of a collective that may be under way, */
    FAR_STEPS = 6, /* ... in memory that the processor cannot read */
    /* Elements up to which a device computes on the calling thread alone, which leaves
     * the others to the layers. */
    SERIAL = 16384,
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "words between processes must need no lock");

/* ---- Shared memory --------------------------------------------------------- */

/* How far a rank is: counts that only grow, each on a line of its own. */
enum {
    MARK_FILLED,  /* staged collectives: steps whose window it has written, */
    MARK_SUMMED,  /* ... whose chunk of its own slice is summed, or offered, */
    MARK_TAKEN,   /* ... of which it has taken the others' slices */
    MARK_ENTERED, /* collectives in attached memory that it has come to, */
    MARK_LEFT,    /* ... that it is through with */
    MARK_STAGE,   /* chunks done by each stage of the tree, from here on */
    MARKS = MARK_STAGE + 64,
    NOTE = 3, /* words */
};

typedef struct mark {
    _Alignas(LINE) _Atomic uint64_t steps;
    uint64_t note[2][NOTE]; /* told with it, for even and odd steps */
} mark;

/* That ranks first .. end-1 have come to `steps`. */
typedef struct goal {
    uint32_t mark;
    int32_t first, end;
    uint64_t steps;
} goal;

typedef struct head {
    uint64_t magic;
    uint64_t nonce; /* is it the file that its maker told of? */
    /* Futex: 1 while its rank sleeps. Then the rest says what for; end 0: anything. */
    _Alignas(LINE) _Atomic uint32_t asleep;
    _Atomic uint32_t mark;
    _Atomic int32_t first, end;
    _Atomic uint64_t steps;
    mark marks[MARKS];
} head;

typedef struct ring {
    _Alignas(LINE) _Atomic uint64_t written; /* slots, since the start */
    _Alignas(LINE) _Atomic uint64_t read;
    _Alignas(LINE) unsigned char slots[];
} ring;

/* A slot: a piece of a message. A message of 0 bytes takes one as well. */
typedef struct slot {
    _Alignas(LINE) dlc_tag tag;
    uint64_t bytes; /* of the whole message */
    uint64_t piece; /* of it in here */
    _Alignas(LINE) unsigned char data[];
} slot;

/* ---- A rank's own ---------------------------------------------------------- */

struct dlc_request {
    dlc_request *next; /* in its queue, or of the free ones */
    dlc_request *made; /* all there are, for close */
    dlc_tag tag;
    size_t bytes, moved;
    const unsigned char *source; /* of a send */
    unsigned char *target;       /* of a receive */
    int owned;                   /* not asked for yet: target is ours */
    int done;
    dlc_status status; /* DLC_ERR_CONFIG: the sizes don't agree ... */
    size_t sent;       /* ... and this is the sender's */
    int32_t from;
};

typedef struct queue {
    dlc_request *first, *last;
} queue;

/* Another rank, or this one. */
typedef struct peer {
    char *map;      /* its file */
    head *head;     /* in there */
    ring *out, *in; /* to it, in its file; from it, in mine */
    uint64_t written, read;
    queue sends, receives; /* not done yet */
    queue unexpected;      /* came before they were asked for; own their target */
    dlc_request *current;  /* whose message is coming in; NULL: a new one next */
    int32_t rank;
} peer;

/* stage.c: what it has found out about the two ways to copy. */
typedef struct pace {
    double cost[2]; /* nanoseconds a byte; 0: not known */
    int streamed;   /* the way that is faster */
    unsigned copies;
} pace;

/* lanes.c: a queue of the device, with marks in it. */
typedef struct lane {
    dlc_queue *queue;            /* NULL: its work is done when a call returns */
    dlc_event *event[FAR_STEPS]; /* NULL with it */
    int given;                   /* copies that no mark follows yet */
} lane;

struct dlc_endpoint {
    const dlc_transport_args *args;
    peer *peers;
    int32_t rank, ranks;
    head *head;
    size_t slots, slot_bytes; /* of a ring, and the payload of each */
    size_t chunk_bytes;       /* of a slice of a collective, for each step */
    size_t windows;           /* of a file */
    size_t file_bytes;
    int fd;
    int host_memory;  /* this device's memory can be read here */
    int crowded;      /* more ranks than cores */
    uint64_t spin_ns; /* how long to look before sleeping */
    /* Where not: copies of collectives from the device, and to it; of messages. */
    lane fetch, store, pass;
    int32_t pinned; /* files, of ranks 0, 1, ... */
    pace pace;
    uint64_t step;             /* of collectives, since the start */
    const float **sources;     /* room for one a rank */
    float **targets;           /* likewise */
    dlc_request *made;         /* all requests */
    dlc_request *free;         /* those to use again */
    size_t sending, receiving; /* requests under way */
    int32_t turn;              /* of several that are waited for, who comes first */
    atomic_int nudged;         /* whoever waits for any of several is to return */
    struct arenas *arenas;     /* of a plugin that attaches memory; else NULL */
};

/* endpoint.c: what plugins' tables have in common. */
dlc_status endpoint_load(const dlc_host *the_host);
/* 1: all ranks are one user's on one node; 0: no, and `reason` says why. */
int endpoint_reaches(const dlc_transport_args *args, char *reason, size_t reason_bytes);
dlc_status endpoint_open(const dlc_transport_args *args, dlc_endpoint **endpoint);
void endpoint_close(dlc_endpoint *endpoint);
/* Makes all files as fast to copy from and to as the device can, for those who copy
 * much there. Where it can't that is no error. */
void endpoint_pin(dlc_endpoint *endpoint);

#define SHM_OPTIONS \
    DLC_INT("slots", "0", 0, 4096, \
            "pieces of messages in flight between two ranks; 0: by their number"), \
        DLC_BYTES("slot_bytes", "0", 0, 1 << 26, \
                  "size of such a piece; 0: by the device"), \
        DLC_BYTES("chunk_bytes", "0", 0, 1 << 26, \
                  "what a rank sums at a time; 0: by the device and the ranks"), \
        DLC_INT("spin_us", "20", 0, 1000000, \
                "microseconds to look for news before sleeping")

/* files.c: makes this rank's file, and maps everybody's. */
dlc_status files_open(dlc_endpoint *endpoint);
void files_close(dlc_endpoint *endpoint);
unsigned char *files_window(const dlc_endpoint *endpoint, int32_t rank, uint64_t step);

/* stage.c: copies to shared memory; dst is at a multiple of a line. */
void stage(pace *pace, void *dst, const void *src, size_t bytes);
/* Copies from shared memory that no other rank reads, at a multiple of a line. */
void drain(void *dst, void *shared, size_t bytes);
/* Both, of and to the device's memory, which may take until copies_done. */
dlc_status copy_in(dlc_endpoint *endpoint, void *shared, const void *src, size_t bytes);
dlc_status copy_out(dlc_endpoint *endpoint, void *dst, void *shared, size_t bytes);
dlc_status copies_done(dlc_endpoint *endpoint);
/* The sum of all of endpoint->sources to the first endpoint->targets; moves them on. */
dlc_status sum_to(dlc_endpoint *endpoint, dlc_queue *queue, size_t n, int32_t targets);

/* lanes.c: all work may be in the device's hands until it is settled. Turns count from
 * 0; the last FAR_STEPS of them are kept apart. */
dlc_status lane_open(const dlc_endpoint *endpoint, lane *lane);
void lane_close(const dlc_endpoint *endpoint, lane *lane);
dlc_status lane_copy(const dlc_endpoint *endpoint, lane *lane, void *dst,
                     const void *src, size_t bytes);
/* All that was given so far is of this turn. */
dlc_status lane_mark(const dlc_endpoint *endpoint, lane *lane, uint64_t turn);
/* Until a turn is done. That takes no peer: whether the job goes on is not asked. */
dlc_status lane_await(const dlc_endpoint *endpoint, const lane *lane, uint64_t turn);
/* Until all is done, also where something has failed: then nothing may go on to read
 * or write the caller's memory. */
dlc_status lane_settle(const dlc_endpoint *endpoint, const lane *lane,
                       dlc_status status);

/* pairwise.c: the sum in the SDK's order, by the processor. dst may be a source. */
void pairwise_sum(size_t n, const float *const *sources, int32_t count, float *dst);

/* far.c: collectives through the files in memory that the processor cannot read. */
dlc_status far_reduce(dlc_endpoint *endpoint, float *buffer, size_t count, int gather);
dlc_status far_gather(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status far_broadcast(dlc_endpoint *endpoint, int32_t root, void *buffer,
                         size_t bytes);

/* wait.c: until a condition holds; messages move on meanwhile. `aim` is what to be
 * woken for, NULL: anything. */
typedef int condition(const dlc_endpoint *endpoint, const void *what);
dlc_status wait_until(dlc_endpoint *endpoint, condition *holds, const void *what,
                      const goal *aim);
/* A rank, whatever it waits for. */
void wake(head *sleeper);
/* As the operations of these names; any thread may nudge. */
dlc_status wait_any(dlc_endpoint *endpoint, dlc_request *const *requests, int32_t count,
                    double seconds, int32_t *which);
void nudge(dlc_endpoint *endpoint);

/* marks.c: sets a mark of this rank, for ranks first .. end-1 to see. */
void marks_tell(dlc_endpoint *endpoint, uint32_t which, uint64_t steps, int32_t first,
                int32_t end);
dlc_status marks_await(dlc_endpoint *endpoint, uint32_t which, uint64_t steps,
                       int32_t first, int32_t end);
int marks_reached(const dlc_endpoint *endpoint, const goal *aim);

/* messages.c */
dlc_status messages_move(dlc_endpoint *endpoint, int *moved);
void messages_close(dlc_endpoint *endpoint);
dlc_status messages_send(dlc_endpoint *endpoint, int32_t to, dlc_tag tag,
                         const void *buffer, size_t bytes, dlc_request **request);
dlc_status messages_recv(dlc_endpoint *endpoint, int32_t from, dlc_tag tag,
                         void *buffer, size_t bytes, dlc_request **request);
dlc_status messages_test(dlc_endpoint *endpoint, dlc_request *request, int *done);
dlc_status messages_wait(dlc_endpoint *endpoint, dlc_request *request);
/* The first of several that is done, counted from endpoint->turn, or -1. */
int32_t messages_find(const dlc_endpoint *endpoint, dlc_request *const *requests,
                      int32_t count);
/* Releases one that is done. */
dlc_status messages_finish(dlc_endpoint *endpoint, dlc_request *request);

/* staged.c: collectives through the files. Is an all-reduce done in one step? */
int staged_is_small(const dlc_endpoint *endpoint, size_t count);
dlc_status staged_all_reduce(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status staged_reduce_scatter(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status staged_all_gather(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status staged_broadcast(dlc_endpoint *endpoint, int32_t root, void *buffer,
                            size_t bytes);

#endif

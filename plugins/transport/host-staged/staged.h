/* What the files of the host-staged transport share.
 *
 * Each rank makes one memory file and all ranks of the group map it. In rank r's
 * file lie, in this order:
 *
 *     head       whether r sleeps, and how far it is in the collectives
 *     ring[s]    a bounded ring of slots for every sender s (r itself too)
 *     in[k]      what r gives to step k (modulo STEPS) of a collective: a chunk
 *                for each rank
 *     out[k]     the chunk that r has summed in step k
 *
 * Memory order. Each word that a reader looks at before it touches bytes that
 * another rank wrote is written by one rank only, and only after those bytes:
 * a ring's `written` by its sender, its `read` by its receiver, `filled`, `summed`
 * and `taken` by their owner. A writer stores it and a reader loads it
 * sequentially consistent, which covers two needs: the bytes before the store are
 * seen after the load (release, acquire), and a rank that goes to sleep cannot miss
 * the store (see wait.c).
 */
#ifndef STAGED_H
#define STAGED_H

#include <stdatomic.h>

#include <dlcore/transport.h>

extern const dlc_host *host;

enum {
    LINE = 64,
    STEPS = 8, /* of a collective that may be under way */
};

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
               "words between processes must need no lock");

/* ---- Shared memory --------------------------------------------------------- */

typedef struct head {
    uint64_t magic;
    uint64_t nonce;                         /* is it the file that its maker told of? */
    _Alignas(LINE) _Atomic uint32_t asleep; /* futex: 1 while its rank sleeps */
    /* Steps of collectives that this rank is through with. */
    _Alignas(LINE) _Atomic uint64_t filled; /* its in[] is written */
    _Alignas(LINE) _Atomic uint64_t summed; /* it has read others' in[], out[] is
                                               written */
    _Alignas(LINE) _Atomic uint64_t taken;  /* it has read others' out[] */
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

struct dlc_endpoint {
    const dlc_transport_args *args;
    peer *peers;
    int32_t rank, ranks;
    head *head;
    size_t slots, slot_bytes; /* of a ring, and the payload of each */
    size_t chunk_bytes;       /* of a slice of a collective, for each step */
    size_t file_bytes;
    int fd;
    int host_memory;  /* this device's memory can be read here */
    uint64_t spin_ns; /* how long to look before sleeping */
    pace pace;
    uint64_t step;             /* of collectives, since the start */
    const float **sources;     /* room for one a rank */
    dlc_request *made;         /* all requests */
    dlc_request *free;         /* those to use again */
    size_t sending, receiving; /* requests under way */
};

/* files.c: makes this rank's file, and maps everybody's. */
dlc_status files_open(dlc_endpoint *endpoint);
void files_close(dlc_endpoint *endpoint);
unsigned char *files_in(const dlc_endpoint *endpoint, int32_t rank, uint64_t step);
unsigned char *files_out(const dlc_endpoint *endpoint, int32_t rank, uint64_t step);

/* stage.c: copies to shared memory; dst is at a multiple of a line. */
void stage(pace *pace, void *dst, const void *src, size_t bytes);

/* wait.c: until a condition holds; messages move on meanwhile. */
typedef int condition(const dlc_endpoint *endpoint, const void *what);
dlc_status wait_until(dlc_endpoint *endpoint, condition *holds, const void *what);
void wake(head *sleeper);

/* messages.c */
dlc_status messages_move(dlc_endpoint *endpoint, int *moved);
void messages_close(dlc_endpoint *endpoint);
dlc_status messages_send(dlc_endpoint *endpoint, int32_t to, dlc_tag tag,
                         const void *buffer, size_t bytes, dlc_request **request);
dlc_status messages_recv(dlc_endpoint *endpoint, int32_t from, dlc_tag tag,
                         void *buffer, size_t bytes, dlc_request **request);
dlc_status messages_test(dlc_endpoint *endpoint, dlc_request *request, int *done);
dlc_status messages_wait(dlc_endpoint *endpoint, dlc_request *request);

/* collectives.c */
dlc_status collective_all_reduce(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status collective_reduce_scatter(dlc_endpoint *endpoint, float *buffer,
                                     size_t count);
dlc_status collective_all_gather(dlc_endpoint *endpoint, float *buffer, size_t count);

#endif

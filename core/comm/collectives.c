/* Collectives built from messages, for transports that have nothing else.
 *
 * A sum is a direct reduce-scatter: every rank sends slice j to rank j, and rank j
 * sums what it got with the device's `sum`, which fixes the order, in pieces that
 * bound the memory needed. While one piece is summed the next is on its way. An
 * all-reduce is that and an all-gather.
 *
 * All ranks make the same calls in the same order, and messages of one tag between
 * two ranks keep theirs, so one tag a kind of message is enough.
 */
#include "comm/internal.h"

#include "base/memory.h"
#include "base/status.h"

/* Elements of a piece: as many as the device sums without help of other threads. */
enum { PIECE = 16384 };
/* Bytes that a broadcast hands on at a time, so that its tree works all at once. */
enum { HAND_ON = 1 << 20 };

enum { TAG_REDUCE = 1, TAG_GATHER, TAG_BROADCAST, TAG_BARRIER };
#define TAG(kind) (UINT64_C(0xdc00000000000000) | (kind))

static dlc_status make_scratch(dlc_comm *comm) {
    const dlc_transport_args *args = &comm->args;
    size_t ranks = (size_t)args->ranks;

    if (comm->scratch.base)
        return DLC_OK;
    comm->piece = dlc_alloc(2 * ranks, sizeof *comm->piece);
    comm->sources = dlc_alloc(ranks, sizeof *comm->sources);
    if (!comm->piece || !comm->sources)
        return DLC_ERR_NOMEM;
    comm->scratch = (dlc_memory){.size = sizeof comm->scratch};
    DLC_TRY(args->device_ops->alloc(args->device, 2 * ranks * PIECE * sizeof(float), 0,
                                    &comm->scratch));
    for (size_t i = 0; i < 2 * ranks; i++)
        comm->piece[i] = (float *)comm->scratch.base + i * PIECE;
    return DLC_OK;
}

static dlc_status make_requests(dlc_comm *comm) {
    if (!comm->requests)
        comm->requests = dlc_alloc(4 * (size_t)comm->args.ranks, sizeof(dlc_request *));
    return comm->requests ? DLC_OK : DLC_ERR_NOMEM;
}

void dlc_messages_free(dlc_comm *comm) {
    if (comm->scratch.base)
        comm->args.device_ops->free(comm->args.device, &comm->scratch);
    dlc_free(comm->requests);
    dlc_free(comm->sources);
    dlc_free(comm->piece);
}

/* ---- Sets of requests ------------------------------------------------------ */

static dlc_request **next_request(dlc_comm *comm, int set) {
    return &comm->requests[2 * (size_t)comm->args.ranks * (size_t)set +
                           comm->pending[set]++];
}

static dlc_status send(dlc_comm *comm, int set, int32_t peer, dlc_tag tag,
                       const void *buffer, size_t bytes) {
    return comm->ops->send(comm->endpoint, peer, tag, buffer, bytes,
                           next_request(comm, set));
}

static dlc_status recv(dlc_comm *comm, int set, int32_t peer, dlc_tag tag, void *buffer,
                       size_t bytes) {
    return comm->ops->recv(comm->endpoint, peer, tag, buffer, bytes,
                           next_request(comm, set));
}

/* After an error the requests that are left belong to the endpoint, which is only
 * closed then. */
static dlc_status wait_all(dlc_comm *comm, int set) {
    size_t count = comm->pending[set];
    dlc_request **first = comm->requests + 2 * (size_t)comm->args.ranks * (size_t)set;

    comm->pending[set] = 0;
    for (size_t i = 0; i < count; i++)
        DLC_TRY(comm->ops->wait(comm->endpoint, first[i]));
    return DLC_OK;
}

/* The i-th of the others, each rank beginning with the one behind it. */
static int32_t other(const dlc_comm *comm, int32_t i) {
    return (comm->args.rank + i) % comm->args.ranks;
}

/* ---- Sums ------------------------------------------------------------------ */

static float *piece_from(const dlc_comm *comm, int set, int32_t rank) {
    return comm->piece[(size_t)set * (size_t)comm->args.ranks + (size_t)rank];
}

/* dst = the sum of what the others sent in this set and of what lies at `mine`. */
static dlc_status sum_set(dlc_comm *comm, int set, size_t n, float *mine) {
    const dlc_transport_args *args = &comm->args;

    if (n == 0)
        return DLC_OK;
    for (int32_t r = 0; r < args->ranks; r++)
        comm->sources[r] = r == args->rank ? mine : piece_from(comm, set, r);
    return args->device_ops->sum(args->device, NULL, n, comm->sources, args->ranks,
                                 mine);
}

dlc_status dlc_messages_all_reduce_small(dlc_comm *comm, float *buffer, size_t count) {
    size_t bytes = count * sizeof(float);

    DLC_TRY(make_scratch(comm));
    DLC_TRY(make_requests(comm));
    for (int32_t i = 1; i < comm->args.ranks; i++) {
        int32_t r = other(comm, i);
        DLC_TRY(recv(comm, 0, r, TAG(TAG_REDUCE), piece_from(comm, 0, r), bytes));
    }
    for (int32_t i = 1; i < comm->args.ranks; i++)
        DLC_TRY(send(comm, 0, other(comm, i), TAG(TAG_REDUCE), buffer, bytes));
    DLC_TRY(wait_all(comm, 0));
    return sum_set(comm, 0, count, buffer);
}

/* Piece k of rank r's slice: where it begins, and its length (maybe 0). */
static size_t slice_piece(const dlc_comm *comm, size_t count, int32_t r, size_t k,
                          size_t *n) {
    size_t begin = dlc_comm_slice(count, r, comm->args.ranks) + k * PIECE;
    size_t end = dlc_comm_slice(count, r + 1, comm->args.ranks);
    size_t left = begin < end ? end - begin : 0;
    *n = left < PIECE ? left : PIECE;
    return begin;
}

static dlc_status start_piece(dlc_comm *comm, const float *buffer, size_t count,
                              size_t k) {
    int set = (int)(k % 2);
    size_t mine = 0, theirs = 0;

    (void)slice_piece(comm, count, comm->args.rank, k, &mine);
    for (int32_t i = 1; mine > 0 && i < comm->args.ranks; i++) {
        int32_t r = other(comm, i);
        DLC_TRY(recv(comm, set, r, TAG(TAG_REDUCE), piece_from(comm, set, r),
                     mine * sizeof(float)));
    }
    for (int32_t i = 1; i < comm->args.ranks; i++) {
        int32_t r = other(comm, i);
        size_t at = slice_piece(comm, count, r, k, &theirs);
        if (theirs > 0)
            DLC_TRY(send(comm, set, r, TAG(TAG_REDUCE), buffer + at,
                         theirs * sizeof(float)));
    }
    return DLC_OK;
}

dlc_status dlc_messages_reduce_scatter(dlc_comm *comm, float *buffer, size_t count) {
    size_t ranks = (size_t)comm->args.ranks;
    size_t slice = count / ranks + (count % ranks > 0);
    size_t pieces = (slice + PIECE - 1) / PIECE;

    DLC_TRY(make_scratch(comm));
    DLC_TRY(make_requests(comm));
    DLC_TRY(start_piece(comm, buffer, count, 0));
    for (size_t k = 0; k < pieces; k++) {
        size_t n = 0;
        size_t at = slice_piece(comm, count, comm->args.rank, k, &n);
        if (k + 1 < pieces)
            DLC_TRY(start_piece(comm, buffer, count, k + 1));
        DLC_TRY(wait_all(comm, (int)(k % 2)));
        DLC_TRY(sum_set(comm, (int)(k % 2), n, buffer + at));
    }
    return DLC_OK;
}

/* ---- The others ------------------------------------------------------------ */

dlc_status dlc_messages_all_gather(dlc_comm *comm, float *buffer, size_t count) {
    int32_t ranks = comm->args.ranks, me = comm->args.rank;
    size_t mine = dlc_comm_slice(count, me, ranks);
    size_t bytes = (dlc_comm_slice(count, me + 1, ranks) - mine) * sizeof(float);

    DLC_TRY(make_requests(comm));
    for (int32_t i = 1; i < ranks; i++) {
        int32_t r = other(comm, i);
        size_t at = dlc_comm_slice(count, r, ranks);
        size_t n = dlc_comm_slice(count, r + 1, ranks) - at;
        if (n > 0)
            DLC_TRY(recv(comm, 0, r, TAG(TAG_GATHER), buffer + at, n * sizeof(float)));
    }
    for (int32_t i = 1; bytes > 0 && i < ranks; i++)
        DLC_TRY(send(comm, 0, other(comm, i), TAG(TAG_GATHER), buffer + mine, bytes));
    return wait_all(comm, 0);
}

/* One part of a broadcast, down a binomial tree: counted from the root, rank v has
 * it from v without its lowest bit, and hands it to v plus every lower bit. */
static dlc_status hand_on(dlc_comm *comm, int32_t root, unsigned char *part,
                          size_t bytes) {
    int32_t ranks = comm->args.ranks;
    int32_t v = (comm->args.rank - root + ranks) % ranks, bit = 1;

    while (bit < ranks && !(v & bit))
        bit *= 2;
    if (v > 0) {
        int32_t from = (v - bit + root) % ranks;
        DLC_TRY(recv(comm, 0, from, TAG(TAG_BROADCAST), part, bytes));
        DLC_TRY(wait_all(comm, 0));
    }
    for (bit /= 2; bit > 0; bit /= 2)
        if (v + bit < ranks)
            DLC_TRY(send(comm, 0, (v + bit + root) % ranks, TAG(TAG_BROADCAST), part,
                         bytes));
    return wait_all(comm, 0);
}

dlc_status dlc_messages_broadcast(dlc_comm *comm, int32_t root, void *buffer,
                                  size_t bytes) {
    unsigned char *at = buffer;

    DLC_TRY(make_requests(comm));
    while (bytes > 0) {
        size_t part = bytes < HAND_ON ? bytes : HAND_ON;
        DLC_TRY(hand_on(comm, root, at, part));
        at += part;
        bytes -= part;
    }
    return DLC_OK;
}

/* Dissemination: after round i everybody knows of 2^(i+1) ranks. */
dlc_status dlc_messages_barrier(dlc_comm *comm) {
    int32_t ranks = comm->args.ranks, me = comm->args.rank;

    DLC_TRY(make_requests(comm));
    for (int32_t far = 1; far < ranks; far *= 2) {
        int32_t to = (me + far) % ranks, from = (me - far + ranks) % ranks;
        DLC_TRY(recv(comm, 0, from, TAG(TAG_BARRIER), NULL, 0));
        DLC_TRY(send(comm, 0, to, TAG(TAG_BARRIER), NULL, 0));
        DLC_TRY(wait_all(comm, 0));
    }
    return DLC_OK;
}

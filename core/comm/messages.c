/* Collectives built from messages, for transports that have nothing else.
 *
 * A sum is a direct reduce-scatter: every rank sends slice j to rank j, and rank j
 * sums what it got with the device's `sum`, which fixes the order, in pieces that
 * bound the memory needed. While one piece is summed the next is on its way. An
 * all-reduce is that and an all-gather, or, of what is small, all summed by all.
 *
 * All ranks make the same calls in the same order, and messages of one tag between
 * two ranks keep theirs, so one tag a kind of message is enough.
 */
#include "comm/team.h"

#include "base/memory.h"
#include "base/status.h"

/* Elements of a piece. Two are under way at a time: where the processor has other work,
 * a network would stand still while a small one waits for its turn. So they are as
 * large as may be, in memory for all ranks' pieces that isn't more than ROOM. */
enum { LEAST_PIECE = 16384, MOST_PIECE = 256 << 10, ROOM = 8 << 20 };
/* Buffers up to this many elements are summed in one round, by every rank. */
enum { SMALL = 2048 };
/* Bytes that a broadcast hands on at a time, so that its tree works all at once. */
enum { HAND_ON = 1 << 20 };

enum { TAG_REDUCE = 1, TAG_GATHER, TAG_BROADCAST, TAG_BARRIER, TAG_SMALL };
#define TAG(kind) (UINT64_C(0xdc00000000000000) | (kind))

static size_t piece_of(const dlc_team *team) {
    size_t share = ROOM / (2 * (size_t)team->args.ranks);
    return share < LEAST_PIECE ? LEAST_PIECE : share < MOST_PIECE ? share : MOST_PIECE;
}

static dlc_status make_scratch(dlc_team *team) {
    const dlc_transport_args *args = &team->args;
    size_t ranks = (size_t)args->ranks, piece = piece_of(team);

    if (team->scratch.base)
        return DLC_OK;
    team->piece = dlc_alloc(2 * ranks, sizeof *team->piece);
    team->sources = dlc_alloc(ranks, sizeof *team->sources);
    team->node_sum = dlc_alloc(ranks, sizeof *team->node_sum);
    if (!team->piece || !team->sources || !team->node_sum)
        return DLC_ERR_NOMEM;
    team->scratch = (dlc_memory){.size = sizeof team->scratch};
    DLC_TRY(args->device_ops->alloc(args->device, 2 * ranks * piece * sizeof(float), 0,
                                    &team->scratch));
    for (size_t i = 0; i < 2 * ranks; i++)
        team->piece[i] = (float *)team->scratch.base + i * piece;
    return DLC_OK;
}

static dlc_status make_requests(dlc_team *team) {
    if (!team->requests)
        team->requests = dlc_alloc(4 * (size_t)team->args.ranks, sizeof(dlc_request *));
    return team->requests ? DLC_OK : DLC_ERR_NOMEM;
}

void dlc_messages_free(dlc_team *team) {
    if (team->scratch.base)
        team->args.device_ops->free(team->args.device, &team->scratch);
    dlc_free(team->requests);
    dlc_free(team->node_sum);
    dlc_free(team->sources);
    dlc_free(team->piece);
}

/* ---- Sets of requests ------------------------------------------------------ */

static dlc_request **next_request(dlc_team *team, int set) {
    return &team->requests[2 * (size_t)team->args.ranks * (size_t)set +
                           team->pending[set]++];
}

static dlc_status send(dlc_team *team, int set, int32_t peer, dlc_tag tag,
                       const void *buffer, size_t bytes) {
    return team->ops->send(team->endpoint, peer, tag, buffer, bytes,
                           next_request(team, set));
}

static dlc_status recv(dlc_team *team, int set, int32_t peer, dlc_tag tag, void *buffer,
                       size_t bytes) {
    return team->ops->recv(team->endpoint, peer, tag, buffer, bytes,
                           next_request(team, set));
}

/* After an error the requests that are left belong to the endpoint, which is only
 * closed then. */
static dlc_status wait_all(dlc_team *team, int set) {
    size_t count = team->pending[set];
    dlc_request **first = team->requests + 2 * (size_t)team->args.ranks * (size_t)set;

    team->pending[set] = 0;
    for (size_t i = 0; i < count; i++)
        DLC_TRY(team->ops->wait(team->endpoint, first[i]));
    return DLC_OK;
}

/* The i-th of the others, each rank beginning with the one behind it. */
static int32_t other(const dlc_team *team, int32_t i) {
    return (team->args.rank + i) % team->args.ranks;
}

/* ---- Sums ------------------------------------------------------------------ */

static float *piece_from(const dlc_team *team, int set, int32_t rank) {
    return team->piece[(size_t)set * (size_t)team->args.ranks + (size_t)rank];
}

/* Rank r's summand in this set; mine lies at `mine`. */
static float *summand(const dlc_team *team, int set, int32_t r, float *mine) {
    return r == team->args.rank ? mine : piece_from(team, set, r);
}

/* The sum over the ranks of a node, into the place of one of them: mine, if I am
 * there. */
static dlc_status sum_node(dlc_team *team, int set, size_t n, int32_t node, float *mine,
                           float **sum) {
    const dlc_transport_args *args = &team->args;
    const int32_t *member = team->nodes.member + team->nodes.first[node];
    int32_t ranks = dlc_nodes_size(&team->nodes, node);
    int here = team->nodes.node[args->rank] == node;

    *sum = here ? mine : summand(team, set, member[0], mine);
    if (ranks == 1)
        return DLC_OK;
    for (int32_t i = 0; i < ranks; i++)
        team->sources[i] = summand(team, set, member[i], mine);
    return args->device_ops->sum(args->device, NULL, n, team->sources, ranks, *sum);
}

/* mine = the sum of what the others sent in this set and of what lies there: over the
 * ranks of each node, then over the nodes. */
static dlc_status sum_set(dlc_team *team, int set, size_t n, float *mine) {
    const dlc_transport_args *args = &team->args;
    int32_t nodes = team->nodes.nodes;
    float *sum = NULL;

    for (int32_t i = 0; n > 0 && i < nodes; i++) {
        DLC_TRY(sum_node(team, set, n, i, mine, &sum));
        team->node_sum[i] = sum;
    }
    if (n == 0 || nodes == 1)
        return DLC_OK;
    return args->device_ops->sum(args->device, NULL, n, team->node_sum, nodes, mine);
}

/* Two machines send no more bytes then, and it is the second round that takes long
 * there: a thread is to be woken for it. In memory it is the bytes that are summed. */
int dlc_messages_sum_at_once(const dlc_team *team, size_t count) {
    int two_machines = team->nodes.ranks == 2 && team->nodes.nodes == 2;
    return count <= (two_machines ? piece_of(team) : SMALL);
}

dlc_status dlc_messages_all_reduce_at_once(dlc_team *team, float *buffer,
                                           size_t count) {
    size_t bytes = count * sizeof(float);

    DLC_TRY(make_scratch(team));
    DLC_TRY(make_requests(team));
    for (int32_t i = 1; i < team->args.ranks; i++) {
        int32_t r = other(team, i);
        DLC_TRY(recv(team, 0, r, TAG(TAG_SMALL), piece_from(team, 0, r), bytes));
    }
    for (int32_t i = 1; i < team->args.ranks; i++)
        DLC_TRY(send(team, 0, other(team, i), TAG(TAG_SMALL), buffer, bytes));
    DLC_TRY(wait_all(team, 0));
    return sum_set(team, 0, count, buffer);
}

/* Piece k of rank r's slice: where it begins, and its length (maybe 0). */
static size_t slice_piece(const dlc_team *team, size_t count, int32_t r, size_t k,
                          size_t *n) {
    size_t piece = piece_of(team);
    size_t begin = dlc_slice(count, r, team->args.ranks) + k * piece;
    size_t end = dlc_slice(count, r + 1, team->args.ranks);
    size_t left = begin < end ? end - begin : 0;
    *n = left < piece ? left : piece;
    return begin;
}

/* The first piece is sent where it is empty, too: so ranks that don't agree on `count`
 * don't agree on the size of some message, and are told. */
static dlc_status start_piece(dlc_team *team, const float *buffer, size_t count,
                              size_t k) {
    int set = (int)(k % 2);
    size_t mine = 0, theirs = 0;

    (void)slice_piece(team, count, team->args.rank, k, &mine);
    for (int32_t i = 1; (mine > 0 || k == 0) && i < team->args.ranks; i++) {
        int32_t r = other(team, i);
        DLC_TRY(recv(team, set, r, TAG(TAG_REDUCE), piece_from(team, set, r),
                     mine * sizeof(float)));
    }
    for (int32_t i = 1; i < team->args.ranks; i++) {
        int32_t r = other(team, i);
        size_t at = slice_piece(team, count, r, k, &theirs);
        if (theirs > 0 || k == 0)
            DLC_TRY(send(team, set, r, TAG(TAG_REDUCE), buffer + at,
                         theirs * sizeof(float)));
    }
    return DLC_OK;
}

dlc_status dlc_messages_reduce_scatter(dlc_team *team, float *buffer, size_t count) {
    size_t ranks = (size_t)team->args.ranks;
    size_t slice = count / ranks + (count % ranks > 0);
    size_t pieces = (slice + piece_of(team) - 1) / piece_of(team);

    DLC_TRY(make_scratch(team));
    DLC_TRY(make_requests(team));
    DLC_TRY(start_piece(team, buffer, count, 0));
    for (size_t k = 0; k < pieces; k++) {
        size_t n = 0;
        size_t at = slice_piece(team, count, team->args.rank, k, &n);
        if (k + 1 < pieces)
            DLC_TRY(start_piece(team, buffer, count, k + 1));
        DLC_TRY(wait_all(team, (int)(k % 2)));
        DLC_TRY(sum_set(team, (int)(k % 2), n, buffer + at));
    }
    return DLC_OK;
}

/* ---- The others ------------------------------------------------------------ */

dlc_status dlc_messages_all_gather(dlc_team *team, float *buffer, size_t count) {
    int32_t ranks = team->args.ranks, me = team->args.rank;
    size_t mine = dlc_slice(count, me, ranks);
    size_t bytes = (dlc_slice(count, me + 1, ranks) - mine) * sizeof(float);

    DLC_TRY(make_requests(team));
    for (int32_t i = 1; i < ranks; i++) {
        int32_t r = other(team, i);
        size_t at = dlc_slice(count, r, ranks);
        size_t n = dlc_slice(count, r + 1, ranks) - at;
        DLC_TRY(recv(team, 0, r, TAG(TAG_GATHER), buffer + at, n * sizeof(float)));
    }
    for (int32_t i = 1; i < ranks; i++) /* empty ones, too: as in start_piece */
        DLC_TRY(send(team, 0, other(team, i), TAG(TAG_GATHER), buffer + mine, bytes));
    return wait_all(team, 0);
}

/* One part of a broadcast, down a binomial tree: counted from the root, rank v has
 * it from v without its lowest bit, and hands it to v plus every lower bit. */
static dlc_status hand_on(dlc_team *team, int32_t root, unsigned char *part,
                          size_t bytes) {
    int32_t ranks = team->args.ranks;
    int32_t v = (team->args.rank - root + ranks) % ranks, bit = 1;

    while (bit < ranks && !(v & bit))
        bit *= 2;
    if (v > 0) {
        int32_t from = (v - bit + root) % ranks;
        DLC_TRY(recv(team, 0, from, TAG(TAG_BROADCAST), part, bytes));
        DLC_TRY(wait_all(team, 0));
    }
    for (bit /= 2; bit > 0; bit /= 2)
        if (v + bit < ranks)
            DLC_TRY(send(team, 0, (v + bit + root) % ranks, TAG(TAG_BROADCAST), part,
                         bytes));
    return wait_all(team, 0);
}

dlc_status dlc_messages_broadcast(dlc_team *team, int32_t root, void *buffer,
                                  size_t bytes) {
    unsigned char *at = buffer;

    DLC_TRY(make_requests(team));
    while (bytes > 0) {
        size_t part = bytes < HAND_ON ? bytes : HAND_ON;
        DLC_TRY(hand_on(team, root, at, part));
        at += part;
        bytes -= part;
    }
    return DLC_OK;
}

/* Dissemination: after round i everybody knows of 2^(i+1) ranks. */
dlc_status dlc_messages_barrier(dlc_team *team) {
    int32_t ranks = team->args.ranks, me = team->args.rank;

    DLC_TRY(make_requests(team));
    for (int32_t far = 1; far < ranks; far *= 2) {
        int32_t to = (me + far) % ranks, from = (me - far + ranks) % ranks;
        DLC_TRY(recv(team, 0, from, TAG(TAG_BARRIER), NULL, 0));
        DLC_TRY(send(team, 0, to, TAG(TAG_BARRIER), NULL, 0));
        DLC_TRY(wait_all(team, 0));
    }
    return DLC_OK;
}

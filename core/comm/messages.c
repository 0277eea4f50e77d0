/* Collectives built from send and recv, for transports without collectives of their
 * own. Called by team.c.
 *
 * The reduce-scatter is direct: every rank sends slice j to rank j, which sums what it
 * received with the device's `sum`; that fixes the order. Slices are processed in
 * chunks, which bounds the memory; while one chunk is added the next is in flight. An
 * all-reduce is a reduce-scatter and an all-gather; between several machines each chunk
 * is sent to all ranks as soon as it is added. For small buffers it is one round in
 * which every rank reduces everything.
 *
 * All ranks make the same calls in the same order, and messages with one tag between
 * two ranks arrive in order, so one tag per kind of message is enough.
 */
#include "comm/team.h"

#include "base/memory.h"
#include "base/slice.h"
#include "base/status.h"
#include "comm/tags.h"
#include "plugin/answers.h"
#include "plugin/device_objects.h"

/* Elements of a chunk. Two are in flight at a time. On a busy CPU the network would be
 * idle while a small chunk waits for a thread to run, so chunks are as large as the
 * scratch memory of all ranks' chunks allows. */
enum { MIN_CHUNK = 16384, MAX_CHUNK = 256 << 10, SCRATCH = 8 << 20 };
/* Buffers of up to this many elements are reduced in one round. */
enum { SMALL = 2048 };
/* Bytes that a broadcast forwards at a time, so that all levels of its tree are busy.
 */
enum { FORWARD_BYTES = 1 << 20 };

enum { TAG_REDUCE = 1, TAG_GATHER, TAG_BROADCAST, TAG_BARRIER, TAG_SMALL };
#define TAG(kind) dlc_tag_of(DLC_TAG_COLLECTIVE, kind)

static size_t chunk_of(const dlc_team *team) {
    size_t share = SCRATCH / (2 * (size_t)team->args.ranks);
    return share < MIN_CHUNK ? MIN_CHUNK : share < MAX_CHUNK ? share : MAX_CHUNK;
}

static dlc_status make_scratch(dlc_team *team) {
    const dlc_transport_args *args = &team->args;
    size_t ranks = (size_t)args->ranks, chunk = chunk_of(team);

    if (team->scratch.base)
        return DLC_OK;
    team->chunk = dlc_alloc(2 * ranks, sizeof *team->chunk);
    team->sources = dlc_alloc(ranks, sizeof *team->sources);
    team->node_sum = dlc_alloc(ranks, sizeof *team->node_sum);
    if (!team->chunk || !team->sources || !team->node_sum)
        return DLC_ERR_NOMEM;
    DLC_TRY(dlc_device_alloc(args->device_ops, args->device,
                             2 * ranks * chunk * sizeof(float), 0, &team->scratch));
    for (size_t i = 0; i < 2 * ranks; i++)
        team->chunk[i] = (float *)team->scratch.base + i * chunk;
    return DLC_OK;
}

static dlc_status make_requests(dlc_team *team) {
    size_t count = DLC_TEAM_SETS * (size_t)team->args.ranks * 2;
    if (!team->requests)
        team->requests = dlc_alloc(count, sizeof(dlc_request *));
    if (!team->peers)
        team->peers = dlc_alloc(count, sizeof *team->peers);
    return team->requests && team->peers ? DLC_OK : DLC_ERR_NOMEM;
}

void dlc_messages_free(dlc_team *team) {
    dlc_device_free(team->args.device_ops, team->args.device, &team->scratch);
    dlc_free(team->peers);
    dlc_free(team->requests);
    dlc_free(team->node_sum);
    dlc_free(team->sources);
    dlc_free(team->chunk);
}

/* ---- Sets of requests ------------------------------------------------------ */

/* The sets of chunk k, which those of chunk k + 2 use again. */
static int reducing(size_t k) {
    return (int)(k % 2);
}

static int gathering(size_t k) {
    return 2 + (int)(k % 2);
}

static size_t first_request(const dlc_team *team, int set) {
    return 2 * (size_t)team->args.ranks * (size_t)set;
}

static dlc_request **next_request(dlc_team *team, int set, int32_t peer) {
    size_t at = first_request(team, set) + team->pending[set]++;
    team->peers[at] = peer;
    return &team->requests[at];
}

static dlc_status send_in_set(dlc_team *team, int set, int32_t peer, dlc_tag tag,
                              const void *buffer, size_t bytes) {
    return team->ops->send(team->endpoint, peer, tag, buffer, bytes,
                           next_request(team, set, peer));
}

static dlc_status recv_in_set(dlc_team *team, int set, int32_t peer, dlc_tag tag,
                              void *buffer, size_t bytes) {
    return team->ops->recv(team->endpoint, peer, tag, buffer, bytes,
                           next_request(team, set, peer));
}

/* Waits for all requests of a set. After an error the remaining requests belong to the
 * endpoint, which can then only be closed. */
static dlc_status wait_for_set(dlc_team *team, int set) {
    size_t first = first_request(team, set), end = first + team->pending[set];

    team->pending[set] = 0;
    for (size_t i = first; i < end; i++) {
        dlc_team_await(team, team->peers[i]);
        DLC_TRY(DLC_ASK(team->ops, "wait",
                        team->ops->wait(team->endpoint, team->requests[i])));
        if (team->how.on_progress)
            team->how.on_progress(team->how.progress_context);
    }
    dlc_team_await(team, DLC_TEAM_NOBODY);
    return DLC_OK;
}

/* The i-th peer; each rank begins with its successor, so that not all start with one.
 */
static int32_t peer_of(const dlc_team *team, int32_t i) {
    return (team->args.rank + i) % team->args.ranks;
}

/* ---- Reductions ------------------------------------------------------------------ */

static float *chunk_from(const dlc_team *team, int set, int32_t rank) {
    return team->chunk[(size_t)set * (size_t)team->args.ranks + (size_t)rank];
}

/* Rank r's operand in this set; this rank's own is at `mine`. */
static float *operand(const dlc_team *team, int set, int32_t r, float *mine) {
    return r == team->args.rank ? mine : chunk_from(team, set, r);
}

/* Sums the operands of a node's ranks in place: into `mine` if this rank is on the
 * node, else into the operand of its first rank. */
static dlc_status sum_node(dlc_team *team, int set, size_t n, int32_t node, float *mine,
                           float **sum) {
    const dlc_transport_args *args = &team->args;
    const int32_t *member = team->nodes.member + team->nodes.first[node];
    int32_t ranks = dlc_nodes_size(&team->nodes, node);
    int here = team->nodes.node[args->rank] == node;

    *sum = here ? mine : operand(team, set, member[0], mine);
    if (ranks == 1)
        return DLC_OK;
    for (int32_t i = 0; i < ranks; i++)
        team->sources[i] = operand(team, set, member[i], mine);
    return args->device_ops->sum(args->device, NULL, n, team->sources, ranks, *sum);
}

/* Adds the sums of a rack's nodes in place, as sum_node does, and moves the result to
 * the front of those of all nodes. */
static dlc_status sum_rack(dlc_team *team, size_t n, int32_t rack, float *mine) {
    const dlc_transport_args *args = &team->args;
    const dlc_nodes *nodes = &team->nodes;
    int32_t begin = dlc_nodes_rack_begin(nodes, rack);
    int32_t count = dlc_nodes_rack_begin(nodes, rack + 1) - begin;
    float *const *first = team->node_sum + begin;
    int here = nodes->rack[nodes->node[args->rank]] == rack;
    float *sum = here ? mine : first[0];

    if (count > 1)
        DLC_TRY(args->device_ops->sum(args->device, NULL, n,
                                      (const float *const *)first, count, sum));
    team->node_sum[rack] = count > 1 ? sum : first[0];
    return DLC_OK;
}

/* Adds to `mine` what the peers sent in this set, in the order of comm/nodes.h. */
static dlc_status sum_set(dlc_team *team, int set, size_t n, float *mine) {
    const dlc_transport_args *args = &team->args;
    const dlc_nodes *nodes = &team->nodes;

    if (n == 0)
        return DLC_OK;
    for (int32_t i = 0; i < nodes->nodes; i++)
        DLC_TRY(sum_node(team, set, n, i, mine, &team->node_sum[i]));
    for (int32_t i = 0; i < nodes->racks; i++)
        DLC_TRY(sum_rack(team, n, i, mine));
    if (nodes->racks == 1)
        return DLC_OK;
    return args->device_ops->sum(args->device, NULL, n,
                                 (const float *const *)team->node_sum, nodes->racks,
                                 mine);
}

/* Between two machines one round sends no more bytes than two, and saves waking a
 * thread for the second, which dominates there. In shared memory the bytes added
 * dominate. */
int dlc_messages_one_round(const dlc_team *team, size_t count) {
    int two_machines = team->nodes.ranks == 2 && team->nodes.nodes == 2;
    return count <= (two_machines ? chunk_of(team) : SMALL);
}

dlc_status dlc_messages_all_reduce_one_round(dlc_team *team, float *buffer,
                                             size_t count) {
    size_t bytes = count * sizeof(float);

    DLC_TRY(make_scratch(team));
    DLC_TRY(make_requests(team));
    for (int32_t i = 1; i < team->args.ranks; i++) {
        int32_t r = peer_of(team, i);
        DLC_TRY(recv_in_set(team, 0, r, TAG(TAG_SMALL), chunk_from(team, 0, r), bytes));
    }
    for (int32_t i = 1; i < team->args.ranks; i++)
        DLC_TRY(send_in_set(team, 0, peer_of(team, i), TAG(TAG_SMALL), buffer, bytes));
    DLC_TRY(wait_for_set(team, 0));
    return sum_set(team, 0, count, buffer);
}

/* Where chunk k of rank r's slice begins; *n is its length, which may be 0. */
static size_t slice_chunk(const dlc_team *team, size_t count, int32_t r, size_t k,
                          size_t *n) {
    size_t chunk = chunk_of(team);
    size_t begin = dlc_slice(count, r, team->args.ranks) + k * chunk;
    size_t end = dlc_slice(count, r + 1, team->args.ranks);
    size_t left = begin < end ? end - begin : 0;
    *n = left < chunk ? left : chunk;
    return begin;
}

/* Starts sending and receiving chunk k. Chunk 0 is sent even if it is empty: ranks that
 * disagree about `count` then disagree about the size of some message, which is an
 * error. */
static dlc_status start_chunk(dlc_team *team, const float *buffer, size_t count,
                              size_t k) {
    int set = reducing(k);
    size_t mine = 0, theirs = 0;

    (void)slice_chunk(team, count, team->args.rank, k, &mine);
    for (int32_t i = 1; (mine > 0 || k == 0) && i < team->args.ranks; i++) {
        int32_t r = peer_of(team, i);
        DLC_TRY(recv_in_set(team, set, r, TAG(TAG_REDUCE), chunk_from(team, set, r),
                            mine * sizeof(float)));
    }
    for (int32_t i = 1; i < team->args.ranks; i++) {
        int32_t r = peer_of(team, i);
        size_t at = slice_chunk(team, count, r, k, &theirs);
        if (theirs > 0 || k == 0)
            DLC_TRY(send_in_set(team, set, r, TAG(TAG_REDUCE), buffer + at,
                                theirs * sizeof(float)));
    }
    return DLC_OK;
}

/* Starts sending this rank's sum of chunk k, and receiving those of all others. */
static dlc_status start_sums(dlc_team *team, float *buffer, size_t count, size_t k) {
    int set = gathering(k);
    size_t mine = 0, theirs = 0;
    size_t begin = slice_chunk(team, count, team->args.rank, k, &mine);

    DLC_TRY(wait_for_set(team, set));
    for (int32_t i = 1; i < team->args.ranks; i++) {
        int32_t r = peer_of(team, i);
        size_t at = slice_chunk(team, count, r, k, &theirs);
        if (theirs > 0)
            DLC_TRY(recv_in_set(team, set, r, TAG(TAG_GATHER), buffer + at,
                                theirs * sizeof(float)));
    }
    for (int32_t i = 1; mine > 0 && i < team->args.ranks; i++)
        DLC_TRY(send_in_set(team, set, peer_of(team, i), TAG(TAG_GATHER),
                            buffer + begin, mine * sizeof(float)));
    return DLC_OK;
}

/* Reduces this rank's slice; `spreads`: and sends it to all ranks. */
static dlc_status reduce_slice(dlc_team *team, float *buffer, size_t count,
                               int spreads) {
    size_t ranks = (size_t)team->args.ranks;
    size_t slice = count / ranks + (count % ranks > 0);
    size_t chunks = (slice + chunk_of(team) - 1) / chunk_of(team);

    DLC_TRY(make_scratch(team));
    DLC_TRY(make_requests(team));
    DLC_TRY(start_chunk(team, buffer, count, 0));
    for (size_t k = 0; k < chunks; k++) {
        size_t n = 0;
        size_t at = slice_chunk(team, count, team->args.rank, k, &n);
        if (k + 1 < chunks)
            DLC_TRY(start_chunk(team, buffer, count, k + 1));
        DLC_TRY(wait_for_set(team, reducing(k)));
        DLC_TRY(sum_set(team, reducing(k), n, buffer + at));
        if (spreads)
            DLC_TRY(start_sums(team, buffer, count, k));
    }
    DLC_TRY(wait_for_set(team, gathering(0)));
    return wait_for_set(team, gathering(1));
}

dlc_status dlc_messages_reduce_scatter(dlc_team *team, float *buffer, size_t count) {
    return reduce_slice(team, buffer, count, 0);
}

dlc_status dlc_messages_all_reduce(dlc_team *team, float *buffer, size_t count) {
    return reduce_slice(team, buffer, count, 1);
}

/* ---- Other collectives ----------------------------------------------------------- */

dlc_status dlc_messages_all_gather(dlc_team *team, float *buffer, size_t count) {
    int32_t ranks = team->args.ranks, me = team->args.rank;
    size_t mine = dlc_slice(count, me, ranks);
    size_t bytes = (dlc_slice(count, me + 1, ranks) - mine) * sizeof(float);

    DLC_TRY(make_requests(team));
    for (int32_t i = 1; i < ranks; i++) {
        int32_t r = peer_of(team, i);
        size_t at = dlc_slice(count, r, ranks);
        size_t n = dlc_slice(count, r + 1, ranks) - at;
        DLC_TRY(
            recv_in_set(team, 0, r, TAG(TAG_GATHER), buffer + at, n * sizeof(float)));
    }
    for (int32_t i = 1; i < ranks; i++) /* empty slices, too: see start_chunk */
        DLC_TRY(send_in_set(team, 0, peer_of(team, i), TAG(TAG_GATHER), buffer + mine,
                            bytes));
    return wait_for_set(team, 0);
}

/* Broadcasts one part down a binomial tree. Numbered from the root, rank v receives it
 * from v without its lowest set bit and forwards it to v plus every lower bit. */
static dlc_status forward_part(dlc_team *team, int32_t root, unsigned char *part,
                               size_t bytes) {
    int32_t ranks = team->args.ranks;
    int32_t v = (team->args.rank - root + ranks) % ranks, bit = 1;

    while (bit < ranks && !(v & bit))
        bit *= 2;
    if (v > 0) {
        int32_t from = (v - bit + root) % ranks;
        DLC_TRY(recv_in_set(team, 0, from, TAG(TAG_BROADCAST), part, bytes));
        DLC_TRY(wait_for_set(team, 0));
    }
    for (bit /= 2; bit > 0; bit /= 2)
        if (v + bit < ranks)
            DLC_TRY(send_in_set(team, 0, (v + bit + root) % ranks, TAG(TAG_BROADCAST),
                                part, bytes));
    return wait_for_set(team, 0);
}

dlc_status dlc_messages_broadcast(dlc_team *team, int32_t root, void *buffer,
                                  size_t bytes) {
    unsigned char *at = buffer;

    DLC_TRY(make_requests(team));
    while (bytes > 0) {
        size_t part = bytes < FORWARD_BYTES ? bytes : FORWARD_BYTES;
        DLC_TRY(forward_part(team, root, at, part));
        at += part;
        bytes -= part;
    }
    return DLC_OK;
}

/* A dissemination barrier: after round i every rank has heard from 2^(i+1) ranks. */
dlc_status dlc_messages_barrier(dlc_team *team) {
    int32_t ranks = team->args.ranks, me = team->args.rank;

    DLC_TRY(make_requests(team));
    for (int32_t distance = 1; distance < ranks; distance *= 2) {
        int32_t to = (me + distance) % ranks, from = (me - distance + ranks) % ranks;
        DLC_TRY(recv_in_set(team, 0, from, TAG(TAG_BARRIER), NULL, 0));
        DLC_TRY(send_in_set(team, 0, to, TAG(TAG_BARRIER), NULL, 0));
        DLC_TRY(wait_for_set(team, 0));
    }
    return DLC_OK;
}

/* A fake NCCL library (fake_nccl.h) on the async device. Work on a stream runs on the
 * queue's thread and blocks there, as a kernel of NCCL does, until the other ranks' has
 * come or the communicator is aborted.
 */
#include "fake_nccl.h"

#include <dlfcn.h>
#include <nccl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dlcore/device.h>

#define EXPORT __attribute__((visibility("default")))

static fake_board *board;

EXPORT fake_nccl_use_fn fake_nccl_use;
void fake_nccl_use(fake_board *the_board) {
    board = the_board;
}

struct ncclComm {
    int rank, ranks;
    atomic_int stop;
    int polls, calls, finalized;
    atomic_int failed;
};

typedef enum kind {
    ALL_REDUCE,
    REDUCE_SCATTER,
    ALL_GATHER,
    REDUCE,
    BROADCAST,
    SEND,
    RECV
} kind;

typedef struct operation {
    kind kind;
    const void *from;
    void *to;
    size_t count, size; /* elements; bytes of one */
    int peer;           /* or the root */
} operation;

typedef struct group {
    ncclComm_t comm;
    int count;
    operation op[64];
} group;

static _Thread_local group gathered;
static _Thread_local cudaStream_t stream_of_group;
static _Thread_local int depth;

static void *near(const void *address) {
    return (void *)((uintptr_t)address & ~((uintptr_t)1 << 62));
}

/* ---- Work, on the queue's thread --------------------------------------------- */

/* 0: the communicator was aborted. */
static int meet(const ncclComm_t comm) {
    unsigned round = atomic_load(&board->round);
    if (atomic_load(&comm->stop))
        return 0;
    if (atomic_fetch_add(&board->arrived, 1) + 1 == (unsigned)comm->ranks) {
        atomic_store(&board->arrived, 0);
        atomic_fetch_add(&board->round, 1);
        return 1;
    }
    while (atomic_load(&board->round) == round) {
        if (atomic_load(&comm->stop))
            return 0;
        usleep(50);
    }
    return 1;
}

static void sum(const ncclComm_t comm, size_t at, size_t n, float *to) {
    for (size_t i = 0; i < n; i++) {
        float total = 0;
        for (int r = 0; r < comm->ranks; r++)
            total += board->slot[r][at + i];
        to[i] = total;
    }
}

static void collect(const ncclComm_t comm, const operation *op) {
    char *mine = (char *)board->slot[comm->rank];
    size_t me = (size_t)comm->rank;
    size_t in = op->kind == REDUCE_SCATTER ? op->count * (size_t)comm->ranks
                                           : op->count;
    if (op->kind != BROADCAST || comm->rank == op->peer)
        memcpy(mine, op->from, in * op->size);
    if (!meet(comm))
        return;
    if (op->kind == ALL_REDUCE || (op->kind == REDUCE && comm->rank == op->peer))
        sum(comm, 0, op->count, op->to);
    else if (op->kind == REDUCE_SCATTER)
        sum(comm, me * op->count, op->count, op->to);
    else if (op->kind == BROADCAST)
        memcpy(op->to, board->slot[op->peer], op->count * op->size);
    for (int r = 0; op->kind == ALL_GATHER && r < comm->ranks; r++)
        memcpy((char *)op->to + (size_t)r * op->count * op->size, board->slot[r],
               op->count * op->size);
    (void)meet(comm);
}

/* A group is done when all its messages are: both ends must be there. */
static void exchange(const group *g) {
    const ncclComm_t comm = g->comm;
    int left = g->count, go = 1;
    char done[64] = {0};
    while (left > 0 && go) {
        unsigned blocked[FAKE_RANKS][2] = {{0}}; /* by peer: sends, receives in order */
        for (int i = 0; i < g->count && go; i++) {
            const operation *op = &g->op[i];
            int is_send = op->kind == SEND;
            int from = is_send ? comm->rank : op->peer;
            int to = is_send ? op->peer : comm->rank;
            unsigned sent = atomic_load(&board->message[from][to].sent);
            unsigned taken = atomic_load(&board->message[from][to].taken);
            if (done[i] == 2 || blocked[op->peer][is_send])
                continue;
            blocked[op->peer][is_send] = 1;
            if (is_send && done[i] == 0 && sent == taken) {
                memcpy(board->message[from][to].bytes, op->from, op->count);
                atomic_fetch_add(&board->message[from][to].sent, 1);
                done[i] = 1;
            } else if (is_send && done[i] == 1 && sent == taken) {
                done[i] = 2;
            } else if (!is_send && sent != taken) {
                memcpy(op->to, board->message[from][to].bytes, op->count);
                atomic_fetch_add(&board->message[from][to].taken, 1);
                done[i] = 2;
            }
            left -= done[i] == 2;
        }
        go = !atomic_load(&comm->stop);
        usleep(20);
    }
}

static dlc_status run_group(const void *args) {
    const group *g = args;
    if (g->op[0].kind >= SEND)
        exchange(g);
    for (int i = 0; g->op[0].kind < SEND && i < g->count; i++)
        collect(g->comm, &g->op[i]);
    return DLC_OK;
}

/* ---- Calls ------------------------------------------------------------------- */

typedef dlc_status give_fn(dlc_queue *queue, dlc_status (*run)(const void *args),
                           const void *args, size_t bytes);

static ncclResult_t launch(void) {
    static give_fn *give;
    group *g = &gathered;
    if (g->count == 0)
        return ncclSuccess;
    if (!give) {
        void *library = dlopen(LATER_PLUGIN, RTLD_NOW | RTLD_NOLOAD);
        void *found = library ? dlsym(library, "async_give") : NULL;
        if (!found)
            return ncclInternalError;
        memcpy(&give, &found, sizeof found);
    }
    ncclComm_t comm = g->comm;
    comm->calls++;
    comm->polls = atomic_load(&board->polls);
    if (atomic_load(&board->fail_rank) == comm->rank + 1 &&
        comm->calls == atomic_load(&board->fail_call)) {
        atomic_store(&comm->failed, ncclRemoteError);
        g->count = 0; /* its work never comes: the others wait */
        return ncclSuccess;
    }
    dlc_status status = give((dlc_queue *)(void *)stream_of_group, run_group, g,
                             sizeof *g);
    g->count = 0;
    if (status != DLC_OK)
        return ncclUnhandledCudaError;
    return comm->polls > 0 ? ncclInProgress : ncclSuccess;
}

static ncclResult_t add(ncclComm_t comm, cudaStream_t stream, const operation *op) {
    group *g = &gathered;
    if (atomic_load(&comm->failed) || (depth == 0 && comm->polls > 0) || g->count == 64)
        return ncclInvalidUsage;
    g->comm = comm;
    stream_of_group = stream;
    g->op[g->count] = *op;
    g->op[g->count].from = near(op->from);
    g->op[g->count].to = near(op->to);
    g->count++;
    return depth == 0 ? launch() : ncclSuccess;
}

static size_t size_of(ncclDataType_t type) {
    return type == ncclFloat32 ? 4 : 1;
}

/* nccl.h has them without prototypes. */
EXPORT ncclResult_t ncclGroupStart(void);
EXPORT ncclResult_t ncclGroupEnd(void);

EXPORT ncclResult_t ncclGroupStart(void) {
    depth++;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGroupEnd(void) {
    return --depth == 0 ? launch() : ncclSuccess;
}

EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count,
                                  ncclDataType_t type, ncclRedOp_t what,
                                  ncclComm_t comm, cudaStream_t stream) {
    (void)what;
    return add(comm, stream,
               &(operation){ALL_REDUCE, from, to, count, size_of(type), 0});
}

EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count,
                                      ncclDataType_t type, ncclRedOp_t what,
                                      ncclComm_t comm, cudaStream_t stream) {
    (void)what;
    atomic_fetch_add(&board->reduce_scatters[comm->rank], 1);
    return add(comm, stream,
               &(operation){REDUCE_SCATTER, from, to, count, size_of(type), 0});
}

EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t count,
                                  ncclDataType_t type, ncclComm_t comm,
                                  cudaStream_t stream) {
    atomic_fetch_add(&board->all_gathers[comm->rank], 1);
    return add(comm, stream,
               &(operation){ALL_GATHER, from, to, count, size_of(type), 0});
}

EXPORT ncclResult_t ncclReduce(const void *from, void *to, size_t count,
                               ncclDataType_t type, ncclRedOp_t what, int root,
                               ncclComm_t comm, cudaStream_t stream) {
    (void)what;
    atomic_fetch_add(&board->reduces[comm->rank], 1);
    return add(comm, stream,
               &(operation){REDUCE, from, to, count, size_of(type), root});
}

EXPORT ncclResult_t ncclBroadcast(const void *from, void *to, size_t count,
                                  ncclDataType_t type, int root, ncclComm_t comm,
                                  cudaStream_t stream) {
    atomic_fetch_add(&board->broadcasts[comm->rank], 1);
    return add(comm, stream,
               &(operation){BROADCAST, from, to, count, size_of(type), root});
}

EXPORT ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type,
                             int peer, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream,
               &(operation){SEND, from, NULL, count, size_of(type), peer});
}

EXPORT ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream) {
    return add(comm, stream, &(operation){RECV, NULL, to, count, size_of(type), peer});
}

/* ---- Communicators ----------------------------------------------------------- */

EXPORT ncclResult_t ncclGetVersion(int *version) {
    const char *given = getenv("FAKE_NCCL_VERSION");
    *version = given ? atoi(given) : 22809;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    if (atomic_load(&board->id_fails))
        return ncclSystemError;
    memset(id, 0x5a, sizeof *id);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int ranks, ncclUniqueId id,
                                           int rank, ncclConfig_t *config) {
    /* Never freed: work may look at one that was aborted. */
    static struct ncclComm pool[16];
    static int used;
    if (id.internal[0] != 0x5a || config->blocking != 0 || rank >= FAKE_RANKS ||
        used == 16)
        return ncclInvalidArgument;
    ncclComm_t made = &pool[used++];
    made->rank = rank;
    made->ranks = ranks;
    made->polls = atomic_load(&board->polls);
    atomic_fetch_add(&board->started, 1);
    *comm = made;
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *result) {
    *result = (ncclResult_t)atomic_load(&comm->failed);
    if (*result != ncclSuccess)
        return ncclSuccess;
    int waits = atomic_load(&board->started) < comm->ranks ||
                (comm->finalized && atomic_load(&board->finished) < comm->ranks);
    if (waits || comm->polls > 0)
        *result = ncclInProgress;
    if (comm->polls > 0)
        comm->polls--;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    comm->finalized = 1;
    atomic_fetch_add(&board->finished, 1);
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    atomic_fetch_add(&board->destroyed[comm->rank], 1);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    atomic_fetch_add(&board->aborted[comm->rank], 1);
    atomic_store(&comm->stop, 1);
    return ncclInProgress;
}

EXPORT ncclResult_t ncclCommRegister(const ncclComm_t comm, void *base, size_t bytes,
                                     void **handle) {
    if (atomic_load(&board->no_memory))
        return ncclInvalidUsage;
    atomic_fetch_add(&board->registered[comm->rank], bytes > 0);
    *handle = base;
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommDeregister(const ncclComm_t comm, void *handle) {
    atomic_fetch_sub(&board->registered[comm->rank], handle != NULL);
    return ncclSuccess;
}

EXPORT const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclRemoteError ? "remote process exited" : "something else";
}

EXPORT const char *ncclGetLastError(ncclComm_t comm) {
    return comm && atomic_load(&comm->failed) ? "the cable is out" : "";
}

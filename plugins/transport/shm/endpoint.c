/* Opens and closes an endpoint: reads the options, creates the memory files, the
 * request lists and the copy queues. Also the load call of the plugins. */
#include <stdio.h>

#include "shm.h"

const dlc_host *host;

dlc_status endpoint_load(const dlc_host *the_host) {
    host = the_host;
    return DLC_OK;
}

int endpoint_same_node(const dlc_transport_args *args, char *reason,
                       size_t reason_bytes) {
    const dlc_rank_info *first = args->rank_info, *place = first;

    for (int32_t r = 0; r < args->ranks; r++, place = DLC_NEXT(place)) {
        if (place->node == first->node && place->uid == first->uid)
            continue;
        if (place->node != first->node)
            (void)snprintf(reason, reason_bytes, "not all ranks are on one node");
        else
            (void)snprintf(reason, reason_bytes,
                           "rank %d runs as user %u, rank 0 as user %u", r, place->uid,
                           first->uid);
        return 0;
    }
    return 1;
}

void endpoint_pin(dlc_endpoint *e) {
    const dlc_transport_args *args = e->args;

    while (!e->host_memory && DLC_CAN(args->device_ops, pin) && e->pinned < e->ranks) {
        if (args->device_ops->pin(args->device, e->peers[e->pinned].map,
                                  e->file_bytes) != DLC_OK) {
            host->log(DLC_LOG_WARN,
                      "shared memory cannot be pinned: copies from and to the "
                      "device will be slower");
            break;
        }
        e->pinned++;
    }
}

static void unpin(dlc_endpoint *e) {
    const dlc_transport_args *args = e->args;
    while (e->pinned > 0)
        args->device_ops->unpin(args->device, e->peers[--e->pinned].map);
}

void endpoint_close(dlc_endpoint *e) {
    if (!e)
        return;
    if (e->peers) {
        copy_queue_close(e, &e->message_copies);
        copy_queue_close(e, &e->store);
        copy_queue_close(e, &e->fetch);
        unpin(e);
        messages_close(e);
        files_close(e);
    }
    host->free(e->targets);
    host->free(e->sources);
    host->free(e->peers);
    host->free(e);
}

/* The CPU reads and writes the memory of a device without queues. */
static int is_host_memory(const dlc_transport_args *args) {
    return !DLC_CAN(args->device_ops, queues);
}

/* An option's value. 0 stands for an equal share of `room` per rank, within bounds:
 * with many ranks there are many rings, and each gets less. */
static size_t share_of(const dlc_transport_args *args, const char *name, int64_t room,
                       int64_t least, int64_t most) {
    int64_t value = host->get_int(args->settings, name), share = room / args->ranks;
    if (value == 0)
        value = share < least ? least : share > most ? most : share;
    return (size_t)value;
}

static size_t round_up_to_line(size_t bytes) {
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Measured on Zen 4, two ranks: messages and reductions are fastest with about half a
 * MiB between two ranks, which leaves room in the L2 cache for their operands.
 * Reductions prefer long chunks. Copies of a device should be long enough to hide its
 * launch overhead of some microseconds. */
static void read_settings(dlc_endpoint *e) {
    const dlc_transport_args *args = e->args;
    int far = !e->host_memory;
    int64_t piece = far ? 256 << 10 : 32 << 10;
    e->windows = far ? DEVICE_STEPS : STEPS;
    e->slots = far ? share_of(args, "slots", 32, 4, 8)
                   : share_of(args, "slots", 64, 4, 16);
    e->slot_bytes = round_up_to_line(share_of(args, "slot_bytes", piece, piece, piece));
    e->chunk_bytes = round_up_to_line(
        far ? share_of(args, "chunk_bytes", 2 << 20, 128 << 10, 1 << 20)
            : share_of(args, "chunk_bytes", 256 << 10, 16 << 10, 128 << 10));
    e->spin_ns = (uint64_t)host->get_int(args->settings, "spin_us") * 1000;
}

dlc_status endpoint_open(const dlc_transport_args *args, dlc_endpoint **endpoint) {
    dlc_endpoint *e = host->alloc(sizeof *e);
    if (!e)
        return DLC_ERR_NOMEM;
    e->args = args;
    e->fd = -1;
    e->rank = args->rank;
    e->ranks = args->ranks;
    e->host_memory = is_host_memory(args);
    read_settings(e);

    dlc_status status = DLC_ERR_NOMEM;
    e->peers = host->alloc((size_t)e->ranks * sizeof *e->peers);
    e->sources = host->alloc((size_t)e->ranks * sizeof *e->sources);
    e->targets = host->alloc((size_t)e->ranks * sizeof *e->targets);
    if (e->peers && e->sources && e->targets)
        status = files_open(e);
    if (status == DLC_OK)
        status = copy_queue_open(e, &e->fetch);
    if (status == DLC_OK)
        status = copy_queue_open(e, &e->store);
    if (status == DLC_OK)
        status = copy_queue_open(e, &e->message_copies);
    if (status != DLC_OK) {
        endpoint_close(e);
        return status;
    }
    *endpoint = e;
    return DLC_OK;
}

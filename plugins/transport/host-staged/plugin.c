/* Ranks of one machine, through shared memory that both sides copy to and from:
 * works between any devices that can copy to host memory. */
#include <stdio.h>
#include <string.h>

#include "staged.h"

const dlc_host *host;

static dlc_status load(const dlc_host *the_host) {
    host = the_host;
    return DLC_OK;
}

static dlc_status transport_score(const dlc_transport_args *args, int32_t *score,
                                  char *reason, size_t reason_bytes) {
    const dlc_place *first = args->places, *place = first;

    for (int32_t r = 0; r < args->ranks; r++, place = DLC_NEXT(place)) {
        if (place->node == first->node && place->uid == first->uid)
            continue;
        if (place->node != first->node)
            (void)snprintf(reason, reason_bytes, "rank %d is on another node", r);
        else
            (void)snprintf(reason, reason_bytes,
                           "rank %d runs as user %u, rank 0 as user %u", r, place->uid,
                           first->uid);
        *score = 0;
        return DLC_OK;
    }
    (void)snprintf(reason, reason_bytes, "shared memory, %d rank%s on one node",
                   args->ranks, args->ranks == 1 ? "" : "s");
    *score = 50;
    return DLC_OK;
}

static void transport_close(dlc_endpoint *e) {
    if (!e)
        return;
    if (e->peers) {
        messages_close(e);
        files_close(e);
    }
    host->free(e->sources);
    host->free(e->peers);
    host->free(e);
}

/* The device's memory is host memory where work on it has no queue. */
static int is_host_memory(const dlc_transport_args *args) {
    return !DLC_CAN(args->device_ops, queue_open);
}

/* An option's value; 0 stands for a share of `room`, within bounds: many ranks have
 * many rings, and are given less of each. */
static size_t shared_out(const dlc_transport_args *args, const char *name, int64_t room,
                         int64_t least, int64_t most) {
    int64_t value = host->get_int(args->settings, name), share = room / args->ranks;
    if (value == 0)
        value = share < least ? least : share > most ? most : share;
    return (size_t)value;
}

static size_t whole_lines(size_t bytes) {
    return (bytes + LINE - 1) / LINE * LINE;
}

/* Measured on Zen 4, two ranks: messages are fastest with about 1 MiB in a ring, more
 * than the second cache holds: a reader then finds its bytes in the third, and not
 * changed in another core's second. Sums like long chunks. */
static void read_settings(dlc_endpoint *e) {
    const dlc_transport_args *args = e->args;
    e->slots = shared_out(args, "slots", 128, 4, 32);
    e->slot_bytes = whole_lines((size_t)host->get_int(args->settings, "slot_bytes"));
    e->chunk_bytes = whole_lines(
        shared_out(args, "chunk_bytes", 512 << 10, 16 << 10, 128 << 10));
    e->spin_ns = (uint64_t)host->get_int(args->settings, "spin_us") * 1000;
}

static dlc_status transport_open(const dlc_transport_args *args,
                                 dlc_endpoint **endpoint) {
    dlc_endpoint *e = host->alloc(sizeof *e);
    if (!e)
        return DLC_ERR_NOMEM;
    e->args = args;
    e->fd = -1;
    e->rank = args->rank;
    e->ranks = args->ranks;
    read_settings(e);
    e->host_memory = is_host_memory(args);

    dlc_status status = DLC_ERR_NOMEM;
    e->peers = host->alloc((size_t)e->ranks * sizeof *e->peers);
    e->sources = host->alloc((size_t)e->ranks * sizeof *e->sources);
    if (e->peers && e->sources)
        status = files_open(e);
    if (status != DLC_OK) {
        transport_close(e);
        return status;
    }
    *endpoint = e;
    return DLC_OK;
}

static const dlc_option options[] = {
    DLC_INT("slots", "0", 0, 4096,
            "pieces of messages under way between two ranks; 0: by their number"),
    DLC_OPTION("slot_bytes", DLC_OPT_BYTES, 0, "32K", 64, 1 << 26, NULL,
               "size of such a piece"),
    DLC_OPTION("chunk_bytes", DLC_OPT_BYTES, 0, "0", 0, 1 << 26, NULL,
               "what a rank sums at a time; 0: by the number of ranks"),
    DLC_INT("spin_us", "20", 0, 1000000,
            "microseconds to look for news before sleeping"),
    DLC_OPTIONS_END,
};

static const dlc_transport_ops ops = {
    .size = sizeof ops,
    .score = transport_score,
    .open = transport_open,
    .close = transport_close,
    .send = messages_send,
    .recv = messages_recv,
    .test = messages_test,
    .wait = messages_wait,
    .all_reduce = collective_all_reduce,
    .reduce_scatter = collective_reduce_scatter,
    .all_gather = collective_all_gather,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_TRANSPORT,
     .name = "host-staged",
     .help = "shared memory between the ranks of one machine",
     .caps = DLC_TRANSPORT_PAIRWISE | DLC_TRANSPORT_DEVICE_MEMORY,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

const dlc_plugin dlc_plugin_v1 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "host-staged",
    .version = DLC_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = load,
};

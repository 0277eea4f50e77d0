/* The required operations of each kind of feature: all that <dlcore/...> does not call
 * optional, so that the core need not check before each call. And the optional tables.
 */
#include "plugin/calls.h"

#include <string.h>

#include <dlcore/dlcore.h>

#include "plugin/entry.h"

typedef struct call {
    size_t offset;
    const char *name; /* NULL: the end */
} call;

#define CALL(table, name_) \
    { .offset = offsetof(table, name_), .name = #name_ }
#define CALLS_END \
    { .name = NULL }

static const call device_calls[] = {
    CALL(dlc_device_ops, count),
    CALL(dlc_device_ops, describe),
    CALL(dlc_device_ops, open),
    CALL(dlc_device_ops, close),
    CALL(dlc_device_ops, alloc),
    CALL(dlc_device_ops, free),
    CALL(dlc_device_ops, copy),
    CALL(dlc_device_ops, fill),
    CALL(dlc_device_ops, scale),
    CALL(dlc_device_ops, add),
    CALL(dlc_device_ops, axpy),
    CALL(dlc_device_ops, convert),
    CALL(dlc_device_ops, sum),
    CALL(dlc_device_ops, square_sums),
    CALL(dlc_device_ops, total),
    CALL(dlc_device_ops, update),
    CALLS_END,
};
static const call device_queue_calls[] = {
    CALL(dlc_device_queue_ops, queue_open),  CALL(dlc_device_queue_ops, queue_close),
    CALL(dlc_device_queue_ops, queue_sync),  CALL(dlc_device_queue_ops, event_open),
    CALL(dlc_device_queue_ops, event_close), CALL(dlc_device_queue_ops, event_record),
    CALL(dlc_device_queue_ops, event_wait),  CALL(dlc_device_queue_ops, event_done),
    CALL(dlc_device_queue_ops, event_sync),  CALLS_END,
};

/* Calls that belong together. */
static const call pin_calls[] = {CALL(dlc_device_ops, pin), CALL(dlc_device_ops, unpin),
                                 CALLS_END};
static const call ipc_calls[] = {CALL(dlc_device_ops, ipc_export),
                                 CALL(dlc_device_ops, ipc_import), CALLS_END};
static const call mean_calls[] = {CALL(dlc_device_ops, add_mean), CALLS_END};
static const call capture_calls[] = {
    CALL(dlc_device_queue_ops, capture_begin), CALL(dlc_device_queue_ops, capture_end),
    CALL(dlc_device_queue_ops, graph_launch), CALL(dlc_device_queue_ops, graph_close),
    CALLS_END};

static const call transport_calls[] = {
    CALL(dlc_transport_ops, predict), CALL(dlc_transport_ops, open),
    CALL(dlc_transport_ops, close),   CALL(dlc_transport_ops, send),
    CALL(dlc_transport_ops, recv),    CALL(dlc_transport_ops, test),
    CALL(dlc_transport_ops, wait),    CALLS_END,
};
static const call transport_queue_calls[] = {
    CALL(dlc_transport_queue_ops, all_reduce),
    CALL(dlc_transport_queue_ops, reduce_scatter),
    CALL(dlc_transport_queue_ops, all_gather),
    CALL(dlc_transport_queue_ops, poll),
    CALLS_END,
};
static const call layer_calls[] = {
    CALL(dlc_layer_ops, family),
    CALL(dlc_layer_ops, create),
    CALL(dlc_layer_ops, destroy),
    CALL(dlc_layer_ops, infer),
    CALL(dlc_layer_ops, prepare),
    CALL(dlc_layer_ops, forward),
    CALLS_END,
};
static const call loss_calls[] = {
    CALL(dlc_layer_ops, backward),
    CALLS_END,
};
static const call family_calls[] = {
    CALL(dlc_family, open),
    CALL(dlc_family, close),
    CALL(dlc_family, same_layout),
    CALL(dlc_family, reorder_create),
    CALL(dlc_family, reorder_run),
    CALL(dlc_family, reorder_destroy),
    CALLS_END,
};
static const call solver_calls[] = {
    CALL(dlc_solver_ops, needs),
    CALLS_END,
};
static const call consistency_calls[] = {
    CALL(dlc_consistency_ops, needs),
    CALL(dlc_consistency_ops, create),
    CALL(dlc_consistency_ops, destroy),
    CALL(dlc_consistency_ops, ready),
    CALL(dlc_consistency_ops, finish),
    CALL(dlc_consistency_ops, synchronize),
    CALLS_END,
};
static const call data_calls[] = {
    CALL(dlc_data_ops, open),
    CALL(dlc_data_ops, close),
    CALL(dlc_data_ops, describe),
    CALLS_END,
};
static const call decoder_calls[] = {
    CALL(dlc_decoder_ops, endings), CALL(dlc_decoder_ops, matches),
    CALL(dlc_decoder_ops, inspect), CALL(dlc_decoder_ops, decode),
    CALL(dlc_decoder_ops, example), CALLS_END,
};

/* `table` starts with its size, and every entry is a pointer. */
static int has(const void *table, const call *one) {
    uint32_t size;
    void (*entry)(void) = NULL;
    memcpy(&size, table, sizeof size);
    if (size >= one->offset + sizeof entry)
        memcpy(&entry, (const char *)table + one->offset, sizeof entry);
    return entry != NULL;
}

/* The first missing operation. */
static const char *missing(const void *table, const call *calls) {
    while (calls->name && has(table, calls))
        calls++;
    return calls->name;
}

/* Of calls that belong together, the first that is missing if another is there. */
static const char *half(const void *table, const call *calls) {
    for (const call *one = calls; one->name; one++)
        if (has(table, one))
            return missing(table, calls);
    return NULL;
}

static const char *missing_of_queues(const dlc_device_queue_ops *queues) {
    const char *name = missing(queues, device_queue_calls);
    return name ? name : half(queues, capture_calls);
}

static const char *missing_of_device(const dlc_feature *feature) {
    const dlc_device_ops *ops = feature->ops;
    const char *name = missing(ops, device_calls);
    if (!name)
        name = half(ops, pin_calls);
    if (!name)
        name = half(ops, ipc_calls);
    if (name)
        return name;
    if (!ops->queues) /* which is before calls that are not missing */
        return feature->caps & DLC_DEVICE_HOST ? NULL : "queues";
    name = missing_of_queues(ops->queues);
    return name ? name : missing(ops, mean_calls);
}

static const dlc_transport_queue_ops *queues_of(const dlc_transport_ops *ops) {
    return DLC_HAS(ops, queues) ? ops->queues : NULL;
}

static const char *missing_of_transport(const dlc_transport_ops *ops) {
    const char *name = missing(ops, transport_calls);
    const dlc_transport_queue_ops *queues = queues_of(ops);
    return !name && queues ? missing(queues, transport_queue_calls) : name;
}

static const char *missing_of_layer(const dlc_feature *feature) {
    const dlc_layer_ops *ops = feature->ops;
    const char *name = missing(ops, layer_calls);
    if (!name && (feature->caps & DLC_LAYER_LOSS))
        name = missing(ops, loss_calls);
    return name ? name : missing(ops->family, family_calls);
}

/* Which of the two forms a source has, it says when it is open. */
static const char *missing_of_data(const dlc_data_ops *ops) {
    const char *name = missing(ops, data_calls);
    return name || DLC_CAN(ops, read) || DLC_CAN(ops, read_sample) ? name : "read";
}

const char *dlc_calls_missing(const dlc_feature *feature) {
    switch ((dlc_kind)feature->kind) {
    case DLC_KIND_DEVICE:
        return missing_of_device(feature);
    case DLC_KIND_TRANSPORT:
        return missing_of_transport(feature->ops);
    case DLC_KIND_LAYER:
        return missing_of_layer(feature);
    case DLC_KIND_SOLVER:
        return missing(feature->ops, solver_calls);
    case DLC_KIND_CONSISTENCY:
        return missing(feature->ops, consistency_calls);
    case DLC_KIND_DATA:
        return missing_of_data(feature->ops);
    case DLC_KIND_DECODER:
        return missing(feature->ops, decoder_calls);
    }
    return NULL;
}

uint32_t dlc_calls_offered(const dlc_feature *feature) {
    const dlc_device_ops *device = feature->ops;
    const dlc_transport_ops *transport = feature->ops;
    uint32_t found = 0;
    if (feature->kind == DLC_KIND_TRANSPORT)
        return DLC_CAN(transport, queues) ? DLC_OFFERS_QUEUES : 0;
    if (feature->kind != DLC_KIND_DEVICE)
        return 0;
    if (DLC_CAN(device, ipc_export))
        found |= DLC_OFFERS_IPC;
    if (!DLC_CAN(device, queues))
        return found;
    found |= DLC_OFFERS_QUEUES;
    if (DLC_CAN(device->queues, capture_begin))
        found |= DLC_OFFERS_CAPTURE;
    if (DLC_CAN(device->queues, queue_semaphores))
        found |= DLC_OFFERS_SEMAPHORES;
    return found;
}

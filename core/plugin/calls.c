/* The required operations of each kind of feature: all that <dlcore/...> does not call
 * optional, so that the core need not check before each call. */
#include "plugin/calls.h"

#include <string.h>

#include <dlcore/dlcore.h>

typedef struct call {
    size_t offset;
    const char *name; /* NULL: the end */
    uint64_t caps;    /* only for features with one of these bits; 0: for all */
} call;

#define CALL(table, name_) \
    { .offset = offsetof(table, name_), .name = #name_ }
#define CALL_IF(table, name_, caps_) \
    { .offset = offsetof(table, name_), .name = #name_, .caps = (caps_) }
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
    CALL_IF(dlc_device_ops, queue_open, DLC_DEVICE_ASYNC),
    CALL_IF(dlc_device_ops, queue_close, DLC_DEVICE_ASYNC),
    CALL_IF(dlc_device_ops, queue_sync, DLC_DEVICE_ASYNC),
    CALL_IF(dlc_device_ops, event_open, DLC_DEVICE_ASYNC),
    CALL_IF(dlc_device_ops, event_close, DLC_DEVICE_ASYNC),
    CALL_IF(dlc_device_ops, event_record, DLC_DEVICE_ASYNC),
    CALL_IF(dlc_device_ops, event_wait, DLC_DEVICE_ASYNC),
    CALL_IF(dlc_device_ops, event_done, DLC_DEVICE_ASYNC),
    CALL_IF(dlc_device_ops, event_sync, DLC_DEVICE_ASYNC),
    CALL(dlc_device_ops, scale),
    CALL(dlc_device_ops, add),
    CALL(dlc_device_ops, axpy),
    CALL(dlc_device_ops, convert),
    CALL(dlc_device_ops, sum),
    CALL(dlc_device_ops, norm2),
    CALL(dlc_device_ops, update),
    CALL_IF(dlc_device_ops, ipc_export, DLC_DEVICE_IPC),
    CALL_IF(dlc_device_ops, ipc_import, DLC_DEVICE_IPC),
    CALLS_END,
};
static const call transport_calls[] = {
    CALL(dlc_transport_ops, score), CALL(dlc_transport_ops, open),
    CALL(dlc_transport_ops, close), CALL(dlc_transport_ops, send),
    CALL(dlc_transport_ops, recv),  CALL(dlc_transport_ops, test),
    CALL(dlc_transport_ops, wait),  CALLS_END,
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
    CALL(dlc_data_ops, read),
    CALLS_END,
};

/* The first missing operation. `table` starts with its size, and every entry is a
 * pointer. */
static const char *missing(const void *table, const call *calls, uint64_t caps) {
    uint32_t size;
    memcpy(&size, table, sizeof size);
    for (; calls->name; calls++) {
        if (calls->caps && !(calls->caps & caps))
            continue;
        void (*entry)(void) = NULL;
        if (size >= calls->offset + sizeof entry)
            memcpy(&entry, (const char *)table + calls->offset, sizeof entry);
        if (!entry)
            return calls->name;
    }
    return NULL;
}

const char *dlc_calls_missing(const dlc_feature *feature) {
    const char *name;
    switch ((dlc_kind)feature->kind) {
    case DLC_KIND_DEVICE:
        return missing(feature->ops, device_calls, feature->caps);
    case DLC_KIND_TRANSPORT:
        return missing(feature->ops, transport_calls, feature->caps);
    case DLC_KIND_LAYER:
        name = missing(feature->ops, layer_calls, feature->caps);
        return name ? name
                    : missing(((const dlc_layer_ops *)feature->ops)->family,
                              family_calls, feature->caps);
    case DLC_KIND_SOLVER:
        return missing(feature->ops, solver_calls, feature->caps);
    case DLC_KIND_CONSISTENCY:
        return missing(feature->ops, consistency_calls, feature->caps);
    case DLC_KIND_DATA:
        return missing(feature->ops, data_calls, feature->caps);
    }
    return NULL;
}

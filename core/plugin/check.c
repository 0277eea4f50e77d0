/* Checks sizes, names, texts and operations of a plugin, and which optional tables it
 * has.
 */
#include "plugin/check.h"

#include <string.h>

#include <dlcore/decoder.h>
#include <dlcore/dlcore.h>
#include <dlcore/layer.h>

#include "base/status.h"
#include "config/config.h"
#include "plugin/entry.h"

/* ---- Operations -------------------------------------------------------------------
 */

/* The required operations of each kind of feature: all that <dlcore/...> does not call
 * optional, so that the core need not check before each call. And the optional tables.
 */

typedef struct required_call {
    size_t offset;
    const char *name; /* NULL: the end */
} required_call;

#define CALL(table, name_) \
    { .offset = offsetof(table, name_), .name = #name_ }
#define CALLS_END \
    { .name = NULL }

static const required_call device_calls[] = {
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
static const required_call device_queue_calls[] = {
    CALL(dlc_device_queue_ops, queue_open),  CALL(dlc_device_queue_ops, queue_close),
    CALL(dlc_device_queue_ops, queue_sync),  CALL(dlc_device_queue_ops, event_open),
    CALL(dlc_device_queue_ops, event_close), CALL(dlc_device_queue_ops, event_record),
    CALL(dlc_device_queue_ops, event_wait),  CALL(dlc_device_queue_ops, event_done),
    CALL(dlc_device_queue_ops, event_sync),  CALLS_END,
};

/* Calls that belong together. */
static const required_call pin_calls[] = {CALL(dlc_device_ops, pin),
                                          CALL(dlc_device_ops, unpin), CALLS_END};
static const required_call ipc_calls[] = {CALL(dlc_device_ops, ipc_export),
                                          CALL(dlc_device_ops, ipc_import), CALLS_END};
static const required_call mean_calls[] = {CALL(dlc_device_ops, add_mean), CALLS_END};
static const required_call capture_calls[] = {
    CALL(dlc_device_queue_ops, capture_begin), CALL(dlc_device_queue_ops, capture_end),
    CALL(dlc_device_queue_ops, graph_launch), CALL(dlc_device_queue_ops, graph_close),
    CALLS_END};

static const required_call transport_calls[] = {
    CALL(dlc_transport_ops, predict), CALL(dlc_transport_ops, open),
    CALL(dlc_transport_ops, close),   CALL(dlc_transport_ops, send),
    CALL(dlc_transport_ops, recv),    CALL(dlc_transport_ops, test),
    CALL(dlc_transport_ops, wait),    CALLS_END,
};
static const required_call transport_queue_calls[] = {
    CALL(dlc_transport_queue_ops, all_reduce),
    CALL(dlc_transport_queue_ops, reduce_scatter),
    CALL(dlc_transport_queue_ops, all_gather),
    CALL(dlc_transport_queue_ops, poll),
    CALLS_END,
};
static const required_call layer_calls[] = {
    CALL(dlc_layer_ops, family),
    CALL(dlc_layer_ops, create),
    CALL(dlc_layer_ops, destroy),
    CALL(dlc_layer_ops, infer),
    CALL(dlc_layer_ops, prepare),
    CALL(dlc_layer_ops, forward),
    CALLS_END,
};
static const required_call loss_calls[] = {
    CALL(dlc_layer_ops, backward),
    CALLS_END,
};
static const required_call family_calls[] = {
    CALL(dlc_family, open),
    CALL(dlc_family, close),
    CALL(dlc_family, same_layout),
    CALL(dlc_family, reorder_create),
    CALL(dlc_family, reorder_run),
    CALL(dlc_family, reorder_destroy),
    CALLS_END,
};
static const required_call solver_calls[] = {
    CALL(dlc_solver_ops, needs),
    CALLS_END,
};
static const required_call consistency_calls[] = {
    CALL(dlc_consistency_ops, needs),
    CALL(dlc_consistency_ops, create),
    CALL(dlc_consistency_ops, destroy),
    CALL(dlc_consistency_ops, ready),
    CALL(dlc_consistency_ops, finish),
    CALL(dlc_consistency_ops, synchronize),
    CALLS_END,
};
static const required_call data_calls[] = {
    CALL(dlc_data_ops, open),
    CALL(dlc_data_ops, close),
    CALL(dlc_data_ops, describe),
    CALLS_END,
};
static const required_call decoder_calls[] = {
    CALL(dlc_decoder_ops, endings), CALL(dlc_decoder_ops, matches),
    CALL(dlc_decoder_ops, inspect), CALL(dlc_decoder_ops, decode),
    CALL(dlc_decoder_ops, example), CALLS_END,
};

/* `table` starts with its size, and every entry is a pointer. */
static int has_call(const void *table, const required_call *one) {
    uint32_t size;
    void (*entry)(void) = NULL;
    memcpy(&size, table, sizeof size);
    if (size >= one->offset + sizeof entry)
        memcpy(&entry, (const char *)table + one->offset, sizeof entry);
    return entry != NULL;
}

/* The first missing operation. */
static const char *missing(const void *table, const required_call *calls) {
    while (calls->name && has_call(table, calls))
        calls++;
    return calls->name;
}

/* Of calls that belong together, the first that is missing if another is there. */
static const char *missing_of_pair(const void *table, const required_call *calls) {
    for (const required_call *one = calls; one->name; one++)
        if (has_call(table, one))
            return missing(table, calls);
    return NULL;
}

static const char *missing_of_queues(const dlc_device_queue_ops *queues) {
    const char *name = missing(queues, device_queue_calls);
    return name ? name : missing_of_pair(queues, capture_calls);
}

static const char *missing_of_device(const dlc_feature *feature) {
    const dlc_device_ops *ops = feature->ops;
    const char *name = missing(ops, device_calls);
    if (!name)
        name = missing_of_pair(ops, pin_calls);
    if (!name)
        name = missing_of_pair(ops, ipc_calls);
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

/* ---- Descriptors ------------------------------------------------------------------
 */

/* The required part of the structs; what follows is optional. */
#define PLUGIN_MIN offsetof(dlc_plugin, load)
#define FEATURE_MIN (offsetof(dlc_feature, ops) + sizeof(void *))

#define STRUCT_MAX 4096u /* a larger size must be damaged */
#define NAME_LENGTH_MAX 63u
#define TEXT_LENGTH_MAX 4096u

/* Why a struct of this size cannot be read; NULL if it can. */
static const char *size_wrong(uint32_t size, size_t least) {
    if (size < least)
        return "too small for its required fields";
    if (size > STRUCT_MAX)
        return "implausibly large";
    if (size % _Alignof(dlc_feature))
        return "not a multiple of its alignment";
    return NULL;
}

static int is_valid_name(const char *name) {
    size_t length = strnlen(name, NAME_LENGTH_MAX + 1);
    return length >= 1 && length <= NAME_LENGTH_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == length;
}

/* Whether `text` is one line without control characters. */
static int is_line(const char *text) {
    size_t length = text ? strnlen(text, TEXT_LENGTH_MAX + 1) : 0;
    if (length < 1 || length > TEXT_LENGTH_MAX)
        return 0;
    for (size_t i = 0; i < length; i++)
        if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
            return 0;
    return 1;
}

static dlc_status check_feature_table(const char *path, const dlc_plugin *plugin,
                                      size_t *features) {
    size_t count = 0;
    for (const dlc_feature *f = plugin->features;; f = DLC_NEXT(f)) {
        const char *wrong = size_wrong(f->size, FEATURE_MIN);
        /* The last row has only a size and a NULL name. */
        if (wrong)
            return dlc_fail(
                DLC_ERR_PLUGIN,
                "%s: feature %zu has a size of %u bytes, %s; does the table "
                "end with DLC_FEATURES_END?",
                path, count, f->size, wrong);
        if (!f->name)
            break;
        if (++count > DLC_FEATURES_MAX)
            return dlc_fail(DLC_ERR_PLUGIN,
                            "%s: its table of features doesn't end: it must end with "
                            "DLC_FEATURES_END",
                            path);
    }
    if (!count)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: the plugin has no features", path);
    *features = count;
    return DLC_OK;
}

/* The structs of another draft may look the same and mean something else. */
static dlc_status check_draft(const char *path, const dlc_plugin *plugin) {
    if (DLC_ABI_MAJOR > 0 || !DLC_HAS(plugin, abi_minor) ||
        plugin->abi_minor == DLC_ABI_MINOR)
        return DLC_OK;
    return dlc_fail(
        DLC_ERR_PLUGIN,
        "%s: it was built for draft %d.%u of the plugin interface, and this "
        "dlcore has draft %d.%d; build it again with the headers of this "
        "dlcore",
        path, DLC_ABI_MAJOR, plugin->abi_minor, DLC_ABI_MAJOR, DLC_ABI_MINOR);
}

dlc_status dlc_plugin_check(const char *path, const dlc_plugin *plugin,
                            size_t *features) {
    DLC_TRY(check_draft(path, plugin));
    const char *wrong = size_wrong(plugin->size, PLUGIN_MIN);
    if (wrong)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: its %s has a size of %u bytes, %s", path,
                        DLC_PLUGIN_SYMBOL, plugin->size, wrong);
    if (!plugin->name || !is_valid_name(plugin->name))
        return dlc_fail(
            DLC_ERR_PLUGIN,
            "%s: the plugin has no valid name: use 1 to %u of a-z, 0-9, '-' "
            "and '_'",
            path, NAME_LENGTH_MAX);
    if (!is_line(plugin->version))
        return dlc_fail(DLC_ERR_PLUGIN, "%s: plugin %s has no valid version", path,
                        plugin->name);
    if (!is_line(plugin->license))
        return dlc_fail(DLC_ERR_PLUGIN, "%s: plugin %s has no valid license", path,
                        plugin->name);
    if (!plugin->features)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: plugin %s has no table of features", path,
                        plugin->name);
    return check_feature_table(path, plugin, features);
}

/* The endings of a decoder's files, a list that NULL ends. */
static dlc_status check_endings(const char *const *endings) {
    size_t count = 0;
    for (; endings[count]; count++) {
        size_t length = strnlen(endings[count], DLC_ENDING_LENGTH_MAX + 1);
        if (count == DLC_ENDINGS_MAX)
            return dlc_fail(DLC_ERR_PLUGIN,
                            "its list of endings has more than %d, or does not end "
                            "with NULL",
                            DLC_ENDINGS_MAX);
        if (length < 1 || length > DLC_ENDING_LENGTH_MAX ||
            strspn(endings[count], "abcdefghijklmnopqrstuvwxyz0123456789") != length)
            return dlc_fail(DLC_ERR_PLUGIN,
                            "ending %zu of its files is not valid: use 1 to %d of a-z "
                            "and 0-9, without a dot",
                            count, DLC_ENDING_LENGTH_MAX);
    }
    return count ? DLC_OK
                 : dlc_fail(DLC_ERR_PLUGIN, "it has no endings of names of files");
}

static dlc_status check_ops(const dlc_feature *feature) {
    if (!feature->ops)
        return dlc_fail(DLC_ERR_PLUGIN, "it has no table of operations");
    const char *call = dlc_calls_missing(feature);
    if (call)
        return dlc_fail(DLC_ERR_PLUGIN, "its table of operations lacks %s", call);
    const dlc_layer_ops *layer = feature->ops;
    if (feature->kind == DLC_KIND_LAYER &&
        !(layer->family->name && is_valid_name(layer->family->name)))
        return dlc_fail(DLC_ERR_PLUGIN, "the name of its family is not valid");
    const dlc_decoder_ops *decoder = feature->ops;
    return feature->kind == DLC_KIND_DECODER ? check_endings(decoder->endings) : DLC_OK;
}

dlc_status dlc_feature_check(const dlc_feature *feature, dlc_entry_state *state) {
    *state = DLC_ENTRY_REFUSED;
    if (!is_valid_name(feature->name))
        return dlc_fail(DLC_ERR_PLUGIN,
                        "its name is not valid: use 1 to %u of a-z, 0-9, '-' and '_'",
                        NAME_LENGTH_MAX);
    if (feature->kind < DLC_KIND_DEVICE || feature->kind > DLC_KIND_LAST) {
        *state = DLC_ENTRY_IGNORED;
        return dlc_fail(DLC_ERR_PLUGIN,
                        "it is of kind %u, which this dlcore doesn't "
                        "know (a newer one may)",
                        feature->kind);
    }
    if (feature->needs)
        return dlc_fail(DLC_ERR_PLUGIN,
                        "it needs what this dlcore doesn't offer (needs bits 0x%llx); "
                        "a newer one may",
                        (unsigned long long)feature->needs);
    if (!is_line(feature->help))
        return dlc_fail(DLC_ERR_PLUGIN, "it has no help text");
    if (feature->device && !is_valid_name(feature->device))
        return dlc_fail(DLC_ERR_PLUGIN, "the name of its device is not valid");
    DLC_TRY(check_ops(feature));
    return dlc_options_check(feature->options);
}

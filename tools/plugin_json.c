/* Plugins, features and options as JSON; names of capability bits. */
#include "plugin_json.h"

#include <string.h>

#include <dlcore/dlcore.h>

#include "config/config.h"

/* All capability bits of the SDK. */
static const struct {
    dlc_kind kind;
    uint64_t bit;
    const char *text;
} caps[] = {
    {DLC_KIND_DEVICE, DLC_DEVICE_HOST, "host memory"},
    {DLC_KIND_TRANSPORT, DLC_TRANSPORT_PAIRWISE, "pairwise order"},
    {DLC_KIND_TRANSPORT, DLC_TRANSPORT_DEVICE_MEMORY, "device memory"},
    {DLC_KIND_TRANSPORT, DLC_TRANSPORT_CAPTURABLE, "capturable"},
    {DLC_KIND_LAYER, DLC_LAYER_METRIC, "metric"},
    {DLC_KIND_LAYER, DLC_LAYER_LOSS, "loss"},
    {DLC_KIND_LAYER, DLC_LAYER_TEST_ONLY, "test only"},
    {DLC_KIND_LAYER, DLC_LAYER_CLASSIFIES, "classification"},
    {DLC_KIND_LAYER, DLC_LAYER_MULTI_LABEL, "several classes"},
    {DLC_KIND_LAYER, DLC_LAYER_POINTWISE, "pointwise"},
    {DLC_KIND_LAYER, DLC_LAYER_BINARY, "binary"},
    {DLC_KIND_LAYER, DLC_LAYER_SAMPLEWISE, "samplewise"},
    {DLC_KIND_LAYER, DLC_LAYER_CHANNEL_PARALLEL, "channel-parallel"},
    {DLC_KIND_LAYER, DLC_LAYER_SPLIT_BACKWARD, "split backward"},
    {DLC_KIND_LAYER, DLC_LAYER_RECOMPUTABLE, "recomputable"},
    {DLC_KIND_LAYER, DLC_LAYER_BF16, "bf16"},
    {DLC_KIND_LAYER, DLC_LAYER_F16, "fp16"},
    {DLC_KIND_DATA, DLC_DATA_CONCURRENT, "concurrent reads"},
    {DLC_KIND_DECODER, DLC_DECODER_LOSSLESS, "lossless"},
};

/* What the optional calls of a feature say. */
static const struct {
    dlc_kind kind;
    uint32_t bit;
    const char *text;
} offers[] = {
    {DLC_KIND_DEVICE, DLC_OFFERS_IPC, "shared memory"},
    {DLC_KIND_DEVICE, DLC_OFFERS_QUEUES, "queues"},
    {DLC_KIND_DEVICE, DLC_OFFERS_CAPTURE, "captured graphs"},
    {DLC_KIND_DEVICE, DLC_OFFERS_SEMAPHORES, "semaphores"},
    {DLC_KIND_TRANSPORT, DLC_OFFERS_QUEUES, "stream-ordered"},
};

void dlc_caps_text(const dlc_feature_entry *feature, dlc_text *text) {
    uint64_t left = feature->caps;
    const char *comma = "";
    for (size_t i = 0; i < sizeof caps / sizeof *caps; i++)
        if (feature->kind == (uint32_t)caps[i].kind && (left & caps[i].bit)) {
            dlc_text_add(text, "%s%s", comma, caps[i].text);
            left &= ~caps[i].bit;
            comma = ", ";
        }
    for (size_t i = 0; i < sizeof offers / sizeof *offers; i++)
        if (feature->kind == (uint32_t)offers[i].kind &&
            (feature->offers & offers[i].bit)) {
            dlc_text_add(text, "%s%s", comma, offers[i].text);
            comma = ", ";
        }
    for (int bit = 0; bit < 64; bit++)
        if (left & (uint64_t)1 << bit) {
            dlc_text_add(text, "%sbit %d, unknown here", comma, bit);
            comma = ", ";
        }
    if (!*comma)
        dlc_text_add(text, "-");
}

/* The device of a device feature is itself; NULL: works on all devices. */
const char *dlc_feature_device(const dlc_feature_entry *feature) {
    return feature->kind == DLC_KIND_DEVICE && !feature->device ? feature->name
                                                                : feature->device;
}

int dlc_feature_is_chosen(const dlc_feature_choice *choice,
                          const dlc_feature_entry *feature) {
    const char *device = dlc_feature_device(feature);
    return (!choice->name || strcmp(feature->name, choice->name) == 0) &&
           (!choice->device || !device || strcmp(device, choice->device) == 0);
}

static const char *option_type_text(uint32_t type) {
    static const char *const names[] = {
        [DLC_OPT_INT] = "int",       [DLC_OPT_FLOAT] = "float",
        [DLC_OPT_BOOL] = "bool",     [DLC_OPT_STRING] = "string",
        [DLC_OPT_CHOICE] = "choice", [DLC_OPT_PATH] = "path",
        [DLC_OPT_INTS] = "ints",     [DLC_OPT_FLOATS] = "floats",
        [DLC_OPT_BYTES] = "bytes",   [DLC_OPT_FILLER] = "filler",
    };
    return type < sizeof names / sizeof *names ? names[type] : NULL;
}

static void json_option(dlc_json *json, const dlc_option *row) {
    dlc_text takes = {0};
    dlc_option_takes(row, &takes);
    dlc_text_fail_with(&json->text, &takes);
    dlc_json_object(json, NULL);
    dlc_json_string(json, "name", row->name);
    dlc_json_string(json, "type", option_type_text(row->type));
    dlc_json_string(json, "takes", dlc_text_string(&takes));
    dlc_json_bool(json, "required", (row->flags & DLC_OPT_REQUIRED) != 0);
    dlc_json_bool(json, "live", (row->flags & DLC_OPT_LIVE) != 0);
    dlc_json_string(json, "default", row->def);
    if (row->min < row->max) {
        dlc_json_number(json, "min", row->min);
        dlc_json_number(json, "max", row->max);
    }
    if (row->type == DLC_OPT_CHOICE)
        dlc_json_string(json, "choices", row->choices);
    dlc_json_string(json, "help", row->help);
    dlc_json_end_object(json);
    dlc_text_free(&takes);
}

void dlc_json_options(dlc_json *json, const dlc_option *const *tables, size_t ntables) {
    dlc_json_array(json, "options");
    for (size_t t = 0; t < ntables; t++)
        for (const dlc_option *row = tables[t]; row && row->name; row = DLC_NEXT(row))
            json_option(json, row);
    dlc_json_end_array(json);
}

static void json_feature(dlc_json *json, const dlc_feature_entry *entry,
                         const dlc_option *options, int with_options) {
    dlc_text words = {0};
    dlc_caps_text(entry, &words);
    dlc_text_fail_with(&json->text, &words);
    dlc_json_object(json, NULL);
    dlc_json_string(json, "kind", dlc_kind_text((dlc_kind)entry->kind));
    dlc_json_string(json, "name", entry->name);
    dlc_json_string(json, "help", entry->help);
    dlc_json_string(json, "device", entry->device);
    dlc_json_string(json, "capabilities", dlc_text_string(&words));
    if (entry->kind == DLC_KIND_DECODER)
        dlc_json_string(json, "endings", entry->endings);
    dlc_json_string(json, "state", dlc_entry_state_text(entry->state));
    dlc_json_string(json, "reason", entry->reason);
    if (with_options)
        dlc_json_options(json, &options, 1);
    dlc_json_end_object(json);
    dlc_text_free(&words);
}

static void json_plugin(dlc_json *json, const dlc_plugin_entry *plugin,
                        const dlc_registry *registry,
                        const dlc_feature_choice *choice) {
    dlc_json_object(json, NULL);
    dlc_json_string(json, "name", plugin->name);
    dlc_json_string(json, "path", plugin->path);
    dlc_json_string(json, "state", dlc_entry_state_text(plugin->state));
    dlc_json_string(json, "reason", plugin->reason);
    if (plugin->version) {
        dlc_json_string(json, "version", plugin->version);
        dlc_json_string(json, "license", plugin->license);
        dlc_json_int(json, "abi_major", DLC_ABI_MAJOR);
        dlc_json_int(json, "abi_minor", plugin->abi_minor);
    }
    dlc_json_array(json, "features");
    for (size_t i = 0; i < plugin->features; i++) {
        const dlc_feature_entry *entry = &plugin->feature[i];
        const dlc_feature *feature = NULL;
        if (choice && !dlc_feature_is_chosen(choice, entry))
            continue;
        /* The options of a refused feature may be the reason. */
        dlc_status peeked = registry ? dlc_registry_peek(registry, entry, &feature)
                                     : DLC_ERR_UNAVAILABLE;
        int open = peeked == DLC_OK;
        if (peeked == DLC_ERR_NOMEM)
            dlc_text_fail(&json->text);
        json_feature(json, entry, open ? feature->options : NULL, open);
    }
    dlc_json_end_array(json);
    dlc_json_end_object(json);
}

void dlc_json_plugin(dlc_json *json, const dlc_registry *registry,
                     const dlc_plugin_entry *plugin, const dlc_feature_choice *choice) {
    json_plugin(json, plugin, registry, choice);
}

void dlc_json_plugins(dlc_json *json, const dlc_registry *registry) {
    const dlc_plugin_entry *plugin;
    dlc_json_array(json, "plugins");
    for (size_t i = 0; (plugin = dlc_registry_plugin(registry, i)); i++)
        json_plugin(json, plugin, NULL, NULL);
    dlc_json_end_array(json);
}

void dlc_json_folders(dlc_json *json, const dlc_registry *registry) {
    const dlc_folder_entry *folder;
    dlc_json_array(json, "folders");
    for (size_t i = 0; (folder = dlc_registry_folder(registry, i)); i++) {
        dlc_json_object(json, NULL);
        dlc_json_string(json, "path", folder->path);
        dlc_json_bool(json, "default", folder->is_default);
        dlc_json_string(json, "reason", folder->reason);
        dlc_json_end_object(json);
    }
    dlc_json_end_array(json);
}

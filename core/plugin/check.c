/* Checks sizes, names, texts and operations of a plugin. */
#include "plugin/check.h"

#include <string.h>

#include <dlcore/decoder.h>
#include <dlcore/layer.h>

#include "base/status.h"
#include "config/config.h"
#include "plugin/calls.h"

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

static int is_name(const char *name) {
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

static dlc_status check_features(const char *path, const dlc_plugin *plugin,
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
    if (!plugin->name || !is_name(plugin->name))
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
    return check_features(path, plugin, features);
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
        !(layer->family->name && is_name(layer->family->name)))
        return dlc_fail(DLC_ERR_PLUGIN, "the name of its family is not valid");
    const dlc_decoder_ops *decoder = feature->ops;
    return feature->kind == DLC_KIND_DECODER ? check_endings(decoder->endings) : DLC_OK;
}

dlc_status dlc_feature_check(const dlc_feature *feature, dlc_entry_state *state) {
    *state = DLC_ENTRY_REFUSED;
    if (!is_name(feature->name))
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
    if (feature->device && !is_name(feature->device))
        return dlc_fail(DLC_ERR_PLUGIN, "the name of its device is not valid");
    DLC_TRY(check_ops(feature));
    return dlc_options_check(feature->options);
}

/* See check.h. */
#include "plugin/check.h"

#include <string.h>

#include "base/status.h"
#include "config/config.h"
#include "plugin/calls.h"

/* How far version 1.0 of the structs must reach; what is behind it is optional. */
#define PLUGIN_LEAST offsetof(dlc_plugin, load)
#define FEATURE_LEAST (offsetof(dlc_feature, ops) + sizeof(void *))

#define STRUCT_MAX 4096u /* nothing grows that far: a damaged size */
#define NAME_LENGTH_MAX 63u
#define TEXT_LENGTH_MAX 4096u

/* Why a struct of this size can't be read; NULL if it can. */
static const char *size_wrong(uint32_t size, size_t least) {
    if (size < least)
        return "smaller than that of version 1.0";
    if (size > STRUCT_MAX)
        return "too large to be true";
    if (size % _Alignof(dlc_feature))
        return "not a multiple of its alignment";
    return NULL;
}

static int is_name(const char *name) {
    size_t length = strnlen(name, NAME_LENGTH_MAX + 1);
    return length >= 1 && length <= NAME_LENGTH_MAX &&
           strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-_") == length;
}

/* One line of text that may go to a terminal as it is. */
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
        const char *wrong = size_wrong(f->size, FEATURE_LEAST);
        /* The last one has a size and a NULL name; the rest of it is not read. */
        if (wrong)
            return dlc_fail(
                DLC_ERR_PLUGIN,
                "%s: feature %zu has a size of %u bytes, %s; does the table "
                "end with DLC_FEATURES_END?",
                path, count, f->size, wrong);
        if (!f->name)
            break;
        if (++count > DLC_FEATURES_MOST)
            return dlc_fail(DLC_ERR_PLUGIN,
                            "%s: its table of features doesn't end: it must end with "
                            "DLC_FEATURES_END",
                            path);
    }
    if (!count)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: the plugin carries no feature", path);
    *features = count;
    return DLC_OK;
}

dlc_status dlc_plugin_check(const char *path, const dlc_plugin *plugin,
                            size_t *features) {
    const char *wrong = size_wrong(plugin->size, PLUGIN_LEAST);
    if (wrong)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: its %s has a size of %u bytes, %s", path,
                        DLC_PLUGIN_SYMBOL, plugin->size, wrong);
    if (!plugin->name || !is_name(plugin->name))
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: the plugin has no proper name: 1 to %u of a-z, 0-9, '-' "
                        "and '_'",
                        path, NAME_LENGTH_MAX);
    if (!is_line(plugin->version))
        return dlc_fail(DLC_ERR_PLUGIN, "%s: plugin %s tells no version", path,
                        plugin->name);
    if (!is_line(plugin->license))
        return dlc_fail(DLC_ERR_PLUGIN, "%s: plugin %s tells no license", path,
                        plugin->name);
    if (!plugin->features)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: plugin %s has no table of features", path,
                        plugin->name);
    return check_features(path, plugin, features);
}

static dlc_status check_ops(const dlc_feature *feature) {
    if (!feature->ops)
        return dlc_fail(DLC_ERR_PLUGIN, "it has no table of operations");
    const char *call = dlc_calls_missing(feature);
    if (call)
        return dlc_fail(DLC_ERR_PLUGIN, "its table of operations lacks %s", call);
    return DLC_OK;
}

dlc_status dlc_feature_check(const dlc_feature *feature, dlc_entry_state *state) {
    *state = DLC_ENTRY_REFUSED;
    if (!is_name(feature->name))
        return dlc_fail(DLC_ERR_PLUGIN,
                        "its name is not proper: 1 to %u of a-z, 0-9, '-' and '_'",
                        NAME_LENGTH_MAX);
    if (feature->kind < DLC_KIND_DEVICE || feature->kind > DLC_KIND_DATA) {
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
        return dlc_fail(DLC_ERR_PLUGIN, "it has no line of help");
    if (feature->device && !is_name(feature->device))
        return dlc_fail(DLC_ERR_PLUGIN, "the name of its device is not proper");
    DLC_TRY(check_ops(feature));
    return dlc_options_check(feature->options);
}

/* Names of kinds and states; packs and unpacks the reports on plugins. */
#include "plugin/entry.h"

#include <string.h>

#include "base/memory.h"

const char *dlc_kind_text(dlc_kind kind) {
    static const char *const text[] = {
        [DLC_KIND_DEVICE] = "device",  [DLC_KIND_TRANSPORT] = "transport",
        [DLC_KIND_LAYER] = "layer",    [DLC_KIND_SOLVER] = "solver",
        [DLC_KIND_DATA] = "data",      [DLC_KIND_CONSISTENCY] = "consistency",
        [DLC_KIND_DECODER] = "decoder"};
    size_t at = (size_t)kind;
    return at < sizeof text / sizeof *text && text[at] ? text[at] : "unknown";
}

const char *dlc_entry_state_text(dlc_entry_state state) {
    static const char *const text[] = {
        [DLC_ENTRY_USABLE] = "usable",   [DLC_ENTRY_UNAVAILABLE] = "unavailable",
        [DLC_ENTRY_REFUSED] = "refused", [DLC_ENTRY_SHADOWED] = "shadowed",
        [DLC_ENTRY_IGNORED] = "ignored", [DLC_ENTRY_UNTRIED] = "not loaded"};
    size_t at = (size_t)state;
    return at < sizeof text / sizeof *text && text[at] ? text[at] : "unknown";
}

/* ---- Reports ----------------------------------------------------------------------
 */

#define TEXT_MAX 4096u /* longer strings, of a damaged plugin, are cut */

void dlc_pack_number(dlc_text *bytes, uint64_t number) {
    dlc_text_append(bytes, (const char *)&number, sizeof number);
}

/* Packs the length with the NUL, 0 for NULL, then the string. */
void dlc_pack_text(dlc_text *bytes, const char *text) {
    size_t length = text ? strnlen(text, TEXT_MAX) : 0;
    dlc_pack_number(bytes, text ? length + 1 : 0);
    if (!text)
        return;
    dlc_text_append(bytes, text, length);
    dlc_text_append(bytes, "", 1);
}

uint64_t dlc_unpack_number(dlc_unpacking *from) {
    uint64_t number = 0;
    if (from->left < sizeof number) {
        from->failed = 1;
        from->left = 0;
        return 0;
    }
    memcpy(&number, from->next, sizeof number);
    from->next += sizeof number;
    from->left -= sizeof number;
    return number;
}

const char *dlc_unpack_text(dlc_unpacking *from) {
    uint64_t size = dlc_unpack_number(from);
    const char *text = from->next;
    if (!size)
        return NULL;
    if (size > from->left || strnlen(text, size) != size - 1) {
        from->failed = 1;
        from->left = 0;
        return NULL;
    }
    from->next += size;
    from->left -= size;
    return text;
}

void dlc_report_pack(const dlc_report *report, dlc_text *bytes) {
    const dlc_plugin_entry *plugin = &report->plugin;
    dlc_pack_number(bytes, plugin->state);
    dlc_pack_number(bytes, report->scope);
    dlc_pack_text(bytes, plugin->reason);
    dlc_pack_text(bytes, plugin->name);
    dlc_pack_text(bytes, plugin->version);
    dlc_pack_text(bytes, plugin->license);
    dlc_pack_number(bytes, plugin->abi_minor);
    dlc_pack_number(bytes, plugin->features);
    for (size_t i = 0; i < plugin->features; i++) {
        const dlc_feature_entry *feature = &report->feature[i];
        dlc_pack_number(bytes, feature->kind);
        dlc_pack_number(bytes, feature->caps);
        dlc_pack_number(bytes, feature->offers);
        dlc_pack_number(bytes, feature->state);
        dlc_pack_text(bytes, feature->reason);
        dlc_pack_text(bytes, feature->name);
        dlc_pack_text(bytes, feature->help);
        dlc_pack_text(bytes, feature->device);
        dlc_pack_text(bytes, feature->endings);
    }
}

static dlc_entry_state unpack_state(dlc_unpacking *from) {
    uint64_t state = dlc_unpack_number(from);
    if (state >= DLC_ENTRY_USABLE && state <= DLC_ENTRY_UNTRIED)
        return (dlc_entry_state)state;
    from->failed = 1;
    return DLC_ENTRY_REFUSED;
}

static void unpack_plugin(dlc_unpacking *from, dlc_report *report) {
    dlc_plugin_entry *plugin = &report->plugin;
    plugin->state = unpack_state(from);
    report->scope = (dlc_report_scope)dlc_unpack_number(from);
    from->failed |= report->scope >= DLC_REPORT_SCOPES;
    plugin->reason = dlc_unpack_text(from);
    plugin->name = dlc_unpack_text(from);
    plugin->version = dlc_unpack_text(from);
    plugin->license = dlc_unpack_text(from);
    plugin->abi_minor = (uint32_t)dlc_unpack_number(from);
    plugin->features = dlc_unpack_number(from);
}

static void unpack_feature(dlc_unpacking *from, dlc_feature_entry *feature) {
    feature->kind = (uint32_t)dlc_unpack_number(from);
    feature->caps = dlc_unpack_number(from);
    feature->offers = (uint32_t)dlc_unpack_number(from);
    feature->state = unpack_state(from);
    feature->reason = dlc_unpack_text(from);
    feature->name = dlc_unpack_text(from);
    feature->help = dlc_unpack_text(from);
    feature->device = dlc_unpack_text(from);
    feature->endings = dlc_unpack_text(from);
    from->failed |= !feature->name ||
                    (feature->state != DLC_ENTRY_USABLE && !feature->reason);
}

/* Whether the report is complete for its state. */
static int is_complete_report(const dlc_plugin_entry *plugin) {
    if (plugin->state == DLC_ENTRY_REFUSED)
        return plugin->reason && !plugin->features;
    return plugin->name && plugin->version && plugin->license && plugin->features &&
           plugin->features <= DLC_FEATURES_MAX &&
           (plugin->state == DLC_ENTRY_USABLE || plugin->state == DLC_ENTRY_UNTRIED ||
            (plugin->state == DLC_ENTRY_UNAVAILABLE && plugin->reason));
}

dlc_status dlc_report_unpack(const char *bytes, size_t size, dlc_report *report) {
    dlc_unpacking from = {.next = bytes, .left = size};
    dlc_report made = {0};
    unpack_plugin(&from, &made);
    if (from.failed || !is_complete_report(&made.plugin))
        return dlc_fail(DLC_ERR_DATA, "the report on a plugin is damaged");
    made.feature = dlc_alloc(made.plugin.features, sizeof *made.feature);
    if (!made.feature)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < made.plugin.features; i++)
        unpack_feature(&from, &made.feature[i]);
    if (from.failed || from.left) {
        dlc_free(made.feature);
        return dlc_fail(DLC_ERR_DATA, "the report on a plugin is damaged");
    }
    made.plugin.feature = made.feature;
    *report = made;
    return DLC_OK;
}

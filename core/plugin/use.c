/* Loads plugins of the registry into this process when they are used. */
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "plugin/check.h"
#include "plugin/object.h"
#include "plugin/registry.h"
#include "plugin/registry_internal.h"
#include "plugin/search.h"

static plugin_item *item_of(const dlc_registry *registry,
                            const dlc_feature_entry *entry) {
    size_t i = 0;
    while (&registry->plugin[i]->entry != entry->plugin)
        i++;
    return registry->plugin[i];
}

/* Opens the plugin in this process, unless it is open: the file must be the one that
 * was inspected, and still be trusted. */
static dlc_status open_plugin(plugin_item *item) {
    const dlc_plugin *plugin = NULL;
    struct stat now;
    size_t features = 0;
    if (item->plugin)
        return DLC_OK;
    DLC_TRY(dlc_path_trust(item->path, &now));
    if (!dlc_stat_same_bytes(
            &now, &item->info)) /* its name may differ: backups and perf create links */
        return dlc_fail(DLC_ERR_PLUGIN, "%s: was changed after it had been inspected",
                        item->path);
    DLC_TRY(dlc_object_open(item->path, &item->info, &plugin));
    DLC_TRY(dlc_plugin_check(item->path, plugin, &features));
    if (features != item->entry.features || strcmp(plugin->name, item->entry.name) != 0)
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: contains a different plugin than when it was inspected",
                        item->path);
    item->plugin = plugin;
    return DLC_OK;
}

static const dlc_feature *feature_of(const plugin_item *item,
                                     const dlc_feature_entry *entry) {
    const dlc_feature *feature = item->plugin->features;
    for (const dlc_feature_entry *e = item->feature; e < entry; e++)
        feature = DLC_NEXT(feature);
    return feature;
}

dlc_status dlc_registry_peek(const dlc_registry *registry,
                             const dlc_feature_entry *entry,
                             const dlc_feature **feature) {
    plugin_item *item = item_of(registry, entry);
    dlc_entry_state state;
    if (entry->state == DLC_ENTRY_REFUSED || entry->state == DLC_ENTRY_IGNORED)
        return dlc_fail(DLC_ERR_PLUGIN, "%s", entry->reason);
    DLC_TRY(open_plugin(item));
    const dlc_feature *found = feature_of(item, entry);
    DLC_TRY(dlc_feature_check(found, &state));
    if (strcmp(found->name, entry->name) != 0 || found->kind != entry->kind)
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: contains a different plugin than when it was inspected",
                        item->path);
    *feature = found;
    return DLC_OK;
}

/* Marks a plugin that turned out not to be usable, with all its features. Drops the
 * cache if it was wrong: DLC_ERR_IO may not last. */
static dlc_status mark_unusable(plugin_item *item, dlc_status rc,
                                dlc_entry_state state) {
    if (rc == DLC_ERR_NOMEM)
        return rc;
    DLC_TRY(plugin_keep_reason(item, dlc_strdup(dlc_detail()), &item->entry.reason));
    item->entry.state = state;
    for (size_t i = 0; i < item->entry.features; i++)
        if (item->feature[i].state == DLC_ENTRY_USABLE) {
            item->feature[i].state = state;
            item->feature[i].reason = item->entry.reason;
        }
    if (rc != DLC_ERR_IO)
        dlc_cache_drop();
    return dlc_fail(DLC_ERR_PLUGIN, "%s", item->entry.reason);
}

dlc_status dlc_registry_use(const dlc_registry *registry,
                            const dlc_feature_entry *entry,
                            const dlc_feature **feature) {
    plugin_item *item = item_of(registry, entry);
    const dlc_feature *found = NULL;
    if (entry->state != DLC_ENTRY_USABLE)
        return dlc_fail(DLC_ERR_PLUGIN, "%s",
                        entry->reason ? entry->reason : "its load() was not called");
    dlc_status rc = dlc_registry_peek(registry, entry, &found);
    if (rc == DLC_ERR_IO) /* the next call may find it */
        return rc;
    if (rc != DLC_OK)
        return mark_unusable(item, rc, DLC_ENTRY_REFUSED);
    if ((rc = dlc_object_load(item->plugin)) != DLC_OK)
        return mark_unusable(item, rc, DLC_ENTRY_UNAVAILABLE);
    *feature = found;
    return DLC_OK;
}

dlc_status dlc_registry_use_first(const dlc_registry *registry, dlc_kind kind,
                                  const dlc_feature **feature) {
    const dlc_feature_entry *entry;
    while ((entry = dlc_registry_usable(registry, kind, 0))) {
        dlc_status rc = dlc_registry_use(registry, entry, feature);
        if (rc != DLC_ERR_PLUGIN)
            return rc;
    }
    return dlc_fail(DLC_ERR_PLUGIN,
                    "no %s can be used here; `dlcore doctor` shows what "
                    "was found and why",
                    dlc_kind_text(kind));
}

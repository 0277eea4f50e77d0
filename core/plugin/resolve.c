/* Gets the reports of all files of a registry, from the cache or a scan, and resolves
 * which plugin or feature is used if several have the same name. */
#include <string.h>

#include "base/memory.h"
#include "plugin/registry.h"
#include "plugin/registry_internal.h"
#include "plugin/report.h"
#include "plugin/scan.h"
#include "plugin/system_stamp.h"

/* ---- Reports ----------------------------------------------------------------- */

static int is_unknown(const plugin_item *item) {
    return !item->entry.state;
}

/* Copies a report into the entries of an item. DLC_ERR_DATA: it is damaged. */
static dlc_status take_report(const dlc_registry *registry, plugin_item *item,
                              const char *bytes, size_t size) {
    dlc_report report;
    DLC_TRY(dlc_report_unpack(bytes, size, &report));
    report.plugin.path = item->path;
    if (!report.plugin.name)
        report.plugin.name = item->name;
    item->entry = report.plugin;
    item->feature = report.feature;
    for (size_t i = 0; i < report.plugin.features; i++)
        item->feature[i].plugin = &item->entry;
    if (report.scope != DLC_REPORT_ONCE) {
        item->report = bytes;
        item->report_size = size;
        item->report_system = report.scope == DLC_REPORT_OF_SYSTEM ? registry->system
                                                                   : 0;
    }
    return DLC_OK;
}

static dlc_status read_cached(dlc_registry *registry) {
    for (size_t i = 0; i < registry->plugins; i++) {
        plugin_item *item = registry->plugin[i];
        const dlc_cached *known = dlc_cache_find(&registry->cache, item->path,
                                                 &item->info, registry->system);
        if (known && is_unknown(item) &&
            take_report(registry, item, known->report, known->size) == DLC_ERR_NOMEM)
            return DLC_ERR_NOMEM;
    }
    return DLC_OK;
}

/* Scans the files that were not in the cache. */
static dlc_status scan_unknown(dlc_registry *registry) {
    size_t files = 0;
    dlc_scan_file *file = dlc_alloc(registry->plugins, sizeof *file);
    if (!file)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < registry->plugins; i++)
        if (is_unknown(registry->plugin[i]))
            file[files++] = (dlc_scan_file){.path = registry->plugin[i]->path,
                                            .info = registry->plugin[i]->info};
    dlc_status rc = dlc_scan_run(file, files, !registry->only_inspect);
    for (size_t i = 0, k = 0; i < registry->plugins && k < files; i++) {
        plugin_item *item = registry->plugin[i];
        if (!is_unknown(item))
            continue;
        item->scanned = file[k++].report;
        if (rc == DLC_OK)
            rc = take_report(registry, item, item->scanned.bytes, item->scanned.length);
    }
    dlc_free(file);
    return rc;
}

/* Writes the cacheable reports; others are dropped. Writes nothing if nothing has
 * changed. */
static dlc_status update_cache(const dlc_registry *registry, int rescan) {
    int changed = rescan;
    dlc_cached *file = dlc_alloc(registry->plugins, sizeof *file);
    if (!file)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < registry->plugins; i++) {
        const plugin_item *item = registry->plugin[i];
        changed |= item->report && item->report == item->scanned.bytes;
        file[i] = (dlc_cached){.path = item->path,
                               .info = item->info,
                               .report = item->report,
                               .size = item->report_size,
                               .system = item->report_system};
    }
    dlc_status rc = DLC_OK;
    if (changed)
        rc = dlc_cache_write(file, registry->plugins, &registry->cache);
    dlc_free(file);
    return rc;
}

/* ---- Precedence -------------------------------------------------------------- */

/* An earlier plugin with the same name, which takes precedence. A refused one that
 * could not be read does not count. */
static const dlc_plugin_entry *find_earlier(const dlc_registry *registry,
                                            const plugin_item *item) {
    for (size_t i = 0; registry->plugin[i] != item; i++) {
        const dlc_plugin_entry *other = &registry->plugin[i]->entry;
        if (other->version && !strcmp(other->name, item->entry.name))
            return other;
    }
    return NULL;
}

static int offers_same(const dlc_feature_entry *a, const dlc_feature_entry *b) {
    return (a->state == DLC_ENTRY_USABLE || a->state == DLC_ENTRY_UNTRIED) &&
           a->kind == b->kind && !strcmp(a->name, b->name) &&
           (a->device == b->device ||
            (a->device && b->device && !strcmp(a->device, b->device)));
}

/* An earlier feature that is the same. */
static const dlc_feature_entry *find_same_feature(const dlc_registry *registry,
                                                  const dlc_feature_entry *feature) {
    for (size_t p = 0;; p++) {
        const plugin_item *item = registry->plugin[p];
        for (size_t f = 0; f < item->entry.features; f++) {
            if (&item->feature[f] == feature)
                return NULL;
            if (offers_same(&item->feature[f], feature))
                return &item->feature[f];
        }
    }
}

static dlc_status resolve_feature(const dlc_registry *registry, plugin_item *item,
                                  dlc_feature_entry *entry) {
    if (entry->state != DLC_ENTRY_USABLE)
        return DLC_OK; /* refused or ignored */
    entry->state = item->entry.state;
    entry->reason = item->entry.reason;
    const dlc_feature_entry *other = find_same_feature(registry, entry);
    if (entry->reason || !other)
        return DLC_OK;
    entry->state = DLC_ENTRY_SHADOWED;
    if (other->plugin != &item->entry)
        return plugin_keep_reason(
            item,
            dlc_format("plugin %s offers the same and comes first",
                       other->plugin->name),
            &entry->reason);
    entry->reason = "the plugin offers it twice; the first one is used";
    return DLC_OK;
}

/* Resolves a plugin and its features against the earlier ones. */
static dlc_status resolve_plugin(const dlc_registry *registry, plugin_item *item) {
    const dlc_plugin_entry *first;
    if (item->entry.state == DLC_ENTRY_REFUSED)
        return DLC_OK;
    if ((first = find_earlier(registry, item))) {
        item->entry.state = DLC_ENTRY_SHADOWED;
        DLC_TRY(plugin_keep_reason(
            item,
            dlc_format("%s: another plugin %s is used, found earlier in %s", item->path,
                       item->entry.name, first->path),
            &item->entry.reason));
    }
    for (size_t i = 0; i < item->entry.features; i++)
        DLC_TRY(resolve_feature(registry, item, &item->feature[i]));
    return DLC_OK;
}

dlc_status plugin_resolve_all(dlc_registry *registry, int rescan) {
    dlc_status rc = DLC_OK;
    if (!registry->only_inspect) {
        registry->system = dlc_system_stamp();
        rc = dlc_cache_read(&registry->cache);
    }
    if (rc == DLC_OK && !rescan)
        rc = read_cached(registry);
    if (rc == DLC_OK)
        rc = scan_unknown(registry);
    if (rc == DLC_OK && !registry->only_inspect)
        rc = update_cache(registry, rescan);
    for (size_t i = 0; rc == DLC_OK && i < registry->plugins; i++)
        rc = resolve_plugin(registry, registry->plugin[i]);
    return rc;
}

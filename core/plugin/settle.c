/* What the files are that the registry has found: reports on them, from the cache or
 * from a scan, and which of them counts where several offer the same. */
#include <string.h>

#include "base/memory.h"
#include "plugin/report.h"
#include "plugin/scan.h"
#include "plugin/store.h"

/* ---- Reports ----------------------------------------------------------------- */

static int is_open_question(const plugin_item *item) {
    return !item->shown.state;
}

/* What a report says becomes what is shown. DLC_ERR_DATA: it is none. */
static dlc_status take_report(plugin_item *item, const char *bytes, size_t size) {
    dlc_report report;
    DLC_TRY(dlc_report_unpack(bytes, size, &report));
    report.plugin.path = item->path;
    if (!report.plugin.name)
        report.plugin.name = item->name;
    item->shown = report.plugin;
    item->feature = report.feature;
    for (size_t i = 0; i < report.plugin.features; i++)
        item->feature[i].plugin = &item->shown;
    if (report.lasting) {
        item->report = bytes;
        item->report_size = size;
    }
    return DLC_OK;
}

static dlc_status look_up(dlc_registry *registry) {
    for (size_t i = 0; i < registry->plugins; i++) {
        plugin_item *item = registry->plugin[i];
        const dlc_cached *known = dlc_cache_find(&registry->cache, item->path,
                                                 &item->info);
        if (known && is_open_question(item) &&
            take_report(item, known->report, known->size) == DLC_ERR_NOMEM)
            return DLC_ERR_NOMEM;
    }
    return DLC_OK;
}

/* Scans what is still open. */
static dlc_status scan(dlc_registry *registry) {
    size_t files = 0;
    dlc_scan_file *file = dlc_alloc(registry->plugins, sizeof *file);
    if (!file)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < registry->plugins; i++)
        if (is_open_question(registry->plugin[i]))
            file[files++] = (dlc_scan_file){.path = registry->plugin[i]->path,
                                            .info = registry->plugin[i]->info};
    dlc_status rc = dlc_scan_run(file, files, !registry->only_inspect);
    for (size_t i = 0, k = 0; i < registry->plugins && k < files; i++) {
        plugin_item *item = registry->plugin[i];
        if (!is_open_question(item))
            continue;
        item->scanned = file[k++].report;
        if (rc == DLC_OK)
            rc = take_report(item, item->scanned.bytes, item->scanned.length);
    }
    dlc_free(file);
    return rc;
}

/* Remembers what lasts; the rest, without a report, is forgotten. Nothing is written
 * where nothing has changed. */
static dlc_status remember(const dlc_registry *registry, int anew) {
    int news = anew;
    dlc_cached *file = dlc_alloc(registry->plugins, sizeof *file);
    if (!file)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < registry->plugins; i++) {
        const plugin_item *item = registry->plugin[i];
        news |= item->report && item->report == item->scanned.bytes;
        file[i] = (dlc_cached){.path = item->path,
                               .info = item->info,
                               .report = item->report,
                               .size = item->report_size};
    }
    dlc_status rc = DLC_OK;
    if (news)
        rc = dlc_cache_write(file, registry->plugins, &registry->cache);
    dlc_free(file);
    return rc;
}

/* ---- Which counts ------------------------------------------------------------ */

/* An earlier plugin with this name, which is then the one that counts; one that was
 * refused (and could not be read) is none. */
static const dlc_plugin_entry *earlier(const dlc_registry *registry,
                                       const plugin_item *item) {
    for (size_t i = 0; registry->plugin[i] != item; i++) {
        const dlc_plugin_entry *other = &registry->plugin[i]->shown;
        if (other->version && !strcmp(other->name, item->shown.name))
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

/* One before it that offers the same. */
static const dlc_feature_entry *same_feature(const dlc_registry *registry,
                                             const dlc_feature_entry *feature) {
    for (size_t p = 0;; p++) {
        const plugin_item *item = registry->plugin[p];
        for (size_t f = 0; f < item->shown.features; f++) {
            if (&item->feature[f] == feature)
                return NULL;
            if (offers_same(&item->feature[f], feature))
                return &item->feature[f];
        }
    }
}

static dlc_status settle_feature(const dlc_registry *registry, plugin_item *item,
                                 dlc_feature_entry *entry) {
    if (entry->state != DLC_ENTRY_USABLE)
        return DLC_OK; /* it has its reason */
    entry->state = item->shown.state;
    entry->reason = item->shown.reason;
    const dlc_feature_entry *other = same_feature(registry, entry);
    if (entry->reason || !other)
        return DLC_OK;
    entry->state = DLC_ENTRY_SHADOWED;
    if (other->plugin != &item->shown)
        return plugin_keep(item,
                           dlc_format("plugin %s offers the same and comes first",
                                      other->plugin->name),
                           &entry->reason);
    entry->reason = "the plugin offers it twice; the first counts";
    return DLC_OK;
}

/* Judges it beside those before it. */
static dlc_status settle(const dlc_registry *registry, plugin_item *item) {
    const dlc_plugin_entry *first;
    if (item->shown.state == DLC_ENTRY_REFUSED)
        return DLC_OK;
    if ((first = earlier(registry, item))) {
        item->shown.state = DLC_ENTRY_SHADOWED;
        DLC_TRY(plugin_keep(
            item,
            dlc_format("%s: plugin %s was found before, in %s, and that one is used",
                       item->path, item->shown.name, first->path),
            &item->shown.reason));
    }
    for (size_t i = 0; i < item->shown.features; i++)
        DLC_TRY(settle_feature(registry, item, &item->feature[i]));
    return DLC_OK;
}

dlc_status plugin_settle_all(dlc_registry *registry, int anew) {
    dlc_status rc = DLC_OK;
    if (!registry->only_inspect)
        rc = dlc_cache_read(&registry->cache);
    if (rc == DLC_OK && !anew)
        rc = look_up(registry);
    if (rc == DLC_OK)
        rc = scan(registry);
    if (rc == DLC_OK && !registry->only_inspect)
        rc = remember(registry, anew);
    for (size_t i = 0; rc == DLC_OK && i < registry->plugins; i++)
        rc = settle(registry, registry->plugin[i]);
    return rc;
}

/* Opens and closes a registry: finds the files, gets the report of each, from the cache
 * or a scan, and resolves which plugin or feature is used if several have the same
 * name.
 */
#include "plugin/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "plugin/cache.h"
#include "plugin/entry.h"
#include "plugin/registry_internal.h"
#include "plugin/scan.h"
#include "plugin/search.h"

/* ---- Memory ---------------------------------------------------------------- */

static void free_plugin(plugin_item *item) {
    for (plugin_reason *reason_item = item->reasons, *next; reason_item;
         reason_item = next) {
        next = reason_item->next;
        dlc_free(reason_item->text);
        dlc_free(reason_item);
    }
    dlc_text_free(&item->scanned);
    dlc_free(item->feature);
    dlc_free(item->path);
    dlc_free(item->name);
    dlc_free(item);
}

dlc_status plugin_keep_reason(plugin_item *item, char *text, const char **kept) {
    plugin_reason *reason_item = text ? dlc_alloc(1, sizeof *reason_item) : NULL;
    if (!reason_item) {
        dlc_free(text);
        return DLC_ERR_NOMEM;
    }
    *reason_item = (plugin_reason){.next = item->reasons, .text = text};
    item->reasons = reason_item;
    *kept = text;
    return DLC_OK;
}

void dlc_registry_close(dlc_registry *registry) {
    if (!registry)
        return;
    for (size_t i = 0; i < registry->plugins; i++)
        free_plugin(registry->plugin[i]);
    for (size_t i = 0; i < registry->folders; i++) {
        dlc_free((void *)registry->folder[i].path);
        dlc_free((void *)registry->folder[i].reason);
    }
    dlc_cache_free(&registry->cache);
    dlc_free(registry->plugin);
    dlc_free(registry->folder);
    dlc_free(registry);
}

/* ---- Files and folders ------------------------------------------------------- */

static dlc_status add_item(dlc_registry *registry, const char *path,
                           plugin_item **added) {
    plugin_item **grown = dlc_grow_by_one(registry->plugin, registry->plugins,
                                          sizeof(plugin_item *));
    if (!grown)
        return DLC_ERR_NOMEM;
    registry->plugin = grown;
    plugin_item *item = dlc_alloc(1, sizeof *item);
    if (!item)
        return DLC_ERR_NOMEM;
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    size_t length = strlen(base);
    if (length > 3 && !strcmp(base + length - 3, ".so"))
        length -= 3;
    item->name = dlc_strndup(base, length);
    item->path = dlc_strdup(path);
    if (!item->name || !item->path) {
        free_plugin(item);
        return DLC_ERR_NOMEM;
    }
    item->entry.path = item->path;
    item->entry.name = item->name;
    registry->plugin[registry->plugins++] = item;
    *added = item;
    return DLC_OK;
}

/* Adds a file that is not even opened; takes ownership of `reason`. */
static dlc_status add_refused(dlc_registry *registry, const char *path, char *reason) {
    plugin_item *item;
    dlc_status rc = reason && path ? add_item(registry, path, &item) : DLC_ERR_NOMEM;
    if (rc != DLC_OK) {
        dlc_free(reason);
        return rc;
    }
    item->entry.state = DLC_ENTRY_REFUSED;
    return plugin_keep_reason(item, reason, &item->entry.reason);
}

static int is_listed_file(const dlc_registry *registry, const struct stat *info) {
    for (size_t i = 0; i < registry->plugins; i++)
        if (registry->plugin[i]->info.st_ino == info->st_ino &&
            registry->plugin[i]->info.st_dev == info->st_dev)
            return 1;
    return 0;
}

static dlc_status add_plugin_file(dlc_registry *registry, const char *folder,
                                  const char *name) {
    struct stat info;
    char *path = NULL;
    plugin_item *item;
    dlc_status rc = dlc_file_trust(folder, name, &path, &info);
    if (rc == DLC_ERR_PLUGIN) {
        char *reason = dlc_strdup(dlc_detail());
        path = dlc_format("%s/%s", folder, name);
        rc = add_refused(registry, path, reason);
    } else if (rc == DLC_OK && !is_listed_file(registry, &info)) {
        rc = add_item(registry, path, &item);
        if (rc == DLC_OK)
            item->info = info;
    }
    dlc_free(path);
    return rc;
}

static dlc_status add_plugin_files(dlc_registry *registry, const dlc_listing *listing,
                                   const char *only) {
    if (only)
        return add_plugin_file(registry, listing->folder, only);
    for (size_t i = 0; i < listing->names; i++)
        DLC_TRY(add_plugin_file(registry, listing->folder, listing->name[i]));
    return DLC_OK;
}

/* Adds a folder and its files. `rc`, if not DLC_OK, means that the folder is skipped,
 * for the reason in the detail sentence. `only` is the one file wanted; NULL: all.
 * `what.path` is copied. */
static dlc_status add_folder(dlc_registry *registry, dlc_status rc,
                             dlc_folder_entry what, const char *only) {
    dlc_listing listing = {0};
    dlc_folder_entry *grown = dlc_grow_by_one(registry->folder, registry->folders,
                                              sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    registry->folder = grown;
    if (!(what.path = dlc_strdup(what.path)))
        return DLC_ERR_NOMEM;
    dlc_folder_entry *folder = &registry->folder[registry->folders++];
    *folder = what;
    if (rc == DLC_OK)
        rc = dlc_listing_read(folder->path, &listing);
    if (rc == DLC_ERR_PLUGIN) {
        folder->reason = dlc_strdup(dlc_detail());
        return folder->reason ? DLC_OK : DLC_ERR_NOMEM;
    }
    if (rc == DLC_OK)
        rc = add_plugin_files(registry, &listing, only);
    dlc_listing_free(&listing);
    return rc;
}

static dlc_status add_default_folder(dlc_registry *registry) {
    char *path = NULL;
    dlc_status rc = dlc_search_default(&path);
    if (rc != DLC_ERR_NOMEM)
        rc = add_folder(registry, rc,
                        (dlc_folder_entry){.path = path ? path : "", .is_default = 1},
                        NULL);
    dlc_free(path);
    return rc;
}

/* Adds one entry of DLCORE_PLUGIN_PATH. */
static dlc_status add_path_entry(dlc_registry *registry, const char *path) {
    dlc_status rc = DLC_OK;
    if (!*path)
        rc = dlc_fail(DLC_ERR_PLUGIN,
                      "DLCORE_PLUGIN_PATH has an empty entry, which would be the "
                      "current directory; it is ignored");
    else if (*path != '/')
        rc = dlc_fail(DLC_ERR_PLUGIN,
                      "DLCORE_PLUGIN_PATH has \"%s\", which doesn't begin with '/'; it "
                      "is ignored",
                      path);
    return add_folder(registry, rc, (dlc_folder_entry){.path = path}, NULL);
}

static dlc_status add_path_entries(dlc_registry *registry) {
    const char *given = secure_getenv("DLCORE_PLUGIN_PATH");
    if (!given || !*given)
        return DLC_OK;
    char *entries = dlc_strdup(given);
    dlc_status rc = entries ? DLC_OK : DLC_ERR_NOMEM;
    for (char *rest = entries, *entry; rc == DLC_OK && (entry = strsep(&rest, ":"));)
        rc = add_path_entry(registry, entry);
    dlc_free(entries);
    return rc;
}

/* ---- Reports ----------------------------------------------------------------- */

static int is_unknown(const plugin_item *item) {
    return !item->entry.state;
}

/* Copies a report into the entries of an item. DLC_ERR_DATA: it is damaged. */
static dlc_status apply_report(const dlc_registry *registry, plugin_item *item,
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
            apply_report(registry, item, known->report, known->size) == DLC_ERR_NOMEM)
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
            rc = apply_report(registry, item, item->scanned.bytes,
                              item->scanned.length);
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

/* Gets the reports of all files, and resolves which plugin takes precedence over which.
 * `rescan`: ignore the cache. */
static dlc_status resolve_all(dlc_registry *registry, int rescan) {
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

/* ---- Opening ----------------------------------------------------------------------
 */

static dlc_status open_registry(int rescan, dlc_registry **registry) {
    dlc_registry *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_status rc = add_default_folder(made);
    if (rc == DLC_OK)
        rc = add_path_entries(made);
    if (rc == DLC_OK)
        rc = resolve_all(made, rescan);
    if (rc == DLC_OK)
        *registry = made;
    else
        dlc_registry_close(made);
    return rc;
}

dlc_status dlc_registry_open(dlc_registry **registry) {
    return open_registry(0, registry);
}

dlc_status dlc_registry_rescan(dlc_registry **registry) {
    return open_registry(1, registry);
}

/* Splits a path into its folder, which must exist, and the file name. */
static dlc_status split_path(const char *path, char **folder, const char **name) {
    const char *slash = strrchr(path, '/');
    *folder = slash ? dlc_strndup(path, slash > path ? (size_t)(slash - path) : 1)
                    : dlc_strdup(".");
    *name = slash ? slash + 1 : path;
    if (!*folder)
        return DLC_ERR_NOMEM;
    if (access(*folder, F_OK) == 0)
        return DLC_OK;
    dlc_status rc = dlc_fail(DLC_ERR_PLUGIN, "%s: cannot be found: %s", path,
                             strerror(errno));
    dlc_free(*folder);
    return rc;
}

dlc_status dlc_registry_inspect(const char *path, dlc_registry **registry) {
    char *folder = NULL;
    const char *name;
    DLC_TRY(split_path(path, &folder, &name));
    dlc_registry *made = dlc_alloc(1, sizeof *made);
    dlc_status rc = made ? DLC_OK : DLC_ERR_NOMEM;
    if (rc == DLC_OK) {
        made->only_inspect = 1;
        rc = add_folder(made, DLC_OK, (dlc_folder_entry){.path = folder}, name);
    }
    /* In an untrusted folder it does not matter what the file is. */
    if (rc == DLC_OK && made->folder[0].reason)
        rc = add_refused(made, path, dlc_strdup(made->folder[0].reason));
    if (rc == DLC_OK)
        rc = resolve_all(made, 1);
    dlc_free(folder);
    if (rc == DLC_OK)
        *registry = made;
    else
        dlc_registry_close(made);
    return rc;
}

/* See registry.h. Here the registry is filled; find.c reads it. */
#include "plugin/registry.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "plugin/check.h"
#include "plugin/object.h"
#include "plugin/search.h"
#include "plugin/store.h"

/* ---- Memory ---------------------------------------------------------------- */

static void free_plugin(plugin_item *item) {
    for (size_t i = 0; i < item->shown.features; i++)
        dlc_free((void *)item->feature[i].reason);
    dlc_free(item->feature);
    dlc_free((void *)item->shown.path);
    dlc_free((void *)item->shown.reason);
    dlc_free(item->name);
    dlc_free(item);
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
    dlc_free(registry->plugin);
    dlc_free(registry->folder);
    dlc_free(registry);
}

/* Room for one more element; `array` is a pointer to the array's pointer. */
static dlc_status make_room(void *array, size_t count, size_t size) {
    void *old, *grown;
    if (count & (count - 1) || count == 1)
        return DLC_OK; /* rooms are 2, 4, 8, ... */
    memcpy(&old, array, sizeof old);
    grown = dlc_grow(old, count, count ? 2 * count : 2, size);
    if (!grown)
        return DLC_ERR_NOMEM;
    memcpy(array, &grown, sizeof grown);
    return DLC_OK;
}

/* Files a refusal: the sentence of `rc` becomes *reason. Only a lack of memory
 * goes on to the caller. */
static dlc_status keep_reason(dlc_status rc, const char **reason) {
    if (rc == DLC_ERR_NOMEM)
        return rc;
    *reason = dlc_strdup(dlc_detail());
    return *reason ? DLC_OK : DLC_ERR_NOMEM;
}

/* ---- One plugin -------------------------------------------------------------- */

static dlc_status add_item(dlc_registry *registry, const char *path,
                           plugin_item **added) {
    // NOLINTNEXTLINE(bugprone-sizeof-expression): its elements are pointers
    DLC_TRY(make_room(&registry->plugin, registry->plugins, sizeof *registry->plugin));
    plugin_item *item = dlc_alloc(1, sizeof *item);
    if (!item)
        return DLC_ERR_NOMEM;
    const char *base = strrchr(path, '/');
    base = base ? base + 1 : path;
    size_t length = strlen(base);
    if (length > 3 && !strcmp(base + length - 3, ".so"))
        length -= 3;
    item->name = dlc_strndup(base, length);
    item->shown.path = dlc_strdup(path);
    if (!item->name || !item->shown.path) {
        free_plugin(item);
        return DLC_ERR_NOMEM;
    }
    item->shown.name = item->name;
    registry->plugin[registry->plugins++] = item;
    *added = item;
    return DLC_OK;
}

/* An earlier plugin with this name, which is then the one that counts; one that was
 * refused (and has no descriptor here) is none. */
static const dlc_plugin_entry *earlier(const dlc_registry *registry,
                                       const plugin_item *item) {
    for (size_t i = 0; registry->plugin[i] != item; i++) {
        const dlc_plugin_entry *other = &registry->plugin[i]->shown;
        if (other->plugin && !strcmp(other->name, item->shown.name))
            return other;
    }
    return NULL;
}

static const dlc_feature_entry *same_feature(const dlc_registry *registry,
                                             const dlc_feature *feature) {
    const dlc_feature_entry *other;
    for (size_t i = 0; (other = dlc_registry_feature(registry, feature->kind, i));
         i++) {
        const char *a = other->feature->device, *b = feature->device;
        if ((other->state == DLC_ENTRY_USABLE || other->state == DLC_ENTRY_UNTRIED) &&
            !strcmp(other->feature->name, feature->name) &&
            (a == b || (a && b && !strcmp(a, b))))
            return other;
    }
    return NULL;
}

static dlc_status judge_feature(const dlc_registry *registry, const plugin_item *item,
                                dlc_feature_entry *entry) {
    dlc_status rc = dlc_feature_check(entry->feature, &entry->state);
    if (rc != DLC_OK)
        return keep_reason(rc, &entry->reason);
    if (item->shown.state == DLC_ENTRY_UNAVAILABLE ||
        item->shown.state == DLC_ENTRY_SHADOWED) {
        entry->state = item->shown.state;
        entry->reason = dlc_strdup(item->shown.reason);
        return entry->reason ? DLC_OK : DLC_ERR_NOMEM;
    }
    const dlc_feature_entry *other = same_feature(registry, entry->feature);
    if (other) {
        entry->state = DLC_ENTRY_SHADOWED;
        entry->reason = other->plugin == &item->shown
                            ? dlc_strdup("the plugin offers it twice; the first counts")
                            : dlc_format("plugin %s offers the same and comes first",
                                         other->plugin->name);
        return entry->reason ? DLC_OK : DLC_ERR_NOMEM;
    }
    entry->state = item->shown.state;
    return DLC_OK;
}

static dlc_status judge_features(const dlc_registry *registry, plugin_item *item,
                                 size_t count) {
    item->feature = dlc_alloc(count, sizeof *item->feature);
    if (!item->feature)
        return DLC_ERR_NOMEM;
    item->shown.feature = item->feature;
    const dlc_feature *feature = item->shown.plugin->features;
    for (size_t i = 0; i < count; i++, feature = DLC_NEXT(feature)) {
        item->feature[i] = (dlc_feature_entry){.feature = feature,
                                               .plugin = &item->shown};
        dlc_status rc = judge_feature(registry, item, &item->feature[i]);
        item->shown.features = i + 1;
        if (rc != DLC_OK)
            return rc;
    }
    return DLC_OK;
}

/* What is the state of a sound plugin? */
static dlc_status settle(const dlc_registry *registry, plugin_item *item) {
    const dlc_plugin_entry *first = earlier(registry, item);
    if (first) {
        item->shown.state = DLC_ENTRY_SHADOWED;
        item->shown.reason = dlc_format(
            "%s: plugin %s was found before, in %s, and that one is used",
            item->shown.path, item->shown.name, first->path);
        return item->shown.reason ? DLC_OK : DLC_ERR_NOMEM;
    }
    if (registry->only_inspect) {
        item->shown.state = DLC_ENTRY_UNTRIED;
        return DLC_OK;
    }
    item->shown.state = DLC_ENTRY_USABLE;
    dlc_status rc = dlc_object_load(item->shown.plugin);
    if (rc == DLC_OK)
        return DLC_OK;
    item->shown.state = DLC_ENTRY_UNAVAILABLE;
    return keep_reason(rc, &item->shown.reason);
}

static dlc_status judge_plugin(dlc_registry *registry, plugin_item *item) {
    const dlc_plugin *plugin;
    size_t count = 0;
    dlc_status rc = dlc_object_open(item->shown.path, &item->info, &plugin);
    if (rc == DLC_OK)
        rc = dlc_plugin_check(item->shown.path, plugin, &count);
    if (rc != DLC_OK) {
        item->shown.state = DLC_ENTRY_REFUSED;
        return keep_reason(rc, &item->shown.reason);
    }
    item->shown.plugin = plugin;
    item->shown.name = plugin->name;
    DLC_TRY(settle(registry, item));
    return judge_features(registry, item, count);
}

static int is_known(const dlc_registry *registry, const struct stat *info) {
    for (size_t i = 0; i < registry->plugins; i++)
        if (registry->plugin[i]->info.st_ino == info->st_ino &&
            registry->plugin[i]->info.st_dev == info->st_dev)
            return 1;
    return 0;
}

/* ---- Files and folders ------------------------------------------------------------
 */

static dlc_status add_refused(dlc_registry *registry, const char *path,
                              const char *reason) {
    plugin_item *item;
    DLC_TRY(add_item(registry, path, &item));
    item->shown.state = DLC_ENTRY_REFUSED;
    item->shown.reason = dlc_strdup(reason);
    return item->shown.reason ? DLC_OK : DLC_ERR_NOMEM;
}

static dlc_status take_trusted(dlc_registry *registry, const char *path,
                               const struct stat *info) {
    plugin_item *item;
    if (is_known(registry, info))
        return DLC_OK;
    DLC_TRY(add_item(registry, path, &item));
    item->info = *info;
    return judge_plugin(registry, item);
}

static dlc_status take_file(dlc_registry *registry, const char *folder,
                            const char *name) {
    struct stat info;
    char *path = NULL;
    const char *reason = NULL;
    dlc_status rc = dlc_file_trust(folder, name, &path, &info);
    if (rc == DLC_OK) {
        rc = take_trusted(registry, path, &info);
    } else if ((rc = keep_reason(rc, &reason)) == DLC_OK) {
        path = dlc_format("%s/%s", folder, name);
        rc = path ? add_refused(registry, path, reason) : DLC_ERR_NOMEM;
    }
    dlc_free((void *)reason);
    dlc_free(path);
    return rc;
}

static dlc_status take_files(dlc_registry *registry, const dlc_listing *listing,
                             const char *only) {
    if (only)
        return take_file(registry, listing->folder, only);
    for (size_t i = 0; i < listing->names; i++)
        DLC_TRY(take_file(registry, listing->folder, listing->name[i]));
    return DLC_OK;
}

/* `path` is copied. `rc`, if it is no DLC_OK, says why this folder isn't read; the
 * sentence is set. `only` is the one file wanted; NULL: all. */
static dlc_status take_folder(dlc_registry *registry, dlc_status rc,
                              dlc_folder_entry what, const char *only) {
    dlc_listing listing = {0};
    DLC_TRY(make_room(&registry->folder, registry->folders, sizeof *registry->folder));
    if (!(what.path = dlc_strdup(what.path)))
        return DLC_ERR_NOMEM;
    dlc_folder_entry *folder = &registry->folder[registry->folders++];
    *folder = what;
    if (rc == DLC_OK)
        rc = dlc_listing_read(folder->path, &listing);
    if (rc != DLC_OK)
        return keep_reason(rc, &folder->reason);
    rc = take_files(registry, &listing, only);
    dlc_listing_free(&listing);
    return rc;
}

static dlc_status take_beside(dlc_registry *registry) {
    char *path = NULL;
    dlc_status rc = dlc_search_beside(&path);
    if (rc != DLC_ERR_NOMEM)
        rc = take_folder(registry, rc,
                         (dlc_folder_entry){.path = path ? path : "", .is_default = 1},
                         NULL);
    dlc_free(path);
    return rc;
}

/* One entry of DLCORE_PLUGIN_PATH. */
static dlc_status take_entry(dlc_registry *registry, const char *path) {
    dlc_status rc = DLC_OK;
    if (!*path)
        rc = dlc_fail(DLC_ERR_PLUGIN,
                      "DLCORE_PLUGIN_PATH has an empty entry, which would be the "
                      "current directory; it is left out");
    else if (*path != '/')
        rc = dlc_fail(DLC_ERR_PLUGIN,
                      "DLCORE_PLUGIN_PATH has \"%s\", which doesn't begin with '/'; it "
                      "is left out",
                      path);
    return take_folder(registry, rc, (dlc_folder_entry){.path = path}, NULL);
}

static dlc_status take_entries(dlc_registry *registry) {
    const char *given = secure_getenv("DLCORE_PLUGIN_PATH");
    if (!given || !*given)
        return DLC_OK;
    char *entries = dlc_strdup(given);
    dlc_status rc = entries ? DLC_OK : DLC_ERR_NOMEM;
    for (char *rest = entries, *entry; rc == DLC_OK && (entry = strsep(&rest, ":"));)
        rc = take_entry(registry, entry);
    dlc_free(entries);
    return rc;
}

dlc_status dlc_registry_open(dlc_registry **registry) {
    dlc_registry *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_status rc = take_beside(made);
    if (rc == DLC_OK)
        rc = take_entries(made);
    if (rc == DLC_OK)
        *registry = made;
    else
        dlc_registry_close(made);
    return rc;
}

/* The file's folder as an absolute path, and its name in there. */
static dlc_status split_path(const char *path, char **folder, const char **name) {
    const char *slash = strrchr(path, '/');
    char *given = slash ? dlc_strndup(path, (size_t)(slash - path) + 1)
                        : dlc_strdup(".");
    if (!given)
        return DLC_ERR_NOMEM;
    dlc_status rc = dlc_path_resolve(given, folder);
    dlc_free(given);
    *name = slash ? slash + 1 : path;
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
        rc = take_folder(made, DLC_OK, (dlc_folder_entry){.path = folder}, name);
    }
    /* A folder that can't be trusted: what the file is doesn't matter then. */
    if (rc == DLC_OK && made->folder[0].reason)
        rc = add_refused(made, path, made->folder[0].reason);
    dlc_free(folder);
    if (rc == DLC_OK)
        *registry = made;
    else
        dlc_registry_close(made);
    return rc;
}

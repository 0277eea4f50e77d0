/* Opens and closes a registry: finds the files; resolve.c finds out what they are. */
#include "plugin/registry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "plugin/registry_internal.h"
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

/* Makes room for one more element; `array` is the address of the pointer. */
static dlc_status make_room(void *array, size_t count, size_t size) {
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = dlc_grow_by_one(old, count, size);
    if (!grown)
        return DLC_ERR_NOMEM;
    memcpy(array, &grown, sizeof grown);
    return DLC_OK;
}

/* ---- Files and folders ------------------------------------------------------- */

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

static int is_known(const dlc_registry *registry, const struct stat *info) {
    for (size_t i = 0; i < registry->plugins; i++)
        if (registry->plugin[i]->info.st_ino == info->st_ino &&
            registry->plugin[i]->info.st_dev == info->st_dev)
            return 1;
    return 0;
}

static dlc_status add_file(dlc_registry *registry, const char *folder,
                           const char *name) {
    struct stat info;
    char *path = NULL;
    plugin_item *item;
    dlc_status rc = dlc_file_trust(folder, name, &path, &info);
    if (rc == DLC_ERR_PLUGIN) {
        char *reason = dlc_strdup(dlc_detail());
        path = dlc_format("%s/%s", folder, name);
        rc = add_refused(registry, path, reason);
    } else if (rc == DLC_OK && !is_known(registry, &info)) {
        rc = add_item(registry, path, &item);
        if (rc == DLC_OK)
            item->info = info;
    }
    dlc_free(path);
    return rc;
}

static dlc_status add_files(dlc_registry *registry, const dlc_listing *listing,
                            const char *only) {
    if (only)
        return add_file(registry, listing->folder, only);
    for (size_t i = 0; i < listing->names; i++)
        DLC_TRY(add_file(registry, listing->folder, listing->name[i]));
    return DLC_OK;
}

/* Adds a folder and its files. `rc`, if not DLC_OK, means that the folder is skipped,
 * for the reason in the detail sentence. `only` is the one file wanted; NULL: all.
 * `what.path` is copied. */
static dlc_status add_folder(dlc_registry *registry, dlc_status rc,
                             dlc_folder_entry what, const char *only) {
    dlc_listing listing = {0};
    DLC_TRY(make_room(&registry->folder, registry->folders, sizeof *registry->folder));
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
        rc = add_files(registry, &listing, only);
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

static dlc_status open_registry(int rescan, dlc_registry **registry) {
    dlc_registry *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_status rc = add_default_folder(made);
    if (rc == DLC_OK)
        rc = add_path_entries(made);
    if (rc == DLC_OK)
        rc = plugin_resolve_all(made, rescan);
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
        rc = plugin_resolve_all(made, 1);
    dlc_free(folder);
    if (rc == DLC_OK)
        *registry = made;
    else
        dlc_registry_close(made);
    return rc;
}

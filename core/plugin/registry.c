/* See registry.h. Here files are looked for; settle.c says what they are. */
#include "plugin/registry.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "plugin/search.h"
#include "plugin/store.h"

/* ---- Memory ---------------------------------------------------------------- */

static void free_plugin(plugin_item *item) {
    for (plugin_sentence *said = item->said, *next; said; said = next) {
        next = said->next;
        dlc_free(said->text);
        dlc_free(said);
    }
    dlc_text_free(&item->scanned);
    dlc_free(item->feature);
    dlc_free(item->path);
    dlc_free(item->name);
    dlc_free(item);
}

dlc_status plugin_keep(plugin_item *item, char *text, const char **kept) {
    plugin_sentence *said = text ? dlc_alloc(1, sizeof *said) : NULL;
    if (!said) {
        dlc_free(text);
        return DLC_ERR_NOMEM;
    }
    *said = (plugin_sentence){.next = item->said, .text = text};
    item->said = said;
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
    item->shown.path = item->path;
    item->shown.name = item->name;
    registry->plugin[registry->plugins++] = item;
    *added = item;
    return DLC_OK;
}

/* One that is not even opened, for the detail sentence. */
static dlc_status add_refused(dlc_registry *registry, const char *path, char *reason) {
    plugin_item *item;
    dlc_status rc = reason && path ? add_item(registry, path, &item) : DLC_ERR_NOMEM;
    if (rc != DLC_OK) {
        dlc_free(reason);
        return rc;
    }
    item->shown.state = DLC_ENTRY_REFUSED;
    return plugin_keep(item, reason, &item->shown.reason);
}

static int is_known(const dlc_registry *registry, const struct stat *info) {
    for (size_t i = 0; i < registry->plugins; i++)
        if (registry->plugin[i]->info.st_ino == info->st_ino &&
            registry->plugin[i]->info.st_dev == info->st_dev)
            return 1;
    return 0;
}

static dlc_status take_file(dlc_registry *registry, const char *folder,
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
    if (rc == DLC_ERR_PLUGIN) {
        folder->reason = dlc_strdup(dlc_detail());
        return folder->reason ? DLC_OK : DLC_ERR_NOMEM;
    }
    if (rc == DLC_OK)
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

static dlc_status open_registry(int anew, dlc_registry **registry) {
    dlc_registry *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_status rc = take_beside(made);
    if (rc == DLC_OK)
        rc = take_entries(made);
    if (rc == DLC_OK)
        rc = plugin_settle_all(made, anew);
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
        rc = add_refused(made, path, dlc_strdup(made->folder[0].reason));
    if (rc == DLC_OK)
        rc = plugin_settle_all(made, 1);
    dlc_free(folder);
    if (rc == DLC_OK)
        *registry = made;
    else
        dlc_registry_close(made);
    return rc;
}

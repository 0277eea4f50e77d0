/* Finds plugin files, and checks that they and their folders can be trusted. */
#include "plugin/search.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "plugin/trust.h"

/* realpath(), into memory of dlc_alloc. */
static dlc_status path_resolve(const char *path, char **real) {
    char *found = realpath(path, NULL);
    if (!found) {
        if (errno == ENOMEM)
            return dlc_fail(DLC_ERR_NOMEM, "out of memory");
        return dlc_fail(DLC_ERR_PLUGIN, "%s: cannot be found: %s", path,
                        strerror(errno));
    }
    *real = dlc_strdup(found);
    free(found);
    return *real ? DLC_OK : DLC_ERR_NOMEM;
}

/* The path of libdlcore without links. */
static dlc_status find_library(char **library) {
    static const char anchor; /* any address inside this library */
    Dl_info where;
    if (!dladdr(&anchor, &where))
        return dlc_fail(DLC_ERR_PLUGIN, "cannot find out where libdlcore is");
    /* A relative path is wrong as soon as the current directory changes. */
    if (where.dli_fname[0] != '/')
        return dlc_fail(DLC_ERR_PLUGIN,
                        "libdlcore was loaded by a relative path (%s), so the plugins "
                        "beside it cannot be found reliably",
                        where.dli_fname);
    return path_resolve(where.dli_fname, library);
}

dlc_status dlc_search_default(char **folder) {
    char *library = NULL;
    dlc_status rc = find_library(&library);
    if (!library)
        return rc;
    *folder = dlc_format("%.*s/dlcore/0", (int)(strrchr(library, '/') - library),
                         library);
    dlc_free(library);
    return *folder ? DLC_OK : DLC_ERR_NOMEM;
}

static dlc_status trust_folder(const char *folder, char **real) {
    char *library = NULL;
    dlc_status rc = find_library(&library);
    if (rc != DLC_ERR_NOMEM) /* a library that is not found excuses no folder */
        rc = dlc_trust_folder(folder, library, real);
    dlc_free(library);
    return rc;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int is_plugin_name(const char *name) {
    size_t length = strlen(name);
    return name[0] != '.' && length > 3 && !strcmp(name + length - 3, ".so");
}

/* Returns the name of the next plugin; NULL at the end, or with errno set if reading
 * failed. */
static const char *next_name(DIR *stream) {
    const struct dirent *entry;
    do {
        errno = 0;
        entry = readdir(stream);
    } while (entry && !is_plugin_name(entry->d_name));
    return entry ? entry->d_name : NULL;
}

static dlc_status read_names(DIR *stream, const char *folder, dlc_listing *listing) {
    for (const char *name; (name = next_name(stream));) {
        char **grown = dlc_grow_by_one(listing->name, listing->names,
                                       sizeof *listing->name);
        if (!grown)
            return DLC_ERR_NOMEM;
        listing->name = grown;
        if (!(listing->name[listing->names] = dlc_strdup(name)))
            return DLC_ERR_NOMEM;
        listing->names++;
    }
    if (errno)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: the folder cannot be read: %s", folder,
                        strerror(errno));
    if (listing->names)
        qsort(listing->name, listing->names, sizeof *listing->name, by_name);
    return DLC_OK;
}

dlc_status dlc_listing_read(const char *folder, dlc_listing *listing) {
    dlc_listing found = {0};
    DIR *stream = NULL;
    dlc_status rc = trust_folder(folder, &found.folder);
    if (rc == DLC_OK && (stream = opendir(found.folder)))
        rc = read_names(stream, folder, &found);
    else if (rc == DLC_OK)
        rc = dlc_fail(errno == ENOMEM ? DLC_ERR_NOMEM : DLC_ERR_PLUGIN,
                      "%s: the folder cannot be read: %s", folder, strerror(errno));
    if (stream)
        closedir(stream);
    if (rc == DLC_OK)
        *listing = found;
    else
        dlc_listing_free(&found);
    return rc;
}

void dlc_listing_free(dlc_listing *listing) {
    for (size_t i = 0; i < listing->names; i++)
        dlc_free(listing->name[i]);
    dlc_free(listing->name);
    dlc_free(listing->folder);
    *listing = (dlc_listing){0};
}

dlc_status dlc_path_trust(const char *path, struct stat *info) {
    char *real = NULL;
    const char *slash = strrchr(path, '/');
    char *folder = dlc_strndup(path, slash > path ? (size_t)(slash - path) : 1);
    if (!folder)
        return DLC_ERR_NOMEM;
    dlc_status rc = trust_folder(folder, &real);
    dlc_free(folder);
    dlc_free(real);
    return rc == DLC_OK ? dlc_trust_file(path, info) : rc;
}

dlc_status dlc_file_trust(const char *folder, const char *name, char **real,
                          struct stat *info) {
    char *found = NULL;
    char *path = dlc_format("%s/%s", folder, name);
    if (!path)
        return DLC_ERR_NOMEM;
    dlc_status rc = path_resolve(path, &found);
    if (rc != DLC_OK)
        goto out;
    size_t length = strlen(folder);
    if (strncmp(found, folder, length) != 0 || found[length] != '/' ||
        strchr(found + length + 1, '/')) {
        rc = dlc_fail(DLC_ERR_PLUGIN,
                      "%s: a symbolic link that leads out of its folder, "
                      "to %s",
                      path, found);
        goto out;
    }
    rc = dlc_trust_file(found, info);
out:
    dlc_free(path);
    if (rc == DLC_OK)
        *real = found;
    else
        dlc_free(found);
    return rc;
}

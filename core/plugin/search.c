/* Finds plugin files, and checks owner and mode of files and folders. */
#include "plugin/search.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

dlc_status dlc_path_resolve(const char *path, char **real) {
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

dlc_status dlc_search_default(char **folder) {
    static const char anchor; /* any address inside this library */
    Dl_info where;
    char *library;
    if (!dladdr(&anchor, &where))
        return dlc_fail(DLC_ERR_PLUGIN, "cannot find out where libdlcore is");
    /* A relative path is wrong as soon as the current directory changes. */
    if (where.dli_fname[0] != '/')
        return dlc_fail(DLC_ERR_PLUGIN,
                        "libdlcore was loaded by a relative path (%s), so the plugins "
                        "beside it cannot be found reliably",
                        where.dli_fname);
    DLC_TRY(dlc_path_resolve(where.dli_fname, &library));
    *folder = dlc_format("%.*s/dlcore/0", (int)(strrchr(library, '/') - library),
                         library);
    dlc_free(library);
    return *folder ? DLC_OK : DLC_ERR_NOMEM;
}

/* Checks that only root and this user can change it. */
static dlc_status trust_owner_and_mode(const char *what, const char *path,
                                       const struct stat *info) {
    if (info->st_uid != 0 && info->st_uid != geteuid())
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: the %s belongs to user %u, who is neither root nor the "
                        "current user",
                        path, what, (unsigned)info->st_uid);
    if (info->st_mode & (S_IWGRP | S_IWOTH))
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: the %s is writable by %s (mode %03o); fix it with: chmod "
                        "go-w %s",
                        path, what, info->st_mode & S_IWOTH ? "all users" : "its group",
                        (unsigned)info->st_mode & 0777u, path);
    return DLC_OK;
}

/* Checks the folders above: whoever may write to one could replace what is below,
 * unless it is sticky as /tmp. `path` is resolved. */
static dlc_status trust_parents(const char *path) {
    dlc_status rc = DLC_OK;
    char *above = dlc_strdup(path);
    if (!above)
        return DLC_ERR_NOMEM;
    for (char *end; rc == DLC_OK && (end = strrchr(above, '/')) && end > above;) {
        struct stat info;
        *end = '\0';
        if (stat(above, &info) == 0 && (info.st_mode & S_IWOTH) &&
            !(info.st_mode & S_ISVTX))
            rc = dlc_fail(
                DLC_ERR_PLUGIN,
                "%s: any user may replace this folder, because %s is writable by "
                "all (mode %03o); fix it with: chmod o-w %s",
                path, above, (unsigned)info.st_mode & 0777u, above);
    }
    dlc_free(above);
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
    struct stat info;
    DIR *stream = NULL;
    dlc_status rc = DLC_OK;

    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &info) != 0) {
        rc = dlc_fail(DLC_ERR_PLUGIN, "%s: the folder cannot be read: %s", folder,
                      strerror(errno));
        goto out;
    }
    if ((rc = trust_owner_and_mode("folder", folder, &info)) != DLC_OK ||
        (rc = dlc_path_resolve(folder, &found.folder)) != DLC_OK ||
        (rc = trust_parents(found.folder)) != DLC_OK)
        goto out;
    if (!(stream = fdopendir(fd))) {
        rc = dlc_fail(DLC_ERR_PLUGIN, "%s: the folder cannot be read: %s", folder,
                      strerror(errno));
        goto out;
    }
    fd = -1; /* owned by the stream now */
    rc = read_names(stream, folder, &found);
out:
    if (stream)
        closedir(stream);
    if (fd >= 0)
        close(fd);
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

static dlc_status trust_file(const char *path, struct stat *info) {
    if (stat(path, info) != 0)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: cannot be read: %s", path,
                        strerror(errno));
    if (!S_ISREG(info->st_mode))
        return dlc_fail(DLC_ERR_PLUGIN, "%s: not a file", path);
    return trust_owner_and_mode("file", path, info);
}

dlc_status dlc_path_trust(const char *path, struct stat *info) {
    char *folder = dlc_strndup(path, (size_t)(strrchr(path, '/') - path));
    struct stat around;
    if (!folder)
        return DLC_ERR_NOMEM;
    dlc_status rc = stat(folder, &around) == 0
                        ? trust_owner_and_mode("folder", folder, &around)
                        : dlc_fail(DLC_ERR_PLUGIN, "%s: the folder cannot be read: %s",
                                   folder, strerror(errno));
    if (rc == DLC_OK)
        rc = trust_parents(folder);
    dlc_free(folder);
    return rc == DLC_OK ? trust_file(path, info) : rc;
}

dlc_status dlc_file_trust(const char *folder, const char *name, char **real,
                          struct stat *info) {
    char *found = NULL;
    char *path = dlc_format("%s/%s", folder, name);
    if (!path)
        return DLC_ERR_NOMEM;
    dlc_status rc = dlc_path_resolve(path, &found);
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
    rc = trust_file(found, info);
out:
    dlc_free(path);
    if (rc == DLC_OK)
        *real = found;
    else
        dlc_free(found);
    return rc;
}

/* Finds plugin files, and checks that they and their folders can be trusted: whoever
 * can change one, or put another one in its place, could run anything as this user.
 * Trusted is what only root and the effective user can change.
 *
 * A path is walked from the root folder on, and each folder is checked before anything
 * is looked up in it, those that symbolic links lead through as well. So nobody else
 * can exchange any part of the result, now or later, and it is safe to inspect, check
 * and load it by this path. */
#include "plugin/search.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"

enum { LINKS_MOST = 40 }; /* as Linux */

/* ---- Users and groups ---------------------------------------------------------- */

static int is_own(uid_t user) {
    return user == 0 || user == geteuid();
}

/* Whether the members of a group are only root and this user: root's group, and the
 * private groups of Debian, Ubuntu and Fedora, with which homes and what is made in
 * them often have mode 775. Such a group has its user's name. Whether any other group
 * is empty cannot be known where a directory service does not list its users. */
static int is_private_group(gid_t id) {
    // NOLINTBEGIN(concurrency-mt-unsafe): a registry has one thread at a time
    const struct passwd *user = getpwuid(geteuid());
    const struct group *group = getgrgid(id);
    if (id == 0 || !user || !group || user->pw_gid != id ||
        strcmp(user->pw_name, group->gr_name) != 0)
        return id == 0;
    int others = 0;
    for (char **member = group->gr_mem; *member; member++)
        others |= strcmp(*member, user->pw_name) != 0 && strcmp(*member, "root") != 0;
    setpwent();
    while (!others && (user = getpwent()))
        others = user->pw_gid == id && !is_own(user->pw_uid);
    endpwent();
    // NOLINTEND(concurrency-mt-unsafe)
    return !others;
}

/* Where there is an access control list, the mode shows what the list allows at most,
 * to any user and group, and not what the group may do. */
static int has_list(const char *path) {
    return lgetxattr(path, "system.posix_acl_access", NULL, 0) >= 0 ||
           (errno != ENODATA && errno != ENOTSUP);
}

/* ---- Folders above ------------------------------------------------------------- */

typedef struct walk {
    const char *given, *library;
    char folder[PATH_MAX]; /* walked so far, without links; empty at the root folder */
    struct stat info;      /* what is there */
    char path[PATH_MAX];
    size_t at; /* path[at...] is still to be walked */
    int links;
} walk;

static dlc_status fail_unreadable(const walk *w, int error) {
    return dlc_fail(DLC_ERR_PLUGIN, "%s: the folder cannot be read: %s", w->given,
                    strerror(error));
}

/* Whoever can replace a folder above libdlcore can replace dlcore itself. */
static int is_above_library(const walk *w) {
    size_t length = strlen(w->folder);
    return w->library && strncmp(w->library, w->folder, length) == 0 &&
           w->library[length] == '/';
}

/* Checks a folder in which something is to be looked up: whoever may write to it could
 * replace what is below, unless it is sticky as /tmp. Unlike a folder of plugins, it
 * may be writable by a private group: nobody should have to change the mode of a home
 * for dlcore. */
static dlc_status trust_above(const walk *w) {
    const char *folder = *w->folder ? w->folder : "/";
    const unsigned mode = w->info.st_mode & 0777u;
    if (is_above_library(w))
        return DLC_OK;
    if (!is_own(w->info.st_uid))
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: user %u may replace this folder, because %s (mode %03o) "
                        "belongs to that user, who is neither root nor the current "
                        "user; use a folder whose parents are all root's or yours",
                        w->given, (unsigned)w->info.st_uid, folder, mode);
    if (w->info.st_mode & S_ISVTX)
        return DLC_OK;
    if (mode & S_IWOTH)
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: any user may replace this folder, because %s is writable "
                        "by all (mode %03o); fix it with: chmod o-w %s",
                        w->given, folder, mode, folder);
    if ((mode & S_IWGRP) && (has_list(folder) || !is_private_group(w->info.st_gid)))
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: other users may replace this folder, because %s is "
                        "writable by its group %u (mode %03o); fix it with: chmod g-w "
                        "%s",
                        w->given, folder, (unsigned)w->info.st_gid, mode, folder);
    return DLC_OK;
}

static dlc_status look_at_folder(walk *w) {
    return lstat(*w->folder ? w->folder : "/", &w->info) == 0
               ? DLC_OK
               : fail_unreadable(w, errno);
}

/* Replaces the link that has been walked by the path it holds. `length`: of its
 * folder. */
static dlc_status follow_folder_link(walk *w, size_t length) {
    char target[PATH_MAX], path[PATH_MAX];
    ssize_t got = readlink(w->folder, target, sizeof target);
    if (got < 0)
        return fail_unreadable(w, errno);
    if (++w->links > LINKS_MOST)
        return fail_unreadable(w, ELOOP);
    if ((size_t)got == sizeof target ||
        (size_t)snprintf(path, sizeof path, "%.*s/%s", (int)got, target,
                         w->path + w->at) >= sizeof path)
        return fail_unreadable(w, ENAMETOOLONG);
    memcpy(w->path, path, sizeof path);
    w->at = 0;
    w->folder[*target == '/' ? 0 : length] = '\0';
    return look_at_folder(w);
}

static dlc_status enter_folder(walk *w, const char *name, size_t bytes) {
    size_t length = strlen(w->folder);
    const mode_t mode = w->info.st_mode;
    if (!S_ISDIR(mode))
        return fail_unreadable(w, ENOTDIR);
    if (bytes == 1 && *name == '.')
        return DLC_OK;
    if (bytes == 2 && !memcmp(name, "..", 2)) {
        char *last = strrchr(w->folder, '/');
        if (last)
            *last = '\0';
        return look_at_folder(w);
    }
    DLC_TRY(trust_above(w));
    if (length + 1 + bytes >= sizeof w->folder)
        return fail_unreadable(w, ENAMETOOLONG);
    (void)snprintf(w->folder + length, sizeof w->folder - length, "/%.*s", (int)bytes,
                   name);
    DLC_TRY(look_at_folder(w));
    if (!S_ISLNK(w->info.st_mode))
        return DLC_OK;
    /* In /tmp everybody may make links, and each user change his own. */
    if ((mode & (S_IWGRP | S_IWOTH)) && !is_own(w->info.st_uid))
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: user %u may replace this folder, because the symbolic "
                        "link %s belongs to that user, who is neither root nor the "
                        "current user; use a path without it",
                        w->given, (unsigned)w->info.st_uid, w->folder);
    return follow_folder_link(w, length);
}

static dlc_status walk_path(walk *w) {
    DLC_TRY(look_at_folder(w));
    for (;;) {
        const char *name = w->path + w->at;
        name += strspn(name, "/");
        size_t bytes = strcspn(name, "/");
        if (!bytes)
            return S_ISDIR(w->info.st_mode) ? DLC_OK : fail_unreadable(w, ENOTDIR);
        if (bytes > NAME_MAX)
            return fail_unreadable(w, ENAMETOOLONG);
        w->at = (size_t)(name + bytes - w->path);
        DLC_TRY(enter_folder(w, name, bytes));
    }
}

/* ---- Plugins ------------------------------------------------------------------- */

/* Checks that only root and this user can change it. */
static dlc_status trust_owner_and_mode(const char *what, const char *path,
                                       const struct stat *info) {
    if (!is_own(info->st_uid))
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

/* Checks a folder and all folders above it, but those above `library`, the path of
 * libdlcore without links (NULL: not known): whoever owns them could replace dlcore
 * itself, as the owner of a checkout can in which root of a container builds. *real (to
 * dlc_free) is its path without links. DLC_ERR_PLUGIN with a sentence: which folder,
 * whose it is or its mode, and what to do. */
static dlc_status trust_walk(const char *path, const char *library, char **real) {
    walk w = {.given = path, .library = library};
    size_t length = 0;
    if (*path != '/') {
        if (!getcwd(w.path, sizeof w.path))
            return fail_unreadable(&w, errno);
        length = strlen(w.path);
    }
    if ((size_t)snprintf(w.path + length, sizeof w.path - length, "/%s", path) >=
        sizeof w.path - length)
        return fail_unreadable(&w, ENAMETOOLONG);
    DLC_TRY(walk_path(&w));
    const char *folder = *w.folder ? w.folder : "/";
    DLC_TRY(trust_owner_and_mode("folder", folder, &w.info));
    *real = dlc_strdup(folder);
    return *real ? DLC_OK : DLC_ERR_NOMEM;
}

/* Checks owner and mode of a file; its folder has been checked. */
static dlc_status trust_file(const char *path, struct stat *info) {
    if (stat(path, info) != 0)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: cannot be read: %s", path,
                        strerror(errno));
    if (!S_ISREG(info->st_mode))
        return dlc_fail(DLC_ERR_PLUGIN, "%s: not a file", path);
    return trust_owner_and_mode("file", path, info);
}

/* ---- The files of a folder --------------------------------------------------------
 */

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
        rc = trust_walk(folder, library, real);
    dlc_free(library);
    return rc;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int is_plugin_file(const char *name) {
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
    } while (entry && !is_plugin_file(entry->d_name));
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
    return rc == DLC_OK ? trust_file(path, info) : rc;
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
    rc = trust_file(found, info);
out:
    dlc_free(path);
    if (rc == DLC_OK)
        *real = found;
    else
        dlc_free(found);
    return rc;
}

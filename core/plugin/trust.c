/* Walks paths, and checks owner and mode of every folder on the way. */
#include "plugin/trust.h"

#include <errno.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
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

static dlc_status look(walk *w) {
    return lstat(*w->folder ? w->folder : "/", &w->info) == 0
               ? DLC_OK
               : fail_unreadable(w, errno);
}

/* Replaces the link that has been walked by the path it holds. `length`: of its
 * folder. */
static dlc_status follow(walk *w, size_t length) {
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
    return look(w);
}

static dlc_status enter(walk *w, const char *name, size_t bytes) {
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
        return look(w);
    }
    DLC_TRY(trust_above(w));
    if (length + 1 + bytes >= sizeof w->folder)
        return fail_unreadable(w, ENAMETOOLONG);
    (void)snprintf(w->folder + length, sizeof w->folder - length, "/%.*s", (int)bytes,
                   name);
    DLC_TRY(look(w));
    if (!S_ISLNK(w->info.st_mode))
        return DLC_OK;
    /* In /tmp everybody may make links, and each user change his own. */
    if ((mode & (S_IWGRP | S_IWOTH)) && !is_own(w->info.st_uid))
        return dlc_fail(DLC_ERR_PLUGIN,
                        "%s: user %u may replace this folder, because the symbolic "
                        "link %s belongs to that user, who is neither root nor the "
                        "current user; use a path without it",
                        w->given, (unsigned)w->info.st_uid, w->folder);
    return follow(w, length);
}

static dlc_status walk_path(walk *w) {
    DLC_TRY(look(w));
    for (;;) {
        const char *name = w->path + w->at;
        name += strspn(name, "/");
        size_t bytes = strcspn(name, "/");
        if (!bytes)
            return S_ISDIR(w->info.st_mode) ? DLC_OK : fail_unreadable(w, ENOTDIR);
        if (bytes > NAME_MAX)
            return fail_unreadable(w, ENAMETOOLONG);
        w->at = (size_t)(name + bytes - w->path);
        DLC_TRY(enter(w, name, bytes));
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

dlc_status dlc_trust_folder(const char *path, const char *library, char **real) {
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

dlc_status dlc_trust_file(const char *path, struct stat *info) {
    if (stat(path, info) != 0)
        return dlc_fail(DLC_ERR_PLUGIN, "%s: cannot be read: %s", path,
                        strerror(errno));
    if (!S_ISREG(info->st_mode))
        return dlc_fail(DLC_ERR_PLUGIN, "%s: not a file", path);
    return trust_owner_and_mode("file", path, info);
}

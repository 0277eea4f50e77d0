/* Walks through a folder with a folder for each class. Entries are sorted by their
 * bytes, so that a number stands for the same image on every machine. Links are
 * followed, but for those that lead back. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sources.h"

/* Deeper folders are a mistake. */
enum { DEPTH_MOST = 64 };

/* A folder that is being read, and those that it is in. */
typedef struct level {
    const struct level *above;
    int fd;
    dev_t device;
    ino_t inode;
    int depth;
    size_t path; /* length of its path in walk.path */
} level;

/* A walk through all folders. */
typedef struct walk {
    const char *root, *endings;
    classes *known;
    table *images;
    growing path; /* of the present entry, below the root; not terminated */
    int32_t label;
    int64_t others;    /* files that are no images */
    char another[256]; /* the first of them, cut if need be */
} walk;

/* The entries of a folder: names, one after the other. */
typedef struct names {
    growing text;
    growing at; /* of size_t: where each begins */
    const char **sorted;
    size_t count;
} names;

static void names_free(names *of) {
    growing_free(&of->text);
    growing_free(&of->at);
    host->free(of->sorted);
}

static int by_bytes(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The path below the root, for messages. */
static dlc_status fail_at(const walk *w, const char *what, int code) {
    return host->fail(DLC_ERR_DATA, "%s%s%.*s: %s%s%s", w->root,
                      w->path.used ? "/" : "", (int)w->path.used,
                      w->path.used ? w->path.bytes : "", what, code ? ": " : "",
                      code ? strerror(code) : "");
}

static dlc_status sort_names(names *list) {
    list->count = list->at.used / sizeof(size_t);
    list->sorted = host->alloc((list->count + 1) * sizeof *list->sorted);
    if (!list->sorted)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < list->count; i++) {
        size_t at;
        memcpy(&at, list->at.bytes + i * sizeof at, sizeof at);
        list->sorted[i] = list->text.bytes + at;
    }
    if (list->count)
        qsort(list->sorted, list->count, sizeof *list->sorted, by_bytes);
    return DLC_OK;
}

/* Reads the names of a folder, without hidden ones, sorted. */
static dlc_status read_names(const walk *w, DIR *stream, names *list) {
    dlc_status status = DLC_OK;
    while (status == DLC_OK) {
        errno = 0; /* readdir returns NULL for a failure, too */
        const struct dirent *one = readdir(stream);
        if (!one && errno)
            return fail_at(w, "cannot be read", errno);
        if (!one)
            break;
        if (one->d_name[0] == '.')
            continue;
        size_t at = list->text.used;
        status = growing_add(&list->text, one->d_name, strlen(one->d_name) + 1);
        if (status == DLC_OK)
            status = growing_add(&list->at, &at, sizeof at);
    }
    return status == DLC_OK ? sort_names(list) : status;
}

static dlc_status read_level(walk *w, level *at);

static int leads_back(const level *at, const struct stat *info) {
    for (; at; at = at->above)
        if (at->device == info->st_dev && at->inode == info->st_ino)
            return 1;
    return 0;
}

/* Reads a folder within `above`; w->path is its own. */
static dlc_status enter(walk *w, const level *above, const char *name,
                        const struct stat *info) {
    level at = {.above = above,
                .device = info->st_dev,
                .inode = info->st_ino,
                .depth = above->depth + 1,
                .path = w->path.used};
    if (leads_back(above, info)) {
        host->log(DLC_LOG_WARN,
                  "%s/%.*s: it is a link to a folder that it is in, and "
                  "is left out",
                  w->root, (int)w->path.used, w->path.bytes);
        return DLC_OK;
    }
    if (at.depth > DEPTH_MOST)
        return fail_at(w, "folders are nested too deeply", 0);
    at.fd = openat(above->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (at.fd < 0)
        return fail_at(w, "cannot be read", errno);
    return read_level(w, &at);
}

/* A folder right below the root is a class. */
static dlc_status begin_class(walk *w, const char *name) {
    w->label = classes_find(w->known, name);
    if (w->label >= 0)
        return DLC_OK;
    return host->fail(DLC_ERR_DATA,
                      "%s/%s: a folder whose name is none of the %d classes (%s%s); "
                      "rename it, move it away, or add the class to the training data",
                      w->root, name, (int)w->known->count,
                      w->known->count ? w->known->name[0] : "",
                      w->known->count > 1 ? ", ..." : "");
}

static dlc_status add_image(walk *w, const level *at) {
    if (at->depth == 0)
        return fail_at(w, "an image in no class: each class needs a folder", 0);
    return table_add(w->images, w->path.bytes, w->path.used, w->label);
}

/* A file that is left out must not be missed by its owner. */
static void count_other(walk *w) {
    if (!w->others++)
        (void)snprintf(w->another, sizeof w->another, "%.*s", (int)w->path.used,
                       w->path.bytes);
}

static dlc_status add_file(walk *w, const level *at, const char *name) {
    if (name_ends_as(name, w->endings))
        return add_image(w, at);
    count_other(w);
    return DLC_OK;
}

static dlc_status visit(walk *w, const level *at, const char *name) {
    struct stat info;
    if (fstatat(at->fd, name, &info, 0) != 0) {
        if (!name_ends_as(name, w->endings)) /* a link to nowhere, which nobody wants */
            return DLC_OK;
        return at->depth ? add_image(w, at) : fail_at(w, "cannot be read", errno);
    }
    if (!S_ISDIR(info.st_mode))
        return add_file(w, at, name);
    int64_t before = table_count(w->images);
    dlc_status status = at->depth == 0 ? begin_class(w, name) : DLC_OK;
    if (status == DLC_OK)
        status = enter(w, at, name, &info);
    if (status == DLC_OK && at->depth == 0 && table_count(w->images) == before)
        host->log(DLC_LOG_WARN, "%s/%s: the class has no images", w->root, name);
    return status;
}

/* Without known classes, they are the folders of the root. */
static dlc_status find_classes(walk *w, const level *at, const names *list) {
    dlc_status status = DLC_OK;
    struct stat info;
    int given = w->known->count > 0;
    for (size_t i = 0; status == DLC_OK && !given && i < list->count; i++)
        if (fstatat(at->fd, list->sorted[i], &info, 0) == 0 && S_ISDIR(info.st_mode))
            status = classes_add(w->known, list->sorted[i], strlen(list->sorted[i]));
    if (status == DLC_OK && !given)
        status = classes_sort(w->known);
    for (int32_t c = 0; given && c < w->known->count; c++)
        if (fstatat(at->fd, w->known->name[c], &info, 0) != 0)
            host->log(DLC_LOG_WARN, "%s: no folder for the class %s (label %d)",
                      w->root, w->known->name[c], (int)c);
    return status;
}

/* Reads a folder, whose descriptor it closes. */
static dlc_status read_level(walk *w, level *at) {
    names list = {0};
    DIR *stream = fdopendir(at->fd);
    if (!stream) {
        dlc_status status = fail_at(w, "cannot be read", errno);
        close(at->fd);
        return status;
    }
    dlc_status status = read_names(w, stream, &list);
    if (status == DLC_OK && at->depth == 0)
        status = find_classes(w, at, &list);
    for (size_t i = 0; status == DLC_OK && i < list.count; i++) {
        w->path.used = at->path;
        if (at->path)
            status = growing_add(&w->path, "/", 1);
        if (status == DLC_OK)
            status = growing_add(&w->path, list.sorted[i], strlen(list.sorted[i]));
        if (status == DLC_OK)
            status = visit(w, at, list.sorted[i]);
    }
    names_free(&list);
    closedir(stream);
    return status;
}

dlc_status folder_read(int fd, const char *root, const char *endings, classes *known,
                       table *images) {
    walk w = {.root = root, .endings = endings, .known = known, .images = images};
    struct stat info;
    level at = {.fd = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    if (at.fd < 0 || fstat(at.fd, &info) != 0) {
        dlc_status status = fail_at(&w, "cannot be read", errno);
        if (at.fd >= 0)
            close(at.fd);
        return status;
    }
    at.device = info.st_dev;
    at.inode = info.st_ino;
    dlc_status status = read_level(&w, &at);
    if (status == DLC_OK && w.others)
        host->log(DLC_LOG_INFO,
                  "%s: %lld other files, such as %s, are passed over; images end in "
                  "%s",
                  root, (long long)w.others, w.another, endings);
    growing_free(&w.path);
    return status;
}

/* Lists the images under a folder with one folder for each class, and gives each class
 * its label. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "images.h"

/* ---- Names ------------------------------------------------------------------ */

/* A growing list of strings. */
typedef struct names {
    char **name; /* array and strings are owned */
    size_t count, capacity;
} names;

static void names_free(names *list) {
    for (size_t i = 0; i < list->count; i++)
        host->free(list->name[i]);
    host->free(list->name);
}

/* Returns a copy of the array with twice the capacity and frees the array. NULL: out of
 * memory, and the array is unchanged. */
static void *grow(void *array, size_t used, size_t *capacity, size_t element) {
    size_t wanted = *capacity ? 2 * *capacity : 64;
    void *grown = host->alloc(wanted * element);
    if (!grown)
        return NULL;
    if (used > 0)
        memcpy(grown, array, used * element);
    host->free(array);
    *capacity = wanted;
    return grown;
}

static char *join(const char *folder, const char *name) {
    size_t bytes = strlen(folder) + strlen(name) + 2;
    char *path = host->alloc(bytes);
    if (path)
        (void)snprintf(path, bytes, "%s/%s", folder, name);
    return path;
}

static int by_name(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static dlc_status add_name(names *list, const char *folder, const char *name) {
    if (list->count == list->capacity) {
        void *grown = grow(list->name, list->count, &list->capacity,
                           sizeof *list->name);
        if (!grown)
            return DLC_ERR_NOMEM;
        list->name = grown;
    }
    if (!(list->name[list->count] = join(folder, name)))
        return DLC_ERR_NOMEM;
    list->count++;
    return DLC_OK;
}

/* ---- Folders ---------------------------------------------------------------- */

static int is_folder(const char *folder, const char *name) {
    struct stat info;
    char *path = join(folder, name);
    int is = path && stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    host->free(path);
    return is;
}

static int is_image(const char *folder, const char *name) {
    const char *ending = strrchr(name, '.');
    (void)folder;
    return ending && (!strcasecmp(ending, ".png") || !strcasecmp(ending, ".jpg") ||
                      !strcasecmp(ending, ".jpeg"));
}

/* Lists the paths of the wanted entries of a folder, sorted, without hidden ones. */
static dlc_status read_folder(const char *folder,
                              int (*wanted)(const char *folder, const char *name),
                              names *list) {
    dlc_status rc = DLC_OK;
    DIR *stream = opendir(folder);
    if (!stream)
        return host->fail(DLC_ERR_DATA, "%s: cannot be read: %s", folder,
                          strerror(errno));
    while (rc == DLC_OK) {
        errno = 0; /* readdir() returns NULL for a failure, too */
        const struct dirent *one = readdir(stream);
        if (!one && errno)
            rc = host->fail(DLC_ERR_DATA, "%s: cannot be read: %s", folder,
                            strerror(errno));
        if (!one)
            break;
        if (one->d_name[0] != '.' && wanted(folder, one->d_name))
            rc = add_name(list, folder, one->d_name);
    }
    closedir(stream);
    if (rc == DLC_OK && list->count > 0)
        qsort(list->name, list->count, sizeof *list->name, by_name);
    return rc;
}

/* ---- Classes ---------------------------------------------------------------- */

static const char *name_of(const char *path) {
    return strrchr(path, '/') + 1;
}

static dlc_status add_class(listing *list, const char *name, size_t length) {
    if (list->classes == list->class_capacity) {
        size_t capacity = (size_t)list->class_capacity;
        void *grown = grow(list->class_name, capacity, &capacity,
                           sizeof *list->class_name);
        if (!grown)
            return DLC_ERR_NOMEM;
        list->class_name = grown;
        list->class_capacity = (int32_t)capacity;
    }
    char *copy = host->alloc(length + 1);
    if (!copy)
        return DLC_ERR_NOMEM;
    memcpy(copy, name, length);
    copy[length] = '\0';
    list->class_name[list->classes++] = copy;
    return DLC_OK;
}

/* Adds the classes of a setting such as "ant, bee, cat". */
static dlc_status add_written(listing *list, const char *written) {
    dlc_status rc = DLC_OK;
    for (const char *at = written; rc == DLC_OK && at;) {
        const char *end = strchr(at, ',');
        const char *last = end ? end : at + strlen(at);
        while (*at == ' ')
            at++;
        while (last > at && last[-1] == ' ')
            last--;
        if (last == at)
            return host->fail(DLC_ERR_CONFIG, "classes = %s: a class has no name",
                              written);
        rc = add_class(list, at, (size_t)(last - at));
        at = end ? end + 1 : NULL;
    }
    return rc;
}

/* Finds the classes, in the order of class_source. */
static dlc_status find_classes(const class_source *from, const names *folders,
                               listing *list) {
    dlc_status rc = DLC_OK;
    if (from->written && from->written[0])
        return add_written(list, from->written);
    for (int32_t i = 0; rc == DLC_OK && i < from->count; i++)
        rc = add_class(list, from->name[i], strlen(from->name[i]));
    for (size_t i = 0; rc == DLC_OK && !from->count && i < folders->count; i++) {
        const char *name = name_of(folders->name[i]);
        rc = add_class(list, name, strlen(name));
    }
    return rc;
}

/* Finds the label of the images in a folder. */
static dlc_status find_label(const listing *list, const char *folder, int32_t *label) {
    for (*label = 0; *label < list->classes; ++*label)
        if (strcmp(list->class_name[*label], name_of(folder)) == 0)
            return DLC_OK;
    return host->fail(DLC_ERR_DATA,
                      "%s: a folder whose name is none of the %d classes (%s%s%s); "
                      "rename it, move it away, or add the class to the training data",
                      folder, (int)list->classes, list->class_name[0],
                      list->classes > 1 ? ", " : "",
                      list->classes > 2   ? "..."
                      : list->classes > 1 ? list->class_name[1]
                                          : "");
}

/* ---- The list --------------------------------------------------------------- */

void listing_free(listing *list) {
    for (int64_t i = 0; i < list->count; i++)
        host->free(list->entries[i].path);
    host->free(list->entries);
    for (int32_t i = 0; i < list->classes; i++)
        host->free(list->class_name[i]);
    host->free(list->class_name);
    *list = (listing){0};
}

/* Adds an image; the list owns the path afterwards. */
static dlc_status add_entry(listing *list, char *path, int32_t label) {
    if (list->count == list->capacity) {
        size_t capacity = (size_t)list->capacity;
        void *grown = grow(list->entries, capacity, &capacity, sizeof *list->entries);
        if (!grown)
            return DLC_ERR_NOMEM;
        list->entries = grown;
        list->capacity = (int64_t)capacity;
    }
    list->entries[list->count++] = (entry){.path = path, .label = label};
    return DLC_OK;
}

static dlc_status add_folder(listing *list, const char *folder) {
    names images = {0};
    int32_t label = 0;
    dlc_status rc = find_label(list, folder, &label);
    if (rc == DLC_OK)
        rc = read_folder(folder, is_image, &images);
    if (rc == DLC_OK && images.count == 0)
        host->log(DLC_LOG_WARN, "%s: the class has no images", folder);
    for (size_t i = 0; rc == DLC_OK && i < images.count; i++) {
        rc = add_entry(list, images.name[i], label);
        if (rc == DLC_OK)
            images.name[i] = NULL; /* it is owned by the list now */
    }
    names_free(&images);
    return rc;
}

/* Warns of classes without a folder, since they affect the results. */
static void warn_missing(const char *root, const names *folders, const listing *list) {
    for (int32_t c = 0; c < list->classes; c++) {
        size_t i = 0;
        while (i < folders->count &&
               strcmp(name_of(folders->name[i]), list->class_name[c]) != 0)
            i++;
        if (i == folders->count)
            host->log(DLC_LOG_WARN, "%s: no folder for the class %s (label %d)", root,
                      list->class_name[c], (int)c);
    }
}

dlc_status listing_read(const char *root, const class_source *from, listing *list) {
    names folders = {0};
    listing made = {0};
    dlc_status rc = read_folder(root, is_folder, &folders);
    if (rc == DLC_OK)
        rc = find_classes(from, &folders, &made);
    for (size_t i = 0; rc == DLC_OK && i < folders.count; i++)
        rc = add_folder(&made, folders.name[i]);
    if (rc == DLC_OK && made.count == 0)
        rc = host->fail(DLC_ERR_DATA,
                        "%s: no images; it must have a folder for each class, with "
                        "*.jpg, *.jpeg or *.png in it",
                        root);
    if (rc == DLC_OK)
        warn_missing(root, &folders, &made);
    names_free(&folders);
    if (rc == DLC_OK)
        *list = made;
    else
        listing_free(&made);
    return rc;
}

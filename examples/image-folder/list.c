/* The images under a folder: one folder a class, in the order of their names. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "images.h"

/* ---- Names ----------------------------------------------------------------------- */

typedef struct names {
    char **name; /* own, each too */
    size_t count, room;
} names;

static void names_free(names *list) {
    for (size_t i = 0; i < list->count; i++)
        host->free(list->name[i]);
    host->free(list->name);
}

/* Twice the room for an array; what it was is freed. NULL: no memory. */
static void *grow(void *array, size_t used, size_t *room, size_t element) {
    size_t wanted = *room ? 2 * *room : 64;
    void *grown = host->alloc(wanted * element);
    if (!grown)
        return NULL;
    if (used > 0)
        memcpy(grown, array, used * element);
    host->free(array);
    *room = wanted;
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
    if (list->count == list->room) {
        void *grown = grow(list->name, list->count, &list->room, sizeof *list->name);
        if (!grown)
            return DLC_ERR_NOMEM;
        list->name = grown;
    }
    if (!(list->name[list->count] = join(folder, name)))
        return DLC_ERR_NOMEM;
    list->count++;
    return DLC_OK;
}

/* ---- Folders --------------------------------------------------------------------- */

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

/* The paths of what is in a folder and wanted, sorted; hidden ones never are. */
static dlc_status read_folder(const char *folder,
                              int (*wanted)(const char *folder, const char *name),
                              names *list) {
    dlc_status rc = DLC_OK;
    DIR *stream = opendir(folder);
    if (!stream)
        return host->fail(DLC_ERR_DATA, "%s: cannot be read: %s", folder,
                          strerror(errno));
    for (const struct dirent *one; rc == DLC_OK && (one = readdir(stream));)
        if (one->d_name[0] != '.' && wanted(folder, one->d_name))
            rc = add_name(list, folder, one->d_name);
    closedir(stream);
    if (rc == DLC_OK && list->count > 0)
        qsort(list->name, list->count, sizeof *list->name, by_name);
    return rc;
}

/* ---- The list -------------------------------------------------------------------- */

void listing_free(listing *list) {
    for (int64_t i = 0; i < list->count; i++)
        host->free(list->entries[i].path);
    host->free(list->entries);
    *list = (listing){0};
}

/* Takes the path over. */
static dlc_status add_entry(listing *list, char *path, int32_t label) {
    if (list->count == list->room) {
        size_t room = (size_t)list->room;
        void *grown = grow(list->entries, room, &room, sizeof *list->entries);
        if (!grown)
            return DLC_ERR_NOMEM;
        list->entries = grown;
        list->room = (int64_t)room;
    }
    list->entries[list->count++] = (entry){.path = path, .label = label};
    return DLC_OK;
}

static dlc_status add_class(listing *list, const char *folder) {
    names images = {0};
    dlc_status rc = read_folder(folder, is_image, &images);
    if (rc == DLC_OK && images.count == 0)
        host->log(DLC_LOG_WARN, "%s: a class without images", folder);
    for (size_t i = 0; rc == DLC_OK && i < images.count; i++) {
        rc = add_entry(list, images.name[i], list->classes);
        if (rc == DLC_OK)
            images.name[i] = NULL; /* the list's now */
    }
    names_free(&images);
    list->classes++;
    return rc;
}

dlc_status listing_read(const char *root, listing *list) {
    names classes = {0};
    listing made = {0};
    dlc_status rc = read_folder(root, is_folder, &classes);
    for (size_t i = 0; rc == DLC_OK && i < classes.count; i++)
        rc = add_class(&made, classes.name[i]);
    if (rc == DLC_OK && made.count == 0)
        rc = host->fail(DLC_ERR_DATA,
                        "%s: no images; it must have a folder for each class, with "
                        "*.jpg, *.jpeg or *.png in it",
                        root);
    names_free(&classes);
    if (rc == DLC_OK)
        *list = made;
    else
        listing_free(&made);
    return rc;
}

/* Reads a folder and picks out the names of checkpoints. */
#include "checkpoint/listing.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/process.h"

#define SUFFIX ".safetensors"

enum { DIGITS_LEAST = 8, DIGITS_MOST = 18 }; /* of an iteration; 10^18 fits int64_t */

char *dlc_checkpoint_path(const char *folder, const char *net, int64_t iteration) {
    return dlc_format("%s/%s-%08" PRId64 SUFFIX, folder, net, iteration);
}

int dlc_checkpoint_name(const char *name, size_t *net_length, int64_t *iteration) {
    const char *dash = strrchr(name, '-');
    if (!dash || dash == name)
        return 0;
    size_t digits = strspn(dash + 1, "0123456789");
    if (digits < DIGITS_LEAST || digits > DIGITS_MOST ||
        strcmp(dash + 1 + digits, SUFFIX) != 0)
        return 0;
    *net_length = (size_t)(dash - name);
    *iteration = strtoll(dash + 1, NULL, 10);
    return 1;
}

static int is_of_net(const char *name, size_t net_length, const char *net) {
    return !net || (strlen(net) == net_length && strncmp(name, net, net_length) == 0);
}

static dlc_status add(dlc_checkpoints *listing, const char *folder, const char *name,
                      const char *net) {
    size_t net_length, count = listing->count;
    int64_t iteration;
    if (!dlc_checkpoint_name(name, &net_length, &iteration) ||
        !is_of_net(name, net_length, net))
        return DLC_OK;
    dlc_checkpoint_file *grown = dlc_grow_by_one(listing->file, count, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    listing->file = grown;
    grown[count] = (dlc_checkpoint_file){.path = dlc_format("%s/%s", folder, name),
                                         .net = dlc_strndup(name, net_length),
                                         .iteration = iteration};
    listing->count++;
    return grown[count].path && grown[count].net ? DLC_OK : DLC_ERR_NOMEM;
}

static int by_iteration(const void *a, const void *b) {
    const dlc_checkpoint_file *first = a, *second = b;
    if (first->iteration != second->iteration)
        return first->iteration < second->iteration ? -1 : 1;
    return strcmp(first->path, second->path);
}

static dlc_status read_all(DIR *dir, const char *folder, const char *net,
                           dlc_checkpoints *listing) {
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno)
            return dlc_fail(DLC_ERR_IO, "folder %s cannot be read: %s", folder,
                            strerror(errno));
        if (!entry)
            return DLC_OK;
        DLC_TRY(add(listing, folder, entry->d_name, net));
    }
}

dlc_status dlc_checkpoints_read(const char *folder, const char *net,
                                dlc_checkpoints *listing) {
    dlc_checkpoints made = {0};
    *listing = made;
    dlc_process_return();
    DIR *dir = opendir(folder);
    if (!dir && errno == ENOENT)
        return DLC_OK;
    if (!dir)
        return dlc_fail(DLC_ERR_IO, "folder %s cannot be read: %s", folder,
                        strerror(errno));
    dlc_status status = read_all(dir, folder, net, &made);
    closedir(dir);
    if (status != DLC_OK) {
        dlc_checkpoints_free(&made);
        return status;
    }
    if (made.count)
        qsort(made.file, made.count, sizeof *made.file, by_iteration);
    *listing = made;
    return DLC_OK;
}

void dlc_checkpoints_free(dlc_checkpoints *listing) {
    for (size_t i = 0; i < listing->count; i++) {
        dlc_free(listing->file[i].path);
        dlc_free(listing->file[i].net);
    }
    dlc_free(listing->file);
    *listing = (dlc_checkpoints){0};
}

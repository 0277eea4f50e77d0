/* See support.h. */
#include "support.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#define BOXES 12
#define PATHS 96

static char boxes[BOXES][PATH_MAX];
static char paths[PATHS][PATH_MAX];
static int boxes_made, paths_made;

const char *box_make(void) {
    const char *tmp = getenv("TMPDIR");
    ck_assert_int_lt(boxes_made, BOXES);
    char template[64];
    snprintf(template, sizeof template, "%.40s/dlcore-box-XXXXXX", tmp ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(template));
    ck_assert_int_eq(chmod(template, 0755), 0);
    /* As the registry will call it. */
    ck_assert_ptr_nonnull(realpath(template, boxes[boxes_made]));
    return boxes[boxes_made++];
}

static int remove_entry(const char *path, const struct stat *status, int type,
                        struct FTW *walk) {
    (void)status, (void)type, (void)walk;
    return remove(path);
}

void box_remove_all(void) {
    while (boxes_made)
        nftw(boxes[--boxes_made], remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    paths_made = 0;
}

const char *box_path(const char *box, const char *name) {
    ck_assert_int_lt(paths_made, PATHS);
    snprintf(paths[paths_made], PATH_MAX, "%s/%s", box, name);
    return paths[paths_made++];
}

const char *box_put(const char *box, const char *fixture, const char *as) {
    char from[PATH_MAX], name[NAME_MAX];
    struct stat info;
    snprintf(from, sizeof from, "%s/%s.so", FIXTURE_DIR, fixture);
    snprintf(name, sizeof name, "%s.so", as ? as : fixture);
    const char *to = box_path(box, name);
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    ck_assert_msg(in >= 0 && out >= 0, "cannot copy %s to %s", from, to);
    ck_assert_int_eq(fstat(in, &info), 0);
    ck_assert_int_eq(sendfile(out, in, NULL, (size_t)info.st_size), info.st_size);
    ck_assert_int_eq(fchmod(out, 0644), 0);
    close(in);
    close(out);
    return to;
}

static char cache[PATH_MAX], loads_log[PATH_MAX];

const char *cache_make(void) {
    const char *box = box_make();
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", box, 1), 0);
    snprintf(cache, sizeof cache, "%.*s/dlcore", PATH_MAX - 16, box);
    loads_watch(box);
    return box;
}

void loads_watch(const char *box) {
    snprintf(loads_log, sizeof loads_log, "%.*s/loads", PATH_MAX - 16, box);
    ck_assert_int_eq(setenv("FIXTURE_LOG", loads_log, 1), 0);
}

const char *cache_file(void) {
    const char *found = NULL;
    DIR *stream = opendir(cache);
    for (const struct dirent *entry; stream && (entry = readdir(stream));) {
        if (entry->d_name[0] == '.')
            continue;
        ck_assert_msg(!found, "%s is left over", entry->d_name);
        found = box_path(cache, entry->d_name);
    }
    if (stream)
        closedir(stream);
    return found;
}

int loads_in_all(void) {
    struct stat info;
    return stat(loads_log, &info) == 0 ? (int)info.st_size : 0;
}

dlc_registry *registry_over(const char *path) {
    dlc_registry *registry = NULL;
    if (!cache[0]) { /* no cache_make: nothing is remembered */
        unsetenv("XDG_CACHE_HOME");
        unsetenv("HOME");
    }
    if (path)
        setenv("DLCORE_PLUGIN_PATH", path, 1);
    else
        unsetenv("DLCORE_PLUGIN_PATH");
    ck_assert_int_eq(dlc_registry_open(&registry), DLC_OK);
    ck_assert_ptr_nonnull(registry);
    return registry;
}

const dlc_plugin_entry *entry_of(const dlc_registry *registry, const char *file) {
    const dlc_plugin_entry *entry;
    for (size_t i = 0; (entry = dlc_registry_plugin(registry, i)); i++) {
        const char *base = strrchr(entry->path, '/');
        if (!strcmp(base ? base + 1 : entry->path, file))
            return entry;
    }
    ck_abort_msg("the registry doesn't list %s", file);
}

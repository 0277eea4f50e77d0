/* Makes and fills temporary folders, and counts the loads of fixtures. */
#include "plugin_folders.h"

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

#define DIRS 12
#define PATHS 96

static char dirs[DIRS][PATH_MAX];
static char paths[PATHS][PATH_MAX];
static int dirs_made, paths_made;

const char *dir_make(void) {
    const char *tmp = getenv("TMPDIR");
    ck_assert_int_lt(dirs_made, DIRS);
    char template[64];
    snprintf(template, sizeof template, "%.40s/dlcore-dir-XXXXXX", tmp ? tmp : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(template));
    ck_assert_int_eq(chmod(template, 0755), 0);
    /* The path as the registry reports it. */
    ck_assert_ptr_nonnull(realpath(template, dirs[dirs_made]));
    return dirs[dirs_made++];
}

static int remove_entry(const char *path, const struct stat *status, int type,
                        struct FTW *walk) {
    (void)status, (void)type, (void)walk;
    return remove(path);
}

void dir_remove_all(void) {
    while (dirs_made)
        nftw(dirs[--dirs_made], remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    paths_made = 0;
}

const char *dir_path(const char *dir, const char *name) {
    ck_assert_int_lt(paths_made, PATHS);
    snprintf(paths[paths_made], PATH_MAX, "%s/%s", dir, name);
    return paths[paths_made++];
}

const char *dir_add(const char *dir, const char *fixture, const char *as) {
    char from[PATH_MAX], name[NAME_MAX];
    struct stat info;
    snprintf(from, sizeof from, "%s/%s.so", FIXTURE_DIR, fixture);
    snprintf(name, sizeof name, "%s.so", as ? as : fixture);
    const char *to = dir_path(dir, name);
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

static char cache[PATH_MAX], loads_log[PATH_MAX], orders[PATH_MAX];

const char *cache_dir_make(void) {
    const char *dir = dir_make();
    ck_assert_int_eq(setenv("XDG_CACHE_HOME", dir, 1), 0);
    snprintf(cache, sizeof cache, "%.*s/dlcore", PATH_MAX - 16, dir);
    count_loads(dir);
    return dir;
}

void count_loads(const char *dir) {
    snprintf(loads_log, sizeof loads_log, "%.*s/loads", PATH_MAX - 16, dir);
    ck_assert_int_eq(setenv("FIXTURE_LOG", loads_log, 1), 0);
}

const char *cache_file(void) {
    const char *found = NULL;
    DIR *stream = opendir(cache);
    for (const struct dirent *entry; stream && (entry = readdir(stream));) {
        if (entry->d_name[0] == '.')
            continue;
        ck_assert_msg(!found, "%s is left over", entry->d_name);
        found = dir_path(cache, entry->d_name);
    }
    if (stream)
        closedir(stream);
    return found;
}

void give_orders(const char *word, int number) {
    snprintf(orders, sizeof orders, "%.*s/orders", PATH_MAX - 16, dirs[0]);
    ck_assert_int_eq(setenv("FIXTURE_ORDERS", orders, 1), 0);
    unlink(orders);
    if (!word)
        return;
    FILE *stream = fopen(orders, "we");
    ck_assert_ptr_nonnull(stream);
    ck_assert_int_gt(fprintf(stream, "%s %d", word, number), 0);
    ck_assert_int_eq(fclose(stream), 0);
}

int load_count(void) {
    struct stat info;
    return stat(loads_log, &info) == 0 ? (int)info.st_size : 0;
}

dlc_registry *registry_over(const char *path) {
    dlc_registry *registry = NULL;
    if (!cache[0]) { /* no cache folder: nothing is cached */
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

dlc_entry_state state_with_cache(const char *dir, const char *file) {
    dlc_registry *registry = registry_over(dir);
    dlc_entry_state state = entry_of(registry, file)->state;
    dlc_registry_close(registry);
    return state;
}

dlc_entry_state state_after_rescan(const char *file) {
    dlc_registry *registry = NULL;
    ck_assert_int_eq(dlc_registry_rescan(&registry), DLC_OK);
    dlc_entry_state state = entry_of(registry, file)->state;
    dlc_registry_close(registry);
    return state;
}

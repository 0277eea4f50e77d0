/* Tests that only plugins that are used are loaded, and only if they are still what was
 * inspected. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "plugin_folders.h"
#include "support/test.h"

enum { MANY = 50 };

/* Adds a copy of the fixture "numbered" with this number in its names. */
static void put_numbered(const char *dir, int number) {
    char as[32], digits[16];
    snprintf(as, sizeof as, "numbered-%02d", number);
    snprintf(digits, sizeof digits, "%02d", number);
    const char *path = dir_add(dir, "numbered", as);
    struct stat info;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(fstat(fd, &info), 0);
    size_t size = (size_t)info.st_size;
    char *file = malloc(size); /* not mapped: valgrind would take that for loading */
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(pread(fd, file, size, 0), info.st_size);
    int changed = 0;
    for (char *at = file; (at = memmem(at, size - (size_t)(at - file), "-XX", 4));) {
        memcpy(++at, digits, 2);
        changed++;
    }
    ck_assert_int_ge(changed, 2); /* the plugin's name and its feature's */
    ck_assert_int_eq(pwrite(fd, file, size, 0), info.st_size);
    free(file);
    close(fd);
}

/* The number of files of a folder that are mapped into this process. */
static int mapped(const char *dir) {
    char line[2 * PATH_MAX], last[2 * PATH_MAX] = "";
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "re");
    ck_assert_ptr_nonnull(maps);
    while (fgets(line, sizeof line, maps)) {
        const char *path = strchr(line, '/');
        if (!path || !strstr(path, dir) || !strcmp(path, last))
            continue;
        snprintf(last, sizeof last, "%s", path);
        count++;
    }
    fclose(maps);
    return count;
}

TEST_SETTINGS(.teardown = dir_remove_all);

TEST(loads_what_is_used) {
    char name[32];
    const char *dir = dir_make();
    const dlc_feature *feature = NULL;
    for (int i = 0; i < MANY; i++)
        put_numbered(dir, i);
    cache_dir_make();
    for (int round = 0; round < 2; round++) { /* inspected, then cached */
        dlc_registry *registry = registry_over(dir);
        for (int i = 0; i < MANY; i++) {
            const dlc_plugin_entry *plugin = dlc_registry_plugin(registry, (size_t)i);
            ck_assert_int_eq(plugin->state, DLC_ENTRY_USABLE);
            snprintf(name, sizeof name, "feature-%02d", i);
            ck_assert_str_eq(plugin->feature[0].name, name);
        }
        ck_assert_int_eq(load_count(), MANY + round);
        ck_assert_int_eq(mapped(dir), round);
        ck_assert_int_eq(
            dlc_registry_find(registry, DLC_KIND_DATA, "feature-17", NULL, &feature),
            DLC_OK);
        ck_assert_str_eq(feature->name, "feature-17");
        ck_assert_int_eq(mapped(dir), 1);
        ck_assert_str_eq(getenv("FIXTURE_LOADS"), "1");
        ck_assert_int_eq(
            dlc_registry_find(registry, DLC_KIND_DATA, "feature-xx", NULL, &feature),
            DLC_ERR_PLUGIN);
        ck_assert_int_eq(mapped(dir), 1);
        dlc_registry_close(registry);
    }
}

TEST(peeks_without_load) {
    const char *dir = dir_make();
    const dlc_feature *feature = NULL;
    dir_add(dir, "unavailable", NULL);
    dir_add(dir, "feature-call", NULL);
    dlc_registry *registry = registry_over(dir);
    const dlc_feature_entry *entry = entry_of(registry, "unavailable.so")->feature;
    ck_assert_int_eq(dlc_registry_peek(registry, entry, &feature), DLC_OK);
    ck_assert_str_eq(feature->options->name, "samples");
    ck_assert_int_eq(mapped(dir), 1);
    ck_assert_int_eq(dlc_registry_use(registry, entry, &feature), DLC_ERR_PLUGIN);
    ck_assert_str_eq(dlc_detail(), "no abacus was found");
    entry = entry_of(registry, "feature-call.so")->feature;
    ck_assert_int_eq(dlc_registry_peek(registry, entry, &feature), DLC_ERR_PLUGIN);
    ck_contains(dlc_detail(), "lacks read");
    ck_assert_int_eq(mapped(dir), 1);
    ck_assert_ptr_null(getenv("FIXTURE_LOADS"));
    dlc_registry_close(registry);
}

TEST(uses_the_first) {
    const char *dir = dir_make();
    const dlc_feature *feature = NULL;
    dir_add(dir, "unavailable", "a");
    dir_add(dir, "two", "b");
    dlc_registry *registry = registry_over(dir);
    ck_assert_int_eq(dlc_registry_use_first(registry, DLC_KIND_DATA, &feature), DLC_OK);
    ck_assert_str_eq(feature->name, "faces");
    ck_assert_int_eq(dlc_registry_use_first(registry, DLC_KIND_SOLVER, &feature),
                     DLC_ERR_PLUGIN);
    ck_contains(dlc_detail(), "no solver can be used here; `dlcore doctor`");
    dlc_registry_close(registry);
}

/* A plugin cached as usable whose load() fails now: the next one with the same feature
 * is used, and the cache is dropped. */
TEST(detects_unavailability_when_used) {
    const char *dir = dir_make();
    const dlc_feature *feature = NULL;
    dir_add(dir, "for-vax", "a");
    dir_add(dir, "newer", "b");
    cache_dir_make();
    dlc_registry_close(registry_over(dir));
    ck_assert_ptr_nonnull(cache_file());
    setenv("FIXTURE_ABSENT", "the abacus is gone", 1);
    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, "a.so");
    ck_assert_int_eq(entry->state, DLC_ENTRY_USABLE);
    ck_assert_int_eq(dlc_registry_use_first(registry, DLC_KIND_DATA, &feature), DLC_OK);
    ck_assert_str_eq(feature->name, "later-a");
    ck_assert_int_eq(entry->state, DLC_ENTRY_UNAVAILABLE);
    ck_assert_int_eq(entry->feature[0].state, DLC_ENTRY_UNAVAILABLE);
    ck_assert_str_eq(entry->reason, "the abacus is gone");
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature),
                     DLC_ERR_PLUGIN);
    ck_assert_str_eq(dlc_detail(), "data \"tiny\" of plugin vax is unavailable: the "
                                   "abacus is gone");
    ck_assert_ptr_null(cache_file());
    dlc_registry_close(registry);
}

static void expect_refusal(const dlc_registry *registry, const char *says) {
    const dlc_feature *feature = NULL;
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature),
                     DLC_ERR_PLUGIN);
    ck_contains(dlc_detail(), says);
    ck_assert_ptr_null(getenv("FIXTURE_LOADS"));
}

TEST(refuses_what_has_changed) {
    const char *dir = dir_make(), *other = dir_make();
    const char *path = dir_add(dir, "good", NULL);
    dlc_registry *registry = registry_over(dir);
    ck_assert_int_eq(rename(dir_add(other, "same-feature", NULL), path), 0);
    expect_refusal(registry, "was changed after it had been inspected");
    ck_assert_int_eq(mapped(dir), 0);
    dlc_registry_close(registry);
}

/* A second link to the file, as perf and backups make, is no change. */
TEST(allows_a_second_name) {
    const char *dir = dir_make(), *other = dir_make();
    const char *path = dir_add(dir, "good", NULL);
    const dlc_feature *feature = NULL;
    char second[PATH_MAX];
    dlc_registry *registry = registry_over(dir);
    (void)snprintf(second, sizeof second, "%s/second", other);
    ck_assert_int_eq(link(path, second), 0);
    ck_assert_int_eq(dlc_registry_find(registry, DLC_KIND_DATA, "tiny", NULL, &feature),
                     DLC_OK);
    dlc_registry_close(registry);
}

TEST(refuses_what_is_no_longer_trusted) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "good", NULL);
    dlc_registry *registry = registry_over(dir);
    ck_assert_int_eq(chmod(path, 0664), 0);
    expect_refusal(registry, "the file is writable by its group");
    dlc_registry_close(registry);
    ck_assert_int_eq(chmod(path, 0644), 0);
    registry = registry_over(dir);
    ck_assert_int_eq(chmod(dir, 0777), 0);
    expect_refusal(registry, "the folder is writable by all users");
    dlc_registry_close(registry);
    ck_assert_int_eq(chmod(dir, 0755), 0);
    /* Nor is a folder trusted whose parent has become writable by all. */
    const char *inner = dir_path(dir, "inner");
    ck_assert_int_eq(mkdir(inner, 0755), 0);
    dir_add(inner, "good", NULL);
    registry = registry_over(inner);
    ck_assert_int_eq(chmod(dir, 0777), 0);
    expect_refusal(registry, "any user may replace this folder");
    dlc_registry_close(registry);
    ck_assert_int_eq(chmod(dir, 0755), 0);
    registry = registry_over(dir);
    ck_assert_int_eq(unlink(path), 0);
    expect_refusal(registry, "cannot be read: No such file");
    ck_assert_int_eq(mapped(dir), 0);
    dlc_registry_close(registry);
}

/* Tests what is cached about inspected files, what is not, and caches that cannot be
 * read, written or trusted. */
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "plugin/cache.h"
#include "plugin/entry.h"
#include "plugin/scan.h"
#include "plugin_folders.h"
#include "support/test.h"

/* Changes the time stamp only. */
static void touch(const char *path) {
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

static int begin(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--stamp") == 0)
        return printf("%" PRIu64 "\n", dlc_system_stamp()) < 0;
    return TESTS_RUN;
}

TEST_SETTINGS(.teardown = dir_remove_all, .begin = begin);

TEST(caches_valid_plugins) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "two", NULL);
    cache_dir_make();
    ck_assert_int_eq(state_with_cache(dir, "two.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(load_count(), 1);
    ck_assert_ptr_nonnull(cache_file());

    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, "two.so");
    ck_assert_int_eq(entry->state, DLC_ENTRY_USABLE);
    ck_assert_str_eq(entry->path, path);
    ck_assert_str_eq(entry->name, "two");
    ck_assert_str_eq(entry->version, "1.0");
    ck_assert_str_eq(entry->license, "BSD-2-Clause");
    ck_assert_uint_eq(entry->features, 2);
    ck_assert_str_eq(entry->feature[1].name, "digits");
    ck_assert_str_eq(entry->feature[1].help, "one sample");
    ck_assert_uint_eq(entry->feature[1].caps, 1ull << 63);
    dlc_registry_close(registry);
    ck_assert_int_eq(load_count(), 1);

    touch(path);
    ck_assert_int_eq(state_with_cache(dir, "two.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(load_count(), 2);
    ck_assert_int_eq(state_with_cache(dir, "two.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(load_count(), 2);
    ck_assert_int_eq(state_after_rescan("two.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(load_count(), 3);
}

/* A refusal that depends only on the file is cached with its reason. */
TEST(caches_refusals) {
    const char *dir = dir_make();
    dir_add(dir, "name-upper", NULL);
    dir_add(dir, "feature-call", NULL);
    cache_dir_make();
    for (int i = 0; i < 2; i++) {
        dlc_registry *registry = registry_over(dir);
        ck_contains(entry_of(registry, "name-upper.so")->reason, "no valid name");
        const dlc_plugin_entry *entry = entry_of(registry, "feature-call.so");
        ck_assert_int_eq(entry->feature[0].state, DLC_ENTRY_REFUSED);
        ck_contains(entry->feature[0].reason, "lacks read");
        dlc_registry_close(registry);
        ck_assert_int_eq(load_count(), 1);
    }
}

/* A file that has crashed is skipped for a while, although it would not crash again,
 * until it changes or a rescan is requested. */
TEST(caches_a_crash) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "obeys", NULL);
    char *first = NULL;
    cache_dir_make();
    give_orders("signal", SIGSEGV);
    for (int i = 0; i < 3; i++) {
        dlc_registry *registry = registry_over(dir);
        const dlc_plugin_entry *entry = entry_of(registry, "obeys.so");
        ck_assert_int_eq(entry->state, DLC_ENTRY_REFUSED);
        ck_contains(entry->reason, "crashed (signal 11");
        ck_contains(entry->reason, "dlcore plugin list --rescan");
        first = first ? first : strdup(entry->reason);
        ck_assert_str_eq(entry->reason, first); /* with the time of the crash */
        dlc_registry_close(registry);
        ck_assert_int_eq(load_count(), 1);
        give_orders(NULL, 0);
    }
    free(first);
    touch(path);
    ck_assert_int_eq(state_with_cache(dir, "obeys.so"), DLC_ENTRY_USABLE);

    give_orders("signal", SIGSEGV);
    ck_assert_int_eq(state_after_rescan("obeys.so"), DLC_ENTRY_REFUSED);
    give_orders(NULL, 0);
    ck_assert_int_eq(state_with_cache(dir, "obeys.so"), DLC_ENTRY_REFUSED);
    ck_assert_int_eq(state_after_rescan("obeys.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(state_with_cache(dir, "obeys.so"), DLC_ENTRY_USABLE);
}

/* The second time there is no wait. */
TEST(caches_a_hang) {
    const char *dir = dir_make();
    dir_add(dir, "loaded-hang", NULL);
    cache_dir_make();
    dlc_scan_timeout(1000);
    ck_assert_int_eq(state_with_cache(dir, "loaded-hang.so"), DLC_ENTRY_REFUSED);
    int loads = load_count();
    dlc_scan_timeout(1000000);
    ck_assert_int_eq(state_with_cache(dir, "loaded-hang.so"), DLC_ENTRY_REFUSED);
    ck_assert_int_eq(load_count(), loads);
}

/* Unavailability is cached for the environment that it was found in: a driver may be
 * installed, or no longer be hidden. */
TEST(caches_unavailable_plugins) {
    const char *dir = dir_make();
    dir_add(dir, "good", NULL);
    cache_dir_make();
    setenv("FIXTURE_ABSENT", "no abacus", 1);
    ck_assert_int_eq(state_with_cache(dir, "good.so"), DLC_ENTRY_UNAVAILABLE);
    setenv("OLDPWD", dir, 1); /* does not matter */
    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, "good.so");
    ck_assert_int_eq(entry->state, DLC_ENTRY_UNAVAILABLE);
    ck_contains(entry->reason, "no abacus");
    dlc_registry_close(registry);
    ck_assert_int_eq(load_count(), 1);
    unsetenv("FIXTURE_ABSENT");
    ck_assert_int_eq(state_with_cache(dir, "good.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(load_count(), 2);
    setenv("FIXTURE_ABSENT", "no abacus", 1);
    ck_assert_int_eq(state_with_cache(dir, "good.so"), DLC_ENTRY_USABLE); /* cached */
    ck_assert_int_eq(state_after_rescan("good.so"), DLC_ENTRY_UNAVAILABLE);
    ck_assert_int_eq(state_with_cache(dir, "good.so"), DLC_ENTRY_UNAVAILABLE);
    ck_assert_int_eq(load_count(), 3);
}

/* They may be the fault of a library that is missing, so they depend on the system. */
TEST(caches_errors_of_the_loader) {
    const char *dir = dir_make(), *path = dir_add(dir, "undefined", NULL);
    cache_dir_make();
    ck_assert_int_eq(state_with_cache(dir, "undefined.so"), DLC_ENTRY_REFUSED);
    ck_assert_ptr_nonnull(cache_file());
    dlc_cache cache = {0};
    struct stat info;
    const uint64_t now = dlc_system_stamp();
    ck_assert_int_eq(stat(path, &info), 0);
    ck_assert_int_eq(dlc_cache_read(&cache), DLC_OK);
    ck_assert_ptr_nonnull(dlc_cache_find(&cache, path, &info, now));
    ck_assert_ptr_null(dlc_cache_find(&cache, path, &info, now + 2));
    dlc_cache_free(&cache);
}

/* A library that is put into a folder where the loader looks is noticed. */
TEST(notices_what_is_installed) {
    const char *dir = dir_make();
    char again[PATH_MAX + 16], program[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    ck_assert_int_gt(length, 0);
    program[length] = '\0';
    setenv("LD_LIBRARY_PATH", dir, 1);
    uint64_t stamp[3];
    for (int i = 0; i < 3; i++) {
        FILE *stream = NULL;
        snprintf(again, sizeof again, "%s --stamp", program);
        stream = popen(again,
                       "re"); // NOLINT(cert-env33-c): the loader reads the path once
        ck_assert_ptr_nonnull(stream);
        ck_assert_int_eq(fscanf(stream, "%" SCNu64, &stamp[i]), 1);
        ck_assert_int_eq(pclose(stream), 0);
        if (i == 1)
            dir_add(dir, "good", NULL);
    }
    ck_assert_uint_eq(stamp[0], stamp[1]);
    ck_assert_uint_ne(stamp[1], stamp[2]);
}

/* Owner and mode of a file are checked each time. */
TEST(checks_owner_and_mode_each_time) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "good", NULL);
    cache_dir_make();
    ck_assert_int_eq(state_with_cache(dir, "good.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(chmod(path, 0666), 0);
    ck_assert_int_eq(state_with_cache(dir, "good.so"), DLC_ENTRY_REFUSED);
}

/* The same user searches different folders in turn. */
TEST(keeps_other_folders) {
    const char *a = dir_make(), *b = dir_make();
    const char *path = dir_add(a, "good", NULL);
    dir_add(b, "two", NULL);
    cache_dir_make();
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(state_with_cache(a, "good.so"), DLC_ENTRY_USABLE);
        ck_assert_int_eq(state_with_cache(b, "two.so"), DLC_ENTRY_USABLE);
        ck_assert_int_eq(load_count(), 2);
    }
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(state_after_rescan("two.so"), DLC_ENTRY_USABLE);
    struct stat info;
    ck_assert_int_eq(stat(cache_file(), &info), 0);
    ck_assert_int_eq(state_with_cache(b, "two.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(load_count(), 3);
}

/* ---- Invalid caches ---------------------------------------------------------- */

/* The cache is ignored and replaced, and used the next time. */
static void expect_rescan(const char *dir) {
    int loads = load_count();
    ck_assert_int_eq(state_with_cache(dir, "good.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(load_count(), loads + 1);
    ck_assert_int_eq(state_with_cache(dir, "good.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(load_count(), loads + 1);
}

TEST(ignores_damage) {
    const char *dir = dir_make();
    dir_add(dir, "good", NULL);
    cache_dir_make();
    ck_assert_int_eq(state_with_cache(dir, "good.so"), DLC_ENTRY_USABLE);
    const char *file = cache_file();
    struct stat info;
    ck_assert_int_eq(stat(file, &info), 0);
    for (off_t at = 8; at < info.st_size; at += info.st_size / 8) {
        char byte;
        int fd = open(file, O_RDWR | O_CLOEXEC);
        ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
        byte ^= 0x20;
        ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
        close(fd);
        expect_rescan(dir);
    }
    for (off_t bytes = info.st_size - 1; bytes > 0; bytes /= 3) {
        ck_assert_int_eq(truncate(file, bytes), 0);
        expect_rescan(dir);
    }
}

/* An unknown state of a plugin or a feature is damage, too. */
TEST(ignores_unknown_states) {
    for (int state = -1; state <= DLC_ENTRY_UNTRIED + 1; state++) {
        dlc_feature_entry feature = {.name = "f", .reason = "why", .state = state};
        dlc_report report = {.plugin = {.name = "p",
                                        .version = "1",
                                        .license = "none",
                                        .state = DLC_ENTRY_USABLE,
                                        .features = 1},
                             .feature = &feature},
                   back = {0};
        dlc_text bytes = {0};
        int known = state >= DLC_ENTRY_USABLE && state <= DLC_ENTRY_UNTRIED;
        dlc_report_pack(&report, &bytes);
        ck_assert_int_eq(dlc_report_unpack(bytes.bytes, bytes.length, &back),
                         known ? DLC_OK : DLC_ERR_DATA);
        dlc_free(back.feature);
        dlc_text_free(&bytes);
    }
}

TEST(ignores_what_others_may_write) {
    const char *dir = dir_make();
    dir_add(dir, "good", NULL);
    cache_dir_make();
    ck_assert_int_eq(state_with_cache(dir, "good.so"), DLC_ENTRY_USABLE);
    const char *file = cache_file();
    ck_assert_int_eq(chmod(file, 0606), 0);
    expect_rescan(dir);
    ck_assert_int_eq(chmod(file, 0660), 0);
    expect_rescan(dir);
    if (geteuid() == 0) { /* only root can change owners */
        ck_assert_int_eq(chown(file, 12345, 12345), 0);
        expect_rescan(dir);
    }
    char away[PATH_MAX + 8];
    snprintf(away, sizeof away, "%s/away", dir);
    ck_assert_int_eq(rename(file, away), 0);
    ck_assert_int_eq(symlink(away, file), 0);
    expect_rescan(dir);
}

/* Nothing can be cached, which is not an error. */
static void expect_no_cache(const char *dir) {
    for (int i = 0; i < 2; i++) {
        int loads = load_count();
        ck_assert_int_eq(state_with_cache(dir, "good.so"), DLC_ENTRY_USABLE);
        ck_assert_int_eq(load_count(), loads + 1);
    }
}

TEST(works_without_a_cache) {
    const char *dir = dir_make(), *home;
    dir_add(dir, "good", NULL);
    home = cache_dir_make();
    /* No folder can be created there, and a file is not a folder. */
    setenv("XDG_CACHE_HOME", "/proc/none", 1);
    expect_no_cache(dir);
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    expect_no_cache(dir);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    expect_no_cache(dir);
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "", 1);
    expect_no_cache(dir);
    ck_assert_int_eq(access("relative", F_OK), -1);
    if (geteuid() == 0) { /* the folder of another user, as when sudo keeps HOME */
        ck_assert_int_eq(chown(home, 12345, 12345), 0);
        setenv("HOME", home, 1);
        unsetenv("XDG_CACHE_HOME");
        expect_no_cache(dir);
        ck_assert_int_eq(access(dir_path(home, ".cache"), F_OK), -1);
    }
}

TEST(makes_its_folders) {
    const char *dir = dir_make(), *home;
    dir_add(dir, "good", NULL);
    home = cache_dir_make();
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", home, 1);
    expect_rescan(dir);
    struct stat info;
    ck_assert_int_eq(stat(dir_path(home, ".cache/dlcore"), &info), 0);
    ck_assert_int_eq(info.st_mode & 0777, 0700);
}

/* Several processes start without a cache at once: each finds everything, and the cache
 * file stays valid. */
TEST(many_at_once) {
    enum { PROCESSES = 6 };
    const char *dir = dir_make();
    static const char *const all[] = {"good", "two", "for-vax", "crash-told", "older"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        dir_add(dir, all[i], NULL);
    cache_dir_make();
    pid_t child[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        ck_assert_int_ge(child[p], 0);
        if (child[p])
            continue;
        int right = 1;
        for (int round = 0; round < 4; round++) {
            dlc_registry *registry = NULL;
            right &= setenv("DLCORE_PLUGIN_PATH", dir, 1) == 0;
            right &= (round % 2 ? dlc_registry_open(&registry)
                                : dlc_registry_rescan(&registry)) == 0;
            for (size_t i = 0; right && i < sizeof all / sizeof *all; i++)
                right = dlc_registry_plugin(registry, i)->state == DLC_ENTRY_USABLE;
            dlc_registry_close(registry);
        }
        _exit(right ? 0 : 1);
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status;
        ck_assert_int_eq(waitpid(child[p], &status, 0), child[p]);
        ck_assert_int_eq(status, 0);
    }
    int loads = load_count();
    ck_assert_ptr_nonnull(cache_file());
    ck_assert_int_eq(state_with_cache(dir, "two.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(load_count(), loads);
}

/* What is remembered of inspected files, what isn't, and what is made of a cache that
 * cannot be read, written or believed. */
#include <check.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "plugin/report.h"
#include "plugin/scan.h"
#include "support.h"

/* The state of a file when it is looked for now. */
static dlc_entry_state state_now(const char *box, const char *file) {
    dlc_registry *registry = registry_over(box);
    dlc_entry_state state = entry_of(registry, file)->state;
    dlc_registry_close(registry);
    return state;
}

static dlc_entry_state state_anew(const char *file) {
    dlc_registry *registry = NULL;
    ck_assert_int_eq(dlc_registry_rescan(&registry), DLC_OK);
    dlc_entry_state state = entry_of(registry, file)->state;
    dlc_registry_close(registry);
    return state;
}

/* Another time stamp, and nothing else. */
static void touch(const char *path) {
    const struct timespec times[2] = {{.tv_sec = 1000000000}, {.tv_sec = 1000000000}};
    ck_assert_int_eq(utimensat(AT_FDCWD, path, times, 0), 0);
}

START_TEST(remembers_what_is_sound) {
    const char *box = box_make();
    const char *path = box_put(box, "two", NULL);
    cache_make();
    ck_assert_int_eq(state_now(box, "two.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(loads_in_all(), 1);
    ck_assert_ptr_nonnull(cache_file());

    dlc_registry *registry = registry_over(box);
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
    ck_assert_int_eq(loads_in_all(), 1);

    touch(path);
    ck_assert_int_eq(state_now(box, "two.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(loads_in_all(), 2);
    ck_assert_int_eq(state_now(box, "two.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(loads_in_all(), 2);
    ck_assert_int_eq(state_anew("two.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(loads_in_all(), 3);
}
END_TEST

/* A refusal for what stands in the file is remembered with its reason. */
START_TEST(remembers_refusals) {
    const char *box = box_make();
    box_put(box, "name-upper", NULL);
    box_put(box, "feature-call", NULL);
    cache_make();
    for (int i = 0; i < 2; i++) {
        dlc_registry *registry = registry_over(box);
        ck_contains(entry_of(registry, "name-upper.so")->reason, "no proper name");
        const dlc_plugin_entry *entry = entry_of(registry, "feature-call.so");
        ck_assert_int_eq(entry->feature[0].state, DLC_ENTRY_REFUSED);
        ck_contains(entry->feature[0].reason, "lacks read");
        dlc_registry_close(registry);
        ck_assert_int_eq(loads_in_all(), 1);
    }
}
END_TEST

/* It is left out though it would not crash again, until the file changes or somebody
 * asks. */
START_TEST(remembers_a_crash) {
    const char *box = box_make();
    const char *path = box_put(box, "crash-told", NULL);
    char *first = NULL;
    cache_make();
    setenv("FIXTURE_CRASH", "1", 1);
    for (int i = 0; i < 3; i++) {
        dlc_registry *registry = registry_over(box);
        const dlc_plugin_entry *entry = entry_of(registry, "crash-told.so");
        ck_assert_int_eq(entry->state, DLC_ENTRY_REFUSED);
        ck_contains(entry->reason, "crashed (signal 6");
        ck_contains(entry->reason, "dlcore plugin list --rescan");
        first = first ? first : strdup(entry->reason);
        ck_assert_str_eq(entry->reason, first); /* with the time when it was found */
        dlc_registry_close(registry);
        ck_assert_int_eq(loads_in_all(), 1);
        unsetenv("FIXTURE_CRASH");
    }
    free(first);
    touch(path);
    ck_assert_int_eq(state_now(box, "crash-told.so"), DLC_ENTRY_USABLE);

    setenv("FIXTURE_CRASH", "1", 1);
    ck_assert_int_eq(state_anew("crash-told.so"), DLC_ENTRY_REFUSED);
    unsetenv("FIXTURE_CRASH");
    ck_assert_int_eq(state_now(box, "crash-told.so"), DLC_ENTRY_REFUSED);
    ck_assert_int_eq(state_anew("crash-told.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(state_now(box, "crash-told.so"), DLC_ENTRY_USABLE);
}
END_TEST

/* The second time nobody waits. */
START_TEST(remembers_a_hang) {
    const char *box = box_make();
    box_put(box, "loaded-hang", NULL);
    cache_make();
    dlc_scan_patience(1000);
    ck_assert_int_eq(state_now(box, "loaded-hang.so"), DLC_ENTRY_REFUSED);
    int loads = loads_in_all();
    dlc_scan_patience(1000000);
    ck_assert_int_eq(state_now(box, "loaded-hang.so"), DLC_ENTRY_REFUSED);
    ck_assert_int_eq(loads_in_all(), loads);
}
END_TEST

/* A driver may come, and so may a library; what was remembered before is no excuse. */
START_TEST(asks_again_what_is_unavailable) {
    const char *box = box_make();
    box_put(box, "good", NULL);
    box_put(box, "undefined", NULL);
    cache_make();
    setenv("FIXTURE_ABSENT", "no abacus", 1);
    ck_assert_int_eq(state_now(box, "good.so"), DLC_ENTRY_UNAVAILABLE);
    ck_assert_int_eq(state_now(box, "good.so"), DLC_ENTRY_UNAVAILABLE);
    ck_assert_int_eq(loads_in_all(), 2);
    ck_assert_ptr_null(cache_file());
    unsetenv("FIXTURE_ABSENT");
    ck_assert_int_eq(state_now(box, "good.so"), DLC_ENTRY_USABLE);
    setenv("FIXTURE_ABSENT", "no abacus", 1);
    ck_assert_int_eq(state_now(box, "good.so"), DLC_ENTRY_USABLE); /* remembered */
    ck_assert_int_eq(state_anew("good.so"), DLC_ENTRY_UNAVAILABLE);
    ck_assert_int_eq(state_now(box, "good.so"), DLC_ENTRY_UNAVAILABLE); /* forgotten */
}
END_TEST

/* Whom a file belongs to and who may change it is looked at each time. */
START_TEST(trusts_nobody_for_long) {
    const char *box = box_make();
    const char *path = box_put(box, "good", NULL);
    cache_make();
    ck_assert_int_eq(state_now(box, "good.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(chmod(path, 0666), 0);
    ck_assert_int_eq(state_now(box, "good.so"), DLC_ENTRY_REFUSED);
}
END_TEST

/* Other folders are looked into in turns, by the same user. */
START_TEST(keeps_other_folders) {
    const char *a = box_make(), *b = box_make();
    const char *path = box_put(a, "good", NULL);
    box_put(b, "two", NULL);
    cache_make();
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(state_now(a, "good.so"), DLC_ENTRY_USABLE);
        ck_assert_int_eq(state_now(b, "two.so"), DLC_ENTRY_USABLE);
        ck_assert_int_eq(loads_in_all(), 2);
    }
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(state_anew("two.so"), DLC_ENTRY_USABLE);
    struct stat info;
    ck_assert_int_eq(stat(cache_file(), &info), 0);
    ck_assert_int_eq(state_now(b, "two.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(loads_in_all(), 3);
}
END_TEST

/* ---- A cache that is no good ------------------------------------------------- */

/* It isn't believed, replaced, and the next time it is. */
static void expect_anew(const char *box) {
    int loads = loads_in_all();
    ck_assert_int_eq(state_now(box, "good.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(loads_in_all(), loads + 1);
    ck_assert_int_eq(state_now(box, "good.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(loads_in_all(), loads + 1);
}

START_TEST(ignores_damage) {
    const char *box = box_make();
    box_put(box, "good", NULL);
    cache_make();
    ck_assert_int_eq(state_now(box, "good.so"), DLC_ENTRY_USABLE);
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
        expect_anew(box);
    }
    for (off_t bytes = info.st_size - 1; bytes > 0; bytes /= 3) {
        ck_assert_int_eq(truncate(file, bytes), 0);
        expect_anew(box);
    }
}
END_TEST

/* A state that there is not, of a plugin or of its feature, is damage, too. */
START_TEST(ignores_unknown_states) {
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
END_TEST

START_TEST(ignores_what_others_may_write) {
    const char *box = box_make();
    box_put(box, "good", NULL);
    cache_make();
    ck_assert_int_eq(state_now(box, "good.so"), DLC_ENTRY_USABLE);
    const char *file = cache_file();
    ck_assert_int_eq(chmod(file, 0606), 0);
    expect_anew(box);
    ck_assert_int_eq(chmod(file, 0660), 0);
    expect_anew(box);
    if (geteuid() == 0) { /* only root can give files away */
        ck_assert_int_eq(chown(file, 12345, 12345), 0);
        expect_anew(box);
    }
    char away[PATH_MAX + 8];
    snprintf(away, sizeof away, "%s/away", box);
    ck_assert_int_eq(rename(file, away), 0);
    ck_assert_int_eq(symlink(away, file), 0);
    expect_anew(box);
}
END_TEST

/* None can be kept: that is no reason to complain. */
static void expect_none(const char *box) {
    for (int i = 0; i < 2; i++) {
        int loads = loads_in_all();
        ck_assert_int_eq(state_now(box, "good.so"), DLC_ENTRY_USABLE);
        ck_assert_int_eq(loads_in_all(), loads + 1);
    }
}

START_TEST(does_without) {
    const char *box = box_make(), *home;
    box_put(box, "good", NULL);
    home = cache_make();
    /* No folder can be made there, and a file is none. */
    setenv("XDG_CACHE_HOME", "/proc/none", 1);
    expect_none(box);
    setenv("XDG_CACHE_HOME", "/dev/null", 1);
    expect_none(box);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("HOME");
    expect_none(box);
    setenv("XDG_CACHE_HOME", "relative", 1);
    setenv("HOME", "", 1);
    expect_none(box);
    ck_assert_int_eq(access("relative", F_OK), -1);
    if (geteuid() == 0) { /* the folder of another, as where sudo keeps HOME */
        ck_assert_int_eq(chown(home, 12345, 12345), 0);
        setenv("HOME", home, 1);
        unsetenv("XDG_CACHE_HOME");
        expect_none(box);
        ck_assert_int_eq(access(box_path(home, ".cache"), F_OK), -1);
    }
}
END_TEST

START_TEST(makes_its_folders) {
    const char *box = box_make(), *home;
    box_put(box, "good", NULL);
    home = cache_make();
    unsetenv("XDG_CACHE_HOME");
    setenv("HOME", home, 1);
    expect_anew(box);
    struct stat info;
    ck_assert_int_eq(stat(box_path(home, ".cache/dlcore"), &info), 0);
    ck_assert_int_eq(info.st_mode & 0777, 0700);
}
END_TEST

/* All at once begin without a cache: each finds everything, and what one leaves behind
 * is whole. */
START_TEST(many_at_once) {
    enum { PROCESSES = 6 };
    const char *box = box_make();
    static const char *const all[] = {"good", "two", "for-vax", "crash-told", "older"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        box_put(box, all[i], NULL);
    cache_make();
    pid_t child[PROCESSES];
    for (int p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        ck_assert_int_ge(child[p], 0);
        if (child[p])
            continue;
        int right = 1;
        for (int round = 0; round < 4; round++) {
            dlc_registry *registry = NULL;
            right &= setenv("DLCORE_PLUGIN_PATH", box, 1) == 0;
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
    int loads = loads_in_all();
    ck_assert_ptr_nonnull(cache_file());
    ck_assert_int_eq(state_now(box, "two.so"), DLC_ENTRY_USABLE);
    ck_assert_int_eq(loads_in_all(), loads);
}
END_TEST

int main(void) {
    const TTest *const tests[] = {
        remembers_what_is_sound,
        remembers_refusals,
        remembers_a_crash,
        remembers_a_hang,
        asks_again_what_is_unavailable,
        trusts_nobody_for_long,
        keeps_other_folders,
        ignores_damage,
        ignores_unknown_states,
        ignores_what_others_may_write,
        does_without,
        makes_its_folders,
        many_at_once,
    };
    Suite *suite = suite_create("cache");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, NULL, box_remove_all);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        tcase_add_test(all, tests[i]);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

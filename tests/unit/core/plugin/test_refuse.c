/* Tests every refusal of the loader with its message, and that a refused plugin does
 * not affect others. */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "plugin/scan.h"
#include "plugin_folders.h"

/* ---- Invalid descriptors ---------------------------------------------------- */

typedef struct refusal {
    const char *fixture, *says;
} refusal;

static const refusal refusals[] = {
    {"other", "not a plugin: it exports no dlc_plugin_v0"},
    {"undefined", "fixture_nobody_has_this"},
    {"inherits", "exports no dlc_plugin_v0 of its own, only that of "},
    {"major2",
     "built for version 2 of the plugin interface, this dlcore has version 0"},
    {"draft-before", "it was built for draft 0."},
    {"draft-after", "build it again with the headers of this dlcore"},
    {"small", "a size of 16 bytes, too small for its required fields"},
    {"huge", "a size of 1073741824 bytes, implausibly large"},
    {"odd-size", "not a multiple of its alignment"},
    {"name-null", "the plugin has no valid name"},
    {"name-empty", "the plugin has no valid name"},
    {"name-upper", "the plugin has no valid name"},
    {"name-path", "the plugin has no valid name"},
    {"name-64", "the plugin has no valid name"},
    {"features-more", "its table of features doesn't end"},
    {"version-escape", "plugin good has no valid version"},
    {"license-delete", "plugin good has no valid license"},
    {"version-null", "plugin good has no valid version"},
    {"version-lines", "plugin good has no valid version"},
    {"license-null", "plugin good has no valid license"},
    {"features-null", "plugin good has no table of features"},
    {"features-empty", "the plugin has no features"},
    {"features-unsized", "feature 0 has a size of 0 bytes, too small"},
    {"features-small", "feature 0 has a size of 56 bytes, too small"},
};

START_TEST(refuses_plugin) {
    const refusal *r = &refusals[_i];
    char file[NAME_MAX];
    const char *dir = dir_make();
    const char *path = dir_add(dir, r->fixture, NULL);
    dir_add(dir, "two", "zz-sound");
    snprintf(file, sizeof file, "%s.so", r->fixture);

    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, file);
    ck_assert_int_eq(entry->state, DLC_ENTRY_REFUSED);
    ck_contains(entry->reason, r->says);
    ck_contains(entry->reason, path);
    ck_assert_uint_eq(entry->features, 0);
    ck_assert_ptr_null(entry->version);
    ck_assert_str_eq(entry->name, r->fixture);
    /* The other plugin is usable. */
    ck_assert_int_eq(entry_of(registry, "zz-sound.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
}
END_TEST

static const refusal feature_refusals[] = {
    {"feature-name", "its name is not valid"},
    {"feature-kind", "it is of kind 77, which this dlcore doesn't know"},
    {"feature-kind-next", "which this dlcore doesn't know"},
    {"feature-kind0", "it is of kind 0, which this dlcore doesn't know"},
    {"feature-needs", "needs what this dlcore doesn't offer (needs bits 0x10)"},
    {"feature-help", "it has no help text"},
    {"feature-device", "the name of its device is not valid"},
    {"feature-ops", "it has no table of operations"},
    {"feature-call", "its table of operations lacks read"},
    {"feature-options", "samples"},
};

START_TEST(refuses_feature) {
    const refusal *r = &feature_refusals[_i];
    char file[NAME_MAX];
    const char *dir = dir_make();
    dir_add(dir, r->fixture, NULL);
    snprintf(file, sizeof file, "%s.so", r->fixture);

    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, file);
    /* The plugin itself is valid. */
    ck_assert_int_eq(entry->state, DLC_ENTRY_USABLE);
    ck_assert_ptr_null(entry->reason);
    ck_assert_uint_eq(entry->features, 1);
    ck_assert_int_eq(entry->feature[0].state, !strncmp(r->fixture, "feature-kind", 12)
                                                  ? DLC_ENTRY_IGNORED
                                                  : DLC_ENTRY_REFUSED);
    ck_contains(entry->feature[0].reason, r->says);
    ck_assert_ptr_null(dlc_registry_usable(registry, DLC_KIND_DATA, 0));
    dlc_registry_close(registry);
}
END_TEST

/* The largest allowed values are accepted. */
START_TEST(accepts_the_limits) {
    const char *dir = dir_make();
    dir_add(dir, "name-63", NULL);
    dir_add(dir, "features-most", NULL);
    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, "name-63.so");
    ck_assert_int_eq(entry->state, DLC_ENTRY_USABLE);
    ck_assert_uint_eq(strlen(entry->name), 63);
    entry = entry_of(registry, "features-most.so");
    ck_assert_int_eq(entry->state, DLC_ENTRY_USABLE);
    ck_assert_uint_eq(entry->features, 1024);
    ck_assert_int_eq(entry->feature[1023].state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
}
END_TEST

/* ---- Misbehaviour ------------------------------------------------------------ */

static int count_files(void) {
    int count = 0;
    DIR *stream = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(stream);
    while (readdir(stream))
        count++;
    closedir(stream);
    return count;
}

/* Nothing may be left of the process that inspected it. */
static void expect_misbehaving(const char *fixture, const char *says) {
    char file[NAME_MAX];
    const char *dir = dir_make();
    dir_add(dir, fixture, NULL);
    snprintf(file, sizeof file, "%s.so", fixture);
    int files = count_files();

    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, file);
    ck_assert_int_eq(entry->state, DLC_ENTRY_REFUSED);
    ck_contains(entry->reason, says);
    ck_contains(entry->reason, dir);
    ck_assert_str_eq(entry->name, fixture);
    dlc_registry_close(registry);
    ck_assert_int_eq(count_files(), files);
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}

static const refusal misbehaviours[] = {
    {"opened-crash",
     "crashed (signal 11, Segmentation fault) while it was opened, on 2"},
    {"loaded-crash", "crashed (signal 6, Aborted) in its load(), on 2"},
    {"loaded-exit", "ended the process in its load(), on 2"},
    {"loaded-close", "ended the process in its load(), on 2"},
};

START_TEST(refuses_misbehaving_plugin) {
    expect_misbehaving(misbehaviours[_i].fixture, misbehaviours[_i].says);
}
END_TEST

static const refusal hangs[] = {
    {"opened-hang", "did not return within 1.5 s while it was opened, on 2"},
    {"loaded-hang", "did not return within 1.5 s in its load(), on 2"},
};

START_TEST(refuses_hang) {
    dlc_scan_timeout(1500);
    expect_misbehaving(hangs[_i].fixture, hangs[_i].says);
}
END_TEST

/* Several hang at the same time, not one after the other; a file that does not is used
 * all the same. */
START_TEST(hangs_together) {
    const char *dir = dir_make();
    const char *const names[] = {"a", "b", "c", "d"};
    dlc_scan_timeout(1000);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        dir_add(dir, i % 2 ? "loaded-hang" : "opened-hang", names[i]);
    dir_add(dir, "good", "e");
    uint64_t begin = dlc_now_ns();
    dlc_registry *registry = registry_over(dir);
    ck_assert_double_lt(dlc_since(begin), 3);
    ck_assert_int_eq(entry_of(registry, "a.so")->state, DLC_ENTRY_REFUSED);
    ck_assert_int_eq(entry_of(registry, "d.so")->state, DLC_ENTRY_REFUSED);
    ck_assert_int_eq(entry_of(registry, "e.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
}
END_TEST

/* Whatever load() has started ends with the inspection, whether or not it has left the
 * process group. */
START_TEST(ends_what_it_started) {
    const char *dir = dir_make();
    char path[300];
    int pid = 0;
    dir_add(dir, "loaded-leaves", NULL);
    snprintf(path, sizeof path, "%s/left", dir);
    setenv("FIXTURE_LEFT", path, 1);
    dlc_registry *registry = registry_over(dir);
    ck_assert_int_eq(entry_of(registry, "loaded-leaves.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
    FILE *left = fopen(path, "re");
    ck_assert_ptr_nonnull(left);
    ck_assert_int_eq(fscanf(left, "%d", &pid), 1);
    fclose(left);
    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(kill((pid_t)pid, 0), -1);
    ck_assert_int_eq(errno, ESRCH);
    unlink(path);
}
END_TEST

/* Plugins before and after them stay usable. */
START_TEST(other_plugins_stay_usable) {
    const char *dir = dir_make();
    dir_add(dir, "two", "a");
    dir_add(dir, "opened-crash", "b");
    dir_add(dir, "crash-tells", "c");
    dir_add(dir, "crash-told", "d"); /* crashes after that one, not by itself */
    dir_add(dir, "loaded-crash", "e");
    dir_add(dir, "older", "f");
    dlc_registry *registry = registry_over(dir);
    ck_assert_int_eq(entry_of(registry, "a.so")->state, DLC_ENTRY_USABLE);
    ck_assert_int_eq(entry_of(registry, "b.so")->state, DLC_ENTRY_REFUSED);
    ck_assert_int_eq(entry_of(registry, "c.so")->state, DLC_ENTRY_USABLE);
    ck_assert_int_eq(entry_of(registry, "d.so")->state, DLC_ENTRY_USABLE);
    ck_assert_int_eq(entry_of(registry, "e.so")->state, DLC_ENTRY_REFUSED);
    ck_assert_int_eq(entry_of(registry, "f.so")->state, DLC_ENTRY_USABLE);
    ck_assert_ptr_null(getenv("FIXTURE_CRASH"));
    dlc_registry_close(registry);
}
END_TEST

/* ---- Files ------------------------------------------------------------------- */

static void expect(const char *dir, const char *file, const char *says) {
    count_loads(dir);
    dlc_registry *registry = registry_over(dir);
    const dlc_plugin_entry *entry = entry_of(registry, file);
    ck_assert_int_eq(entry->state, DLC_ENTRY_REFUSED);
    ck_contains(entry->reason, says);
    ck_contains(entry->reason, file);
    ck_assert_ptr_null(dlc_registry_usable(registry, DLC_KIND_DATA, 0));
    dlc_registry_close(registry);
    ck_assert_int_eq(load_count(), 0);
}

START_TEST(refuses_file_others_may_write) {
    const char *dir = dir_make();
    ck_assert_int_eq(chmod(dir_add(dir, "good", NULL), 0646), 0);
    expect(dir, "good.so", "the file is writable by all users (mode 646)");
}
END_TEST

START_TEST(refuses_file_group_may_write) {
    const char *dir = dir_make();
    ck_assert_int_eq(chmod(dir_add(dir, "good", NULL), 0664), 0);
    expect(dir, "good.so", "the file is writable by its group (mode 664)");
}
END_TEST

START_TEST(refuses_file_of_another_user) {
    if (geteuid() != 0)
        return; /* only root can change owners */
    const char *dir = dir_make();
    ck_assert_int_eq(chown(dir_add(dir, "good", NULL), 12345, 12345), 0);
    expect(dir, "good.so", "the file belongs to user 12345");
}
END_TEST

START_TEST(refuses_link_out) {
    const char *dir = dir_make(), *outside = dir_make();
    const char *target = dir_add(outside, "good", NULL);
    ck_assert_int_eq(symlink(target, dir_path(dir, "link.so")), 0);
    expect(dir, "link.so", "a symbolic link that leads out of its folder");
}
END_TEST

/* A file outside the folder whose path begins with that of the folder. */
START_TEST(refuses_link_beside) {
    const char *dir = dir_make();
    const char *inner = dir_path(dir, "inner");
    ck_assert_int_eq(mkdir(inner, 0755), 0);
    dir_add(dir, "good", "innerx");
    const char *link = dir_path(inner, "link.so");
    ck_assert_int_eq(symlink("../innerx.so", link), 0);
    expect(inner, "link.so", "a symbolic link that leads out of its folder");
    unlink(link);
}
END_TEST

/* In a subfolder other users may be able to write. */
START_TEST(refuses_link_further_down) {
    const char *dir = dir_make();
    const char *inner = dir_path(dir, "inner"), *link = dir_path(dir, "link.so");
    ck_assert_int_eq(mkdir(inner, 0755), 0);
    dir_add(inner, "good", "below");
    ck_assert_int_eq(symlink("inner/below.so", link), 0);
    expect(dir, "link.so", "a symbolic link that leads out of its folder");
}
END_TEST

START_TEST(refuses_link_to_nothing) {
    const char *dir = dir_make();
    ck_assert_int_eq(symlink("nothing.so.1", dir_path(dir, "link.so")), 0);
    expect(dir, "link.so", "cannot be found: No such file");
}
END_TEST

START_TEST(refuses_folder_as_file) {
    const char *dir = dir_make();
    ck_assert_int_eq(mkdir(dir_path(dir, "sub.so"), 0755), 0);
    expect(dir, "sub.so", "not a file");
}
END_TEST

START_TEST(refuses_pipe) {
    const char *dir = dir_make();
    ck_assert_int_eq(mkfifo(dir_path(dir, "pipe.so"), 0644), 0);
    expect(dir, "pipe.so", "not a file");
}
END_TEST

static void put_text(const char *path, const char *text, size_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, bytes), (ssize_t)bytes);
    close(fd);
}

START_TEST(refuses_text) {
    const char *dir = dir_make();
    put_text(dir_path(dir, "text.so"), "#!/bin/sh\n", 10);
    expect(dir, "text.so", "not a shared object");
}
END_TEST

START_TEST(refuses_empty_file) {
    const char *dir = dir_make();
    put_text(dir_path(dir, "empty.so"), "", 0);
    expect(dir, "empty.so", "not a shared object");
}
END_TEST

/* However much is missing, the loader refuses it and survives. */
START_TEST(refuses_truncated) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "good", "cut");
    struct stat info;
    ck_assert_int_eq(stat(path, &info), 0);
    for (off_t bytes = info.st_size - 1; bytes > 64; bytes = bytes * 3 / 4) {
        ck_assert_int_eq(truncate(path, bytes), 0);
        expect(dir, "cut.so", "truncated or damaged");
    }
}
END_TEST

/* Truncated without a section table whose position would reveal it. */
START_TEST(refuses_truncated_without_sections) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "good", "cut");
    const char none[8] = {0};
    struct stat info;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(pwrite(fd, none, sizeof(ElfW(Off)), offsetof(ElfW(Ehdr), e_shoff)),
                     sizeof(ElfW(Off)));
    ck_assert_int_eq(pwrite(fd, none, 2, offsetof(ElfW(Ehdr), e_shnum)), 2);
    close(fd);
    ck_assert_int_eq(stat(path, &info), 0);
    for (off_t bytes = info.st_size / 4; bytes > 64; bytes = bytes * 3 / 4) {
        ck_assert_int_eq(truncate(path, bytes), 0);
        expect(dir, "cut.so", "truncated or damaged");
    }
}
END_TEST

/* One byte of a mapped segment is missing, without a section table after it. */
START_TEST(refuses_last_byte_missing) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "good", "cut");
    const char none[8] = {0};
    uint64_t end = 0;
    ElfW(Ehdr) header;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(pread(fd, &header, sizeof header, 0), sizeof header);
    for (unsigned i = 0; i < header.e_phnum; i++) {
        ElfW(Phdr) part;
        ck_assert_int_eq(
            pread(fd, &part, sizeof part, (off_t)(header.e_phoff + i * sizeof part)),
            sizeof part);
        end = part.p_offset + part.p_filesz > end ? part.p_offset + part.p_filesz : end;
    }
    ck_assert_int_eq(pwrite(fd, none, sizeof(ElfW(Off)), offsetof(ElfW(Ehdr), e_shoff)),
                     sizeof(ElfW(Off)));
    ck_assert_int_eq(pwrite(fd, none, 2, offsetof(ElfW(Ehdr), e_shnum)), 2);
    close(fd);
    ck_assert_int_eq(truncate(path, (off_t)end - 1), 0);
    expect(dir, "cut.so", "truncated or damaged");
    ck_assert_int_eq(truncate(path, (off_t)end), 0);
    dlc_registry *registry = registry_over(dir);
    ck_assert_int_eq(entry_of(registry, "cut.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
}
END_TEST

START_TEST(refuses_other_machine) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "good", "alien");
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    const unsigned char vax[2] = {75, 0};
    ck_assert_int_eq(pwrite(fd, vax, sizeof vax, offsetof(ElfW(Ehdr), e_machine)),
                     sizeof vax);
    close(fd);
    expect(dir, "alien.so", "built for another machine (ELF machine 75");
}
END_TEST

START_TEST(refuses_program) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "good", "program");
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    const unsigned char exec[2] = {2, 0};
    ck_assert_int_eq(pwrite(fd, exec, sizeof exec, offsetof(ElfW(Ehdr), e_type)),
                     sizeof exec);
    close(fd);
    expect(dir, "program.so", "not a shared object");
}
END_TEST

/* ---- Folders ----------------------------------------------------------------- */

static void expect_folder(const char *path, const char *says) {
    dlc_registry *registry = registry_over(path);
    const dlc_folder_entry *folder = dlc_registry_folder(registry, 1);
    ck_assert_ptr_nonnull(folder);
    ck_assert(!folder->is_default);
    ck_contains(folder->reason, says);
    ck_assert_ptr_null(dlc_registry_plugin(registry, 0));
    dlc_registry_close(registry);
}

START_TEST(refuses_folder_others_may_write) {
    const char *dir = dir_make();
    dir_add(dir, "good", NULL);
    ck_assert_int_eq(chmod(dir, 0777), 0);
    expect_folder(dir, "the folder is writable by all users (mode 777)");
    ck_assert_int_eq(chmod(dir, 0775), 0);
    expect_folder(dir, "the folder is writable by its group (mode 775)");
}
END_TEST

/* Whoever may write to a folder above could replace it; /tmp is sticky. */
START_TEST(refuses_folder_below_a_writable_one) {
    const char *dir = dir_make();
    char below[300];
    snprintf(below, sizeof below, "%s/below", dir);
    ck_assert_int_eq(mkdir(below, 0755), 0);
    ck_assert_int_eq(chmod(dir, 0777), 0);
    expect_folder(below, "any user may replace this folder");
    ck_assert_int_eq(chmod(dir, 01777), 0);
    dlc_registry *registry = registry_over(below);
    ck_assert_ptr_null(dlc_registry_folder(registry, 1)->reason);
    dlc_registry_close(registry);
    ck_assert_int_eq(rmdir(below), 0);
}
END_TEST

START_TEST(refuses_folder_of_another_user) {
    if (geteuid() != 0)
        return; /* only root can change owners */
    const char *dir = dir_make();
    dir_add(dir, "good", NULL);
    ck_assert_int_eq(chown(dir, 12345, 12345), 0);
    expect_folder(dir, "the folder belongs to user 12345");
}
END_TEST

START_TEST(refuses_missing_folder) {
    expect_folder("/no/such/folder", "cannot be read: No such file or directory");
    expect_folder("/dev/null", "cannot be read: Not a directory");
}
END_TEST

/* Neither "." nor an empty entry means the current directory. */
START_TEST(refuses_current_directory) {
    const char *dir = dir_make();
    dir_add(dir, "good", NULL);
    ck_assert_int_eq(chdir(dir), 0);
    expect_folder(".", "doesn't begin with '/'");
    expect_folder("plugins", "doesn't begin with '/'");
    expect_folder(":", "an empty entry");
    ck_assert_int_eq(chdir("/"), 0);
}
END_TEST

START_TEST(skips_bad_entry_takes_good) {
    const char *dir = dir_make();
    char path[PATH_MAX + 8];
    dir_add(dir, "good", NULL);
    snprintf(path, sizeof path, ":x:%s:", dir);
    dlc_registry *registry = registry_over(path);
    ck_assert_ptr_nonnull(dlc_registry_folder(registry, 1)->reason);
    ck_assert_ptr_nonnull(dlc_registry_folder(registry, 2)->reason);
    ck_assert_ptr_null(dlc_registry_folder(registry, 3)->reason);
    ck_assert_ptr_nonnull(dlc_registry_folder(registry, 4)->reason);
    ck_assert_ptr_null(dlc_registry_folder(registry, 5));
    ck_assert_int_eq(entry_of(registry, "good.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("refuse");
    TCase *inside = tcase_create("inside");
    tcase_add_checked_fixture(inside, NULL, dir_remove_all);
    tcase_add_loop_test(inside, refuses_plugin, 0,
                        (int)(sizeof refusals / sizeof *refusals));
    tcase_add_loop_test(inside, refuses_feature, 0,
                        (int)(sizeof feature_refusals / sizeof *feature_refusals));
    tcase_add_test(inside, accepts_the_limits);
    suite_add_tcase(suite, inside);

    TCase *does = tcase_create("does");
    tcase_add_checked_fixture(does, NULL, dir_remove_all);
    tcase_add_loop_test(does, refuses_misbehaving_plugin, 0,
                        (int)(sizeof misbehaviours / sizeof *misbehaviours));
    tcase_add_loop_test(does, refuses_hang, 0, (int)(sizeof hangs / sizeof *hangs));
    tcase_add_test(does, hangs_together);
    tcase_add_test(does, ends_what_it_started);
    tcase_add_test(does, other_plugins_stay_usable);
    suite_add_tcase(suite, does);

    TCase *around = tcase_create("around");
    tcase_add_checked_fixture(around, NULL, dir_remove_all);
    tcase_add_test(around, refuses_file_others_may_write);
    tcase_add_test(around, refuses_file_group_may_write);
    tcase_add_test(around, refuses_file_of_another_user);
    tcase_add_test(around, refuses_link_out);
    tcase_add_test(around, refuses_link_beside);
    tcase_add_test(around, refuses_link_further_down);
    tcase_add_test(around, refuses_link_to_nothing);
    tcase_add_test(around, refuses_folder_as_file);
    tcase_add_test(around, refuses_pipe);
    tcase_add_test(around, refuses_text);
    tcase_add_test(around, refuses_empty_file);
    tcase_add_test(around, refuses_truncated);
    tcase_add_test(around, refuses_truncated_without_sections);
    tcase_add_test(around, refuses_last_byte_missing);
    tcase_add_test(around, refuses_other_machine);
    tcase_add_test(around, refuses_program);
    tcase_add_test(around, refuses_folder_others_may_write);
    tcase_add_test(around, refuses_folder_below_a_writable_one);
    tcase_add_test(around, refuses_folder_of_another_user);
    tcase_add_test(around, refuses_missing_folder);
    tcase_add_test(around, refuses_current_directory);
    tcase_add_test(around, skips_bad_entry_takes_good);
    suite_add_tcase(suite, around);

    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

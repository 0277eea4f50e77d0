/* Tests refusals of the loader, with their messages, for files and folders: who may
 * change them, links, and what is no plugin. */
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <link.h>
#include <pwd.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "plugin_folders.h"
#include "support/test.h"

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

TEST_SETTINGS(.teardown = dir_remove_all);

TEST(refuses_file_others_may_write) {
    const char *dir = dir_make();
    ck_assert_int_eq(chmod(dir_add(dir, "good", NULL), 0646), 0);
    expect(dir, "good.so", "the file is writable by all users (mode 646)");
}

TEST(refuses_file_group_may_write) {
    const char *dir = dir_make();
    ck_assert_int_eq(chmod(dir_add(dir, "good", NULL), 0664), 0);
    expect(dir, "good.so", "the file is writable by its group (mode 664)");
}

TEST(refuses_file_of_another_user) {
    if (geteuid() != 0)
        return; /* only root can change owners */
    const char *dir = dir_make();
    ck_assert_int_eq(chown(dir_add(dir, "good", NULL), 12345, 12345), 0);
    expect(dir, "good.so", "the file belongs to user 12345");
}

TEST(refuses_link_out) {
    const char *dir = dir_make(), *outside = dir_make();
    const char *target = dir_add(outside, "good", NULL);
    ck_assert_int_eq(symlink(target, dir_path(dir, "link.so")), 0);
    expect(dir, "link.so", "a symbolic link that leads out of its folder");
}

/* A file outside the folder whose path begins with that of the folder. */
TEST(refuses_link_beside) {
    const char *dir = dir_make();
    const char *inner = dir_path(dir, "inner");
    ck_assert_int_eq(mkdir(inner, 0755), 0);
    dir_add(dir, "good", "innerx");
    const char *link = dir_path(inner, "link.so");
    ck_assert_int_eq(symlink("../innerx.so", link), 0);
    expect(inner, "link.so", "a symbolic link that leads out of its folder");
    unlink(link);
}

/* In a subfolder other users may be able to write. */
TEST(refuses_link_further_down) {
    const char *dir = dir_make();
    const char *inner = dir_path(dir, "inner"), *link = dir_path(dir, "link.so");
    ck_assert_int_eq(mkdir(inner, 0755), 0);
    dir_add(inner, "good", "below");
    ck_assert_int_eq(symlink("inner/below.so", link), 0);
    expect(dir, "link.so", "a symbolic link that leads out of its folder");
}

TEST(refuses_link_to_nothing) {
    const char *dir = dir_make();
    ck_assert_int_eq(symlink("nothing.so.1", dir_path(dir, "link.so")), 0);
    expect(dir, "link.so", "cannot be found: No such file");
}

TEST(refuses_folder_as_file) {
    const char *dir = dir_make();
    ck_assert_int_eq(mkdir(dir_path(dir, "sub.so"), 0755), 0);
    expect(dir, "sub.so", "not a file");
}

TEST(refuses_pipe) {
    const char *dir = dir_make();
    ck_assert_int_eq(mkfifo(dir_path(dir, "pipe.so"), 0644), 0);
    expect(dir, "pipe.so", "not a file");
}

static void put_text(const char *path, const char *text, size_t bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, bytes), (ssize_t)bytes);
    close(fd);
}

TEST(refuses_text) {
    const char *dir = dir_make();
    put_text(dir_path(dir, "text.so"), "#!/bin/sh\n", 10);
    expect(dir, "text.so", "not a shared object");
}

TEST(refuses_empty_file) {
    const char *dir = dir_make();
    put_text(dir_path(dir, "empty.so"), "", 0);
    expect(dir, "empty.so", "not a shared object");
}

/* However much is missing, the loader refuses it and survives. */
TEST(refuses_truncated) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "good", "cut");
    struct stat info;
    ck_assert_int_eq(stat(path, &info), 0);
    for (off_t bytes = info.st_size - 1; bytes > 64; bytes = bytes * 3 / 4) {
        ck_assert_int_eq(truncate(path, bytes), 0);
        expect(dir, "cut.so", "truncated or damaged");
    }
}

/* Truncated without a section table whose position would reveal it. */
TEST(refuses_truncated_without_sections) {
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

/* One byte of a mapped segment is missing, without a section table after it. */
TEST(refuses_last_byte_missing) {
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

TEST(refuses_other_machine) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "good", "alien");
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    const unsigned char vax[2] = {75, 0};
    ck_assert_int_eq(pwrite(fd, vax, sizeof vax, offsetof(ElfW(Ehdr), e_machine)),
                     sizeof vax);
    close(fd);
    expect(dir, "alien.so", "built for another machine (ELF machine 75");
}

TEST(refuses_program) {
    const char *dir = dir_make();
    const char *path = dir_add(dir, "good", "program");
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    const unsigned char exec[2] = {2, 0};
    ck_assert_int_eq(pwrite(fd, exec, sizeof exec, offsetof(ElfW(Ehdr), e_type)),
                     sizeof exec);
    close(fd);
    expect(dir, "program.so", "not a shared object");
}

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

TEST(refuses_folder_others_may_write) {
    const char *dir = dir_make();
    dir_add(dir, "good", NULL);
    ck_assert_int_eq(chmod(dir, 0777), 0);
    expect_folder(dir, "the folder is writable by all users (mode 777)");
    ck_assert_int_eq(chmod(dir, 0775), 0);
    expect_folder(dir, "the folder is writable by its group (mode 775)");
}

/* Whoever may write to a folder above could replace it; /tmp is sticky. */
TEST(refuses_folder_below_a_writable_one) {
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

TEST(refuses_folder_of_another_user) {
    if (geteuid() != 0)
        return; /* only root can change owners */
    const char *dir = dir_make();
    dir_add(dir, "good", NULL);
    ck_assert_int_eq(chown(dir, 12345, 12345), 0);
    expect_folder(dir, "the folder belongs to user 12345");
}

/* ---- Folders above ----------------------------------------------------------- */

enum { SOMEBODY = 12345 };

/* A folder of plugins that is as it must be, below `dir`. */
static const char *make_below(const char *dir) {
    const char *below = dir_path(dir, "below");
    ck_assert_int_eq(mkdir(below, 0755), 0);
    dir_add(below, "good", NULL);
    return below;
}

static void expect_trusted(const char *path) {
    dlc_registry *registry = registry_over(path);
    const char *reason = dlc_registry_folder(registry, 1)->reason;
    ck_assert_msg(!reason, "%s", reason);
    ck_assert_int_eq(entry_of(registry, "good.so")->state, DLC_ENTRY_USABLE);
    dlc_registry_close(registry);
}

/* Where it belongs to root, but the folder above does not, its owner could exchange it
 * for another one between the check and the load. */
TEST(refuses_folder_below_that_of_another_user) {
    if (geteuid() != 0)
        return; /* only root can change owners */
    char says[PATH_MAX + 100];
    const char *dir = dir_make(), *below = make_below(dir);
    const char *further = make_below(below);
    ck_assert_int_eq(chown(dir, SOMEBODY, 0), 0);
    snprintf(says, sizeof says,
             "/below: user 12345 may replace this folder, because %s (mode 755) "
             "belongs to that user",
             dir);
    expect_folder(below, says);
    expect_folder(further, "user 12345 may replace this folder");
    ck_assert_int_eq(chmod(dir, 01777), 0); /* the owner may all the same */
    expect_folder(below, "user 12345 may replace this folder");
    ck_assert_int_eq(chown(dir, 0, SOMEBODY), 0);
    expect_trusted(below);
    expect_trusted(further);
}

/* The file alone is asked for. */
TEST(refuses_file_below_the_folder_of_another_user) {
    if (geteuid() != 0)
        return;
    const char *dir = dir_make(), *below = make_below(dir);
    ck_assert_int_eq(chown(dir, SOMEBODY, 0), 0);
    dlc_registry *registry = NULL;
    ck_assert_int_eq(dlc_registry_inspect(dir_path(below, "good.so"), &registry),
                     DLC_OK);
    ck_assert_int_eq(dlc_registry_plugin(registry, 0)->state, DLC_ENTRY_REFUSED);
    ck_contains(dlc_registry_plugin(registry, 0)->reason, "user 12345 may replace");
    dlc_registry_close(registry);
    ck_assert_int_eq(chdir(below), 0);
    ck_assert_int_eq(dlc_registry_inspect("good.so", &registry), DLC_OK);
    ck_assert_int_eq(dlc_registry_plugin(registry, 0)->state, DLC_ENTRY_REFUSED);
    dlc_registry_close(registry);
    ck_assert_int_eq(chdir("/"), 0);
}

/* A group that has members, or may have. That of root is as good as root. */
TEST(refuses_folder_below_that_of_a_group) {
    if (geteuid() != 0)
        return;
    char says[PATH_MAX + 100];
    const char *dir = dir_make(), *below = make_below(dir);
    ck_assert_int_eq(chmod(dir, 0775), 0);
    expect_trusted(below);
    ck_assert_int_eq(chown(dir, 0, SOMEBODY), 0); /* clears no bit of a folder */
    snprintf(says, sizeof says,
             "because %s is writable by its group 12345 (mode 775); fix it with: chmod "
             "g-w %s",
             dir, dir);
    expect_folder(below, says);
    ck_assert_int_eq(chmod(dir, 01775), 0);
    expect_trusted(below);
}

/* Some user other than root, whose own group has his name and nobody else in it; or
 * one whose group has another name. */
static const struct passwd *find_user(int is_private) {
    const struct passwd *user;
    setpwent();
    while ((user = getpwent())) {
        const struct group *group = getgrgid(user->pw_gid);
        if (user->pw_uid != 0 && group && !*group->gr_mem &&
            is_private == (strcmp(group->gr_name, user->pw_name) == 0))
            break;
    }
    endpwent();
    return user;
}

/* As the homes of Debian, Ubuntu and Fedora may be. */
TEST(takes_what_a_private_group_may_write) {
    if (geteuid() != 0)
        return;
    for (int is_private = 0; is_private < 2; is_private++) {
        const struct passwd *user = find_user(is_private);
        if (!user)
            continue;
        const char *dir = dir_make(), *below = make_below(dir);
        ck_assert_int_eq(chown(dir, user->pw_uid, user->pw_gid), 0);
        ck_assert_int_eq(chmod(dir, 0775), 0);
        expect_folder(below, "may replace this folder"); /* as root */
        ck_assert_int_eq(seteuid(user->pw_uid), 0);
        if (is_private)
            expect_trusted(below);
        else
            expect_folder(below, "other users may replace this folder");
        ck_assert_int_eq(seteuid(0), 0);
    }
}

/* The mode shows what the list allows at most, as if the group might write. */
TEST(refuses_folder_below_one_with_a_list) {
    static const struct {
        uint32_t version;
        struct {
            uint16_t tag, may;
            uint32_t id;
        } row[5];
    } list = {2,
              {{0x01, 7, UINT32_MAX},
               {0x02, 7, SOMEBODY}, /* a user */
               {0x04, 5, UINT32_MAX},
               {0x10, 7, UINT32_MAX}, /* at most */
               {0x20, 5, UINT32_MAX}}};
    if (geteuid() != 0)
        return;
    const char *dir = dir_make(), *below = make_below(dir);
    ck_assert_int_eq(chmod(dir, 0775), 0);
    expect_trusted(below);
    if (setxattr(dir, "system.posix_acl_access", &list, sizeof list, 0) == 0)
        expect_folder(below, "other users may replace this folder");
}

TEST(follows_links_that_are_trusted) {
    const char *dir = dir_make(), *below = make_below(dir);
    const char *link = dir_path(dir, "link"), *up = dir_path(dir, "up");
    const char *loop = dir_path(dir, "loop");
    ck_assert_int_eq(symlink(below, link), 0);
    expect_trusted(link);
    ck_assert_int_eq(symlink("./below/../link/", up), 0);
    expect_trusted(up);
    ck_assert_int_eq(symlink("loop", loop), 0);
    expect_folder(loop, "cannot be read: Too many levels of symbolic links");
    if (geteuid() != 0)
        return;
    /* Everybody may make links in a sticky folder. */
    ck_assert_int_eq(lchown(link, SOMEBODY, 0), 0);
    expect_trusted(link); /* only root can exchange it */
    ck_assert_int_eq(chmod(dir, 01777), 0);
    expect_folder(link, "may replace this folder, because the symbolic link");
    expect_folder(up, "user 12345 may replace this folder, because the symbolic link");
    expect_trusted(below);
    /* The folder of a link counts as those of its target. */
    const char *other = dir_make(), *inner = dir_path(other, "inner");
    ck_assert_int_eq(symlink(below, inner), 0);
    expect_trusted(inner);
    ck_assert_int_eq(chown(other, SOMEBODY, 0), 0);
    expect_folder(inner, "user 12345 may replace this folder");
}

TEST(refuses_missing_folder) {
    expect_folder("/no/such/folder", "cannot be read: No such file or directory");
    expect_folder("/dev/null", "cannot be read: Not a directory");
}

/* Neither "." nor an empty entry means the current directory. */
TEST(refuses_current_directory) {
    const char *dir = dir_make();
    dir_add(dir, "good", NULL);
    ck_assert_int_eq(chdir(dir), 0);
    expect_folder(".", "doesn't begin with '/'");
    expect_folder("plugins", "doesn't begin with '/'");
    expect_folder(":", "an empty entry");
    ck_assert_int_eq(chdir("/"), 0);
}

TEST(skips_bad_entry_takes_good) {
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

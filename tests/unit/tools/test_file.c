/* Tests tools/file.c: a file is written completely or not at all. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "file.h"
#include "support/scratch.h"
#include "support/test.h"

static void check_holds(const char *name, const char *expected) {
    size_t size;
    unsigned char *bytes = scratch_read(name, &size);
    ck_assert_uint_eq(size, strlen(expected));
    ck_assert_mem_eq(bytes, expected, size);
    free(bytes);
}

TEST_SETTINGS(.setup = scratch_setup, .teardown = scratch_teardown);

TEST(writes_and_replaces) {
    const char *path = scratch_path("picture.svg");
    mode_t mask = umask(027);
    ck_assert_int_eq(dlc_tool_file_check(path), DLC_OK);
    ck_assert_int_eq(scratch_files(), 0);
    ck_assert_int_eq(dlc_tool_file_write(path, "one", 3), DLC_OK);
    check_holds("picture.svg", "one");
    struct stat there;
    ck_assert_int_eq(stat(path, &there), 0);
    ck_assert_uint_eq(there.st_mode & 0777, 0640);
    ck_assert_int_eq(dlc_tool_file_check(path), DLC_OK);
    check_holds("picture.svg", "one"); /* asking changes nothing */
    ck_assert_int_eq(dlc_tool_file_write(path, "", 0), DLC_OK);
    check_holds("picture.svg", "");
    ck_assert_int_eq(scratch_files(), 1);
    umask(mask);
}

static void refuses(const char *path, const char *why) {
    ck_assert_int_eq(dlc_tool_file_check(path), DLC_ERR_IO);
    ck_contains(dlc_detail(), path);
    ck_contains(dlc_detail(), why);
    ck_assert_int_eq(dlc_tool_file_write(path, "x", 1), DLC_ERR_IO);
}

TEST(refuses_what_it_cannot_write) {
    refuses(scratch_path("no/such/folder.svg"), "No such file");
    ck_assert_int_eq(mkdir(scratch_path("folder"), 0777), 0);
    refuses(scratch_path("folder"), "not a regular file");
    ck_assert_int_eq(mkfifo(scratch_path("pipe"), 0666), 0);
    refuses(scratch_path("pipe"), "not a regular file");
    char overlong[5000] = {0};
    memset(overlong, 'x', sizeof overlong - 1);
    ck_assert_int_eq(dlc_tool_file_check(overlong), DLC_ERR_IO);
    scratch_write("file", "x", 1);
    refuses(scratch_path("file/in-a-file"), "Not a directory");
    check_holds("file", "x");
}

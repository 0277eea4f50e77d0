/* Tests reading lines (core/base/read.c): long ones, the last one, and no memory. */
#include <string.h>

#include "base/read.h"
#include "support/scratch.h"
#include "support/test.h"

static const struct {
    const char *text;
    const char *line[5];
} files[] = {
    {"", {NULL}},
    {"\n", {"", NULL}},
    {"ant", {"ant", NULL}},
    {"ant\n\nbee\n", {"ant", "", "bee", NULL}},
    {"ant\nbee", {"ant", "bee", NULL}},
};

TEST_SETTINGS(.setup = scratch_setup, .teardown = scratch_teardown);

TEST_EACH(lines_follow_each_other, COUNT(files)) {
    dlc_read_lines lines;
    const char *line;
    size_t count = 0;
    const char *path = scratch_write("file", files[_i].text, strlen(files[_i].text));
    ck_assert(dlc_read_lines_open(path, &lines));
    while ((line = dlc_read_lines_next(&lines))) {
        ck_assert_ptr_nonnull(files[_i].line[count]);
        ck_assert_str_eq(line, files[_i].line[count++]);
    }
    ck_assert_ptr_null(files[_i].line[count]);
    ck_assert_ptr_null(dlc_read_lines_next(&lines));
    dlc_read_lines_close(&lines);
}

/* Lines of all lengths, some longer than the room, end at any place in it. */
TEST(long_lines_are_pieces) {
    enum { LINES = 300, LONGEST = 2 * DLC_READ_LINE + 100, STEP = 97 };
    static char text[LINES * LONGEST];
    size_t count = 0, read = 0, pieces = 0, wanted = 0;
    dlc_read_lines lines;
    for (size_t i = 0; i < LINES; i++) {
        size_t length = i * STEP * STEP % LONGEST;
        memset(text + count, 'a' + (int)(i % 26), length);
        count += length;
        text[count++] = '\n';
        wanted += length;
    }
    ck_assert(dlc_read_lines_open(scratch_write("file", text, count), &lines));
    for (const char *line; (line = dlc_read_lines_next(&lines)); pieces++) {
        ck_assert_uint_le(strlen(line), DLC_READ_LINE);
        ck_assert_uint_eq(strspn(line, (const char[]){line[0], '\0'}), strlen(line));
        read += strlen(line);
    }
    dlc_read_lines_close(&lines);
    ck_assert_uint_eq(read, wanted);
    ck_assert_uint_gt(pieces, LINES);
}

TEST(missing_files_have_no_lines) {
    dlc_read_lines lines;
    ck_assert(!dlc_read_lines_open("/nonexistent/file", &lines));
}

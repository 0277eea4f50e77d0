/* Tests texts (core/base/text.c): the width of cells counts characters, they stay on
 * their line, and NaN has no sign. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "support/test.h"

static const struct {
    int width, most;
    const char *value, *cell;
} cells[] = {
    {5, 9, "ant", "  ant"},
    {-5, 9, "ant", "ant  "},
    {0, 9, "ant", "ant"},
    {2, 9, "ant", "ant"},
    {4, 2, "ant", "  an"},
    {0, 0, "ant", ""},
    {-2, 9, "", "  "},
    {-5, 9, "b\xc3\xa4r", "b\xc3\xa4r  "},
    {3, 2, "b\xc3\xa4r", " b\xc3\xa4"},
    {-4, 2, "\xe7\x8a\xac\xe3\x81\xae\xe5\x86\x99", "\xe7\x8a\xac\xe3\x81\xae  "},
    {9, 9, "\xff\xc3", " \\xff\\xc3"}, /* not UTF-8: bytes */
    {-6, 9, "a\nb\x1b", "a\\nb\\x1b"},
    {-8, 3, "\ra\tb", "\\ra\\t   "},
};

TEST_EACH(cells_count_characters, COUNT(cells)) {
    dlc_text text = {0};
    dlc_text_add(&text, "|");
    dlc_text_add_cell(&text, cells[_i].width, cells[_i].most, cells[_i].value);
    ck_assert_str_eq(dlc_text_string(&text) + 1, cells[_i].cell);
    ck_assert_uint_eq(text.length, 1 + strlen(cells[_i].cell));
    dlc_text_free(&text);
}

/* Arithmetic gives NaN a sign on some machines. */
TEST(nan_has_no_sign) {
    const double sick = copysign((double)NAN, -1);
    dlc_text text = {0};
    dlc_text_add(&text, "%g|%8.4f|%.3g|%s %g|", sick, sick, -INFINITY, "a-nan.png",
                 sick);
    ck_assert_str_eq(dlc_text_string(&text), "nan|    nan|-inf|a-nan.png nan|");
    ck_assert_uint_eq(text.length, strlen(text.bytes));
    dlc_text_free(&text);
    dlc_text_add(&text, "%s", "-nan");
    ck_assert_str_eq(dlc_text_string(&text), "-nan"); /* somebody's name */
    dlc_text_free(&text);
    ck_assert_int_eq(dlc_fail(DLC_ERR_DATA, "the loss is %-8g.", sick), DLC_ERR_DATA);
    ck_assert_str_eq(dlc_detail(), "the loss is nan    .");
    char *made = dlc_format("%5.1f %%", sick);
    ck_assert_ptr_nonnull(made);
    ck_assert_str_eq(made, " nan %");
    dlc_free(made);
}

/* Memory runs out in the middle of a text: nothing of it is left, and whatever it is
 * added to has failed, too. */
TEST(failed_text_is_empty) {
    enum { LONG = 1000 };
    char bytes[LONG];
    memset(bytes, 'x', sizeof bytes);
    dlc_text text = {0}, whole = {0};
    dlc_text_add(&text, "the beginning");
    dlc_memory_fail_once(1);
    dlc_text_append(&text, bytes, sizeof bytes);
    dlc_memory_fail_once(0);
    dlc_text_add(&text, "the end");
    ck_assert_int_eq(dlc_text_status(&text), DLC_ERR_NOMEM);
    ck_assert_uint_eq(text.length, 0);
    ck_assert_str_eq(text.bytes, "");
    ck_assert_str_eq(dlc_text_string(&text), "(out of memory)");
    dlc_text_add(&whole, "all: ");
    dlc_text_append_text(&whole, &text);
    dlc_text_add(&whole, ".");
    ck_assert_int_eq(dlc_text_status(&whole), DLC_ERR_NOMEM);
    ck_assert_uint_eq(whole.length, 0);
    dlc_text_free(&whole);
    dlc_text_free(&text);
    ck_assert_int_eq(dlc_text_status(&text), DLC_OK);
    dlc_memory_fail_once(1);
    dlc_text_add_cell(&text, 5, 9, "ant");
    dlc_memory_fail_once(0);
    ck_assert_int_eq(dlc_text_status(&text), DLC_ERR_NOMEM);
    ck_assert_uint_eq(text.length, 0);
    dlc_text_free(&text);
    dlc_text_add(&text, "added ");
    dlc_text_append_text(&text, &whole); /* empty */
    dlc_text_add(&whole, "to it");
    dlc_text_append_text(&text, &whole);
    ck_assert_str_eq(dlc_text_string(&text), "added to it");
    dlc_text_free(&whole);
    dlc_text_free(&text);
}

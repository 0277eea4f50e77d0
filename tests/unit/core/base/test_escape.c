/* Tests how names and values are escaped for a terminal. */
#include <string.h>

#include "base/escape.h"
#include "base/json.h"
#include "support/test.h"

static const struct {
    const char *given, *shown;
} rows[] = {
    {"net.ini", "net.ini"},
    {"", ""},
    {"caf\u00e9 \u7f51\u7edc \U0001f600", "caf\u00e9 \u7f51\u7edc \U0001f600"},
    {"\x1b[31mred\x1b]0;title\a", "\\x1b[31mred\\x1b]0;title\\x07"},
    {"a\nerror: b\r\tc\x7f", "a\\nerror: b\\r\\tc\\x7f"},
    {"\xc2\x9b"
     "31m",
     "\\u009b31m"}, /* the C1 control CSI */
    {"a\u202e"
     "b\u2066"
     "c",
     "a\\u202eb\\u2066c"}, /* bidirectional controls */
    {"a\u200b\u2028\ufeff", "a\\u200b\\u2028\\ufeff"},
    {"\U000e0041", "\\U000e0041"},                         /* an invisible character */
    {"\xff\xc3(\x80", "\\xff\\xc3(\\x80"},                 /* invalid UTF-8 */
    {"\xc0\xaf\xe0\x80\xaf", "\\xc0\\xaf\\xe0\\x80\\xaf"}, /* overlong */
    {"\xed\xa0\x80", "\\xed\\xa0\\x80"},                   /* a surrogate */
    {"cut \xe7\xbd", "cut \\xe7\\xbd"},
};

TEST_EACH(text_is_escaped, COUNT(rows)) {
    char shown[200];
    size_t length = dlc_escape_text(shown, sizeof shown, rows[_i].given, 0);
    ck_assert_str_eq(shown, rows[_i].shown);
    ck_assert_uint_eq(length, strlen(shown));
}

TEST(newlines_are_kept_on_request) {
    char shown[40];
    dlc_escape_text(shown, sizeof shown, "a\n  b\x1b", 1);
    ck_assert_str_eq(shown, "a\n  b\\x1b");
}

/* Text is never cut inside an escape or a character. */
TEST(text_is_cut_between_characters) {
    char shown[16];
    for (size_t room = 1; room < 10; room++) {
        size_t length = dlc_escape_text(shown, room, "\u7f51\x1bz", 0);
        ck_assert_uint_eq(length, room > 8 ? 8 : room > 7 ? 7 : room > 3 ? 3 : 0);
        ck_assert_uint_eq(length, strlen(shown));
    }
}

/* A log file is valid JSON whatever a name contains. */
TEST(json_is_escaped_too) {
    dlc_json json = {0};
    dlc_json_string(&json, NULL, "\xff\x1b\u202e\u7f51\"\n");
    ck_assert_str_eq(dlc_text_string(&json.text),
                     "\"\\ufffd\\u001b\\u202e\u7f51\\\"\\n\"");
    dlc_text_free(&json.text);
}

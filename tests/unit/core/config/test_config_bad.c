/* Tests the message and the line of every mistake that a net.ini or a --set can
 * have. */
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "fixture.h"
#include "support/test.h"

typedef struct bad_case {
    const char *text;
    const char *place;  /* the start of the line, before ":" */
    const char *phrase; /* part of the message */
} bad_case;

/* Each has exactly one mistake. */
static const bad_case texts[] = {
    /* Lines */
    {"", "net.ini", "no [section]"},
    {"# nothing\n\n", "net.ini", "no [section]"},
    {"name = x\n[net]\n", "net.ini:1", "before the first [section]"},
    {"name = x\nnote = y\n[net]\n", "net.ini:1", "before the first [section]"},
    {"hello\n[net]\n", "net.ini:1", "before the first [section]"},
    {"[a]\n[a]\n", "net.ini:2", "section [a] is repeated; the first is in line 1"},
    {"[a]\nbias = yes\n[b]\n[a]\nbias = no\n", "net.ini:4",
     "section [a] is repeated; the first is in line 1"},
    {"[a]\nbias = yes\n\nbias = no\n", "net.ini:4",
     "[a] bias is repeated; the first is in line 2"},
    {"[a]\nbias yes\n", "net.ini:2", "no '=' in \"bias yes\""},
    {"[a]\nbias\n", "net.ini:2", "a line is: key = value"},
    {"[a\nbias = yes\n", "net.ini:1", "'[' without ']'"},
    {"[a] b\n", "net.ini:1", "text after ']'"},
    {"[a] # b\n", "net.ini:1", "a comment needs a line of its own"},
    {"[a]]\n", "net.ini:1", "text after ']'"},
    {"[]\n", "net.ini:1", "the name is empty"},
    {"[  ]\n", "net.ini:1", "the name is empty"},
    {"[a:b]\n", "net.ini:1", "\"a:b\" has a character other than"},
    {"[a b]\n", "net.ini:1", "\"a b\" has a character other than"},
    {"[Conv1]\n", "net.ini:1", "write \"conv1\", not \"Conv1\""},
    {"[a]\n = yes\n", "net.ini:2", "no key before the '='"},
    {"[a]\nBias = yes\n", "net.ini:2", "write \"bias\", not \"Bias\""},
    {"[a]\nbi as = yes\n", "net.ini:2", "\"bi as\" has a character other than"},
    {"[a]\n\xc3\xa4 = yes\n", "net.ini:2", "has a character other than"},
    {"[a]\nnote =\n", "net.ini:2", "note: no value; an empty one is written \"\""},
    {"[a]\nnote = # x\n", "net.ini:2", "no value"},
    {"[a]\nnote =;\n", "net.ini:2", "no value"},
    {"[a]\nnote = 'x'\n", "net.ini:2", "single quotes"},
    {"[a]\nnote == x\n", "net.ini:2", "two '='"},
    {"[a]\nnote = \"x\n", "net.ini:2", "the quote is not closed"},
    {"[a]\nnote = \"x\" y\n", "net.ini:2", "text after the closing quote"},
    {"[a]\nnote = \"x\"# y\n", "net.ini:2", "text after the closing quote"},
    {"[a]\nnote = \"x\\\"y\"\n", "net.ini:2", "a backslash inside quotes"},
    {"[a]\nnote = x\"y\"\n", "net.ini:2", "a quote inside the value"},
    {"[a]\nnote = x;y\n", "net.ini:2", "'#' or ';' inside the value"},
    {"[a]\nnote = x#y\n", "net.ini:2", "'#' or ';' inside the value"},
    {"[a]\nnote = x\\\nbias = yes\n", "net.ini:2", "lines are not joined"},
    {"[a]\n# x \\ \t\r\nbias = yes\n", "net.ini:2", "lines are not joined"},
    {"[a]\nnote = x\033[31m\n", "net.ini:2", "control character 0x1b"},
    {"[a]\nnote = x\ry\n", "net.ini:2", "control character 0x0d"},
    {"[a]\nnote = x\x7f\n", "net.ini:2", "control character 0x7f"},
    /* Names */
    {"[a]\nbais = yes\n", "net.ini:2",
     "[a] has no setting \"bais\"; did you mean bias?"},
    {"[a]\nnum_outputs = 3\n", "net.ini:2", "did you mean num_output?"},
    {"[a]\nqqqqqqqqq = 3\n", "net.ini:2", "it takes type, input, num_output,"},
    {"[solver]\nbase_lr = 1\nsede = 1\n", "net.ini:3", "did you mean seed?"},
    {"[solver]\nseed = 1\n", "net.ini:1", "[solver] needs base_lr (number, at least 0"},
    /* Values */
    {"[a]\nnum_output = 12abc\n", "net.ini:2",
     "[a] num_output: \"12abc\" is not a whole number"},
    {"[a]\nnum_output = 1.0\n", "net.ini:2", "\"1.0\" is not a whole number"},
    {"[a]\nnum_output = 1e3\n", "net.ini:2", "\"1e3\" is not a whole number"},
    {"[a]\nnum_output = 0x10\n", "net.ini:2", "\"0x10\" is not a whole number"},
    {"[a]\nnum_output = -\n", "net.ini:2", "\"-\" is not a whole number"},
    {"[a]\nnum_output = \"\"\n", "net.ini:2", "\"\" is not a whole number"},
    {"[a]\nnum_output = \" 1\"\n", "net.ini:2", "\" 1\" is not a whole number"},
    {"[a]\nnum_output = 0\n", "net.ini:2", "0 is out of range: 1 .. 65536"},
    {"[a]\nnum_output = 65537\n", "net.ini:2", "65537 is out of range: 1 .. 65536"},
    {"[a]\nnum_output = 99999999999\n", "net.ini:2", "out of range"},
    {"[a]\nnum_output = 9223372036854775808\n", "net.ini:2", "too large for a number"},
    {"[a]\nratio = 0.5x\n", "net.ini:2", "\"0.5x\" is not a number"},
    {"[a]\nratio = 0,5\n", "net.ini:2", "\"0,5\" is not a number"},
    {"[a]\nratio = nan\n", "net.ini:2", "\"nan\" is not a number"},
    {"[a]\nratio = 0x1p-1\n", "net.ini:2", "\"0x1p-1\" is not a number"},
    {"[a]\nratio = .\n", "net.ini:2", "\".\" is not a number"},
    {"[a]\nratio = 1e\n", "net.ini:2", "\"1e\" is not a number"},
    {"[a]\nratio = 1.5\n", "net.ini:2", "1.5 is out of range: 0 .. 1"},
    {"[a]\nratio = inf\n", "net.ini:2", "inf is out of range: 0 .. 1"},
    {"[a]\nratio = 1e999\n", "net.ini:2", "too large for a number"},
    {"[a]\nratio = 1e-999\n", "net.ini:2", "too large for a number"},
    {"[a]\nstaleness = -inf\n", "net.ini:2", "out of range: at least 0, or inf"},
    {"[a]\nbias = ja\n", "net.ini:2", "\"ja\" is neither true nor false"},
    {"[a]\nbias = ture\n", "net.ini:2", "did you mean true?"},
    {"[a]\nbias = 2\n", "net.ini:2", "\"2\" is neither true nor false"},
    {"[a]\npool = maxx\n", "net.ini:2",
     "\"maxx\" is not one of max|average|global_average; did you mean max?"},
    {"[a]\npool = global\n", "net.ini:2", "\"global\" is not one of"},
    {"[a]\npool = max|average\n", "net.ini:2", "is not one of"},
    {"[a]\nfile = \"\"\n", "net.ini:2", "an empty path"},
    {"[a]\nsteps = 1,,2\n", "net.ini:2", "\"\" is not a whole number"},
    {"[a]\nsteps = 1, 2,\n", "net.ini:2", "\"\" is not a whole number"},
    {"[a]\nsteps = 1 2\n", "net.ini:2", "\"1 2\" is not a whole number"},
    {"[a]\nsteps = 1, 1001\n", "net.ini:2", "1001 is out of range: 0 .. 1000"},
    {"[a]\nmean = 1, x\n", "net.ini:2", "\"x\" is not a number"},
    {"[a]\nmean = 256\n", "net.ini:2", "256 is out of range: -255 .. 255"},
    {"[a]\nbucket = 4k\n", "net.ini:2", "\"4k\" is not a size such as 65536, 64K"},
    {"[a]\nbucket = K\n", "net.ini:2", "is not a size"},
    {"[a]\nbucket = 1K\n", "net.ini:2", "1K is out of range: 4096 .. 1000000000000"},
    {"[a]\nbucket = 9999999999G\n", "net.ini:2", "too large for a number"},
    {"[a]\nweight_filler = xaver\n", "net.ini:2", "did you mean xavier?"},
    {"[a]\nweight_filler = fancy(1)\n", "net.ini:2", "is not a filler: constant,"},
    {"[a]\nweight_filler = normal(1)\n", "net.ini:2", "did you mean gaussian?"},
    {"[a]\nweight_filler = constant\n", "net.ini:2", "write constant(value)"},
    {"[a]\nweight_filler = gaussian(1,2,3)\n", "net.ini:2", "write gaussian(std)"},
    {"[a]\nweight_filler = gaussian(-1)\n", "net.ini:2", "must not be negative"},
    {"[a]\nweight_filler = uniform(1, 0)\n", "net.ini:2", "low is above high"},
    {"[a]\nweight_filler = xavier()\n", "net.ini:2", "write xavier"},
};

TEST_SETTINGS(.setup = folder_setup, .teardown = folder_teardown);

TEST_EACH(each_mistake_is_reported_with_its_line, COUNT(texts)) {
    const bad_case *bad = &texts[_i];
    dlc_problems problems = {0};
    write_text("net.ini", bad->text);
    ck_assert_int_eq(check_net(NULL, 0, &problems), DLC_OK);
    check_report(&problems, bad->text, bad->place, bad->phrase);
}

TEST(a_line_too_long_is_reported) {
    char text[3000];
    dlc_problems problems = {0};
    snprintf(text, sizeof text, "[a]\nbias = yes\nnote = %0*d\nratio = 1\n", 1000, 7);
    write_text("net.ini", text);
    ck_assert_int_eq(check_net(NULL, 0, &problems), DLC_OK);
    check_report(&problems, "long line", "net.ini:3", "1007 bytes in one line");
    /* A comment's too: iniparser would cut it in two. */
    snprintf(text, sizeof text, "[a]\n#%0*d\nratio = 1\n", 1100, 7);
    write_text("net.ini", text);
    ck_assert_int_eq(check_net(NULL, 0, &problems), DLC_OK);
    check_report(&problems, "long line", "net.ini:2", "1101 bytes in one line");
}

static const struct {
    const char *set, *phrase;
} sets[] = {
    {"conv1", "\"conv1\": no '='; write section.key=value"},
    {"conv1=3", "no '.' before the '='"},
    {"bias=a.b", "no '.' before the '='"},
    {"", "no '='"},
    {".bias=1", "the name is empty"},
    {"conv1.=1", "the name is empty"},
    {"conv1.bias=", "no value; an empty one is written \"\""},
    {"conv1.bias=  ", "no value"},
    {"conv1.note=\"x", "the quote is not closed"},
    {"conv1.note=\"x\" # y", "text after the closing quote"},
    {"Conv1.bias=1", "write \"conv1\", not \"Conv1\""},
    {"conv1.Bias=1", "write \"bias\", not \"Bias\""},
    {"conv1.bi as=1", "has a character other than"},
    {"conv2.bias=1", "no section [conv2]; did you mean [conv1]?"},
    {"date.test.note=1", "no section [date.test]; did you mean [data.test]?"},
    {"zzzzzzzz.note=1", "no section [zzzzzzzz]"},
    {"conv1.bais=1", "[conv1] has no setting \"bais\"; did you mean bias?"},
    {"conv1.num_output=12abc", "[conv1] num_output: \"12abc\" is not a whole number"},
    {"conv1.note=a\nb", "control character 0x0a"},
    {"conv1.note=a\x7f", "control character 0x7f"},
    {"conv1.note=\033[2J", "control character 0x1b"},
    {"conv1.note=\xff", "not UTF-8"},
};

TEST_EACH(each_mistake_of_set_is_reported, COUNT(sets)) {
    dlc_problems problems = {0};
    write_text("net.ini", "[conv1]\nbias = yes\n");
    const char *const one[] = {sets[_i].set};
    ck_assert_int_eq(check_net(one, 1, &problems), DLC_OK);
    check_report(&problems, sets[_i].set, "--set", sets[_i].phrase);
}

TEST(long_texts_are_cut_in_messages) {
    char text[2000], lines[4096];
    dlc_problems problems = {0};
    write_text("net.ini", "[conv1]\n");
    snprintf(text, sizeof text, "conv1.note=%0*d", 1000, 7);
    const char *const one[] = {text};
    ck_assert_int_eq(check_net(one, 1, &problems), DLC_OK);
    check_report(&problems, "long --set", "--set",
                 "1011 bytes; at most 1000 are allowed");
    /* Not in the middle of a letter: byte 60 is the second half of one. */
    snprintf(text, sizeof text, "[a]\nnum_output = %059d\xc3\xa4%050d\n", 0, 0);
    write_text("net.ini", text);
    ck_assert_int_eq(check_net(NULL, 0, &problems), DLC_OK);
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_CONFIG);
    snprintf(text, sizeof text, "num_output: \"%059d...\" is not a whole number\n", 0);
    ck_assert_msg(strstr(lines, text) != NULL, "%s", lines);
}

TEST(set_fixes_a_mistake_of_the_file) {
    static const char *const mend[] = {"solver.base_lr=0.1"};
    dlc_problems problems = {0};
    write_text("net.ini", "[solver]\nseed = 1\n");
    ck_assert_int_eq(check_net(mend, 1, &problems), DLC_OK);
    ck_assert_uint_eq(problems.errors, 0);
    dlc_problems_free(&problems);
}

TEST(set_is_checked_where_the_file_was_broken) {
    static const char *const bad_set[] = {"a.bias=ja"};
    dlc_problems problems = {0};
    char lines[1024];
    write_text("net.ini", "[a]\nbias = x;y\n");
    ck_assert_int_eq(check_net(bad_set, 1, &problems), DLC_OK);
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_CONFIG);
    ck_assert_str_eq(dlc_detail(), "2 mistakes in net.ini");
    ck_assert_ptr_nonnull(strstr(lines, "error: --set: [a] bias: \"ja\" is neither"));
}

TEST(all_mistakes_are_reported_in_the_order_of_the_file) {
    static const char *const bad_set[] = {"a.ratio=7"};
    dlc_problems problems = {0};
    char lines[4096];
    write_text("net.ini", "[solver]\n"
                          "seed = x\n"
                          "[a]\n"
                          "bais = 1\n"
                          "hello\n"
                          "num_output = 0\n"
                          "[B]\n"
                          "pool = min\n");
    ck_assert_int_eq(check_net(bad_set, 1, &problems), DLC_OK);
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_CONFIG);
    ck_assert_str_eq(dlc_detail(), "8 mistakes in net.ini");
    static const char *const starts[] = {
        "error: net.ini:1: [solver] needs",
        "error: net.ini:2: [solver] seed",
        "error: net.ini:4: [a] has no setting",
        "error: net.ini:5: no '='",
        "error: net.ini:6: [a] num_output",
        "error: net.ini:7: section: names are lower case",
        "error: net.ini:8: [b] pool",
        "error: --set: [a] ratio",
    };
    const char *line = lines;
    for (size_t i = 0; i < 8; i++) {
        ck_assert_msg(strncmp(line, starts[i], strlen(starts[i])) == 0, "%s", lines);
        line = strchr(line, '\n') + 1;
    }
    ck_assert_str_eq(line, "");
}

TEST(an_invalid_line_hides_no_other_mistakes) {
    /* base_lr may well be in line 2: one mistake, not two. */
    dlc_problems problems = {0};
    write_text("net.ini", "[solver]\nbase_lr 0.1\n");
    ck_assert_int_eq(check_net(NULL, 0, &problems), DLC_OK);
    check_report(&problems, "no '='", "net.ini:2", "no '='");
    write_text("net.ini", "[solver]\nbase_lr = 0.1;\n");
    ck_assert_int_eq(check_net(NULL, 0, &problems), DLC_OK);
    check_report(&problems, "broken value", "net.ini:2", "inside the value");
}

TEST(many_mistakes_are_counted) {
    char text[40000] = "[a]\n", lines[16384];
    size_t length = strlen(text);
    for (int i = 0; i < 1500; i++)
        length += (size_t)sprintf(text + length, "bad line %d\n", i);
    dlc_problems problems = {0};
    write_text("net.ini", text);
    ck_assert_int_eq(check_net(NULL, 0, &problems), DLC_OK);
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_CONFIG);
    ck_assert_str_eq(dlc_detail(), "1500 mistakes in net.ini");
    size_t count = 0;
    for (const char *c = lines; *c; c++)
        count += *c == '\n';
    ck_assert_uint_eq(count, 51);
    ck_assert_ptr_nonnull(strstr(lines, "net.ini:51: "));
    ck_assert_ptr_null(strstr(lines, "net.ini:52: "));
    ck_assert_ptr_nonnull(strstr(lines, "error: ... and 1450 more\n"));
}

TEST(callers_add_mistakes) {
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    char lines[1024];
    write_text("net.ini", "[a]\n");
    ck_assert_int_eq(dlc_config_load("net.ini", reserved, NULL, 0, &problems, &config),
                     DLC_OK);
    dlc_problems_warn(&problems, config, 1, "%s is odd", "a");
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_OK);
    ck_assert_str_eq(lines, "warning: net.ini:1: a is odd\n");
    dlc_problems_add(&problems, config, 1, "second");
    dlc_problems_add(&problems, config, DLC_LINE_SET, "last");
    dlc_problems_add(&problems, NULL, DLC_LINE_FILE, "first");
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_CONFIG);
    ck_assert_str_eq(lines,
                     "error: first\nerror: net.ini:1: second\nerror: --set: last\n");
    ck_assert_str_eq(dlc_detail(), "3 mistakes in net.ini");
    dlc_problems_add(&problems, NULL, DLC_LINE_FILE, "alone");
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_CONFIG);
    ck_assert_str_eq(dlc_detail(), "1 mistake in the settings");
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_OK);
    ck_assert_str_eq(lines, "");
    dlc_config_free(config);
}

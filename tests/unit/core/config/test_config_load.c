/* Tests loading: order, lines, values, --set, and files that are refused. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/internal.h"
#include "fixture.h"
#include "support/test.h"

static dlc_config *load_with(const char *const *sets, size_t nsets) {
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    char lines[4096];
    dlc_status rc = dlc_config_load("net.ini", reserved, sets, nsets, &problems,
                                    &config);
    ck_assert_msg(rc == DLC_OK, "%s", dlc_detail());
    rc = report(&problems, lines, sizeof lines);
    ck_assert_msg(rc == DLC_OK, "%s", lines);
    return config;
}

static dlc_config *load(const char *text) {
    write_text("net.ini", text);
    return load_with(NULL, 0);
}

static const char *value(const dlc_config *config, const char *section,
                         const char *key) {
    const dlc_section *found = dlc_config_find(config, section);
    ck_assert_ptr_nonnull(found);
    return dlc_section_value(found, key);
}

TEST_SETTINGS(.setup = folder_setup, .teardown = folder_teardown);

TEST(sections_and_keys_keep_their_order_and_lines) {
    dlc_config *config = load("# a comment\n"
                              "[net]\n"
                              "name = lenet\n"
                              "\n"
                              "[zeta/1-a]\n"
                              "  type=convolution\n"
                              "\tkernel_size\t=\t5\n"
                              "[data.test]\n"
                              "[alpha]\n"
                              "type = relu");
    static const struct {
        const char *name;
        int line;
    } expected[] = {{"net", 2}, {"zeta/1-a", 5}, {"data.test", 8}, {"alpha", 9}};
    const dlc_section *section = NULL;
    for (size_t i = 0; i < 4; i++) {
        section = dlc_config_next(config, section);
        ck_assert_ptr_nonnull(section);
        ck_assert_str_eq(dlc_section_name(section), expected[i].name);
        ck_assert_int_eq(dlc_section_line(section), expected[i].line);
    }
    ck_assert_ptr_null(dlc_config_next(config, section));

    section = dlc_config_find(config, "zeta/1-a");
    ck_assert_str_eq(dlc_section_key(section, 0), "type");
    ck_assert_str_eq(dlc_section_key(section, 1), "kernel_size");
    ck_assert_ptr_null(dlc_section_key(section, 2));
    ck_assert_str_eq(dlc_section_value(section, "kernel_size"), "5");
    ck_assert_ptr_null(dlc_section_value(section, "kernel"));
    ck_assert_int_eq(dlc_section_key_line(section, "kernel_size"), 7);
    ck_assert_int_eq(dlc_section_key_line(section, "kernel"), 5);

    ck_assert_ptr_null(dlc_config_find(config, "beta"));
    ck_assert_str_eq(dlc_config_name(config), "net.ini");
    dlc_config_free(config);
}

TEST(values_lose_blanks_quotes_and_comments_only) {
    static const struct {
        const char *line, *value;
    } cases[] = {
        {"k = plain", "plain"},
        {"k=tight", "tight"},
        {"k =  two words  ", "two words"},
        {"k = value # comment", "value"},
        {"k = value\t; comment # more", "value"},
        {"k = a=b", "a=b"},
        {"k = don't", "don't"},
        {"k = C:\\data", "C:\\data"},
        {"k = \"quoted\"", "quoted"},
        {"k = \"  blanks  \"", "  blanks  "},
        {"k = \"a;b#c\" # comment", "a;b#c"},
        {"k = \"\"", ""},
        {"k = \"\" ; nothing", ""},
        {"k = \"don't\"", "don't"},
        {"k = \xc3\xa4\xe2\x82\xac", "\xc3\xa4\xe2\x82\xac"},
        {"k = [x]", "[x]"},
        {"k = \xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[200];
        snprintf(text, sizeof text, "[s]\n%s\nlast = 1\n", cases[i].line);
        dlc_config *config = load(text);
        ck_assert_str_eq(value(config, "s", "k"), cases[i].value);
        ck_assert_str_eq(value(config, "s", "last"), "1");
        dlc_config_free(config);
    }
}

TEST(windows_files_are_read) {
    dlc_config *config = load("\xef\xbb\xbf[net]\r\nname = lenet\r\n\r\n[a]\r\n"
                              "type = \"x\"\r\nlast = 1\r");
    ck_assert_str_eq(value(config, "net", "name"), "lenet");
    ck_assert_str_eq(value(config, "a", "type"), "x");
    ck_assert_str_eq(value(config, "a", "last"), "1");
    ck_assert_int_eq(dlc_section_line(dlc_config_find(config, "a")), 4);
    dlc_config_free(config);
}

TEST(the_longest_line_is_read) {
    char text[2000];
    snprintf(text, sizeof text, "[s]\nk = %0*d\n", DLC_CONFIG_LINE - 4, 7);
    dlc_config *config = load(text);
    ck_assert_uint_eq(strlen(value(config, "s", "k")), DLC_CONFIG_LINE - 4);
    dlc_config_free(config);
}

TEST(set_replaces_adds_and_opens) {
    static const char *const sets[] = {"solver.base_lr=0.5",  "data.test.batch = 7",
                                       "conv1.bias=no",       "train.note=a=b;c#d",
                                       "train.empty=\"\"",    "conv1.bias=yes",
                                       "train.quoted=\" x \""};
    write_text("net.ini", "[solver]\nbase_lr = 0.1\n[conv1]\ntype = convolution\n");
    dlc_config *config = load_with(sets, sizeof sets / sizeof sets[0]);
    ck_assert_str_eq(value(config, "solver", "base_lr"), "0.5");
    ck_assert_str_eq(value(config, "data.test", "batch"), "7");
    ck_assert_str_eq(value(config, "conv1", "bias"), "yes");
    ck_assert_str_eq(value(config, "conv1", "type"), "convolution");
    ck_assert_str_eq(value(config, "train", "note"), "a=b;c#d");
    ck_assert_str_eq(value(config, "train", "empty"), "");
    ck_assert_str_eq(value(config, "train", "quoted"), " x ");
    const dlc_section *conv1 = dlc_config_find(config, "conv1");
    ck_assert_int_eq(dlc_section_key_line(conv1, "bias"), DLC_LINE_SET);
    ck_assert_int_eq(dlc_section_line(conv1), 3);
    ck_assert_int_eq(dlc_section_line(dlc_config_find(config, "train")), DLC_LINE_SET);
    dlc_config_free(config);
}

TEST(set_works_without_a_file) {
    static const char *const sets[] = {"train.note=x"};
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    ck_assert_int_eq(dlc_config_load(NULL, reserved, sets, 1, &problems, &config),
                     DLC_OK);
    ck_assert_str_eq(value(config, "train", "note"), "x");
    ck_assert_str_eq(dlc_config_name(config), "--set");
    ck_assert_uint_eq(problems.errors, 0);
    dlc_config_free(config);
}

/* ---- Files with nothing to look at ---- */

static void refused(const char *path, const char *phrase) {
    dlc_problems problems = {0};
    dlc_config *config = (dlc_config *)&problems;
    dlc_status rc = dlc_config_load(path, reserved, NULL, 0, &problems, &config);
    ck_assert_int_eq(rc, DLC_ERR_CONFIG);
    ck_assert_msg(strstr(dlc_detail(), phrase) != NULL, "%s", dlc_detail());
    ck_assert_msg(strncmp(dlc_detail(), path, strlen(path)) == 0, "%s", dlc_detail());
    ck_assert_ptr_eq(config, &problems); /* untouched */
    ck_assert_uint_eq(problems.errors, 0);
}

TEST(files_that_are_not_text_are_refused) {
    refused("none.ini", "No such file");
    ck_assert_int_eq(mkdir("folder", 0777), 0);
    refused("folder", "a folder");
    ck_assert_int_eq(mkfifo("fifo", 0666), 0);
    refused("fifo", "not a regular file");
    refused("/dev/null", "not a regular file");
    ck_assert_int_eq(symlink("loop", "loop"), 0);
    refused("loop", "Too many levels");
    write_bytes("nul.ini", "[net]\nname = a\0b\n", 17);
    refused("nul.ini", "nul.ini:2: a NUL byte");
    write_text("latin1.ini", "[net]\n\n# Gr\xfc\xdf"
                             "e\n");
    refused("latin1.ini", "latin1.ini:3: not UTF-8 text (byte 0xfc)");
    write_bytes("utf16.ini", "\xff\xfe[\0n\0", 6);
    refused("utf16.ini", "UTF-16");
    write_text("big.ini", "[net]\n");
    ck_assert_int_eq(truncate("big.ini", DLC_CONFIG_BYTES + 1), 0);
    refused("big.ini", "too large");
    char *many = dlc_alloc(DLC_CONFIG_BYTES, 1);
    ck_assert_ptr_nonnull(many);
    size_t length = 0;
    for (int i = 0; i <= DLC_CONFIG_ENTRIES; i++)
        length += (size_t)sprintf(many + length, i % 100 ? "k%d = 1\n" : "[a%d]\n", i);
    write_bytes("many.ini", many, length);
    dlc_free(many);
    refused("many.ini", "more than 20000 sections and keys");
}

TEST(unreadable_files_are_refused) {
    write_text("secret.ini", "[net]\n");
    ck_assert_int_eq(chmod("secret.ini", 0), 0);
    if (access("secret.ini", R_OK) == 0)
        ck_assert_int_eq(seteuid(65534), 0); /* root may read every file */
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    dlc_status rc = dlc_config_load("secret.ini", reserved, NULL, 0, &problems,
                                    &config);
    if (geteuid() == 65534)
        ck_assert_int_eq(seteuid(0), 0);
    ck_assert_int_eq(rc, DLC_ERR_CONFIG);
    ck_assert_msg(strstr(dlc_detail(), "Permission denied") != NULL, "%s",
                  dlc_detail());
}

TEST(utf8_is_checked_exactly) {
    static const struct {
        const char *bytes;
        size_t good;
    } cases[] = {
        {"", 0},
        {"abc", 3},
        {"a\xc3\xa4", 3},
        {"a\xc3", 1},             /* cut off */
        {"a\xc3z", 1},            /* no continuation */
        {"\x80", 0},              /* continuation alone */
        {"\xc0\x80", 0},          /* too long a form */
        {"\xc1\xbf", 0},          /* too long a form */
        {"\xe0\x9f\xbf", 0},      /* too long a form */
        {"\xe0\xa0\x80", 3},      /* U+0800 */
        {"\xed\x9f\xbf", 3},      /* U+D7FF */
        {"\xed\xa0\x80", 0},      /* surrogate */
        {"\xef\xbf\xbf", 3},      /* U+FFFF */
        {"\xf0\x8f\xbf\xbf", 0},  /* too long a form */
        {"\xf0\x90\x80\x80", 4},  /* U+10000 */
        {"\xf4\x8f\xbf\xbf", 4},  /* U+10FFFF */
        {"\xf4\x90\x80\x80", 0},  /* beyond */
        {"\xf5\x80\x80\x80", 0},  /* beyond */
        {"xy\xf0\x9f\x98z", 2},   /* cut off */
        {"\xf0\x9f\x98\x80z", 5}, /* whole */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_uint_eq(dlc_utf8_check(cases[i].bytes, strlen(cases[i].bytes)),
                          cases[i].good);
}

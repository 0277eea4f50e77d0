/* Tests damaged files and failing allocations: there is always a proper result and no
 * leak. Also tests that iniparser reads everything that the scanner accepts in the same
 * way. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/status.h"
#include "config/internal.h"
#include "fixture.h"
#include "support/test.h"

static const char good[] = "\xef\xbb\xbf# A net \xe2\x80\x94 for tests\r\n"
                           "[net]\n"
                           "note = \"lenet; small\" ; name\n"
                           "\n"
                           "[solver]\n"
                           "base_lr = 1e-2  # rate\n"
                           "seed=42\n"
                           "[conv1]\r\n"
                           "type = convolution\n"
                           "input\t= a, b\n"
                           "num_output = 20\n"
                           "weight_filler = gaussian(0.01, 0)\n"
                           "steps = 1, 2, 3\n"
                           "mean = \"1.5,2\"\n"
                           "[pool/1.a-b]\n"
                           "pool = average\n"
                           "file = data/mean.bin\n"
                           "bucket = 16M\n"
                           "note = \"\"";
static const char good_blocks[] = "[train]\n"
                                  "note = x\n"
                                  "[block conv]\n"
                                  "params = width, std\n"
                                  "pad = max\n"
                                  "[conv.conv]\n"
                                  "input = in\n"
                                  "num_output = $width\n"
                                  "pool = $pad\n"
                                  "weight_filler = gaussian($std, 0)\n"
                                  "[conv.relu]\n"
                                  "type = relu\n"
                                  "[block pair]\n"
                                  "params = width, times\n"
                                  "[pair.a]\n"
                                  "block = conv\n"
                                  "width = $width\n"
                                  "std = 0.$width\n"
                                  "repeat = $times\n"
                                  "[pair.sum]\n"
                                  "input = a, a.1.conv, in\n"
                                  "[stem]\n"
                                  "block = conv\n"
                                  "width = 64\n"
                                  "std = 1\n"
                                  "pad = average\n"
                                  "[body]\n"
                                  "block = pair\n"
                                  "input = stem\n"
                                  "width = 7\n"
                                  "times = 2\n"
                                  "repeat = 3\n"
                                  "[last]\n"
                                  "input = body\n";

static const struct {
    const char *text;
    size_t length;
} goods[] = {{good, sizeof good - 1}, {good_blocks, sizeof good_blocks - 1}};
#define GOODS (int)(sizeof goods / sizeof *goods)

/* Accepts any result except a difference between the readers: that would be a bug of
 * the scanner. */
static dlc_status check_bytes(const char *bytes, size_t length) {
    dlc_problems problems = {0};
    char lines[16384];
    write_bytes("net.ini", bytes, length);
    dlc_status rc = check_net(NULL, 0, &problems);
    ck_assert_msg(rc == DLC_OK || rc == DLC_ERR_CONFIG, "%d: %s", rc, dlc_detail());
    if (rc != DLC_OK) {
        dlc_problems_free(&problems);
        return rc;
    }
    rc = report(&problems, lines, sizeof lines);
    ck_assert_msg(!strstr(lines, "iniparser"), "%s\nin:\n%.*s", lines, (int)length,
                  bytes);
    return rc;
}

TEST_SETTINGS(.timeout = 60, .setup = folder_setup, .teardown = folder_teardown);

TEST_EACH(the_good_file_passes, GOODS) {
    ck_assert_int_eq(check_bytes(goods[_i].text, goods[_i].length), DLC_OK);
}

TEST_EACH(cut_at_every_byte, GOODS) {
    size_t passed = 0;
    for (size_t length = 0; length < goods[_i].length; length++)
        passed += check_bytes(goods[_i].text, length) == DLC_OK;
    /* A prefix is valid only if cut at the end of a line, a word or a number. */
    ck_assert_uint_gt(passed, 10);
    ck_assert_uint_lt(passed, goods[_i].length / 2);
}

TEST_EACH(flipped_at_every_bit, GOODS) {
    char bytes[sizeof good + sizeof good_blocks];
    size_t refused = 0, length = goods[_i].length;
    memcpy(bytes, goods[_i].text, length);
    for (size_t bit = 0; bit < 8 * length; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        refused += check_bytes(bytes, length) != DLC_OK;
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    ck_assert_uint_gt(refused, 8 * length / 4);
}

/* ---- Two readers ---- */

/* Pieces on which the readers might differ. */
static const char *const pieces[] = {
    "a",        "x y",          "1",       "don't", "\"",    "\"\"",
    "\" \"",    "\"x\"",        "\"a;b\"", "'",     "''",    "'x'",
    "#",        " # ",          ";",       " ; ",   "=",     "==",
    "\\",       "\\\\",         "\\\"",    " ",     "\t",    "\r",
    "\v",       "\f",           "[",       "]",     "[a]",   ":",
    "a:b",      "%s",           "!",       ",",     "$x",    "\xc3\xa4",
    "\xc2\xa0", "\xef\xbb\xbf", "\n",      "\\\n",  "\\ \n", "\"\n",
};
static const char *const headers[] = {"[a]", "[b]", " [ c ] ", "[d.e]", "[f]x", "[A]"};
static const char *const keys[] = {"a", "b ", " c", "d.e", "F", "a b", "", "[g", "#h"};
static const char *const ends[] = {"\n", "\n", "\n", "\r\n", " \n", "", "\\\n"};

#define PICK(random, list) \
    (list)[dlc_random_below((random), sizeof(list) / sizeof(list)[0])]

/* Makes random lines that resemble a net.ini. */
static void make_random_lines(dlc_random *random, dlc_text *text) {
    size_t lines = 1 + dlc_random_below(random, 6);
    for (size_t i = 0; i < lines; i++) {
        if (i == 0 || dlc_random_below(random, 4) == 0) {
            size_t any = i ? sizeof headers / sizeof headers[0] : 4;
            dlc_text_add(text, "%s\n", headers[dlc_random_below(random, any)]);
            continue;
        }
        dlc_text_add(text, "%s=", PICK(random, keys));
        for (size_t n = 1 + dlc_random_below(random, 3); n; n--)
            dlc_text_add(text, "%s", PICK(random, pieces));
        dlc_text_add(text, "%s", PICK(random, ends));
    }
    ck_assert_int_eq(dlc_text_status(text), DLC_OK);
}

TEST(iniparser_reads_the_same) {
    dlc_random random = dlc_random_make(7, 0);
    size_t passed = 0;
    for (int i = 0; i < 10000; i++) {
        dlc_problems problems = {0};
        dlc_config *config = NULL;
        char lines[16384] = "";
        dlc_text text = {0};
        make_random_lines(&random, &text);
        write_bytes("net.ini", text.bytes, text.length);
        dlc_status rc = dlc_config_load("net.ini", reserved, NULL, 0, &problems,
                                        &config);
        ck_assert_msg(rc == DLC_OK, "%s", dlc_detail());
        if (problems.errors)
            report(&problems, lines, sizeof lines);
        else
            passed++;
        ck_assert_msg(!strstr(lines, "iniparser"), "%s\nin:\n%s", lines, text.bytes);
        dlc_config_free(config);
        dlc_text_free(&text);
    }
    ck_assert_uint_gt(passed, 1000);
}

/* Random combinations of blocks: many are invalid, and each gets a result. */
TEST(random_blocks_get_a_result) {
    static const char *const sections[] = {"[block a]", "[a.x]", "[a.y]",   "[block b]",
                                           "[b.x]",     "[b.y]", "[u]",     "[u.x]",
                                           "[v]",       "[v.1]", "[train]", "[a]"};
    static const char *const lines[] = {
        "params = p",    "params = p, q", "p = 1",       "q = 2",        "block = a",
        "block = b",     "input = in",    "input = x",   "input = u, x", "input = y.x",
        "repeat = 2",    "repeat = $p",   "note = $p$q", "p = $p",       "q = x$p",
        "input = x.1.x", "type = t"};
    dlc_random random = dlc_random_make(11, 0);
    size_t passed = 0;
    for (int i = 0; i < 4000; i++) {
        dlc_text text = {0};
        /* In order, so that some are valid. */
        for (size_t s = 0; s < sizeof sections / sizeof *sections; s++) {
            if (dlc_random_below(&random, 2))
                continue;
            dlc_text_add(&text, "%s\n", sections[s]);
            for (size_t n = dlc_random_below(&random, 3); n; n--)
                dlc_text_add(&text, "%s\n", PICK(&random, lines));
        }
        ck_assert_int_eq(dlc_text_status(&text), DLC_OK);
        passed += check_bytes(dlc_text_string(&text), text.length) == DLC_OK;
        dlc_text_free(&text);
    }
    ck_assert_uint_gt(passed, 20);
}

/* Tests the comparison: iniparser gets other bytes than were scanned. */
static void differ(const char *scanned, const char *given, const char *phrase) {
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    char lines[4096];
    write_text("net.ini", scanned);
    ck_assert_int_eq(dlc_config_load("net.ini", reserved, NULL, 0, &problems, &config),
                     DLC_OK);
    ck_assert_uint_eq(problems.errors, 0);
    ck_assert_int_eq(dlc_iniparser_compare(config, given, strlen(given), &problems),
                     DLC_OK);
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_CONFIG);
    ck_assert_msg(strstr(lines, phrase) != NULL, "%s", lines);
    dlc_config_free(config);
}

TEST(a_difference_is_reported) {
    differ("[a]\nk = 1\n", "[a]\nk = 2\n",
           "net.ini:2: [a] k: \"1\" here, but iniparser reads \"2\"");
    differ("[a]\nk = 1\n", "[a]\nj = 1\n",
           "net.ini:2: [a] k: iniparser does not see this key");
    differ("[a]\nk = 1\n", "[a]\nk = 1\nj = 2\n",
           "net.ini:1: [a] has 1 keys here, but iniparser reads 2");
    differ("[a]\nk = 1\n", "[b]\nk = 1\n",
           "net.ini:1: [a] has 1 keys here, but iniparser reads 0");
    differ("[a]\nk = 1\n", "[a]\nk = 1\n[b]\n",
           "net.ini: 1 sections here, but iniparser reads 2");
    differ("[a]\nk = 1\n", "[a\nk\n", "net.ini: iniparser rejects it: ");
}

/* iniparser gets a large file in parts, which begin anywhere: every key is compared,
 * and no difference is seen where none is. */
TEST(every_part_is_compared) {
    enum { SECTIONS = 700, MANY = 900, EVERY = 37, ROOM = 64 };
    static const char same[] = "same = yes\n";
    dlc_text text = {0};
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    for (int i = 0; i < SECTIONS; i++) {
        dlc_text_add(&text, "# %d\n[s%d]\n%s", i, i, i % 3 ? same : "");
        for (int k = 0; k < (i == SECTIONS / 2 ? MANY : i % 5); k++)
            dlc_text_add(&text, "%sk%d = %d\n", k % 7 ? "" : "\n", k, k % 8);
    }
    write_text("net.ini", text.bytes);
    ck_assert_int_eq(dlc_config_load("net.ini", reserved, NULL, 0, &problems, &config),
                     DLC_OK);
    ck_assert_uint_eq(problems.errors, 0);
    int line = 1, found = 0;
    for (char *at = text.bytes; *at; line += *at++ == '\n') {
        char lines[4096], wanted[ROOM];
        if (strncmp(at, " = ", 3) != 0 || at[3] == 'y' || found++ % EVERY)
            continue;
        char kept = at[3];
        at[3] = '9';
        ck_assert_int_eq(
            dlc_iniparser_compare(config, text.bytes, text.length, &problems), DLC_OK);
        at[3] = kept;
        ck_assert_uint_eq(problems.errors, 1);
        ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_CONFIG);
        (void)snprintf(wanted, sizeof wanted, "net.ini:%d: [s", line);
        ck_assert_msg(strstr(lines, wanted) != NULL, "%s not in %s", wanted, lines);
    }
    ck_assert_int_gt(found, MANY);
    dlc_config_free(config);
    dlc_text_free(&text);
}

/* ---- Memory ---- */

/* Fails every allocation in turn, until all succeed. */
static void fail_allocations(const char *text, const char *const *sets, size_t nsets,
                             dlc_status answer) {
    char lines[16384];
    size_t needed = 0;
    write_text("net.ini", text);
    for (size_t n = 1;; n++) {
        dlc_problems problems = {0};
        dlc_memory_fail_at(n);
        dlc_status rc = check_net(sets, nsets, &problems);
        size_t made = dlc_memory_fail_at(0);
        ck_assert_msg(rc == DLC_OK || rc == DLC_ERR_NOMEM, "%zu: %s", n, dlc_detail());
        if (made < n) {
            ck_assert_int_eq(rc, DLC_OK);
            ck_assert_int_eq(report(&problems, lines, sizeof lines), answer);
            needed = made;
            break;
        }
        ck_assert_msg(rc == DLC_ERR_NOMEM, "%zu of %zu went unnoticed", n, made);
        dlc_problems_free(&problems);
    }
    ck_assert_uint_gt(needed, 50);
}

TEST(every_allocation_may_fail) {
    static const char *const sets[] = {"conv1.bias=no", "train.note=x", "net.note=y"};
    fail_allocations(good, sets, 3, DLC_OK);
}

TEST(every_allocation_may_fail_with_blocks) {
    static const char *const sets[] = {"stem.width=8", "body.2.sum.bias=no",
                                       "conv.relu.note=x"};
    fail_allocations(good_blocks, sets, 3, DLC_OK);
}

TEST(every_allocation_may_fail_with_mistakes_in_blocks) {
    fail_allocations("[block a]\n"
                     "params = width, 1 2, width\n"
                     "[a.x]\n"
                     "note = $widht $\n"
                     "bais = 1\n"
                     "[a.y]\n"
                     "num_output = $width\n"
                     "input = z, y\n"
                     "[a.z]\n"
                     "block = b\n"
                     "[u]\n"
                     "block = a\n"
                     "width = x\n"
                     "with = 1\n"
                     "repeat = 2\n"
                     "[v]\n"
                     "block = ab\n"
                     "[u.1.x]\n"
                     "[a.q]\n",
                     NULL, 0, DLC_ERR_CONFIG);
}

TEST(every_allocation_may_fail_with_mistakes) {
    static const char *const sets[] = {"conv2.bias=no", "conv1.bais=1", "x"};
    fail_allocations("[net]\n"
                     "note 1\n"
                     "[solver]\n"
                     "base_lr = x\n"
                     "[solver]\n"
                     "[conv1]\n"
                     "num_output = 0\n"
                     "pool = mex\n"
                     "qqqqqqqqqqq = 1\n"
                     "steps = 1, x\n"
                     "weight_filler = xaver\n",
                     sets, 3, DLC_ERR_CONFIG);
}

TEST(a_mistake_that_cannot_be_stored_is_a_failure) {
    write_text("net.ini", "[a]\nhello\n");
    dlc_status rc = DLC_ERR_NOMEM;
    for (size_t n = 1; rc != DLC_OK; n++) {
        dlc_problems problems = {0};
        dlc_config *config = NULL;
        dlc_memory_fail_at(n);
        rc = dlc_config_load("net.ini", reserved, NULL, 0, &problems, &config);
        ck_assert_int_eq(rc, dlc_memory_fail_at(0) < n ? DLC_OK : DLC_ERR_NOMEM);
        dlc_config_free(config);
        dlc_problems_free(&problems);
    }
}

TEST(a_report_without_memory_is_a_failure) {
    dlc_problems problems = {0};
    char lines[1024];
    dlc_memory_fail_at(1);
    dlc_problems_warn(&problems, NULL, DLC_LINE_FILE, "odd");
    dlc_memory_fail_at(0);
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_NOMEM);
    dlc_memory_fail_at(1);
    dlc_problems_add(&problems, NULL, DLC_LINE_FILE, "wrong");
    dlc_memory_fail_at(0);
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_NOMEM);
}

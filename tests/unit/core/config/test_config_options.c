/* Tests option tables: what is refused, their help, and fillers. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "fixture.h"
#include "support/test.h"

TEST_SETTINGS(.setup = folder_setup, .teardown = folder_teardown);

TEST(good_tables_pass) {
    ck_assert_int_eq(dlc_options_check(NULL), DLC_OK);
    ck_assert_int_eq(dlc_options_check(core_table), DLC_OK);
    ck_assert_int_eq(dlc_options_check(layer_table), DLC_OK);
    ck_assert_int_eq(dlc_options_check(solver_table), DLC_OK);
    /* A required option needs no default, so it is not checked. */
    static const dlc_option required[] = {
        DLC_OPTION("a", DLC_OPT_INT, DLC_OPT_REQUIRED, "none", 0, 9, NULL, "Help"),
        DLC_OPTIONS_END,
    };
    ck_assert_int_eq(dlc_options_check(required), DLC_OK);
    static const dlc_option empty[] = {DLC_OPTIONS_END};
    ck_assert_int_eq(dlc_options_check(empty), DLC_OK);
}

static const struct bad_table {
    dlc_option rows[3];
    const char *detail;
} bad_tables[] = {
    {{DLC_INT("Size", "1", 0, 9, "Help"), DLC_OPTIONS_END},
     "its name has characters other"},
    {{DLC_INT("a-b", "1", 0, 9, "Help"), DLC_OPTIONS_END},
     "its name has characters other"},
    {{DLC_INT("", "1", 0, 9, "Help"), DLC_OPTIONS_END},
     "its name has characters other"},
    {{DLC_OPTION("a", 0, 0, NULL, 0, 0, NULL, "Help"), DLC_OPTIONS_END},
     "option a: its type is unknown"},
    {{DLC_OPTION("a", 11, 0, NULL, 0, 0, NULL, "Help"), DLC_OPTIONS_END},
     "option a: its type is unknown"},
    {{DLC_INT("a", "1", 9, 0, "Help"), DLC_OPTIONS_END}, "its range is empty"},
    {{DLC_FLOAT("a", "1", (double)NAN, 1, "Help"), DLC_OPTIONS_END},
     "its range is empty"},
    {{DLC_CHOICE("a", "x", NULL, "Help"), DLC_OPTIONS_END}, "its choices are missing"},
    {{DLC_CHOICE("a", "x", "", "Help"), DLC_OPTIONS_END}, "its choices are missing"},
    {{DLC_CHOICE("a", "x", "x||y", "Help"), DLC_OPTIONS_END},
     "its choices are missing"},
    {{DLC_CHOICE("a", "x", "x|", "Help"), DLC_OPTIONS_END}, "its choices are missing"},
    {{DLC_INT("a", "1", 0, 9, NULL), DLC_OPTIONS_END}, "it has no help"},
    {{DLC_INT("a", "1", 0, 9, ""), DLC_OPTIONS_END}, "it has no help"},
    {{DLC_INT("a", "1", 0, 9, "Help"), DLC_BOOL("a", "1", "Help"), DLC_OPTIONS_END},
     "option a: it is listed twice"},
    {{DLC_INT("a", "10", 0, 9, "Help"), DLC_OPTIONS_END},
     "option a: its default: 10 is out of range: 0 .. 9"},
    {{DLC_INT("a", "x", 0, 9, "Help"), DLC_OPTIONS_END}, "\"x\" is not a whole number"},
    {{DLC_CHOICE("a", "z", "x|y", "Help"), DLC_OPTIONS_END}, "\"z\" is not one of x|y"},
    {{DLC_FILLER("a", "xaver", "Help"), DLC_OPTIONS_END}, "did you mean xavier?"},
    {{DLC_PATH("a", "", "Help"), DLC_OPTIONS_END}, "an empty path"},
    {{DLC_INTS("a", "1,", 0, 9, "Help"), DLC_OPTIONS_END},
     "\"\" is not a whole number"},
};

TEST_EACH(bad_tables_are_refused, COUNT(bad_tables)) {
    ck_assert_int_eq(dlc_options_check(bad_tables[_i].rows), DLC_ERR_PLUGIN);
    ck_assert_msg(strstr(dlc_detail(), bad_tables[_i].detail) != NULL, "%s",
                  dlc_detail());
}

TEST(rows_of_a_wrong_size_are_refused) {
    static const uint32_t sizes[] = {0,
                                     4,
                                     8,
                                     sizeof(dlc_option) - 8,
                                     sizeof(dlc_option) + 1,
                                     sizeof(dlc_option) - 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        dlc_option table[] = {DLC_INT("a", "1", 0, 9, "Help"), DLC_OPTIONS_END};
        table[0].size = sizes[i];
        ck_assert_int_eq(dlc_options_check(table), DLC_ERR_PLUGIN);
        ck_assert_ptr_nonnull(strstr(dlc_detail(), "row 1 has the wrong size"));
    }
}

TEST(help_describes_the_table) {
    static const dlc_option table[] = {
        DLC_INT_REQUIRED("num_output", 1, 65536, "Channels it writes"),
        DLC_FLOAT("staleness", "0", 0, INFINITY, "Clocks that a read may lag"),
        DLC_INT("seed", NULL, -INFINITY, INFINITY, "Start of the random numbers"),
        DLC_INT("most", NULL, -INFINITY, 5, "No more than"),
        DLC_OPTION("lr", DLC_OPT_FLOAT, DLC_OPT_LIVE, "0.1", 0, 1, NULL, "Rate"),
        DLC_CHOICE("pool", "max", "max|average", "How it sums up"),
        DLC_STRING("note", "", "Anything"),
        DLC_OPTIONS_END,
    };
    static const dlc_option again[] = {
        DLC_STRING("pool", "hidden by the first table", "Hidden"),
        DLC_BOOL("bias", "true", "Adds a number a channel"),
        DLC_OPTIONS_END,
    };
    static const dlc_option *const tables[] = {table, NULL, again};
    dlc_text text = {0};
    dlc_options_help(tables, 3, &text);
    ck_assert_int_eq(dlc_text_status(&text), DLC_OK);
    ck_assert_str_eq(
        dlc_text_string(&text),
        "  num_output           whole number, 1 .. 65536; required\n"
        "                       Channels it writes\n"
        "  staleness            number, at least 0, or inf; default 0\n"
        "                       Clocks that a read may lag\n"
        "  seed                 whole number\n"
        "                       Start of the random numbers\n"
        "  most                 whole number, at most 5\n"
        "                       No more than\n"
        "  lr                   number, 0 .. 1; default 0.1; may change while running\n"
        "                       Rate\n"
        "  pool                 one of max|average; default max\n"
        "                       How it sums up\n"
        "  note                 text; default \"\"\n"
        "                       Anything\n"
        "  bias                 true or false; default true\n"
        "                       Adds a number a channel\n");
    dlc_text_free(&text);
}

TEST(every_type_has_a_description) {
    for (const dlc_option *row = layer_table; row->name; row = DLC_NEXT(row)) {
        dlc_text text = {0};
        dlc_option_takes(row, &text);
        ck_assert_uint_gt(text.length, 3);
        dlc_text_free(&text);
    }
}

TEST(fillers_are_parsed) {
    static const struct {
        const char *text;
        dlc_filler filler;
    } cases[] = {
        {"constant(0.1)", {DLC_FILL_CONSTANT, 0.1, 0}},
        {"constant( -3 )", {DLC_FILL_CONSTANT, -3, 0}},
        {"gaussian(0.01)", {DLC_FILL_GAUSSIAN, 0.01, 0}},
        {"gaussian(0.01, 2)", {DLC_FILL_GAUSSIAN, 0.01, 2}},
        {"gaussian (0,-2)", {DLC_FILL_GAUSSIAN, 0, -2}},
        {"uniform(-1, 1)", {DLC_FILL_UNIFORM, -1, 1}},
        {"uniform(1,1)", {DLC_FILL_UNIFORM, 1, 1}},
        {"xavier", {DLC_FILL_XAVIER, 0, 0}},
        {"msra", {DLC_FILL_MSRA, 0, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dlc_filler filler = {DLC_FILL_MSRA, 7, 7};
        dlc_status rc = dlc_filler_parse(cases[i].text, &filler);
        ck_assert_msg(rc == DLC_OK, "%s", dlc_detail());
        ck_assert_int_eq(filler.kind, cases[i].filler.kind);
        ck_assert_double_eq(filler.a, cases[i].filler.a);
        ck_assert_double_eq(filler.b, cases[i].filler.b);
    }
}

TEST(bad_fillers_are_refused) {
    static const char *const cases[] = {
        "",
        "gauss(1)",
        "Constant(1)",
        "constant",
        "constant()",
        "constant(",
        "constant)",
        "constant(1",
        "constant(1,2)",
        "constant(x)",
        "constant(1))",
        "constant(1) x",
        "constant(inf)",
        "constant(nan)",
        "constant(1,)",
        "gaussian(,1)",
        "gaussian(1,2,3)",
        "gaussian(-1)",
        "uniform(1)",
        "uniform(2, 1)",
        "xavier(1)",
        "xavier x",
        "msra ()",
        "a name that is much longer than any filler's name could ever be, by far(1)",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        dlc_filler filler = {DLC_FILL_MSRA, 7, 7};
        ck_assert_msg(dlc_filler_parse(cases[i], &filler) == DLC_ERR_CONFIG, "%s",
                      cases[i]);
        ck_assert_double_eq(filler.a, 7);
    }
}

/* Tests how a section and option tables become typed values: types, defaults,
 * positions, paths. */
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/status.h"
#include "fixture.h"
#include "support/test.h"

/* Loads `path` and makes one section's settings without a mistake. */
static dlc_settings *make(const char *path, const char *section,
                          const dlc_option *const *tables, size_t ntables,
                          const char *const *sets, size_t nsets) {
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    dlc_settings *settings = NULL;
    char lines[4096];
    dlc_status rc = dlc_config_load(path, reserved, sets, nsets, &problems, &config);
    ck_assert_msg(rc == DLC_OK, "%s", dlc_detail());
    rc = dlc_settings_make(config, section, tables, ntables, &problems, &settings);
    ck_assert_msg(rc == DLC_OK, "%s", dlc_detail());
    dlc_config_free(config); /* settings outlive the config */
    rc = report(&problems, lines, sizeof lines);
    ck_assert_msg(rc == DLC_OK, "%s", lines);
    return settings;
}

static dlc_settings *make_layer(const char *text) {
    static const dlc_option *const tables[] = {layer_table};
    write_text("net.ini", text);
    return make("net.ini", "a", tables, 1, NULL, 0);
}

TEST_SETTINGS(.setup = folder_setup, .teardown = folder_teardown);

TEST(each_type_is_read) {
    dlc_settings *s = make_layer("[a]\n"
                                 "num_output = +0042\n"
                                 "ratio = 2.5e-1\n"
                                 "staleness = inf\n"
                                 "bias = off\n"
                                 "note = \"a; b\"\n"
                                 "pool = average\n"
                                 "file = /x/y\n"
                                 "steps = 1,2 ,  3\n"
                                 "mean = -1.5, 2, .5\n"
                                 "bucket = 64K\n"
                                 "weight_filler = gaussian(0.01)\n");
    ck_assert_int_eq(dlc_settings_get_int(s, "num_output"), 42);
    ck_assert_double_eq(dlc_settings_get_float(s, "ratio"), 0.25);
    ck_assert(isinf(dlc_settings_get_float(s, "staleness")));
    ck_assert_int_eq(dlc_settings_get_bool(s, "bias"), 0);
    ck_assert_str_eq(dlc_settings_get_string(s, "note"), "a; b");
    ck_assert_str_eq(dlc_settings_get_string(s, "pool"), "average");
    ck_assert(dlc_settings_is(s, "pool", "average"));
    ck_assert(!dlc_settings_is(s, "pool", "max"));
    ck_assert_str_eq(dlc_settings_get_string(s, "file"), "/x/y");
    ck_assert_int_eq(dlc_settings_get_int(s, "bucket"), 65536);
    ck_assert_str_eq(dlc_settings_get_string(s, "weight_filler"), "gaussian(0.01)");
    const int64_t *steps;
    ck_assert_uint_eq(dlc_settings_get_ints(s, "steps", &steps), 3);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(steps[i], i + 1);
    const double *mean;
    ck_assert_uint_eq(dlc_settings_get_floats(s, "mean", &mean), 3);
    ck_assert_double_eq(mean[0], -1.5);
    ck_assert_double_eq(mean[1], 2);
    ck_assert_double_eq(mean[2], 0.5);
    ck_assert_uint_eq(dlc_settings_get_floats(s, "mean", NULL), 3);
    dlc_settings_free(s);
}

TEST(each_default_is_there) {
    dlc_settings *s = make_layer("\n\n[a]\nratio = 1\n");
    ck_assert_int_eq(dlc_settings_get_int(s, "num_output"), 10);
    ck_assert_int_eq(dlc_settings_get_bool(s, "bias"), 1);
    ck_assert_str_eq(dlc_settings_get_string(s, "pool"), "max");
    ck_assert_int_eq(dlc_settings_get_int(s, "bucket"), 4 << 20);
    ck_assert_str_eq(dlc_settings_get_string(s, "weight_filler"), "xavier");
    const int64_t *steps;
    ck_assert_uint_eq(dlc_settings_get_ints(s, "steps", &steps), 2);
    ck_assert_int_eq(steps[1], 20);
    /* Without a default: unset. */
    const double *mean = &(double){0};
    ck_assert_uint_eq(dlc_settings_get_floats(s, "mean", &mean), 0);
    ck_assert_ptr_null(mean);
    ck_assert_ptr_null(dlc_settings_get_string(s, "note"));
    ck_assert(!dlc_settings_is(s, "note", ""));
    ck_assert_ptr_null(dlc_settings_get_string(s, "file"));
    ck_assert_ptr_null(dlc_settings_text(s, "note"));

    ck_assert_int_eq(dlc_settings_is_set(s, "ratio"), 1);
    ck_assert_int_eq(dlc_settings_is_set(s, "bias"), 0);
    ck_assert_str_eq(dlc_settings_where(s, "ratio"), "net.ini:4");
    ck_assert_str_eq(dlc_settings_where(s, "bias"), "net.ini:3");
    ck_assert_int_eq(dlc_settings_line(s, "ratio"), 4);
    ck_assert_int_eq(dlc_settings_line(s, "bias"), 3);
    dlc_settings_free(s);
}

TEST(every_bool_is_read) {
    static const struct {
        const char *text;
        int value;
    } cases[] = {{"true", 1},  {"yes", 1}, {"on", 1},  {"1", 1},
                 {"false", 0}, {"no", 0},  {"off", 0}, {"0", 0}};
    for (size_t i = 0; i < 8; i++) {
        char text[40];
        snprintf(text, sizeof text, "[a]\nbias = %s\n", cases[i].text);
        dlc_settings *s = make_layer(text);
        ck_assert_int_eq(dlc_settings_get_bool(s, "bias"), cases[i].value);
        dlc_settings_free(s);
    }
}

TEST(numbers_reach_their_limits) {
    static const dlc_option table[] = {
        DLC_INT("low", NULL, -INFINITY, INFINITY, "Help"),
        DLC_INT("high", NULL, -INFINITY, INFINITY, "Help"),
        DLC_FLOAT("tiny", NULL, -INFINITY, INFINITY, "Help"),
        DLC_FLOAT("huge", NULL, -INFINITY, INFINITY, "Help"),
        DLC_FLOAT("less", NULL, -INFINITY, INFINITY, "Help"),
        DLC_BYTES("two", NULL, 0, INFINITY, "Help"),
        DLC_BYTES("most", NULL, 0, INFINITY, "Help"),
        DLC_OPTIONS_END,
    };
    static const dlc_option *const tables[] = {table};
    write_text("net.ini", "[a]\nlow = -9223372036854775808\n"
                          "high = 9223372036854775807\n"
                          "tiny = 4.9406564584124654e-324\n"
                          "huge = -1.7976931348623157e308\n"
                          "less = -inf\n"
                          "two = 2G\n"
                          "most = 8589934591G\n");
    dlc_settings *s = make("net.ini", "a", tables, 1, NULL, 0);
    ck_assert_int_eq(dlc_settings_get_int(s, "low"), INT64_MIN);
    ck_assert_int_eq(dlc_settings_get_int(s, "high"), INT64_MAX);
    ck_assert(dlc_settings_get_float(s, "tiny") > 0);
    ck_assert_double_eq(dlc_settings_get_float(s, "huge"), -1.7976931348623157e308);
    ck_assert_double_eq(dlc_settings_get_float(s, "less"), -(double)INFINITY);
    ck_assert_int_eq(dlc_settings_get_int(s, "two"), (int64_t)2 << 30);
    ck_assert_int_eq(dlc_settings_get_int(s, "most"), (int64_t)8589934591 << 30);
    dlc_settings_free(s);
}

TEST(ranges_include_their_limits) {
    dlc_settings *s = make_layer("[a]\nnum_output = 1\nratio = 0\nmean = -255, 255\n");
    ck_assert_int_eq(dlc_settings_get_int(s, "num_output"), 1);
    ck_assert_double_eq(dlc_settings_get_float(s, "ratio"), 0);
    dlc_settings_free(s);
    s = make_layer("[a]\nnum_output = 65536\nratio = 1\nbucket = 4K\n");
    ck_assert_int_eq(dlc_settings_get_int(s, "num_output"), 65536);
    ck_assert_double_eq(dlc_settings_get_float(s, "ratio"), 1);
    ck_assert_int_eq(dlc_settings_get_int(s, "bucket"), 4096);
    dlc_settings_free(s);
}

TEST(a_locale_with_commas_changes_nothing) {
    static const char *const names[] = {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"};
    for (size_t i = 0; i < 3 && !setlocale(LC_ALL, names[i]); i++)
        ;
    dlc_settings *s = make_layer("[a]\nratio = 0.25\n");
    ck_assert_double_eq(dlc_settings_get_float(s, "ratio"), 0.25);
    dlc_settings_free(s);
    setlocale(LC_ALL, "C");
}

TEST(paths_are_relative_to_their_source) {
    static const dlc_option table[] = {
        DLC_PATH("train", NULL, "Help"), DLC_PATH("test", NULL, "Help"),
        DLC_PATH("home", NULL, "Help"),  DLC_PATH("mean", "mean.bin", "Help"),
        DLC_PATH("set", NULL, "Help"),   DLC_OPTIONS_END,
    };
    static const dlc_option *const tables[] = {table};
    static const char *const sets[] = {"data.set=there/x"};
    static const char text[] =
        "[data]\ntrain = img/x\ntest = /abs/y\nhome = ~/z\nset = img/x\n";
    ck_assert_int_eq(mkdir("nets", 0777), 0);
    write_text("nets/a.ini", text);
    dlc_settings *s = make("nets/a.ini", "data", tables, 1, sets, 1);
    ck_assert_str_eq(dlc_settings_get_string(s, "train"), "nets/img/x");
    ck_assert_str_eq(dlc_settings_get_string(s, "test"), "/abs/y");
    ck_assert_str_eq(dlc_settings_get_string(s, "home"), "nets/~/z");
    ck_assert_str_eq(dlc_settings_get_string(s, "mean"), "nets/mean.bin");
    ck_assert_str_eq(dlc_settings_get_string(s, "set"), "there/x");
    /* As text: as given. */
    ck_assert_str_eq(dlc_settings_text(s, "train"), "img/x");
    ck_assert_str_eq(dlc_settings_where(s, "set"), "--set");
    ck_assert_str_eq(dlc_settings_where(s, "train"), "nets/a.ini:2");
    dlc_settings_free(s);

    write_text("a.ini", text);
    s = make("a.ini", "data", tables, 1, NULL, 0);
    ck_assert_str_eq(dlc_settings_get_string(s, "train"), "img/x");
    dlc_settings_free(s);
}

TEST(the_first_of_two_tables_wins) {
    static const dlc_option first[] = {
        DLC_STRING("type", "none", "Help"),
        DLC_INT("size", "3", 1, 5, "Help"),
        DLC_OPTIONS_END,
    };
    static const dlc_option second[] = {
        DLC_FLOAT("size", "0.5", 0, 1, "Help"),
        DLC_INT_REQUIRED("type", 1, 2, "Help"),
        DLC_INT("more", "7", 0, 9, "Help"),
        DLC_OPTIONS_END,
    };
    static const dlc_option *const tables[] = {first, NULL, second};
    write_text("net.ini", "[a]\ntype = conv\nsize = 4\n");
    dlc_settings *s = make("net.ini", "a", tables, 3, NULL, 0);
    ck_assert_str_eq(dlc_settings_get_string(s, "type"), "conv");
    ck_assert_int_eq(dlc_settings_get_int(s, "size"), 4);
    ck_assert_int_eq(dlc_settings_get_int(s, "more"), 7);

    static const char *const names[] = {"type", "size", "more"};
    static const char *const texts[] = {"conv", "4", "7"};
    static const char *const wheres[] = {"net.ini:2", "net.ini:3", "net.ini:1"};
    ck_assert_uint_eq(dlc_settings_count(s), 3);
    for (size_t i = 0; i < 3; i++) {
        dlc_setting setting = dlc_settings_at(s, i);
        ck_assert_str_eq(setting.name, names[i]);
        ck_assert_str_eq(setting.text, texts[i]);
        ck_assert_str_eq(setting.where, wheres[i]);
        ck_assert_int_eq(setting.is_set, i < 2);
        ck_assert_str_eq(setting.option->name, names[i]);
    }
    dlc_settings_free(s);
}

TEST(tables_are_walked_by_the_size_of_their_rows) {
    /* Rows as a plugin of a later version might have them. */
    struct later {
        dlc_option option;
        const char *unit;
        uint64_t more;
    } table[3] = {
        {.option = DLC_INT("one", "1", 0, 9, "Help"), .unit = "s"},
        {.option = DLC_INT("two", "2", 0, 9, "Help"), .unit = "s"},
        {.option = DLC_OPTIONS_END},
    };
    for (size_t i = 0; i < 3; i++)
        table[i].option.size = sizeof table[i];
    const dlc_option *const tables[] = {&table[0].option};
    write_text("net.ini", "[a]\ntwo = 5\n");
    dlc_settings *s = make("net.ini", "a", tables, 1, NULL, 0);
    ck_assert_uint_eq(dlc_settings_count(s), 2);
    ck_assert_int_eq(dlc_settings_get_int(s, "one"), 1);
    ck_assert_int_eq(dlc_settings_get_int(s, "two"), 5);
    dlc_settings_free(s);
}

TEST(an_absent_section_has_defaults) {
    static const dlc_option *const tables[] = {layer_table};
    write_text("net.ini", "[b]\n");
    dlc_settings *s = make("net.ini", "a", tables, 1, NULL, 0);
    ck_assert_int_eq(dlc_settings_get_int(s, "num_output"), 10);
    ck_assert_str_eq(dlc_settings_where(s, "num_output"), "net.ini");
    dlc_settings_free(s);

    dlc_problems problems = {0};
    ck_assert_int_eq(dlc_settings_make(NULL, "a", tables, 1, &problems, &s), DLC_OK);
    ck_assert_int_eq(dlc_settings_get_int(s, "num_output"), 10);
    ck_assert_ptr_nonnull(dlc_settings_where(s, "num_output"));
    ck_assert_uint_eq(problems.errors, 0);
    dlc_settings_free(s);
}

TEST(an_absent_section_misses_what_is_required) {
    static const dlc_option *const tables[] = {solver_table};
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    dlc_settings *s = NULL;
    char lines[1024];
    write_text("net.ini", "[b]\n");
    ck_assert_int_eq(dlc_config_load("net.ini", reserved, NULL, 0, &problems, &config),
                     DLC_OK);
    ck_assert_int_eq(dlc_settings_make(config, "solver", tables, 1, &problems, &s),
                     DLC_OK);
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_CONFIG);
    ck_assert_str_eq(lines, "error: net.ini: no section [solver]; it needs base_lr "
                            "(number, at least 0, or inf)\n");
    dlc_settings_free(s);
    dlc_config_free(config);
}

TEST(without_a_table_no_key_is_valid) {
    dlc_problems problems = {0};
    dlc_config *config = NULL;
    dlc_settings *s = NULL;
    char lines[1024];
    write_text("net.ini", "[b]\nkey = 1\n");
    ck_assert_int_eq(dlc_config_load("net.ini", reserved, NULL, 0, &problems, &config),
                     DLC_OK);
    ck_assert_int_eq(dlc_settings_make(config, "b", NULL, 0, &problems, &s), DLC_OK);
    ck_assert_uint_eq(dlc_settings_count(s), 0);
    ck_assert_int_eq(report(&problems, lines, sizeof lines), DLC_ERR_CONFIG);
    ck_assert_str_eq(lines,
                     "error: net.ini:2: [b] has no setting \"key\"; it takes none\n");
    dlc_settings_free(s);
    dlc_config_free(config);
}

TEST(a_wrong_table_is_the_plugins_mistake) {
    static const dlc_option table[] = {
        DLC_INT("size", "0", 1, 5, "Help"),
        DLC_OPTIONS_END,
    };
    static const dlc_option *const tables[] = {layer_table, table};
    dlc_problems problems = {0};
    dlc_settings *s = (dlc_settings *)&problems;
    ck_assert_int_eq(dlc_settings_make(NULL, "a", tables, 2, &problems, &s),
                     DLC_ERR_PLUGIN);
    ck_assert_ptr_eq(s, &problems);
    ck_assert_str_eq(dlc_detail(),
                     "option size: its default: 0 is out of range: 1 .. 5");
}

TEST(unknown_options_are_logged) {
    dlc_settings *s = make_layer("[a]\nratio = 0.1\n");
    ck_assert_int_eq(dlc_log_file_open("log.json"), DLC_OK);
    ck_assert_int_eq(dlc_settings_get_int(s, "ratio"), 0);
    ck_assert_int_eq(dlc_settings_get_int(s, "rati"), 0);
    ck_assert_double_eq(dlc_settings_get_float(s, "num_output"), 0);
    ck_assert_int_eq(dlc_settings_get_bool(s, "num_output"), 0);
    ck_assert_ptr_null(dlc_settings_get_string(s, "num_output"));
    ck_assert_ptr_null(dlc_settings_get_string(s, "nothing"));
    const int64_t *ints = &(int64_t){1};
    const double *floats = &(double){1};
    ck_assert_uint_eq(dlc_settings_get_ints(s, "mean", &ints), 0);
    ck_assert_uint_eq(dlc_settings_get_floats(s, "steps", &floats), 0);
    ck_assert_ptr_null(ints);
    ck_assert_ptr_null(floats);
    ck_assert_int_eq(dlc_settings_is_set(s, "nothing"), 0);
    ck_assert_str_eq(dlc_settings_where(s, "nothing"), "net.ini:1");
    ck_assert_int_eq(dlc_settings_line(s, "nothing"), 1);
    ck_assert_ptr_null(dlc_settings_text(s, "nothing"));
    dlc_log_file_close();
    dlc_settings_free(s);

    char text[8192] = "";
    FILE *file = fopen("log.json", "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_gt(fread(text, 1, sizeof text - 1, file), 0);
    fclose(file);
    size_t lines = 0;
    for (const char *at = text; (at = strstr(at, "\"level\":\"error\"")); at++)
        lines++;
    ck_assert_uint_eq(lines, 11); /* every getter above except dlc_settings_text */
}

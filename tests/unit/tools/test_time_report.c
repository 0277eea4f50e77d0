/* Tests the output of `dlcore time`: the table's columns and lines, the JSON, the plot.
 */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "support/scratch.h"
#include "support/test.h"
#include "time_report.h"

enum { MANY = 60 };

static const dlc_time_head head = {.feed_images = 1500,
                                   .net = "<net> & \"sons\" \xff",
                                   .device = "cpu",
                                   .solver = "sgd",
                                   .precision = "float32",
                                   .batch = 32,
                                   .limits = {.gflops = 2, .gbytes = 10},
                                   .threads = 2};

/* Makes `rows` layers, the i-th with 1 + i ms forward and as much backward; the last is
 * fused into the first. */
static void make(size_t rows, dlc_time_order order, dlc_time_table *table) {
    static char names[MANY][48];
    dlc_net_row *net = dlc_alloc(rows, sizeof *net);
    dlc_net_work *update = dlc_alloc(rows, sizeof *update);
    dlc_time_samples samples = {.rows = rows};
    double *seconds = dlc_time_samples_add(&samples);
    for (size_t i = 0; i < rows; i++) {
        snprintf(names[i], sizeof names[i], "layer%zu", i);
        net[i] = (dlc_net_row){.name = names[i],
                               .type = i % 2 ? "relu" : "convolution",
                               .work = {{1000000, 4000000}, {1000000, 8000000}},
                               .choice = "jit:own blocked"};
        update[i].bytes = 5000000;
        seconds[i * TIME_PARTS] = seconds[i * TIME_PARTS + 1] = (double)(1 + i) * 1e-3;
        seconds[i * TIME_PARTS + TIME_UPDATE] = 1e-3;
    }
    net[rows - 1].fused_into = names[0];
    memset(net[rows - 1].work, 0, sizeof net[rows - 1].work);
    memset(&seconds[(rows - 1) * TIME_PARTS], 0, TIME_PARTS * sizeof *seconds);
    samples.whole[0] = 1;
    ck_assert_int_eq(
        dlc_time_table_make(net, update, &head.limits, &samples, order, table), DLC_OK);
    dlc_time_samples_free(&samples);
    dlc_free(update);
    dlc_free(net);
}

static char *text_of(const dlc_time_table *table, const dlc_time_style *style) {
    dlc_text text = {0};
    dlc_time_text(&head, table, style, &text);
    ck_assert_int_eq(dlc_text_status(&text), DLC_OK);
    return text.bytes;
}

static int lines_with(const char *text, const char *part) {
    int count = 0;
    for (const char *at = strstr(text, part); at; at = strstr(at + 1, part))
        count++;
    return count;
}

TEST(text_shows_rows_totals_and_types) {
    dlc_time_table table;
    make(4, TIME_SLOWEST_FIRST, &table);
    char *text = text_of(&table, &(dlc_time_style){0});
    /* layer2: 3 ms twice and 1 ms; 7 of 15 ms; 4e6 operations in 6 ms; 17 MB in 7 ms.
     * At most 2e9 operations or 1e10 bytes a second: 1 ms twice and 0.5 ms. */
    ck_contains(text,
                "layer2            3000.0   3000.0        -   1000.0   7000.0  46.7"
                "     0.7    2.4      36%  jit:own blocked\n");
    ck_contains(text,
                "total             6000.0   6000.0        -   3000.0  15000.0 100.0"
                "     1.0    3.7      50%\n");
    ck_contains(text, "convolution x2    4000.0");
    ck_contains(text, "15000.0 us per pass, 2133 images/s");
    ck_contains(text, "\nfeed alone 1500 images/s: training will wait for data\n");
    ck_contains(text, "\nlimits of the device: 2 GFLOP/s in float32, 10.0 GB/s\n");
    ck_contains(text, "(and 1 fused into others: --all)");
    ck_assert_ptr_null(strstr(text, "layer3"));
    ck_assert(strstr(text, "layer2") < strstr(text, "layer0"));
    dlc_free(text);
    text = text_of(&table, &(dlc_time_style){.all = 1, .wide = 1});
    ck_contains(text, "in layer0");
    /* Three parts and the row, twice; the limits. */
    ck_assert_int_eq(lines_with(text, "GFLOP/s"), 9);
    dlc_free(text);
    dlc_time_table_free(&table);
}

TEST(text_fits_the_terminal) {
    dlc_time_table table;
    make(4, TIME_AS_IN_NET, &table);
    char *text = text_of(&table, &(dlc_time_style){.width = 80});
    /* The lines above and below the table may be longer. */
    char *line = strchr(text, '\n') + 1, *last = strstr(text, " us per pass");
    ck_assert_ptr_nonnull(last);
    for (char *end; (end = strchr(line, '\n')) && end < last; line = end + 1) {
        ck_assert_int_le((int)(end - line), 80);
        ck_assert_msg(end == line || end[-1] != ' ', "a blank ends a line");
    }
    dlc_free(text);
    dlc_time_table_free(&table);
}

TEST(long_names_are_cut) {
    char cut[TIME_NAME_ROOM];
    dlc_time_cut_name("short", 8, cut);
    ck_assert_str_eq(cut, "short");
    dlc_time_cut_name("res2a.branch.reduce", 8, cut);
    ck_assert_str_eq(cut, "res..uce");
    dlc_time_cut_name("\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4\xc3\xa4", 8, cut);
    ck_assert_str_eq(cut, "\xc3\xa4..\xc3\xa4"); /* never within a UTF-8 sequence */
}

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "no number '%s'", key);
    return json_number_value(value);
}

TEST(json_has_every_value) {
    dlc_time_table table;
    dlc_json json = {0};
    make(4, TIME_SLOWEST_FIRST, &table);
    dlc_time_head plain = head;
    plain.net = "net";
    dlc_time_json(&plain, &table, &json);
    json_t *root = json_loads(dlc_text_string(&json.text), JSON_REJECT_DUPLICATES,
                              NULL);
    ck_assert_ptr_nonnull(root);
    ck_assert_double_eq(number(root, "batch"), 32);
    ck_assert_double_eq(number(root, "passes"), 1);
    ck_assert_str_eq(json_string_value(json_object_get(root, "precision")), "float32");
    ck_assert_double_eq_tol(number(root, "images_per_s"), 32 / 15e-3, 1e-6);
    ck_assert_double_eq_tol(number(root, "feed_images_per_s"), 1500, 1e-6);
    ck_assert_double_eq_tol(number(json_object_get(root, "pass_us"), "median"), 1e6, 1);
    ck_assert_double_eq_tol(number(json_object_get(root, "total"), "us"), 15000, 1e-6);
    json_t *limits = json_object_get(root, "limits");
    ck_assert_double_eq(number(limits, "gflops"), 2);
    ck_assert_double_eq(number(limits, "gbytes_per_s"), 10);
    ck_assert_double_eq_tol(number(json_object_get(root, "total"), "of_limit"), 0.5,
                            1e-9);
    json_t *layers = json_object_get(root, "layers");
    ck_assert_uint_eq(json_array_size(layers), 4);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "types")), 2);
    json_t *first = json_array_get(layers, 0);
    ck_assert_str_eq(json_string_value(json_object_get(first, "name")), "layer2");
    ck_assert_str_eq(json_string_value(json_object_get(first, "choice")),
                     "jit:own blocked");
    ck_assert(json_is_null(json_object_get(first, "fused_into")));
    json_t *data = json_object_get(first, "backward_data");
    ck_assert_double_eq_tol(number(data, "us"), 3000, 1e-6);
    ck_assert_double_eq(number(data, "multiply_adds"), 1000000);
    ck_assert_double_eq(number(data, "bytes"), 8000000);
    ck_assert_double_eq_tol(number(data, "gflops"), 2. / 3, 1e-9);
    ck_assert_double_eq_tol(number(data, "gbytes_per_s"), 8. / 3, 1e-9);
    ck_assert_double_eq_tol(number(data, "of_limit"), 1. / 3, 1e-9);
    ck_assert_double_eq_tol(number(first, "of_limit"), 2.5 / 7, 1e-9);
    json_t *weights = json_object_get(first, "backward_weights");
    ck_assert_double_eq(number(weights, "us"), 0);
    ck_assert(json_is_null(json_object_get(weights, "gflops")));
    ck_assert(json_is_null(json_object_get(weights, "of_limit")));
    ck_assert_double_eq_tol(number(json_object_get(first, "update"), "gbytes_per_s"), 5,
                            1e-9);
    json_t *last = json_array_get(layers, 3);
    ck_assert_str_eq(json_string_value(json_object_get(last, "fused_into")), "layer0");
    json_decref(root);
    dlc_text_free(&json.text);
    dlc_time_table_free(&table);
}

static char *svg_of(const dlc_time_table *table) {
    dlc_text svg = {0};
    ck_assert_int_eq(dlc_time_svg(&head, table, &svg), DLC_OK);
    return svg.bytes;
}

TEST(svg_draws_and_escapes) {
    dlc_time_table table;
    make(4, TIME_SLOWEST_FIRST, &table);
    char *svg = svg_of(&table);
    ck_contains(svg, "<svg xmlns=");
    ck_contains(svg, "&lt;net&gt; &amp; &quot;sons&quot; ?: time of each");
    ck_contains(svg, "prefers-color-scheme: dark");
    ck_contains(svg, ">layer2</text>");
    ck_contains(svg, "layer2, update: 1000.0 us, 5.0 GB/s (jit:own blocked)");
    ck_contains(svg, ">7000.0 us</text>");
    ck_assert_ptr_null(strstr(svg, "others"));
    ck_assert_ptr_null(strstr(svg, "layer3"));
    ck_assert_str_eq(svg + strlen(svg) - 7, "</svg>\n");
    dlc_free(svg);
    dlc_time_table_free(&table);
}

/* The slowest 40 have a bar each, in the table's order; one bar is the sum of the
 * others. */
TEST(svg_sums_up_the_others) {
    dlc_time_table table;
    make(MANY, TIME_AS_IN_NET, &table);
    char *svg = svg_of(&table);
    /* One bar for the others, and one for each of two types. */
    ck_assert_int_eq(lines_with(svg, "class=\"name\" text-anchor=\"end\""), 40 + 3);
    ck_assert_ptr_null(strstr(svg, ">layer18</text>"));
    const char *slowest = strstr(svg, ">layer58</text>");
    const char *fastest = strstr(svg, ">layer19</text>");
    ck_assert_ptr_nonnull(slowest);
    ck_assert_ptr_nonnull(fastest);
    ck_assert(fastest < slowest);
    ck_contains(svg, ">19 others</text>");
    ck_contains(svg, "not to scale");
    dlc_free(svg);
    dlc_time_table_free(&table);
}

TEST(svg_of_nothing) {
    dlc_time_table table = {0};
    char *svg = svg_of(&table);
    ck_contains(svg, "</svg>");
    ck_assert_ptr_null(strstr(svg, "nan"));
    ck_assert_ptr_null(strstr(svg, "inf"));
    dlc_free(svg);
}

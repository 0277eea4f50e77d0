/* Tests the output of `dlcore bench comm`: rates, columns, JSON, the plot, and the
 * parsing of sizes and names. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_table.h"
#include "support/test.h"

static const dlc_bench_head head = {
    .transport = "a<b>", .device = "cpu", .ranks = 4, .arena = 1};

static dlc_bench_row row_of(dlc_bench_op op) {
    return (dlc_bench_row){
        .op = op, .bytes = 1000000, .iterations = 7, .seconds = 1e-3, .wrong = 0};
}

static void ck_near(double is, double should) {
    ck_assert_msg(fabs(is - should) <= 1e-9 * fabs(should), "%.17g is not %.17g", is,
                  should);
}

TEST_EACH(rates_are_those_of_nccl_tests, BENCH_OPS) {
    static const double factor[BENCH_OPS] = {
        [BENCH_ALL_REDUCE] = 1.5,  [BENCH_BROADCAST] = 1,
        [BENCH_ALL_GATHER] = 0.75, [BENCH_REDUCE_SCATTER] = 0.75,
        [BENCH_SEND_RECV] = 1,     [BENCH_PING_PONG] = 1,
        [BENCH_STREAM] = 1};
    dlc_bench_row row = row_of((dlc_bench_op)_i);
    ck_near(dlc_bench_algbw(&row), 1);
    ck_near(dlc_bench_busbw(&row, 4), factor[_i]);
    row.seconds = 0;
    ck_assert(dlc_bench_algbw(&row) == 0);
}

/* With two ranks bus and algorithm bandwidth are equal. */
TEST(two_ranks) {
    dlc_bench_row row = row_of(BENCH_ALL_REDUCE);
    ck_near(dlc_bench_busbw(&row, 2), 1);
}

static void ck_line(const dlc_bench_row *row, const char *line) {
    dlc_text text = {0};
    dlc_bench_text_row(&head, row, &text);
    ck_assert_int_eq(dlc_text_status(&text), DLC_OK);
    ck_assert_str_eq(dlc_text_string(&text), line);
    dlc_text_free(&text);
}

TEST(lines_have_the_columns) {
    dlc_bench_row row = row_of(BENCH_ALL_REDUCE);
    ck_line(&row, "      1000000        250000   float     sum    -1     1000.0    "
                  "1.000    1.500       0\n");
    row = (dlc_bench_row){
        .op = BENCH_BROADCAST, .bytes = 4096, .seconds = 1.5e-7, .wrong = -1};
    ck_line(&row, "         4096          1024   float    none     0       0.15    "
                  "27.31    27.31     N/A\n");
    row.wrong = 12;
    ck_line(&row, "         4096          1024   float    none     0       0.15    "
                  "27.31    27.31      12\n");
}

/* Titles are aligned with their columns: each ends where its values end. */
TEST(titles_are_aligned) {
    dlc_bench_row row = row_of(BENCH_ALL_GATHER);
    dlc_text text = {0}, line = {0};
    dlc_bench_text_head(&head, row.op, &text);
    dlc_bench_text_row(&head, &row, &line);
    const char *second = strchr(dlc_text_string(&text), '\n') + 1;
    ck_assert_ptr_nonnull(
        strstr(dlc_text_string(&text), "all_gather, 4 ranks, a<b>, registered memory"));
    ck_assert_uint_eq(strcspn(second, "\n"), line.length - 1);
    ck_assert_ptr_eq(strstr(second, "#wrong") + 6, strchr(second, '\n'));
    dlc_text_free(&text);
    dlc_text_free(&line);
}

TEST(json_is_a_list_of_objects) {
    dlc_bench_row rows[] = {row_of(BENCH_ALL_REDUCE), row_of(BENCH_STREAM)};
    dlc_json json = {0};
    rows[1].wrong = -1;
    dlc_bench_json(&head, rows, 2, &json);
    json_t *list = json_loads(dlc_text_string(&json.text), 0, NULL);
    ck_assert_uint_eq(json_array_size(list), 2);
    const json_t *first = json_array_get(list, 0), *second = json_array_get(list, 1);
    ck_assert_str_eq(json_string_value(json_object_get(first, "op")), "all_reduce");
    ck_assert_str_eq(json_string_value(json_object_get(first, "transport")), "a<b>");
    ck_assert_int_eq(json_integer_value(json_object_get(first, "ranks")), 4);
    ck_assert_int_eq(json_integer_value(json_object_get(first, "bytes")), 1000000);
    ck_near(json_number_value(json_object_get(first, "us")), 1000);
    ck_near(json_number_value(json_object_get(first, "algbw")), 1);
    ck_near(json_number_value(json_object_get(first, "busbw")), 1.5);
    ck_assert(json_is_integer(json_object_get(first, "wrong")));
    ck_assert(json_is_null(json_object_get(second, "wrong")));
    json_decref(list);
    dlc_text_free(&json.text);
}

static size_t count_of(const char *text, const char *what) {
    size_t count = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        count++;
    return count;
}

TEST(plot_has_a_line_per_operation) {
    dlc_bench_row rows[6];
    dlc_text svg = {0};
    for (int i = 0; i < 6; i++) {
        rows[i] = row_of(i < 3 ? BENCH_ALL_REDUCE : BENCH_BROADCAST);
        rows[i].bytes = UINT64_C(4096) << (2 * (i % 3));
        rows[i].seconds = 1e-6 * (i + 1);
    }
    ck_assert_int_eq(dlc_bench_svg(&head, rows, 6, &svg), DLC_OK);
    const char *text = dlc_text_string(&svg);
    ck_assert_ptr_nonnull(strstr(text, "4 ranks by a&lt;b&gt;"));
    /* Two panels: a mark for each row, a line between neighbors of one operation.
     */
    ck_assert_uint_eq(count_of(text, "<line class=\"op0\""), 4);
    ck_assert_uint_eq(count_of(text, "<line class=\"op1\""), 4);
    ck_assert_uint_eq(count_of(text, "<rect class=\"op0\""), 6);
    ck_assert_uint_eq(count_of(text, ">all_reduce</text>"), 2);
    ck_assert_uint_eq(count_of(text, ">broadcast</text>"), 2);
    ck_assert_uint_eq(count_of(text, "all_reduce, 64 KiB: 3 us, 32.8 GB/s"), 2);
    ck_assert_ptr_null(strstr(text, "nan"));
    ck_assert_ptr_null(strstr(text, "inf"));
    dlc_text_free(&svg);
}

/* Even if all lines end at one place, at the edge, names don't overlap, and are inside
 * the picture, next to the line's last point. */
TEST_EACH(names_do_not_overlap, 3) {
    dlc_bench_row rows[2 * BENCH_OPS];
    for (int i = 0; i < 2 * BENCH_OPS; i++) {
        rows[i] = row_of((dlc_bench_op)(i / 2));
        rows[i].bytes = UINT64_C(4096) << (4 * (i % 2));
        rows[i].seconds = _i == 0 ? 1e-3 : _i == 1 ? 1e-6 * (1 + i % 2) : 1e3;
    }
    dlc_text svg = {0};
    ck_assert_int_eq(dlc_bench_svg(&head, rows, 2 * BENCH_OPS, &svg), DLC_OK);
    const char *at = dlc_text_string(&svg);
    double taken[2 * BENCH_OPS], width, height;
    int names = 0;
    ck_assert_int_eq(
        sscanf(strstr(at, "width="), "width=\"%lf\" height=\"%lf\"", &width, &height),
        2);
    while ((at = strstr(at, "<text class=\"op"))) {
        double x, y;
        int panel = names / BENCH_OPS;
        ck_assert_int_eq(sscanf(at,
                                "<text class=\"op%*d\" text-anchor=\"start\" "
                                "x=\"%lf\" y=\"%lf\"",
                                &x, &y),
                         2);
        ck_assert_int_lt(names, 2 * BENCH_OPS);
        for (int k = panel * BENCH_OPS; k < names; k++)
            ck_assert_double_ge(fabs(taken[k] - y), 12);
        ck_assert_double_ge(y, 40);
        ck_assert_double_le(y, height - 20);
        ck_assert_double_le(x, width - 100);
        taken[names++] = y;
        at++;
    }
    ck_assert_int_eq(names, 2 * BENCH_OPS);
    dlc_text_free(&svg);
}

/* Each operation takes ten times as long as the one before it. */
TEST(names_are_in_the_order_of_their_lines) {
    dlc_bench_row rows[BENCH_OPS];
    double seconds = 1e-6, y[2][BENCH_OPS];
    for (int i = 0; i < BENCH_OPS; i++, seconds *= 10) {
        rows[i] = row_of((dlc_bench_op)i);
        rows[i].seconds = seconds;
    }
    dlc_text svg = {0};
    ck_assert_int_eq(dlc_bench_svg(&head, rows, BENCH_OPS, &svg), DLC_OK);
    const char *at = dlc_text_string(&svg);
    for (int i = 0; i < 2 * BENCH_OPS; i++, at++) {
        int op = -1;
        char name[32] = "";
        double its = 0;
        at = strstr(at, "<text class=\"op");
        ck_assert_ptr_nonnull(at);
        ck_assert_int_eq(sscanf(at,
                                "<text class=\"op%d\" text-anchor=\"start\" x=\"%*f\" "
                                "y=\"%lf\">%31[^<]",
                                &op, &its, name),
                         3);
        ck_assert(op >= 0 && op < BENCH_OPS);
        ck_assert_str_eq(name, dlc_bench_op_name(op));
        y[i / BENCH_OPS][op] = its;
    }
    int time = strstr(dlc_text_string(&svg), "time (us)") >
               strstr(dlc_text_string(&svg), "bus bandwidth");
    for (int i = 1; i < BENCH_OPS; i++) {
        ck_assert_double_lt(y[time][i], y[time][i - 1]);
        ck_assert_double_gt(y[!time][i], y[!time][i - 1]);
    }
    dlc_text_free(&svg);
}

/* One size and a time of zero: no division by zero. */
TEST(plot_of_one_size) {
    dlc_bench_row row = row_of(BENCH_ALL_REDUCE);
    for (int i = 0; i < 3; i++) {
        dlc_text svg = {0};
        row.seconds = i == 1 ? 0 : 1e-3;
        ck_assert_int_eq(dlc_bench_svg(&head, &row, i < 2, &svg), DLC_OK);
        ck_assert_ptr_null(strstr(dlc_text_string(&svg), "nan"));
        ck_assert_ptr_null(strstr(dlc_text_string(&svg), "inf"));
        dlc_text_free(&svg);
    }
}

TEST(sizes) {
    static const struct {
        const char *text;
        uint64_t bytes;
    } cases[] = {{"4", 4},
                 {"4K", 4096},
                 {"4k", 4096},
                 {"3M", 3 << 20},
                 {"2G", UINT64_C(2) << 30},
                 {"1024G", UINT64_C(1) << 40},
                 {"1025G", 0},
                 {"99999999999999999999", 0},
                 {"", 0},
                 {"K", 0},
                 {"4KB", 0},
                 {"-4", 0},
                 {" 4", 0},
                 {"4.5K", 0},
                 {"0", 0},
                 {"4T", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(dlc_bench_parse_size(cases[i].text) == cases[i].bytes, "'%s'",
                      cases[i].text);
    char text[16];
    dlc_bench_format_size(1 << 20, text);
    ck_assert_str_eq(text, "1 MiB");
    dlc_bench_format_size(1536, text);
    ck_assert_str_eq(text, "1.5 KiB");
    dlc_bench_format_size(4, text);
    ck_assert_str_eq(text, "4 B");
}

TEST(names_of_operations) {
    unsigned ops = 0;
    char bad[32];
    ck_assert_ptr_null(dlc_bench_parse_ops("all", &ops, bad));
    ck_assert_uint_eq(ops, (1u << BENCH_OPS) - 1);
    ck_assert_ptr_null(dlc_bench_parse_ops("stream,broadcast", &ops, bad));
    ck_assert_uint_eq(ops, 1u << BENCH_STREAM | 1u << BENCH_BROADCAST);
    ck_assert_str_eq(dlc_bench_parse_ops("broadcast,cast", &ops, bad), "cast");
    ck_assert_str_eq(dlc_bench_parse_ops("broad", &ops, bad), "broad");
    ck_assert_str_eq(dlc_bench_parse_ops("broadcast,", &ops, bad), "");
    ck_assert_str_eq(dlc_bench_parse_ops("", &ops, bad), "");
    ck_assert_ptr_nonnull(
        dlc_bench_parse_ops("a_name_that_is_longer_than_there_is_room", &ops, bad));
    ck_assert_uint_eq(strlen(bad), 31);
    ck_assert_uint_eq(ops, 1u << BENCH_STREAM | 1u << BENCH_BROADCAST);
    ck_assert_ptr_null(dlc_bench_op_name(-1));
    ck_assert_ptr_null(dlc_bench_op_name(BENCH_OPS));
}

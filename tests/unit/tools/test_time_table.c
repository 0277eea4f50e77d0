/* Tests the arithmetic of `dlcore time`: medians, sums, shares, rates, order, groups.
 */
#include <string.h>

#include "base/memory.h"
#include "support/test.h"
#include "time_table.h"

enum { ROWS = 4, PASSES = 5 };

static const dlc_net_row net[ROWS] = {
    {.name = "conv",
     .type = "convolution",
     .parameters = 100,
     .multiply_adds = 1000,
     .work = {{1000, 4000}, {0, 0}, {1000, 4000}},
     .choice = "fast"},
    {.name = "relu", .type = "relu", .fused_into = "conv"},
    {.name = "reorder",
     .type = "reorder",
     .is_reorder = 1,
     .producer = "conv",
     .reader = "ip",
     .work = {{0, 2000}, {0, 2000}}},
    {.name = "last",
     .type = "convolution",
     .parameters = 50,
     .work = {{500, 1000}, {500, 1000}, {500, 1000}}},
};
static const dlc_net_work update[ROWS] = {{0, 2000}, {0, 0}, {0, 0}, {0, 1000}};

/* Four operations and sixteen bytes a microsecond. */
static const dlc_time_limits limits = {.gflops = 4e-3, .gbytes = 16e-3};

/* Milliseconds; one pass was disturbed. */
static const double milliseconds[ROWS][TIME_PARTS] = {
    {1, 0, 2, 0.5}, {0, 0, 0, 0}, {4, 8, 0, 0}, {0.25, 0.25, 0.25, 0.25}};

static void fill(dlc_time_samples *samples) {
    *samples = (dlc_time_samples){.rows = ROWS};
    for (int pass = 0; pass < PASSES; pass++) {
        double *seconds = dlc_time_samples_add(samples);
        ck_assert_ptr_nonnull(seconds);
        for (int i = 0; i < ROWS * TIME_PARTS; i++)
            ck_assert_double_eq(seconds[i], 0);
        for (int row = 0; row < ROWS; row++)
            for (int part = 0; part < TIME_PARTS; part++)
                seconds[row * TIME_PARTS + part] = milliseconds[row][part] * 1e-3 *
                                                   (pass == 2 ? 100 : 1);
        samples->whole[samples->passes - 1] = (pass == 2 ? 2 : 0.01 + 0.001 * pass);
    }
}

static void make(dlc_time_order order, dlc_time_table *table) {
    dlc_time_samples samples;
    fill(&samples);
    ck_assert_int_eq(dlc_time_table_make(net, update, &limits, &samples, order, table),
                     DLC_OK);
    dlc_time_samples_free(&samples);
}

/* One pass that took a hundred times as long doesn't change the medians. */
TEST(medians_and_sums) {
    dlc_time_table table;
    make(TIME_AS_IN_NET, &table);
    ck_assert_uint_eq(table.rows, ROWS);
    ck_assert_uint_eq(table.passes, PASSES);
    for (int row = 0; row < ROWS; row++)
        for (int part = 0; part < TIME_PARTS; part++)
            ck_assert_double_eq_tol(table.row[row].seconds[part],
                                    milliseconds[row][part] * 1e-3, 1e-12);
    ck_assert_double_eq_tol(table.row[0].total, 3.5e-3, 1e-12);
    ck_assert_double_eq_tol(table.sum.total, 16.5e-3, 1e-12);
    ck_assert_double_eq_tol(table.sum.seconds[DLC_NET_FORWARD], 5.25e-3, 1e-12);
    ck_assert_double_eq_tol(table.sum.seconds[TIME_UPDATE], 0.75e-3, 1e-12);
    ck_assert_double_eq_tol(table.row[0].share, 3.5 / 16.5, 1e-12);
    ck_assert_double_eq_tol(table.sum.share, 1, 1e-12);
    ck_assert_int_eq(table.sum.parameters, 150);
    ck_assert_double_eq_tol(table.pass_min, 0.010, 1e-12);
    ck_assert_double_eq_tol(table.pass_median, 0.013, 1e-12);
    ck_assert_double_eq_tol(table.pass_max, 2, 1e-12);
    dlc_time_table_free(&table);
}

TEST(median_of_an_even_number) {
    dlc_time_samples samples = {.rows = 1};
    dlc_time_table table;
    for (int pass = 0; pass < 4; pass++) {
        double *seconds = dlc_time_samples_add(&samples);
        ck_assert_ptr_nonnull(seconds);
        seconds[DLC_NET_FORWARD] = (double[]){8, 1, 2, 4}[pass];
    }
    ck_assert_int_eq(
        dlc_time_table_make(net, NULL, NULL, &samples, TIME_SLOWEST_FIRST, &table),
        DLC_OK);
    ck_assert_double_eq(table.row[0].seconds[DLC_NET_FORWARD], 3);
    ck_assert_double_eq(table.row[0].share, 1);
    dlc_time_table_free(&table);
    dlc_time_samples_free(&samples);
}

TEST(order_and_names) {
    static const char *const by_time[] = {"conv -> ip", "conv", "last", "relu"};
    static const char *const as_in_net[] = {"conv", "relu", "conv -> ip", "last"};
    dlc_time_table table;
    make(TIME_SLOWEST_FIRST, &table);
    for (int i = 0; i < ROWS; i++)
        ck_assert_str_eq(table.row[i].name, by_time[i]);
    ck_assert_str_eq(table.row[1].choice, "fast");
    ck_assert_str_eq(table.row[3].fused_into, "conv");
    dlc_time_table_free(&table);
    make(TIME_AS_IN_NET, &table);
    for (int i = 0; i < ROWS; i++)
        ck_assert_str_eq(table.row[i].name, as_in_net[i]);
    dlc_time_table_free(&table);
}

/* Grouped by type, slowest first; fused layers aren't counted. */
TEST(types_are_added_up) {
    dlc_time_table table;
    make(TIME_AS_IN_NET, &table);
    ck_assert_uint_eq(table.types, 2);
    ck_assert_str_eq(table.type[0].name, "reorder");
    ck_assert_int_eq(table.type[0].layers, 1);
    ck_assert_str_eq(table.type[1].name, "convolution");
    ck_assert_int_eq(table.type[1].layers, 2);
    ck_assert_int_eq(table.type[1].parameters, 150);
    ck_assert_double_eq_tol(table.type[1].total, 4.5e-3, 1e-12);
    ck_assert_double_eq_tol(table.type[1].share, 4.5 / 16.5, 1e-12);
    dlc_time_table_free(&table);
}

TEST(rates) {
    dlc_time_table table;
    make(TIME_AS_IN_NET, &table);
    const dlc_time_row *conv = &table.row[0], *reorder = &table.row[2];
    /* 1,000 multiply-adds in 1 ms are 2 million operations per second. */
    ck_assert_double_eq_tol(dlc_time_gflops(conv, DLC_NET_FORWARD), 2e-3, 1e-12);
    ck_assert_double_eq_tol(dlc_time_gflops(conv, DLC_NET_BACKWARD_WEIGHTS), 1e-3,
                            1e-12);
    ck_assert_double_eq(dlc_time_gflops(conv, DLC_NET_BACKWARD_DATA), 0);
    ck_assert_double_eq(dlc_time_gflops(conv, TIME_UPDATE), 0);
    ck_assert_double_eq_tol(dlc_time_gbytes(conv, DLC_NET_FORWARD), 4e-3, 1e-12);
    ck_assert_double_eq_tol(dlc_time_gbytes(conv, TIME_UPDATE), 4e-3, 1e-12);
    /* The row's rate is over the time of the parts that do such operations. */
    ck_assert_double_eq_tol(dlc_time_row_gflops(conv), 4e-6 / 3e-3, 1e-12);
    ck_assert_double_eq_tol(dlc_time_row_gbytes(conv), 10e-6 / 3.5e-3, 1e-12);
    ck_assert_double_eq(dlc_time_row_gflops(reorder), 0);
    ck_assert_double_eq_tol(dlc_time_row_gbytes(reorder), 4e-6 / 12e-3, 1e-12);
    dlc_time_table_free(&table);
}

/* The longer of what arithmetic and memory take at least, over what was taken. */
TEST(shares_of_the_limit) {
    dlc_time_table table;
    make(TIME_AS_IN_NET, &table);
    const dlc_time_row *conv = &table.row[0], *reorder = &table.row[2];
    ck_assert_double_eq_tol(dlc_time_of_limit(conv, DLC_NET_FORWARD), 0.5, 1e-9);
    ck_assert_double_eq(dlc_time_of_limit(conv, DLC_NET_BACKWARD_DATA), 0);
    ck_assert_double_eq_tol(dlc_time_of_limit(conv, DLC_NET_BACKWARD_WEIGHTS), 0.25,
                            1e-9);
    ck_assert_double_eq_tol(dlc_time_of_limit(conv, TIME_UPDATE), 0.25, 1e-9);
    ck_assert_double_eq_tol(dlc_time_row_of_limit(conv), 1.125 / 3.5, 1e-9);
    ck_assert_double_eq_tol(dlc_time_row_of_limit(reorder), 0.25 / 12, 1e-9);
    ck_assert_double_eq_tol(dlc_time_row_of_limit(&table.type[1]), 1.9375 / 4.5, 1e-9);
    ck_assert_double_eq_tol(dlc_time_row_of_limit(&table.sum), 2.1875 / 16.5, 1e-9);
    dlc_time_table_free(&table);
}

/* Of a device whose limits are unknown, or of one of them only. */
TEST(no_share_without_limits) {
    const dlc_time_limits none = {0}, half = {.gflops = 1};
    const dlc_time_limits *const unknown[] = {NULL, &none, &half};
    for (int i = 0; i < 3; i++) {
        dlc_time_samples samples;
        dlc_time_table table;
        fill(&samples);
        ck_assert_int_eq(dlc_time_table_make(net, update, unknown[i], &samples,
                                             TIME_AS_IN_NET, &table),
                         DLC_OK);
        ck_assert_double_eq(dlc_time_row_of_limit(&table.sum), 0);
        ck_assert_double_eq(dlc_time_of_limit(&table.row[0], DLC_NET_FORWARD), 0);
        dlc_time_table_free(&table);
        dlc_time_samples_free(&samples);
    }
}

/* A gradient that is passed on without copying takes no time, so it has no rate. */
TEST(no_rate_without_work) {
    dlc_time_row row = {.work = {{0, 1000000}, {0, 1000000}}, .seconds = {1e-3, 2e-7}};
    ck_assert_double_eq(dlc_time_gbytes(&row, DLC_NET_BACKWARD_DATA), 0);
    ck_assert_double_eq_tol(dlc_time_row_gbytes(&row), 1, 1e-9);
    dlc_time_row nothing = {.name = NULL};
    ck_assert_double_eq(dlc_time_row_gflops(&nothing), 0);
    ck_assert_double_eq(dlc_time_row_gbytes(&nothing), 0);
}

TEST(no_passes_at_all) {
    dlc_time_samples samples = {.rows = ROWS};
    dlc_time_table table;
    ck_assert_int_eq(
        dlc_time_table_make(net, update, &limits, &samples, TIME_SLOWEST_FIRST, &table),
        DLC_OK);
    ck_assert_double_eq(table.sum.total, 0);
    ck_assert_double_eq(table.row[0].share, 0);
    ck_assert_double_eq(dlc_time_row_of_limit(&table.sum), 0);
    ck_assert_double_eq(table.pass_median, 0);
    dlc_time_table_free(&table);
}

/* If any allocation fails there is an error, and no leak. */
TEST(out_of_memory) {
    dlc_time_samples samples;
    fill(&samples);
    size_t n = 1;
    for (;; n++) {
        dlc_time_table table = {.passes = 99};
        dlc_memory_fail_at(n);
        dlc_status status = dlc_time_table_make(net, update, &limits, &samples,
                                                TIME_SLOWEST_FIRST, &table);
        dlc_memory_fail_at(0);
        if (status == DLC_OK) {
            dlc_time_table_free(&table);
            break;
        }
        ck_assert_uint_eq(table.passes, 99);
    }
    ck_assert_uint_gt(n, 8);
    dlc_time_samples_free(&samples);
    for (n = 1; n <= 2; n++) {
        dlc_memory_fail_at(n);
        double *seconds = dlc_time_samples_add(&samples);
        dlc_memory_fail_at(0);
        ck_assert_ptr_null(seconds);
        ck_assert_uint_eq(samples.passes, 0);
    }
    ck_assert_ptr_nonnull(dlc_time_samples_add(&samples));
    dlc_time_samples_free(&samples);
}

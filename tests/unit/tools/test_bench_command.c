/* Tests `dlcore bench comm` as a user runs it: correct results of every operation on
 * several ranks, the three output formats, and messages for mistakes. */
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench_table.h"
#include "support/command.h"
#include "support/scratch.h"
#include "support/test.h"

#define QUICK "--iterations=3", "--warm-up=1"

static command_result run(int code, const char *const *arguments) {
    command_result result = command_run(120, NULL, arguments);
    ck_assert_msg(result.exit_code == code, "exit code %d: %s", result.exit_code,
                  result.err);
    return result;
}

static json_int_t number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_integer(value), "no whole number '%s'", key);
    return json_integer_value(value);
}

/* Checks all operations, ascending sizes, and no wrong elements. */
static void check_rows(const json_t *list, int ranks) {
    static const int sizes[] = {4096, 16384, 65536};
    const json_t *row;
    size_t i;
    ck_assert_uint_eq(json_array_size(list), 3 * BENCH_OPS);
    json_array_foreach(list, i, row) {
        ck_assert_str_eq(json_string_value(json_object_get(row, "op")),
                         dlc_bench_op_name((int)(i / 3)));
        ck_assert_int_eq(number(row, "bytes"), sizes[i % 3]);
        ck_assert_int_eq(number(row, "ranks"), ranks);
        ck_assert_int_eq(number(row, "iterations"), 3);
        ck_assert_int_eq(number(row, "wrong"), 0);
        ck_assert(json_number_value(json_object_get(row, "us")) > 0);
        ck_assert(json_number_value(json_object_get(row, "algbw")) > 0);
    }
}

TEST_SETTINGS(.timeout = 120, .setup = scratch_setup, .teardown = scratch_teardown);

TEST_EACH(every_operation_is_right, 6) {
    static const char *const ranks[] = {"--ranks=2", "--ranks=3", "--ranks=5"};
    command_result result = run(0, COMMAND("bench", "comm", "--op=all", "--max=64K",
                                           "--json", QUICK, ranks[_i % 3],
                                           _i < 3 ? "--arena" : "--plain"));
    json_t *list = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(list != NULL, "not JSON: %s", result.out);
    check_rows(list, ranks[_i % 3][8] - '0');
    json_decref(list);
    command_free(&result);
}

/* With the faulty transport of liar.c wrong elements are counted, and are an error. */
TEST(wrong_results_are_found) {
    const char *plugins = getenv("DLCORE_PLUGIN_PATH"), *liar = getenv("TEST_LIAR");
    char path[4096];
    ck_assert_msg(plugins && liar, "run the tests with ctest");
    snprintf(path, sizeof path, "%s:%s", plugins, liar);
    setenv("DLCORE_PLUGIN_PATH", path, 1);
    command_result result = run(1, COMMAND("bench", "comm", "--transport=liar",
                                           "--op=all_reduce,broadcast", "--max=16K",
                                           QUICK));
    size_t lines = 0;
    for (const char *at = result.out; (at = strstr(at, "     sum    -1 ")); at++) {
        const char *end = strchr(at, '\n');
        ck_assert_msg(end[-1] == '3' && end[-2] == ' ', "%s", result.out);
        lines++;
    }
    ck_assert_uint_eq(lines, 2);
    ck_contains(result.err, "6 elements were wrong");
    command_free(&result);
}

TEST(table_and_plot) {
    char plot[512] = "--plot=";
    size_t size;
    strncat(plot, scratch_path("plot.svg"), sizeof plot - strlen(plot) - 1);
    command_result result = run(0, COMMAND("bench", "comm", "--min=5000", "--max=5000",
                                           "--op=broadcast", QUICK, plot));
    ck_contains(result.out, "# broadcast, 2 ranks, ");
    ck_contains(result.out, "         5000          1250   float    none     0 ");
    ck_contains(result.out, "       0\n");
    ck_contains(result.err, "transport: ");
    unsigned char *svg = scratch_read("plot.svg", &size);
    ck_assert_uint_gt(size, 1000);
    ck_assert_int_eq(memcmp(svg, "<svg ", 5), 0);
    free(svg);
    command_free(&result);
}

/* --json prints one document and nothing else; "wrong" is null if unchecked. */
TEST(json_alone) {
    command_result result = run(
        0, COMMAND("bench", "comm", "--max=4K", "--no-check", "--json", "-q", QUICK));
    json_t *list = json_loads(result.out, 0, NULL);
    ck_assert_uint_eq(json_array_size(list), 1);
    ck_assert(json_is_null(json_object_get(json_array_get(list, 0), "wrong")));
    ck_assert_str_eq(result.err, "");
    json_decref(list);
    command_free(&result);
}

TEST_EACH(bad_arguments, 17) {
    static const struct {
        int code;
        const char *word, *argument;
    } cases[] = {
        {2, "did you mean 'all_reduce'", "--op=allreduce"},
        {2, "no operation 'x'", "--op=all_reduce,x"},
        {2, "such as 64K", "--min=3"},
        {2, "such as 64K", "--max=64KB"},
        {2, "--min is more than --max", "--min=1G"},
        {2, "not an integer", "--factor=1"},
        {2, "or auto", "--iterations=-1"},
        {2, "or auto", "--warm-up=many"},
        {2, "takes no argument: 'net.ini'", "net.ini"},
        {2, "at least two ranks", "--ranks=1"},
        {2, "out of range", "--ranks=0"},
        {2, "has only", "--max=1000G"},
        {3, "there is no transport \"nope\"", "--transport=nope"},
        {3, "there is no device \"nope\"", "--device=nope"},
        {2, "no setting \"nope\"", "--set=transport.nope=1"},
        {2, "solver", "--set=solver.type=sgd"},
        {1, "/nowhere/plot.svg", "--plot=/nowhere/plot.svg"},
    };
    command_result result = run(cases[_i].code,
                                COMMAND("bench", "comm", QUICK, cases[_i].argument));
    ck_contains(result.err, cases[_i].word);
    ck_assert_str_eq(result.out, "");
    command_free(&result);
}

/* A signal ends the command after the current block, on all ranks together. */
TEST(signal_ends_it) {
    const char *folder = scratch_write("begun", "", 0);
    char path[512];
    snprintf(path, sizeof path, "%.*s", (int)(strrchr(folder, '/') - folder), folder);
    pid_t pid = command_start(path, COMMAND("bench", "comm", "--ranks=3", "--max=64M"));
    usleep(300000);
    kill(pid, SIGTERM);
    ck_assert_int_eq(command_wait(pid, 60), 128 + SIGTERM);
}

TEST(subjects) {
    command_result result = run(2, COMMAND("bench"));
    ck_contains(result.err, "dlcore bench comm");
    command_free(&result);
    result = run(2, COMMAND("bench", "com"));
    ck_contains(result.err, "did you mean 'comm'");
    command_free(&result);
    result = run(0, COMMAND("bench", "--help"));
    ck_contains(result.out, "Usage: dlcore bench comm");
    command_free(&result);
    result = run(0, COMMAND("bench", "comm", "--help"));
    ck_contains(result.out, "reduce_scatter");
    command_free(&result);
}

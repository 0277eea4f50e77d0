/* Tests the command `dlcore time`: figures that are consistent, the picture, and an
 * early end. */
#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "net.h"
#include "support/command.h"
#include "support/scratch.h"
#include "support/test.h"

static command_result run(const char *const *arguments) {
    command_result result = command_run(120, net_folder(), arguments);
    ck_assert_msg(result.exit_code == 0, "exit code %d: %s", result.exit_code,
                  result.err);
    return result;
}

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "no number '%s'", key);
    return json_number_value(value);
}

static const char *string(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

static json_t *layer_of(const json_t *root, const char *name) {
    json_t *layers = json_object_get(root, "layers"), *layer;
    size_t i;
    json_array_foreach(layers, i, layer) {
        if (strcmp(string(layer, "name"), name) == 0)
            return layer;
    }
    ck_abort_msg("no layer '%s'", name);
}

static double us(const json_t *layer, const char *part) {
    return number(json_object_get(layer, part), "us");
}

static json_t *time_as_json(const char *const *arguments) {
    command_result result = run(arguments);
    json_t *root = json_loads(result.out, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(root != NULL, "not JSON: %s", result.out);
    command_free(&result);
    return root;
}

static const char *const parts[] = {"forward", "backward_data", "backward_weights",
                                    "update"};

static void check_sums(const json_t *root) {
    json_t *layers = json_object_get(root, "layers"), *layer;
    json_t *total = json_object_get(root, "total");
    double sum = 0, share = 0, last = INFINITY;
    size_t i;
    json_array_foreach(layers, i, layer) {
        double of_parts = 0;
        for (int part = 0; part < 4; part++)
            of_parts += us(layer, parts[part]);
        ck_assert_double_eq_tol(of_parts, number(layer, "us"), 1e-3);
        ck_assert_double_le(of_parts, last + 1e-3); /* slowest first */
        last = of_parts;
        sum += of_parts;
        share += number(layer, "share");
    }
    ck_assert_double_gt(sum, 0);
    ck_assert_double_eq_tol(number(total, "us"), sum, 1e-2);
    ck_assert_double_eq_tol(share, 1, 1e-6);
    ck_assert_double_eq_tol(number(root, "images_per_s"), 24e6 / sum,
                            24e6 / sum * 1e-6);
}

TEST_SETTINGS(.timeout = 120, .setup = scratch_setup, .teardown = scratch_teardown);

TEST(figures_are_consistent) {
    json_t *root = time_as_json(COMMAND("time", net_write(""), "--json", "--passes=3"));
    ck_assert_double_eq(number(root, "passes"), 3);
    ck_assert_double_eq(number(root, "batch"), 24);
    check_sums(root);
    ck_assert_double_gt(number(json_object_get(root, "limits"), "gflops"), 0);
    ck_assert_double_gt(number(json_object_get(root, "limits"), "gbytes_per_s"), 0);
    ck_assert_double_gt(number(json_object_get(root, "total"), "of_limit"), 0);
    json_t *conv = layer_of(root, "conv1");
    ck_assert_str_eq(string(conv, "type"), "convolution");
    ck_assert_double_gt(us(conv, "forward"), 0);
    ck_assert_double_eq(us(conv, "backward_data"), 0); /* nothing to train before it */
    ck_assert_double_gt(us(conv, "backward_weights"), 0);
    ck_assert_double_gt(us(conv, "update"), 0);
    ck_assert_double_eq(number(json_object_get(conv, "forward"), "multiply_adds"),
                        24 * 100 * 6 * 9);
    json_t *ip = layer_of(root, "ip1");
    for (int part = 0; part < 4; part++)
        ck_assert_double_gt(us(ip, parts[part]), 0);
    ck_assert_double_eq(number(ip, "parameters"), 150 * 16 + 16);
    /* Read and written by momentum: a gradient, a weight and a velocity twice. */
    ck_assert_double_ge(number(json_object_get(ip, "update"), "bytes"),
                        20 * (150 * 16 + 16));
    json_t *pool = layer_of(root, "pool1");
    ck_assert_double_gt(us(pool, "backward_data"), 0);
    ck_assert_double_eq(us(pool, "backward_weights") + us(pool, "update"), 0);
    json_decref(root);
}

/* With gradient accumulation the time of the update is divided among the passes. */
TEST(gradient_accumulation) {
    json_t *root = time_as_json(COMMAND("time", net_write(""), "--json", "--passes=1",
                                        "--set", "solver.accumulation_steps=3"));
    check_sums(root);
    ck_assert_double_gt(us(layer_of(root, "ip1"), "update"), 0);
    json_decref(root);
}

TEST(text_and_picture) {
    const char *net = net_write("");
    command_result result = run(
        COMMAND("time", net, "--passes=2", "--order=net", "--all", "--plot=time.svg"));
    const char *conv = strstr(result.out, "\nconv1 ");
    const char *ip = strstr(result.out, "\nip2 ");
    ck_assert_ptr_nonnull(conv);
    ck_assert_ptr_nonnull(ip);
    ck_assert(conv < ip);
    ck_contains(result.out, "\nrelu1 ");
    ck_contains(result.out, "\ntotal ");
    ck_contains(result.out, "\ninner_product x2 ");
    ck_contains(result.out, " images/s");
    ck_contains(result.out, "\nfeed alone ");
    ck_contains(result.out, " of limit ");
    ck_contains(result.out, "\nlimits of the device: ");
    size_t size;
    char *svg = (char *)scratch_read("time.svg", &size);
    ck_assert_uint_gt(size, 1000);
    ck_assert_mem_eq(svg, "<svg ", 5);
    ck_assert_mem_eq(svg + size - 7, "</svg>\n", 7);
    free(svg);
    ck_assert_int_eq(scratch_files(), 2); /* and net.ini */
    command_free(&result);
}

/* When interrupted it shows the results so far. */
TEST(an_early_end) {
    const struct timespec pause = {.tv_nsec = 100000000};
    const char *net = net_write("");
    pid_t pid = command_start(net_folder(),
                              COMMAND("time", net, "--json", "--passes=100000"));
    int code = -1;
    for (int i = 0; i < 20; i++)
        nanosleep(&pause, NULL);
    ck_assert_int_eq(kill(pid, SIGINT), 0);
    code = command_wait(pid, 60);
    ck_assert_int_eq(code, 130);
    size_t size;
    char *text = (char *)scratch_read("out", &size);
    json_t *root = json_loadb(text, size, 0, NULL);
    ck_assert_msg(root != NULL, "not JSON: %.*s", (int)size, text);
    ck_assert_double_ge(number(root, "passes"), 1);
    ck_assert_double_lt(number(root, "passes"), 100000);
    json_decref(root);
    free(text);
}

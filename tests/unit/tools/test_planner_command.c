/* Tests `dlcore plan` as a user runs it, on a small net with synthetic data. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/command.h"
#include "support/scratch.h"
#include "support/test.h"

static const char net[] =
    "[net]\nname = small\n[data]\nsource = synthetic\n"
    "shape = 1, 12, 12\nclasses = 4\nsamples = 256\nbatch = 16\n"
    "[solver]\ntype = sgd\nlearning_rate = 0.01\nmomentum = 0.9\n"
    "[train]\nepochs = 1\n"
    "[conv]\ntype = convolution\nnum_output = 8\nkernel_size = 3\n"
    "[relu]\ntype = relu\n"
    "[ip]\ntype = inner_product\nnum_output = 4\n"
    "[loss]\ntype = softmax_loss\n";

static command_result run(int code, const char *const *arguments) {
    command_result result = command_run(120, NULL, arguments);
    ck_assert_msg(result.exit_code == code, "exit code %d: %s", result.exit_code,
                  result.err);
    return result;
}

static const char *small(void) {
    return scratch_write("small.ini", net, sizeof net - 1);
}

static json_t *json_of(const command_result *result) {
    json_t *root = json_loads(result->out, JSON_REJECT_DUPLICATES, NULL);
    ck_assert_msg(root != NULL, "not JSON: %s", result->out);
    return root;
}

static double number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    ck_assert_msg(json_is_number(value), "no number '%s'", key);
    return json_number_value(value);
}

TEST_SETTINGS(.timeout = 60, .setup = scratch_setup, .teardown = scratch_teardown);

TEST(two_ranks_compared) {
    command_result result = run(0, COMMAND("plan", small(), "--ranks=2", "--passes=3",
                                           "--nodes=4x2", "--link=10Gb/s",
                                           "--latency=20us", "--json"));
    json_t *root = json_of(&result);
    const json_t *check = json_object_get(root, "check");
    ck_assert_msg(json_is_object(check), "%s", result.out);
    ck_assert_double_gt(number(check, "predicted_images_per_s"), 0);
    ck_assert_double_gt(number(check, "measured_images_per_s"), 0);
    ck_assert_double_eq_tol(number(check, "predicted_images_per_s") /
                                    number(check, "measured_images_per_s") -
                                1,
                            number(check, "error"), 1e-6);
    const json_t *rows = json_object_get(root, "scaling");
    ck_assert_uint_eq(json_array_size(rows), 4);
    ck_assert_double_eq(number(json_array_get(rows, 3), "ranks"), 8);
    ck_assert_uint_eq(json_array_size(json_object_get(root, "layers")), 4);
    const json_t *conv = json_array_get(json_object_get(root, "layers"), 0);
    ck_assert_double_eq(number(conv, "parameter_bytes"), 4 * (8 * 9 + 8));
    ck_assert_double_gt(number(conv, "forward"), 0);
    ck_assert_double_gt(number(conv, "backward"), 0);
    ck_assert_double_eq(number(conv, "output_bytes"), 4 * 8 * 10 * 10);
    ck_assert(json_is_true(json_object_get(conv, "can_split")));
    /* The boundary tensor of two stages is the output of the first one's last layer. */
    const json_t *stage = json_array_get(json_object_get(root, "stages"), 0);
    ck_assert_msg(json_is_object(stage), "no stages: %s", result.out);
    const char *last = json_string_value(json_object_get(stage, "last"));
    const json_t *pipeline = json_object_get(root, "pipeline"), *layer;
    double samples = 16 * number(pipeline, "stages") /
                     number(pipeline, "micro_batches");
    size_t i;
    json_array_foreach(json_object_get(root, "layers"), i, layer) {
        if (strcmp(json_string_value(json_object_get(layer, "name")), last) == 0)
            ck_assert_double_eq_tol(number(stage, "send_bytes"),
                                    samples * number(layer, "output_bytes"), 1e-3);
    }
    json_decref(root);
    command_free(&result);
}

/* The first row has the throughput given by --images-per-s. */
TEST(speed_as_given) {
    command_result result = run(0,
                                COMMAND("plan", small(), "--ranks=1", "--passes=3",
                                        "--images-per-s=5000", "--batch=8", "--json"));
    json_t *root = json_of(&result);
    const json_t *row = json_array_get(json_object_get(root, "scaling"), 0);
    ck_assert_double_eq_tol(number(json_object_get(row, "weak"), "images_per_s"), 5000,
                            1);
    ck_assert_double_eq(number(root, "batch"), 8);
    ck_assert(json_is_null(json_object_get(root, "check")));
    json_decref(root);
    command_free(&result);
}

/* A run that diverges can still be timed. */
TEST(diverges) {
    command_result result = run(0, COMMAND("plan", small(), "--ranks=2", "--passes=2",
                                           "--set=solver.learning_rate=1e9", "--json"));
    json_t *root = json_of(&result);
    ck_assert_double_gt(number(json_object_get(root, "check"), "measured_images_per_s"),
                        0);
    json_decref(root);
    command_free(&result);
}

TEST(recorded_machine) {
    char path[512];
    (void)snprintf(path, sizeof path, "--from=%s/tests/topology/machines/hgx-h100.xml",
                   getenv("DLCORE_SOURCE_DIR"));
    command_result result = run(0, COMMAND("plan", small(), "--ranks=1", "--passes=3",
                                           path, "--nodes=2", "--no-check"));
    ck_contains(result.out, "predicted for: 2 machines with 8 ranks each");
    ck_contains(result.out, "hgx-h100.xml");
    ck_contains(result.out, "not compared with a real run");
    command_free(&result);
}

static const struct {
    const char *option, *words;
    int code;
} bad[] = {
    {"--nodes=0x8", "--nodes=0x8", 2},
    {"--link=fast", "--link=fast", 2},
    {"--link=0Gb/s", "--link=0Gb/s", 2},
    {"--inside=1", "--inside=1", 2},
    {"--latency=5", "--latency=5", 2},
    {"--speed=0", "--speed=0", 2},
    {"--speed=nan", "--speed=nan", 2},
    {"--images-per-s=-1", "--images-per-s=-1", 2},
    {"--passes=0", "--passes=0", 2},
    {"--batch=0", "batch", 2},
    {"--from=/nowhere.xml", "/nowhere.xml", 1},
    {"--nonsense", "nonsense", 2},
};

TEST_EACH(bad_options, COUNT(bad)) {
    command_result result = run(bad[_i].code, COMMAND("plan", small(), bad[_i].option));
    ck_contains(result.err, bad[_i].words);
    ck_assert_str_eq(result.out, "");
    command_free(&result);
}

/* Meshes that training refuses of as many ranks, with its words. */
static const struct {
    const char *set, *nodes, *ranks, *words;
} bad_mesh[] = {
    {"--set=parallel.tensor=3", "--nodes=2x2", "--ranks=4",
     "the 4 ranks of a stage cannot be split into tensor groups of 3 ranks"},
    {"--set=parallel.pipeline_ranks=3,1", "--nodes=1x2", "--ranks=2",
     "pipeline_ranks names 4 ranks, but there are 2"},
    {"--set=parallel.pipeline=2", "--nodes=3x1", "--ranks=3",
     "3 ranks cannot be split among 2 stages"},
};

TEST_EACH(refuses_what_train_refuses, COUNT(bad_mesh)) {
    const char *set = bad_mesh[_i].set;
    command_result plan = run(2, COMMAND("plan", small(), set, bad_mesh[_i].nodes));
    command_result train = run(2, COMMAND("train", small(), set, bad_mesh[_i].ranks));
    ck_contains(plan.err, bad_mesh[_i].words);
    ck_contains(train.err, bad_mesh[_i].words);
    command_free(&plan);
    command_free(&train);
}

TEST(too_many_micro_batches) {
    command_result result = run(2, COMMAND("plan", small(), "--set=parallel.pipeline=2",
                                           "--set=parallel.micro_batches=17"));
    ck_contains(result.err, "cannot be divided into 17 micro-batches");
    command_free(&result);
}

/* Layers are measured with the 4 samples of a micro-batch, too. */
TEST(micro_batches_are_measured) {
    command_result result = run(0, COMMAND("plan", small(), "--set=parallel.pipeline=2",
                                           "--set=parallel.micro_batches=4",
                                           "--passes=3", "--no-check", "--json"));
    json_t *root = json_of(&result);
    const json_t *measured = json_object_get(root, "measured");
    ck_assert_double_eq(number(measured, "batch"), 16);
    ck_assert_double_eq(number(measured, "micro_batch"), 4);
    ck_assert_double_gt(number(measured, "micro_batch_seconds"), 0);
    const json_t *mesh = json_object_get(root, "mesh_as_set");
    ck_assert_double_eq(number(mesh, "stages"), 2);
    ck_assert_double_eq(number(mesh, "micro_batches"), 4);
    json_decref(root);
    command_free(&result);
}

TEST(not_by_mpirun) {
    setenv("RANK", "0", 1);
    setenv("WORLD_SIZE", "2", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    setenv("MASTER_PORT", "1", 1);
    command_result result = run(2, COMMAND("plan", small()));
    ck_contains(result.err, "plan starts its ranks itself");
    command_free(&result);
}

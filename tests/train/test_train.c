/* Tests training runs: they learn, are bitwise repeatable, give the same results for
 * any number of ranks, and report what they did. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"
#include "support/command.h"
#include "support/sanitized.h"
#include "support/scratch.h"
#include "support/test.h"

static command_result train(const char *const *arguments) {
    command_result result = command_run(120, net_folder(), arguments);
    ck_assert_msg(result.exit_code == 0, "exit code %d: %s", result.exit_code,
                  result.err);
    return result;
}

TEST_SETTINGS(.timeout = 120, .setup = scratch_setup, .teardown = scratch_teardown);

TEST(learns_and_reports) {
    const char *net = net_write("epochs = 12\n");
    command_result result = train(COMMAND("train", net, "--json", "--run-dir=s"));
    ck_assert_double_ge(net_number(result.out, "accuracy"), 0.9);
    ck_assert_double_eq(net_number(result.out, "iterations"), 300);
    ck_assert_double_eq(net_number(result.out, "epochs"), 12);
    ck_assert_double_eq(net_number(result.out, "batch"), 24);
    ck_assert_double_gt(net_number(result.out, "images_per_s"), 0);
    ck_assert_double_gt(net_number(result.out, "seconds"), 0);
    ck_assert_double_eq(net_number(result.out, "seed"), 1);
    const char *const keys[] = {
        "net",     "ranks",         "transport", "device",   "solver",
        "scaling", "training_loss", "test_loss", "exchange", "effective_batch",
        "bytes",   "hidden",        "checkpoint"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char quoted[64];
        snprintf(quoted, sizeof quoted, "\"%s\":", keys[i]);
        ck_contains(result.out, quoted);
    }
    ck_contains(result.err, "effective batch 24");
    ck_contains(result.err, "learning rate 0.02");
    double trained = net_number(result.out, "accuracy");
    command_free(&result);

    /* The saved weights give the accuracy that training reported. */
    result = train(
        COMMAND("test", net, "--json", "--weights", "s/small-00000300.safetensors"));
    ck_assert_double_eq(net_number(result.out, "accuracy"), trained);
    command_free(&result);
}

/* Runs with equal seeds are bitwise identical, with different seeds they are not. */
TEST_EACH(is_bitwise_repeatable, SANITIZED ? 1 : 3) {
    static const char *const ranks[] = {"--ranks=2", "--ranks=1", "--ranks=3"};
    const char *net = net_write("iterations = 30\ntest_interval = 1000\n");
    command_result result;
    result = train(COMMAND("train", net, ranks[_i], "--run-dir=a"));
    command_free(&result);
    result = train(COMMAND("train", net, ranks[_i], "--run-dir=b"));
    command_free(&result);
    result = train(COMMAND("train", net, ranks[_i], "--seed=2", "--run-dir=c"));
    command_free(&result);
    char one[4096], same[4096], other[4096];
    snprintf(one, sizeof one, "%s/a/small-00000030.safetensors", net_folder());
    snprintf(same, sizeof same, "%s/b/small-00000030.safetensors", net_folder());
    snprintf(other, sizeof other, "%s/c/small-00000030.safetensors", net_folder());
    ck_assert(net_same_tensors(one, same));
    ck_assert(!net_same_tensors(one, other));
}

/* The loss of every tenth iteration, from the log file. */
static int read_losses(const char *path, double *losses, int most) {
    size_t size;
    char *text = (char *)scratch_read(path, &size);
    char *end = text + size;
    int count = 0;
    for (char *line = text; line < end && count < most;) {
        char *next = memchr(line, '\n', (size_t)(end - line));
        if (!next)
            break;
        *next = '\0';
        if (strstr(line, "\"event\":\"train\""))
            losses[count++] = net_number(line, "training_loss");
        line = next + 1;
    }
    free(text);
    return count;
}

/* With strong scaling the loss curve is that of one rank, up to the order of float32
 * sums. The net has no batch_norm, whose statistics are those of a rank's own samples.
 */
TEST(strong_scaling_keeps_the_curve) {
    static const char *const ranks[] = {"--ranks=1", "--ranks=2", "--ranks=4",
                                        "--ranks=5"};
    enum { MOST = 16 };
    const double tolerance = 1e-4;
    double losses[4][MOST];
    const char *net = net_write("iterations = 80\ndisplay = 8\ntest_interval = 1000\n"
                                "checkpoint_last = no\ncheckpoint_minutes = 0\n");
    for (int i = 0; i < 4; i++) {
        command_result result = train(COMMAND("train", net, ranks[i],
                                              "--scaling=strong", "--log-file=log",
                                              "--set", "norm1.type=scale"));
        command_free(&result);
        ck_assert_int_eq(read_losses("log", losses[i], MOST), 10);
        remove(scratch_path("log"));
        for (int j = 0; j < 10; j++)
            ck_assert_msg(fabs(losses[i][j] - losses[0][j]) <=
                              tolerance * (1 + fabs(losses[0][j])),
                          "%s, line %d: loss %g, one rank had %g", ranks[i], j,
                          losses[i][j], losses[0][j]);
    }
    ck_assert_double_lt(losses[0][9], 0.8 * losses[0][0]);
}

TEST(weak_scaling_grows_the_batch) {
    const char *net = net_write("iterations = 5\n");
    command_result result = train(COMMAND("train", net, "--ranks=3", "--json", "--set",
                                          "train.checkpoint_last=no", "--set",
                                          "train.checkpoint_minutes=0"));
    ck_assert_double_eq(net_number(result.out, "effective_batch"), 72);
    ck_assert_double_eq(net_number(result.out, "batch"), 24);
    ck_assert_double_eq(net_number(result.out, "ranks"), 3);
    ck_contains(result.err, "effective batch 72");
    ck_contains(result.err, "transport: ");
    command_free(&result);
}

/* Two accumulated batches equal one of twice the size: the losses are the same up to
 * the order of float32 sums, if no layer depends on the batch as a whole. */
TEST(accumulates) {
    static const char *const ways[] = {"data.batch=48", "solver.accumulation_steps=2"};
    enum { COUNT = 10 };
    double losses[2][COUNT];
    const char *net = net_write("iterations = 10\ndisplay = 1\ntest_interval = 1000\n"
                                "checkpoint_last = no\ncheckpoint_minutes = 0\n");
    for (int i = 0; i < 2; i++) {
        command_result result = train(
            COMMAND("train", net, "--json", "--log-file=log", "--set", ways[i], "--set",
                    "norm1.type=scale", "--set", "drop1.ratio=0"));
        ck_assert_double_eq(net_number(result.out, "effective_batch"), 48);
        command_free(&result);
        ck_assert_int_eq(read_losses("log", losses[i], COUNT), COUNT);
        remove(scratch_path("log"));
    }
    for (int j = 0; j < COUNT; j++)
        ck_assert_msg(fabs(losses[1][j] - losses[0][j]) <= 1e-5,
                      "iteration %d: loss %g, not %g", j + 1, losses[1][j],
                      losses[0][j]);
    ck_assert_double_gt(fabs(losses[0][COUNT - 1] - losses[0][0]), 0.01);
}

/* Every sample is tested exactly once for any number of ranks. */
TEST(tests_are_exact_for_any_ranks) {
    const char *net = net_write("iterations = 10\n");
    command_result result = train(COMMAND("train", net, "--run-dir=s"));
    command_free(&result);
    double accuracy = 0, loss = 0;
    static const char *const ranks[] = {"--ranks=1", "--ranks=2", "--ranks=5"};
    for (int i = 0; i < 3; i++) {
        result = train(COMMAND("test", net, "--json", ranks[i], "--weights",
                               "s/small-00000010.safetensors"));
        if (i == 0) {
            accuracy = net_number(result.out, "accuracy");
            loss = net_number(result.out, "test_loss");
        }
        ck_assert_double_eq(net_number(result.out, "accuracy"), accuracy);
        ck_assert_double_eq_tol(net_number(result.out, "test_loss"), loss, 1e-5);
        command_free(&result);
    }
}

/* Divergence is reported even while buckets are being reduced. */
TEST_EACH(divergence_is_reported, 2) {
    static const char *const ranks[] = {"--ranks=1", "--ranks=2"};
    const char *net = net_write(
        "iterations = 200\ncheckpoint_last = no\ncheckpoint_minutes = 0\n");
    command_result result = command_run(
        60, net_folder(),
        COMMAND("train", net, ranks[_i], "--set", "solver.learning_rate=1e8", "--set",
                "norm1.type=scale", "--set", "transport.overlap_forward=yes", "--set",
                "transport.bucket_bytes=1K"));
    ck_assert_int_eq(result.exit_code, 1);
    ck_assert_ptr_null(strstr(result.err, "the exchange was cancelled"));
    ck_contains(result.err, "try a smaller learning rate");
    command_free(&result);
}

TEST(check_counts) {
    const char *net = net_write("");
    command_result result = train(COMMAND("check", net, "--json"));
    /* conv1 6*9+6, norm1 2*6, ip1 150*16+16, ip2 16*4+4 */
    ck_assert_double_eq(net_number(result.out, "parameters"),
                        6 * 9 + 6 + 12 + 150 * 16 + 16 + 16 * 4 + 4);
    ck_assert_double_eq(net_number(result.out, "multiply_adds"),
                        100 * 6 * 9 + 150 * 16 + 16 * 4);
    ck_assert_double_gt(net_number(result.out, "peak_bytes"), 24 * 6 * 100 * 4);
    command_free(&result);
}

/* Neither bucket sizes nor sharded updates change the weights or the solver's state.
 * Each is compared with the first in a test of its own: together they take as long as
 * one test may on a busy machine. */
static const char *const exchanges[][2] = {
    {"transport.shard_optimizer=yes", "transport.bucket_bytes=1K"},
    {"transport.shard_optimizer=yes", "transport.bucket_bytes=1M"},
    {"transport.shard_optimizer=yes", "transport.bucket_bytes=5000"},
    {"transport.overlap_forward=yes", "transport.bucket_bytes=1K"},
    {"transport.overlap_forward=yes", "transport.bucket_bytes=1G"},
    {"transport.reduction_order=pairwise", "transport.bucket_bytes=0"}};

static void train_with(const char *net, const char *folder, const char *const sets[2]) {
    command_result result = train(COMMAND("train", net, "--ranks=3", "--set", sets[0],
                                          "--set", sets[1], "--run-dir", folder));
    command_free(&result);
}

TEST_EACH(exchange_settings_do_not_matter, COUNT(exchanges)) {
    static const char *const first[2] = {"transport.shard_optimizer=no",
                                         "transport.bucket_bytes=1K"};
    const char *net = net_write("iterations = 25\n");
    char one[4096], other[4096];
    train_with(net, "one", first);
    train_with(net, "other", exchanges[_i]);
    snprintf(one, sizeof one, "%s/one/small-00000025.safetensors", net_folder());
    snprintf(other, sizeof other, "%s/other/small-00000025.safetensors", net_folder());
    ck_assert(net_same_tensors(one, other));
}

/* Tests the memory that `dlcore check` predicts for a rank against what training used.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "net.h"
#include "support/command.h"
#include "support/sanitized.h"
#include "support/scratch.h"
#include "support/test.h"

/* About 200 MB, most of it in one parameter, so that a copy of it would show. */
static const char *const sections =
    "[net]\nname = middling\n"
    "[data]\nsource = synthetic\nshape = 3,96,96\nclasses = 10\nsamples = 64\n"
    "batch = 16\ntransforms = normalize(scale=0.00390625)\n"
    "[solver]\ntype = sgd\nlearning_rate = 0.001\nmomentum = 0.9\n"
    "[train]\niterations = 2\n"
    "[conv1]\ntype = convolution\nnum_output = 64\nkernel_size = 5\nstride = 2\n"
    "[relu1]\ntype = relu\n"
    "[pool1]\ntype = pooling\nkernel_size = 2\nstride = 2\n"
    "[conv2]\ntype = convolution\nnum_output = 96\nkernel_size = 3\n"
    "[ip1]\ntype = inner_product\nnum_output = 200\n"
    "[relu2]\ntype = relu\n"
    "[ip2]\ntype = inner_product\nnum_output = 10\n"
    "[loss]\ntype = softmax_loss\n";

static const char *const test_section =
    "[data.test]\nsource = synthetic\nshape = 3,96,96\nclasses = 10\nsamples = 64\n"
    "first = 100\nbatch = 48\ntransforms = normalize(scale=0.00390625)\n";

static const char *write_net(int tested) {
    static char text[4096], path[4096];
    snprintf(text, sizeof text, "%s%s", sections, tested ? test_section : "");
    snprintf(path, sizeof path, "%s", scratch_write("net.ini", text, strlen(text)));
    return path;
}

static double planned(const char *net) {
    command_result result = command_run(60, net_folder(),
                                        COMMAND("check", net, "--json"));
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    double bytes = net_number(result.out, "peak_bytes");
    static const char *const parts[] = {"weights",     "gradients", "solver",
                                        "activations", "feeds",     "process",
                                        "checkpoint"};
    double sum = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        sum += net_number(strstr(result.out, "\"memory\""), parts[i]);
    ck_assert_double_eq(sum, bytes);
    command_free(&result);
    return bytes;
}

static double taken(const char *net) {
    struct rusage use;
    int status;
    pid_t pid = command_start(net_folder(), COMMAND("train", net));
    ck_assert_int_eq(wait4(pid, &status, 0, &use), pid);
    ck_assert_int_eq(status, 0);
    return (double)use.ru_maxrss * 1024;
}

TEST_SETTINGS(.timeout = 120, .setup = scratch_setup, .teardown = scratch_teardown);

/* With and without a test net; the checkpoint at the end needs no more memory. */
TEST_EACH(prediction_matches, 2) {
    const char *net = write_net(_i);
    double plan = planned(net), took = taken(net);
    ck_assert_msg(plan > 0.95 * took && plan < 1.05 * took,
                  "planned %.1f MB, took %.1f MB", plan / 1e6, took / 1e6);
    ck_assert_double_gt(took, 100e6);
}

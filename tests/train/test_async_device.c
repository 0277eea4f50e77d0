/* Training on the asynchronous test device (tests/support/async): its results must be
 * bitwise identical to the cpu device's, whatever the order of asynchronous work. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"
#include "support/command.h"
#include "support/sanitized.h"
#include "support/scratch.h"
#include "support/test.h"

enum { ITERATIONS = 30 };

static const char *net; /* path of the net.ini */
static int captured; /* did the last training report that it captured its iterations? */

/* LeNet from models/, on synthetic samples. */
static const char *write_lenet(void) {
    static const char head[] =
        "[net]\nname = small\n"
        "[data]\nsource = synthetic\nshape = 1,28,28\nclasses = 10\nsamples = 640\n"
        "batch = 32\ntransforms = normalize(scale=0.00390625)\n"
        "[data.test]\nsource = synthetic\nshape = 1,28,28\nclasses = 10\n"
        "samples = 100\nfirst = 1000\nbatch = 64\ntransforms = normalize(scale=0.00390625)\n"
        "[solver]\ntype = sgd\nlearning_rate = 0.01\nmomentum = 0.9\nweight_decay = 0.0005\n"
        "policy = inv\ngamma = 0.0001\npower = 0.75\n"
        "[train]\niterations = 30\ntest_interval = 20\n";
    static char text[16384];
    char path[4096];
    size_t length = sizeof head - 1;
    snprintf(path, sizeof path, "%s/models/lenet.ini", getenv("DLCORE_SOURCE_DIR"));
    FILE *file = fopen(path, "re");
    ck_assert_msg(file != NULL, "%s is not there", path);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    const char *layers = strstr(text, "[conv1]");
    ck_assert_ptr_nonnull(layers);
    char *whole = malloc(length + strlen(layers) + 1);
    ck_assert_ptr_nonnull(whole);
    memcpy(whole, head, length);
    strcpy(whole + length, layers);
    const char *made = scratch_write("lenet.ini", whole, strlen(whole));
    free(whole);
    return made;
}

/* Whether the device works only when somebody waits for it, so that a wait that is
 * missing is always noticed; else after random pauses. */
static int is_lazy;

/* Trains it with the arguments after its own. Returns the checkpoint's path. */
static const char *train(const char *folder, const char *device,
                         const char *const *more) {
    static char paths[2][4096];
    static const char *const seeds[] = {"--set=train.async_seed=5",
                                        "--set=train.async_seed=6",
                                        "--set=train.async_seed=7"};
    static int turn;
    char *path = paths[turn++ % 2];
    char set_device[64], set_folder[64];
    snprintf(set_device, sizeof set_device, "--set=train.device=%s", device);
    snprintf(set_folder, sizeof set_folder, "--run-dir=%s", folder);
    const char *arguments[20] = {"train", net, set_device, set_folder};
    int count = 4;
    int is_async = strcmp(device, "async") == 0;
    for (int i = 0; more[i] && count < 13; i++) {
        if (!is_async && strncmp(more[i], "--set=train.async", 17) == 0)
            continue;
        arguments[count++] = !is_async && strcmp(more[i], "--transport=async") == 0
                                 ? "--transport=p2p-tree"
                                 : more[i];
    }
#ifdef __SANITIZE_THREAD__ /* libgomp's barriers look like races to it */
    arguments[count++] = "--set=train.threads=1";
#endif
    if (is_async) /* a different order each time, reproducible by the seed */
        arguments[count++] = seeds[turn % 3];
    if (is_async && is_lazy) {
        arguments[count++] = "--set=train.async_lazy=yes";
        arguments[count++] = "--set=train.async_us=20000";
    }
    command_result result = command_run(200, net_folder(), arguments);
    ck_assert_msg(result.exit_code == 0, "exit code %d: %s", result.exit_code,
                  result.err);
    captured = strstr(result.err, "iterations are captured") != NULL;
    command_free(&result);
    snprintf(path, 4096, "%s/%s/small-%08d.safetensors", net_folder(), folder,
             ITERATIONS);
    return path;
}

/* Under sanitizers only the asynchronous device: the weights are the same there. */
static void same_on_both(const char *const *more) {
    const char *want = SANITIZED ? NULL : train("cpu", "cpu", more);
    const char *got = train("async", "async", more);
    ck_assert(!want || net_same_tensors(want, got));
}

TEST_SETTINGS(.timeout = 120, .setup = scratch_setup, .teardown = scratch_teardown);

TEST(lenet_is_the_cpus) {
    net = write_lenet();
    same_on_both(COMMAND(NULL));
    ck_assert_int_eq(captured, 1);
}

#define RUN "iterations = 30\ntest_interval = 10\n"
#define AT_ONCE "--transport=p2p-tree", "--set=transport.overlap_forward=no"

static const struct {
    const char *run;
    const char *more[5];
    int captured;
} ways[] = {
    {RUN, {NULL}, 1},
    {RUN "recompute = yes\n", {NULL}, 1},
    {RUN, {"--set=solver.accumulation_steps=3"}, 0},
    {RUN, {"--set=solver.clip_gradients=0.5"}, 1},
    {RUN, {"--set=loss.loss_weight=0.3"}, 1},
    {RUN, {"--set=loss.loss_weight=3", "--set=solver.accumulation_steps=2"}, 0},
    {RUN,
     {"--set=solver.nesterov=yes", "--set=solver.policy=step",
      "--set=solver.step_size=7"},
     1},
    {RUN "[parallel]\nranks = 3\n", {"--transport=host-staged", "--scaling=strong"}, 0},
    /* Queues that synchronize by semaphores. */
    {RUN "[parallel]\nranks = 2\n", {AT_ONCE}, 1},
    {RUN "[parallel]\nranks = 2\n", {AT_ONCE, "--set=solver.accumulation_steps=2"}, 0},
    {RUN "[parallel]\nranks = 5\n",
     {AT_ONCE, "--set=transport.shard_optimizer=yes"},
     1},
    {RUN "[parallel]\nranks = 3\n",
     {"--transport=async", "--set=solver.clip_gradients=0.5",
      "--set=transport.shard_optimizer=yes"},
     1},
    {RUN "[parallel]\nranks = 4\n[transport]\nbucket_bytes = 16K\n",
     {AT_ONCE, "--set=transport.schedule=tree", "--set=transport.chunk_bytes=4K"},
     1},
    {RUN "[parallel]\nranks = 3\n", {AT_ONCE, "--set=train.async_semaphores=no"}, 0},
    /* Stream-ordered collectives; on the cpu device the ones they are built from. */
    {RUN "[parallel]\nranks = 2\n",
     {"--transport=async", "--set=transport.overlap_forward=no"},
     1},
    {RUN "[parallel]\nranks = 3\n",
     {"--transport=async", "--set=solver.clip_gradients=0.5"},
     1},
    {RUN "[parallel]\nranks = 2\n",
     {"--transport=async", "--set=solver.accumulation_steps=2"},
     0},
    /* Pipeline stages. */
    {RUN "[parallel]\nranks = 2\npipeline = ip1\n", {AT_ONCE}, 0},
    {RUN "[parallel]\nranks = 4\npipeline = ip1\n",
     {"--transport=host-staged", "--set=solver.accumulation_steps=2"},
     0},
    {RUN "[parallel]\nranks = 2\npipeline = ip1\nmicro_batches = 1\n", {NULL}, 0},
    {RUN "[parallel]\nranks = 2\npipeline = ip1\nmicro_batches = 7\n", {NULL}, 0},
    {RUN "[parallel]\nranks = 2\n",
     {"--set=ip1.parallel=tensor", "--set=parallel.tensor_schedule=whole_batch",
      "--set=solver.clip_gradients=0.5"},
     0},
};

TEST_EACH(every_setting_is_the_cpus, COUNT(ways)) {
    if (SANITIZED && _i % 3) /* with all, a minute and a half */
        return;
    net = net_write(ways[_i].run);
    is_lazy = 1;
    same_on_both(ways[_i].more);
    ck_assert_int_eq(captured, ways[_i].captured);
}

/* Samples of bytes are uploaded as bytes; float samples, and both transformed. */
static const char *const samples[][9] = {
    {"--set=data.shape=3,12,12", "--set=data.test.shape=3,12,12",
     "--set=data.transforms=random_crop(9, padding=1), mirror, "
     "normalize(mean=(101.3, 99, 3), std=(40, 57, 60.5))",
     "--set=data.test.transforms=center_crop(9)", "--set=data.threads=3", NULL},
    {"--set=data.element=float32",
     "--set=data.transforms=random_crop(9), mirror, normalize(mean=0.3)",
     "--set=data.test.transforms=center_crop(9)", NULL},
};

TEST_EACH(samples_become_the_cpus, COUNT(samples)) {
    net = net_write(RUN);
    same_on_both(samples[_i]);
    ck_assert_int_eq(captured, 1);
}

static double uploads(const char *const *arguments) {
    command_result result = command_run(60, net_folder(), arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    double bytes = net_number(strstr(result.out, "\"memory\""), "uploads");
    command_free(&result);
    return bytes;
}

/* Two batches of 24 samples are in flight, as bytes where possible. */
TEST(uploads_are_planned) {
    net = net_write(RUN);
    const double pixels = 24.0 * 144, labels = 24.0 * 4;
    ck_assert_double_eq(
        uploads(COMMAND("check", net, "--json", "--set=train.device=async")),
        2 * (pixels + labels));
    ck_assert_double_eq(
        uploads(COMMAND("check", net, "--json", "--set=train.device=async",
                        "--set=data.element=float32")),
        2 * (4 * pixels + labels));
    ck_assert_double_eq(
        uploads(COMMAND("check", net, "--json", "--set=train.device=cpu")), 0);
}

/* Training resumes from a checkpoint. */
TEST(resumes) {
    net = net_write(RUN "checkpoint_interval = 20\n");
    const char *want = train("cpu", "cpu", COMMAND("--seed=3"));
    (void)train("first", "async", COMMAND("--seed=3"));
    const char *got = train(
        "async", "async",
        COMMAND("--seed=3", "--resume=first/small-00000020.safetensors"));
    ck_assert(net_same_tensors(want, got));
}

/* [train] autotune, as passed to the layers' family (which logs it at debug level). */
static const struct {
    const char *run;
    const char *arguments[8];
    const char *says;
    int exit_code;
} tunings[] = {
    {"", {"check"}, "async: autotune is 0", 0},
    {"autotune = yes\n", {"check"}, "async: autotune is 1", 0},
    {"autotune = yes\n",
     {"train", "--set=train.autotune=no"},
     "async: autotune is 0",
     0},
    {"", {"train", "--set=train.autotune=yes"}, "async: autotune is 1", 0},
    {"[parallel]\nranks = 2\n",
     {"train", "--set=train.autotune=yes"},
     "async: autotune is 1",
     0},
    {"[parallel]\npipeline = ip1\nranks = 2\n",
     {"train", "--set=train.autotune=yes"},
     "async: autotune is 1",
     0},
    {"", {"time", "--passes=1", "--set=train.autotune=yes"}, "async: autotune is 1", 0},
    {"autotune = yes\n",
     {"plan", "--passes=1", "--no-check"},
     "async: autotune is 1",
     0},
    {"autotune = perhaps\n", {"check"}, "autotune: \"perhaps\" is neither", 2},
    {"",
     {"train", "--set=train.autotune=8"},
     "--set: [train] autotune: \"8\" is neither",
     2},
};

TEST_EACH(autotune_is_passed_on, COUNT(tunings)) {
    char run[128];
    const char *arguments[16] = {tunings[_i].arguments[0]};
    int count = 1;
    (void)snprintf(run, sizeof run, "iterations = 1\n%s", tunings[_i].run);
    arguments[count++] = net_write(run);
    arguments[count++] = "--set=train.device=async";
    arguments[count++] = "-v";
    for (int i = 1; tunings[_i].arguments[i]; i++)
        arguments[count++] = tunings[_i].arguments[i];
    command_result result = command_run(100, net_folder(), arguments);
    ck_assert_msg(result.exit_code == tunings[_i].exit_code, "exit code %d: %s",
                  result.exit_code, result.err);
    ck_assert_msg(strstr(result.err, tunings[_i].says) != NULL, "\"%s\" is not in %s",
                  tunings[_i].says, result.err);
    /* The outline of stages, which prepares nothing, does not pass it. */
    if (strstr(tunings[_i].says, "is 1") && !strstr(run, "pipeline"))
        ck_assert_ptr_null(strstr(result.err, "async: autotune is 0"));
    command_free(&result);
}

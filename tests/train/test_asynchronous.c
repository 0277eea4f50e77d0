/* Consistency model ssp from the command line: equal to synchronous training without
 * staleness, for linear and nonlinear rules; statistics of staleness, stop and resume,
 * changes while the job runs, servers. */
#include <dirent.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "net.h"
#include "support/command.h"
#include "support/sanitized.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *const run_section = "iterations = 60\ntest_interval = 25\n";
static const char *const endless =
    "iterations = 100000000\ntest_interval = 1000000000\n";

static const char *checkpoint_of(const char *folder, int iteration) {
    static char paths[2][4096];
    static int next;
    char *path = paths[next++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s/small-%08d.safetensors", net_folder(),
             folder, iteration);
    return path;
}

static void train(const char *const *arguments) {
    command_result result = command_run(120, net_folder(), arguments);
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    command_free(&result);
}

/* A file of the scratch folder as text; free() it. */
static char *text_of(const char *name) {
    size_t size = 0;
    unsigned char *bytes = scratch_read(name, &size);
    char *text = calloc(size + 1, 1);
    ck_assert_ptr_nonnull(text);
    memcpy(text, bytes, size);
    free(bytes);
    return text;
}

/* The net without the key of [solver] that only sgd has. */
static const char *net_without_momentum(const char *run) {
    static const char key[] = "momentum = 0.9\n";
    static char path[4096];
    snprintf(path, sizeof path, "%s", net_write(run));
    char *text = text_of("net.ini"), *at = strstr(text, key);
    ck_assert_ptr_nonnull(at);
    memmove(at, at + strlen(key), strlen(at + strlen(key)) + 1);
    scratch_write("net.ini", text, strlen(text));
    free(text);
    return path;
}

/* The net with [consistency]: `type = ssp` and more. */
static const char *net_of_ssp(const char *run, const char *more) {
    char text[512];
    snprintf(text, sizeof text, "%s[consistency]\ntype = ssp\n%s", run, more);
    return net_write(text);
}

/* ---- Semantics --------------------------------------------------------------- */

static const char *const solvers[] = {"--solver=sgd", "--solver=adam"};

TEST_SETTINGS(.timeout = 180, .setup = scratch_setup, .teardown = scratch_teardown);

/* Without staleness: the weights of synchronous training, whatever the rule. Servers
 * are additional ranks. */
TEST_EACH(no_staleness_is_synchronous, 4) {
    static const char *const servers[] = {"consistency.servers=0",
                                          "consistency.servers=1"};
    static const char *const ranks[] = {"--ranks=3", "--ranks=4"};
    if (SANITIZED && (_i == 0 || _i == 3))
        return; /* each rule once, with a server or without */
    const char *solver = solvers[_i / 2];
    const char *net = _i / 2 ? net_without_momentum(run_section)
                             : net_write(run_section);
    train(COMMAND("train", net, "--ranks=3", solver, "--run-dir=synchronous"));
    train(COMMAND("train", net, ranks[_i % 2], solver, "--consistency=ssp", "--set",
                  servers[_i % 2], "--set", "transport.bucket_bytes=2K",
                  "--run-dir=ssp"));
    ck_assert(
        net_same_tensors(checkpoint_of("synchronous", 60), checkpoint_of("ssp", 60)));
}

static json_t *member(json_t *object, const char *key) {
    json_t *found = json_object_get(object, key);
    ck_assert_msg(found != NULL, "no \"%s\"", key);
    return found;
}

/* Staleness is reported, and never larger than allowed. */
TEST(staleness_is_reported) {
    const char *net = net_write(run_section);
    command_result result = command_run(
        120, net_folder(),
        COMMAND("train", net, "--ranks=3", "--consistency", "ssp", "--set",
                "consistency.staleness=3", "--set", "transport.bucket_bytes=2K",
                "--json", "--run-dir=ssp"));
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_contains(result.err, "staleness of 180 reads");
    json_t *json = json_loads(result.out, 0, NULL);
    ck_assert_ptr_nonnull(json);
    json_t *bins = member(json, "staleness");
    json_int_t reads = 0;
    ck_assert_uint_le(json_array_size(bins), 4);
    for (size_t i = 0; i < json_array_size(bins); i++)
        reads += json_integer_value(json_array_get(bins, i));
    ck_assert_int_eq(reads, 180);
    ck_assert_uint_eq(json_array_size(member(json, "waited")), 3);
    ck_assert(json_is_integer(member(json, "slowest")));
    ck_assert(json_number_value(member(json, "images_per_s")) > 0);
    ck_assert(json_number_value(member(json, "accuracy")) > 0.9);
    json_decref(json);
    command_free(&result);
}

TEST(some_rank_must_compute) {
    const char *net = net_write(run_section);
    command_result result = command_run(60, net_folder(),
                                        COMMAND("train", net, "--ranks=2",
                                                "--consistency=ssp", "--set",
                                                "consistency.servers=2"));
    ck_assert_int_eq(result.exit_code, 2);
    ck_contains(result.err, "needs 2 servers, but there are 2 ranks");
    command_free(&result);
}

/* ---- While it runs ----------------------------------------------------------- */

/* The output so far of the command that was started; free() it. */
static char *output(void) {
    char path[4096];
    snprintf(path, sizeof path, "%s/err", net_folder());
    return access(path, R_OK) == 0 ? text_of("err") : calloc(1, 1);
}

static int times(const char *text, const char *part) {
    int count = 0;
    while ((text = strstr(text, part)) != NULL) {
        count++;
        text++;
    }
    return count;
}

/* Only the end of the output is shown: Check accepts no more than 8 KB. */
#define SHOWN ((size_t)4000)

/* Waits until the output has `part` so often. */
static void wait_for(pid_t pid, const char *part, int often) {
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int tries = 0; tries < 6000; tries++) {
        char *text = output();
        int count = times(text, part);
        free(text);
        if (count >= often)
            return;
        nanosleep(&pause, NULL);
    }
    kill(pid, SIGKILL);
    char *text = output();
    size_t length = strlen(text), shown = length < SHOWN ? length : SHOWN;
    ck_abort_msg("\"%s\" was not printed %d times: ...%s", part, often,
                 text + length - shown);
}

static const char *const stalenesses[] = {
    "consistency.staleness=0", "consistency.staleness=3", "consistency.staleness=inf"};

/* The iteration of the last checkpoint in a folder of the scratch folder. */
static int last_in(const char *folder) {
    char path[4096];
    int last = 0, iteration;
    snprintf(path, sizeof path, "%s/%s", net_folder(), folder);
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *entry; (entry = readdir(dir));)
        if (sscanf(entry->d_name, "small-%d.safetensors", &iteration) == 1 &&
            iteration > last)
            last = iteration;
    closedir(dir);
    return last;
}

/* Ranks in different iterations stop, and write checkpoints, at the same iteration. */
TEST_EACH(stopped_and_resumed, 6) {
    if (SANITIZED && _i != 1 && _i != 5)
        return;
    const char *net = net_write(endless), *staleness = stalenesses[_i % 3];
    const char *servers = _i / 3 ? "consistency.servers=1" : "consistency.servers=0";
    pid_t pid = command_start(net_folder(),
                              COMMAND("train", net, "--ranks=3", "--consistency=ssp",
                                      "--set", staleness, "--set", servers, "--set",
                                      "train.display=10", "--run-dir=s"));
    wait_for(pid, "iteration 10,", 1);
    for (int i = 1; i <= 3; i++) {
        kill(pid, SIGHUP);
        wait_for(pid, "checkpoint: ", i);
    }
    kill(pid, SIGTERM);
    ck_assert_int_eq(command_wait(pid, 60), 128 + SIGTERM);
    /* With fewer ranks the batch is smaller, and the same samples are more iterations.
     */
    char iterations[64];
    snprintf(iterations, sizeof iterations, "--iterations=%d", 2 * last_in("s") + 10);
    command_result result = command_run(
        60, net_folder(),
        COMMAND("train", net, "--ranks=2", "--consistency=ssp", "--set", staleness,
                "--resume=auto", iterations, "--run-dir=s"));
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_contains(result.err, "resumed from ");
    command_free(&result);
}

/* The rank that dies, a worker or a server, is named. */
TEST_RANGE(a_death_is_reported, SANITIZED ? 1 : 0, 3) {
    const char *net = net_write(endless);
    pid_t pid = command_start(
        net_folder(), COMMAND("train", net, "--ranks=3", "--consistency=ssp", "--set",
                              "consistency.staleness=3", "--set",
                              "consistency.servers=1", "--set", "train.display=10"));
    char path[128], name[64];
    int child[3] = {0};
    wait_for(pid, "iteration 10,", 1);
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%d %d %d", &child[0], &child[1], &child[2]), 3);
    fclose(file);
    kill((pid_t)child[_i], SIGKILL);
    ck_assert_int_eq(command_wait(pid, 20), 5);
    char *text = output();
    snprintf(name, sizeof name, "pid %d) was killed by signal 9", child[_i]);
    ck_contains(text, name);
    free(text);
}

/* SIGUSR1: [consistency] is read again; a mistake changes nothing. */
TEST(changed_while_it_runs) {
    const char *net = net_of_ssp(endless, "staleness = 0\n");
    pid_t pid = command_start(
        net_folder(), COMMAND("train", net, "--ranks=3", "--set", "train.display=10",
                              "--set", "solver.momentum=0.8", "--run-dir=s"));
    wait_for(pid, "iteration 10,", 1);
    net_of_ssp(endless, "staleness = 3\n");
    kill(pid, SIGUSR1);
    wait_for(pid, "[consistency] staleness = 3, was 0", 1);
    kill(pid, SIGUSR1);
    wait_for(pid, "nothing has changed", 1);
    net_of_ssp(endless, "staleness = much\n");
    kill(pid, SIGUSR1);
    wait_for(pid, "staleness: \"much\" is not a number", 1);
    net_of_ssp(endless, "staleness = inf\nservers = 1\n");
    kill(pid, SIGUSR1);
    wait_for(pid, "[consistency] servers cannot be changed while the job runs: it is 0",
             1);
    wait_for(pid, "[consistency] is unchanged: 1 mistake in ", 2);
    net_write(endless);
    kill(pid, SIGUSR1);
    wait_for(pid, "[consistency] type cannot be changed while the job runs: it is ssp",
             1);
    net_of_ssp(endless, "staleness = inf\n");
    kill(pid, SIGUSR1);
    wait_for(pid, "[consistency] staleness = inf, was 3", 1);
    kill(pid, SIGTERM);
    ck_assert_int_eq(command_wait(pid, 60), 128 + SIGTERM);
}

TEST_RANGE(synchronous_takes_no_changes, SANITIZED ? 1 : 0, 2) {
    const char *net = net_write(endless), *ranks = _i ? "--ranks=2" : "--ranks=1";
    pid_t pid = command_start(net_folder(), COMMAND("train", net, ranks, "--set",
                                                    "train.display=10", "--run-dir=s"));
    wait_for(pid, "iteration 10,", 1);
    kill(pid, SIGUSR1);
    wait_for(pid, "consistency 'synchronous' cannot be changed while the job runs", 1);
    kill(pid, SIGTERM);
    ck_assert_int_eq(command_wait(pid, 60), 128 + SIGTERM);
}

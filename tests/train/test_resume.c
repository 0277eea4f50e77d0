/* Tests that runs that are stopped or killed, and resumed, end bitwise identical to an
 * uninterrupted run. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "net.h"
#include "support/command.h"
#include "support/sanitized.h"
#include "support/scratch.h"
#include "support/test.h"

enum { ITERATIONS = 240 };

static const char *const run_section =
    "iterations = 240\ncheckpoint_interval = 20\ntest_interval = 1000\n";

static const char *path_of(const char *folder, int iteration) {
    static char paths[2][4096];
    static int next;
    char *path = paths[next++ % 2];
    snprintf(path, sizeof paths[0], "%s/%s/small-%08d.safetensors", net_folder(),
             folder, iteration);
    return path;
}

static void train_whole(const char *net, const char *ranks, const char *folder) {
    command_result result = command_run(
        120, net_folder(), COMMAND("train", net, ranks, "--run-dir", folder));
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    command_free(&result);
}

/* Waits until the checkpoint of this iteration exists. */
static void wait_for(const char *folder, int iteration) {
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int tries = 0; tries < 60000; tries++) {
        if (access(path_of(folder, iteration), R_OK) == 0)
            return;
        nanosleep(&pause, NULL);
    }
    ck_abort_msg("no checkpoint of iteration %d came", iteration);
}

static void resume(const char *net, const char *ranks, const char *folder) {
    command_result result = command_run(
        120, net_folder(),
        COMMAND("train", net, ranks, "--resume=auto", "--run-dir", folder));
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_assert_msg(strstr(result.err, "resumed from ") ||
                      strstr(result.err, "nothing to do"), /* it was not killed */
                  "%s", result.err);
    command_free(&result);
}

static const char *const rank_options[] = {"--ranks=1", "--ranks=2"};

TEST_SETTINGS(.timeout = 180, .setup = scratch_setup, .teardown = scratch_teardown);

TEST_EACH(killed_at_random_and_resumed, SANITIZED ? 2 : 4) {
    const char *ranks = rank_options[_i % 2];
    const char *net = net_write(run_section);
    train_whole(net, ranks, "whole");
    pid_t pid = command_start(net_folder(),
                              COMMAND("train", net, ranks, "--run-dir=part"));
    wait_for("part", 40);
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const struct timespec pause = {.tv_nsec = now.tv_nsec % 150000000};
    nanosleep(&pause, NULL);
    kill(pid, SIGKILL);
    int exit_code = command_wait(pid, 20);
    ck_assert_msg(exit_code == 128 + SIGKILL || exit_code == 0, "exit code %d",
                  exit_code);
    resume(net, ranks, "part");
    ck_assert(
        net_same_tensors(path_of("whole", ITERATIONS), path_of("part", ITERATIONS)));
}

static const int stops[] = {SIGTERM, SIGINT};

TEST_EACH(stopped_by_a_signal_and_resumed, SANITIZED ? 1 : 2) {
    const char *net = net_write(run_section);
    train_whole(net, "--ranks=2", "whole");
    pid_t pid = command_start(net_folder(),
                              COMMAND("train", net, "--ranks=2", "--run-dir=part"));
    wait_for("part", 20);
    kill(pid, stops[_i]);
    int exit_code = command_wait(pid, 30);
    ck_assert_msg(exit_code == 128 + stops[_i] || exit_code == 0, "exit code %d",
                  exit_code);
    resume(net, "--ranks=2", "part");
    ck_assert(
        net_same_tensors(path_of("whole", ITERATIONS), path_of("part", ITERATIONS)));
}

/* With shard_optimizer each rank has a shard of the solver's state; the checkpoint has
 * all of it. */
TEST(shards_are_resumed) {
    const char *net = net_write(run_section), *shards = "transport.shard_optimizer=yes";
    train_whole(net, "--ranks=3", "whole");
    for (int end = 120; end <= ITERATIONS; end += 120) {
        char iterations[32];
        snprintf(iterations, sizeof iterations, "--iterations=%d", end);
        command_result result = command_run(
            120, net_folder(),
            COMMAND("train", net, "--ranks=3", "--set", shards, "--set",
                    "transport.bucket_bytes=1K", iterations, "--resume=auto",
                    "--run-dir=part"));
        ck_assert_msg(result.exit_code == 0, "%s", result.err);
        ck_contains(result.err, "updates a shard");
        command_free(&result);
    }
    ck_assert(
        net_same_tensors(path_of("whole", ITERATIONS), path_of("part", ITERATIONS)));
}

/* Each rank has its own running averages, and a checkpoint holds their mean: saving
 * leaves them unchanged, and a resumed run restores them. */
TEST_EACH(saving_changes_nothing, 2) {
    static const char *const ranks[] = {"--ranks=2", "--ranks=3"};
    static const char *const rare[] = {"train.checkpoint_interval=1000",
                                       "train.checkpoint_interval=7"};
    static const char *const folders[] = {"rare", "often"};
    const char *net = net_write("iterations = 60\ntest_interval = 1000\n");
    for (int i = 0; i < 2; i++) {
        command_result result = command_run(120, net_folder(),
                                            COMMAND("train", net, ranks[_i], "--set",
                                                    rare[i], "--set", "train.keep=0",
                                                    "--run-dir", folders[i]));
        ck_assert_msg(result.exit_code == 0, "%s", result.err);
        command_free(&result);
    }
    command_result result = command_run(120, net_folder(),
                                        COMMAND("train", net, ranks[_i], "--resume",
                                                path_of("often", 28),
                                                "--run-dir=rest"));
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_contains(result.err, "at iteration 28");
    command_free(&result);
    ck_assert(net_same_tensors(path_of("rare", 60), path_of("often", 60)));
    ck_assert(net_same_tensors(path_of("rare", 60), path_of("rest", 60)));
}

/* SIGHUP writes an extra checkpoint, and training continues. */
TEST(hangup_saves_and_continues) {
    const char *net = net_write("iterations = 100000\ncheckpoint_interval = 20\n"
                                "test_interval = 1000000\n");
    pid_t pid = command_start(net_folder(),
                              COMMAND("train", net, "--ranks=2", "--run-dir=part"));
    wait_for("part", 20);
    const struct timespec pause = {.tv_nsec = 100000000};
    kill(pid, SIGHUP);
    nanosleep(&pause, NULL);
    kill(pid, SIGHUP);
    nanosleep(&pause, NULL);
    ck_assert_int_eq(kill(pid, 0), 0);
    kill(pid, SIGTERM);
    ck_assert_int_eq(command_wait(pid, 30), 128 + SIGTERM);
}

/* If the newest checkpoint is damaged, the one before it is used. */
TEST(damaged_checkpoint_is_skipped) {
    const char *net = net_write("iterations = 60\ncheckpoint_interval = 20\n"
                                "keep_best = no\n");
    train_whole(net, "--ranks=1", "s");
    FILE *file = fopen(path_of("s", 60), "r+b");
    ck_assert_ptr_nonnull(file);
    fseek(file, -100, SEEK_END);
    int byte = fgetc(file);
    fseek(file, -100, SEEK_END);
    fputc(byte ^ 0x10, file);
    fclose(file);
    command_result result = command_run(
        60, net_folder(), COMMAND("train", net, "--resume=auto", "--run-dir=s"));
    ck_assert_msg(result.exit_code == 0, "%s", result.err);
    ck_contains(result.err, "trying the one before");
    ck_contains(result.err, "at iteration 40");
    command_free(&result);
}

TEST(another_seed_is_refused) {
    const char *net = net_write("iterations = 10\n");
    train_whole(net, "--ranks=1", "s");
    command_result result = command_run(
        60, net_folder(),
        COMMAND("train", net, "--resume=auto", "--run-dir=s", "--seed=7"));
    ck_assert_int_eq(result.exit_code, 4);
    ck_contains(result.err, "use --seed 1");
    command_free(&result);
}

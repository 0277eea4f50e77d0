/* Tests `dlcore topo --measure` with transports that change bytes, lose them or don't
 * open, and with a stopped rank: the command ends in time and names the culprit. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/command.h"
#include "support/scratch.h"
#include "support/test.h"

static void setup(void) {
    char path[1024];
    const char *before = getenv("DLCORE_PLUGIN_PATH");
    scratch_setup();
    snprintf(path, sizeof path, "%s:%s", before ? before : "", FIXTURES);
    setenv("DLCORE_PLUGIN_PATH", path, 1);
}

static const struct {
    const char *transport, *timeout, *out, *err;
} broken[] = {
    {"--transport=changing", "--timeout=10", "BYTES CHANGED",
     "bytes were changed between rank 0"},
    {"--transport=silent", "--timeout=0.3", "FAILED: no answer within 0.3 s",
     "rank 0 - rank 1: no answer within 0.3 s"},
    {"--transport=doubtful", "--timeout=10",
     "FAILED: rank 0 chose transport doubtful, but rank 1 chose none",
     "rank 0 - rank 1: "},
    {"--transport=closed", "--timeout=10", "FAILED: ", "rank 0 - rank 1: "},
};

TEST_SETTINGS(.timeout = 60, .setup = setup, .teardown = scratch_teardown);

TEST_EACH(failures_are_noticed, COUNT(broken)) {
    command_result result = command_run(60, NULL,
                                        COMMAND("topo", "--measure", "--ranks=2",
                                                broken[_i].timeout,
                                                broken[_i].transport));
    ck_contains(result.out, broken[_i].out);
    ck_contains(result.err, broken[_i].err);
    ck_assert_int_eq(result.exit_code, 1);
    command_free(&result);
}

/* Every pair is measured, even after a failed one. */
TEST(all_pairs_are_measured) {
    command_result result = command_run(60, NULL,
                                        COMMAND("topo", "--measure", "--ranks=3",
                                                "--timeout=0.2", "--transport=silent"));
    size_t failed = 0;
    for (const char *at = result.out; (at = strstr(at, "FAILED")); at++)
        failed++;
    ck_assert_uint_eq(failed, 3);
    ck_assert_int_eq(result.exit_code, 1);
    command_free(&result);
}

/* Failures are in the JSON, too, and nothing else is on stdout. */
TEST(failures_are_in_the_json) {
    command_result result = command_run(
        60, NULL,
        COMMAND("topo", "--measure", "--ranks=2", "--json", "--transport=changing"));
    ck_contains(result.out, "\"intact\":false");
    ck_assert_int_eq(result.out[0], '{');
    ck_assert_int_eq(result.exit_code, 1);
    command_free(&result);
}

/* The last rank that the command has started. */
static pid_t last_child(pid_t parent) {
    char path[64];
    int child = 0, last = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    while (fscanf(file, "%d", &child) == 1)
        last = child;
    fclose(file);
    return last;
}

/* A rank that is stopped during a measurement: the job's hang timeout ends it. */
TEST(stopped_rank) {
    const struct timespec moment = {.tv_nsec = 20000000};
    size_t size = 0;
    /* The plugin scanner is a short-lived child, too. */
    command_result list = command_run(60, NULL, COMMAND("plugin", "list"));
    ck_assert_int_eq(list.exit_code, 0);
    command_free(&list);
    pid_t pid = command_start(
        scratch_path(""),
        COMMAND("topo", "--measure", "--ranks=2", "--timeout=2", "--transport=silent"));
    pid_t rank = 0;
    for (int i = 0, seen = 0; i < 500 && seen < 25;
         i++) { /* until the measurement runs */
        nanosleep(&moment, NULL);
        pid_t last = last_child(pid);
        seen = last && last == rank ? seen + 1 : 0;
        rank = last;
    }
    if (rank)
        kill(rank, SIGSTOP);
    int exit_code = command_wait(pid, 50);
    char *err = (char *)scratch_read("err", &size);
    ck_assert_int_gt(rank, 0);
    ck_assert_msg(exit_code == 5, "%d: %.*s", exit_code, (int)size, err);
    free(err);
}

/* `dlcore topo --measure` over transports that change bytes, lose them, or don't open,
 * and with a rank that is stopped: it ends in time and says who it was. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/command.h"
#include "support/scratch.h"

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
     "bytes between rank 0 and rank 1 arrived changed"},
    {"--transport=silent", "--timeout=0.3", "FAILED: no answer within 0.3 s",
     "rank 0 - rank 1: no answer within 0.3 s"},
    {"--transport=doubtful", "--timeout=10",
     "FAILED: rank 0 would use doubtful, rank 1 none", "rank 0 - rank 1: "},
    {"--transport=closed", "--timeout=10", "FAILED: ", "rank 0 - rank 1: "},
};

START_TEST(it_is_noticed) {
    command_result result = command_run(60, NULL,
                                        COMMAND("topo", "--measure", "--ranks=2",
                                                broken[_i].timeout,
                                                broken[_i].transport));
    ck_contains(result.out, broken[_i].out);
    ck_contains(result.err, broken[_i].err);
    ck_assert_int_eq(result.exit_code, 1);
    command_free(&result);
}
END_TEST

/* Each pair is tried, whatever came of the one before. */
START_TEST(all_pairs_are_tried) {
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
END_TEST

/* As JSON it is said, too, and there is nothing else on stdout. */
START_TEST(it_is_in_the_json) {
    command_result result = command_run(
        60, NULL,
        COMMAND("topo", "--measure", "--ranks=2", "--json", "--transport=changing"));
    ck_contains(result.out, "\"intact\":false");
    ck_assert_int_eq(result.out[0], '{');
    ck_assert_int_eq(result.exit_code, 1);
    command_free(&result);
}
END_TEST

/* The last of the ranks that the command has started. */
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

/* A rank that is stopped while it is measured: the job's deadline ends it. */
START_TEST(a_rank_stands_still) {
    const struct timespec moment = {.tv_nsec = 20000000};
    size_t size = 0;
    /* What inspects plugins is a child, too: behind this a short-lived one. */
    command_result list = command_run(60, NULL, COMMAND("plugin", "list"));
    ck_assert_int_eq(list.exit_code, 0);
    command_free(&list);
    pid_t pid = command_start(
        scratch_path(""),
        COMMAND("topo", "--measure", "--ranks=2", "--timeout=2", "--transport=silent"));
    pid_t rank = 0;
    for (int i = 0, seen = 0; i < 500 && seen < 25; i++) { /* until it measures */
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
END_TEST

int main(void) {
    Suite *suite = suite_create("topo, broken transports");
    TCase *all = tcase_create("all");
    tcase_add_checked_fixture(all, setup, scratch_teardown);
    tcase_set_timeout(all, 60);
    tcase_add_loop_test(all, it_is_noticed, 0, (int)(sizeof broken / sizeof *broken));
    tcase_add_test(all, all_pairs_are_tried);
    tcase_add_test(all, it_is_in_the_json);
    tcase_add_test(all, a_rank_stands_still);
    suite_add_tcase(suite, all);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

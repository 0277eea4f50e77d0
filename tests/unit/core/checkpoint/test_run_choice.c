/* Tests which run `--resume auto` continues. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/run_folder.h"
#include "entries.h"
#include "support/scratch.h"
#include "support/test.h"

static char before[4096]; /* the current folder */

static void in_scratch(void) {
    scratch_setup();
    entries_set(NULL, 0);
    ck_assert_ptr_nonnull(getcwd(before, sizeof before));
    ck_assert_int_eq(chdir(scratch_path("")), 0);
    ck_assert_int_eq(mkdir(DLC_RUNS, 0700), 0);
}

static void out_of_scratch(void) {
    ck_assert_int_eq(chdir(before), 0);
    scratch_teardown();
}

/* Creates the folder of a run, with a checkpoint if it has got so far. */
static void make_run(const char *name, int has_checkpoint) {
    char path[256];
    snprintf(path, sizeof path, DLC_RUNS "/%s", name);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, DLC_RUNS "/%s/net-00000001.safetensors", name);
    FILE *file = has_checkpoint ? fopen(path, "w") : NULL;
    if (file)
        fclose(file);
}

/* The runs are listed forwards, and backwards. */
static void expect_last(const char *const *runs, size_t count, const char *last) {
    const char *entries[8] = {NULL};
    for (int way = 0; way < 2; way++) {
        dlc_run_folder choice = {.net = "net"};
        for (size_t i = 0; i < count; i++)
            entries[i] = runs[way ? count - 1 - i : i];
        entries[count] = NULL;
        entries_set(entries, 0);
        ck_assert_int_eq(dlc_run_choose(NULL, "auto", &choice), DLC_OK);
        if (last) {
            ck_assert_int_eq(choice.begin, DLC_RUN_NEWEST);
            ck_assert_str_eq(choice.path, last);
            ck_assert_str_eq(choice.from, last);
        } else {
            ck_assert_ptr_null(choice.path);
        }
        ck_assert_int_eq(choice.fresh, !last);
        dlc_free(choice.path);
        dlc_free(choice.from);
    }
}

TEST_SETTINGS(.setup = in_scratch, .teardown = out_of_scratch);

TEST(the_last_run_is_resumed) {
    static const char *const runs[] = {
        "net-20260101-235959Z",    "net-20260102-000000Z", "net-20260102-000000Z-2",
        "net-20260102-000000Z-10", "net-20260103-000000Z", "other-20260109-000000Z"};
    const size_t count = sizeof runs / sizeof *runs;
    for (size_t i = 0; i < count; i++)
        make_run(runs[i], i != 4);
    expect_last(runs, count, DLC_RUNS "/net-20260102-000000Z-10");
    expect_last(runs, 2, DLC_RUNS "/net-20260102-000000Z");
    expect_last(runs + 4, 2, NULL);
}

/* Half of the names could lack the last run. */
TEST(runs_must_be_readable) {
    static const char *const runs[] = {"net-20260101-235959Z", NULL};
    dlc_run_folder choice = {.net = "net"};
    make_run(runs[0], 1);
    entries_set(runs, EIO);
    ck_assert_int_eq(dlc_run_choose(NULL, "auto", &choice), DLC_ERR_IO);
    ck_contains(dlc_detail(), strerror(EIO));
    ck_assert_ptr_null(choice.path);
    dlc_free(choice.from);
}

TEST(parents) {
    static const char *const paths[][2] = {{"a/b", "a"},    {"a", "."},    {"/a", "/"},
                                           {"/a/b/", "/a"}, {"a//b", "a"}, {"a/", "."}};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        char *parent = dlc_run_parent(paths[i][0]);
        ck_assert_str_eq(parent, paths[i][1]);
        dlc_free(parent);
    }
}

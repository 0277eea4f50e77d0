/* Tests which files of a folder are checkpoints, of which net, and in which order. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/listing.h"
#include "entries.h"
#include "support/scratch.h"
#include "support/test.h"

static const struct {
    const char *name;
    size_t net_length; /* 0: not a checkpoint */
    int64_t iteration;
} names[] = {
    {"net-00000007.safetensors", 3, 7},
    {"a-b-00000012.safetensors", 3, 12},
    {"net-999999999999999999.safetensors", 3, 999999999999999999},
    {"net-1000000000000000000.safetensors", 0, 0},
    {"net-0000007.safetensors", 0, 0},
    {"net-00000007.safetensors.part", 0, 0},
    {"net-00000007.safetensor", 0, 0},
    {"net-00000007x.safetensors", 0, 0},
    {"net--0000007.safetensors", 0, 0},
    {"-00000007.safetensors", 0, 0},
    {"00000007.safetensors", 0, 0},
};
enum { NAMES = sizeof names / sizeof *names };

static void reset(void) {
    scratch_setup();
    entries_set(NULL, 0);
}

TEST_SETTINGS(.setup = reset, .teardown = scratch_teardown);

TEST_EACH(names_of_checkpoints, NAMES) {
    size_t net_length = 77;
    int64_t iteration = 77;
    int is = dlc_checkpoint_name(names[_i].name, &net_length, &iteration);
    ck_assert_int_eq(is, names[_i].net_length > 0);
    ck_assert_uint_eq(net_length, is ? names[_i].net_length : 77);
    ck_assert_int_eq(iteration, is ? names[_i].iteration : 77);
}

TEST(paths) {
    char *path = dlc_checkpoint_path("some/folder", "net", 7);
    ck_assert_str_eq(path, "some/folder/net-00000007.safetensors");
    dlc_free(path);
}

/* Lists them as "NET ITERATION, ..." in the order of the listing. */
static void expect(const char *net, const char *const *net_and_iteration) {
    dlc_checkpoints listing;
    size_t count = 0;
    ck_assert_int_eq(dlc_checkpoints_read(scratch_path(""), net, &listing), DLC_OK);
    for (; net_and_iteration[count]; count++) {
        char found[64] = "";
        ck_assert_uint_lt(count, listing.count);
        snprintf(found, sizeof found, "%s %lld", listing.file[count].net,
                 (long long)listing.file[count].iteration);
        ck_assert_str_eq(found, net_and_iteration[count]);
    }
    ck_assert_uint_eq(count, listing.count);
    dlc_checkpoints_free(&listing);
}

TEST(by_iteration_and_net) {
    static const char *const entries[] = {"net-00000011.safetensors",
                                          ".lock",
                                          "network-00000002.safetensors",
                                          "net-000000009.safetensors",
                                          "net-00000010.safetensors.part",
                                          "ne-00000003.safetensors",
                                          "net-00000001.safetensors",
                                          "other-00000001.safetensors",
                                          NULL};
    entries_set(entries, 0);
    expect("net", (const char *const[]){"net 1", "net 9", "net 11", NULL});
    entries_set(entries, 0);
    expect(NULL, (const char *const[]){"net 1", "other 1", "network 2", "ne 3", "net 9",
                                       "net 11", NULL});
    entries_set(entries, 0);
    expect("nothing", (const char *const[]){NULL});
}

static void expect_unreadable(const char *folder, const char *detail) {
    dlc_checkpoints listing = {.count = 77};
    ck_assert_int_eq(dlc_checkpoints_read(folder, "net", &listing), DLC_ERR_IO);
    ck_contains(dlc_detail(), detail);
    ck_assert_uint_eq(listing.count, 0);
}

/* A listing that lacks the newest checkpoints would lose a run. */
TEST(half_a_listing_is_none) {
    static const char *const entries[] = {"net-00000001.safetensors", NULL};
    entries_set(entries, EIO);
    expect_unreadable(scratch_path(""), strerror(EIO));
    entries_set(entries + 1, EIO);
    expect_unreadable(scratch_path(""), strerror(EIO));
}

TEST(only_a_missing_folder_is_empty) {
    dlc_checkpoints listing;
    ck_assert_int_eq(dlc_checkpoints_read(scratch_path("missing"), NULL, &listing),
                     DLC_OK);
    ck_assert_uint_eq(listing.count, 0);
    expect_unreadable(scratch_write("file", "", 0), strerror(ENOTDIR));
}

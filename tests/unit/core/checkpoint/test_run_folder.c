/* Tests claiming the folder of a run: its name survives a power failure, no other run
 * uses it, and a new run's holds no checkpoints. */
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "checkpoint/run_folder.h"
#include "support/scratch.h"
#include "support/test.h"

enum { SYNCS = 16 };

static ino_t synced[SYNCS];
static int syncs;

/* Stands in for the C library's: notes what is synced. */
int fsync(int descriptor) {
    struct stat info;
    ck_assert_int_eq(fstat(descriptor, &info), 0);
    if (syncs < SYNCS)
        synced[syncs++] = info.st_ino;
    return (int)syscall(SYS_fsync, descriptor);
}

static dlc_run_folder *ending; /* ends after another run has opened its lock */

/* Stands in for the C library's. */
int flock(int descriptor, int operation) {
    dlc_run_folder *run = ending;
    ending = NULL;
    if (run)
        dlc_run_folder_close(run);
    return (int)syscall(SYS_flock, descriptor, operation);
}

static int was_synced(const char *path) {
    struct stat info;
    ck_assert_int_eq(stat(path, &info), 0);
    for (int i = 0; i < syncs; i++)
        if (synced[i] == info.st_ino)
            return 1;
    return 0;
}

static dlc_run_folder folder_at(const char *name, int fresh) {
    return (dlc_run_folder){.net = "net",
                            .path = dlc_strdup(scratch_path(name)),
                            .fresh = fresh,
                            .retention = {.best = -1, .was_best = -1},
                            .lock = {.descriptor = -1}};
}

static void reset(void) {
    scratch_setup();
    syncs = 0;
}

TEST_SETTINGS(.timeout = 30, .setup = reset, .teardown = scratch_teardown);

TEST(new_names_are_flushed) {
    dlc_run_folder folder = folder_at("a/b/c", 1);
    ck_assert_int_eq(dlc_run_folder_claim(&folder), DLC_OK);
    ck_assert_int_eq(folder.made, 1);
    ck_assert(was_synced(scratch_path("")));
    ck_assert(was_synced(scratch_path("a")));
    ck_assert(was_synced(scratch_path("a/b")));
    ck_assert_int_eq(dlc_run_folder_claim(&folder), DLC_OK); /* once is enough */
    dlc_run_folder_close(&folder);
    ck_assert_int_ne(access(scratch_path("a/b/c"), F_OK), 0);
}

/* A new run neither overwrites nor removes what another one has left. */
TEST(checkpoints_of_another_run) {
    ck_assert_int_eq(mkdir(scratch_path("used"), 0700), 0);
    scratch_write("used/older-00000007.safetensors", "", 0);
    dlc_run_folder fresh = folder_at("used", 1), resumed = folder_at("used", 0);
    ck_assert_int_eq(dlc_run_folder_claim(&fresh), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), "holds checkpoints of another run");
    ck_contains(dlc_detail(), "'older', up to iteration 7");
    dlc_run_folder_close(&fresh);
    ck_assert_int_eq(dlc_run_folder_claim(&resumed), DLC_OK);
    dlc_run_folder_close(&resumed);
    ck_assert_int_eq(access(scratch_path("used/older-00000007.safetensors"), F_OK), 0);
}

TEST(one_run_at_a_time) {
    dlc_run_folder first = folder_at("run", 1), second = folder_at("run", 1);
    char self[32];
    snprintf(self, sizeof self, "in use by process %ld", (long)getpid());
    ck_assert_int_eq(dlc_run_folder_claim(&first), DLC_OK);
    ck_assert_int_eq(dlc_run_folder_claim(&second), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), self);
    dlc_run_lock_release(&first.lock);
    ck_assert_int_eq(dlc_run_folder_claim(&second), DLC_OK);
    dlc_run_folder_close(&second);
    dlc_run_folder_close(&first);
}

/* A run that ends without a checkpoint removes the lock, and the folder if it made it.
 * The one that has waited for the lock holds it nevertheless. */
TEST_EACH(a_removed_lock_is_no_lock, 2) {
    dlc_run_folder first = folder_at("run", 1), second = folder_at("run", 1),
                   third = folder_at("run", 1);
    if (_i)
        ck_assert_int_eq(mkdir(scratch_path("run"), 0700), 0);
    ck_assert_int_eq(dlc_run_folder_claim(&first), DLC_OK);
    ending = &first;
    ck_assert_int_eq(dlc_run_folder_claim(&second), DLC_OK);
    ck_assert_ptr_null(ending);
    ck_assert_int_eq(access(scratch_path("run/.lock"), F_OK), 0);
    ck_assert_int_eq(dlc_run_folder_claim(&third), DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), "in use by process");
    dlc_run_folder_close(&third);
    dlc_run_folder_close(&second);
    ck_assert_int_eq(access(scratch_path("run"), F_OK), _i ? 0 : -1);
}

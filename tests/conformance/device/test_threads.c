/* Where the cpu device's threads run: each on one of the CPUs that it is given;
 * elsewhere if the user has placed threads; and where they were before after close. */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/status.h"
#include "support/plugins.h"
#include "support/test.h"

static const dlc_device_ops *ops;
static cpu_set_t before;
static int32_t cpus[2]; /* two CPUs that this process may use */
static int found;

static void setup(void) {
    found = 0;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE && found < 2; cpu++)
        if (CPU_ISSET(cpu, &before))
            cpus[found++] = cpu;
    ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops;
}

static dlc_device *open_device(int threads) {
    dlc_device *device = NULL;
    dlc_device_args args = {.size = sizeof args, .threads = threads, .cpus = cpus};
    ck_assert_int_eq(ops->open(&args, &device), DLC_OK);
    return device;
}

/* How many threads of this process may run only on `cpu`. */
static int bound_to(int cpu) {
    int count = 0;
    DIR *folder = opendir("/proc/self/task");
    ck_assert_ptr_nonnull(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        cpu_set_t mask;
        if (entry->d_name[0] != '.' &&
            sched_getaffinity(atoi(entry->d_name), sizeof mask, &mask) == 0)
            count += CPU_COUNT(&mask) == 1 && CPU_ISSET(cpu, &mask);
    }
    closedir(folder);
    return count;
}

static int caller_is_back(void) {
    cpu_set_t now;
    ck_assert_int_eq(sched_getaffinity(0, sizeof now, &now), 0);
    return CPU_EQUAL(&now, &before);
}

TEST_SETTINGS(.setup = setup, .teardown = plugins_close);

TEST(one_is_bound_and_released) {
    if (found < 2)
        return; /* nothing to test with one */
    int others = bound_to(cpus[0]);
    dlc_device *device = open_device(1);
    ck_assert_int_eq(bound_to(cpus[0]), others + 1);
    ops->close(device);
    ck_assert(caller_is_back());
}

TEST(two_are_bound_apart) {
    const char *limit = getenv("OMP_THREAD_LIMIT");
    if (found < 2 || (limit && atoi(limit) < 2))
        return;
    dlc_device *device = open_device(2);
    ck_assert_int_eq(bound_to(cpus[0]), 1);
    ck_assert_int_eq(bound_to(cpus[1]), 1);
    ops->close(device);
    ck_assert(caller_is_back());
    /* Another device moves the threads of the same pool. */
    int32_t first = cpus[0];
    cpus[0] = cpus[1];
    cpus[1] = first;
    device = open_device(2);
    ck_assert_int_eq(bound_to(cpus[0]), 1);
    ck_assert_int_eq(bound_to(cpus[1]), 1);
    ops->close(device);
}

TEST_EACH(the_user_comes_first, 3) {
    static const char *const names[] = {"OMP_PROC_BIND", "OMP_PLACES",
                                        "GOMP_CPU_AFFINITY"};
    if (found < 2)
        return;
    ck_assert_int_eq(setenv(names[_i], "false", 1), 0);
    dlc_device *device = open_device(2);
    ck_assert(caller_is_back());
    ops->close(device);
    ck_assert_int_eq(unsetenv(names[_i]), 0);
}

/* A plugin may ask for a CPU that does not exist; that does no harm. */
TEST_EACH(nonexistent_cpus_are_ignored, 3) {
    static const int32_t absurd[] = {8191, 100000, -1};
    cpus[0] = cpus[1] = absurd[_i];
    dlc_device *device = open_device(2);
    ck_assert(caller_is_back());
    float x[4] = {1, 2, 3, 4};
    ck_assert_int_eq(ops->scale(device, NULL, 4, 2, x), DLC_OK);
    ops->close(device);
}

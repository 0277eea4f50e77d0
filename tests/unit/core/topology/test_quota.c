/* Tests the CPU and memory limits of cgroups, on trees of files made by the test. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/test.h"
#include "topology/quota.h"

static char root[] = "/tmp/dlcore-quota-XXXXXX";

static void setup(void) {
    memcpy(strrchr(root, '-'), "-XXXXXX", 8);
    ck_assert_ptr_nonnull(mkdtemp(root));
}

static void teardown(void) {
    char command[PATH_MAX];
    snprintf(command, sizeof command, "rm -r %s", root);
    ck_assert_int_eq(system(command), 0);
}

/* Writes a file below root, with its folders. */
static void put(const char *path, const char *text) {
    char full[PATH_MAX];
    ck_assert_int_lt(snprintf(full, sizeof full, "%s%s", root, path), (int)sizeof full);
    for (char *slash = strchr(full + strlen(root) + 1, '/'); slash;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(full, 0777);
        *slash = '/';
    }
    FILE *file = fopen(full, "we");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

TEST_SETTINGS(.setup = setup, .teardown = teardown);

TEST(nothing_known) {
    ck_assert_double_eq(dlc_quota_cores(root), 0);
    put("/proc/self/cgroup", "garbage\n\n0:\n");
    ck_assert_double_eq(dlc_quota_cores(root), 0);
    put("/proc/self/cgroup", "0::/\n");
    ck_assert_double_eq(dlc_quota_cores(root), 0);
}

#define GB (1024.0 * 1024 * 1024)

TEST(memory_limits) {
    ck_assert_double_eq(dlc_quota_memory(root), 0);
    put("/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\n");
    ck_assert_double_eq(dlc_quota_memory(root), 16 * GB);
    put("/proc/self/cgroup", "0::/a/b\n");
    put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    ck_assert_double_eq(dlc_quota_memory(root), 16 * GB);
    put("/sys/fs/cgroup/a/memory.max", "4294967296\n");
    ck_assert_double_eq(dlc_quota_memory(root), 4 * GB);
    put("/sys/fs/cgroup/a/b/memory.max",
        "34359738368\n"); /* more than the machine has */
    ck_assert_double_eq(dlc_quota_memory(root), 4 * GB);
    put("/proc/self/cgroup", "5:cpu:/x\n4:memory:/y/z\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    ck_assert_double_eq(dlc_quota_memory(root), 16 * GB);
    put("/sys/fs/cgroup/memory/y/memory.limit_in_bytes", "2147483648\n");
    put("/sys/fs/cgroup/cpu/memory.limit_in_bytes", "1\n"); /* another controller's */
    ck_assert_double_eq(dlc_quota_memory(root), 2 * GB);
}

/* The least that any group, or the machine, has left; cache of files can be freed. */
TEST(memory_left) {
    ck_assert_double_eq(dlc_quota_memory_free(root), 0);
    put("/proc/meminfo", "MemTotal: 16777216 kB\nMemAvailable: 8388608 kB\n");
    ck_assert_double_eq(dlc_quota_memory_free(root), 8 * GB);
    put("/proc/self/cgroup", "0::/a\n");
    put("/sys/fs/cgroup/a/memory.max", "4294967296\n");
    put("/sys/fs/cgroup/a/memory.current", "3221225472\n");
    ck_assert_double_eq(dlc_quota_memory_free(root), 1 * GB);
    put("/sys/fs/cgroup/a/memory.stat", "file 9\ninactive_file 1073741824\n");
    ck_assert_double_eq(dlc_quota_memory_free(root), 2 * GB);
    put("/sys/fs/cgroup/a/memory.max", "max\n");
    ck_assert_double_eq(dlc_quota_memory_free(root), 8 * GB);
    put("/proc/self/cgroup", "4:memory:/y\n");
    put("/sys/fs/cgroup/memory/y/memory.limit_in_bytes", "41943040\n");
    put("/sys/fs/cgroup/memory/y/memory.usage_in_bytes", "41943040\n");
    ck_assert_double_eq(dlc_quota_memory_free(root), 1);
    put("/sys/fs/cgroup/memory/y/memory.stat", "total_inactive_file 1048576\n");
    ck_assert_double_eq(dlc_quota_memory_free(root), 1048576);
}

TEST(version_2) {
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
    ck_assert_double_eq(dlc_quota_cores(root), 0);
    put("/sys/fs/cgroup/a/b/cpu.max", "350000 100000\n");
    ck_assert_double_eq(dlc_quota_cores(root), 3.5);
    put("/sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    ck_assert_double_eq(dlc_quota_cores(root), 2);
    put("/sys/fs/cgroup/cpu.max", "800000 100000\n");
    ck_assert_double_eq(dlc_quota_cores(root), 2);
    put("/sys/fs/cgroup/a/b/c/cpu.max", "50000 100000\n");
    ck_assert_double_eq(dlc_quota_cores(root), 0.5);
}

/* In a container the path may be one of the host. */
TEST(version_2_path_not_here) {
    put("/proc/self/cgroup", "0::/docker/0123\n");
    put("/sys/fs/cgroup/cpu.max", "150000 100000\n");
    ck_assert_double_eq(dlc_quota_cores(root), 1.5);
}

TEST(version_1) {
    put("/proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/box\n1:name=systemd:/init\n");
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n");
    ck_assert_double_eq(dlc_quota_cores(root), 0);
    put("/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "400000\n");
    ck_assert_double_eq(dlc_quota_cores(root), 4);
    /* "cpuset" is another controller than "cpu" */
    put("/proc/self/cgroup", "5:cpuset:/box\n");
    ck_assert_double_eq(dlc_quota_cores(root), 0);
}

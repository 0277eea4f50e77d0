/* Tests how ranks share the cores of synthetic machines (hwloc's descriptions) and of
 * this one. The descriptions name their NUMA nodes: if hwloc 2.9 has to insert them it
 * copies overlapping memory. */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "support/sanitized.h"
#include "support/test.h"
#include "topology/cores.h"

static int has(const dlc_core_set *set, int cpu) {
    size_t bits = 8 * sizeof set->cpus[0];
    return (int)(set->cpus[(size_t)cpu / bits] >> ((size_t)cpu % bits) & 1);
}

/* "0-3,8" */
static void set_text(const dlc_core_set *set, dlc_text *text) {
    const char *comma = "";
    for (int cpu = 0; cpu < DLC_CORES_CPUS_MAX; cpu++) {
        if (!has(set, cpu))
            continue;
        int last = cpu;
        while (last + 1 < DLC_CORES_CPUS_MAX && has(set, last + 1))
            last++;
        if (last > cpu)
            dlc_text_add(text, "%s%d-%d", comma, cpu, last);
        else
            dlc_text_add(text, "%s%d", comma, cpu);
        comma = ",";
        cpu = last;
    }
}

typedef struct share_case {
    const char *machine;
    int cores, ranks;
    const char *shares; /* hardware threads of each rank, separated by spaces */
} share_case;

static const share_case share_cases[] = {
    {"pack:2 numa:1 core:4 pu:2", 8, 1, "0-15"},
    {"pack:2 numa:1 core:4 pu:2", 8, 2, "0-7 8-15"},
    /* the smallest share is two cores in any case; no rank is on both packages */
    {"pack:2 numa:1 core:4 pu:2", 8, 3, "0-7 8-11 12-15"},
    {"pack:2 numa:1 core:4 pu:2", 8, 4, "0-3 4-7 8-11 12-15"},
    {"pack:2 numa:1 core:4 pu:2", 8, 5, "0-3 4-7 8-9 10-11 12-15"},
    {"pack:2 numa:1 core:4 pu:2", 8, 8, "0-1 2-3 4-5 6-7 8-9 10-11 12-13 14-15"},
    /* more ranks than cores share them */
    {"pack:1 numa:1 core:2 pu:2", 2, 5, "0-1 2-3 0-1 2-3 0-1"},
    {"pack:1 numa:1 core:3 pu:1", 3, 4, "0 1 2 0"},
    {"numa:1 core:1 pu:1", 1, 3, "0 0 0"},
    /* equal shares before locality: 6 and 6, although an L3 is split */
    {"pack:1 numa:1 l3:3 core:4 pu:1", 12, 2, "0-5 6-11"},
    {"pack:1 numa:1 l3:3 core:4 pu:1", 12, 3, "0-3 4-7 8-11"},
    {"pack:1 numa:1 l3:2 core:5 pu:1", 10, 4, "0-1 2-4 5-6 7-9"},
    /* the package's edge is stronger than the L3's */
    {"pack:2 numa:1 l3:3 core:2 pu:1", 12, 5, "0-1 2-5 6-7 8-9 10-11"},
    /* the kernel numbers the first hardware threads of all cores, then the second ones
     */
    {"pack:2 numa:1 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)", 4, 2, "0-1,4-5 2-3,6-7"},
    /* a large remainder is distributed: no share is more than twice the smallest */
    {"numa:1 core:15 pu:1", 15, 8, "0-1 2-3 4-5 6 7-8 9-10 11-12 13-14"},
};

TEST_EACH(shares, COUNT(share_cases)) {
    const share_case *test = &share_cases[_i];
    dlc_cores *cores = NULL;
    ck_assert_int_eq(dlc_cores_open(test->machine, &cores), DLC_OK);
    ck_assert_int_eq(dlc_cores_count(cores), test->cores);
    dlc_text all = {0};
    for (int r = 0; r < test->ranks; r++) {
        dlc_core_set set;
        ck_assert_int_eq(dlc_cores_share(cores, r, test->ranks, &set), DLC_OK);
        ck_assert_int_ge(set.cores, 1);
        ck_assert_int_eq(set.threads, set.cores);
        if (r)
            dlc_text_add(&all, " ");
        set_text(&set, &all);
    }
    ck_assert_msg(strcmp(dlc_text_string(&all), test->shares) == 0,
                  "%s, %d ranks: %s, not %s", test->machine, test->ranks,
                  dlc_text_string(&all), test->shares);
    dlc_text_free(&all);
    dlc_cores_close(cores);
}

/* For any numbers: shares don't overlap, every core is used, the smallest share is as
 * large as possible, the largest at most twice that. */
TEST(shares_are_fair) {
    for (int count = 1; count <= (under_valgrind() ? 8 : 40); count++) {
        char machine[64];
        snprintf(machine, sizeof machine, "pack:%d numa:1 core:%d pu:1",
                 count % 3 ? 1 : 3, count % 3 ? count : count / 3);
        dlc_cores *cores = NULL;
        ck_assert_int_eq(dlc_cores_open(machine, &cores), DLC_OK);
        ck_assert_int_eq(dlc_cores_count(cores), count);
        for (int ranks = 1; ranks <= count; ranks++) {
            int next = 0;
            for (int r = 0; r < ranks; r++) {
                dlc_core_set set;
                ck_assert_int_eq(dlc_cores_share(cores, r, ranks, &set), DLC_OK);
                ck_assert_int_ge(set.cores, count / ranks);
                ck_assert_int_le(set.cores, 2 * (count / ranks));
                for (int k = 0; k < set.cores; k++)
                    ck_assert(has(&set, next + k));
                next += set.cores;
                ck_assert(!has(&set, next));
            }
            ck_assert_int_eq(next, count);
        }
        dlc_cores_close(cores);
    }
}

typedef struct place_case {
    const char *machine;
    int rank, ranks, threads;
    const char *compute, *others; /* compute: "" if the kernel places the threads */
} place_case;

static const place_case place_cases[] = {
    /* second hardware threads are left for other threads */
    {"pack:2 numa:1 core:4 pu:2", 0, 1, 8, "0 2 4 6 8 10 12 14", "1,3,5,7,9,11,13,15"},
    {"pack:2 numa:1 core:4 pu:2", 1, 2, 4, "8 10 12 14", "9,11,13,15"},
    /* whole cores are left for other threads */
    {"pack:2 numa:1 core:4 pu:2", 1, 2, 2, "8 10", "9,11-15"},
    {"numa:1 core:4 pu:1", 0, 1, 3, "0 1 2", "3"},
    /* nothing is left: all threads share the cores */
    {"numa:1 core:4 pu:1", 0, 1, 4, "0 1 2 3", "0-3"},
    {"numa:1 core:4 pu:1", 1, 4, 1, "1", "1"},
    /* more threads or ranks than cores */
    {"numa:1 core:4 pu:2", 0, 2, 3, "", "0-3"},
    {"numa:1 core:2 pu:2", 2, 3, 1, "", "0-1"},
    {"numa:1 core:2 pu:2", 0, 1, 0, "", "0-3"},
    /* neighbors in the machine, not in the kernel's numbering */
    {"pack:2 numa:1 core:2 pu:2(indexes=0,4,1,5,2,6,3,7)", 1, 2, 2, "2 3", "6-7"},
    {"pack:2 numa:1 core:2 pu:1(indexes=2,0,3,1)", 0, 1, 2, "0 2", "1,3"},
};

TEST_EACH(threads_are_placed, COUNT(place_cases)) {
    const place_case *test = &place_cases[_i];
    dlc_cores *cores = NULL;
    dlc_thread_placement places;
    ck_assert_int_eq(dlc_cores_open(test->machine, &cores), DLC_OK);
    ck_assert_int_eq(
        dlc_cores_place_threads(cores, test->rank, test->ranks, test->threads, &places),
        DLC_OK);
    dlc_text compute = {0}, others = {0};
    for (int i = 0; places.compute && i < test->threads; i++)
        dlc_text_add(&compute, "%s%d", i ? " " : "", (int)places.compute[i]);
    set_text(&places.others, &others);
    ck_assert_str_eq(compute.length ? dlc_text_string(&compute) : "", test->compute);
    ck_assert_str_eq(dlc_text_string(&others), test->others);
    dlc_text_free(&compute);
    dlc_text_free(&others);
    dlc_thread_placement_free(&places);
    dlc_cores_close(cores);
}

/* The affinity saved at the start is used, even if a library changes it later. */
TEST(saved_affinity) {
    cpu_set_t mine, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof mine, &mine), 0);
    dlc_cores_save_affinity();
    int first = 0;
    while (!CPU_ISSET(first, &mine))
        first++;
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    dlc_cores *cores = NULL;
    dlc_core_set set, now;
    ck_assert_int_eq(dlc_cores_open(NULL, &cores), DLC_OK);
    ck_assert_int_eq(dlc_cores_share(cores, 0, 1, &set), DLC_OK);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        ck_assert_int_eq(has(&set, cpu), CPU_ISSET(cpu, &mine) != 0);
    ck_assert_int_eq(dlc_cores_get_affinity(&now), DLC_OK);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        ck_assert_int_eq(has(&now, cpu), cpu == first);
    dlc_cores_close(cores);
}

TEST(threads_under_a_quota) {
    static const struct {
        double quota;
        int cores, threads;
    } cases[] = {{0, 4, 4},    {-1, 4, 4},  {0.2, 4, 1}, {1.4, 4, 1}, {1.5, 4, 2},
                 {2.75, 4, 3}, {3.9, 4, 4}, {4, 4, 4},   {64, 4, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_msg(
            dlc_cores_threads(cases[i].quota, cases[i].cores) == cases[i].threads,
            "%g cores' worth on %d cores: %d threads", cases[i].quota, cases[i].cores,
            dlc_cores_threads(cases[i].quota, cases[i].cores));
}

TEST(bad_input) {
    dlc_cores *cores = NULL;
    ck_assert_int_eq(dlc_cores_open("no machine", &cores), DLC_ERR_CONFIG);
    ck_assert_ptr_null(cores);
    ck_assert(strstr(dlc_detail(), "'no machine'"));
    ck_assert_int_eq(dlc_cores_open("numa:1 core:2 pu:1", &cores), DLC_OK);
    dlc_core_set set;
    ck_assert_int_eq(dlc_cores_share(cores, -1, 2, &set), DLC_ERR_CONFIG);
    ck_assert_int_eq(dlc_cores_share(cores, 2, 2, &set), DLC_ERR_CONFIG);
    ck_assert_int_eq(dlc_cores_share(cores, 0, 0, &set), DLC_ERR_CONFIG);
    dlc_thread_placement places;
    ck_assert_int_eq(dlc_cores_place_threads(cores, 2, 2, 1, &places), DLC_ERR_CONFIG);
    dlc_memory_fail_at(1);
    ck_assert_int_eq(dlc_cores_place_threads(cores, 0, 1, 1, &places), DLC_ERR_NOMEM);
    dlc_memory_fail_at(0);
    dlc_cores_close(cores);
    dlc_cores_close(NULL);
}

TEST(memory_runs_out) {
    for (size_t n = 1; n <= 3; n++) {
        dlc_cores *cores = NULL;
        dlc_memory_fail_at(n);
        dlc_status status = dlc_cores_open("numa:1 core:2 pu:1", &cores);
        dlc_memory_fail_at(0);
        ck_assert_int_eq(status, DLC_ERR_NOMEM);
        ck_assert_ptr_null(cores);
    }
}

TEST(environment_is_restored) {
    dlc_cores *cores = NULL;
    ck_assert_int_eq(unsetenv("HWLOC_PLUGINS_PATH"), 0);
    ck_assert_int_eq(dlc_cores_open(NULL, &cores), DLC_OK);
    dlc_cores_close(cores);
    ck_assert_ptr_null(getenv("HWLOC_PLUGINS_PATH"));
    ck_assert_int_eq(setenv("HWLOC_PLUGINS_PATH", "/somewhere", 1), 0);
    ck_assert_int_eq(dlc_cores_open(NULL, &cores), DLC_OK);
    dlc_cores_close(cores);
    ck_assert_str_eq(getenv("HWLOC_PLUGINS_PATH"), "/somewhere");
}

/* On this machine only the cores in the affinity mask are used. */
TEST(affinity_is_respected) {
    cpu_set_t mine, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof mine, &mine), 0);
    dlc_cores *cores = NULL;
    dlc_core_set set;
    ck_assert_int_eq(dlc_cores_open(NULL, &cores), DLC_OK);
    ck_assert_int_le(dlc_cores_count(cores), CPU_COUNT(&mine));
    ck_assert_int_eq(dlc_cores_share(cores, 0, 1, &set), DLC_OK);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        ck_assert_int_eq(has(&set, cpu), CPU_ISSET(cpu, &mine) != 0);
    dlc_cores_close(cores);

    int last = CPU_SETSIZE - 1;
    while (!CPU_ISSET(last, &mine))
        last--;
    CPU_ZERO(&one);
    CPU_SET(last, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    ck_assert_int_eq(dlc_cores_open(NULL, &cores), DLC_OK);
    ck_assert_int_eq(dlc_cores_count(cores), 1);
    for (int r = 0; r < 2; r++) {
        ck_assert_int_eq(dlc_cores_share(cores, r, 2, &set), DLC_OK);
        ck_assert_int_eq(set.cores, 1);
        ck_assert_int_eq(set.threads, 1);
        for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
            ck_assert_int_eq(has(&set, cpu), cpu == last);
    }
    dlc_cores_close(cores);
    ck_assert_int_eq(sched_setaffinity(0, sizeof mine, &mine), 0);
}

TEST(binding) {
    cpu_set_t before, now;
    ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
    dlc_cores *cores = NULL;
    dlc_core_set set;
    ck_assert_int_eq(dlc_cores_open(NULL, &cores), DLC_OK);
    int count = dlc_cores_count(cores);
    ck_assert_int_eq(dlc_cores_share(cores, count - 1, count, &set), DLC_OK);
    ck_assert_int_eq(dlc_cores_bind(&set), DLC_OK);
    ck_assert_int_eq(sched_getaffinity(0, sizeof now, &now), 0);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        ck_assert_int_eq(CPU_ISSET(cpu, &now) != 0, has(&set, cpu));
    memset(set.cpus, 0, sizeof set.cpus);
    ck_assert_int_eq(dlc_cores_bind(&set), DLC_ERR_IO);
    dlc_cores_close(cores);
    ck_assert_int_eq(sched_setaffinity(0, sizeof before, &before), 0);
}

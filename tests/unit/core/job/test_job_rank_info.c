/* Tests nodes, shares of cores and devices, derived from what ranks tell each other. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "job/rank/rank_info.h"
#include "job_fixture.h"
#include "support/test.h"

/* A rank on the machine with boot id `boot`, in a container with the network of `node`,
 * which may use the hardware threads of the bit set `cpus`. */
typedef struct given {
    const char *boot, *node;
    unsigned long cpus;
} given;

enum { RANKS = 6 };

typedef struct node_case {
    given rank[RANKS]; /* up to the first without `boot` */
    int node[RANKS], index[RANKS], count[RANKS];
} node_case;

static const node_case cases[] = {
    /* All on one machine. */
    {{{"a", "a", 3}, {"a", "a", 3}, {"a", "a", 3}}, {0, 0, 0}, {0, 1, 2}, {3, 3, 3}},
    /* Two machines, alternating. */
    {{{"a", "a", 3}, {"b", "b", 3}, {"a", "a", 3}, {"b", "b", 3}},
     {0, 1, 0, 1},
     {0, 0, 1, 1},
     {2, 2, 2, 2}},
    /* Different numbers of ranks, the largest last. */
    {{{"a", "a", 1}, {"b", "b", 15}, {"b", "b", 15}, {"b", "b", 15}},
     {0, 1, 1, 1},
     {0, 0, 1, 2},
     {1, 3, 3, 3}},
    /* Containers with networks of their own are nodes, but share the cores. */
    {{{"a", "a1", 3}, {"a", "a2", 3}, {"a", "a1", 3}}, {0, 1, 0}, {0, 1, 2}, {3, 3, 3}},
    /* Bound by the launcher, each rank to a core of its own. */
    {{{"a", "a", 1}, {"a", "a", 2}, {"a", "a", 4}}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}},
    /* Bound by the launcher to sockets, two ranks on each. */
    {{{"a", "a", 3}, {"a", "a", 12}, {"a", "a", 3}, {"a", "a", 12}},
     {0, 0, 0, 0},
     {0, 0, 1, 1},
     {2, 2, 2, 2}},
    /* Equal masks on different machines are not the same cores. */
    {{{"a", "a", 1}, {"b", "b", 1}}, {0, 1}, {0, 0}, {1, 1}},
};

TEST_SETTINGS(.timeout = 30, .setup = fixture_setup, .teardown = fixture_teardown);

TEST_EACH(nodes_and_core_shares, COUNT(cases)) {
    const node_case *test = &cases[_i];
    dlc_rank_details *details = dlc_alloc(RANKS, sizeof *details);
    int ranks = 0;
    for (; ranks < RANKS && test->rank[ranks].boot; ranks++) {
        const given *rank = &test->rank[ranks];
        snprintf(details[ranks].boot, sizeof details->boot, "%s", rank->boot);
        snprintf(details[ranks].node, sizeof details->node, "%s", rank->node);
        details[ranks].usable.cpus[0] = rank->cpus;
    }
    dlc_rank_details_number_nodes(details, ranks);
    for (int r = 0; r < ranks; r++) {
        int index, count;
        dlc_rank_details_core_share(details, ranks, r, &index, &count);
        ck_assert_int_eq(details[r].info.node, test->node[r]);
        ck_assert_int_eq(index, test->index[r]);
        ck_assert_int_eq(count, test->count[r]);
    }
    dlc_free(details);
}

/* Ranks are counted on each machine, and assigned its devices round-robin. */
TEST(devices_are_assigned_round_robin) {
    static const char *const boots[] = {"a", "b", "a", "a", "b", "a"};
    static const int32_t list[] = {3, 7, 5}, counted[] = {0, 0, 1, 2, 1, 3};
    dlc_rank_details *details = dlc_alloc(RANKS, sizeof *details);
    for (int r = 0; r < RANKS; r++) {
        snprintf(details[r].boot, sizeof details->boot, "%s", boots[r]);
        snprintf(details[r].node, sizeof details->node, "container %d", r % 2);
    }
    for (int r = 0; r < RANKS; r++) {
        dlc_job_options options = {.ranks = RANKS};
        dlc_rank_args args = {
            .options = &options, .rank = r, .ranks = RANKS, .local_rank = -1};
        ck_assert_int_eq(dlc_rank_details_device(details, &args), 0);
        options.devices = 3;
        ck_assert_int_eq(dlc_rank_details_device(details, &args), counted[r] % 3);
        options.device_index = list;
        ck_assert_int_eq(dlc_rank_details_device(details, &args), list[counted[r] % 3]);
        args.local_rank = 4;
        ck_assert_int_eq(dlc_rank_details_device(details, &args), 7);
    }
    dlc_free(details);
}

/* ---- Whole jobs -------------------------------------------------------------- */

static int mask_main(dlc_job *job, void *argument) {
    cpu_set_t mine;
    (void)argument;
    shared_enter(job);
    if (sched_getaffinity(0, sizeof mine, &mine))
        return 1;
    for (int cpu = 0; cpu < 32; cpu++)
        if (CPU_ISSET(cpu, &mine))
            atomic_fetch_or(&shared->seen[dlc_job_rank(job)], 1u << cpu);
    const dlc_rank_info *info = dlc_job_rank_info(job, dlc_job_rank(job));
    const int32_t *cpus = dlc_job_cpus(job);
    int32_t package, numa;
    dlc_cores_locality(cpus, cpus ? dlc_job_threads(job) : 0, &package, &numa);
    if (info->package != package || info->numa != numa)
        return 2;
    return dlc_exit_code(dlc_job_barrier(job));
}

/* External ranks share the cores of their machine as forked ones do. */
TEST(external_ranks_share_cores) {
    cpu_set_t all;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    external_job job = external_start(2, NULL, mask_main, NULL);
    external_wait(&job, 0);
    unsigned a = atomic_load(&shared->seen[0]);
    unsigned b = atomic_load(&shared->seen[1]);
    if (CPU_COUNT(&all) > 1 && CPU_COUNT(&all) < 32)
        ck_assert_msg(a && b && (!(a & b) || a == b), "%x %x", a, b);
    external_free(&job);
}

/* A rank that its launcher has bound to a core stays there. */
TEST(bound_ranks_stay) {
    cpu_set_t all, one;
    external_job job = {.ranks = 2, .port = free_port()};
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2 || !CPU_ISSET(0, &all) || !CPU_ISSET(1, &all))
        return;
    for (int r = 0; r < 2; r++) {
        CPU_ZERO(&one);
        CPU_SET(1 - r, &one); /* not as dlcore would */
        ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
        external_start_rank(&job, r, NULL, NULL, mask_main, NULL);
    }
    sched_setaffinity(0, sizeof all, &all);
    external_wait(&job, 0);
    ck_assert_uint_eq(atomic_load(&shared->seen[0]), 2);
    ck_assert_uint_eq(atomic_load(&shared->seen[1]), 1);
    external_free(&job);
}

static int device_main(dlc_job *job, void *argument) {
    const int32_t *expected = argument;
    shared_enter(job);
    for (int r = 0; r < dlc_job_ranks(job); r++)
        if (dlc_job_rank_info(job, r)->device_index != expected[r])
            return 1 + r;
    return dlc_exit_code(dlc_job_barrier(job));
}

/* Local ranks are counted, or as LOCAL_RANK says. */
TEST_EACH(external_ranks_have_devices, 2) {
    static const char *const local_rank[] = {"LOCAL_RANK=0", "LOCAL_RANK=0",
                                             "LOCAL_RANK=2"};
    static const int32_t index[] = {4, 9}, expected[2][3] = {{4, 9, 4}, {4, 4, 4}};
    dlc_job_options options = {.ranks = 1, .device_index = index, .devices = 2};
    external_job job = {.ranks = 3, .port = free_port()};
    for (int r = 0; r < 3; r++) {
        const char *extra[] = {_i ? local_rank[r] : NULL, NULL};
        external_start_rank(&job, r, extra, &options, device_main,
                            (void *)expected[_i]);
    }
    external_wait(&job, 0);
    external_free(&job);
}

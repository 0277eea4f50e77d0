/* Nodes and shares of cores, from what ranks tell of themselves. */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "job/place.h"
#include "session.h"

/* A machine that runs `boot`, in a container with the networks of `node`, where the
 * hardware threads of `cpus` may be used (a bit each). */
typedef struct given {
    const char *boot, *node;
    unsigned long cpus;
} given;

enum { MOST = 6 };

typedef struct place_case {
    given rank[MOST]; /* up to the first without boot */
    int node[MOST], index[MOST], count[MOST];
} place_case;

static const place_case cases[] = {
    /* One machine. */
    {{{"a", "a", 3}, {"a", "a", 3}, {"a", "a", 3}}, {0, 0, 0}, {0, 1, 2}, {3, 3, 3}},
    /* Two, taking turns. */
    {{{"a", "a", 3}, {"b", "b", 3}, {"a", "a", 3}, {"b", "b", 3}},
     {0, 1, 0, 1},
     {0, 0, 1, 1},
     {2, 2, 2, 2}},
    /* Uneven, the largest last. */
    {{{"a", "a", 1}, {"b", "b", 15}, {"b", "b", 15}, {"b", "b", 15}},
     {0, 1, 1, 1},
     {0, 0, 1, 2},
     {1, 3, 3, 3}},
    /* Containers with networks of their own are nodes, but share the cores. */
    {{{"a", "a1", 3}, {"a", "a2", 3}, {"a", "a1", 3}}, {0, 1, 0}, {0, 1, 2}, {3, 3, 3}},
    /* Bound by the outer launcher, each to its own. */
    {{{"a", "a", 1}, {"a", "a", 2}, {"a", "a", 4}}, {0, 0, 0}, {0, 0, 0}, {1, 1, 1}},
    /* Bound to sockets, two ranks on each. */
    {{{"a", "a", 3}, {"a", "a", 12}, {"a", "a", 3}, {"a", "a", 12}},
     {0, 0, 0, 0},
     {0, 0, 1, 1},
     {2, 2, 2, 2}},
    /* The same mask on different machines is not the same cores. */
    {{{"a", "a", 1}, {"b", "b", 1}}, {0, 1}, {0, 0}, {1, 1}},
};

START_TEST(nodes_and_shares) {
    const place_case *test = &cases[_i];
    dlc_card *cards = dlc_alloc(MOST, sizeof *cards);
    int ranks = 0;
    for (; ranks < MOST && test->rank[ranks].boot; ranks++) {
        const given *rank = &test->rank[ranks];
        snprintf(cards[ranks].boot, sizeof cards->boot, "%s", rank->boot);
        snprintf(cards[ranks].node, sizeof cards->node, "%s", rank->node);
        cards[ranks].usable.cpus[0] = rank->cpus;
    }
    dlc_cards_number(cards, ranks);
    for (int r = 0; r < ranks; r++) {
        int index, count;
        dlc_cards_share(cards, ranks, r, &index, &count);
        ck_assert_int_eq(cards[r].place.node, test->node[r]);
        ck_assert_int_eq(index, test->index[r]);
        ck_assert_int_eq(count, test->count[r]);
    }
    dlc_free(cards);
}
END_TEST

/* Ranks count from 0 on each machine, and take its devices in turn. */
START_TEST(devices_go_round) {
    static const char *const boots[] = {"a", "b", "a", "a", "b", "a"};
    static const int32_t list[] = {3, 7, 5}, counted[] = {0, 0, 1, 2, 1, 3};
    dlc_card *cards = dlc_alloc(MOST, sizeof *cards);
    for (int r = 0; r < MOST; r++) {
        snprintf(cards[r].boot, sizeof cards->boot, "%s", boots[r]);
        snprintf(cards[r].node, sizeof cards->node, "container %d", r % 2);
    }
    for (int r = 0; r < MOST; r++) {
        dlc_rank_args args = {.rank = r, .ranks = MOST, .local_rank = -1};
        ck_assert_int_eq(dlc_cards_device(cards, &args), 0);
        args.devices = 3;
        ck_assert_int_eq(dlc_cards_device(cards, &args), counted[r] % 3);
        args.device_index = list;
        ck_assert_int_eq(dlc_cards_device(cards, &args), list[counted[r] % 3]);
        args.local_rank = 4;
        ck_assert_int_eq(dlc_cards_device(cards, &args), 7);
    }
    dlc_free(cards);
}
END_TEST

/* ---- For real ---------------------------------------------------------------- */

static int mask_main(dlc_job *job, void *argument) {
    cpu_set_t mine;
    (void)argument;
    board_enter(job);
    if (sched_getaffinity(0, sizeof mine, &mine))
        return 1;
    for (int cpu = 0; cpu < 32; cpu++)
        if (CPU_ISSET(cpu, &mine))
            atomic_fetch_or(&board_shared->seen[dlc_job_rank(job)], 1u << cpu);
    const dlc_place *place = dlc_job_place(job, dlc_job_rank(job));
    const int32_t *cpus = dlc_job_cpus(job);
    int32_t package, numa;
    dlc_cores_near(cpus, cpus ? dlc_job_threads(job) : 0, &package, &numa);
    if (place->package != package || place->numa != numa)
        return 2;
    return dlc_exit_code(dlc_job_barrier(job));
}

/* Ranks from outside share the cores of their machine as others do. */
START_TEST(outside_ranks_share_cores) {
    cpu_set_t all;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    outside_job job = outside_start(2, NULL, mask_main, NULL);
    outside_end(&job, 0);
    unsigned a = atomic_load(&board_shared->seen[0]);
    unsigned b = atomic_load(&board_shared->seen[1]);
    if (CPU_COUNT(&all) > 1 && CPU_COUNT(&all) < 32)
        ck_assert_msg(a && b && (!(a & b) || a == b), "%x %x", a, b);
    outside_free(&job);
}
END_TEST

/* What the outer launcher has bound to other cores stays there. */
START_TEST(bound_ranks_stay) {
    cpu_set_t all, one;
    outside_job job = {.ranks = 2, .port = free_port()};
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    if (CPU_COUNT(&all) < 2 || !CPU_ISSET(0, &all) || !CPU_ISSET(1, &all))
        return;
    for (int r = 0; r < 2; r++) {
        CPU_ZERO(&one);
        CPU_SET(1 - r, &one); /* crosswise: not as dlcore would */
        ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
        outside_start_rank(&job, r, NULL, NULL, mask_main, NULL);
    }
    sched_setaffinity(0, sizeof all, &all);
    outside_end(&job, 0);
    ck_assert_uint_eq(atomic_load(&board_shared->seen[0]), 2);
    ck_assert_uint_eq(atomic_load(&board_shared->seen[1]), 1);
    outside_free(&job);
}
END_TEST

static int device_main(dlc_job *job, void *argument) {
    const int32_t *expected = argument;
    board_enter(job);
    for (int r = 0; r < dlc_job_ranks(job); r++)
        if (dlc_job_place(job, r)->device_index != expected[r])
            return 1 + r;
    return dlc_exit_code(dlc_job_barrier(job));
}

/* Counted, or as LOCAL_RANK says. */
START_TEST(outside_ranks_have_devices) {
    static const char *const local_rank[] = {"LOCAL_RANK=0", "LOCAL_RANK=0",
                                             "LOCAL_RANK=2"};
    static const int32_t index[] = {4, 9}, expected[2][3] = {{4, 9, 4}, {4, 4, 4}};
    dlc_job_options options = {.ranks = 1, .device_index = index, .devices = 2};
    outside_job job = {.ranks = 3, .port = free_port()};
    for (int r = 0; r < 3; r++) {
        const char *extra[] = {_i ? local_rank[r] : NULL, NULL};
        outside_start_rank(&job, r, extra, &options, device_main, (void *)expected[_i]);
    }
    outside_end(&job, 0);
    outside_free(&job);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("place");
    tcase_add_loop_test(tests, nodes_and_shares, 0, sizeof cases / sizeof *cases);
    tcase_add_test(tests, devices_go_round);
    tcase_add_test(tests, outside_ranks_share_cores);
    tcase_add_loop_test(tests, outside_ranks_have_devices, 0, 2);
    tcase_add_test(tests, bound_ranks_stay);
    return run_tests("job: places", tests);
}

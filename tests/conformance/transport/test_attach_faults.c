/* What goes wrong with attached memory: ranks that disagree or die meanwhile; that
 * nothing is left over; and where it can be had at all. */
#include <check.h>
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "attach.h"
#include "base/status.h"
#include "support/reference.h"

enum { ROOM = 120000 /* floats */ };

/* ---- What goes wrong ------------------------------------------------------- */

static int open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    ck_assert_ptr_nonnull(folder);
    while (readdir(folder))
        count++;
    (void)closedir(folder);
    return count;
}

/* Ranks that don't agree are all told so, none attaches, and go on with the rest. */
static void disagree_body(test_rank *rank, void *context) {
    dlc_memory odd = {.size = sizeof odd}, plain = {.size = sizeof plain}, good;
    size_t bytes = rank->rank == 1 ? 8192 : 4096;
    uint32_t flags = rank->rank == 1 ? 0 : DLC_MEM_SHARED;
    group g;

    group_open(&g, rank, context);
    int files = open_files();
    RANK_OK(rank, g.device_ops->alloc(g.device, bytes, DLC_MEM_SHARED, &odd));
    RANK_OK(rank, g.device_ops->alloc(g.device, 4096, flags, &plain));
    RANK_CHECK(rank, g.ops->attach(g.endpoint, &odd) == DLC_ERR_CONFIG);
    RANK_CHECK(rank, strstr(dlc_detail(), "one size") != NULL);
    RANK_CHECK(rank, g.ops->attach(g.endpoint, &plain) == DLC_ERR_CONFIG);
    RANK_CHECK(rank, strstr(dlc_detail(),
                            rank->rank == 1 ? "cannot be exported" : "rank 1") != NULL);
    g.device_ops->free(g.device, &odd);
    g.device_ops->free(g.device, &plain);
    RANK_CHECK(rank, open_files() == files);

    float *arena = attach(&g, 1002, &good);
    reference_fill(3, rank->rank, 1002, arena);
    RANK_OK(rank, group_all_reduce(&g, arena, 1002));
    RANK_CHECK(rank, reference_wrong(3, rank->ranks, 0, 1002, arena) == 0);
    attach_finish(&g, &good, NULL);
}

START_TEST(disagree) {
    for (int i = 0; i < ATTACH_WAYS; i++)
        attach_run(&attach_ways[i], 3, 0, disagree_body);
    plugins_close();
}
END_TEST

/* Not at the same place: found out, where it would else sum apples and pears. */
static void astray_body(test_rank *rank, void *context) {
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    float *arena = attach(&g, ROOM, &memory);
    size_t offset = rank->rank == 1 ? 10 : 20;
    dlc_status status = group_all_reduce(&g, arena + offset, 50000);
    RANK_CHECK(rank, status == DLC_ERR_CONFIG);
    RANK_CHECK(rank, strstr(dlc_detail(), "same calls") != NULL);
    attach_finish(&g, &memory, NULL);
}

START_TEST(astray) {
    for (int i = 0; i < ATTACH_WAYS; i++)
        attach_run(&attach_ways[i], 2, 0, astray_body);
    plugins_close();
}
END_TEST

/* Killed in the middle, at any moment. The others' memory of it stays mapped: they
 * leave with an error, and not by a signal. */
static void killed_body(test_rank *rank, void *context) {
    enum { BIG = 1000000 };
    dlc_status status = DLC_OK;
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    float *arena = attach(&g, BIG, &memory);
    if (rank->rank == 1 && fork() == 0) { /* the parent dies when this says so */
        usleep((unsigned)(getpid() % 40) * 500);
        (void)kill(getppid(), SIGKILL);
        _exit(0);
    }
    while (status == DLC_OK)
        status = DLC_CAN(g.ops, all_reduce) ? group_all_reduce(&g, arena, BIG)
                                            : DLC_ERR_PEER;
    RANK_CHECK(rank, status == DLC_ERR_PEER);
    for (size_t i = 0; i < BIG; i += 1024)
        arena[i] = 1.0f;
    attach_finish(&g, &memory, NULL);
}

START_TEST(killed) {
    for (int i = 0; i < 8; i++)
        attach_run_all(3, 1u << 1, killed_body);
}
END_TEST

/* ... and before all have mapped it. */
static void killed_attaching_body(test_rank *rank, void *context) {
    dlc_memory memory = {.size = sizeof memory};
    group g;

    group_open(&g, rank, context);
    RANK_OK(rank, g.device_ops->alloc(g.device, 1 << 20, DLC_MEM_SHARED, &memory));
    if (rank->rank == 0)
        (void)raise(SIGKILL);
    RANK_CHECK(rank, g.ops->attach(g.endpoint, &memory) == DLC_ERR_PEER);
    attach_finish(&g, &memory, NULL);
}

START_TEST(killed_attaching) {
    for (int i = 0; i < ATTACH_WAYS; i++)
        attach_run(&attach_ways[i], 3, 1, killed_attaching_body);
    plugins_close();
}
END_TEST

/* Nothing stays mapped or open behind the endpoint. */
static void closed_body(test_rank *rank, void *context) {
    group g;

    group_prepare(&g, rank, context);
    int files = 0;
    for (int round = 0; round < 5; round++) {
        dlc_memory one, two;
        RANK_OK(rank, g.ops->open(&g.args, &g.endpoint));
        (void)attach(&g, 100000, &one);
        (void)attach(&g, 1, &two);
        ranks_barrier(rank);
        g.ops->close(g.endpoint);
        g.endpoint = NULL;
        g.device_ops->free(g.device, &one);
        g.device_ops->free(g.device, &two);
        if (round == 0)
            files = open_files(); /* what a library opens once stays */
        RANK_CHECK(rank, open_files() == files);
    }
    group_close(&g);
}

START_TEST(closed) {
    attach_run_all(3, 0, closed_body);
}
END_TEST

/* ---- Where it can run ------------------------------------------------------ */

static void score_is(dlc_transport_args *args, int32_t want, const char *why) {
    const dlc_transport_ops *ops = plugin_find(DLC_KIND_TRANSPORT, "p2p-tree")->ops;
    char reason[128] = "";
    int32_t score = -1;

    ck_assert_int_eq(ops->score(args, &score, reason, sizeof reason), DLC_OK);
    ck_assert_int_eq(score, want);
    ck_assert_str_eq(reason, why);
}

START_TEST(scores) {
    dlc_place place[2] = {{.size = sizeof *place, .device = "cpu"},
                          {.size = sizeof *place, .device = "cpu"}};
    dlc_device_ops shares =
        *(const dlc_device_ops *)plugin_find(DLC_KIND_DEVICE, "cpu")->ops;
    dlc_transport_args args = {
        .size = sizeof args, .ranks = 2, .places = place, .device_ops = &shares};

    score_is(&args, 70, "memory that 2 ranks of one node map of each other");
    args.device_ops = NULL; /* not known yet */
    score_is(&args, 70, "memory that 2 ranks of one node map of each other");
    args.device_ops = &shares;
    shares.share_import = NULL;
    score_is(&args, 0, "cpu device of rank 0 cannot share memory");
    memcpy(place[1].device, "gpu", 4);
    score_is(&args, 0, "rank 1 computes on gpu, rank 0 on cpu");
    place[1].node = 1;
    score_is(&args, 0, "rank 1 is on another node");
    plugins_close();
}
END_TEST

/* `auto` looks at where the ranks are. */
static void schedule_body(test_rank *rank, void *context) {
    static const char *const want[] = {"direct schedule", "tree schedule",
                                       "direct schedule"};
    group_kind kind = {"p2p-tree", NULL};

    (void)context;
    for (int i = 0; i < 3; i++) {
        char text[64] = "";
        group g;
        group_prepare(&g, rank, &kind);
        for (int r = 0; r < rank->ranks; r++) {
            g.places[r].package = i == 1 ? r / 2 : 0;
            g.places[r].numa = i == 2 ? -1 : 0; /* not known */
        }
        RANK_OK(rank, g.ops->open(&g.args, &g.endpoint));
        RANK_OK(rank, g.ops->describe(g.endpoint, text, sizeof text));
        RANK_CHECK(rank, strncmp(text, want[i], strlen(want[i])) == 0);
        group_close(&g);
    }
}

START_TEST(schedules) {
    ck_assert_int_eq(ranks_run(3, 30, schedule_body, NULL), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("attached memory, faults");
    TCase *tests = tcase_create("attach");
    tcase_set_timeout(tests, 120);
    tcase_add_test(tests, disagree);
    tcase_add_test(tests, astray);
    tcase_add_test(tests, killed);
    tcase_add_test(tests, killed_attaching);
    tcase_add_test(tests, closed);
    tcase_add_test(tests, scores);
    tcase_add_test(tests, schedules);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? 1 : 0;
}

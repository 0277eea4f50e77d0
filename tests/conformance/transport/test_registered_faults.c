/* Conformance of transports: errors with registered buffers. Ranks that disagree or die
 * meanwhile; resources that must not leak; and the prediction. */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "registered.h"
#include "support/reference.h"
#include "support/test.h"

enum { ROOM = 120000 /* floats */ };

/* ---- Errors --------------------------------------------------------------------- */

static int open_files(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    ck_assert_ptr_nonnull(folder);
    while (readdir(folder))
        count++;
    (void)closedir(folder);
    return count;
}

/* If ranks disagree, all get an error, none registers the buffer, and the group stays
 * usable. */
static void disagree_body(test_rank *rank, void *context) {
    dlc_memory odd = {.size = sizeof odd}, plain = {.size = sizeof plain}, good;
    size_t bytes = rank->rank == 1 ? 8192 : 4096;
    uint32_t flags = rank->rank == 1 ? 0 : DLC_MEM_SHARED;
    group g;

    group_open(&g, rank, context);
    int files = open_files();
    RANK_OK(rank, g.device_ops->alloc(g.device, bytes, DLC_MEM_SHARED, &odd));
    RANK_OK(rank, g.device_ops->alloc(g.device, 4096, flags, &plain));
    RANK_CHECK(rank, g.ops->register_buffer(g.endpoint, &odd) == DLC_ERR_CONFIG);
    RANK_CHECK(rank, strstr(dlc_detail(), "one size") != NULL);
    RANK_CHECK(rank, g.ops->register_buffer(g.endpoint, &plain) == DLC_ERR_CONFIG);
    RANK_CHECK(rank, strstr(dlc_detail(),
                            rank->rank == 1 ? "cannot be exported" : "rank 1") != NULL);
    g.device_ops->free(g.device, &odd);
    g.device_ops->free(g.device, &plain);
    RANK_CHECK(rank, open_files() == files);

    float *arena = register_floats(&g, 1002, &good);
    reference_fill(3, rank->rank, 1002, arena);
    RANK_OK(rank, group_all_reduce(&g, arena, 1002));
    RANK_CHECK(rank, reference_wrong(3, rank->ranks, 0, 1002, arena) == 0);
    registered_finish(&g, &good, NULL);
}

TEST_SETTINGS(.timeout = 120);

TEST(disagree) {
    for (int i = 0; i < REGISTERED_SETTINGS; i++)
        registered_run(&registered_settings[i], 3, 0, disagree_body);
    plugins_close();
}

/* Different offsets are an error, instead of a wrong sum. */
static void different_offsets_body(test_rank *rank, void *context) {
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    float *arena = register_floats(&g, ROOM, &memory);
    size_t offset = rank->rank == 1 ? 10 : 20;
    dlc_status status = group_all_reduce(&g, arena + offset, 50000);
    RANK_CHECK(rank, status == DLC_ERR_CONFIG);
    RANK_CHECK(rank, strstr(dlc_detail(), "same calls") != NULL);
    registered_finish(&g, &memory, NULL);
}

TEST(different_offsets) {
    for (int i = 0; i < REGISTERED_SETTINGS; i++)
        registered_run(&registered_settings[i], 2, 0, different_offsets_body);
    plugins_close();
}

/* A rank is killed at any moment. Its memory stays mapped by the others, which leave
 * with an error and not by a signal. */
static void killed_body(test_rank *rank, void *context) {
    enum { BIG = 1000000 };
    dlc_status status = DLC_OK;
    dlc_memory memory;
    group g;

    group_open(&g, rank, context);
    float *arena = register_floats(&g, BIG, &memory);
    if (rank->rank == 1 && fork() == 0) { /* the parent dies while this one continues */
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
    registered_finish(&g, &memory, NULL);
}

TEST(killed) {
    for (int i = 0; i < 8; i++)
        registered_run_all(3, 1u << 1, killed_body);
}

/* A rank is killed before all have mapped its memory. */
static void killed_registering_body(test_rank *rank, void *context) {
    dlc_memory memory = {.size = sizeof memory};
    group g;

    group_open(&g, rank, context);
    RANK_OK(rank, g.device_ops->alloc(g.device, 1 << 20, DLC_MEM_SHARED, &memory));
    if (rank->rank == 0)
        (void)raise(SIGKILL);
    RANK_CHECK(rank, g.ops->register_buffer(g.endpoint, &memory) == DLC_ERR_PEER);
    registered_finish(&g, &memory, NULL);
}

TEST(killed_registering) {
    for (int i = 0; i < REGISTERED_SETTINGS; i++)
        registered_run(&registered_settings[i], 3, 1, killed_registering_body);
    plugins_close();
}

/* Nothing stays mapped or open after the endpoint was closed. */
static void closed_body(test_rank *rank, void *context) {
    group g;

    group_prepare(&g, rank, context);
    int files = 0;
    for (int round = 0; round < 5; round++) {
        dlc_memory one, two;
        RANK_OK(rank, g.ops->open(&g.args, &g.endpoint));
        (void)register_floats(&g, 100000, &one);
        (void)register_floats(&g, 1, &two);
        ranks_barrier(rank);
        g.ops->close(g.endpoint);
        g.endpoint = NULL;
        g.device_ops->free(g.device, &one);
        g.device_ops->free(g.device, &two);
        if (round == 0)
            files = open_files(); /* a library may keep what it opens once */
        RANK_CHECK(rank, open_files() == files);
    }
    group_close(&g);
}

TEST(closed) {
    registered_run_all(3, 0, closed_body);
}

/* ---- Predictions --------------------------------------------------------------- */

static void says(dlc_transport_args *args, int can, const char *why) {
    const dlc_transport_ops *ops = plugin_find(DLC_KIND_TRANSPORT, "p2p-tree")->ops;
    char reason[128] = "";
    dlc_transport_prediction made = {.size = sizeof made};

    ck_assert_int_eq(ops->predict(args, &made, reason, sizeof reason), DLC_OK);
    ck_assert_int_eq(made.bandwidth > 0, can);
    ck_assert_str_eq(reason, why);
}

TEST(predictions) {
    dlc_rank_info place[2] = {{.size = sizeof *place, .device = "cpu"},
                              {.size = sizeof *place, .device = "cpu"}};
    dlc_device_ops shares =
        *(const dlc_device_ops *)plugin_find(DLC_KIND_DEVICE, "cpu")->ops;
    dlc_transport_args args = {
        .size = sizeof args, .ranks = 2, .rank_info = place, .device_ops = &shares};

    says(&args, 1, "2 ranks of one node map each other's memory");
    args.device_ops = NULL; /* before the device is open */
    says(&args, 1, "2 ranks of one node map each other's memory");
    args.device_ops = &shares;
    shares.ipc_import = NULL;
    says(&args, 0, "cpu device of rank 0 cannot share memory");
    memcpy(place[1].device, "gpu", 4);
    says(&args, 0, "rank 1 computes on gpu, rank 0 on cpu");
    place[1].node = 1;
    says(&args, 0, "not all ranks are on one node");
    plugins_close();
}

/* `auto` depends on where the ranks are. */
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
            g.places[r].numa = i == 2 ? -1 : 0; /* unknown */
        }
        RANK_OK(rank, g.ops->open(&g.args, &g.endpoint));
        RANK_OK(rank, g.ops->describe(g.endpoint, text, sizeof text));
        RANK_CHECK(rank, strncmp(text, want[i], strlen(want[i])) == 0);
        group_close(&g);
    }
}

TEST(schedules) {
    ck_assert_int_eq(ranks_run(3, 30, schedule_body, NULL), 0);
}

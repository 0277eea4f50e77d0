/* Conformance of transports: devices whose memory the CPU cannot read, and what they
 * may lack: queues, pinning of host memory, access to a peer's memory. */

#include "base/memory.h"
#include "group.h"
#include "support/reference.h"
#include "support/test.h"
#include "unit/core/comm/discrete_device.h"

enum { COUNT = 700001, MOST_PINS = 8 };

/* What was pinned; pinning fails from the `limit`th time on. */
static struct {
    void *base[MOST_PINS];
    int pinned, limit, wrong;
} pins;

static dlc_status count_pin(dlc_device *device, void *base, size_t bytes) {
    volatile const char *ends = base;
    (void)device;
    if (pins.pinned == pins.limit)
        return DLC_ERR_NOMEM;
    (void)ends[0]; /* must be mapped */
    (void)ends[bytes - 1];
    pins.base[pins.pinned++] = base;
    return DLC_OK;
}

static void count_unpin(dlc_device *device, void *base) {
    (void)device;
    pins.wrong += pins.pinned == 0 || pins.base[pins.pinned - 1] != base;
    pins.pinned -= pins.pinned > 0;
}

/* Every operation once, in device memory `far` that mirrors `near`. */
static void try_every_operation(group *g, float *far, float *near, uint64_t salt) {
    test_rank *rank = g->rank;
    size_t bytes = COUNT * sizeof *near;
    int root = (int)salt % rank->ranks;

    reference_fill(salt, rank->rank, COUNT, near);
    RANK_OK(rank, g->device_ops->copy(g->device, NULL, far, near, bytes));
    RANK_OK(rank, g->ops->reduce_scatter(g->endpoint, far, COUNT));
    RANK_OK(rank, g->ops->all_gather(g->endpoint, far, COUNT));
    RANK_OK(rank, g->device_ops->copy(g->device, NULL, near, far, bytes));
    RANK_CHECK(rank, reference_wrong(salt, rank->ranks, 0, COUNT, near) == 0);

    reference_fill(salt, rank->rank, COUNT, near);
    RANK_OK(rank, g->device_ops->copy(g->device, NULL, far, near, bytes));
    RANK_OK(rank, g->ops->broadcast(g->endpoint, root, far, bytes - 1));
    RANK_OK(rank, g->device_ops->copy(g->device, NULL, near, far, bytes - 4));
    for (size_t i = 0; i < COUNT - 1; i++)
        RANK_CHECK(rank, near[i] == reference_value(salt, root, i));

    reference_fill(salt + 1, rank->rank, COUNT, near);
    RANK_OK(rank, g->device_ops->copy(g->device, NULL, far, near, bytes));
    RANK_OK(rank, g->ops->all_reduce(g->endpoint, far, COUNT));
    RANK_OK(rank, g->device_ops->copy(g->device, NULL, near, far, bytes));
    RANK_CHECK(rank, reference_wrong(salt + 1, rank->ranks, 0, COUNT, near) == 0);
}

/* Without queues, with pinning of all files, of none, of some. */
static void pinning_body(test_rank *rank, void *context) {
    static const int limits[] = {MOST_PINS, 0, 2};
    float *near = dlc_alloc(COUNT, sizeof *near);

    RANK_CHECK(rank, near);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        dlc_memory memory = {.size = sizeof memory};
        group g;
        group_prepare(&g, rank, context);
        dlc_device_ops far = *discrete_device(g.device_ops);
        far.pin = count_pin;
        far.unpin = count_unpin;
        g.device_ops = g.args.device_ops = &far;
        pins.limit = limits[i];
        RANK_OK(rank, g.ops->open(&g.args, &g.endpoint));
        RANK_CHECK(rank, pins.pinned == (limits[i] < 3 ? limits[i] : 3));
        RANK_OK(rank, far.alloc(g.device, COUNT * sizeof *near, 0, &memory));
        for (uint64_t salt = 0; salt < 6; salt += 2)
            try_every_operation(&g, memory.base, near, salt);
        g.ops->close(g.endpoint);
        g.endpoint = NULL;
        RANK_CHECK(rank, pins.pinned == 0 && pins.wrong == 0);
        far.free(g.device, &memory);
        group_close(&g);
    }
    dlc_free(near);
}

TEST_SETTINGS(.timeout = 120);

TEST(pinning) {
    group_kind kind = {"host-staged", NULL};
    ck_assert_int_eq(ranks_run(3, 60, pinning_body, &kind), 0);
}

/* The CPU can read one rank's device memory and not the other's: an error. */
static void different_devices_body(test_rank *rank, void *context) {
    group g;

    group_prepare(&g, rank, context);
    dlc_device_ops far = *discrete_device(g.device_ops);
    if (rank->rank == 1)
        g.args.device_ops = &far;
    RANK_CHECK(rank, g.ops->open(&g.args, &g.endpoint) == DLC_ERR_CONFIG);
    ranks_barrier(rank);
    group_close(&g);
}

TEST(different_devices) {
    group_kind kind = {"host-staged", NULL};
    ck_assert_int_eq(ranks_run(2, 60, different_devices_body, &kind), 0);
}

/* ---- Peer access ---------------------------------------------------------------- */

/* Device 3 is behind another bridge: no other device reads it; it reads the others. */
static dlc_status third_apart(dlc_device *device, int32_t from, int32_t to,
                              int *reaches) {
    (void)device;
    if (from == 9 || to == 9)
        return DLC_ERR_DEVICE;
    *reaches = from == to || to != 3;
    return DLC_OK;
}

static void says(const dlc_transport_args *args, int can, const char *why) {
    const dlc_transport_ops *ops = plugin_find(DLC_KIND_TRANSPORT, "p2p-tree")->ops;
    char reason[128] = "";
    dlc_transport_prediction made = {.size = sizeof made};

    ck_assert_int_eq(ops->predict(args, &made, reason, sizeof reason), DLC_OK);
    ck_assert_int_eq(made.bandwidth > 0, can);
    ck_assert_str_eq(reason, why);
}

TEST(peer_access) {
    const dlc_transport_ops *p2p = plugin_find(DLC_KIND_TRANSPORT, "p2p-tree")->ops;
    const char *all = "3 ranks of one node map each other's memory";
    char device;
    dlc_rank_info place[3];
    dlc_device_ops ops =
        *(const dlc_device_ops *)plugin_find(DLC_KIND_DEVICE, "cpu")->ops;
    dlc_transport_args args = {.size = sizeof args,
                               .ranks = 3,
                               .rank_info = place,
                               .device_ops = &ops,
                               .device = (dlc_device *)(void *)&device};

    for (int i = 0; i < 3; i++)
        place[i] = (dlc_rank_info){
            .size = sizeof *place, .device = "gpu", .device_index = i};
    ops.can_access_peer = third_apart;
    says(&args, 1, all);
    place[2].device_index = 3;
    says(&args, 0, "gpu 0 of rank 0 cannot access the memory of gpu 3 of rank 2");
    place[2].device_index = 0;
    place[0].device_index = 3; /* only one of the two directions fails */
    says(&args, 0, "gpu 1 of rank 1 cannot access the memory of gpu 3 of rank 0");
    place[1].device_index = place[2].device_index = 3; /* all are the same device */
    says(&args, 1, all);
    place[1].device_index = 1;
    args.device = NULL; /* not open yet: what the topology says counts */
    says(&args, 1, all);
    args.no_peer_access = 1;
    says(
        &args, 0,
        "not all of the gpu devices are linked directly or by PCIe without the CPUs in "
        "between");
    args.device = (dlc_device *)(void *)&device;
    ops.can_access_peer = NULL; /* each can access each */
    says(&args, 1, all);
    ops.can_access_peer = third_apart;
    place[0].device_index = 9;
    dlc_transport_prediction made = {.size = sizeof made};
    char reason[128];
    ck_assert_int_eq(p2p->predict(&args, &made, reason, sizeof reason), DLC_ERR_DEVICE);
    plugins_close();
}

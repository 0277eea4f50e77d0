/* Tests communicators of several levels: every layout of ranks over nodes and racks
 * gives the same bits with one transport, with its messages alone, with one transport
 * inside the nodes and one between them, and with a further one between racks. */
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/comm.h"
#include "comm/comm_internal.h"
#include "comm/machine_links.h"
#include "comm/team.h"
#include "config/config.h"
#include "support/plugins.h"
#include "support/ranks.h"
#include "support/reference.h"
#include "support/sanitized.h"
#include "support/test.h"

/* The most elements go through the levels in six parts, of which four may be started.
 */
enum { MOST_RANKS = 8, MOST = 1600007 };

typedef struct machine_layout {
    int ranks, even; /* even: nodes have equal numbers of ranks */
    int node[MOST_RANKS], rack[MOST_RANKS];
    int uneven_racks;
    int order[MOST_RANKS]; /* all 0: by rank */
} machine_layout;

static const machine_layout layouts[] = {
    {.ranks = 4, .even = 1, .node = {0, 0, 1, 1}},
    {.ranks = 4, .even = 1, .node = {7, 3, 7, 3}},
    {.ranks = 6, .even = 1, .node = {0, 0, 0, 1, 1, 1}},
    {.ranks = 6, .even = 1, .node = {2, 2, 1, 1, 0, 0}},
    {.ranks = 3, .node = {0, 0, 1}},
    {.ranks = 5, .node = {0, 1, 1, 1, 2}},
    {.ranks = 7, .node = {5, 5, 5, 9, 9, 9, 9}},
    {.ranks = 2, .even = 1, .node = {0, 1}},
    {.ranks = 8,
     .even = 1,
     .node = {0, 0, 1, 1, 2, 2, 3, 3},
     .rack = {0, 0, 0, 0, 1, 1, 1, 1}},
    {.ranks = 6, .even = 1, .node = {0, 1, 2, 3, 4, 5}, .rack = {0, 0, 0, 4, 4, 4}},
    {.ranks = 6,
     .even = 1,
     .node = {0, 0, 1, 1, 2, 2},
     .rack = {0, 0, 0, 0, 1, 1},
     .uneven_racks = 1},
    {.ranks = 7,
     .node = {0, 0, 1, 2, 2, 2, 3},
     .rack = {0, 0, 0, 1, 1, 1, 1},
     .uneven_racks = 1},
    {.ranks = 3, .even = 1, .node = {0, 1, 2}, .rack = {0, 1, 1}, .uneven_racks = 1},
    {.ranks = 4, .even = 1, .node = {0, 0, 0, 0}, .order = {0, 2, 1, 3}},
    {.ranks = 6,
     .even = 1,
     .node = {0, 1, 0, 1, 0, 1},
     .rack = {0, 1, 0, 1, 0, 1},
     .order = {0, 3, 2, 5, 1, 4}},
    {.ranks = 5, .even = 1, .node = {0, 1, 2, 3, 4}, .order = {3, 1, 4, 0, 2}},
    {.ranks = 8,
     .node = {4, 2, 2, 4, 0, 4, 2, 4},
     .rack = {1, 0, 0, 1, 1, 1, 0, 1},
     .order = {3, 0, 1, 4, 7, 5, 2, 6}},
    {.ranks = 7,
     .node = {0, 0, 0, 1, 2, 2, 3},
     .rack = {0, 0, 0, 0, 0, 0, 1},
     .uneven_racks = 1},
};
enum { LAYOUTS = sizeof layouts / sizeof *layouts };

static const size_t counts[] = {1, 3, 5, 100, 2048, 2049, 16385, 40001};
enum { COUNTS = sizeof counts / sizeof *counts };

/* How the ranks are connected. */
enum { TWO_LEVELS, ONE_LEVEL, ONE_LEVEL_MESSAGES, THREE_LEVELS, MODES };

typedef struct fixture {
    test_rank *rank;
    const machine_layout *layout;
    int mode;
    dlc_comm *comm;
    dlc_settings *settings;
    float *buffer;
} fixture;

static const dlc_transport_ops *original; /* wrapped by messages_only */
static int sends;                         /* of this rank */

static dlc_status count_send(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag,
                             const void *buffer, size_t bytes, dlc_request **request) {
    sends++;
    return original->send(endpoint, peer, tag, buffer, bytes, request);
}

static const dlc_feature *messages_only(const dlc_feature *feature) {
    static dlc_transport_ops ops;
    static dlc_feature limited;
    original = feature->ops;
    memcpy(&ops, original, sizeof ops);
    ops.size = offsetof(dlc_transport_ops, wait_any);
    ops.send = count_send;
    limited = *feature;
    limited.ops = &ops;
    return &limited;
}

static void fill_rank_info(const machine_layout *layout, dlc_rank_info *rank_info) {
    for (int r = 0; r < layout->ranks; r++) {
        rank_info[r] = (dlc_rank_info){.size = sizeof *rank_info,
                                       .node = layout->node[r],
                                       .order = layout->order[r]};
        rank_info[r].domain[DLC_DOMAIN_RACK] = layout->rack[r];
    }
}

static void put_levels(int mode, dlc_comm_args *args) {
    static const dlc_domain_level end[] = {DLC_DOMAIN_MACHINE, DLC_DOMAIN_RACK};
    int below = mode == THREE_LEVELS ? 2 : mode == TWO_LEVELS;
    args->levels = below + 1;
    args->level[0].within = DLC_DOMAIN_JOB;
    for (int i = 0; i < below; i++) {
        args->level[i + 1] = args->level[i];
        args->level[i].within = end[i];
    }
}

static void fixture_open(fixture *b, test_rank *rank, const machine_layout *layout,
                         int mode) {
    const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, "host-staged");
    dlc_rank_info rank_info[MOST_RANKS];

    *b = (fixture){.rank = rank, .layout = layout, .mode = mode};
    b->settings = plugin_settings(feature, NULL);
    fill_rank_info(layout, rank_info);
    if (mode == ONE_LEVEL_MESSAGES)
        feature = messages_only(feature);
    dlc_comm_args args = {.level = {{feature, b->settings, DLC_DOMAIN_JOB}},
                          .rank = rank->rank,
                          .ranks = rank->ranks,
                          .rank_info = rank_info,
                          .device_ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops,
                          .device = {.size = sizeof args.device, .threads = 1},
                          .job = rank,
                          .oob_all_gather = ranks_all_gather,
                          .check = ranks_check};
    put_levels(mode, &args);
    RANK_OK(rank, dlc_comm_open(&args, &b->comm));
    b->buffer = dlc_alloc(MOST + 1, sizeof *b->buffer);
    RANK_CHECK(rank, b->buffer);
}

static void fixture_close(fixture *b) {
    dlc_comm_close(b->comm);
    dlc_settings_free(b->settings);
    dlc_free(b->buffer);
    plugins_close();
}

static void put(fixture *b, uint64_t salt, size_t count) {
    reference_fill(salt, b->rank->rank, count, b->buffer);
    b->buffer[count] = 42.0f;
}

/* Sums pairwise in rank_info; an odd operand is passed up, as in a tree with missing
 * leaves. */
static float pairwise(float *value, int count) {
    for (int stride = 1; stride < count; stride *= 2)
        for (int i = 0; i + stride < count; i += 2 * stride)
            value[i] += value[i + stride];
    return value[0];
}

/* The ranks in their order. */
static void sorted(const machine_layout *layout, int *rank) {
    for (int r = 0; r < layout->ranks; r++) {
        int at = r;
        for (; at > 0 && layout->order[rank[at - 1]] > layout->order[r]; at--)
            rank[at] = rank[at - 1];
        rank[at] = r;
    }
}

/* Whether an earlier one of the first `count` ranks has the same number. */
static int is_seen(const int *number, const int *rank, int count) {
    for (int i = 0; i < count; i++)
        if (number[rank[i]] == number[rank[count]])
            return 1;
    return 0;
}

static float sum_of_node(const machine_layout *layout, uint64_t salt, size_t i,
                         const int *rank, int node) {
    float value[MOST_RANKS] = {0};
    int count = 0;
    for (int q = 0; q < layout->ranks; q++)
        if (layout->node[rank[q]] == node)
            value[count++] = reference_value(salt, rank[q], i);
    return pairwise(value, count);
}

static float sum_of_rack(const machine_layout *layout, uint64_t salt, size_t i,
                         const int *rank, int rack) {
    float sum[MOST_RANKS] = {0};
    int nodes = 0;
    for (int q = 0; q < layout->ranks; q++)
        if (layout->rack[rank[q]] == rack && !is_seen(layout->node, rank, q))
            sum[nodes++] = sum_of_node(layout, salt, i, rank, layout->node[rank[q]]);
    return pairwise(sum, nodes);
}

static float expected(const machine_layout *layout, uint64_t salt, size_t i) {
    float sum[MOST_RANKS];
    int rank[MOST_RANKS], racks = 0;
    sorted(layout, rank);
    for (int q = 0; q < layout->ranks; q++)
        if (!is_seen(layout->rack, rank, q))
            sum[racks++] = sum_of_rack(layout, salt, i, rank, layout->rack[rank[q]]);
    return pairwise(sum, racks);
}

static void check_range(const fixture *b, uint64_t salt, size_t begin, size_t end) {
    for (size_t i = begin; i < end; i++) {
        float right = expected(b->layout, salt, i);
        RANK_CHECK(b->rank, memcmp(&right, &b->buffer[i], sizeof right) == 0);
    }
}

static void check_reductions(fixture *b, size_t count, uint64_t salt) {
    size_t begin = 0, end = 0;

    put(b, salt, count);
    RANK_OK(b->rank, dlc_comm_all_reduce(b->comm, b->buffer, count));
    check_range(b, salt, 0, count);

    put(b, salt + 1, count);
    dlc_comm_shard(b->comm, count, &begin, &end);
    RANK_CHECK(b->rank, begin <= end && end <= count);
    RANK_OK(b->rank, dlc_comm_reduce_scatter(b->comm, b->buffer, count));
    check_range(b, salt + 1, begin, end);
    RANK_OK(b->rank, dlc_comm_all_gather(b->comm, b->buffer, count));
    check_range(b, salt + 1, 0, count);
    RANK_CHECK(b->rank, b->buffer[count] == 42.0f);
}

static void broadcasts(fixture *b, size_t count, uint64_t salt) {
    for (int root = 0; root < b->rank->ranks; root++) {
        put(b, salt, count);
        RANK_OK(b->rank,
                dlc_comm_broadcast(b->comm, root, b->buffer, count * sizeof(float)));
        for (size_t i = 0; i < count; i++)
            RANK_CHECK(b->rank, b->buffer[i] == reference_value(salt, root, i));
        RANK_OK(b->rank, dlc_comm_barrier(b->comm));
    }
}

static void same_bits_body(test_rank *rank, void *context) {
    const int *which = context;
    fixture b;
    fixture_open(&b, rank, &layouts[which[0]], which[1]);
    int one = b.mode == ONE_LEVEL || b.mode == ONE_LEVEL_MESSAGES;
    int shards = one ||
                 (b.layout->even && (b.mode == TWO_LEVELS || !b.layout->uneven_racks));
    RANK_CHECK(rank, dlc_comm_has_shards(b.comm) == shards);
    for (size_t i = 0; i < COUNTS; i++)
        check_reductions(&b, counts[i], 10 * i);
    broadcasts(&b, 777, 5);
    fixture_close(&b);
}

static int is_tested(const machine_layout *layout) {
    return !SANITIZED || layout->ranks < 6;
}

TEST_SETTINGS(.timeout = 120);

TEST_EACH(same_bits, LAYOUTS *MODES) {
    int which[] = {_i / MODES, _i % MODES};
    if (!is_tested(&layouts[which[0]]))
        return;
    ck_assert_msg(ranks_run(layouts[which[0]].ranks, 60, same_bits_body, which) == 0,
                  "layout %d, mode %d", which[0], which[1]);
}

/* Large buffers are reduced in parts, the outermost level by another thread. */
static void parts_body(test_rank *rank, void *context) {
    const int *which = context;
    fixture b;
    fixture_open(&b, rank, &layouts[which[0]], which[1]);
    for (uint64_t salt = 1; salt < 3; salt++) {
        put(&b, salt, MOST);
        RANK_OK(rank, dlc_comm_all_reduce(b.comm, b.buffer, MOST));
        for (size_t i = 0; i < MOST; i += 101)
            check_range(&b, salt, i, i + 1);
        check_range(&b, salt, MOST - 100, MOST);
        RANK_CHECK(rank, b.buffer[MOST] == 42.0f);
    }
    fixture_close(&b);
}

TEST_EACH(parts, 4) {
    static const int cases[][2] = {
        {0, TWO_LEVELS}, {5, TWO_LEVELS}, {8, THREE_LEVELS}, {11, THREE_LEVELS}};
    int which[] = {cases[_i][0], cases[_i][1]};
    if (is_tested(&layouts[which[0]]))
        ck_assert_int_eq(ranks_run(layouts[which[0]].ranks, 60, parts_body, which), 0);
}

/* One rank dies; the others, which wait for it on either level, get an error. */
static void lost_between_parts_body(test_rank *rank, void *context) {
    (void)context;
    fixture b;
    fixture_open(&b, rank, &layouts[0], TWO_LEVELS);
    put(&b, 1, MOST);
    if (rank->rank == 3)
        ranks_end(rank);
    else
        RANK_CHECK(rank, dlc_comm_all_reduce(b.comm, b.buffer, MOST) == DLC_ERR_PEER);
    fixture_close(&b);
}

TEST(lost_between_parts) {
    ck_assert_int_eq(ranks_run(4, 30, lost_between_parts_body, NULL), 0);
}

/* Each of two ranks sends a buffer in one message if they are on two nodes, and in two
 * halves if they share one. */
static void messages_per_all_reduce_body(test_rank *rank, void *context) {
    const machine_layout *layout = context;
    int two_nodes = layout->node[0] != layout->node[1];
    fixture b;
    fixture_open(&b, rank, layout, ONE_LEVEL_MESSAGES);
    for (size_t i = 0; i < COUNTS; i++) {
        sends = 0;
        put(&b, i, counts[i]);
        RANK_OK(rank, dlc_comm_all_reduce(b.comm, b.buffer, counts[i]));
        check_range(&b, i, 0, counts[i]);
        RANK_CHECK(rank, sends == (two_nodes || counts[i] <= 2048 ? 1 : 2));
    }
    fixture_close(&b);
}

TEST_EACH(messages_per_all_reduce, 2) {
    machine_layout layout = {.ranks = 2, .even = 1, .node = {0, _i}};
    ck_assert_int_eq(ranks_run(2, 60, messages_per_all_reduce_body, &layout), 0);
}

/* The ranks' shards cover a buffer and don't overlap. */
static void shards_body(test_rank *rank, void *context) {
    const machine_layout *layout = context;
    char *owners = rank->shared;
    fixture b;
    fixture_open(&b, rank, layout, layout->uneven_racks ? TWO_LEVELS : THREE_LEVELS);
    for (size_t count = 0; count < 40; count++) {
        size_t begin = 0, end = 0;
        dlc_comm_shard(b.comm, count, &begin, &end);
        for (size_t i = begin; i < end; i++)
            __atomic_fetch_add(&owners[count * 64 + i], 1, __ATOMIC_SEQ_CST);
    }
    ranks_barrier(rank);
    for (size_t count = 0; count < 40; count++)
        for (size_t i = 0; i < count; i++)
            RANK_CHECK(rank, owners[count * 64 + i] == 1);
    fixture_close(&b);
}

TEST_EACH(shards, LAYOUTS) {
    machine_layout copy = layouts[_i];
    if (is_tested(&copy) && copy.even)
        ck_assert_int_eq(ranks_run(copy.ranks, 60, shards_body, &copy), 0);
}

/* No rank leaves a barrier before the last has come. Each is the last in turn. */
static void barriers_body(test_rank *rank, void *context) {
    const int *which = context;
    int *came = (int *)(void *)rank->shared;
    fixture b;
    fixture_open(&b, rank, &layouts[which[0]], which[1]);
    for (int round = 1; round <= rank->ranks; round++) {
        if (rank->rank == round - 1)
            (void)usleep(3000);
        __atomic_fetch_add(came, 1, __ATOMIC_SEQ_CST);
        RANK_OK(rank, dlc_comm_barrier(b.comm));
        RANK_CHECK(rank,
                   __atomic_load_n(came, __ATOMIC_SEQ_CST) >= round * rank->ranks);
    }
    fixture_close(&b);
}

TEST_EACH(barriers, LAYOUTS * 2) {
    int which[] = {_i / 2, _i % 2 ? TWO_LEVELS : THREE_LEVELS};
    if (is_tested(&layouts[which[0]]))
        ck_assert_msg(ranks_run(layouts[which[0]].ranks, 60, barriers_body, which) == 0,
                      "layout %d, mode %d", which[0], which[1]);
}

/* ---- Bandwidths between machines ------------------------------------------------- */

/* Even and odd numbers of machines, with one rank and with several, also unlike and not
 * in order. */
static const machine_layout clusters[] = {
    {.ranks = 4, .node = {0, 1, 2, 3}},
    {.ranks = 5, .node = {0, 1, 2, 3, 4}},
    {.ranks = 8, .node = {0, 1, 2, 3, 4, 0, 2, 4}},
    {.ranks = 7, .node = {0, 1, 1, 2, 3, 3, 4}, .order = {6, 5, 4, 3, 2, 1, 0}},
    {.ranks = 3, .node = {0, 1, 2}}, /* too few to measure */
};
enum { CLUSTERS = sizeof clusters / sizeof *clusters };

static void check_links(const test_rank *rank, const dlc_machine_links *links) {
    int32_t n = links->machines;
    for (int32_t a = 0; a < n; a++)
        for (int32_t b = 0; b < n; b++) {
            double its = links->bandwidth[a * n + b];
            RANK_CHECK(rank, a == b ? !(its > 0) : its > 0);
            RANK_CHECK(rank,
                       memcmp(&its, &links->bandwidth[b * n + a], sizeof its) == 0);
        }
}

static void links_body(test_rank *rank, void *context) {
    const machine_layout *layout = context;
    const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, "host-staged");
    dlc_settings *settings = plugin_settings(feature, NULL);
    dlc_rank_info rank_info[MOST_RANKS];
    dlc_machine_links links = {.machines = 0};
    dlc_comm *comm = NULL;
    int32_t machines = 0;
    fill_rank_info(layout, rank_info);
    for (int r = 0; r < layout->ranks; r++)
        machines = layout->node[r] >= machines ? layout->node[r] + 1 : machines;
    dlc_comm_args args = {.level = {{feature, settings, DLC_DOMAIN_JOB}},
                          .rank = rank->rank,
                          .ranks = rank->ranks,
                          .rank_info = rank_info,
                          .device_ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops,
                          .device = {.size = sizeof args.device, .threads = 1},
                          .job = rank,
                          .oob_all_gather = ranks_all_gather,
                          .check = ranks_check};
    dlc_device *device = NULL;
    put_levels(TWO_LEVELS, &args);
    RANK_OK(rank, args.device_ops->open(&args.device, &device));
    RANK_OK(rank, dlc_comm_open(&args, &comm));
    RANK_OK(rank, dlc_machine_links_measure(&args, device, comm, &links));
    RANK_CHECK(rank, links.machines == (machines < 4 ? 0 : machines));
    check_links(rank, &links);
    RANK_CHECK(rank, comm->deadline == 0); /* later waits may take any time */
    RANK_OK(rank, dlc_comm_barrier(comm));
    dlc_machine_links_free(&links, &args, device);
    dlc_comm_close(comm);
    args.device_ops->close(device);
    dlc_settings_free(settings);
    plugins_close();
}

TEST_EACH(links_between_machines, CLUSTERS) {
    machine_layout copy = clusters[_i];
    if (is_tested(&copy))
        ck_assert_int_eq(ranks_run(copy.ranks, 60, links_body, &copy), 0);
}

/* ---- Ends ------------------------------------------------------------------------ */

static void cancelled_body(test_rank *rank, void *context) {
    size_t count = *(const size_t *)context;
    fixture b;
    fixture_open(&b, rank, &layouts[0], TWO_LEVELS);
    if (rank->rank == 0) {
        dlc_comm_cancel(b.comm);
        put(&b, 1, count);
        RANK_CHECK(rank,
                   dlc_comm_all_reduce(b.comm, b.buffer, count) == DLC_ERR_CANCELLED);
    }
    ranks_barrier(rank);
    fixture_close(&b);
}

TEST_EACH(cancelled, 2) {
    size_t count = _i ? MOST : 5000;
    ck_assert_int_eq(ranks_run(4, 30, cancelled_body, &count), 0);
}

/* If a rank dies while the teams are being opened, opening fails on all others. */
static void lost_peer_body(test_rank *rank, void *context) {
    (void)context;
    fixture b = {0};
    const machine_layout *layout = &layouts[5];
    dlc_rank_info rank_info[MOST_RANKS];
    if (rank->rank == 2) {
        ranks_end(rank);
        return;
    }
    const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, "host-staged");
    b.settings = plugin_settings(feature, NULL);
    fill_rank_info(layout, rank_info);
    dlc_comm_args args = {.level = {{feature, b.settings, DLC_DOMAIN_JOB}},
                          .rank = rank->rank,
                          .ranks = rank->ranks,
                          .rank_info = rank_info,
                          .device_ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops,
                          .device = {.size = sizeof args.device, .threads = 1},
                          .job = rank,
                          .oob_all_gather = ranks_all_gather,
                          .check = ranks_check};
    put_levels(TWO_LEVELS, &args);
    RANK_CHECK(rank, dlc_comm_open(&args, &b.comm) == DLC_ERR_PEER);
    dlc_settings_free(b.settings);
    plugins_close();
}

TEST(lost_peer) {
    ck_assert_int_eq(ranks_run(5, 30, lost_peer_body, NULL), 0);
}

static dlc_status open_some(const dlc_transport_args *args, dlc_endpoint **endpoint) {
    if (args->rank == 1)
        return dlc_fail(DLC_ERR_UNAVAILABLE, "no adapter");
    return original->open(args, endpoint);
}

/* If one rank cannot open a level, it fails on all, also in teams that could. */
static void failed_peer_body(test_rank *rank, void *context) {
    (void)context;
    const machine_layout *layout = &layouts[4]; /* nodes of two ranks and of one */
    dlc_rank_info rank_info[MOST_RANKS];
    dlc_transport_ops ops = {.size = 0};
    const dlc_feature *feature = plugin_find(DLC_KIND_TRANSPORT, "host-staged");
    dlc_feature fails = *feature;
    dlc_settings *settings = plugin_settings(feature, NULL);
    dlc_comm *comm = NULL;
    int32_t failed = -1;
    original = feature->ops;
    memcpy(&ops, original, sizeof ops);
    ops.open = open_some;
    fails.ops = &ops;
    fill_rank_info(layout, rank_info);
    dlc_comm_args args = {.level = {{&fails, settings, DLC_DOMAIN_JOB}},
                          .rank = rank->rank,
                          .ranks = rank->ranks,
                          .rank_info = rank_info,
                          .device_ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops,
                          .device = {.size = sizeof args.device, .threads = 1},
                          .job = rank,
                          .oob_all_gather = ranks_all_gather,
                          .check = ranks_check};
    put_levels(TWO_LEVELS, &args);
    dlc_status status = dlc_comm_try_open(&args, &comm, &failed);
    RANK_CHECK(rank, failed == 0);
    RANK_CHECK(rank, status == (rank->rank == 1 ? DLC_ERR_UNAVAILABLE : DLC_ERR_PEER));
    args.level[0].feature = feature;
    args.level[1].feature = feature;
    RANK_OK(rank, dlc_comm_try_open(&args, &comm, &failed)); /* another choice may do */
    dlc_comm_close(comm);
    dlc_settings_free(settings);
    plugins_close();
}

TEST(failed_peer) {
    ck_assert_int_eq(ranks_run(3, 30, failed_peer_body, NULL), 0);
}

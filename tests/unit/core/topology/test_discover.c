/* Tests the discovery of this machine, and what fake device plugins add to its graph.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "support/test.h"
#include "topology/discover.h"
#include "topology/graph.h"
#include "topology/link.h"
#include "topology/route.h"

static dlc_topo topo;

static void teardown(void) {
    dlc_topo_free(&topo);
}

TEST_SETTINGS(.name = "this machine", .teardown = teardown);

TEST(this_machine) {
    char host[64] = "";
    ck_assert_msg(dlc_topo_discover(&topo) == DLC_OK, "%s", dlc_detail());
    gethostname(host, sizeof host - 1);
    ck_assert_str_eq(topo.node[0].name, host);
    ck_assert_uint_eq(dlc_topo_count(&topo, -1, DLC_TOPO_MACHINE), 1);
    ck_assert_uint_ge(dlc_topo_count(&topo, -1, DLC_TOPO_CORE), 1);
    for (size_t i = 1; i < topo.nodes; i++) {
        ck_assert_int_ge(topo.node[i].parent, 0);
        ck_assert_int_lt(topo.node[i].parent, (int32_t)i);
    }
}

/* ---- Devices ------------------------------------------------------------------- */

enum { DEVICES = 4, LINKS_MOST = 4 };

/* A fake plugin with four devices: two are PCI devices of the graph, two are unknown to
 * hwloc. Each test sets their links. */
static int32_t device_count = DEVICES;
static dlc_status count_status = DLC_OK;
static dlc_link device_link[DEVICES][LINKS_MOST];
static int32_t link_count[DEVICES];

static dlc_status count(int32_t *number) {
    if (count_status != DLC_OK)
        return dlc_fail(count_status, "the driver sleeps");
    *number = device_count;
    return DLC_OK;
}

static dlc_status describe(int32_t index, dlc_device_info *info) {
    snprintf(info->name, sizeof info->name, "Abacus %d", index);
    snprintf(info->address, sizeof info->address, "00000000:%02X:00.0", 0xa0 + index);
    info->numa = index / 2;
    return DLC_OK;
}

static dlc_status links(int32_t index, dlc_link *list, int32_t room, int32_t *number) {
    for (int32_t i = 0; i < room && i < link_count[index]; i++) {
        ck_assert_uint_eq(list[i].size, sizeof *list);
        list[i] = device_link[index][i];
    }
    *number = link_count[index];
    return DLC_OK;
}

static const dlc_device_ops ops = {
    .size = sizeof ops, .count = count, .describe = describe, .links = links};
static const dlc_feature feature = {.size = sizeof feature,
                                    .kind = DLC_KIND_DEVICE,
                                    .name = "abacus",
                                    .help = "for tests",
                                    .ops = &ops};

/* A plugin built before `links` existed. */
static const dlc_device_ops old_ops = {.size = offsetof(dlc_device_ops, links),
                                       .count = count,
                                       .describe = describe,
                                       .links = links};
static const dlc_feature old_feature = {.size = sizeof feature,
                                        .kind = DLC_KIND_DEVICE,
                                        .name = "abacus",
                                        .help = "for tests",
                                        .ops = &old_ops};

/* A machine with two NUMA nodes and two of the devices on PCI. */
static void setup(void) {
    device_count = DEVICES;
    count_status = DLC_OK;
    memset(link_count, 0, sizeof link_count);
    ck_assert_ptr_nonnull(dlc_topo_add(&topo, DLC_TOPO_MACHINE, -1));
    for (int32_t numa = 0; numa < 2; numa++) {
        ck_assert_ptr_nonnull(dlc_topo_add(&topo, DLC_TOPO_PACKAGE, 0));
        topo.node[dlc_topo_last(&topo)].package = numa;
        int32_t package = dlc_topo_last(&topo);
        ck_assert_ptr_nonnull(dlc_topo_add(&topo, DLC_TOPO_NUMA, package));
        topo.node[dlc_topo_last(&topo)].numa = numa;
    }
    ck_assert_ptr_nonnull(dlc_topo_add(&topo, DLC_TOPO_HOST_BRIDGE, 2));
    int32_t bridge = dlc_topo_last(&topo);
    for (int i = 0; i < 2; i++) {
        dlc_topo_node *node = dlc_topo_add(&topo, DLC_TOPO_OTHER, bridge);
        ck_assert_ptr_nonnull(node);
        snprintf(node->address, sizeof node->address, "0000:a%d:00.0", i);
    }
}

static void add_link(int32_t from, uint32_t end, const char *peer, int32_t links) {
    dlc_link *link = &device_link[from][link_count[from]++];
    *link = (dlc_link){.size = sizeof *link,
                       .kind = DLC_LINK_NVLINK,
                       .end = end,
                       .width = links,
                       .gbs = 25.0f * (float)links};
    snprintf(link->peer, sizeof link->peer, "%s", peer);
}

static int32_t device(size_t n) {
    return dlc_topo_nth(&topo, 0, DLC_TOPO_GPU, n);
}

static dlc_topo_path between(size_t a, size_t b) {
    return dlc_topo_path_between(&topo, device(a), device(b));
}

TEST_SETTINGS(.name = "made up", .setup = setup, .teardown = teardown);

TEST(devices_are_merged) {
    ck_assert_int_eq(dlc_topo_add_devices(&topo, 0, &feature), DLC_OK);
    ck_assert_uint_eq(dlc_topo_count(&topo, 0, DLC_TOPO_GPU), DEVICES);
    ck_assert_uint_eq(dlc_topo_count(&topo, 0, DLC_TOPO_OTHER), 0);
    ck_assert_str_eq(topo.node[device(1)].name, "Abacus 1");
    ck_assert_str_eq(topo.node[device(1)].device, "abacus");
    ck_assert_int_eq(topo.node[device(3)].numa, 1);
    ck_assert_str_eq(topo.node[device(3)].address, "0000:a3:00.0");
    ck_assert_int_eq(between(0, 1).class, DLC_TOPO_PHB);
    ck_assert_int_eq(between(2, 3).class, DLC_TOPO_NODE);
    ck_assert_int_eq(between(0, 3).class, DLC_TOPO_SYS);
}

TEST(direct_links) {
    add_link(0, DLC_LINK_TO_DEVICE, "0000:a1:00.0", 4);
    add_link(1, DLC_LINK_TO_DEVICE, "A0:00.0", 2);      /* the smaller number is used */
    add_link(3, DLC_LINK_TO_DEVICE, "0000:a0:00.0", 1); /* one end is enough */
    ck_assert_int_eq(dlc_topo_add_devices(&topo, 0, &feature), DLC_OK);
    ck_assert_int_eq(between(0, 1).class, DLC_TOPO_NV);
    ck_assert_int_eq(between(0, 1).links, 2);
    ck_assert_float_eq(between(0, 1).gbs, 50);
    ck_assert_int_eq(between(0, 3).links, 1);
    ck_assert_int_eq(between(1, 3).class, DLC_TOPO_SYS);
}

TEST(links_through_switches) {
    for (int32_t i = 0; i < 3; i++) {
        add_link(i, DLC_LINK_TO_SWITCH, "0000:c0:00.0", 4);
        add_link(i, DLC_LINK_TO_SWITCH, "0000:c1:00.0", i == 2 ? 1 : 5);
    }
    add_link(3, DLC_LINK_TO_SWITCH, "0000:c2:00.0",
             9); /* no other device is connected */
    ck_assert_int_eq(dlc_topo_add_devices(&topo, 0, &feature), DLC_OK);
    ck_assert_uint_eq(dlc_topo_count(&topo, 0, DLC_TOPO_FABRIC), 3);
    ck_assert_int_eq(between(0, 1).links, 9);
    ck_assert_int_eq(between(0, 2).links, 5);
    ck_assert_int_eq(between(0, 3).class, DLC_TOPO_SYS);
}

TEST(switches_without_address) {
    for (int32_t i = 0; i < DEVICES; i++)
        add_link(i, DLC_LINK_TO_SWITCH, "", 18);
    ck_assert_int_eq(dlc_topo_add_devices(&topo, 0, &feature), DLC_OK);
    ck_assert_uint_eq(dlc_topo_count(&topo, 0, DLC_TOPO_FABRIC), 1);
    ck_assert_int_eq(between(0, 3).links, 18);
}

TEST(odd_links) {
    add_link(0, DLC_LINK_TO_CPU, "", 4);
    add_link(0, 77, "0000:a1:00.0", 4); /* a kind of end from a later version */
    add_link(0, DLC_LINK_TO_DEVICE, "0000:a0:00.0", 4); /* to itself */
    add_link(0, DLC_LINK_TO_DEVICE, "elsewhere", 4);
    add_link(1, DLC_LINK_TO_DEVICE, "0000:a2:00.0", -3);
    device_link[1][0].kind = 99;
    memset(device_link[2], 'x', sizeof device_link[2][0].peer); /* not counted */
    ck_assert_int_eq(dlc_topo_add_devices(&topo, 0, &feature), DLC_OK);
    ck_assert_uint_eq(topo.notes, 2);
    ck_assert_uint_eq(topo.links, 1);
    ck_assert_uint_eq(topo.link[0].kind, DLC_LINK_OTHER);
    ck_assert_int_eq(topo.link[0].count, 1);
}

TEST(plugins_without_links) {
    add_link(0, DLC_LINK_TO_DEVICE, "0000:a1:00.0", 4);
    ck_assert_int_eq(dlc_topo_add_devices(&topo, 0, &old_feature), DLC_OK);
    ck_assert_uint_eq(dlc_topo_count(&topo, 0, DLC_TOPO_GPU), DEVICES);
    ck_assert_uint_eq(topo.links, 0);
}

TEST(plugins_that_fail) {
    count_status = DLC_ERR_UNAVAILABLE;
    ck_assert_int_eq(dlc_topo_add_devices(&topo, 0, &feature), DLC_OK);
    ck_assert_uint_eq(topo.notes, 1);
    ck_assert_str_eq(topo.note[0], "abacus: the driver sleeps");
}

/* ---- Ranks --------------------------------------------------------------------- */

static dlc_rank_info place(const char *name, int32_t index, int32_t package,
                           int32_t numa) {
    dlc_rank_info made = {
        .size = sizeof made, .device_index = index, .package = package, .numa = numa};
    snprintf(made.device, sizeof made.device, "%s", name);
    return made;
}

static int32_t add_rank(int32_t rank, dlc_rank_info at) {
    ck_assert_int_eq(dlc_topo_add_rank(&topo, 0, rank, &at), DLC_OK);
    return dlc_topo_last(&topo);
}

TEST(ranks_are_placed) {
    ck_assert_int_eq(dlc_topo_add_devices(&topo, 0, &feature), DLC_OK);
    int32_t on_device = add_rank(0, place("abacus", 1, -1, -1));
    int32_t in_numa = add_rank(1, place("cpu", 0, 1, 1));
    int32_t in_package = add_rank(2, place("cpu", 0, 1, -1));
    int32_t anywhere = add_rank(3, place("cpu", 0, -1, -1));
    dlc_rank_info small = place("cpu", 0, 1, 1); /* built before `package` existed */
    small.size = offsetof(dlc_rank_info, package);
    int32_t older = add_rank(4, small);
    ck_assert_int_eq(topo.node[on_device].parent, device(1));
    ck_assert_int_eq(topo.node[topo.node[in_numa].parent].kind, DLC_TOPO_NUMA);
    ck_assert_int_eq(topo.node[in_numa].numa, 1);
    ck_assert_int_eq(topo.node[topo.node[in_package].parent].kind, DLC_TOPO_PACKAGE);
    ck_assert_int_eq(topo.node[anywhere].parent, 0);
    ck_assert_int_eq(topo.node[older].parent, 0);
    ck_assert_int_eq(dlc_topo_path_between(&topo, in_numa, in_package).class,
                     DLC_TOPO_SHM);
    ck_assert_int_eq(dlc_topo_path_between(&topo, in_numa, older).class, DLC_TOPO_SHM);
    ck_assert_int_eq(dlc_topo_path_between(&topo, on_device, in_numa).class,
                     DLC_TOPO_SYS);
}

TEST(ranks_that_share_a_device) {
    ck_assert_int_eq(dlc_topo_add_devices(&topo, 0, &feature), DLC_OK);
    int32_t a = add_rank(0, place("abacus", 1, -1, -1));
    int32_t b = add_rank(1, place("abacus", 1, -1, -1));
    int32_t c = add_rank(2, place("cpu", 0, 0, 0));
    int32_t d = add_rank(3, place("cpu", 0, 0, 0));
    ck_assert_int_eq(dlc_topo_path_between(&topo, a, b).class, DLC_TOPO_X);
    ck_assert_int_eq(dlc_topo_path_between(&topo, c, d).class, DLC_TOPO_SHM);
    ck_assert_int_eq(dlc_topo_path_between(&topo, c, c).class, DLC_TOPO_X);
}

/* ---- Graphs made by hand
 * ------------------------------------------------------------------- */

TEST(texts_are_truncated) {
    char room[4];
    dlc_topo_text(room, sizeof room, "abc");
    ck_assert_str_eq(room, "abc");
    dlc_topo_text(room, sizeof room, "abcd");
    ck_assert_str_eq(room, "abc");
    dlc_topo_text(room, sizeof room, "a\033\177");
    ck_assert_str_eq(room, "a??");
}

static int32_t put_node(dlc_topo_kind kind, int32_t parent, float gbs) {
    dlc_topo_node *node = dlc_topo_add(&topo, kind, parent);
    ck_assert_ptr_nonnull(node);
    node->gbs = gbs;
    return dlc_topo_last(&topo);
}

static int32_t put_nic(int32_t parent, float speed) {
    int32_t nic = put_node(DLC_TOPO_NIC, parent, 16);
    topo.node[nic].speed = speed;
    return nic;
}

/* The bandwidth of a path is the lowest of all its edges, on both sides. */
TEST(lowest_bandwidth) {
    int32_t bridge = put_node(DLC_TOPO_HOST_BRIDGE, 2, 0);
    int32_t upper = put_node(DLC_TOPO_SWITCH, bridge, 8);
    int32_t a = put_node(DLC_TOPO_GPU, upper, 16),
            b = put_node(DLC_TOPO_GPU, bridge, 4);
    int32_t c = put_node(DLC_TOPO_GPU, bridge, 32);
    ck_assert_float_eq(dlc_topo_path_between(&topo, a, b).gbs, 4);
    ck_assert_float_eq(dlc_topo_path_between(&topo, b, a).gbs, 4);
    ck_assert_float_eq(dlc_topo_path_between(&topo, a, c).gbs, 8);
    ck_assert_float_eq(dlc_topo_path_between(&topo, c, a).gbs, 8);
}

static void expect_nic(int32_t end, int32_t nic) {
    dlc_topo_path path = {0};
    ck_assert_int_eq(dlc_topo_route_nic(&topo, end, &path), nic);
}

/* The fastest of the nearest adapters is chosen; ends of a kind are distributed over
 * equal ones. */
TEST(fastest_of_the_nearest) {
    int32_t bridge = put_node(DLC_TOPO_HOST_BRIDGE, 2, 0), nic[4], gpu[3];
    int32_t other = put_node(DLC_TOPO_OTHER, bridge, 16);
    for (int i = 0; i < 4; i++)
        nic[i] = put_nic(bridge, i % 2 ? 25 : 12.5f);
    for (int i = 0; i < 3; i++)
        gpu[i] = put_node(DLC_TOPO_GPU, bridge, 16);
    expect_nic(gpu[0], nic[1]);
    expect_nic(gpu[1], nic[3]);
    expect_nic(gpu[2], nic[1]);
    expect_nic(other, nic[1]);
}

/* Links between devices of two machines are refused. */
TEST(no_links_between_machines) {
    unsigned char *bytes = NULL;
    size_t size = 0, nodes = topo.nodes;
    int32_t here = put_node(DLC_TOPO_GPU, 0, 16);
    int32_t elsewhere = put_node(DLC_TOPO_MACHINE, -1, 0);
    int32_t there = put_node(DLC_TOPO_GPU, elsewhere, 16);
    for (int i = 0; i < 2; i++) {
        dlc_topo read = {0};
        topo.links = 0;
        ck_assert_int_eq(dlc_topo_add_link(&topo, i ? there : here, i ? here : there,
                                           DLC_LINK_NVLINK, 1, 25),
                         DLC_OK);
        ck_assert_int_eq(dlc_topo_pack(&topo, &bytes, &size), DLC_OK);
        ck_assert_int_eq(dlc_topo_unpack(bytes, size, &read), DLC_ERR_DATA);
        ck_assert_uint_eq(read.nodes, 0);
        dlc_free(bytes);
        dlc_topo_free(&read);
    }
    ck_assert_uint_eq(topo.nodes, nodes + 3);
}

/* A second link of a kind between two devices adds to the first. */
TEST(links_add_up) {
    int32_t a = put_node(DLC_TOPO_GPU, 0, 16), b = put_node(DLC_TOPO_GPU, 0, 16);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(dlc_topo_add_link(&topo, a, b, DLC_LINK_NVLINK, 100, 5),
                         DLC_OK);
    ck_assert_uint_eq(topo.links, 1);
    ck_assert_int_eq(topo.link[0].count, DLC_TOPO_LINK_COUNT_MAX);
    ck_assert_float_eq(topo.link[0].gbs, 15);
    ck_assert_int_eq(dlc_topo_add_link(&topo, b, a, DLC_LINK_NVLINK, 2, 5), DLC_OK);
    ck_assert_int_eq(dlc_topo_add_link(&topo, b, a, DLC_LINK_NVLINK, 3, 5), DLC_OK);
    ck_assert_uint_eq(topo.links, 2);
    ck_assert_int_eq(topo.link[1].count, 5);
}

/* ---- Out of memory ------------------------------------------------------ */

TEST(memory_runs_out) {
    unsigned char *bytes = NULL;
    size_t size = 0, fails = 0;
    add_link(0, DLC_LINK_TO_SWITCH, "", 18);
    add_link(1, DLC_LINK_TO_DEVICE, "nowhere", 1);
    for (size_t n = 1; n < 1000; n++) {
        dlc_topo found = {0};
        dlc_memory_fail_at(n);
        dlc_status status = dlc_topo_discover(&found);
        if (status == DLC_OK)
            status = dlc_topo_add_devices(&found, 0, &feature);
        if (status == DLC_OK)
            status = dlc_topo_pack(&found, &bytes, &size);
        if (status == DLC_OK)
            status = dlc_topo_unpack(bytes, size, &found);
        dlc_memory_fail_at(0);
        dlc_free(bytes);
        bytes = NULL;
        dlc_topo_free(&found);
        if (status == DLC_OK)
            break;
        ck_assert_int_eq(status, DLC_ERR_NOMEM);
        fails++;
    }
    ck_assert_uint_ge(fails, 10);
    ck_assert_uint_lt(fails, 990);
}

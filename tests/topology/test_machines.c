/* Tests recorded machines: their parts, links, routes and nearest adapters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "support/test.h"
#include "topology/graph.h"
#include "topology/read.h"
#include "topology/route.h"

/* The parts of a recorded machine. */
static const struct machine {
    const char *file;
    size_t machines, packages, numas, cores, switches, gpus, fabrics, nics, notes;
} machines[] = {
    {"hgx-h100.xml", 1, 0, 2, 0, 24, 8, 4, 8, 0},
    {"hgx-a100.xml", 1, 0, 4, 0, 4, 8, 6, 8, 0},
    {"dgx-1.xml", 1, 0, 2, 0, 4, 8, 0, 4, 0},
    {"mi300x.xml", 1, 0, 2, 0, 0, 8, 0, 0, 0},
    {"pcie-switches.xml", 1, 0, 1, 0, 2, 4, 0, 2, 0},
    {"pcie-plain.xml", 1, 0, 2, 0, 0, 4, 0, 1, 0},
    {"two-hosts.xml", 2, 0, 2, 0, 0, 2, 2, 2, 0},
    {"cloud-a100-4numa.xml", 1, 0, 4, 0, 4, 8, 0, 8, 0},
    {"cloud-h100-2numa.xml", 1, 0, 2, 0, 8, 8, 0, 8, 0},
    {"cloud-links-to-itself.xml", 1, 0, 4, 0, 0, 4, 0, 1, 4},
    {"cloud-a100-shared-nic.xml", 1, 0, 2, 0, 4, 8, 0, 4, 0},
    {"cloud-no-class.xml", 1, 0, 2, 0, 0, 0, 0, 0, 8},
    {"dual-socket.xml", 1, 2, 2, 8, 0, 0, 0, 2, 0},
    {"four-numa.xml", 1, 2, 4, 8, 0, 0, 0, 0, 0},
    {"pcie-box.xml", 1, 2, 2, 4, 2, 6, 0, 3, 0},
    {"virtual-machine.xml", 1, 0, 1, 2, 0, 2, 0, 1, 0},
    {"version-1.xml", 1, 2, 2, 4, 0, 2, 0, 1, 0},
    {"version-3.xml", 1, 1, 1, 2, 0, 2, 0, 1, 0},
    {"nvlink-bridges.xml", 1, 2, 2, 2, 0, 4, 0, 0, 0},
    {"nvswitch.xml", 1, 2, 2, 2, 0, 4, 1, 0, 0},
    {"numa-root.xml", 1, 2, 1, 2, 0, 0, 0, 1, 0},
};

/* The link between two GPUs and the route that is chosen. */
static const struct choice {
    const char *file;
    int a, b;
    const char *link, *way;
} choices[] = {
    {"hgx-h100.xml", 0, 1, "NV18", "p2p"},
    {"hgx-h100.xml", 0, 7, "NV18", "p2p"},
    {"hgx-h100.xml", 3, 3, "X", "p2p"},
    {"hgx-a100.xml", 0, 1, "NV12", "p2p"},
    {"hgx-a100.xml", 1, 6, "NV12", "p2p"},
    {"dgx-1.xml", 0, 1, "NV1", "p2p"},
    {"dgx-1.xml", 0, 3, "NV2", "p2p"},
    {"dgx-1.xml", 4, 0, "NV2", "p2p"}, /* in both directions */
    {"dgx-1.xml", 0, 5, "SYS", "host"},
    {"dgx-1.xml", 3, 6, "SYS", "host"},
    {"mi300x.xml", 0, 7, "NV1", "p2p"},
    {"pcie-switches.xml", 0, 1, "PIX", "p2p"},
    {"pcie-switches.xml", 0, 2, "PXB", "p2p"},
    {"pcie-switches.xml", 2, 3, "PIX", "p2p"},
    {"pcie-plain.xml", 0, 1, "PHB", "p2p"},
    {"pcie-plain.xml", 1, 2, "SYS", "host"},
    {"two-hosts.xml", 0, 1, "NET", "net"},
    {"cloud-a100-4numa.xml", 0, 1, "PIX", "p2p"},
    {"cloud-a100-4numa.xml", 0, 2, "SYS", "host"},
    {"cloud-h100-2numa.xml", 0, 1, "PHB", "p2p"},
    {"cloud-h100-2numa.xml", 0, 4, "SYS", "host"},
    {"cloud-links-to-itself.xml", 0, 1, "SYS", "host"},
    {"cloud-a100-shared-nic.xml", 0, 1, "PIX", "p2p"},
    {"cloud-a100-shared-nic.xml", 1, 2, "PHB", "p2p"},
    {"cloud-a100-shared-nic.xml", 3, 4, "SYS", "host"},
    {"pcie-box.xml", 0, 1, "PIX", "p2p"},
    {"pcie-box.xml", 0, 2, "PXB", "p2p"},
    {"pcie-box.xml", 0, 3, "PHB", "p2p"},
    {"pcie-box.xml", 0, 4, "NODE", "host"},
    {"pcie-box.xml", 0, 5, "SYS", "host"},
    {"virtual-machine.xml", 0, 1, "PHB", "p2p"},
    {"version-1.xml", 0, 1, "SYS", "host"},
    {"version-3.xml", 0, 1, "PHB", "p2p"},
    {"nvlink-bridges.xml", 0, 1, "NV2", "p2p"},
    {"nvlink-bridges.xml", 2, 3, "NV2", "p2p"},
    {"nvlink-bridges.xml", 1, 2, "SYS", "host"},
    {"nvswitch.xml", 0, 1, "NV6", "p2p"},
    {"nvswitch.xml", 0, 3, "NV6", "p2p"},
};

/* The adapter of a GPU, and the route to the same GPU of another such machine. */
static const struct exit {
    const char *file;
    int gpu;
    const char *nic, *link, *way;
} exits[] = {
    {"hgx-h100.xml", 0, "mlx5_0", "PXB", "rdma"},
    {"hgx-h100.xml", 7, "mlx5_7", "PXB", "rdma"},
    {"hgx-a100.xml", 0, "mlx5_0", "PIX", "rdma"}, /* two GPUs, two adapters */
    {"hgx-a100.xml", 1, "mlx5_1", "PIX", "rdma"},
    {"hgx-a100.xml", 6, "mlx5_6", "PIX", "rdma"},
    {"dgx-1.xml", 0, "mlx5_0", "PIX", "rdma"}, /* two GPUs, one adapter */
    {"dgx-1.xml", 1, "mlx5_0", "PIX", "rdma"},
    {"dgx-1.xml", 5, "mlx5_2", "PIX", "rdma"},
    {"mi300x.xml", 0, NULL, NULL, "net"},
    {"pcie-switches.xml", 0, "eth0", "PHB", "net"},
    {"pcie-switches.xml", 1, "eth1", "PHB", "net"},
    {"pcie-plain.xml", 0, "mlx5_0", "SYS", "net"},
    {"pcie-plain.xml", 2, "mlx5_0", "PHB", "net"},
    {"cloud-a100-4numa.xml", 2, "NIC2", "PIX", "rdma"},
    {"cloud-h100-2numa.xml", 4, "NIC4", "PIX", "rdma"},
    {"cloud-links-to-itself.xml", 0, "eth0", "PHB", "net"},
    {"cloud-a100-shared-nic.xml", 1, "NIC0", "PIX", "rdma"},
    {"pcie-box.xml", 0, "mlx5_0", "PIX", "rdma"},
    {"pcie-box.xml", 2, "mlx5_0", "PXB", "rdma"},
    {"pcie-box.xml", 4, "mlx5_0", "NODE", "net"},
    {"pcie-box.xml", 5, "mlx5_1", "PHB", "net"},
    {"virtual-machine.xml", 1, "eth0", "PHB", "net"},
    {"version-1.xml", 1, "mlx4_0", "PHB", "net"},
};

static dlc_topo topo;

static void read_machine(const char *file) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", MACHINES, file);
    ck_assert_msg(dlc_topo_read(path, &topo) == DLC_OK, "%s", dlc_detail());
}

static void teardown(void) {
    dlc_topo_free(&topo);
}

static int32_t gpu(int number) {
    return dlc_topo_nth(&topo, -1, DLC_TOPO_GPU, (size_t)number);
}

/* Adds a second machine of the same kind, as received from a rank of another node. */
static void double_it(void) {
    unsigned char *bytes = NULL;
    size_t size = 0;
    ck_assert_int_eq(dlc_topo_pack(&topo, &bytes, &size), DLC_OK);
    ck_assert_msg(dlc_topo_unpack(bytes, size, &topo) == DLC_OK, "%s", dlc_detail());
    dlc_free(bytes);
}

TEST_SETTINGS(.teardown = teardown);

TEST_EACH(parts_are_read, COUNT(machines)) {
    const struct machine *m = &machines[_i];
    static const dlc_topo_kind kinds[] = {
        DLC_TOPO_MACHINE, DLC_TOPO_PACKAGE, DLC_TOPO_NUMA,   DLC_TOPO_CORE,
        DLC_TOPO_SWITCH,  DLC_TOPO_GPU,     DLC_TOPO_FABRIC, DLC_TOPO_NIC};
    const size_t wanted[] = {m->machines, m->packages, m->numas,   m->cores,
                             m->switches, m->gpus,     m->fabrics, m->nics};
    read_machine(m->file);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        ck_assert_msg(dlc_topo_count(&topo, -1, kinds[i]) == wanted[i],
                      "%s: %zu of kind %s, not %zu", m->file,
                      dlc_topo_count(&topo, -1, kinds[i]), dlc_topo_kind_text(kinds[i]),
                      wanted[i]);
    ck_assert_uint_eq(topo.notes, m->notes);
}

TEST_EACH(routes_within_a_machine, COUNT(choices)) {
    const struct choice *c = &choices[_i];
    dlc_topo_route route;
    char link[8];
    read_machine(c->file);
    dlc_topo_route_between(&topo, gpu(c->a), gpu(c->b), &route);
    dlc_topo_path_text(&route.path, link);
    ck_assert_msg(strcmp(link, c->link) == 0, "%s %d-%d: %s, not %s", c->file, c->a,
                  c->b, link, c->link);
    ck_assert_msg(strcmp(dlc_route_text(route.chosen), c->way) == 0,
                  "%s %d-%d: %s, not %s", c->file, c->a, c->b,
                  dlc_route_text(route.chosen), c->way);
    for (dlc_route way = 0; way < DLC_ROUTES; way++)
        ck_assert_msg(route.verdict[way].reason[0], "no reason for or against %s",
                      dlc_route_text(way));
}

TEST_EACH(routes_are_symmetric, COUNT(machines)) {
    dlc_topo_path there, back;
    read_machine(machines[_i].file);
    for (int32_t a = 0; a < (int32_t)topo.nodes; a++)
        for (int32_t b = 0; b < a; b++) {
            there = dlc_topo_path_between(&topo, a, b);
            back = dlc_topo_path_between(&topo, b, a);
            ck_assert_int_eq(there.class, back.class);
            ck_assert_int_eq(there.links, back.links);
            ck_assert_int_eq(there.common_ancestor, back.common_ancestor);
        }
}

TEST_EACH(routes_between_machines, COUNT(exits)) {
    const struct exit *e = &exits[_i];
    dlc_topo_route route;
    dlc_topo_path path = {0};
    char text[64];
    read_machine(e->file);
    int32_t here = gpu(e->gpu), nic = dlc_topo_route_nic(&topo, here, &path);
    ck_assert_int_eq(nic >= 0, e->nic != NULL);
    if (nic >= 0) {
        dlc_topo_label(&topo, nic, text, sizeof text);
        ck_assert_msg(strcmp(text, e->nic) == 0, "%s GPU%d: %s, not %s", e->file,
                      e->gpu, text, e->nic);
        dlc_topo_path_text(&path, text);
        ck_assert_msg(strcmp(text, e->link) == 0, "%s GPU%d: %s, not %s", e->file,
                      e->gpu, text, e->link);
    }
    double_it();
    int32_t there = gpu(e->gpu + (int)dlc_topo_count(&topo, 0, DLC_TOPO_GPU));
    dlc_topo_route_between(&topo, here, there, &route);
    ck_assert_int_eq(route.path.class, DLC_TOPO_NET);
    ck_assert_int_eq(route.nic[0], nic);
    ck_assert_msg(strcmp(dlc_route_text(route.chosen), e->way) == 0,
                  "%s GPU%d: %s, not %s: %s", e->file, e->gpu,
                  dlc_route_text(route.chosen), e->way,
                  route.verdict[DLC_ROUTE_RDMA].reason);
}

/* After unpacking, the second machine's graph equals the first's. */
TEST_EACH(packing_is_lossless, COUNT(machines)) {
    read_machine(machines[_i].file);
    size_t nodes = topo.nodes, links = topo.links;
    double_it();
    ck_assert_uint_eq(topo.nodes, 2 * nodes);
    ck_assert_uint_eq(topo.links, 2 * links);
    for (size_t i = 0; i < nodes; i++) {
        const dlc_topo_node *a = &topo.node[i], *b = &topo.node[nodes + i];
        ck_assert_int_eq(a->kind, b->kind);
        ck_assert_int_eq(a->parent < 0 ? a->parent : a->parent + (int32_t)nodes,
                         b->parent);
        ck_assert_int_eq(a->machine + (int32_t)nodes, b->machine);
        ck_assert_int_eq(a->numa, b->numa);
        ck_assert_int_eq(a->package, b->package);
        ck_assert_int_eq(a->index, b->index);
        ck_assert_uint_eq(a->flags, b->flags);
        ck_assert_float_eq_tol(a->gbs, b->gbs, 0.001f);
        ck_assert_float_eq_tol(a->speed, b->speed, 0.001f);
        ck_assert_str_eq(a->name, b->name);
        ck_assert_str_eq(a->address, b->address);
    }
    for (size_t i = 0; i < links; i++) {
        const dlc_topo_link *a = &topo.link[i], *b = &topo.link[links + i];
        ck_assert_int_eq(a->from + (int32_t)nodes, b->from);
        ck_assert_int_eq(a->to + (int32_t)nodes, b->to);
        ck_assert_uint_eq(a->kind, b->kind);
        ck_assert_int_eq(a->count, b->count);
    }
}

TEST(bandwidths_are_read) {
    read_machine("hgx-h100.xml");
    ck_assert_float_eq_tol(topo.node[gpu(0)].gbs, 63.0f, 0.1f); /* 32 GT/s x 16 */
    int32_t nic = dlc_topo_nth(&topo, 0, DLC_TOPO_NIC, 0);
    ck_assert_float_eq(topo.node[nic].speed, 50); /* 400 Gbit/s */
    dlc_topo_free(&topo);
    read_machine("dgx-1.xml");
    dlc_topo_path path = dlc_topo_path_between(&topo, gpu(0), gpu(5));
    ck_assert_float_eq_tol(path.gbs, 15.75f, 0.01f); /* 8 GT/s x 16 on the whole path */
}

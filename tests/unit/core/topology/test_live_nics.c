/* Tests reading adapters' speeds and links (core/topology/discover.c) from a tree of
 * files like Linux's. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "support/scratch.h"
#include "support/test.h"
#include "topology/discover.h"
#include "topology/route.h"

static char root[256];
static dlc_topo topo;

static void put(const char *path, const char *text) {
    char whole[512];
    (void)snprintf(whole, sizeof whole, "%s/sys/class/%s", root, path);
    for (char *at = whole + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(whole, 0700);
        *at = '/';
    }
    FILE *file = fopen(whole, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static dlc_topo_node *add_nic(const char *name) {
    dlc_topo_node *nic = dlc_topo_add(&topo, DLC_TOPO_NIC, 0);
    ck_assert_ptr_nonnull(nic);
    dlc_topo_text(nic->name, sizeof nic->name, name);
    return nic;
}

static void setup(void) {
    scratch_setup();
    (void)snprintf(root, sizeof root, "%s", scratch_path("root"));
    ck_assert_int_eq(mkdir(root, 0700), 0);
    ck_assert_ptr_nonnull(dlc_topo_add(&topo, DLC_TOPO_MACHINE, -1));
}

static void teardown(void) {
    dlc_topo_free(&topo);
    scratch_teardown();
}

TEST_SETTINGS(.setup = setup, .teardown = teardown);

TEST(speeds_and_links) {
    static const struct {
        const char *name;
        float gbs;
        int down;
    } want[] = {{"eth0", 1.25f, 0},   {"eth1", 0, 1},   {"eth2", 0, 0},
                {"mlx5_0", 12.5f, 0}, {"mlx5_1", 5, 1}, {"gone", 0, 0}};
    put("net/eth0/speed", "10000\n");
    put("net/eth0/operstate", "up\n");
    put("net/eth1/operstate", "down\n");
    put("net/eth2/speed", "-1\n");
    put("net/eth2/operstate", "unknown\n");
    put("infiniband/mlx5_0/ports/1/rate", "100 Gb/sec (4X EDR)\n");
    put("infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n");
    put("infiniband/mlx5_1/ports/1/rate", "40 Gb/sec (4X QDR)\n");
    put("infiniband/mlx5_1/ports/1/state", "1: DOWN\n");
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        (void)add_nic(want[i].name);
    dlc_topo_read_live_nics(root, &topo);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        ck_assert_float_eq_tol(topo.node[i + 1].speed, want[i].gbs, 1e-6f);
        ck_assert_int_eq((topo.node[i + 1].flags & DLC_TOPO_DOWN) != 0, want[i].down);
    }
}

/* The fastest of the nearest is given, and never one without a link. */
TEST(no_link_no_rank) {
    dlc_topo_path path;
    put("net/fast/speed", "100000\n");
    put("net/fast/operstate", "down\n");
    put("net/slow/speed", "1000\n");
    put("net/slow/operstate", "up\n");
    (void)add_nic("fast");
    (void)add_nic("slow");
    dlc_topo_read_live_nics(root, &topo);
    int32_t nic = dlc_topo_route_nic(&topo, 0, &path);
    ck_assert_int_ge(nic, 0);
    ck_assert_str_eq(topo.node[nic].name, "slow");
}

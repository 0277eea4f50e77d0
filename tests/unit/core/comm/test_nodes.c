/* Tests the order of reductions over nodes (core/comm/nodes.c). */

#include "comm/nodes.h"
#include "support/test.h"

enum { RANKS = 7 };

/* Checks the steps of ranks on these nodes and racks (NULL: one), in this order (NULL:
 * by rank). */
static void check_racks(const int32_t *node, const int32_t *rack, const int32_t *order,
                        int32_t ranks, const dlc_merge *want) {
    dlc_rank_info info[RANKS] = {{.size = 0}};
    dlc_merge found[RANKS];
    dlc_nodes nodes;
    for (int32_t r = 0; r < ranks; r++)
        info[r] = (dlc_rank_info){.size = sizeof *info, .node = node[r]};
    for (int32_t r = 0; rack && r < ranks; r++)
        info[r].domain[DLC_DOMAIN_RACK] = rack[r];
    for (int32_t r = 0; order && r < ranks; r++)
        info[r].order = order[r];
    ck_assert_int_eq(dlc_nodes_make(info, ranks, &nodes), DLC_OK);
    dlc_nodes_merges(&nodes, found);
    for (int32_t i = 0; i + 1 < ranks; i++) {
        ck_assert_int_eq(found[i].into, want[i].into);
        ck_assert_int_eq(found[i].from, want[i].from);
    }
    dlc_nodes_free(&nodes);
}

static void check_merges(const int32_t *node, int32_t ranks, const dlc_merge *want) {
    check_racks(node, NULL, NULL, ranks, want);
}

TEST(one_node) {
    static const int32_t node[RANKS] = {0};
    static const dlc_merge want[] = {{0, 1}, {2, 3}, {4, 5}, {0, 2}, {4, 6}, {0, 4}};
    check_merges(node, RANKS, want);
    check_merges(node, 2, want);
    check_merges(node, 1, NULL);
}

/* First within each node, then over the nodes in the order of their first ranks. */
TEST(several_nodes) {
    static const int32_t node[] = {5, 2, 5, 9, 2, 5};
    static const dlc_merge want[] = {{0, 2}, {0, 5}, {1, 4}, {0, 1}, {0, 3}};
    check_merges(node, 6, want);
}

/* Within nodes, then over the nodes of each rack, then over the racks. */
TEST(over_racks) {
    static const int32_t node[] = {0, 0, 1, 2, 3, 4, 5}, rack[] = {7, 7, 7, 7, 3, 3, 3};
    static const dlc_merge want[] = {{0, 1}, {0, 2}, {0, 3}, {4, 5}, {4, 6}, {0, 4}};
    check_racks(node, rack, NULL, 7, want);
}

/* Near ranks come first, whatever their numbers. */
TEST(nearest_first) {
    static const int32_t node[RANKS] = {0}, order[] = {0, 2, 1, 3};
    static const dlc_merge want[] = {{0, 2}, {1, 3}, {0, 1}};
    check_racks(node, NULL, order, 4, want);
}

/* The costs of single collectives; step.c combines them into a step. */
#include "plan/exchange.h"

#include <math.h>

const char *dlc_plan_overlap_text(dlc_plan_overlap overlap) {
    static const char *const text[] = {"none",    "backward", "forward",
                                       "sharded", "fused",    "best"};
    return overlap <= DLC_PLAN_OVERLAP_BEST ? text[overlap] : "?";
}

/* ---- Terms ----------------------------------------------------------------------- */

/* The latency of messages to `peers` others, which a tree reduces to its depth. */
static double latency(const dlc_plan_link *link, int32_t peers) {
    return peers > 0 ? link->latency * ceil(log2((double)peers + 1)) : 0;
}

/* Every rank sends and receives as many bytes. */
static double both_directions(const dlc_plan_link *link, double bytes) {
    return bytes / link->bandwidth * (link->half_duplex ? 2 : 1);
}

static double one_direction(const dlc_plan_link *link, double bytes) {
    return bytes / link->bandwidth;
}

static double adding(const dlc_plan_cluster *cluster, double bytes) {
    return cluster->sum_bandwidth > 0 ? bytes / cluster->sum_bandwidth : 0;
}

/* The fraction of the other ranks' parts, of `parts` equal ones. */
static double others(int32_t parts) {
    return 1.0 - 1.0 / parts;
}

/* ---- Reductions
 * ------------------------------------------------------------------------ */

/* A reduce-scatter within each machine. */
static double scatter_inside(const dlc_plan_cluster *cluster, double bytes) {
    if (cluster->ranks_per_node == 1)
        return 0;
    return latency(&cluster->inside, cluster->ranks_per_node - 1) +
           both_directions(&cluster->inside, bytes * others(cluster->ranks_per_node));
}

/* A reduce-scatter between the machines. */
static double scatter_between(const dlc_plan_cluster *cluster, double bytes) {
    if (cluster->nodes == 1)
        return 0;
    return latency(&cluster->between, cluster->nodes - 1) +
           both_directions(&cluster->between, bytes * others(cluster->nodes));
}

static double direct(const dlc_plan_cluster *cluster, double bytes) {
    double added = bytes * others(cluster->ranks_per_node) +
                   bytes / cluster->ranks_per_node * others(cluster->nodes);
    return 2 * scatter_inside(cluster, bytes) + 2 * scatter_between(cluster, bytes) +
           adding(cluster, added);
}

static double ring(const dlc_plan_cluster *cluster, double bytes) {
    const dlc_plan_link *link = dlc_plan_slowest(cluster);
    int32_t ranks = dlc_plan_ranks(cluster);
    if (ranks == 1)
        return 0;
    return 2.0 * (ranks - 1) * (link->latency + both_directions(link, bytes / ranks)) +
           adding(cluster, bytes * others(ranks));
}

static double levels(int32_t ranks) {
    return ceil(log2((double)ranks));
}

/* The whole buffer is sent on every level, up and then down. */
static double tree(const dlc_plan_cluster *cluster, double bytes) {
    double up = 0;
    if (cluster->ranks_per_node > 1)
        up += levels(cluster->ranks_per_node) *
              (cluster->inside.latency + one_direction(&cluster->inside, bytes));
    if (cluster->nodes > 1)
        up += levels(cluster->nodes) *
              (cluster->between.latency + one_direction(&cluster->between, bytes));
    double added = levels(cluster->ranks_per_node) + levels(cluster->nodes);
    return 2 * up + adding(cluster, added * bytes);
}

/* One rank of each machine reduces the gradients of its ranks and distributes the new
 * weights. A server has a part of the weights: it receives and adds up that part of
 * every machine's gradients, while its machine sends. */
static double server(const dlc_plan_cluster *cluster, double bytes) {
    double machines = scatter_between(cluster, bytes),
           near = cluster->ranks_per_node - 1;
    double inside = near > 0 ? latency(&cluster->inside, cluster->ranks_per_node - 1) +
                                   one_direction(&cluster->inside, near * bytes)
                             : 0;
    return 2 * inside + 2 * machines +
           adding(cluster, near * bytes + bytes * others(cluster->nodes));
}

double dlc_plan_all_reduce(const dlc_plan_cluster *cluster,
                           dlc_plan_algorithm algorithm, double bytes) {
    if (dlc_plan_ranks(cluster) == 1)
        return 0;
    switch (algorithm) {
    case DLC_PLAN_RING:
        return ring(cluster, bytes);
    case DLC_PLAN_TREE:
        return tree(cluster, bytes);
    case DLC_PLAN_SERVER:
        return server(cluster, bytes);
    default:
        return direct(cluster, bytes);
    }
}

double dlc_plan_update_moves(double slots) {
    return 3 + 2 * slots;
}

int dlc_plan_favors_sharding(double bandwidth, double update_bandwidth, int32_t ranks) {
    double all_gather = 0.5 / bandwidth;
    return all_gather < others(ranks) / update_bandwidth;
}

/* A fused update reads all ranks' gradients, and writes all ranks' weights. */
double dlc_plan_fused_update(const dlc_plan_cluster *cluster, double bytes) {
    double ranks = dlc_plan_ranks(cluster), slots = fmax(cluster->copies - 1, 0);
    double update = dlc_plan_update_moves(slots), moves = 2 * ranks + 1 + 2 * slots;
    if (!cluster->fused_update || cluster->nodes > 1 || ranks == 1 ||
        cluster->update_bandwidth <= 0)
        return 0;
    return bytes / ranks * moves / update / cluster->update_bandwidth;
}

double dlc_plan_all_gather(const dlc_plan_cluster *cluster, double bytes) {
    return scatter_inside(cluster, bytes) + scatter_between(cluster, bytes);
}

/* A machine's adapter transfers what all its ranks send to other machines. */
double dlc_plan_all_to_all(const dlc_plan_cluster *cluster, double bytes) {
    double seconds = 0, ranks = dlc_plan_ranks(cluster), each = cluster->ranks_per_node;
    if (cluster->ranks_per_node > 1)
        seconds += latency(&cluster->inside, cluster->ranks_per_node - 1) +
                   both_directions(&cluster->inside, bytes * (each - 1) / ranks);
    if (cluster->nodes > 1)
        seconds += latency(&cluster->between, cluster->nodes - 1) +
                   both_directions(&cluster->between,
                                   each * bytes * (ranks - each) / ranks);
    return seconds;
}

/* ---- From measurements ----------------------------------------------------------- */

void dlc_plan_links_from_all_reduce(double latency, double bandwidth,
                                    dlc_plan_cluster *cluster) {
    dlc_plan_cluster unit = *cluster;
    const dlc_plan_link one = {.latency = 1, .bandwidth = 1};
    unit.inside = unit.between = one;
    unit.sum_bandwidth = 0;
    double latencies = direct(&unit, 0), moves = direct(&unit, 1) - latencies;
    cluster->sum_bandwidth = 0;
    cluster->inside = (dlc_plan_link){
        .latency = latencies > 0 ? latency / latencies : latency,
        .bandwidth = moves > 0 ? bandwidth * moves : bandwidth};
    cluster->between = cluster->inside;
}

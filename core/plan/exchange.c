/* See exchange.h. This file knows single exchanges; step.c puts them into a step. */
#include "plan/exchange.h"

#include <math.h>

const char *dlc_plan_way_text(dlc_plan_way way) {
    static const char *const text[DLC_PLAN_WAYS] = {"direct", "ring", "tree", "server"};
    return way < DLC_PLAN_WAYS ? text[way] : "?";
}

const char *dlc_plan_overlap_text(dlc_plan_overlap overlap) {
    static const char *const text[] = {"none",   "backward", "ahead",
                                       "shards", "one-pass", "best"};
    return overlap <= DLC_PLAN_OVERLAP_BEST ? text[overlap] : "?";
}

/* ---- Parts ----------------------------------------------------------------------- */

/* Messages to `peers` others begin one after the other; a tree would do with as many
 * latencies as it has levels. */
static double start(const dlc_plan_link *link, int32_t peers) {
    return peers > 0 ? link->latency * ceil(log2((double)peers + 1)) : 0;
}

/* Everybody sends and receives as many bytes. */
static double both_ways(const dlc_plan_link *link, double bytes) {
    return bytes / link->bandwidth * (link->half_duplex ? 2 : 1);
}

static double one_way(const dlc_plan_link *link, double bytes) {
    return bytes / link->bandwidth;
}

static double adding(const dlc_plan_cluster *cluster, double bytes) {
    return cluster->sum > 0 ? bytes / cluster->sum : 0;
}

/* What all but one of `parts` equal parts are of a whole. */
static double others(int32_t parts) {
    return 1.0 - 1.0 / parts;
}

/* ---- Sums ------------------------------------------------------------------------ */

/* Each rank gets its slice of all other ranks of its machine. */
static double scatter_inside(const dlc_plan_cluster *cluster, double bytes) {
    if (cluster->each == 1)
        return 0;
    return start(&cluster->inside, cluster->each - 1) +
           both_ways(&cluster->inside, bytes * others(cluster->each));
}

static double scatter_between(const dlc_plan_cluster *cluster, double bytes) {
    if (cluster->nodes == 1)
        return 0;
    return start(&cluster->between, cluster->nodes - 1) +
           both_ways(&cluster->between, bytes * others(cluster->nodes));
}

static double direct(const dlc_plan_cluster *cluster, double bytes) {
    double summed = bytes * others(cluster->each) +
                    bytes / cluster->each * others(cluster->nodes);
    return 2 * scatter_inside(cluster, bytes) + 2 * scatter_between(cluster, bytes) +
           adding(cluster, summed);
}

static double ring(const dlc_plan_cluster *cluster, double bytes) {
    const dlc_plan_link *link = dlc_plan_slowest(cluster);
    int32_t ranks = dlc_plan_ranks(cluster);
    if (ranks == 1)
        return 0;
    return 2.0 * (ranks - 1) * (link->latency + both_ways(link, bytes / ranks)) +
           adding(cluster, bytes * others(ranks));
}

static double levels(int32_t ranks) {
    return ceil(log2((double)ranks));
}

/* All of it crosses every level, up and then down. */
static double tree(const dlc_plan_cluster *cluster, double bytes) {
    double up = 0;
    if (cluster->each > 1)
        up += levels(cluster->each) *
              (cluster->inside.latency + one_way(&cluster->inside, bytes));
    if (cluster->nodes > 1)
        up += levels(cluster->nodes) *
              (cluster->between.latency + one_way(&cluster->between, bytes));
    double added = levels(cluster->each) + levels(cluster->nodes);
    return 2 * up + adding(cluster, added * bytes);
}

/* One rank of a machine takes in all its ranks' gradients, and gives the new weights
 * out. A server has a share of the weights: what comes in is that share of every
 * machine's gradients, which it adds up; while it receives, its machine sends. */
static double server(const dlc_plan_cluster *cluster, double bytes) {
    double machines = scatter_between(cluster, bytes), near = cluster->each - 1;
    double inside = near > 0 ? start(&cluster->inside, cluster->each - 1) +
                                   one_way(&cluster->inside, near * bytes)
                             : 0;
    return 2 * inside + 2 * machines +
           adding(cluster, near * bytes + bytes * others(cluster->nodes));
}

double dlc_plan_all_reduce(const dlc_plan_cluster *cluster, dlc_plan_way way,
                           double bytes) {
    if (dlc_plan_ranks(cluster) == 1)
        return 0;
    switch (way) {
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

/* An update with momentum moves gradient, weight and velocity, and writes two of them.
 */
double dlc_plan_pass(const dlc_plan_cluster *cluster, double bytes) {
    const double update = 5;
    double ranks = dlc_plan_ranks(cluster), moves = 2 * ranks + 3;
    if (!cluster->one_pass || cluster->nodes > 1 || ranks == 1 || cluster->update <= 0)
        return 0;
    return bytes / ranks * moves / update / cluster->update;
}

double dlc_plan_gather(const dlc_plan_cluster *cluster, double bytes) {
    return scatter_inside(cluster, bytes) + scatter_between(cluster, bytes);
}

/* A machine's adapter carries what all its ranks send to other machines. */
double dlc_plan_all_to_all(const dlc_plan_cluster *cluster, double bytes) {
    double seconds = 0, ranks = dlc_plan_ranks(cluster), each = cluster->each;
    if (cluster->each > 1)
        seconds += start(&cluster->inside, cluster->each - 1) +
                   both_ways(&cluster->inside, bytes * (each - 1) / ranks);
    if (cluster->nodes > 1)
        seconds += start(&cluster->between, cluster->nodes - 1) +
                   both_ways(&cluster->between, each * bytes * (ranks - each) / ranks);
    return seconds;
}

/* ---- From measurements ----------------------------------------------------------- */

void dlc_plan_links_of_sums(double latency, double bandwidth,
                            dlc_plan_cluster *cluster) {
    dlc_plan_cluster unit = *cluster;
    const dlc_plan_link one = {.latency = 1, .bandwidth = 1};
    unit.inside = unit.between = one;
    unit.sum = 0;
    double starts = direct(&unit, 0), moves = direct(&unit, 1) - starts;
    cluster->sum = 0;
    cluster->inside = (dlc_plan_link){
        .latency = starts > 0 ? latency / starts : latency,
        .bandwidth = moves > 0 ? bandwidth * moves : bandwidth};
    cluster->between = cluster->inside;
}

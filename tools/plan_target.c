/* Parses rates and times, reads recorded machines, and makes the target's links. */
#include "plan_target.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plan/exchange.h"
#include "plan/links.h"
#include "topology/read.h"
#include "topology/route.h"

enum { RANKS_MAX = 1 << 20 };

/* ---- Texts ----------------------------------------------------------------------- */

typedef struct unit {
    const char *name;
    double factor;
} unit;

static int parse_with_unit(const char *text, const unit *units, size_t count,
                           double *value) {
    char name[16];
    double number;
    char rest;
    if (sscanf(text, "%lf%15[A-Za-z/]%c", &number, name, &rest) != 2 ||
        !isfinite(number) || number < 0)
        return 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(units[i].name, name) == 0) {
            *value = number * units[i].factor;
            return 1;
        }
    return 0;
}

int plan_parse_rate(const char *text, double *bytes_per_s) {
    static const unit units[] = {{"Gb/s", 1e9 / 8}, {"Gbit/s", 1e9 / 8},
                                 {"Mb/s", 1e6 / 8}, {"Mbit/s", 1e6 / 8},
                                 {"GB/s", 1e9},     {"MB/s", 1e6}};
    return parse_with_unit(text, units, sizeof units / sizeof *units, bytes_per_s) &&
           *bytes_per_s > 0;
}

int plan_parse_time(const char *text, double *seconds) {
    static const unit units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
    return parse_with_unit(text, units, sizeof units / sizeof *units, seconds);
}

int plan_parse_nodes(const char *text, int32_t *nodes, int32_t *ranks_per_node) {
    int n = 0, m = 0;
    char rest;
    int found = sscanf(text, "%dx%d%c", &n, &m, &rest);
    if (found == 1 && sscanf(text, "%d%c", &n, &rest) == 1)
        m = 0;
    else if (found != 2 || m < 1)
        return 0;
    if (n < 1 || n > RANKS_MAX || m > RANKS_MAX / n)
        return 0;
    *nodes = n;
    *ranks_per_node = m;
    return 1;
}

/* ---- A recorded machine ---------------------------------------------------------- */

typedef struct recorded {
    int32_t ends[256];
    int32_t count;
    dlc_topo_kind kind;
    double gbs;           /* of the slowest pair */
    dlc_topo_class class; /* of that pair */
    dlc_route route;      /* of that pair */
    int known;            /* gbs is in the file */
    double adapters;      /* GB/s of all adapters together; 0: none, or unknown */
    int direct;           /* an adapter can access device memory (GPUDirect) */
} recorded;

static void find_ends(const dlc_topo *topo, recorded *r) {
    static const dlc_topo_kind kinds[] = {DLC_TOPO_GPU, DLC_TOPO_NUMA, DLC_TOPO_PACKAGE,
                                          DLC_TOPO_MACHINE};
    const int32_t most = sizeof r->ends / sizeof *r->ends;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds && r->count == 0; k++)
        for (int32_t n; r->count < most; r->count++) {
            n = dlc_topo_nth(topo, -1, kinds[k], (size_t)r->count);
            if (n < 0)
                break;
            r->kind = kinds[k];
            r->ends[r->count] = n;
        }
}

static void judge_pair(const dlc_topo *topo, recorded *r, int32_t a, int32_t b) {
    dlc_topo_path path = dlc_topo_path_between(topo, r->ends[a], r->ends[b]);
    dlc_topo_route result;
    double gbs = dlc_topo_path_speed(&path).bandwidth / 1e9;
    if (r->gbs > 0 && gbs >= r->gbs)
        return;
    dlc_topo_route_between(topo, r->ends[a], r->ends[b], &result);
    r->gbs = gbs;
    r->known = path.gbs > 0;
    r->class = path.class;
    r->route = result.chosen;
}

static void judge_adapters(const dlc_topo *topo, recorded *r) {
    for (size_t i = 0; i < topo->nodes; i++) {
        const dlc_topo_node *node = &topo->node[i];
        if (node->kind != DLC_TOPO_NIC)
            continue;
        r->adapters += (double)node->speed;
        r->direct |= (node->flags & DLC_TOPO_DIRECT) != 0;
    }
}

static dlc_status read_machine(const char *path, recorded *r) {
    dlc_topo topo = {0};
    *r = (recorded){.route = DLC_ROUTES};
    DLC_TRY(dlc_topo_read(path, &topo));
    dlc_status status = DLC_OK;
    if (dlc_topo_count(&topo, -1, DLC_TOPO_MACHINE) != 1)
        status = dlc_fail(DLC_ERR_CONFIG,
                          "%s contains %zu machines; plan needs a file with one, "
                          "and --nodes gives their number",
                          path, dlc_topo_count(&topo, -1, DLC_TOPO_MACHINE));
    find_ends(&topo, r);
    for (int32_t a = 0; status == DLC_OK && a < r->count; a++)
        for (int32_t b = a + 1; b < r->count; b++)
            judge_pair(&topo, r, a, b);
    judge_adapters(&topo, r);
    dlc_topo_free(&topo);
    return status;
}

/* ---- Links ----------------------------------------------------------------------- */

static void describe(char *words, size_t room, const dlc_plan_link *link,
                     const char *why) {
    (void)snprintf(words, room, "%.2f GB/s, %.1f us (%s)", link->bandwidth / 1e9,
                   link->latency * 1e6, why);
}

static void make_inside(const plan_given *given, const plan_measured *measured,
                        const recorded *r, plan_target *target) {
    dlc_plan_cluster *cluster = &target->cluster;
    char why[96] = "assumed";
    cluster->inside = dlc_plan_assumed_link(DLC_TOPO_SHM);
    if (r && r->gbs > 0) {
        cluster->inside.bandwidth = r->gbs * 1e9;
        (void)snprintf(why, sizeof why, "%s, the slowest pair is %s",
                       r->known ? "recorded" : "assumed for such links",
                       dlc_topo_class_text(r->class));
        (void)snprintf(target->route_inside, sizeof target->route_inside, "%s",
                       dlc_route_text(r->route));
    } else if (measured->ranks > 1) {
        dlc_plan_cluster here = {.nodes = 1, .ranks_per_node = measured->ranks};
        dlc_plan_links_from_all_reduce(measured->all_reduce_latency,
                                       measured->all_reduce_bandwidth, &here);
        cluster->inside = here.inside;
        (void)snprintf(why, sizeof why, "measured here, with transport %s",
                       measured->transport);
        (void)snprintf(target->route_inside, sizeof target->route_inside, "%s",
                       dlc_route_text(DLC_ROUTE_SHM));
        if (measured->host)
            cluster->interference = 1; /* reductions run on the cores that compute */
        cluster->fused_update = measured->fused_update && !(given->inside > 0);
    }
    if (given->inside > 0) {
        cluster->inside.bandwidth = given->inside;
        (void)snprintf(why, sizeof why, "as given");
    }
    describe(target->inside, sizeof target->inside, &cluster->inside, why);
}

static void make_between(const plan_given *given, const recorded *r,
                         plan_target *target) {
    dlc_plan_link *between = &target->cluster.between;
    const char *why = "assumed";
    dlc_route route = DLC_ROUTE_NET;
    *between = dlc_plan_assumed_link(DLC_TOPO_NET);
    if (r && r->adapters > 0) {
        between->bandwidth = r->adapters * 1e9;
        why = "all recorded adapters together";
        if (r->direct) {
            between->latency = DLC_TOPO_RDMA_LATENCY;
            route = DLC_ROUTE_RDMA;
        }
    }
    if (given->link > 0) {
        between->bandwidth = given->link;
        why = "as given";
    }
    if (given->latency >= 0)
        between->latency = given->latency;
    describe(target->between, sizeof target->between, between, why);
    (void)snprintf(target->route_between, sizeof target->route_between, "%s",
                   dlc_route_text(route));
}

/* ---- The target -------------------------------------------------------------------
 */

static int32_t ranks_of_each(const plan_given *given, const plan_measured *measured,
                             const recorded *r) {
    if (given->ranks_per_node > 0)
        return given->ranks_per_node;
    if (r && r->kind == DLC_TOPO_GPU)
        return r->count;
    return r ? (r->count > 1 ? r->count : 2) : measured->ranks;
}

/* The measured memory of a rank, without weights, copies and activations. */
static double other_bytes(const plan_measured *measured) {
    const dlc_plan_cluster none = {.copies = measured->copies};
    return fmax(measured->memory - dlc_plan_memory(measured->layer, measured->layers,
                                                   NULL, &none,
                                                   (double)measured->batch),
                0);
}

dlc_status plan_target_make(const plan_given *given, const plan_measured *measured,
                            plan_target *target) {
    recorded recorded_machine, *r = NULL;
    plan_target made = {
        .cluster = {.nodes = given->nodes > 0 ? given->nodes : 1,
                    .update_bandwidth = measured->update_bandwidth,
                    .accumulate_bandwidth = measured->accumulate_bandwidth,
                    .rest = measured->rest,
                    .copies = measured->copies,
                    .other_bytes = other_bytes(measured),
                    .handover = measured->host ? DLC_PLAN_HANDOVER : 0}};
    if (given->from) {
        DLC_TRY(read_machine(given->from, &recorded_machine));
        r = &recorded_machine;
    }
    made.cluster.ranks_per_node = ranks_of_each(given, measured, r);
    if (r && r->kind == DLC_TOPO_GPU && made.cluster.ranks_per_node > r->count)
        return dlc_fail(DLC_ERR_CONFIG,
                        "--nodes needs %d GPUs per machine, but %s has only "
                        "%d",
                        (int)made.cluster.ranks_per_node, given->from, (int)r->count);
    make_inside(given, measured, r, &made);
    make_between(given, r, &made);
    if (r && r->kind == DLC_TOPO_GPU)
        made.cluster.handover = 0; /* reductions are stream-ordered */
    DLC_TRY(dlc_plan_check(&made.cluster));
    *target = made;
    return DLC_OK;
}

/* Judges routes: within a node by a table of rules, between nodes by the adapters. */
#include "topology/route.h"

#include <stdio.h>
#include <string.h>

const char *dlc_route_text(dlc_route route) {
    static const char *const names[DLC_ROUTES + 1] = {
        [DLC_ROUTE_P2P] = "p2p",   [DLC_ROUTE_SHM] = "shm", [DLC_ROUTE_HOST] = "host",
        [DLC_ROUTE_RDMA] = "rdma", [DLC_ROUTE_NET] = "net", [DLC_ROUTES] = "none"};
    return names[route <= DLC_ROUTES ? route : DLC_ROUTES];
}

/* ---- Within a node ------------------------------------------------------------- */

/* The kinds of ends that a rule applies to. */
enum { DEVICES = 1, MIXED = 2, CPUS = 4, ANY = 7 };

#define CLASS(name) (1u << DLC_TOPO_##name)
#define ALL_CLASSES ((1u << DLC_TOPO_CLASSES) - 1)

typedef struct rule {
    dlc_route route;
    unsigned ends, classes;
    int possible;
    const char *reason;
} rule;

/* The first matching rule decides about a route. */
static const rule rules[] = {
    {DLC_ROUTE_P2P, CPUS, ALL_CLASSES, 0,
     "neither end is a device with its own memory"},
    {DLC_ROUTE_P2P, MIXED, ALL_CLASSES, 0,
     "one end is not a device with its own memory"},
    {DLC_ROUTE_P2P, DEVICES, CLASS(X), 1, "both are on the same device"},
    {DLC_ROUTE_P2P, DEVICES, CLASS(NV), 1,
     "direct links; neither PCIe nor host memory is used"},
    {DLC_ROUTE_P2P, DEVICES, CLASS(PIX), 1, "connected by one PCIe switch"},
    {DLC_ROUTE_P2P, DEVICES, CLASS(PXB), 1,
     "connected by PCIe switches, without a host bridge"},
    {DLC_ROUTE_P2P, DEVICES, CLASS(PHB), 1, "connected by one host bridge"},
    {DLC_ROUTE_P2P, DEVICES, CLASS(NODE), 0,
     "PCIe between host bridges is slow or impossible"},
    {DLC_ROUTE_P2P, DEVICES, CLASS(SYS), 0,
     "PCIe between NUMA nodes is slow or impossible"},
    {DLC_ROUTE_P2P, ANY, CLASS(NET), 0, "they are on different nodes"},
    {DLC_ROUTE_SHM, ANY, CLASS(NET), 0, "they are on different nodes"},
    {DLC_ROUTE_SHM, CPUS, ALL_CLASSES, 1, "both CPUs share memory"},
    {DLC_ROUTE_SHM, ANY, ALL_CLASSES, 0, "device memory isn't shared with the CPUs"},
    {DLC_ROUTE_HOST, ANY, CLASS(NET), 0, "they are on different nodes"},
    {DLC_ROUTE_HOST, CPUS, ALL_CLASSES, 0, "the data is in host memory already"},
    {DLC_ROUTE_HOST, MIXED, ALL_CLASSES, 1,
     "one copy between the device and host memory"},
    {DLC_ROUTE_HOST, DEVICES, CLASS(SYS), 1,
     "two copies through host memory, one of them between NUMA nodes"},
    {DLC_ROUTE_HOST, DEVICES, ALL_CLASSES, 1, "two copies through host memory"},
    {DLC_ROUTE_RDMA, ANY, ALL_CLASSES, 0,
     "within a node a network adapter is a detour"},
    {DLC_ROUTE_NET, ANY, ALL_CLASSES, 0, "within a node the network is a detour"},
};

static int is_device(const dlc_topo *topo, int32_t end) {
    dlc_topo_kind kind = topo->node[dlc_topo_device_of(topo, end)].kind;
    return kind == DLC_TOPO_GPU || kind == DLC_TOPO_OTHER;
}

static void apply_rules(dlc_topo_route *result, unsigned ends) {
    for (dlc_route route = 0; route < DLC_ROUTES; route++)
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
            const rule *r = &rules[i];
            if (r->route != route || !(r->ends & ends) ||
                !(r->classes >> result->path.class & 1))
                continue;
            dlc_route_verdict *verdict = &result->verdict[route];
            verdict->possible = r->possible;
            (void)snprintf(verdict->reason, sizeof verdict->reason, "%s", r->reason);
            break;
        }
}

/* ---- Adapters ------------------------------------------------------------------ */

static int is_nic_of(const dlc_topo *topo, int32_t nic, int32_t machine) {
    const dlc_topo_node *node = &topo->node[nic];
    return node->kind == DLC_TOPO_NIC && node->machine == machine &&
           !(node->flags & DLC_TOPO_DOWN);
}

/* Whether an adapter is nearer than the best so far, or as near and faster. */
static int is_better_nic(const dlc_topo *topo, dlc_topo_class class, int32_t nic,
                         dlc_topo_class best_class, int32_t best) {
    return best < 0 || class < best_class ||
           (class == best_class && topo->node[nic].speed > topo->node[best].speed);
}

static int32_t first_nic(const dlc_topo *topo, int32_t end, dlc_topo_path *path) {
    int32_t best = -1;
    for (int32_t i = 0; i < (int32_t)topo->nodes; i++) {
        if (!is_nic_of(topo, i, topo->node[end].machine))
            continue;
        dlc_topo_path to = dlc_topo_path_between(topo, end, i);
        if (is_better_nic(topo, to.class, i, path->class, best)) {
            best = i;
            *path = to;
        }
    }
    return best;
}

/* How many earlier ends of this kind would also choose this adapter first. */
static int32_t earlier_users(const dlc_topo *topo, int32_t end, int32_t nic) {
    int32_t turn = 0;
    for (int32_t i = 0; i < end; i++) {
        const dlc_topo_node *other = &topo->node[i];
        dlc_topo_path path = {0};
        if (other->kind == topo->node[end].kind &&
            other->machine == topo->node[end].machine)
            turn += first_nic(topo, i, &path) == nic;
    }
    return turn;
}

/* Whether an adapter is as near as the first choice, and not slower. */
static int is_equal(const dlc_topo *topo, int32_t end, int32_t nic, int32_t first,
                    dlc_topo_class class) {
    return is_nic_of(topo, nic, topo->node[end].machine) &&
           dlc_topo_path_between(topo, end, nic).class == class &&
           topo->node[nic].speed >= topo->node[first].speed;
}

/* The number of adapters that are as good as the first choice. */
static int32_t count_equal(const dlc_topo *topo, int32_t end, int32_t first,
                           dlc_topo_class class) {
    int32_t count = 0;
    for (int32_t i = first; first >= 0 && i < (int32_t)topo->nodes; i++)
        count += is_equal(topo, end, i, first, class);
    return count;
}

int32_t dlc_topo_route_nics(const dlc_topo *topo, int32_t end) {
    dlc_topo_path path = {.class = DLC_TOPO_X};
    int32_t first = first_nic(topo, end, &path);
    return count_equal(topo, end, first, path.class);
}

int32_t dlc_topo_route_nic(const dlc_topo *topo, int32_t end, dlc_topo_path *path) {
    int32_t first = first_nic(topo, end, path);
    if (first < 0)
        return -1;
    int32_t count = count_equal(topo, end, first, path->class);
    if (count < 2)
        return first;
    int32_t turn = earlier_users(topo, end, first) % count;
    for (int32_t i = first; i < (int32_t)topo->nodes; i++)
        if (is_equal(topo, end, i, first, path->class) && turn-- == 0) {
            *path = dlc_topo_path_between(topo, end, i);
            return i;
        }
    return first;
}

/* ---- Between nodes ------------------------------------------------------------- */

/* One end of a route over the network. */
typedef struct side {
    int32_t end, nic; /* nic: the nearest adapter; -1: none */
    dlc_topo_path path;
    char name[32], class[8]; /* of the adapter */
} side;

static side make_side(const dlc_topo *topo, int32_t end) {
    side made = {.end = end};
    made.nic = dlc_topo_route_nic(topo, end, &made.path);
    if (made.nic >= 0)
        dlc_topo_label(topo, made.nic, made.name, sizeof made.name);
    dlc_topo_path_text(&made.path, made.class);
    return made;
}

/* Whether an end's memory cannot be accessed by its adapter; the verdict says why. */
static int no_direct(const dlc_topo *topo, const side *s, dlc_route_verdict *verdict) {
    size_t bytes = sizeof verdict->reason;
    char *reason = verdict->reason;
    const dlc_topo_node *device = &topo->node[dlc_topo_device_of(topo, s->end)];
    if (s->nic < 0)
        (void)snprintf(reason, bytes, "one of the nodes has no known network adapter");
    else if (!is_device(topo, s->end))
        return 0; /* host memory, which every adapter can access */
    else if (device->flags & DLC_TOPO_NO_DIRECT)
        (void)snprintf(reason, bytes,
                       "the device doesn't let network adapters access its memory");
    else if (topo->node[s->nic].flags & DLC_TOPO_NO_DIRECT)
        (void)snprintf(reason, bytes,
                       "%s, the nearest adapter, cannot access device memory", s->name);
    else if (s->path.class > DLC_TOPO_PXB)
        (void)snprintf(
            reason, bytes,
            "%s, the nearest adapter, is at %s: across a host bridge staging "
            "is faster",
            s->name, s->class);
    else
        return 0;
    return 1;
}

static void between_nodes(const dlc_topo *topo, int32_t a, int32_t b,
                          dlc_topo_route *route) {
    side from = make_side(topo, a), to = make_side(topo, b);
    dlc_route_verdict *rdma = &route->verdict[DLC_ROUTE_RDMA];
    dlc_route_verdict *net = &route->verdict[DLC_ROUTE_NET];
    route->nic[0] = from.nic;
    route->nic[1] = to.nic;
    rdma->possible = 0;
    if (!is_device(topo, a) && !is_device(topo, b)) {
        (void)snprintf(rdma->reason, sizeof rdma->reason,
                       "neither end is a device with its own memory");
    } else if (!no_direct(topo, &from, rdma) && !no_direct(topo, &to, rdma)) {
        rdma->possible = 1;
        (void)snprintf(rdma->reason, sizeof rdma->reason,
                       "adapters at %s and %s access device memory", from.class,
                       to.class);
    }
    net->possible = 1;
    if (from.nic >= 0 && to.nic >= 0)
        (void)snprintf(net->reason, sizeof net->reason,
                       "host memory, through adapters at %s and %s", from.class,
                       to.class);
    else
        (void)snprintf(net->reason, sizeof net->reason,
                       "host memory, through unknown adapters");
}

void dlc_topo_route_between(const dlc_topo *topo, int32_t a, int32_t b,
                            dlc_topo_route *route) {
    int devices = is_device(topo, a) + is_device(topo, b);
    *route = (dlc_topo_route){.nic = {-1, -1}};
    route->path = dlc_topo_path_between(topo, a, b);
    apply_rules(route, devices == 2 ? DEVICES : devices == 1 ? MIXED : CPUS);
    if (route->path.class == DLC_TOPO_NET)
        between_nodes(topo, a, b, route);
    while (route->chosen < DLC_ROUTES && !route->verdict[route->chosen].possible)
        route->chosen++;
}

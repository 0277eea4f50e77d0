/* See route.h. Inside a node the rules are one table; between nodes it depends on the
 * adapters. */
#include "topo/route.h"

#include <stdio.h>
#include <string.h>

const char *dlc_way_text(dlc_way way) {
    static const char *const names[DLC_WAYS + 1] = {
        [DLC_WAY_P2P] = "p2p",   [DLC_WAY_SHM] = "shm", [DLC_WAY_HOST] = "host",
        [DLC_WAY_RDMA] = "rdma", [DLC_WAY_NET] = "net", [DLC_WAYS] = "none"};
    return names[way <= DLC_WAYS ? way : DLC_WAYS];
}

/* ---- Inside a node ------------------------------------------------------------- */

/* Which ends a rule is for. */
enum { DEVICES = 1, MIXED = 2, PROCESSORS = 4, ANY = 7 };

#define CLASS(name) (1u << DLC_TOPO_##name)
#define ALL_CLASSES ((1u << DLC_TOPO_CLASSES) - 1)

typedef struct rule {
    dlc_way way;
    unsigned ends, classes;
    int possible;
    const char *reason;
} rule;

/* The first rule that applies to a way decides. */
static const rule rules[] = {
    {DLC_WAY_P2P, PROCESSORS, ALL_CLASSES, 0,
     "neither end is a device with memory of "
     "its own"},
    {DLC_WAY_P2P, MIXED, ALL_CLASSES, 0, "one end is no device with memory of its own"},
    {DLC_WAY_P2P, DEVICES, CLASS(X), 1, "both are on the same device"},
    {DLC_WAY_P2P, DEVICES, CLASS(NV), 1,
     "links of the devices' own; neither PCIe nor host memory is used"},
    {DLC_WAY_P2P, DEVICES, CLASS(PIX), 1, "one PCIe switch joins them"},
    {DLC_WAY_P2P, DEVICES, CLASS(PXB), 1, "PCIe switches join them, no host bridge"},
    {DLC_WAY_P2P, DEVICES, CLASS(PHB), 1, "one host bridge passes it on"},
    {DLC_WAY_P2P, DEVICES, CLASS(NODE), 0,
     "between host bridges PCIe passes slowly or not at all"},
    {DLC_WAY_P2P, DEVICES, CLASS(SYS), 0,
     "between NUMA nodes PCIe passes slowly or not at all"},
    {DLC_WAY_P2P, ANY, CLASS(NET), 0, "they are on different nodes"},
    {DLC_WAY_SHM, ANY, CLASS(NET), 0, "they are on different nodes"},
    {DLC_WAY_SHM, PROCESSORS, ALL_CLASSES, 1, "both processors see the same memory"},
    {DLC_WAY_SHM, ANY, ALL_CLASSES, 0, "a device's memory is not the processors'"},
    {DLC_WAY_HOST, ANY, CLASS(NET), 0, "they are on different nodes"},
    {DLC_WAY_HOST, PROCESSORS, ALL_CLASSES, 0, "it is in host memory already"},
    {DLC_WAY_HOST, MIXED, ALL_CLASSES, 1,
     "one copy between the device and host memory"},
    {DLC_WAY_HOST, DEVICES, CLASS(SYS), 1,
     "two copies through host memory, one of them between NUMA nodes"},
    {DLC_WAY_HOST, DEVICES, ALL_CLASSES, 1, "two copies through host memory"},
    {DLC_WAY_RDMA, ANY, ALL_CLASSES, 0, "within a node an adapter is a detour"},
    {DLC_WAY_NET, ANY, ALL_CLASSES, 0, "within a node the network is a detour"},
};

static int is_device(const dlc_topo *topo, int32_t end) {
    dlc_topo_kind kind = topo->node[dlc_topo_device_of(topo, end)].kind;
    return kind == DLC_TOPO_GPU || kind == DLC_TOPO_OTHER;
}

static void apply_rules(dlc_topo_route *route, unsigned ends) {
    for (dlc_way way = 0; way < DLC_WAYS; way++)
        for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
            const rule *r = &rules[i];
            if (r->way != way || !(r->ends & ends) ||
                !(r->classes >> route->path.class & 1))
                continue;
            dlc_way_verdict *verdict = &route->verdict[way];
            verdict->possible = r->possible;
            (void)snprintf(verdict->reason, sizeof verdict->reason, "%s", r->reason);
            break;
        }
}

/* ---- Adapters ------------------------------------------------------------------ */

static int is_nic_of(const dlc_topo *topo, int32_t nic, int32_t machine) {
    return topo->node[nic].kind == DLC_TOPO_NIC && topo->node[nic].machine == machine;
}

/* Is one way to an adapter better than another? */
static int better(const dlc_topo *topo, dlc_topo_class class, int32_t nic,
                  dlc_topo_class its, int32_t best) {
    return best < 0 || class < its ||
           (class == its && topo->node[nic].speed > topo->node[best].speed);
}

static int32_t first_nic(const dlc_topo *topo, int32_t end, dlc_topo_path *path) {
    int32_t best = -1;
    for (int32_t i = 0; i < (int32_t)topo->nodes; i++) {
        if (!is_nic_of(topo, i, topo->node[end].machine))
            continue;
        dlc_topo_path to = dlc_topo_path_between(topo, end, i);
        if (better(topo, to.class, i, path->class, best)) {
            best = i;
            *path = to;
        }
    }
    return best;
}

/* How many ends of this kind before it would take the same adapter first. */
static int32_t turn_of(const dlc_topo *topo, int32_t end, int32_t nic) {
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

static int as_good(const dlc_topo *topo, int32_t end, int32_t nic, int32_t first,
                   dlc_topo_class class) {
    return is_nic_of(topo, nic, topo->node[end].machine) &&
           dlc_topo_path_between(topo, end, nic).class == class &&
           topo->node[nic].speed >= topo->node[first].speed;
}

int32_t dlc_topo_route_nic(const dlc_topo *topo, int32_t end, dlc_topo_path *path) {
    int32_t count = 0, first = first_nic(topo, end, path);
    if (first < 0)
        return -1;
    for (int32_t i = first; i < (int32_t)topo->nodes; i++)
        count += as_good(topo, end, i, first, path->class);
    if (count < 2)
        return first;
    int32_t turn = turn_of(topo, end, first) % count;
    for (int32_t i = first; i < (int32_t)topo->nodes; i++)
        if (as_good(topo, end, i, first, path->class) && turn-- == 0) {
            *path = dlc_topo_path_between(topo, end, i);
            return i;
        }
    return first;
}

/* ---- Between nodes ------------------------------------------------------------- */

/* One end of a way over the network. */
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

/* Why an end's memory cannot be read by its adapter; 0: it can. */
static int no_direct(const dlc_topo *topo, const side *s, dlc_way_verdict *verdict) {
    size_t bytes = sizeof verdict->reason;
    char *reason = verdict->reason;
    const dlc_topo_node *device = &topo->node[dlc_topo_device_of(topo, s->end)];
    if (s->nic < 0)
        (void)snprintf(reason, bytes, "no adapter is known on one of the nodes");
    else if (!is_device(topo, s->end))
        return 0; /* host memory, which every adapter reads */
    else if (device->flags & DLC_TOPO_NO_DIRECT)
        (void)snprintf(reason, bytes, "the device lets no adapter read its memory");
    else if (topo->node[s->nic].flags & DLC_TOPO_NO_DIRECT)
        (void)snprintf(reason, bytes,
                       "%s, the nearest adapter, cannot read device memory", s->name);
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
    dlc_way_verdict *rdma = &route->verdict[DLC_WAY_RDMA];
    dlc_way_verdict *net = &route->verdict[DLC_WAY_NET];
    route->nic[0] = from.nic;
    route->nic[1] = to.nic;
    rdma->possible = 0;
    if (!is_device(topo, a) && !is_device(topo, b)) {
        (void)snprintf(rdma->reason, sizeof rdma->reason,
                       "neither end is a device with memory of its own");
    } else if (!no_direct(topo, &from, rdma) && !no_direct(topo, &to, rdma)) {
        rdma->possible = 1;
        (void)snprintf(rdma->reason, sizeof rdma->reason,
                       "adapters at %s and %s read and write device memory", from.class,
                       to.class);
    }
    net->possible = 1;
    if (from.nic >= 0 && to.nic >= 0)
        (void)snprintf(net->reason, sizeof net->reason,
                       "host memory, through adapters at %s and %s", from.class,
                       to.class);
    else
        (void)snprintf(net->reason, sizeof net->reason,
                       "host memory, through adapters that are not known here");
}

void dlc_topo_route_between(const dlc_topo *topo, int32_t a, int32_t b,
                            dlc_topo_route *route) {
    int devices = is_device(topo, a) + is_device(topo, b);
    *route = (dlc_topo_route){.nic = {-1, -1}};
    route->path = dlc_topo_path_between(topo, a, b);
    apply_rules(route, devices == 2 ? DEVICES : devices == 1 ? MIXED : PROCESSORS);
    if (route->path.class == DLC_TOPO_NET)
        between_nodes(topo, a, b, route);
    while (route->way < DLC_WAYS && !route->verdict[route->way].possible)
        route->way++;
}

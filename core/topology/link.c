/* Classifies the path between two nodes: direct links first, then the tree. */
#include "topology/link.h"

#include <stdio.h>
#include <string.h>

#include <dlcore/device.h>

static const struct {
    const char *name, *help;
} classes[DLC_TOPO_CLASSES] = {
    [DLC_TOPO_X] = {"X", "the same device"},
    [DLC_TOPO_NV] = {"NV", "# direct links between devices (NVLink, XGMI)"},
    [DLC_TOPO_SHM] = {"SHM", "two CPUs of one node: shared memory"},
    [DLC_TOPO_PIX] = {"PIX", "at most one PCIe switch or bridge"},
    [DLC_TOPO_PXB] = {"PXB", "several PCIe switches, but no host bridge"},
    [DLC_TOPO_PHB] = {"PHB", "PCIe and one host bridge (the CPU's)"},
    [DLC_TOPO_NODE] = {"NODE", "PCIe and several host bridges of one NUMA node"},
    [DLC_TOPO_SYS] = {"SYS", "PCIe and the links between NUMA nodes"},
    [DLC_TOPO_NET] = {"NET", "different nodes: the network"},
};

const char *dlc_topo_class_text(dlc_topo_class class) {
    return class < DLC_TOPO_CLASSES ? classes[class].name : "?";
}

const char *dlc_topo_class_help(dlc_topo_class class) {
    return class < DLC_TOPO_CLASSES ? classes[class].help : "?";
}

void dlc_topo_path_text(const dlc_topo_path *path, char text[8]) {
    if (path->class == DLC_TOPO_NV)
        (void)snprintf(text, 8, "NV%u", (unsigned)path->links % 10000);
    else
        (void)snprintf(text, 8, "%s", dlc_topo_class_text(path->class));
}

dlc_topo_speed dlc_topo_typical(dlc_topo_class class) {
    static const double gbs[DLC_TOPO_CLASSES] = {
        [DLC_TOPO_X] = 100,  [DLC_TOPO_NV] = 20,  [DLC_TOPO_SHM] = 10,
        [DLC_TOPO_PIX] = 11, [DLC_TOPO_PXB] = 11, [DLC_TOPO_PHB] = 10,
        [DLC_TOPO_NODE] = 9, [DLC_TOPO_SYS] = 8,  [DLC_TOPO_NET] = 1.25};
    static const double us[DLC_TOPO_CLASSES] = {
        [DLC_TOPO_X] = 0.2,  [DLC_TOPO_NV] = 1,    [DLC_TOPO_SHM] = 0.3,
        [DLC_TOPO_PIX] = 1,  [DLC_TOPO_PXB] = 1.2, [DLC_TOPO_PHB] = 1.5,
        [DLC_TOPO_NODE] = 2, [DLC_TOPO_SYS] = 2.5, [DLC_TOPO_NET] = 20};
    return (dlc_topo_speed){us[class] * 1e-6, gbs[class] * 1e9};
}

dlc_topo_speed dlc_topo_path_speed(const dlc_topo_path *path) {
    dlc_topo_speed speed = dlc_topo_typical(path->class);
    if (path->gbs > 0)
        speed.bandwidth = (double)path->gbs * 1e9;
    else if (path->class == DLC_TOPO_NV)
        speed.bandwidth *= path->links;
    return speed;
}

int32_t dlc_topo_device_of(const dlc_topo *topo, int32_t node) {
    return topo->node[node].kind == DLC_TOPO_RANK && topo->node[node].parent >= 0
               ? topo->node[node].parent
               : node;
}

/* ---- Direct links ----------------------------------------------- */

/* The links between two devices, taken together. */
typedef struct bundle {
    int32_t count;
    float gbs;
} bundle;

static void add_to_bundle(bundle *sum, const dlc_topo_link *link) {
    sum->count += link->count;
    sum->gbs += link->gbs;
}

/* Whether a link of this kind is listed from one node to the other. */
static int lists_link(const dlc_topo *topo, int32_t from, int32_t to, uint32_t kind) {
    for (size_t i = 0; i < topo->links; i++)
        if (topo->link[i].from == from && topo->link[i].to == to &&
            topo->link[i].kind == kind)
            return 1;
    return 0;
}

/* The links that one device lists to the other, or to fabrics that both are on. */
static bundle listed_links(const dlc_topo *topo, int32_t from, int32_t to) {
    bundle direct = {0}, switched = {0};
    for (size_t i = 0; i < topo->links; i++) {
        const dlc_topo_link *link = &topo->link[i];
        if (link->from != from)
            continue;
        if (link->to == to)
            add_to_bundle(&direct, link);
        else if (topo->node[link->to].kind == DLC_TOPO_FABRIC &&
                 lists_link(topo, to, link->to, link->kind))
            add_to_bundle(&switched, link);
    }
    return direct.count >= switched.count ? direct : switched;
}

/* The links between two devices. If only one end lists them its number counts, else the
 * smaller number. */
static bundle links_between(const dlc_topo *topo, int32_t a, int32_t b) {
    if (topo->node[a].kind != DLC_TOPO_GPU || topo->node[b].kind != DLC_TOPO_GPU)
        return (bundle){0}; /* only GPUs have direct links */
    bundle there = listed_links(topo, a, b), back = listed_links(topo, b, a);
    if (!there.count)
        return back;
    return back.count && back.count < there.count ? back : there;
}

/* ---- The tree ---------------------------------------------------------------- */

static int is_cpu(const dlc_topo_node *node) {
    return node->kind <= DLC_TOPO_CORE;
}

/* The common ancestor; parents have lower numbers than their children. */
static int32_t common_ancestor(const dlc_topo *topo, int32_t a, int32_t b) {
    while (a != b && a >= 0 && b >= 0)
        if (a > b)
            a = topo->node[a].parent;
        else
            b = topo->node[b].parent;
    return a == b ? a : -1;
}

/* Counts the PCI switches from a node up to, but not including, an ancestor. */
static int switches_below(const dlc_topo *topo, int32_t node, int32_t top) {
    int count = 0;
    for (; node >= 0 && node != top; node = topo->node[node].parent)
        count += topo->node[node].kind == DLC_TOPO_SWITCH;
    return count;
}

/* The lowest known bandwidth from a node up to an ancestor, and of `least` (0:
 * unknown). */
static float lowest_bandwidth(const dlc_topo *topo, int32_t node, int32_t top,
                              float least) {
    for (; node >= 0 && node != top; node = topo->node[node].parent) {
        float gbs = topo->node[node].gbs;
        if (gbs > 0 && (least <= 0 || gbs < least))
            least = gbs;
    }
    return least;
}

static dlc_topo_class over_host(const dlc_topo *topo, const dlc_topo_node *a,
                                const dlc_topo_node *b) {
    int known = a->numa >= 0 && b->numa >= 0;
    if (!known && dlc_topo_count(topo, a->machine, DLC_TOPO_NUMA) > 1)
        return DLC_TOPO_SYS; /* assume the farthest */
    if (known && a->numa != b->numa)
        return DLC_TOPO_SYS;
    /* Between memory and a device there is one host bridge. */
    return is_cpu(a) || is_cpu(b) ? DLC_TOPO_PHB : DLC_TOPO_NODE;
}

static dlc_topo_class over_tree(const dlc_topo *topo, int32_t a, int32_t b,
                                int32_t top) {
    const dlc_topo_node *from = &topo->node[a], *to = &topo->node[b];
    if (is_cpu(from) && is_cpu(to))
        return DLC_TOPO_SHM;
    if (top < 0)
        return DLC_TOPO_SYS;
    dlc_topo_kind kind = topo->node[top].kind;
    if (kind == DLC_TOPO_HOST_BRIDGE)
        return DLC_TOPO_PHB;
    if (is_cpu(&topo->node[top]))
        return over_host(topo, from, to);
    int switches = (kind == DLC_TOPO_SWITCH) + switches_below(topo, a, top) +
                   switches_below(topo, b, top);
    return switches > 1 ? DLC_TOPO_PXB : DLC_TOPO_PIX;
}

dlc_topo_path dlc_topo_path_in_tree(const dlc_topo *topo, int32_t a, int32_t b) {
    dlc_topo_path path = {.class = DLC_TOPO_X, .common_ancestor = -1};
    int same = a == b;
    a = dlc_topo_device_of(topo, a);
    b = dlc_topo_device_of(topo, b);
    if (topo->node[a].machine != topo->node[b].machine) {
        path.class = DLC_TOPO_NET;
        return path;
    }
    path.common_ancestor = common_ancestor(topo, a, b);
    if (a == b) { /* two ranks on the same CPU */
        path.class = !same && is_cpu(&topo->node[a]) ? DLC_TOPO_SHM : DLC_TOPO_X;
        return path;
    }
    path.class = over_tree(topo, a, b, path.common_ancestor);
    path.gbs = lowest_bandwidth(topo, a, path.common_ancestor,
                                lowest_bandwidth(topo, b, path.common_ancestor, 0));
    return path;
}

dlc_topo_path dlc_topo_path_between(const dlc_topo *topo, int32_t a, int32_t b) {
    int32_t from = dlc_topo_device_of(topo, a), to = dlc_topo_device_of(topo, b);
    if (from != to && topo->node[from].machine == topo->node[to].machine) {
        bundle direct = links_between(topo, from, to);
        if (direct.count > 0)
            return (dlc_topo_path){.class = DLC_TOPO_NV,
                                   .links = direct.count,
                                   .common_ancestor = -1,
                                   .gbs = direct.gbs};
    }
    return dlc_topo_path_in_tree(topo, a, b);
}

/* See link.h. */
#include "topo/link.h"

#include <stdio.h>
#include <string.h>

#include <dlcore/device.h>

static const struct {
    const char *name, *help;
} classes[DLC_TOPO_CLASSES] = {
    [DLC_TOPO_X] = {"X", "the same device"},
    [DLC_TOPO_NV] = {"NV", "# bonded links between devices (NVLink, XGMI)"},
    [DLC_TOPO_SHM] = {"SHM", "two processors of one node: its shared memory"},
    [DLC_TOPO_PIX] = {"PIX", "at most one PCIe switch or bridge"},
    [DLC_TOPO_PXB] = {"PXB", "several PCIe switches, but no host bridge"},
    [DLC_TOPO_PHB] = {"PHB", "PCIe and one host bridge (the processor's)"},
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
        (void)snprintf(text, 8, "NV%u", (unsigned)path->lanes % 10000);
    else
        (void)snprintf(text, 8, "%s", dlc_topo_class_text(path->class));
}

int32_t dlc_topo_device_of(const dlc_topo *topo, int32_t node) {
    return topo->node[node].kind == DLC_TOPO_RANK && topo->node[node].parent >= 0
               ? topo->node[node].parent
               : node;
}

/* ---- Links of the devices' own ----------------------------------------------- */

typedef struct bundle {
    int32_t lanes;
    float gbs;
} bundle;

static void add(bundle *sum, const dlc_topo_link *link) {
    sum->lanes += link->lanes;
    sum->gbs += link->gbs;
}

/* Has a link of this kind from one to the other been listed? */
static int listed(const dlc_topo *topo, int32_t from, int32_t to, uint32_t kind) {
    for (size_t i = 0; i < topo->links; i++)
        if (topo->link[i].from == from && topo->link[i].to == to &&
            topo->link[i].kind == kind)
            return 1;
    return 0;
}

/* What one has to the other itself, or to fabrics that the other is on, too. */
static bundle own_links(const dlc_topo *topo, int32_t from, int32_t to) {
    bundle direct = {0}, switched = {0};
    for (size_t i = 0; i < topo->links; i++) {
        const dlc_topo_link *link = &topo->link[i];
        if (link->from != from)
            continue;
        if (link->to == to)
            add(&direct, link);
        else if (topo->node[link->to].kind == DLC_TOPO_FABRIC &&
                 listed(topo, to, link->to, link->kind))
            add(&switched, link);
    }
    return direct.lanes >= switched.lanes ? direct : switched;
}

/* Where only one end lists its links, it is believed. */
static bundle links_between(const dlc_topo *topo, int32_t a, int32_t b) {
    if (topo->node[a].kind != DLC_TOPO_GPU || topo->node[b].kind != DLC_TOPO_GPU)
        return (bundle){0}; /* nothing else has links of its own */
    bundle there = own_links(topo, a, b), back = own_links(topo, b, a);
    if (!there.lanes)
        return back;
    return back.lanes && back.lanes < there.lanes ? back : there;
}

/* ---- The tree ---------------------------------------------------------------- */

static int is_processor(const dlc_topo_node *node) {
    return node->kind <= DLC_TOPO_CORE;
}

/* Where the ways up meet: parents have lower numbers. */
static int32_t meet(const dlc_topo *topo, int32_t a, int32_t b) {
    while (a != b && a >= 0 && b >= 0)
        if (a > b)
            a = topo->node[a].parent;
        else
            b = topo->node[b].parent;
    return a == b ? a : -1;
}

/* PCI switches from a node up to, but without, the place where the ways meet. */
static int switches_below(const dlc_topo *topo, int32_t node, int32_t top) {
    int count = 0;
    for (; node >= 0 && node != top; node = topo->node[node].parent)
        count += topo->node[node].kind == DLC_TOPO_SWITCH;
    return count;
}

/* The narrowest edge from a node up to the meeting point. */
static float narrowest(const dlc_topo *topo, int32_t node, int32_t top, float least) {
    for (; node >= 0 && node != top; node = topo->node[node].parent) {
        float gbs = topo->node[node].gbs;
        if (gbs > 0 && (least <= 0 || gbs < least))
            least = gbs;
    }
    return least;
}

static dlc_topo_class over_processors(const dlc_topo *topo, const dlc_topo_node *a,
                                      const dlc_topo_node *b) {
    int known = a->numa >= 0 && b->numa >= 0;
    if (!known && dlc_topo_count(topo, a->machine, DLC_TOPO_NUMA) > 1)
        return DLC_TOPO_SYS; /* taken for the farthest */
    if (known && a->numa != b->numa)
        return DLC_TOPO_SYS;
    /* From memory to a device there is one host bridge to cross. */
    return is_processor(a) || is_processor(b) ? DLC_TOPO_PHB : DLC_TOPO_NODE;
}

static dlc_topo_class over_tree(const dlc_topo *topo, int32_t a, int32_t b,
                                int32_t top) {
    const dlc_topo_node *from = &topo->node[a], *to = &topo->node[b];
    if (is_processor(from) && is_processor(to))
        return DLC_TOPO_SHM;
    if (top < 0)
        return DLC_TOPO_SYS;
    dlc_topo_kind kind = topo->node[top].kind;
    if (kind == DLC_TOPO_HOST_BRIDGE)
        return DLC_TOPO_PHB;
    if (is_processor(&topo->node[top]))
        return over_processors(topo, from, to);
    int switches = (kind == DLC_TOPO_SWITCH) + switches_below(topo, a, top) +
                   switches_below(topo, b, top);
    return switches > 1 ? DLC_TOPO_PXB : DLC_TOPO_PIX;
}

dlc_topo_path dlc_topo_path_between(const dlc_topo *topo, int32_t a, int32_t b) {
    dlc_topo_path path = {.class = DLC_TOPO_X, .through = -1};
    int same = a == b;
    a = dlc_topo_device_of(topo, a);
    b = dlc_topo_device_of(topo, b);
    if (topo->node[a].machine != topo->node[b].machine) {
        path.class = DLC_TOPO_NET;
        return path;
    }
    path.through = meet(topo, a, b);
    if (a == b) { /* two ranks on one processor are still two */
        path.class = !same && is_processor(&topo->node[a]) ? DLC_TOPO_SHM : DLC_TOPO_X;
        return path;
    }
    bundle own = links_between(topo, a, b);
    if (own.lanes > 0) {
        path.class = DLC_TOPO_NV;
        path.lanes = own.lanes;
        path.gbs = own.gbs;
        path.through = -1;
        return path;
    }
    path.class = over_tree(topo, a, b, path.through);
    path.gbs = narrowest(topo, a, path.through, narrowest(topo, b, path.through, 0));
    return path;
}

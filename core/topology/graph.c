/* Builds, queries and labels the graph. */
#include "topology/graph.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

void dlc_topo_free(dlc_topo *topo) {
    for (size_t i = 0; i < topo->notes; i++)
        dlc_free(topo->note[i]);
    dlc_free(topo->note);
    dlc_free(topo->link);
    dlc_free(topo->node);
    *topo = (dlc_topo){0};
}

static int make_node_room(dlc_topo *topo) {
    if (topo->nodes >= DLC_TOPO_NODES_MAX) {
        dlc_fail(DLC_ERR_DATA, "this topology has more than %d nodes",
                 DLC_TOPO_NODES_MAX);
        return -1;
    }
    dlc_topo_node *grown = dlc_grow_by_one(topo->node, topo->nodes, sizeof *grown);
    if (!grown)
        return -1;
    topo->node = grown;
    return 0;
}

dlc_topo_node *dlc_topo_add(dlc_topo *topo, dlc_topo_kind kind, int32_t parent) {
    if (make_node_room(topo))
        return NULL;
    int32_t mine = (int32_t)topo->nodes++;
    dlc_topo_node *node = &topo->node[mine];
    *node = (dlc_topo_node){.kind = kind,
                            .parent = parent,
                            .machine = mine,
                            .numa = -1,
                            .package = -1,
                            .index = -1};
    if (parent >= 0) {
        const dlc_topo_node *above = &topo->node[parent];
        node->machine = above->machine;
        node->numa = above->numa;
        node->package = above->package;
    }
    return node;
}

int32_t dlc_topo_last(const dlc_topo *topo) {
    return (int32_t)topo->nodes - 1;
}

static dlc_topo_link *find_topo_link(const dlc_topo *topo, int32_t from, int32_t to,
                                     uint32_t kind) {
    for (size_t i = 0; i < topo->links; i++) {
        dlc_topo_link *link = &topo->link[i];
        if (link->from == from && link->to == to && link->kind == kind)
            return link;
    }
    return NULL;
}

dlc_status dlc_topo_add_link(dlc_topo *topo, int32_t from, int32_t to, uint32_t kind,
                             int32_t count, float gbs) {
    dlc_topo_link *link = find_topo_link(topo, from, to, kind);
    if (link) {
        int32_t sum = link->count + count;
        link->count = sum < DLC_TOPO_LINK_COUNT_MAX ? sum : DLC_TOPO_LINK_COUNT_MAX;
        link->gbs += gbs;
        return DLC_OK;
    }
    dlc_topo_link *grown = dlc_grow_by_one(topo->link, topo->links, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    topo->link = grown;
    grown[topo->links++] = (dlc_topo_link){from, to, kind, count, gbs};
    return DLC_OK;
}

dlc_status dlc_topo_add_note(dlc_topo *topo, const char *format, ...) {
    char text[256], clean[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    dlc_topo_text(clean, sizeof clean, text);
    char **grown = dlc_grow_by_one(topo->note, topo->notes, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    topo->note = grown;
    topo->note[topo->notes] = dlc_strdup(clean);
    return topo->note[topo->notes] ? (topo->notes++, DLC_OK) : DLC_ERR_NOMEM;
}

/* ---- Texts --------------------------------------------------------------------- */

void dlc_topo_text(char *to, size_t bytes, const char *from) {
    size_t i = 0;
    for (; from[i] && i + 1 < bytes; i++)
        to[i] = from[i] >= 0x20 && from[i] < 0x7f ? from[i] : '?';
    to[i] = '\0';
}

void dlc_topo_address(char *to, size_t bytes, const char *from) {
    unsigned domain, bus, slot, function;
    char rest;
    if (sscanf(from, "%8x:%4x:%4x.%1x%c", &domain, &bus, &slot, &function, &rest) !=
        4) {
        domain = 0;
        if (sscanf(from, "%4x:%4x.%1x%c", &bus, &slot, &function, &rest) != 3) {
            dlc_topo_text(to, bytes, from);
            return;
        }
    }
    (void)snprintf(to, bytes, "%04x:%02x:%02x.%x", domain, bus, slot, function);
}

const char *dlc_topo_kind_text(dlc_topo_kind kind) {
    static const char *const names[DLC_TOPO_KINDS] = {
        [DLC_TOPO_MACHINE] = "machine", [DLC_TOPO_PACKAGE] = "package",
        [DLC_TOPO_NUMA] = "NUMA node",  [DLC_TOPO_L3] = "L3 cache",
        [DLC_TOPO_CORE] = "core",       [DLC_TOPO_HOST_BRIDGE] = "host bridge",
        [DLC_TOPO_PORT] = "root port",  [DLC_TOPO_SWITCH] = "PCI switch",
        [DLC_TOPO_GPU] = "GPU",         [DLC_TOPO_NIC] = "NIC",
        [DLC_TOPO_OTHER] = "device",    [DLC_TOPO_FABRIC] = "fabric",
        [DLC_TOPO_RANK] = "rank"};
    int known = kind >= DLC_TOPO_MACHINE && kind < DLC_TOPO_KINDS;
    return known ? names[kind] : "?";
}

/* Writes the number of the node's machine, or "" if there is only one. */
static void machine_prefix(const dlc_topo *topo, int32_t node, char text[16]) {
    int32_t before = 0, after = 0;
    for (size_t i = 0; i < topo->nodes; i++) {
        before += topo->node[i].parent < 0 && (int32_t)i < topo->node[node].machine;
        after += topo->node[i].parent < 0;
    }
    text[0] = '\0';
    if (after > 1)
        (void)snprintf(text, 16, "%d:", before);
}

static void nic_label(const dlc_topo_node *nic, const char *prefix, char *text,
                      size_t bytes) {
    if (nic->name[0])
        (void)snprintf(text, bytes, "%s%s", prefix, nic->name);
    else
        (void)snprintf(text, bytes, "%sNIC%d", prefix, nic->index);
}

void dlc_topo_label(const dlc_topo *topo, int32_t node, char *text, size_t bytes) {
    const dlc_topo_node *it = &topo->node[node];
    char prefix[16];
    machine_prefix(topo, node, prefix);
    if (it->kind == DLC_TOPO_RANK)
        (void)snprintf(text, bytes, "rank %d", it->index);
    else if (it->kind == DLC_TOPO_GPU)
        (void)snprintf(text, bytes, "%sGPU%d", prefix, it->index);
    else if (it->kind == DLC_TOPO_NIC)
        nic_label(it, prefix, text, bytes);
    else if (it->kind == DLC_TOPO_OTHER)
        (void)snprintf(text, bytes, "%s%s", prefix, it->address);
    else if (it->index >= 0)
        (void)snprintf(text, bytes, "%s%s %d", prefix, dlc_topo_kind_text(it->kind),
                       it->index);
    else /* the only one, or without a number */
        (void)snprintf(text, bytes, "%s%s", prefix, dlc_topo_kind_text(it->kind));
}

/* ---- Finding ------------------------------------------------------------------- */

int32_t dlc_topo_at(const dlc_topo *topo, int32_t machine, const char *address) {
    for (size_t i = 0; i < topo->nodes; i++)
        if (topo->node[i].machine == machine && topo->node[i].address[0] &&
            strcmp(topo->node[i].address, address) == 0)
            return (int32_t)i;
    return -1;
}

int32_t dlc_topo_nth(const dlc_topo *topo, int32_t machine, dlc_topo_kind kind,
                     size_t n) {
    for (size_t i = 0; i < topo->nodes; i++)
        if (topo->node[i].kind == kind &&
            (machine < 0 || topo->node[i].machine == machine) && n-- == 0)
            return (int32_t)i;
    return -1;
}

size_t dlc_topo_count(const dlc_topo *topo, int32_t machine, dlc_topo_kind kind) {
    size_t count = 0;
    for (size_t i = 0; i < topo->nodes; i++)
        count += topo->node[i].kind == kind &&
                 (machine < 0 || topo->node[i].machine == machine);
    return count;
}

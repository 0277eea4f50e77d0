/* Reads hwloc's findings as XML, with the reader for recorded machines, so that tests
 * that replay recorded machines test the code that runs on live machines; then adds
 * devices, links, ranks, and what Linux alone knows of adapters. */
#include "topology/discover.h"

#include <errno.h>
#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/read.h"
#include "topology/read.h"

/* ---- hwloc ------------------------------------------------------------------------
 */

/* hwloc's plugins look for displays, OpenCL and the like. They are of no use here, and
 * loading them takes longer than everything else. */
static int init_without_plugins(hwloc_topology_t *topology) {
    static const char name[] = "HWLOC_PLUGINS_PATH";
    const char *before = getenv(name);
    char *kept = before ? dlc_strdup(before) : NULL;
    if (before && !kept)
        return -1;
    int rc = setenv(name, "/nonexistent", 1);
    if (rc == 0) {
        rc = hwloc_topology_init(topology);
        int restored = kept ? setenv(name, kept, 1) : unsetenv(name);
        if (rc == 0 && restored != 0) {
            hwloc_topology_destroy(*topology);
            rc = -1;
        }
    }
    dlc_free(kept);
    return rc;
}

dlc_status dlc_hwloc_load(int io, const char *synthetic, hwloc_topology_t *topology) {
    hwloc_topology_t made;
    if (init_without_plugins(&made))
        return dlc_fail(DLC_ERR_NOMEM, "hwloc cannot start: out of memory");
    hwloc_topology_set_io_types_filter(made, io ? HWLOC_TYPE_FILTER_KEEP_ALL
                                                : HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_icache_types_filter(made, HWLOC_TYPE_FILTER_KEEP_NONE);
    hwloc_topology_set_type_filter(made, HWLOC_OBJ_MISC, HWLOC_TYPE_FILTER_KEEP_NONE);
    /* hwloc's x86 component would bind this thread to each core in turn. The kernel's
     * data is enough. */
    hwloc_topology_set_components(made, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                  "x86");
    dlc_status status = DLC_OK;
    errno = 0;
    if (synthetic && hwloc_topology_set_synthetic(made, synthetic))
        status = dlc_fail(DLC_ERR_CONFIG,
                          "hwloc cannot read '%s' as a synthetic machine", synthetic);
    else if (hwloc_topology_load(made))
        status = dlc_fail(errno == ENOMEM ? DLC_ERR_NOMEM : DLC_ERR_IO,
                          "hwloc cannot read this machine's topology: %s",
                          strerror(errno));
    if (status == DLC_OK)
        *topology = made;
    else
        hwloc_topology_destroy(made);
    return status;
}

static dlc_status read_loaded(hwloc_topology_t topology, dlc_topo *topo) {
    char *bytes = NULL;
    int length = 0;
    dlc_xml *xml = NULL;
    if (hwloc_topology_export_xmlbuffer(topology, &bytes, &length, 0))
        return dlc_fail(DLC_ERR_IO, "hwloc cannot export this machine's topology");
    dlc_status status = dlc_xml_parse(bytes, strnlen(bytes, (size_t)length),
                                      "this machine", &xml);
    hwloc_free_xmlbuffer(topology, bytes);
    if (status == DLC_OK)
        status = dlc_topo_read_xml(xml, topo);
    dlc_xml_free(xml);
    return status;
}

/* ---- Adapters ---------------------------------------------------------------------
 */

/* Reads /sys/class/net and /sys/class/infiniband. */

/* Reads the first line of a file, which fails while the link is down; 0 if there is
 * none. */
static int read_nic_line(const char *root, const char *folder, const char *name,
                         const char *file, char text[64]) {
    char path[512];
    int length = snprintf(path, sizeof path, "%s/sys/class/%s/%s/%s", root, folder,
                          name, file);
    return length > 0 && (size_t)length < sizeof path &&
           dlc_read_line(path, text, 64) > 0;
}

/* Ethernet: "10000" Mbit/s (-1: unknown), and "up", "down" or "unknown". */
static void read_net_nic(const char *root, dlc_topo_node *nic) {
    char text[64];
    if (read_nic_line(root, "net", nic->name, "speed", text) && strtod(text, NULL) > 0)
        nic->speed = (float)(strtod(text, NULL) / 8000);
    if (read_nic_line(root, "net", nic->name, "operstate", text) &&
        (strcmp(text, "down") == 0 || strcmp(text, "lowerlayerdown") == 0))
        nic->flags |= DLC_TOPO_DOWN;
}

/* RDMA, port 1: "100 Gb/sec (4X EDR)", and "4: ACTIVE". */
static void read_rdma_nic(const char *root, dlc_topo_node *nic) {
    char text[64];
    if (read_nic_line(root, "infiniband", nic->name, "ports/1/rate", text) &&
        strtod(text, NULL) > 0)
        nic->speed = (float)(strtod(text, NULL) / 8);
    if (read_nic_line(root, "infiniband", nic->name, "ports/1/state", text) &&
        !strstr(text, "ACTIVE"))
        nic->flags |= DLC_TOPO_DOWN;
}

void dlc_topo_read_live_nics(const char *root, dlc_topo *topo) {
    for (size_t i = 0; i < topo->nodes; i++) {
        dlc_topo_node *node = &topo->node[i];
        if (node->kind != DLC_TOPO_NIC || !node->name[0] || strchr(node->name, '/'))
            continue;
        read_net_nic(root, node);
        read_rdma_nic(root, node);
    }
}

/* ---- Devices ----------------------------------------------------------------- */

/* The parent of a device that hwloc doesn't know. */
static int32_t parent_for(const dlc_topo *topo, int32_t machine, int32_t numa,
                          int32_t package) {
    int32_t home = machine;
    for (size_t i = 0; i < topo->nodes; i++) {
        const dlc_topo_node *node = &topo->node[i];
        if (node->machine != machine)
            continue;
        if (node->kind == DLC_TOPO_NUMA && numa >= 0 && node->numa == numa)
            return (int32_t)i;
        if (node->kind == DLC_TOPO_PACKAGE && package >= 0 && node->package == package)
            home = (int32_t)i;
    }
    return home;
}

static dlc_status add_described(dlc_topo *topo, int32_t machine,
                                const dlc_feature *feature, int32_t index) {
    const dlc_device_ops *ops = feature->ops;
    dlc_device_info info = {.size = sizeof info, .numa = -1};
    char address[32] = "";
    DLC_TRY(ops->describe(index, &info));
    info.address[sizeof info.address - 1] = info.name[sizeof info.name - 1] = '\0';
    if (!info.address[0])
        return DLC_OK; /* the CPU itself */
    dlc_topo_address(address, sizeof address, info.address);
    int32_t at = dlc_topo_at(topo, machine, address);
    if (at < 0) {
        if (!dlc_topo_add(topo, DLC_TOPO_GPU, parent_for(topo, machine, info.numa, -1)))
            return DLC_ERR_NOMEM;
        at = dlc_topo_last(topo);
        memcpy(topo->node[at].address, address, sizeof address);
        topo->node[at].numa = info.numa;
        topo->node[at].index = (int32_t)dlc_topo_count(topo, machine, DLC_TOPO_GPU) -
                               1; /* numbered last */
    }
    dlc_topo_node *node = &topo->node[at];
    node->kind = DLC_TOPO_GPU;
    node->device_index = index;
    dlc_topo_text(node->device, sizeof node->device, feature->name);
    dlc_topo_text(node->name, sizeof node->name, info.name);
    return DLC_OK;
}

static int32_t find_opened_device(const dlc_topo *topo, int32_t machine,
                                  const char *device, int32_t index) {
    for (size_t i = 0; i < topo->nodes; i++) {
        const dlc_topo_node *node = &topo->node[i];
        if (node->machine == machine && node->kind == DLC_TOPO_GPU &&
            node->device_index == index && node->device[0] &&
            strcmp(node->device, device) == 0)
            return (int32_t)i;
    }
    return -1;
}

/* ---- Direct links --------------------------------------------------------------- */

/* Finds or adds the switch with this address; switches without one are told apart by
 * the kind of their links. */
static int32_t fabric_of(dlc_topo *topo, int32_t machine, const char *address,
                         uint32_t kind) {
    const char *name = kind == DLC_LINK_NVLINK ? "NVSwitch" : "switch";
    for (size_t i = 0; i < topo->nodes; i++) {
        const dlc_topo_node *node = &topo->node[i];
        if (node->kind == DLC_TOPO_FABRIC && node->machine == machine &&
            strcmp(node->address, address) == 0 && strcmp(node->name, name) == 0)
            return (int32_t)i;
    }
    dlc_topo_node *node = dlc_topo_add(topo, DLC_TOPO_FABRIC, machine);
    if (!node)
        return -1;
    dlc_topo_text(node->name, sizeof node->name, name);
    dlc_topo_text(node->address, sizeof node->address, address);
    return dlc_topo_last(topo);
}

static dlc_status add_link(dlc_topo *topo, int32_t from, const dlc_link *link) {
    int32_t machine = topo->node[from].machine, to = -1;
    uint32_t kind = link->kind == DLC_LINK_NVLINK || link->kind == DLC_LINK_XGMI
                        ? link->kind
                        : DLC_LINK_OTHER;
    char peer[sizeof link->peer], address[32];
    memcpy(peer, link->peer, sizeof peer);
    peer[sizeof peer - 1] = '\0';
    dlc_topo_address(address, sizeof address, peer);
    if (link->end == DLC_LINK_TO_SWITCH) {
        to = fabric_of(topo, machine, address, kind);
        if (to < 0)
            return DLC_ERR_NOMEM;
    } else if (link->end == DLC_LINK_TO_DEVICE) {
        to = dlc_topo_at(topo, machine, address);
        if (to < 0 || to == from)
            return dlc_topo_add_note(
                topo,
                "%s reports a link to %s, which is not another device "
                "of this machine",
                topo->node[from].address, address);
    } else {
        return DLC_OK;
    }
    int bonded = link->width < 1                         ? 1
                 : link->width > DLC_TOPO_LINK_COUNT_MAX ? DLC_TOPO_LINK_COUNT_MAX
                                                         : link->width;
    float gbs = DLC_HAS(link, gbs) && link->gbs > 0 ? link->gbs : 0;
    return dlc_topo_add_link(topo, from, to, kind, bonded, gbs);
}

static dlc_status add_links(dlc_topo *topo, const dlc_device_ops *ops, int32_t index,
                            int32_t from) {
    int32_t room = 0, count = 0;
    DLC_TRY(ops->links(index, NULL, 0, &room));
    if (room < 1)
        return DLC_OK;
    if (room > DLC_TOPO_LINK_COUNT_MAX)
        room = DLC_TOPO_LINK_COUNT_MAX;
    dlc_link *links = dlc_alloc((size_t)room, sizeof *links);
    if (!links)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < room; i++)
        links[i].size = sizeof *links;
    dlc_status status = ops->links(index, links, room, &count);
    const dlc_link *link = links;
    for (int32_t i = 0; status == DLC_OK && i < count && i < room; i++) {
        status = add_link(topo, from, link);
        link = DLC_NEXT(link);
    }
    dlc_free(links);
    return status;
}

/* The most devices of one type that are believed. */
enum { DEVICES_MAX = 4096 };

/* Adds all devices first, then the links between them. */
static dlc_status add_devices(dlc_topo *topo, int32_t machine,
                              const dlc_feature *feature) {
    const dlc_device_ops *ops = feature->ops;
    int32_t count = 0;
    DLC_TRY(ops->count(&count));
    if (count < 0 || count > DEVICES_MAX)
        return dlc_fail(DLC_ERR_PLUGIN, "it counts %d devices", (int)count);
    for (int32_t i = 0; i < count; i++)
        DLC_TRY(add_described(topo, machine, feature, i));
    for (int32_t i = 0; i < count && DLC_CAN(ops, links); i++) {
        int32_t node = find_opened_device(topo, machine, feature->name, i);
        if (node >= 0)
            DLC_TRY(add_links(topo, ops, i, node));
    }
    return DLC_OK;
}

dlc_status dlc_topo_add_devices(dlc_topo *topo, int32_t machine,
                                const dlc_feature *feature) {
    dlc_status status = add_devices(topo, machine, feature);
    if (status == DLC_OK || status == DLC_ERR_NOMEM)
        return status;
    return dlc_topo_add_note(topo, "%s: %s", feature->name, dlc_detail());
}

/* ---- Ranks, and the whole machine ----------------------------------------------- */

dlc_status dlc_topo_add_rank(dlc_topo *topo, int32_t machine, int32_t rank,
                             const dlc_rank_info *info) {
    int32_t device = find_opened_device(topo, machine, info->device,
                                        info->device_index);
    int32_t numa = DLC_HAS(info, numa) ? info->numa : -1;
    int32_t package = DLC_HAS(info, package) ? info->package : -1;
    int32_t parent = device >= 0 ? device : parent_for(topo, machine, numa, package);
    dlc_topo_node *node = dlc_topo_add(topo, DLC_TOPO_RANK, parent);
    if (!node)
        return DLC_ERR_NOMEM;
    node->index = rank;
    dlc_topo_text(node->device, sizeof node->device, info->device);
    node->device_index = info->device_index;
    return DLC_OK;
}

static void name_machine(dlc_topo_node *machine) {
    char host[64] = "";
    if (machine->name[0] || gethostname(host, sizeof host - 1) != 0)
        return;
    dlc_topo_text(machine->name, sizeof machine->name, host);
}

dlc_status dlc_topo_read_machine(hwloc_topology_t topology, dlc_topo *topo) {
    dlc_status status = read_loaded(topology, topo);
    if (status != DLC_OK) {
        dlc_topo_free(topo);
        return status;
    }
    name_machine(&topo->node[0]);
    dlc_topo_read_live_nics("", topo);
    dlc_topo_number(topo, 0);
    return DLC_OK;
}

dlc_status dlc_topo_discover(dlc_topo *topo) {
    hwloc_topology_t topology;
    DLC_TRY(dlc_hwloc_load(1, NULL, &topology));
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): set with DLC_OK
    dlc_status status = dlc_topo_read_machine(topology, topo);
    hwloc_topology_destroy(topology);
    return status;
}

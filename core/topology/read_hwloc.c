/* Reads hwloc's XML, versions 1 to 3, in which objects are nested as the machine is.
 * What the graph has no node for is ignored. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "topology/read.h"

typedef struct reader {
    const dlc_xml *xml;
    dlc_topo *topo;
    int major;               /* of the format */
    dlc_topo_object *object; /* owned; the possible ends of links */
    size_t objects;
} reader;

/* The position of an object in the tree. */
typedef struct place {
    int32_t parent; /* node of the graph */
    int bridges;    /* PCI bridges above, below the host bridge */
} place;

static dlc_status visit(reader *r, const dlc_xml_element *element, place at);

static const char *object_type(const dlc_xml_element *element) {
    const char *type = dlc_xml_get(element, "type");
    return type ? type : "";
}

static int is_object(const dlc_xml_element *element) {
    return strcmp(element->name, "object") == 0;
}

static int is_type(const dlc_xml_element *element, const char *type) {
    return is_object(element) && strcmp(object_type(element), type) == 0;
}

/* The value of an object's <info name="..." value="..."/>; NULL: none. */
static const char *info(const dlc_xml_element *element, const char *name) {
    for (const dlc_xml_element *c = element->child; c; c = c->next) {
        const char *its = dlc_xml_get(c, "name");
        if (strcmp(c->name, "info") == 0 && its && strcmp(its, name) == 0)
            return dlc_xml_get(c, "value");
    }
    return NULL;
}

static dlc_status children(reader *r, const dlc_xml_element *element, place at) {
    for (const dlc_xml_element *c = element->child; c; c = c->next)
        if (is_object(c))
            DLC_TRY(visit(r, c, at));
    return DLC_OK;
}

/* ---- CPUs and memory --------------------------------------------------- */

static dlc_status os_index(const reader *r, const dlc_xml_element *element,
                           int64_t *index) {
    return dlc_xml_int(r->xml, element, "os_index", -1, INT32_MAX, -1, index);
}

static dlc_status add_inner(reader *r, const dlc_xml_element *element,
                            dlc_topo_kind kind, place *at) {
    int64_t index = -1;
    if (strcmp(dlc_xml_get(element, "os_index") ? dlc_xml_get(element, "os_index") : "",
               "4294967295") != 0) /* "not known" */
        DLC_TRY(os_index(r, element, &index));
    dlc_topo_node *node = dlc_topo_add(r->topo, kind, at->parent);
    if (!node)
        return DLC_ERR_NOMEM;
    node->index = (int32_t)index;
    if (kind == DLC_TOPO_NUMA)
        node->numa = (int32_t)index;
    if (kind == DLC_TOPO_PACKAGE)
        node->package = (int32_t)index;
    const char *model = info(element, "CPUModel");
    dlc_topo_text(node->name, sizeof node->name, model ? model : "");
    at->parent = dlc_topo_last(r->topo);
    return DLC_OK;
}

/* Since version 2 a NUMA node is a sibling of the objects that are local to it: the
 * first one among an object's children is taken for the NUMA node of all other
 * children. */
static const dlc_xml_element *memory_among(const dlc_xml_element *element) {
    for (const dlc_xml_element *c = element->child; c; c = c->next) {
        if (is_type(c, "NUMANode") && !c->child)
            return c;
        if (is_type(c, "NUMANode")) { /* version 1 nests the cores in it */
            int nests = 0;
            for (const dlc_xml_element *g = c->child; g; g = g->next)
                nests |= is_object(g);
            if (!nests)
                return c;
        }
        if (is_type(c, "MemCache"))
            return memory_among(c);
    }
    return NULL;
}

static dlc_status visit_inner(reader *r, const dlc_xml_element *element,
                              dlc_topo_kind kind, place at) {
    const dlc_xml_element *memory = memory_among(element);
    if (kind != DLC_TOPO_NONE)
        DLC_TRY(add_inner(r, element, kind, &at));
    if (memory)
        DLC_TRY(add_inner(r, memory, DLC_TOPO_NUMA, &at));
    for (const dlc_xml_element *c = element->child; c; c = c->next) {
        if (!is_object(c) || c == memory || is_type(c, "MemCache"))
            continue;
        place below = at;
        if (memory && is_type(c, "NUMANode")) /* a further memory of the same cores */
            below.parent = r->topo->node[at.parent].parent;
        DLC_TRY(visit(r, c, below));
    }
    return DLC_OK;
}

static int is_l3(const dlc_xml_element *element) {
    const char *depth = dlc_xml_get(element, "depth");
    return is_type(element, "L3Cache") ||
           (is_type(element, "Cache") && depth && strcmp(depth, "3") == 0);
}

/* A core is numbered by its first hardware thread. */
static dlc_status visit_core(reader *r, const dlc_xml_element *element, place at) {
    int64_t cpu = -1, index = -1;
    for (const dlc_xml_element *c = element->child; c; c = c->next)
        if (is_type(c, "PU")) {
            DLC_TRY(os_index(r, c, &index));
            if (cpu < 0 || index < cpu)
                cpu = index;
        }
    if (cpu < 0 && is_type(element, "PU"))
        DLC_TRY(os_index(r, element, &cpu));
    dlc_topo_node *node = dlc_topo_add(r->topo, DLC_TOPO_CORE, at.parent);
    if (!node)
        return DLC_ERR_NOMEM;
    node->index = (int32_t)cpu;
    return DLC_OK;
}

/* ---- PCI ----------------------------------------------------------------------- */

/* pci_type="0302 [10de:2330] ...", in version 1 "0302 [10de:2330] [...] a1". */
static dlc_status pci_type(const reader *r, const dlc_xml_element *element,
                           unsigned *class, unsigned *vendor) {
    const char *text = dlc_xml_get(element, "pci_type");
    if (!text || sscanf(text, "%4x [%4x:", class, vendor) != 2)
        return dlc_xml_fail(r->xml, element,
                            "pci_type=\"%s\" is not like \"0302 [10de:2330]\"",
                            text ? text : "");
    return DLC_OK;
}

static dlc_status pci_speed(const reader *r, const dlc_xml_element *element,
                            float *gbs) {
    const char *text = dlc_xml_get(element, "pci_link_speed");
    char *end = NULL;
    *gbs = 0;
    if (!text)
        return DLC_OK;
    *gbs = strtof(text, &end);
    if (end == text || *end || !(*gbs >= 0 && *gbs < 1e6f))
        return dlc_xml_fail(r->xml, element,
                            "pci_link_speed=\"%s\" is not a speed in GB/s", text);
    return DLC_OK;
}

static dlc_status pci_address(const reader *r, const dlc_xml_element *element,
                              char address[32]) {
    const char *text = dlc_xml_get(element, "pci_busid");
    if (!text)
        return dlc_xml_fail(r->xml, element, "this PCI device has no pci_busid");
    dlc_topo_address(address, 32, text);
    int32_t machine = r->topo->node[0].machine;
    if (dlc_topo_at(r->topo, machine, address) >= 0)
        return dlc_xml_fail(r->xml, element, "PCI device %s appears twice", address);
    return DLC_OK;
}

/* A device without a NUMA node is in the machine's only one, if there is only one. */
static void only_memory(const dlc_topo *topo, dlc_topo_node *node) {
    if (node->numa < 0 && dlc_topo_count(topo, 0, DLC_TOPO_NUMA) == 1)
        node->numa = topo->node[dlc_topo_nth(topo, 0, DLC_TOPO_NUMA, 0)].numa;
}

/* Below a host bridge come a root port, the upstream port of a switch, one of its
 * downstream ports, the upstream port of the next switch, and so on. A switch is one
 * node, made for its upstream port; downstream ports have none. */
static dlc_status visit_bridge(reader *r, const dlc_xml_element *element, place at) {
    const char *type = dlc_xml_get(element, "bridge_type");
    int from_host = type && type[0] == '0';
    dlc_topo_kind kind = from_host         ? DLC_TOPO_HOST_BRIDGE
                         : at.bridges == 0 ? DLC_TOPO_PORT
                                           : DLC_TOPO_SWITCH;
    if (from_host || at.bridges == 0 || at.bridges % 2 == 1) {
        dlc_topo_node *node = dlc_topo_add(r->topo, kind, at.parent);
        if (!node)
            return DLC_ERR_NOMEM;
        char address[32] = "";
        if (!from_host) {
            DLC_TRY(pci_address(r, element, address));
            DLC_TRY(pci_speed(r, element, &node->gbs));
        }
        memcpy(node->address, address, sizeof address);
        if (from_host)
            only_memory(r->topo, node);
        at.parent = dlc_topo_last(r->topo);
    }
    at.bridges = from_host ? 0 : at.bridges + 1;
    return children(r, element, at);
}

/* The type of an operating system's device below a PCI device, in the bits of
 * version 3. */
enum { OS_GPU = 1 << 2, OS_COPROC = 1 << 3, OS_NET = 1 << 4, OS_FABRIC = 1 << 5 };

static dlc_status os_type(const reader *r, const dlc_xml_element *element, int *bits) {
    static const int before_3[] = {1, OS_GPU, OS_NET, OS_FABRIC, 64, OS_COPROC};
    int64_t type = 0;
    DLC_TRY(dlc_xml_int(r->xml, element, "osdev_type", 0, 1023, 0, &type));
    *bits = (int)type;
    if (r->major < 3)
        *bits = type < (int64_t)(sizeof before_3 / sizeof *before_3) ? before_3[type]
                                                                     : 0;
    return DLC_OK;
}

static dlc_status count_os(const reader *r, const dlc_xml_element *element, int bit,
                           int *count) {
    *count = 0;
    for (const dlc_xml_element *c = element->child; c; c = c->next) {
        int bits = 0;
        if (!is_type(c, "OSDev"))
            continue;
        DLC_TRY(os_type(r, c, &bits));
        *count += (bits & bit) != 0;
    }
    return DLC_OK;
}

static dlc_status add_pci_device(reader *r, const dlc_xml_element *element,
                                 dlc_topo_kind kind, const char *name,
                                 const char address[32], place at) {
    float gbs = 0;
    DLC_TRY(pci_speed(r, element, &gbs));
    dlc_topo_node *node = dlc_topo_add(r->topo, kind, at.parent);
    if (!node)
        return DLC_ERR_NOMEM;
    node->gbs = gbs;
    memcpy(node->address, address, 32);
    dlc_topo_text(node->name, sizeof node->name, name ? name : "");
    return DLC_OK;
}

/* Adds a node for each port. RDMA adapters have two names per port; the Ethernet name
 * is not used. */
static dlc_status add_nics(reader *r, const dlc_xml_element *element,
                           const char address[32], place at) {
    int fabrics = 0, nets = 0;
    DLC_TRY(count_os(r, element, OS_FABRIC, &fabrics));
    DLC_TRY(count_os(r, element, OS_NET, &nets));
    int wanted = fabrics ? OS_FABRIC : OS_NET;
    if (!fabrics && !nets)
        return add_pci_device(r, element, DLC_TOPO_NIC, "", address, at);
    for (const dlc_xml_element *c = element->child; c; c = c->next) {
        int bits = 0;
        if (!is_type(c, "OSDev"))
            continue;
        DLC_TRY(os_type(r, c, &bits));
        if (!(bits & wanted))
            continue;
        DLC_TRY(add_pci_device(r, element, DLC_TOPO_NIC, dlc_xml_get(c, "name"),
                               address, at));
        if (!fabrics) /* plain Ethernet */
            r->topo->node[dlc_topo_last(r->topo)].flags = DLC_TOPO_NO_DIRECT;
    }
    return DLC_OK;
}

static dlc_status remember(reader *r, const dlc_xml_element *element) {
    int64_t number = -1;
    DLC_TRY(dlc_xml_int(r->xml, element, "gp_index", 0, INT64_MAX, -1, &number));
    if (number < 0)
        return DLC_OK;
    dlc_topo_object *grown = dlc_grow_by_one(r->object, r->objects, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    r->object = grown;
    grown[r->objects++] = (dlc_topo_object){number, dlc_topo_last(r->topo)};
    return DLC_OK;
}

/* Adds a GPU, or a switch of direct links. */
static dlc_status add_linked(reader *r, const dlc_xml_element *element,
                             dlc_topo_kind kind, const char *name,
                             const char address[32], place at) {
    DLC_TRY(add_pci_device(r, element, kind, name, address, at));
    DLC_TRY(remember(r, element));
    for (const dlc_xml_element *c = element->child; c; c = c->next)
        if (is_type(c, "OSDev"))
            DLC_TRY(remember(r, c));
    return DLC_OK;
}

static int is_link_switch(const dlc_xml_element *element) {
    const char *subtype = dlc_xml_get(element, "subtype");
    return subtype && strcmp(subtype, "NVSwitch") == 0;
}

static dlc_status visit_pci(reader *r, const dlc_xml_element *element, place at) {
    unsigned class = 0, vendor = 0;
    int accelerators = 0;
    char address[32] = "";
    DLC_TRY(pci_type(r, element, &class, &vendor));
    DLC_TRY(count_os(r, element, OS_COPROC, &accelerators));
    int is_nic = dlc_topo_is_nic(class);
    int is_switch = is_link_switch(element);
    if (!is_nic && !is_switch && !accelerators && !dlc_topo_is_gpu(class, vendor))
        return DLC_OK;
    DLC_TRY(pci_address(r, element, address));
    if (is_nic)
        return add_nics(r, element, address, at);
    if (is_switch)
        return add_linked(r, element, DLC_TOPO_FABRIC, "NVSwitch", address, at);
    return add_linked(r, element, DLC_TOPO_GPU, info(element, "PCIDevice"), address,
                      at);
}

/* Adds a network interface without a known PCI device. */
static dlc_status visit_os(reader *r, const dlc_xml_element *element, place at) {
    int bits = 0;
    DLC_TRY(os_type(r, element, &bits));
    if (!(bits & (OS_NET | OS_FABRIC)))
        return DLC_OK;
    return add_pci_device(r, element, DLC_TOPO_NIC, dlc_xml_get(element, "name"),
                          (const char[32]){0}, at);
}

/* ---- The document -----------------------------------------------------------------
 */

static dlc_status visit(reader *r, const dlc_xml_element *element, place at) {
    const char *type = object_type(element);
    if (strcmp(type, "Bridge") == 0)
        return visit_bridge(r, element, at);
    if (strcmp(type, "PCIDev") == 0)
        return visit_pci(r, element, at);
    if (strcmp(type, "OSDev") == 0)
        return visit_os(r, element, at);
    if (strcmp(type, "Core") == 0 || strcmp(type, "PU") == 0)
        return visit_core(r, element, at);
    if (strcmp(type, "Package") == 0 || strcmp(type, "Socket") == 0)
        return visit_inner(r, element, DLC_TOPO_PACKAGE, at);
    if (strcmp(type, "NUMANode") == 0)
        return visit_inner(r, element, DLC_TOPO_NUMA, at);
    if (is_l3(element))
        return visit_inner(r, element, DLC_TOPO_L3, at);
    if (strcmp(type, "Misc") == 0)
        return DLC_OK;
    return visit_inner(r, element, DLC_TOPO_NONE, at); /* groups, other caches, ... */
}

static dlc_status visit_machine(reader *r, const dlc_xml_element *element) {
    dlc_topo_node *node = dlc_topo_add(r->topo, DLC_TOPO_MACHINE, -1);
    if (!node)
        return DLC_ERR_NOMEM;
    const char *name = info(element, "HostName");
    dlc_topo_text(node->name, sizeof node->name, name ? name : "");
    place at = {.parent = dlc_topo_last(r->topo)};
    return is_type(element, "Machine") ? visit_inner(r, element, DLC_TOPO_NONE, at)
                                       : visit(r, element, at);
}

/* Version 1 may leave out the machine if something below it has the same cores. */
static int may_be_root(const dlc_xml_element *element) {
    static const char *const types[] = {"Machine",  "System",  "Group",
                                        "NUMANode", "Package", "Socket"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is_type(element, types[i]))
            return 1;
    return 0;
}

/* The only top-level <object>; NULL: there is none, or several, which is an error. */
static const dlc_xml_element *find_machine(const dlc_xml *xml) {
    const dlc_xml_element *root = dlc_xml_root(xml), *found = NULL;
    for (const dlc_xml_element *c = root->child; c; c = c->next) {
        if (!is_object(c))
            continue;
        if (found) {
            dlc_xml_fail(xml, c, "the file contains a second machine");
            return NULL;
        }
        found = c;
    }
    if (found && may_be_root(found))
        return found;
    dlc_xml_fail(xml, found ? found : root, "there is no <object type=\"Machine\">");
    return NULL;
}

dlc_status dlc_topo_read_hwloc(const dlc_xml *xml, dlc_topo *topo) {
    const dlc_xml_element *root = dlc_xml_root(xml), *machine = NULL;
    reader r = {.xml = xml, .topo = topo, .major = 1};
    const char *version = dlc_xml_get(root, "version");
    if (version)
        r.major = version[0] - '0';
    if (r.major < 1 || r.major > 3)
        return dlc_xml_fail(xml, root, "version %s of hwloc's format is not supported",
                            version);
    machine = find_machine(xml);
    if (!machine)
        return DLC_ERR_DATA;
    dlc_status status = visit_machine(&r, machine);
    if (status == DLC_OK)
        status = dlc_topo_read_distances(xml, r.object, r.objects, topo);
    dlc_free(r.object);
    if (status != DLC_OK)
        return status;
    dlc_topo_number(topo, 0);
    if (dlc_topo_count(topo, 0, DLC_TOPO_CORE) == 0)
        return dlc_xml_fail(xml, machine, "the machine has no cores");
    return DLC_OK;
}

/* Reads NCCL's XML, as that library dumps it and cloud providers ship it:
 *
 *     <system version="1">
 *       <cpu numaid="0">
 *         <pci busid="0000:07:00.0" class="0x060400" link_speed="16 GT/s"
 * link_width="16"> <pci busid="0000:0a:00.0" class="0x030200" ...> <gpu dev="0" sm="90"
 * rank="0" gdr="1"> <nvlink target="0000:1c:00.0" count="5" tclass="0x068000"/>
 *             </gpu>
 *           </pci>
 *           <pci busid="0000:0b:00.0" class="0x020000" ...>
 *             <nic><net name="mlx5_0" dev="0" speed="200000" port="1" gdr="1"/></nic>
 *           </pci>
 *         </pci>
 *       </cpu>
 *     </system>
 *
 * A <pci> that contains others is a whole switch. There are no host bridges; one is
 * made for each <cpu>. Files written by hand leave out <gpu> and <nic>. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlcore/device.h>

#include "topology/read.h"

static const char cpu_name[] = "cpu"; // "cpu" is an element of the format

typedef struct reader {
    const dlc_xml *xml;
    dlc_topo *topo;
    const char *host; /* host_hash of the machine being read */
    int32_t machine;
} reader;

static int is(const dlc_xml_element *element, const char *name) {
    return strcmp(element->name, name) == 0;
}

static const dlc_xml_element *child(const dlc_xml_element *element, const char *name) {
    for (const dlc_xml_element *c = element->child; c; c = c->next)
        if (is(c, name))
            return c;
    return NULL;
}

/* Newer versions have new elements: unknown ones are ignored, with a note. */
static dlc_status ignore(reader *r, const dlc_xml_element *element) {
    return dlc_topo_add_note(r->topo,
                             "line %d: the unknown element <%s> in <%s> was "
                             "ignored",
                             element->line, element->name, element->parent->name);
}

/* ---- PCI devices ------------------------------------------------------------- */

/* Converts "16 GT/s" or "32.0 GT/s PCIe" to the GB/s of one PCIe lane; 0 for "" and
 * "Unknown speed". */
static dlc_status lane_speed(const reader *r, const dlc_xml_element *element,
                             double *gbs) {
    const char *text = dlc_xml_get(element, "link_speed");
    char *end = NULL;
    *gbs = 0;
    if (!text || !*text || strncmp(text, "Unknown", 7) == 0)
        return DLC_OK;
    double gigatransfers = strtod(text, &end);
    if (end == text || strncmp(end, " GT/s", 5) != 0 ||
        !(gigatransfers >= 0 && gigatransfers <= 1024))
        return dlc_xml_fail(r->xml, element,
                            "link_speed=\"%s\" is not like \"16 GT/s PCIe\"", text);
    /* PCIe up to version 2 encodes 8 bits in 10, later versions 128 in 130. */
    *gbs = gigatransfers / 8 * (gigatransfers <= 5 ? 0.8 : 128.0 / 130.0);
    return DLC_OK;
}

static dlc_status link_speed(const reader *r, const dlc_xml_element *element,
                             float *gbs) {
    double lane = 0;
    int64_t width = 0;
    DLC_TRY(lane_speed(r, element, &lane));
    const char *text = dlc_xml_get(element, "link_width");
    if (text && *text && strcmp(text, "Unknown") != 0)
        DLC_TRY(dlc_xml_int(r->xml, element, "link_width", 0, 255, 0, &width));
    if (width > 64) /* Linux reports 255 for a link that is down */
        width = 0;
    *gbs = (float)(lane * (double)width);
    return DLC_OK;
}

static dlc_status bus_address(const reader *r, const dlc_xml_element *element,
                              const char *attribute, char address[32]) {
    const char *text = dlc_xml_get(element, attribute);
    unsigned part[4];
    char rest;
    int parts = text ? sscanf(text, "%9x:%5x:%5x.%1x%c", &part[0], &part[1], &part[2],
                              &part[3], &rest)
                     : 0;
    if (parts != 3 && parts != 4)
        return dlc_xml_fail(
            r->xml, element,
            "%s=\"%s\" of <%s> is not a PCI address like \"0000:1b:00.0\"", attribute,
            text ? text : "", element->name);
    dlc_topo_address(address, 32, text);
    return DLC_OK;
}

static dlc_status pci_class(const reader *r, const dlc_xml_element *element,
                            unsigned *class, unsigned *vendor) {
    int64_t bits = 0, id = 0;
    const char *text = dlc_xml_get(element, "class");
    if (text && *text)
        DLC_TRY(dlc_xml_int(r->xml, element, "class", 0, 0xffffff, 0, &bits));
    text = dlc_xml_get(element, "vendor");
    if (text && *text)
        DLC_TRY(dlc_xml_int(r->xml, element, "vendor", 0, 0xffff, 0, &id));
    *class = (unsigned)bits >> 8;
    *vendor = (unsigned)id;
    return DLC_OK;
}

/* Adds a node for a PCI device, or for a GPU or NIC in it. */
static dlc_topo_node *add_pci_node(reader *r, dlc_topo_kind kind, int32_t parent,
                                   const char *address, float gbs) {
    dlc_topo_node *node = dlc_topo_add(r->topo, kind, parent);
    if (node) {
        memcpy(node->address, address, sizeof node->address);
        node->gbs = gbs;
    }
    return node;
}

static dlc_status read_direct(const reader *r, const dlc_xml_element *element,
                              uint32_t *flags) {
    int64_t gdr = -1;
    DLC_TRY(dlc_xml_int(r->xml, element, "gdr", 0, 1, -1, &gdr));
    *flags = gdr < 0 ? 0 : gdr ? DLC_TOPO_DIRECT : DLC_TOPO_NO_DIRECT;
    return DLC_OK;
}

static dlc_status read_gpu(reader *r, const dlc_xml_element *gpu, int32_t parent,
                           const char *address, float gbs) {
    int64_t dev = -1, sm = 0;
    uint32_t flags = 0;
    if (gpu) {
        DLC_TRY(dlc_xml_int(r->xml, gpu, "dev", 0, 4095, -1, &dev));
        DLC_TRY(dlc_xml_int(r->xml, gpu, "sm", 0, 1000, 0, &sm));
        DLC_TRY(read_direct(r, gpu, &flags));
    }
    dlc_topo_node *node = add_pci_node(r, DLC_TOPO_GPU, parent, address, gbs);
    if (!node)
        return DLC_ERR_NOMEM;
    node->index = (int32_t)dev;
    node->flags = flags;
    if (sm)
        (void)snprintf(node->name, sizeof node->name, "sm_%d", (int)sm);
    return DLC_OK;
}

static dlc_status read_net_element(reader *r, const dlc_xml_element *net,
                                   int32_t parent, const char *address, float gbs) {
    int64_t speed = 0;
    uint32_t flags = 0;
    const char *name = dlc_xml_get(net, "name");
    DLC_TRY(dlc_xml_int(r->xml, net, "speed", 0, 100000000, 0, &speed)); /* Mbit/s */
    DLC_TRY(read_direct(r, net, &flags));
    dlc_topo_node *node = add_pci_node(r, DLC_TOPO_NIC, parent, address, gbs);
    if (!node)
        return DLC_ERR_NOMEM;
    node->flags = flags;
    node->speed = (float)speed / 8000;
    dlc_topo_text(node->name, sizeof node->name, name ? name : "");
    return DLC_OK;
}

static dlc_status read_nic(reader *r, const dlc_xml_element *nic, int32_t parent,
                           const char *address, float gbs) {
    for (const dlc_xml_element *c = nic->child; c; c = c->next)
        DLC_TRY(is(c, "net") ? read_net_element(r, c, parent, address, gbs)
                             : ignore(r, c));
    return DLC_OK;
}

static dlc_status read_pci(reader *r, const dlc_xml_element *element, int32_t parent);

static dlc_status read_switch(reader *r, const dlc_xml_element *element, int32_t parent,
                              const char *address, float gbs) {
    if (!add_pci_node(r, DLC_TOPO_SWITCH, parent, address, gbs))
        return DLC_ERR_NOMEM;
    int32_t mine = dlc_topo_last(r->topo);
    for (const dlc_xml_element *c = element->child; c; c = c->next)
        DLC_TRY(is(c, "pci") ? read_pci(r, c, mine) : ignore(r, c));
    return DLC_OK;
}

/* Handles a <pci> without a class: files may leave it out if they are to be completed
 * on the machine itself. */
static dlc_status read_unknown(reader *r, const dlc_xml_element *element,
                               int32_t parent, const char *address, float gbs) {
    if (dlc_xml_get(element, "class") && *dlc_xml_get(element, "class"))
        return DLC_OK; /* a bridge without devices, a disk, ... */
    if (!add_pci_node(r, DLC_TOPO_OTHER, parent, address, gbs))
        return DLC_ERR_NOMEM;
    return dlc_topo_add_note(
        r->topo, "line %d: the kind of device %s is unknown, because it has no class",
        element->line, address);
}

static dlc_status read_pci(reader *r, const dlc_xml_element *element, int32_t parent) {
    char address[32] = "";
    unsigned class = 0, vendor = 0;
    float gbs = 0;
    DLC_TRY(bus_address(r, element, "busid", address));
    if (dlc_topo_at(r->topo, r->machine, address) >= 0)
        return dlc_xml_fail(r->xml, element, "PCI device %s appears twice", address);
    DLC_TRY(link_speed(r, element, &gbs));
    DLC_TRY(pci_class(r, element, &class, &vendor));
    const dlc_xml_element *gpu = child(element, "gpu"), *nic = child(element, "nic");
    if (child(element, "pci"))
        return read_switch(r, element, parent, address, gbs);
    if (gpu || dlc_topo_is_gpu(class, vendor))
        return read_gpu(r, gpu, parent, address, gbs);
    if (nic && nic->child)
        return read_nic(r, nic, parent, address, gbs);
    if (dlc_topo_is_nic(class))
        return add_pci_node(r, DLC_TOPO_NIC, parent, address, gbs) ? DLC_OK
                                                                   : DLC_ERR_NOMEM;
    return read_unknown(r, element, parent, address, gbs);
}

/* ---- Direct links, read when all GPUs are known ------------------------ */

static dlc_status join_gpu(reader *r, const dlc_xml_element *link, uint32_t kind,
                           int32_t gpu, const char *target, int links) {
    const dlc_topo *topo = r->topo;
    int32_t peer = dlc_topo_at(topo, r->machine, target);
    if (peer == gpu)
        return dlc_topo_add_note(r->topo, "line %d: links of %s to itself were ignored",
                                 link->line, target);
    if (peer < 0 || topo->node[peer].kind != DLC_TOPO_GPU)
        return dlc_topo_add_note(r->topo,
                                 "line %d: links to %s, which is not a GPU of this "
                                 "file, were ignored",
                                 link->line, target);
    return dlc_topo_add_link(r->topo, gpu, peer, kind, links, 0);
}

static dlc_status join_fabric(reader *r, uint32_t kind, int32_t gpu, const char *target,
                              int links) {
    int32_t fabric = dlc_topo_at(r->topo, r->machine, target);
    if (fabric < 0 || r->topo->node[fabric].kind != DLC_TOPO_FABRIC) {
        dlc_topo_node *node = add_pci_node(r, DLC_TOPO_FABRIC, r->machine, target, 0);
        if (!node)
            return DLC_ERR_NOMEM;
        fabric = dlc_topo_last(r->topo);
    }
    return dlc_topo_add_link(r->topo, gpu, fabric, kind, links, 0);
}

static dlc_status read_link(reader *r, const dlc_xml_element *link, uint32_t kind,
                            int32_t gpu) {
    int64_t count = 0, class = 0;
    char target[32] = "";
    DLC_TRY(bus_address(r, link, "target", target));
    DLC_TRY(dlc_xml_int(r->xml, link, "count", 1, DLC_TOPO_LINK_COUNT_MAX, 1, &count));
    DLC_TRY(dlc_xml_int(r->xml, link, "tclass", 0, 0xffffff, 0x030200, &class));
    if (class >> 8 == 0x0680)
        return join_fabric(r, kind, gpu, target, (int)count);
    if (class >> 16 == 0x03 || class >> 16 == 0x12)
        return join_gpu(r, link, kind, gpu, target, (int)count);
    return DLC_OK; /* to a CPU, not to another device */
}

/* Notes where the two ends of a link disagree about the number of links. */
static dlc_status compare_ends(reader *r, size_t first) {
    const dlc_topo *topo = r->topo;
    for (size_t i = first; i < topo->links; i++)
        for (size_t k = i + 1; k < topo->links; k++) {
            const dlc_topo_link *there = &topo->link[i], *back = &topo->link[k];
            if (there->from == back->to && there->to == back->from &&
                there->kind == back->kind && there->count != back->count)
                DLC_TRY(dlc_topo_add_note(
                    r->topo,
                    "%s lists %d links to %s, which lists %d back; the "
                    "smaller number is used",
                    topo->node[there->from].address, there->count,
                    topo->node[there->to].address, back->count));
        }
    return DLC_OK;
}

static dlc_status read_links(reader *r, const dlc_xml_element *element) {
    char address[32] = "";
    const dlc_xml_element *gpu = is(element, "pci") ? child(element, "gpu") : NULL;
    for (const dlc_xml_element *c = element->child; c; c = c->next)
        if (is(c, "pci"))
            DLC_TRY(read_links(r, c));
    if (!gpu || child(element, "pci"))
        return DLC_OK;
    DLC_TRY(bus_address(r, element, "busid", address));
    int32_t node = dlc_topo_at(r->topo, r->machine, address);
    for (const dlc_xml_element *c = gpu->child; c; c = c->next) {
        if (is(c, "nvlink"))
            DLC_TRY(read_link(r, c, DLC_LINK_NVLINK, node));
        else if (is(c, "xgmi"))
            DLC_TRY(read_link(r, c, DLC_LINK_XGMI, node));
        else if (!is(c, "c2c"))
            DLC_TRY(ignore(r, c));
    }
    return DLC_OK;
}

/* ---- The document -----------------------------------------------------------------
 */

static dlc_status read_cpu(reader *r, const dlc_xml_element *cpu) {
    int64_t numa = -1;
    DLC_TRY(dlc_xml_int(r->xml, cpu, "numaid", -1, 65535, -1, &numa));
    for (size_t i = 0; numa >= 0 && i < r->topo->nodes; i++)
        if (r->topo->node[i].kind == DLC_TOPO_NUMA &&
            r->topo->node[i].machine == r->machine && r->topo->node[i].numa == numa)
            return dlc_xml_fail(r->xml, cpu, "NUMA node %d appears twice", (int)numa);
    dlc_topo_node *node = dlc_topo_add(r->topo, DLC_TOPO_NUMA, r->machine);
    if (!node)
        return DLC_ERR_NOMEM;
    node->index = node->numa = (int32_t)numa;
    const char *vendor = dlc_xml_get(cpu, "vendor");
    dlc_topo_text(node->name, sizeof node->name, vendor ? vendor : "");
    if (!dlc_topo_add(r->topo, DLC_TOPO_HOST_BRIDGE, dlc_topo_last(r->topo)))
        return DLC_ERR_NOMEM;
    int32_t bridge = dlc_topo_last(r->topo);
    for (const dlc_xml_element *c = cpu->child; c; c = c->next) {
        if (is(c, "pci"))
            DLC_TRY(read_pci(r, c, bridge));
        else if (is(c, "nic"))
            DLC_TRY(read_nic(r, c, bridge, (const char[32]){0}, 0));
        else
            DLC_TRY(ignore(r, c));
    }
    return DLC_OK;
}

static const char *host_of(const dlc_xml_element *cpu) {
    const char *host = dlc_xml_get(cpu, "host_hash");
    return host ? host : "";
}

/* Reads all <cpu> of one host; files of NVLink domains contain several hosts. */
static dlc_status read_machine(reader *r, const dlc_xml_element *first) {
    dlc_topo_node *node = dlc_topo_add(r->topo, DLC_TOPO_MACHINE, -1);
    if (!node)
        return DLC_ERR_NOMEM;
    size_t begin = r->topo->nodes, links = r->topo->links;
    r->machine = dlc_topo_last(r->topo);
    r->host = host_of(first);
    dlc_topo_text(node->name, sizeof node->name, r->host);
    for (const dlc_xml_element *c = first; c; c = c->next)
        if (is(c, cpu_name) && strcmp(host_of(c), r->host) == 0)
            DLC_TRY(read_cpu(r, c));
    for (const dlc_xml_element *c = first; c; c = c->next)
        if (is(c, cpu_name) && strcmp(host_of(c), r->host) == 0)
            DLC_TRY(read_links(r, c));
    dlc_topo_number(r->topo, begin);
    return compare_ends(r, links);
}

static int seen_before(const dlc_xml_element *root, const dlc_xml_element *cpu) {
    for (const dlc_xml_element *c = root->child; c != cpu; c = c->next)
        if (is(c, cpu_name) && strcmp(host_of(c), host_of(cpu)) == 0)
            return 1;
    return 0;
}

dlc_status dlc_topo_read_system(const dlc_xml *xml, dlc_topo *topo) {
    const dlc_xml_element *root = dlc_xml_root(xml);
    reader r = {.xml = xml, .topo = topo};
    int64_t version = 1;
    DLC_TRY(dlc_xml_int(xml, root, "version", 1, 2, 1, &version));
    for (const dlc_xml_element *c = root->child; c; c = c->next) {
        if (!is(c, cpu_name))
            DLC_TRY(ignore(&r, c));
        else if (!seen_before(root, c))
            DLC_TRY(read_machine(&r, c));
    }
    if (!child(root, cpu_name))
        return dlc_xml_fail(xml, root, "<system> contains no <cpu>");
    return DLC_OK;
}

/* Dispatches on the format of a recorded machine, and what both formats share. */
#include "topology/read.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <dlcore/device.h>

#include "base/memory.h"

int dlc_topo_is_gpu(unsigned class, unsigned vendor) {
    /* Graphics of board management and of virtual machines: ASPEED, Matrox, QEMU, Red
     * Hat, VMware, Cirrus. */
    static const unsigned no_compute[] = {0x1a03, 0x102b, 0x1234, 0x1b36,
                                          0x1af4, 0x15ad, 0x1013};
    for (size_t i = 0; i < sizeof no_compute / sizeof *no_compute; i++)
        if (vendor == no_compute[i])
            return 0;
    return class >> 8 == 0x03 || class >> 8 == 0x12;
}

int dlc_topo_is_nic(unsigned class) {
    return class >> 8 == 0x02;
}

/* Whether the nodes of a kind are numbered 0, 1, 2, ... */
static int are_numbered(const dlc_topo *topo, size_t first, dlc_topo_kind kind) {
    int32_t count = 0;
    for (size_t i = first; i < topo->nodes; i++)
        count += topo->node[i].kind == kind;
    for (int32_t wanted = 0; wanted < count; wanted++) {
        size_t i = first;
        while (i < topo->nodes &&
               !(topo->node[i].kind == kind && topo->node[i].index == wanted))
            i++;
        if (i == topo->nodes)
            return 0;
    }
    return 1;
}

void dlc_topo_number(dlc_topo *topo, size_t first) {
    static const dlc_topo_kind kinds[] = {DLC_TOPO_GPU, DLC_TOPO_NIC, DLC_TOPO_OTHER};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        int32_t next = 0;
        if (are_numbered(topo, first, kinds[k]))
            continue;
        for (size_t i = first; i < topo->nodes; i++)
            if (topo->node[i].kind == kinds[k])
                topo->node[i].index = next++;
    }
}

/* ---- hwloc's NVLinks --------------------------------------------------------------
 */

/* hwloc stores NVLinks outside its tree, as a table of MB/s between
 * objects:
 *
 *     <distances2 type="OSDev" nbobjs="2" name="NVLinkBandwidth" indexing="gp">
 *       <indexes length="10">1066 1069 </indexes>
 *       <u64values length="30">1000000 50000 50000 1000000 </u64values>
 *     </distances2>
 *
 * The values may be split into several <u64values>. In <distances2hetero> the objects
 * are of several types, "OSDev:1066 PCIDev:1086". */

enum { MAX_OBJECTS = 128 }; /* any two may be linked */

typedef struct table {
    const dlc_xml *xml;
    const dlc_topo_object *object;
    size_t objects;
    size_t count;         /* number of rows */
    int32_t *node;        /* owned; -1: an unknown object */
    uint64_t *value;      /* owned; count * count */
    size_t nodes, values; /* read so far */
} table;

static int32_t node_of(const table *t, int64_t number) {
    for (size_t i = 0; i < t->objects; i++)
        if (t->object[i].number == number)
            return t->object[i].node;
    return -1;
}

/* Reads the next number, which must be followed by a space or the end. NULL: *at is at
 * the end, or at something that isn't a number. */
static const char *next_number(const char **at, uint64_t *value) {
    char *end = NULL;
    *at += strspn(*at, " \t\r\n");
    const char *begin = *at;
    if (!*begin || *begin < '0' || *begin > '9')
        return NULL;
    errno = 0;
    *value = strtoull(begin, &end, 10);
    if (errno || (*end && !strchr(" \t\r\n", *end)))
        return NULL;
    *at = end;
    return begin;
}

/* Skips "OSDev:" and the like. */
static const char *skip_type(const char *at) {
    size_t length = 0;
    at += strspn(at, " \t\r\n");
    while (isalnum((unsigned char)at[length]))
        length++;
    return at[length] == ':' ? at + length + 1 : at;
}

static dlc_status read_indexes(table *t, const dlc_xml_element *element) {
    const char *at = skip_type(element->text);
    uint64_t number = 0;
    while (next_number(&at, &number)) {
        if (t->nodes == t->count)
            return dlc_xml_fail(t->xml, element, "more than %zu objects", t->count);
        t->node[t->nodes++] = node_of(t, (int64_t)(number & INT64_MAX));
        at = skip_type(at);
    }
    if (*at)
        return dlc_xml_fail(t->xml, element, "'%.20s' is not the number of an object",
                            at);
    return DLC_OK;
}

static dlc_status read_bandwidths(table *t, const dlc_xml_element *element) {
    const char *at = element->text;
    uint64_t number = 0;
    while (next_number(&at, &number)) {
        if (t->values == t->count * t->count)
            return dlc_xml_fail(t->xml, element, "more than %zu values",
                                t->count * t->count);
        t->value[t->values++] = number;
    }
    if (*at)
        return dlc_xml_fail(t->xml, element, "'%.20s' is not a bandwidth", at);
    return DLC_OK;
}

static dlc_status read_table(table *t, const dlc_xml_element *element) {
    for (const dlc_xml_element *c = element->child; c; c = c->next) {
        if (strcmp(c->name, "indexes") == 0)
            DLC_TRY(read_indexes(t, c));
        if (strcmp(c->name, "u64values") == 0)
            DLC_TRY(read_bandwidths(t, c));
    }
    if (t->nodes != t->count || t->values != t->count * t->count)
        return dlc_xml_fail(t->xml, element,
                            "nbobjs=\"%zu\", but there are %zu objects and %zu values",
                            t->count, t->nodes, t->values);
    return DLC_OK;
}

/* The number of NVLinks: one has 25 GB/s, or 20 in the first generation. */
static int32_t links_of(uint64_t megabytes) {
    uint64_t each = megabytes % 25000 && megabytes % 20000 == 0 ? 20000 : 25000;
    uint64_t links = (megabytes + each / 2) / each;
    return links < 1                         ? 1
           : links > DLC_TOPO_LINK_COUNT_MAX ? DLC_TOPO_LINK_COUNT_MAX
                                             : (int32_t)links;
}

/* Adds the links; the diagonal has no meaning. */
static dlc_status join_all(const table *t, dlc_topo *topo) {
    for (size_t a = 0; a < t->count; a++)
        for (size_t b = 0; b < t->count; b++) {
            uint64_t megabytes = t->value[a * t->count + b];
            int32_t from = t->node[a], to = t->node[b];
            if (megabytes && from >= 0 && to >= 0 && from != to)
                DLC_TRY(dlc_topo_add_link(topo, from, to, DLC_LINK_NVLINK,
                                          links_of(megabytes),
                                          (float)megabytes / 1000));
        }
    return DLC_OK;
}

static dlc_status read_one(table *t, const dlc_xml_element *element, dlc_topo *topo) {
    int64_t count = 0;
    DLC_TRY(dlc_xml_int(t->xml, element, "nbobjs", 1, MAX_OBJECTS, 1, &count));
    t->count = (size_t)count;
    t->node = dlc_alloc(t->count, sizeof *t->node);
    t->value = dlc_alloc(t->count * t->count, sizeof *t->value);
    dlc_status status = t->node && t->value ? read_table(t, element) : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = join_all(t, topo);
    dlc_free(t->value);
    dlc_free(t->node);
    return status;
}

dlc_status dlc_topo_read_distances(const dlc_xml *xml, const dlc_topo_object *object,
                                   size_t objects, dlc_topo *topo) {
    table t = {.xml = xml, .object = object, .objects = objects};
    for (const dlc_xml_element *c = dlc_xml_root(xml)->child; c; c = c->next) {
        const char *name = dlc_xml_get(c, "name");
        if (strncmp(c->name, "distances2", 10) != 0 || !name ||
            strcmp(name, "NVLinkBandwidth") != 0)
            continue;
        if (t.count)
            return dlc_xml_fail(xml, c, "a second table of NVLinks");
        DLC_TRY(read_one(&t, c, topo));
    }
    return DLC_OK;
}

/* ---- Documents --------------------------------------------------------------------
 */

dlc_status dlc_topo_read_xml(const dlc_xml *xml, dlc_topo *topo) {
    const dlc_xml_element *root = dlc_xml_root(xml);
    dlc_status status;
    if (strcmp(root->name, "topology") == 0 || strcmp(root->name, "root") == 0)
        status = dlc_topo_read_hwloc(xml, topo);
    else if (strcmp(root->name, "system") == 0)
        status = dlc_topo_read_system(xml, topo);
    else
        status = dlc_xml_fail(xml, root,
                              "<%s> is not the root of a topology: hwloc's XML begins "
                              "with <topology>, NCCL's XML with <system>",
                              root->name);
    if (status != DLC_OK)
        dlc_topo_free(topo);
    return status;
}

dlc_status dlc_topo_read(const char *path, dlc_topo *topo) {
    dlc_xml *xml = NULL;
    DLC_TRY(dlc_xml_load(path, &xml));
    dlc_status status = dlc_topo_read_xml(xml, topo);
    dlc_xml_free(xml);
    return status;
}

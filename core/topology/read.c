/* Dispatches on the format of a recorded machine, and what both formats share. */
#include "topology/read.h"

#include <string.h>

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

/* Reads /sys/class/net and /sys/class/infiniband. */
#include "topology/live_nics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/read.h"

/* Reads the first line of a file, which fails while the link is down; 0 if there is
 * none. */
static int read_line(const char *root, const char *folder, const char *name,
                     const char *file, char text[64]) {
    char path[512];
    int length = snprintf(path, sizeof path, "%s/sys/class/%s/%s/%s", root, folder,
                          name, file);
    return length > 0 && (size_t)length < sizeof path &&
           dlc_read_line(path, text, 64) > 0;
}

/* Ethernet: "10000" Mbit/s (-1: unknown), and "up", "down" or "unknown". */
static void read_net(const char *root, dlc_topo_node *nic) {
    char text[64];
    if (read_line(root, "net", nic->name, "speed", text) && strtod(text, NULL) > 0)
        nic->speed = (float)(strtod(text, NULL) / 8000);
    if (read_line(root, "net", nic->name, "operstate", text) &&
        (strcmp(text, "down") == 0 || strcmp(text, "lowerlayerdown") == 0))
        nic->flags |= DLC_TOPO_DOWN;
}

/* RDMA, port 1: "100 Gb/sec (4X EDR)", and "4: ACTIVE". */
static void read_rdma(const char *root, dlc_topo_node *nic) {
    char text[64];
    if (read_line(root, "infiniband", nic->name, "ports/1/rate", text) &&
        strtod(text, NULL) > 0)
        nic->speed = (float)(strtod(text, NULL) / 8);
    if (read_line(root, "infiniband", nic->name, "ports/1/state", text) &&
        !strstr(text, "ACTIVE"))
        nic->flags |= DLC_TOPO_DOWN;
}

void dlc_topo_read_live_nics(const char *root, dlc_topo *topo) {
    for (size_t i = 0; i < topo->nodes; i++) {
        dlc_topo_node *node = &topo->node[i];
        if (node->kind != DLC_TOPO_NIC || !node->name[0] || strchr(node->name, '/'))
            continue;
        read_net(root, node);
        read_rdma(root, node);
    }
}

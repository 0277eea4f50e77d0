/* Reads the NVLinks of a GPU from NVML. */
#include "links.h"

#include <stdio.h>
#include <string.h>

enum { ASKED = 36 }; /* numbers of links to try, more than any GPU has */

void links_address(const nvml_pci *pci, char *to, size_t bytes) {
    to[0] = '\0';
    if (pci->bus <= 0xff && pci->device <= 0x1f &&
        (pci->domain != 0 || pci->bus != 0 || pci->device != 0))
        (void)snprintf(to, bytes, "%04x:%02x:%02x.0", pci->domain, pci->bus,
                       pci->device);
}

/* GB/s of one link, one way. 0: unknown. */
static float link_gbs(const nvml_calls *n, nvml_gpu *gpu, unsigned link) {
    static const unsigned asked[] = {NVML_LINK_SPEED, NVML_LINK_SPEED_COMMON};
    for (int i = 0; n->fields && i < 2; i++) {
        nvml_field field = {.field = asked[i], .scope = i == 0 ? link : 0};
        if (n->fields(gpu, 1, &field) == NVML_OK && field.result == NVML_OK &&
            field.type == NVML_UNSIGNED_INT && field.value.ui > 0)
            return (float)field.value.ui / 1000.0f;
    }
    return 0;
}

/* What is at the other end, where the driver is too old to say: a GPU has a PCI
 * address, a switch often hides its own. */
static uint32_t end_of(const nvml_calls *n, nvml_gpu *gpu, unsigned link,
                       const char *address) {
    unsigned end = NVML_END_UNKNOWN;
    if (n->link_end && n->link_end(gpu, link, &end) == NVML_OK) {
        if (end == NVML_END_SWITCH)
            return DLC_LINK_TO_SWITCH;
        if (end == NVML_END_PROCESSOR)
            return DLC_LINK_TO_CPU;
        if (end == NVML_END_GPU && address[0])
            return DLC_LINK_TO_DEVICE;
    }
    return address[0] ? DLC_LINK_TO_DEVICE : DLC_LINK_TO_SWITCH;
}

static int32_t add(dlc_link *links, int32_t count, int32_t room, const dlc_link *link) {
    for (int32_t i = 0; i < count; i++)
        if (links[i].end == link->end && strcmp(links[i].peer, link->peer) == 0) {
            links[i].width++;
            links[i].gbs += link->gbs;
            return count;
        }
    if (count < room)
        links[count++] = *link;
    return count;
}

int32_t links_read(const nvml_calls *n, nvml_gpu *gpu, dlc_link *links, int32_t room) {
    int32_t count = 0;
    if (!n->link_state || !n->link_pci)
        return 0;
    for (unsigned i = 0; i < ASKED; i++) {
        unsigned up = 0;
        nvml_pci pci = {.domain = 0};
        dlc_link link = {.size = sizeof link, .kind = DLC_LINK_NVLINK, .width = 1};
        if (n->link_state(gpu, i, &up) != NVML_OK)
            break; /* there are no more */
        if (!up)
            continue;
        if (n->link_pci(gpu, i, &pci) == NVML_OK)
            links_address(&pci, link.peer, sizeof link.peer);
        link.end = end_of(n, gpu, i, link.peer);
        if (link.end == DLC_LINK_TO_CPU)
            link.peer[0] = '\0';
        link.gbs = link_gbs(n, gpu, i);
        count = add(links, count, room, &link);
    }
    return count;
}

/* Repeats a recorded machine and distributes ranks over it. */
#include "topology/recorded.h"

#include <stdio.h>
#include <unistd.h>

#include "base/memory.h"
#include "topology/discover.h"
#include "topology/graph.h"
#include "topology/link.h"
#include "topology/read.h"

/* Repeats the recorded machine, as an all-gather of several nodes would. */
static dlc_status repeat(dlc_topo *topo, int nodes) {
    unsigned char *bytes = NULL;
    size_t size = 0;
    dlc_status status = dlc_topo_pack(topo, &bytes, &size);
    for (int i = 1; status == DLC_OK && i < nodes; i++)
        status = dlc_topo_unpack(bytes, size, topo);
    dlc_free(bytes);
    return status;
}

static dlc_status distribute_ranks(dlc_topo *topo, int ranks, const char *device) {
    size_t machines = dlc_topo_count(topo, -1, DLC_TOPO_MACHINE);
    size_t numas = dlc_topo_count(topo, 0, DLC_TOPO_NUMA), slots = numas ? numas : 1;
    size_t each = ranks ? ((size_t)ranks + machines - 1) / machines
                        : (slots > 1 ? slots : 2);
    int32_t rank = 0;
    for (size_t m = 0; m < machines; m++) {
        int32_t machine = dlc_topo_nth(topo, -1, DLC_TOPO_MACHINE, m);
        for (size_t i = 0; i < each && (!ranks || rank < ranks); i++) {
            dlc_rank_info rank_info = {
                .size = sizeof rank_info, .package = -1, .numa = -1};
            int32_t numa = dlc_topo_nth(topo, machine, DLC_TOPO_NUMA, i * slots / each);
            snprintf(rank_info.device, sizeof rank_info.device, "%s", device);
            if (numa >= 0)
                rank_info.numa = topo->node[numa].numa;
            DLC_TRY(dlc_topo_add_rank(topo, machine, rank++, &rank_info));
        }
    }
    return DLC_OK;
}

dlc_status dlc_recorded_read(const dlc_recorded *recorded, dlc_topo *topo) {
    DLC_TRY(dlc_topo_read(recorded->path, topo));
    if (recorded->nodes > 1)
        DLC_TRY(repeat(topo, recorded->nodes));
    size_t gpus = dlc_topo_count(topo, -1, DLC_TOPO_GPU);
    if (recorded->ranks > 0 && gpus > 0 && (size_t)recorded->ranks > gpus)
        return dlc_fail(DLC_ERR_CONFIG, "--ranks=%d, but %s has %zu GPUs",
                        recorded->ranks, recorded->path, gpus);
    return gpus ? DLC_OK : distribute_ranks(topo, recorded->ranks, recorded->device);
}

static int32_t machine_number(const dlc_topo *topo, int32_t node) {
    int32_t number = 0;
    for (int32_t i = 0; i < topo->node[node].machine; i++)
        number += topo->node[i].parent < 0;
    return number;
}

dlc_rank_info dlc_recorded_rank_info(const dlc_topo *topo, int32_t end,
                                     const char *accelerator) {
    const dlc_topo_node *device = &topo->node[dlc_topo_device_of(topo, end)];
    dlc_rank_info rank_info = {.size = sizeof rank_info,
                               .node = machine_number(topo, end),
                               .pid = (uint32_t)getpid(),
                               .uid = (uint32_t)geteuid(),
                               .package = device->package,
                               .numa = device->numa};
    const char *name = device->kind == DLC_TOPO_GPU ? accelerator
                                                    : topo->node[end].device;
    snprintf(rank_info.host, sizeof rank_info.host, "%.50s-%d",
             topo->node[device->machine].name, rank_info.node);
    snprintf(rank_info.device, sizeof rank_info.device, "%s", name);
    if (device->kind == DLC_TOPO_GPU)
        rank_info.device_index = device->index;
    return rank_info;
}

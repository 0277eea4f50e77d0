/* See topo_make.h. */
#include "topo_make.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "topo/discover.h"
#include "topo/pack.h"
#include "topo/read.h"

/* ---- A recorded machine -------------------------------------------------------- */

/* So many of it: what one rank a node would gather. */
static dlc_status repeat(dlc_topo *topo, int nodes) {
    unsigned char *bytes = NULL;
    size_t size = 0;
    dlc_status status = dlc_topo_pack(topo, &bytes, &size);
    for (int i = 1; status == DLC_OK && i < nodes; i++)
        status = dlc_topo_unpack(bytes, size, topo);
    dlc_free(bytes);
    return status;
}

/* Ranks of a machine without GPUs: spread over its NUMA nodes. */
static dlc_status spread_ranks(dlc_topo *topo, int ranks, const char *device) {
    size_t machines = dlc_topo_count(topo, -1, DLC_TOPO_MACHINE);
    size_t numas = dlc_topo_count(topo, 0, DLC_TOPO_NUMA), slots = numas ? numas : 1;
    size_t each = ranks ? ((size_t)ranks + machines - 1) / machines
                        : (slots > 1 ? slots : 2);
    int32_t rank = 0;
    for (size_t m = 0; m < machines; m++) {
        int32_t machine = dlc_topo_nth(topo, -1, DLC_TOPO_MACHINE, m);
        for (size_t i = 0; i < each && (!ranks || rank < ranks); i++) {
            dlc_place place = {.size = sizeof place, .package = -1, .numa = -1};
            int32_t numa = dlc_topo_nth(topo, machine, DLC_TOPO_NUMA, i * slots / each);
            snprintf(place.device, sizeof place.device, "%s", device);
            if (numa >= 0)
                place.numa = topo->node[numa].numa;
            DLC_TRY(dlc_topo_add_rank(topo, machine, rank++, &place));
        }
    }
    return DLC_OK;
}

/* Some device that is no processor, installed or not: what a GPU is called here. */
static const char *accelerator_name(const dlc_registry *registry,
                                    const dlc_device_ops **ops) {
    static const dlc_device_ops none = {.size = sizeof none};
    const dlc_feature_entry *entry;
    const dlc_feature *feature = NULL;
    *ops = &none;
    for (size_t i = 0; (entry = dlc_registry_feature(registry, DLC_KIND_DEVICE, i));
         i++)
        if (!(entry->caps & DLC_DEVICE_HOST)) {
            if (dlc_registry_peek(registry, entry, &feature) == DLC_OK)
                *ops = feature->ops;
            return entry->name;
        }
    return "gpu";
}

dlc_status topo_replay(const topo_recorded *from, const dlc_bench_plan *plan,
                       topo_report *report) {
    const dlc_device_ops *ops = plan->device->ops, *accelerator_ops = NULL;
    const char *accelerator = accelerator_name(plan->registry, &accelerator_ops);
    dlc_topo *topo = &report->topo;
    size_t gpus;
    DLC_TRY(dlc_topo_read(from->path, topo));
    if (from->nodes > 1)
        DLC_TRY(repeat(topo, from->nodes));
    gpus = dlc_topo_count(topo, -1, DLC_TOPO_GPU);
    if (from->ranks > 0 && gpus > 0 && (size_t)from->ranks > gpus)
        return dlc_fail(DLC_ERR_CONFIG, "--ranks=%d, but %s has %zu GPUs", from->ranks,
                        from->path, gpus);
    if (!gpus)
        DLC_TRY(spread_ranks(topo, from->ranks, plan->device->name));
    DLC_TRY(topo_report_ends(report, gpus ? (size_t)from->ranks : 0, accelerator));
    return topo_report_judge(report, plan, gpus ? accelerator_ops : ops);
}

/* ---- This job ------------------------------------------------------------------ */

/* What one rank tells of: one machine, so that they stay in order. */
static dlc_status add_machine(const void *bytes, size_t size, dlc_topo *all) {
    size_t before = dlc_topo_count(all, -1, DLC_TOPO_MACHINE);
    DLC_TRY(dlc_topo_unpack(bytes, size, all));
    if (dlc_topo_count(all, -1, DLC_TOPO_MACHINE) != before + 1)
        return dlc_fail(DLC_ERR_INTERNAL, "a rank tells of no machine, or of several");
    return DLC_OK;
}

/* The first rank of each node tells all others what it sees. */
static dlc_status gather(dlc_job *job, const dlc_topo *mine, dlc_topo *all) {
    size_t ranks = (size_t)dlc_job_ranks(job), most = 0;
    int me = dlc_job_rank(job);
    int32_t node = dlc_job_place(job, me)->node;
    unsigned char *bytes = NULL, *sent = NULL, *gathered = NULL;
    size_t size = 0, *sizes = dlc_alloc(ranks, sizeof *sizes);
    dlc_status status = sizes ? DLC_OK : DLC_ERR_NOMEM;
    int first = 0;
    while (dlc_job_place(job, first)->node != node)
        first++;
    if (status == DLC_OK && first == me)
        status = dlc_topo_pack(mine, &bytes, &size);
    if (status == DLC_OK)
        status = dlc_job_allgather(job, &size, sizeof size, sizes);
    for (size_t r = 0; status == DLC_OK && r < ranks; r++)
        most = sizes[r] > most ? sizes[r] : most;
    if (status == DLC_OK) {
        sent = dlc_alloc(most, 1);
        gathered = dlc_alloc(ranks, most);
        status = sent && gathered ? DLC_OK : DLC_ERR_NOMEM;
    }
    if (status == DLC_OK) {
        if (bytes)
            memcpy(sent, bytes, size);
        status = dlc_job_allgather(job, sent, most, gathered);
    }
    for (size_t r = 0; status == DLC_OK && r < ranks; r++)
        if (sizes[r])
            status = add_machine(gathered + r * most, sizes[r], all);
    dlc_free(gathered);
    dlc_free(sent);
    dlc_free(bytes);
    dlc_free(sizes);
    return status;
}

/* Nodes are numbered as their first ranks are, and so the machines were gathered. */
static dlc_status add_ranks(dlc_job *job, dlc_topo *topo) {
    for (int r = 0; r < dlc_job_ranks(job); r++) {
        const dlc_place *place = dlc_job_place(job, r);
        int32_t machine = dlc_topo_nth(topo, -1, DLC_TOPO_MACHINE, (size_t)place->node);
        if (machine < 0)
            return dlc_fail(DLC_ERR_INTERNAL, "nobody told of the node of rank %d", r);
        DLC_TRY(dlc_topo_add_rank(topo, machine, r, place));
    }
    return DLC_OK;
}

static dlc_status copy_places(dlc_job *job, topo_report *report) {
    for (size_t i = 0; i < report->ends; i++) {
        const dlc_place *place = dlc_job_place(job, (int)i);
        memcpy(&report->place[i], place,
               place->size < sizeof *place ? place->size : sizeof *place);
    }
    return DLC_OK;
}

/* One that turns out not to work sees nothing. */
static dlc_status add_devices(const dlc_registry *registry, dlc_topo *machine) {
    const dlc_feature_entry *entry;
    const dlc_feature *feature = NULL;
    for (size_t i = 0; (entry = dlc_registry_feature(registry, DLC_KIND_DEVICE, i));
         i++) {
        dlc_status status = dlc_registry_use(registry, entry, &feature);
        if (status == DLC_OK)
            status = dlc_topo_add_devices(machine, 0, feature);
        else if (status == DLC_ERR_PLUGIN)
            status = DLC_OK;
        DLC_TRY(status);
    }
    return DLC_OK;
}

dlc_status topo_see(dlc_job *job, const dlc_bench_plan *plan, dlc_topo *machine,
                    topo_report *report) {
    DLC_TRY(add_devices(plan->registry, machine));
    DLC_TRY(gather(job, machine, &report->topo));
    DLC_TRY(add_ranks(job, &report->topo));
    for (size_t i = 0; i < machine->notes; i++)
        DLC_TRY(dlc_topo_remark(&report->topo, "%s", machine->note[i]));
    DLC_TRY(topo_report_ends(report, 0, plan->device->name));
    DLC_TRY(copy_places(job, report));
    return topo_report_judge(report, plan, plan->device->ops);
}

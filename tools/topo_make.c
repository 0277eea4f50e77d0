/* Makes the report's graph: reads a recorded machine, or gathers the machines and ranks
 * of this job. */
#include "topo_make.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "plugin/answers.h"
#include "topology/discover.h"
#include "topology/pack.h"
#include "topology/read.h"

/* ---- A recorded machine -------------------------------------------------------- */

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

/* Adds ranks to machines without GPUs, distributed over their NUMA nodes. */
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

/* The name of the first device plugin that isn't the CPU's; it stands for any GPU. */
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
        DLC_TRY(distribute_ranks(topo, from->ranks, plan->device->name));
    DLC_TRY(topo_report_ends(report, gpus ? (size_t)from->ranks : 0, accelerator));
    return topo_report_judge(report, plan, gpus ? accelerator_ops : ops);
}

/* ---- This job ------------------------------------------------------------------ */

/* Adds the graph received from one rank, which must be one machine. */
static dlc_status add_machine(const void *bytes, size_t size, dlc_topo *all) {
    size_t before = dlc_topo_count(all, -1, DLC_TOPO_MACHINE);
    DLC_TRY(dlc_topo_unpack(bytes, size, all));
    if (dlc_topo_count(all, -1, DLC_TOPO_MACHINE) != before + 1)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "a rank sent a topology that isn't one machine");
    return DLC_OK;
}

/* All-gathers the machines; the first rank of each node contributes its own. */
static dlc_status gather_machines(dlc_job *job, const dlc_topo *mine, dlc_topo *all) {
    size_t ranks = (size_t)dlc_job_ranks(job), most = 0;
    int me = dlc_job_rank(job);
    int32_t node = dlc_job_rank_info(job, me)->node;
    unsigned char *bytes = NULL, *sent = NULL, *gathered = NULL;
    size_t size = 0, *sizes = dlc_alloc(ranks, sizeof *sizes);
    dlc_status status = sizes ? DLC_OK : DLC_ERR_NOMEM;
    int first = 0;
    while (dlc_job_rank_info(job, first)->node != node)
        first++;
    if (status == DLC_OK && first == me)
        status = dlc_topo_pack(mine, &bytes, &size);
    if (status == DLC_OK)
        status = dlc_job_all_gather(job, &size, sizeof size, sizes);
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
        status = dlc_job_all_gather(job, sent, most, gathered);
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

/* Adds the ranks. Machines are in the order of their first ranks, like nodes. */
static dlc_status add_ranks(dlc_job *job, dlc_topo *topo) {
    for (int r = 0; r < dlc_job_ranks(job); r++) {
        const dlc_rank_info *rank_info = dlc_job_rank_info(job, r);
        int32_t machine = dlc_topo_nth(topo, -1, DLC_TOPO_MACHINE,
                                       (size_t)rank_info->node);
        if (machine < 0)
            return dlc_fail(DLC_ERR_INTERNAL,
                            "the node of rank %d is not in the topology", r);
        DLC_TRY(dlc_topo_add_rank(topo, machine, r, rank_info));
    }
    return DLC_OK;
}

static dlc_status copy_rank_info(dlc_job *job, topo_report *report) {
    for (size_t i = 0; i < report->ends; i++) {
        const dlc_rank_info *rank_info = dlc_job_rank_info(job, (int)i);
        memcpy(&report->rank_info[i], rank_info,
               rank_info->size < sizeof *rank_info ? rank_info->size
                                                   : sizeof *rank_info);
    }
    return DLC_OK;
}

/* Adds the devices of all plugins that can be loaded. */
static dlc_status add_devices(const dlc_registry *registry, dlc_topo *machine) {
    const dlc_feature_entry *entry;
    const dlc_feature *feature = NULL;
    for (size_t i = 0; (entry = dlc_registry_feature(registry, DLC_KIND_DEVICE, i));
         i++) {
        int32_t count = 0;
        dlc_status status = dlc_registry_use(registry, entry, &feature);
        if (status == DLC_OK && dlc_answer_devices(feature, &count) == DLC_ERR_PLUGIN)
            status = dlc_topo_add_note(machine, "%s", dlc_detail());
        else if (status == DLC_OK)
            status = dlc_topo_add_devices(machine, 0, feature);
        else if (status == DLC_ERR_PLUGIN)
            status = DLC_OK;
        DLC_TRY(status);
    }
    return DLC_OK;
}

dlc_status topo_discover_job(dlc_job *job, const dlc_bench_plan *plan,
                             dlc_topo *machine, topo_report *report) {
    DLC_TRY(add_devices(plan->registry, machine));
    DLC_TRY(gather_machines(job, machine, &report->topo));
    DLC_TRY(add_ranks(job, &report->topo));
    for (size_t i = 0; i < machine->notes; i++)
        DLC_TRY(dlc_topo_add_note(&report->topo, "%s", machine->note[i]));
    DLC_TRY(topo_report_ends(report, 0, plan->device->name));
    DLC_TRY(copy_rank_info(job, report));
    return topo_report_judge(report, plan, plan->device->ops);
}

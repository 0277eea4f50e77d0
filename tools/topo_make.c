/* Makes the report's graph: reads a recorded machine, or gathers the machines and ranks
 * of this job. */
#include "topo_make.h"

#include <string.h>

#include "base/memory.h"
#include "plugin/answers.h"
#include "topology/discover.h"
#include "topology/recorded.h"

/* ---- A recorded machine -------------------------------------------------------- */

/* The name of the first device plugin that isn't the CPU's; it stands for any GPU. */
static dlc_status find_accelerator(const dlc_registry *registry, const char **name,
                                   const dlc_device_ops **ops) {
    static const dlc_device_ops none = {.size = sizeof none};
    const dlc_feature_entry *entry;
    const dlc_feature *feature = NULL;
    *name = "gpu";
    *ops = &none;
    for (size_t i = 0; (entry = dlc_registry_feature(registry, DLC_KIND_DEVICE, i));
         i++)
        if (!(entry->caps & DLC_DEVICE_HOST)) {
            dlc_status status = dlc_registry_peek(registry, entry, &feature);
            if (status == DLC_OK)
                *ops = feature->ops;
            *name = entry->name;
            return status == DLC_ERR_NOMEM ? status : DLC_OK;
        }
    return DLC_OK;
}

/* Without a transport of their own, devices are connected through the host's memory. */
static dlc_status note_missing_transport(const dlc_registry *registry, const char *host,
                                         dlc_topo *topo) {
    const dlc_feature_entry *entry;
    for (size_t i = 0; (entry = dlc_registry_feature(registry, DLC_KIND_TRANSPORT, i));
         i++)
        if (entry->device && strcmp(entry->device, host) != 0)
            return DLC_OK;
    return dlc_topo_add_note(
        topo, "no plugin here has a transport for GPUs, which would use "
              "their own links: with one installed (`dlcore plugin list`) "
              "other transports are chosen");
}

dlc_status topo_replay(const topo_recorded *from, const dlc_bench_plan *plan,
                       topo_report *report) {
    const dlc_device_ops *ops = plan->device->ops, *accelerator_ops = NULL;
    const char *accelerator;
    dlc_topo *topo = &report->topo;
    const dlc_recorded recorded = {from->path, from->nodes, from->ranks,
                                   plan->device->name};
    DLC_TRY(find_accelerator(plan->registry, &accelerator, &accelerator_ops));
    DLC_TRY(dlc_recorded_read(&recorded, topo));
    size_t gpus = dlc_topo_count(topo, -1, DLC_TOPO_GPU);
    if (gpus)
        DLC_TRY(note_missing_transport(plan->registry, plan->device->name, topo));
    DLC_TRY(topo_report_ends(report, gpus ? (size_t)from->ranks : 0, accelerator));
    return topo_report_judge(report, plan, gpus ? accelerator_ops : ops);
}

/* ---- This job ------------------------------------------------------------------ */

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
    int complete = 0;
    DLC_TRY(add_devices(plan->registry, machine));
    DLC_TRY(dlc_job_gather_machines(job, machine, &report->topo, &complete));
    for (size_t i = 0; i < machine->notes; i++)
        DLC_TRY(dlc_topo_add_note(&report->topo, "%s", machine->note[i]));
    DLC_TRY(topo_report_ends(report, 0, plan->device->name));
    DLC_TRY(copy_rank_info(job, report));
    return topo_report_judge(report, plan, plan->device->ops);
}

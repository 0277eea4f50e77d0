/* Collects the ends and pairs of the report, and asks the transports. */
#include "topo_report.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "config/config.h"

/* ---- Ends ---------------------------------------------------------------------- */

static int32_t machine_number(const dlc_topo *topo, int32_t node) {
    int32_t number = 0;
    for (int32_t i = 0; i < topo->node[node].machine; i++)
        number += topo->node[i].parent < 0;
    return number;
}

/* The rank info of a rank on this end. */
static dlc_rank_info make_rank_info(const dlc_topo *topo, int32_t end,
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

dlc_status topo_report_ends(topo_report *report, size_t most, const char *accelerator) {
    const dlc_topo *topo = &report->topo;
    dlc_topo_kind kind = dlc_topo_count(topo, -1, DLC_TOPO_RANK) ? DLC_TOPO_RANK
                                                                 : DLC_TOPO_GPU;
    size_t count = dlc_topo_count(topo, -1, kind);
    if (most && most < count)
        count = most;
    if (count > TOPO_MAX_ENDS)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%zu ranks have too many pairs to show; use at most "
                        "--ranks=%d",
                        count, TOPO_MAX_ENDS);
    report->end = dlc_alloc(count, sizeof *report->end);
    report->rank_info = dlc_alloc(count, sizeof *report->rank_info);
    if (!report->end || !report->rank_info)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < (int32_t)topo->nodes && report->ends < count; i++) {
        if (topo->node[i].kind != kind)
            continue;
        report->end[report->ends] = i;
        report->rank_info[report->ends++] = make_rank_info(topo, i, accelerator);
    }
    return DLC_OK;
}

/* ---- Pairs ------------------------------------------------------------------- */

dlc_status topo_settings_of(const dlc_bench_plan *plan, const dlc_feature *feature,
                            dlc_settings **made, const dlc_settings **settings) {
    if (strcmp(plan->transport, feature->name) == 0) {
        *settings = plan->transport_settings;
        return DLC_OK;
    }
    dlc_problems problems = {0};
    const dlc_option *tables[] = {feature->options};
    dlc_settings_free(*made);
    *made = NULL;
    dlc_status status = dlc_settings_make(NULL, "transport", tables, 1, &problems,
                                          made);
    dlc_problems_free(&problems);
    *settings = *made;
    return status;
}

/* The context of settings_of. */
typedef struct settings_context {
    const dlc_bench_plan *plan;
    dlc_settings *made; /* a score keeps no pointers into it */
} settings_context;

static dlc_status settings_of(void *context, const dlc_feature *feature,
                              const dlc_settings **settings) {
    settings_context *a = context;
    return topo_settings_of(a->plan, feature, &a->made, settings);
}

static dlc_status judge_pair(const topo_report *report, topo_pair *pair,
                             const dlc_bench_plan *plan, const dlc_device_ops *ops) {
    settings_context a = {.plan = plan};
    dlc_rank_info pair_info[] = {report->rank_info[pair->a],
                                 report->rank_info[pair->b]};
    dlc_transport_args args = {
        .size = sizeof args, .ranks = 2, .rank_info = pair_info, .device_ops = ops};
    pair_info[1].node = pair_info[1].node != pair_info[0].node; /* numbered from 0 */
    pair_info[0].node = 0;
    dlc_topo_route_between(&report->topo, report->end[pair->a], report->end[pair->b],
                           &pair->route);
    dlc_status status = dlc_transport_choose(plan->registry, plan->transport,
                                             pair_info[0].device, &args, settings_of,
                                             &a, &pair->choice);
    dlc_settings_free(a.made);
    if (status == DLC_ERR_CONFIG) { /* none can connect them: a result, not an error */
        pair->problem = dlc_strdup(dlc_detail());
        return pair->problem ? DLC_OK : DLC_ERR_NOMEM;
    }
    return status;
}

dlc_status topo_report_judge(topo_report *report, const dlc_bench_plan *plan,
                             const dlc_device_ops *ops) {
    size_t n = report->ends;
    report->pair = dlc_alloc(n * n / 2, sizeof *report->pair);
    if (!report->pair)
        return DLC_ERR_NOMEM;
    for (size_t a = 0; a < n; a++)
        for (size_t b = a + 1; b < n; b++) {
            topo_pair *pair = &report->pair[report->pairs++];
            pair->a = (int32_t)a;
            pair->b = (int32_t)b;
            DLC_TRY(judge_pair(report, pair, plan, ops));
        }
    return DLC_OK;
}

void topo_report_free(topo_report *report) {
    for (size_t i = 0; i < report->pairs; i++) {
        dlc_transport_choice_free(&report->pair[i].choice);
        dlc_free(report->pair[i].problem);
    }
    dlc_free(report->pair);
    dlc_free(report->rank_info);
    dlc_free(report->end);
    dlc_topo_free(&report->topo);
    *report = (topo_report){0};
}

/* ---- The matrix ---------------------------------------------------------------- */

static int is_end(const topo_report *report, int32_t node) {
    for (size_t i = 0; i < report->ends; i++)
        if (report->end[i] == node)
            return 1;
    return 0;
}

size_t topo_report_rows(const topo_report *report, int32_t *nodes) {
    size_t count = 0;
    for (; count < report->ends; count++)
        nodes[count] = report->end[count];
    for (int32_t i = 0; i < (int32_t)report->topo.nodes && count < TOPO_MAX_ENDS; i++)
        if ((report->topo.node[i].kind == DLC_TOPO_GPU && !is_end(report, i)) ||
            report->topo.node[i].kind == DLC_TOPO_OTHER)
            nodes[count++] = i;
    return count;
}

size_t topo_report_adapters(const topo_report *report, int32_t *nodes) {
    size_t count = 0;
    for (int32_t i = 0; i < (int32_t)report->topo.nodes && count < TOPO_MAX_ENDS; i++)
        if (report->topo.node[i].kind == DLC_TOPO_NIC)
            nodes[count++] = i;
    return count;
}

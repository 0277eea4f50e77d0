/* Collects the ends and pairs of the report, and asks the transports. */
#include "topo_report.h"

#include <string.h>

#include "base/memory.h"
#include "config/config.h"
#include "plan/buckets.h"
#include "topology/recorded.h"

/* ---- Ends ---------------------------------------------------------------------- */

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
        report->rank_info[report->ends++] = dlc_recorded_rank_info(topo, i,
                                                                   accelerator);
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
    dlc_settings *made; /* a prediction keeps no pointers into it */
} settings_context;

static dlc_status settings_of(void *context, const dlc_feature *feature,
                              const dlc_settings **settings) {
    settings_context *a = context;
    return topo_settings_of(a->plan, feature, &a->made, settings);
}

/* Chooses for a group of ends as a job of them would. *problem: why nothing fits. */
static dlc_status choose(const topo_report *report, const dlc_bench_plan *plan,
                         const dlc_transport_args *group, const dlc_domains *domains,
                         dlc_transport_choice *choice, char **problem) {
    settings_context a = {.plan = plan};
    const dlc_choose_args args = {.registry = plan->registry,
                                  .wanted = plan->transport,
                                  .device = group->rank_info->device,
                                  .group = group,
                                  .topo = &report->topo,
                                  .domains = domains,
                                  .any_order = dlc_settings_is(plan->transport_settings,
                                                               "reduction_order",
                                                               "any"),
                                  .cost = dlc_plan_reduction,
                                  .settings_of = settings_of,
                                  .context = &a};
    dlc_status status = dlc_transport_choose(&args, choice);
    dlc_settings_free(a.made);
    if (status == DLC_ERR_CONFIG) { /* none can connect them: a result, not an error */
        *problem = dlc_strdup(dlc_detail());
        return *problem ? DLC_OK : DLC_ERR_NOMEM;
    }
    return status;
}

static dlc_status judge_all(topo_report *report, const dlc_bench_plan *plan,
                            const dlc_device_ops *ops) {
    const dlc_transport_args group = {.size = sizeof group,
                                      .ranks = (int32_t)report->ends,
                                      .rank_info = report->rank_info,
                                      .device_ops = ops};
    if (report->ends == 0)
        return DLC_OK;
    DLC_TRY(dlc_domains_make(&report->topo, report->end, (int32_t)report->ends, NULL,
                             &report->domains));
    for (size_t i = 0; i < report->ends; i++)
        dlc_domains_tell(&report->domains, &report->topo, (int32_t)i,
                         &report->rank_info[i]);
    return report->ends < 2 ? DLC_OK
                            : choose(report, plan, &group, &report->domains,
                                     &report->choice, &report->problem);
}

static dlc_status judge_pair(const topo_report *report, topo_pair *pair,
                             const dlc_bench_plan *plan, const dlc_device_ops *ops) {
    int32_t end[] = {report->end[pair->a], report->end[pair->b]};
    int32_t nic[] = {report->domains.nic[pair->a], report->domains.nic[pair->b]};
    const dlc_domains both = {.ranks = 2, .end = end, .nic = nic};
    dlc_rank_info pair_info[] = {report->rank_info[pair->a],
                                 report->rank_info[pair->b]};
    const dlc_transport_args group = {
        .size = sizeof group, .ranks = 2, .rank_info = pair_info, .device_ops = ops};
    pair_info[1].node = pair_info[1].node != pair_info[0].node; /* numbered from 0 */
    pair_info[0].node = 0;
    dlc_topo_route_between(&report->topo, end[0], end[1], &pair->route);
    return choose(report, plan, &group, &both, &pair->choice, &pair->problem);
}

dlc_status topo_report_judge(topo_report *report, const dlc_bench_plan *plan,
                             const dlc_device_ops *ops) {
    size_t n = report->ends;
    DLC_TRY(judge_all(report, plan, ops));
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
    dlc_transport_choice_free(&report->choice);
    dlc_free(report->problem);
    dlc_domains_free(&report->domains);
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

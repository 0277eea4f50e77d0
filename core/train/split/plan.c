/* parallel = auto: which layers to split over the ranks; tensor_schedule = auto: how they get the
 * samples of all. What joins the ranks is
 * measured; what layers compute is guessed from their work and the speed of the memory,
 * for nothing has run yet; the planner does the rest (core/plan). All ranks have the
 * same numbers, those of the slowest, and come to the same choice. */
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/pace.h"
#include "train/session.h"
#include "train/split/planning.h"

/* ---- The net ----------------------------------------------------------------- */

dlc_status dlc_split_outline(const planning *p, const dlc_net_split *split,
                             dlc_net **net) {
    const dlc_session *session = p->session;
    dlc_net_args args = {.graph = session->setup->graph,
                         .outline = 1,
                         .phase = DLC_PHASE_TRAIN,
                         .device_feature = session->setup->device,
                         .device_ops = session->device_ops,
                         .device = session->device,
                         .queue = session->queue,
                         .threads = 1,
                         .precision = DLC_F32,
                         .sample = p->sample,
                         .batch = split ? session->share : p->batch,
                         .seed = session->setup->seed,
                         .split = split};
    return dlc_net_build(&args, net);
}

/* Does the layer do it, as it is set? What it says is no error here. */
static int can_split(const planning *p, int32_t node) {
    dlc_split *split = &p->session->split;
    dlc_net_split one = split->train;
    dlc_net *net = NULL;
    if (p->session->setup->graph->layer[node].parallel != DLC_PARALLEL_AUTO)
        return 0;
    memset(split->layers, 0, (size_t)p->session->setup->graph->layers);
    split->layers[node] = 1;
    one.layers = split->layers;
    int can = dlc_split_outline(p, &one, &net) == DLC_OK;
    if (can)
        dlc_net_free(net);
    else
        dlc_debug("not to be split: %s", dlc_detail());
    return can;
}

static dlc_status read_layers(planning *p) {
    const dlc_graph *graph = p->session->setup->graph;
    dlc_net *net = NULL;
    DLC_TRY(dlc_split_outline(p, NULL, &net));
    dlc_status status = dlc_plan_layers_read(graph, net, p->batch, &p->sample,
                                             &p->measured.speed, p->all);
    dlc_net_free(net);
    DLC_TRY(status);
    for (int32_t i = 0; i < graph->layers; i++) {
        if (!(graph->layer[i].phases & DLC_PHASE_TRAIN))
            continue;
        p->layer[p->layers] = p->all[i];
        p->layer[p->layers].can_split &= can_split(p, i);
        p->node[p->layers++] = i;
    }
    return DLC_OK;
}

/* ---- What comes of it -------------------------------------------------------- */

static void announce(const planning *p, const dlc_plan_split *split) {
    int width = 5;
    for (size_t i = 0; i < p->layers; i++)
        if (p->layer[i].can_split && (int)strlen(p->layer[i].name) > width)
            width = (int)strlen(p->layer[i].name);
    dlc_info(
        "parallel = auto, by the measured link (%.1f us, then %.3f GB/s): a step is "
        "expected to take %.1f ms by samples alone, %.1f ms as chosen",
        p->measured.pace.latency * 1e6, p->measured.pace.bandwidth / 1e9,
        split->data.seconds * 1e3, split->mix.seconds * 1e3);
    dlc_info("    %-*s %10s %22s %22s  %s", width, "layer", "weights", "by samples",
             "by channels", "chosen");
    for (size_t i = 0; i < p->layers; i++) {
        const dlc_plan_layer *layer = &p->layer[i];
        const dlc_plan_choice *choice = &p->choice[i];
        if (layer->can_split)
            dlc_info("    %-*s %7.2f MB %9.2f MB %7.1f ms %9.2f MB %7.1f ms  %s", width,
                     layer->name, layer->parameter_bytes / 1e6,
                     choice->data_bytes / 1e6, choice->data_seconds * 1e3,
                     choice->model_bytes / 1e6, choice->model_seconds * 1e3,
                     choice->model ? "channels" : "samples");
    }
}

static dlc_status decide(planning *p) {
    const dlc_plan_exchange exchange = {.way = DLC_PLAN_DIRECT,
                                        .overlap = DLC_PLAN_OVERLAP_BEST};
    dlc_plan_split split;
    DLC_TRY(dlc_plan_split_of(p->layer, p->layers, &p->measured.cluster, &exchange,
                              (double)p->batch, p->choice, NULL, &split));
    if (p->session->rank == 0)
        announce(p, &split);
    return DLC_OK;
}

dlc_status dlc_split_plan(planning *p, char *chosen) {
    DLC_TRY(decide(p));
    for (size_t i = 0; i < p->layers; i++)
        chosen[p->node[i]] = p->layer[i].can_split && p->choice[i].model;
    return DLC_OK;
}

/* ---- Opening and closing ----------------------------------------------------- */

dlc_status dlc_split_planning_open(dlc_session *session, planning *p) {
    size_t layers = (size_t)session->setup->graph->layers;
    *p = (planning){.session = session,
                    .batch = (session->global_batch + session->ranks - 1) /
                             session->ranks,
                    .all = dlc_alloc(layers, sizeof *p->all),
                    .layer = dlc_alloc(layers, sizeof *p->layer),
                    .node = dlc_alloc(layers, sizeof *p->node),
                    .choice = dlc_alloc(layers, sizeof *p->choice)};
    dlc_status status = p->all && p->layer && p->node && p->choice ? DLC_OK
                                                                   : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_setup_sample_shape(&session->setup->train, &p->sample);
    if (status == DLC_OK)
        status = dlc_measure(session, &p->measured);
    if (status == DLC_OK)
        status = read_layers(p);
    if (status != DLC_OK)
        dlc_split_planning_close(p);
    return status;
}

void dlc_split_planning_close(planning *p) {
    dlc_free(p->choice);
    dlc_free(p->node);
    dlc_free(p->layer);
    dlc_free(p->all);
    *p = (planning){.session = NULL};
}

/* parallel = auto: which layers to split over the ranks. What joins the ranks is
 * measured; what layers compute is guessed from their work and the speed of the memory,
 * for nothing has run yet; the planner does the rest (core/plan). All ranks have the
 * same numbers, those of the slowest, and come to the same choice. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/pace.h"
#include "plan/layers.h"
#include "plan/split.h"
#include "train/session.h"

/* Multiplications and additions in the time in which a device moves a byte. */
enum { OPERATIONS_A_BYTE = 10, ZEROS = 1 << 20 };
static const double START = 2e-6;      /* seconds that the smallest work takes */
static const double HANDOVER = 200e-6; /* of a sum to another thread; see pace.c */

/* The layers that take part in training, in a row. */
typedef struct planning {
    dlc_session *session;
    dlc_shape sample;
    int64_t batch; /* of a rank, about */
    size_t layers;
    dlc_plan_layer *all;     /* own; one a layer of the graph */
    dlc_plan_layer *layer;   /* own */
    int32_t *node;           /* own; where they stand in the graph */
    dlc_plan_choice *choice; /* own */
    dlc_plan_cluster cluster;
    dlc_pace pace;
    dlc_plan_speed speed;
} planning;

/* ---- The net -----------------------------------------------------------------------
 */

static dlc_status build_outline(const planning *p, const dlc_net_split *split,
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
    int can = build_outline(p, &one, &net) == DLC_OK;
    if (can)
        dlc_net_free(net);
    else
        dlc_debug("not to be split: %s", dlc_detail());
    return can;
}

static dlc_status read_layers(planning *p) {
    const dlc_graph *graph = p->session->setup->graph;
    dlc_net *net = NULL;
    DLC_TRY(build_outline(p, NULL, &net));
    dlc_status status = dlc_plan_layers_read(graph, net, p->batch, &p->sample,
                                             &p->speed, p->all);
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

/* ---- The ranks ---------------------------------------------------------------------
 */

static dlc_status measure(planning *p) {
    const dlc_session *session = p->session;
    dlc_comm *comm = session->connection.comm;
    size_t bytes = ZEROS * sizeof(float);
    dlc_memory zeros = {.size = sizeof zeros};
    double memory = 0;
    DLC_TRY(session->device_ops->alloc(session->device, bytes, 0, &zeros));
    dlc_status status = session->device_ops->fill(session->device, NULL, zeros.base, 0,
                                                  bytes);
    if (status == DLC_OK)
        status = dlc_pace_measure(comm, session->device_ops, session->device,
                                  zeros.base, ZEROS, &p->pace);
    session->device_ops->free(session->device, &zeros);
    DLC_TRY(status);
    DLC_TRY(dlc_pace_memory(comm, session->device_ops, session->device, &memory));
    p->speed = (dlc_plan_speed){.multiply_adds = memory * OPERATIONS_A_BYTE / 2,
                                .bytes = memory,
                                .start = START};
    return DLC_OK;
}

static void describe_cluster(planning *p) {
    const dlc_session *session = p->session;
    int on_host = (session->setup->device->caps & DLC_DEVICE_HOST) != 0;
    int32_t nodes = 1;
    for (int32_t r = 0; r < session->ranks; r++) {
        int32_t node = dlc_job_place(session->job, r)->node;
        nodes = node >= nodes ? node + 1 : nodes;
    }
    p->cluster = (dlc_plan_cluster){.nodes = nodes,
                                    .each = (session->ranks + nodes - 1) / nodes,
                                    .update = p->pace.update,
                                    .stolen = on_host ? 1 : 0,
                                    .handover = on_host ? HANDOVER : 0,
                                    .copies = 1 + session->needs.slots};
    dlc_plan_links_of_sums(p->pace.latency, p->pace.bandwidth, &p->cluster);
}

/* ---- What comes of it --------------------------------------------------------------
 */

static void announce(const planning *p, const dlc_plan_split *split) {
    int width = 5;
    for (size_t i = 0; i < p->layers; i++)
        if (p->layer[i].can_split && (int)strlen(p->layer[i].name) > width)
            width = (int)strlen(p->layer[i].name);
    dlc_info(
        "parallel = auto, by the measured link (%.1f us, then %.3f GB/s): a step is "
        "expected to take %.1f ms by samples alone, %.1f ms as chosen",
        p->pace.latency * 1e6, p->pace.bandwidth / 1e9, split->data.seconds * 1e3,
        split->mix.seconds * 1e3);
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
    DLC_TRY(measure(p));
    DLC_TRY(read_layers(p));
    describe_cluster(p);
    DLC_TRY(dlc_plan_split_of(p->layer, p->layers, &p->cluster, &exchange,
                              (double)p->batch, p->choice, NULL, &split));
    if (p->session->rank == 0)
        announce(p, &split);
    return DLC_OK;
}

dlc_status dlc_split_plan(dlc_session *session, char *chosen) {
    size_t layers = (size_t)session->setup->graph->layers;
    planning p = {.session = session,
                  .batch = (session->global_batch + session->ranks - 1) /
                           session->ranks,
                  .all = dlc_alloc(layers, sizeof *p.all),
                  .layer = dlc_alloc(layers, sizeof *p.layer),
                  .node = dlc_alloc(layers, sizeof *p.node),
                  .choice = dlc_alloc(layers, sizeof *p.choice)};
    dlc_status status = p.all && p.layer && p.node && p.choice ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_setup_sample_shape(&session->setup->train, &p.sample);
    if (status == DLC_OK)
        status = decide(&p);
    for (size_t i = 0; status == DLC_OK && i < p.layers; i++)
        chosen[p.node[i]] = p.layer[i].can_split && p.choice[i].model;
    dlc_free(p.choice);
    dlc_free(p.node);
    dlc_free(p.layer);
    dlc_free(p.all);
    return status;
}

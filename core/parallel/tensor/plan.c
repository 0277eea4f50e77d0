/* The planner for `parallel = auto`: which layers to run tensor-parallel. The
 * interconnect is measured; the time of layers is estimated from their work and the
 * memory bandwidth, because nothing has run yet; core/plan does the rest. All ranks
 * have the same numbers, those of the slowest, so they decide alike. */
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "comm/comm_benchmark.h"
#include "parallel/tensor/planning.h"
#include "session/session.h"

/* ---- The net ----------------------------------------------------------------- */

dlc_status dlc_tensor_parallel_outline(const planning *p,
                                       const dlc_net_tensor_parallel *split,
                                       dlc_net **net) {
    const dlc_session *session = p->session;
    const int64_t *first = split ? split->first_sample + split->rank : NULL;
    dlc_net_args args = {.graph = session->setup->graph,
                         .outline = 1,
                         .phase = DLC_PHASE_TRAIN,
                         .device_feature = session->setup->device,
                         .device_ops = session->device_ops,
                         .device = session->device,
                         .queue = session->queue,
                         .threads = 1,
                         .precision = DLC_F32,
                         .batch = split ? first[1] - first[0] : p->batch,
                         .seed = session->setup->seed,
                         .tensor_parallel = split};
    DLC_TRY(dlc_setup_sample_fields(session->setup, &session->setup->train, args.phase,
                                    &args.fields));
    return dlc_net_build(&args, net);
}

/* Can the layer be split, with its settings? A refusal of the layer is no error here.
 */
static dlc_status can_split(const planning *p, int32_t node, int *can) {
    dlc_tensor_parallel *tensor = p->tensor;
    dlc_net_tensor_parallel one = tensor->train;
    dlc_net *net = NULL;
    if (!p->is_implied &&
        p->session->setup->graph->layer[node].parallel != DLC_PARALLEL_AUTO) {
        *can = 0;
        return DLC_OK;
    }
    memset(tensor->layers, 0, (size_t)p->session->setup->graph->layers);
    tensor->layers[node] = 1;
    one.layers = tensor->layers;
    dlc_status status = dlc_tensor_parallel_outline(p, &one, &net);
    if (status == DLC_ERR_NOMEM)
        return status;
    *can = status == DLC_OK;
    if (*can)
        dlc_net_free(net);
    else if (p->session->rank == 0 && !p->is_implied)
        dlc_info("parallel = auto: layer '%s' is not split (%s)",
                 p->session->setup->graph->layer[node].name, dlc_detail());
    return DLC_OK;
}

static dlc_status read_layers(planning *p) {
    const dlc_graph *graph = p->session->setup->graph;
    dlc_net *net = NULL;
    DLC_TRY(dlc_tensor_parallel_outline(p, NULL, &net));
    dlc_status status = dlc_plan_layers_read(graph, net, p->batch, &p->sample,
                                             p->measured.memory, p->all);
    dlc_net_free(net);
    DLC_TRY(status);
    for (int32_t i = 0; i < graph->layers; i++) {
        if (!(graph->layer[i].phases & DLC_PHASE_TRAIN))
            continue;
        p->layer[p->layers] = p->all[i];
        if (p->layer[p->layers].can_split)
            DLC_TRY(can_split(p, i, &p->layer[p->layers].can_split));
        p->node[p->layers++] = i;
    }
    return DLC_OK;
}

/* ---- The choice ------------------------------------------------------------------ */

static void announce_layers(const planning *p, const dlc_plan_tensor_parallel *split) {
    int width = 5;
    for (size_t i = 0; i < p->layers; i++)
        if (p->layer[i].can_split && (int)strlen(p->layer[i].name) > width)
            width = (int)strlen(p->layer[i].name);
    dlc_info(
        "parallel = auto, by the measured link (latency %.1f us, bandwidth %.3f GB/s): "
        "an iteration should take %.1f ms with data parallelism alone, "
        "%.1f ms as chosen",
        p->measured.comm.latency * 1e6, p->measured.comm.bandwidth / 1e9,
        split->data.seconds * 1e3, split->mix.seconds * 1e3);
    dlc_info("    %-*s %10s %22s %22s  %s", width, "layer", "weights", "by samples",
             "by channels", "chosen");
    for (size_t i = 0; i < p->layers; i++) {
        const dlc_plan_layer *layer = &p->layer[i];
        const dlc_plan_layer_choice *choice = &p->choice[i];
        if (layer->can_split)
            dlc_info("    %-*s %7.2f MB %9.2f MB %7.1f ms %9.2f MB %7.1f ms  %s", width,
                     layer->name, layer->parameter_bytes / 1e6,
                     choice->data_bytes / 1e6, choice->data_seconds * 1e3,
                     choice->tensor_bytes / 1e6, choice->tensor_seconds * 1e3,
                     choice->tensor ? "channels" : "samples");
    }
}

static dlc_status decide(planning *p) {
    const dlc_plan_exchange exchange = {.algorithm = DLC_PLAN_DIRECT,
                                        .overlap = DLC_PLAN_OVERLAP_BEST};
    dlc_plan_tensor_parallel split;
    DLC_TRY(dlc_plan_choose_tensor_parallel(p->layer, p->layers, &p->measured.cluster,
                                            &exchange, (double)p->batch, p->choice,
                                            NULL, &split));
    if (p->session->rank == 0)
        announce_layers(p, &split);
    return DLC_OK;
}

dlc_status dlc_tensor_parallel_choose_layers(planning *p, char *chosen) {
    DLC_TRY(decide(p));
    for (size_t i = 0; i < p->layers; i++)
        chosen[p->node[i]] = p->layer[i].can_split && p->choice[i].tensor;
    return DLC_OK;
}

static double gain_of(const planning *p, size_t i) {
    return dlc_plan_tensor_gain(&p->layer[i],
                                (double)p->batch * p->session->mesh.tensor);
}

void dlc_tensor_parallel_choose_by_bytes(const planning *p) {
    size_t best = 0;
    for (size_t i = 0; i < p->layers; i++) {
        p->tensor->layers[p->node[i]] = gain_of(p, i) > 1;
        best = gain_of(p, i) > gain_of(p, best) ? i : best;
    }
    if (p->layers && gain_of(p, best) > 0)
        p->tensor->layers[p->node[best]] = 1;
}

/* ---- Opening and closing ----------------------------------------------------- */

dlc_status dlc_tensor_parallel_planning_open(planning *p) {
    dlc_session *session = p->session;
    size_t layers = (size_t)session->setup->graph->layers;
    p->batch = session->stage_samples.train
                   ? session->local_batch
                   : (session->global_batch + session->ranks - 1) / session->ranks;
    p->all = dlc_alloc(layers, sizeof *p->all);
    p->layer = dlc_alloc(layers, sizeof *p->layer);
    p->node = dlc_alloc(layers, sizeof *p->node);
    p->choice = dlc_alloc(layers, sizeof *p->choice);
    dlc_status status = p->all && p->layer && p->node && p->choice ? DLC_OK
                                                                   : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_setup_sample_shape(&session->setup->train, &p->sample);
    if (status == DLC_OK && p->is_measured)
        status = dlc_cluster_costs_measure(session, &p->measured);
    if (status == DLC_OK)
        status = read_layers(p);
    if (status != DLC_OK)
        dlc_tensor_parallel_planning_close(p);
    return status;
}

void dlc_tensor_parallel_planning_close(planning *p) {
    dlc_free(p->choice);
    dlc_free(p->node);
    dlc_free(p->layer);
    dlc_free(p->all);
    *p = (planning){.session = NULL};
}

/* The planner for tensor_schedule = auto: whether the split layers at the end of the
 * net get the samples of all ranks at once or in batch chunks, by predicted time and
 * free memory. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/read.h"
#include "parallel/tensor/planning.h"
#include "plan/batch_chunks.h"
#include "session/session.h"

/* ---- The group of layers --------------------------------------------------------- */

static double cut_of(const planning *p, int32_t first) {
    dlc_graph_input cut = p->session->setup->graph->layer[first].input[0];
    return cut.layer == DLC_FROM_DATA
               ? (double)dlc_shape_count(&p->sample) * sizeof(float)
               : p->all[cut.layer].out_bytes;
}

static dlc_plan_tensor_group group_to_plan(const planning *p, int32_t first) {
    const dlc_session *session = p->session;
    dlc_graph_input cut = session->setup->graph->layer[first].input[0];
    double ranks = session->mesh.tensor;
    dlc_plan_tensor_group group = {.samples = (double)p->batch,
                                   .memory = p->measured.memory,
                                   .cut_bytes = cut_of(p, first),
                                   .no_gradient = cut.layer == DLC_FROM_DATA};
    for (size_t i = 0; i < p->layers; i++) {
        const dlc_plan_layer *layer = &p->layer[i];
        int split = p->tensor->layers[p->node[i]] != 0;
        double weights = layer->parameter_bytes / (split ? ranks : 1);
        if (p->node[i] < first)
            continue;
        group.work.fixed += layer->forward.fixed + layer->backward.fixed;
        group.work.per_sample += layer->forward.per_sample + layer->backward.per_sample;
        group.parameter_bytes += weights;
        group.largest_bytes = fmax(group.largest_bytes, weights);
        /* Its outputs, and what is gathered of them. */
        group.kept_bytes += layer->out_bytes * (split ? 1 + 1 / ranks : 1);
    }
    return group;
}

/* Bytes of this rank's weights, with gradients and solver state. */
static double weights_of(const planning *p) {
    const dlc_session *session = p->session;
    double bytes = 0;
    for (size_t i = 0; i < p->layers; i++)
        bytes += p->layer[i].parameter_bytes /
                 (p->tensor->layers[p->node[i]] ? session->mesh.tensor : 1);
    return bytes * (1 + p->measured.cluster.copies);
}

/* ---- Memory ---------------------------------------------------------------------- */

/* Bytes available to the group on the rank that has least; 0: unknown. Other devices do
 * not report free memory. */
static dlc_status find_available(const planning *p, double *available) {
    const dlc_session *session = p->session;
    int32_t node = dlc_job_rank_info(session->job, session->rank)->node, near = 0;
    for (int32_t r = 0; r < session->ranks; r++)
        near += dlc_job_rank_info(session->job, r)->node == node;
    int on_host = (session->setup->device->caps & DLC_DEVICE_HOST) != 0;
    double most = on_host
                      ? (double)dlc_read_kilobytes("/proc/meminfo", "MemAvailable") /
                                near -
                            weights_of(p)
                      : 0;
    double shortage = -fmax(most, on_host ? 1 : 0);
    DLC_TRY(dlc_comm_max_seconds(session->connection.comm, &shortage));
    *available = -shortage;
    return DLC_OK;
}

/* ---- The choice ------------------------------------------------------------------ */

/* Can the net be built with this schedule? That it can't is no error. */
static dlc_status is_schedule_possible(const planning *p, dlc_tensor_schedule schedule,
                                       int *is) {
    dlc_net_tensor_parallel split = p->tensor->train;
    dlc_net *net = NULL;
    split.schedule = schedule;
    split.layers = p->tensor->layers;
    dlc_status status = dlc_tensor_parallel_outline(p, &split, &net);
    if (status == DLC_ERR_NOMEM)
        return status;
    *is = status == DLC_OK;
    if (*is)
        dlc_net_free(net);
    else
        dlc_debug("tensor_schedule = %s is not possible: %s",
                  dlc_plan_schedule_text(schedule), dlc_detail());
    return DLC_OK;
}

static void announce_schedule(const dlc_plan_chunks chunks[DLC_TENSOR_SCHEDULES],
                              dlc_tensor_schedule chosen, const char *reason) {
    dlc_info("tensor_schedule = auto: %s, because %s", dlc_plan_schedule_text(chosen),
             reason);
    dlc_info("    %-9s %8s %14s %12s %11s", "schedule", "chunks", "these layers",
             "not hidden", "memory");
    for (dlc_tensor_schedule schedule = 0; schedule < DLC_TENSOR_SCHEDULES; schedule++)
        if (chunks[schedule].count > 0)
            dlc_info("    %-9s %8d %11.1f ms %9.1f ms %8.1f MB",
                     dlc_plan_schedule_text(schedule), (int)chunks[schedule].count,
                     chunks[schedule].seconds * 1e3, chunks[schedule].exposed * 1e3,
                     chunks[schedule].bytes / 1e6);
}

dlc_status dlc_tensor_parallel_plan_schedule(planning *p, int32_t first,
                                             dlc_tensor_schedule *schedule) {
    dlc_plan_tensor_group group = group_to_plan(p, first);
    dlc_plan_chunks chunks[DLC_TENSOR_SCHEDULES] = {{0}};
    const char *reason = NULL;
    double available = 0;
    DLC_TRY(find_available(p, &available));
    for (dlc_tensor_schedule i = 0; i < DLC_TENSOR_SCHEDULES; i++) {
        int is = 1;
        if (i != DLC_TENSOR_WHOLE_BATCH)
            DLC_TRY(is_schedule_possible(p, i, &is));
        if (is)
            DLC_TRY(dlc_plan_chunks_of(&group, &p->measured.cluster, i, &chunks[i]));
    }
    *schedule = dlc_plan_choose_schedule(chunks, available, &reason);
    if (p->session->rank == 0)
        announce_schedule(chunks, *schedule, reason);
    return DLC_OK;
}

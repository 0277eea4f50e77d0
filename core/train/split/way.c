/* tensor_schedule = auto: whether the split layers at the end of the net get the samples of all
 * ranks at once, or by portions; by what is predicted (plan/portions.h) and by the
 * memory that is free. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "plan/portions.h"
#include "train/session.h"
#include "train/split/planning.h"

/* ---- The group ------------------------------------------------------------------- */

static double cut_of(const planning *p, int32_t first) {
    dlc_graph_input cut = p->session->setup->graph->layer[first].input[0];
    return cut.layer == DLC_FROM_DATA
               ? (double)dlc_shape_count(&p->sample) * sizeof(float)
               : p->all[cut.layer].out_bytes;
}

static dlc_plan_group group_of(const planning *p, int32_t first) {
    const dlc_session *session = p->session;
    dlc_graph_input cut = session->setup->graph->layer[first].input[0];
    double ranks = session->ranks;
    dlc_plan_group group = {.samples = (double)p->batch,
                            .memory = p->measured.speed.bytes,
                            .cut_bytes = cut_of(p, first),
                            .no_gradient = cut.layer == DLC_FROM_DATA};
    for (size_t i = 0; i < p->layers; i++) {
        const dlc_plan_layer *layer = &p->layer[i];
        int split = session->split.layers[p->node[i]] != 0;
        double weights = layer->parameter_bytes / (split ? ranks : 1);
        if (p->node[i] < first)
            continue;
        group.work.fixed += layer->forward.fixed + layer->backward.fixed;
        group.work.each += layer->forward.each + layer->backward.each;
        group.parameter_bytes += weights;
        group.largest_bytes = fmax(group.largest_bytes, weights);
        /* What a split layer gives, and what is gathered of it. */
        group.kept_bytes += layer->out_bytes * (split ? 1 + 1 / ranks : 1);
    }
    return group;
}

/* Weights, with what goes with them, of this rank. */
static double weights_of(const planning *p) {
    const dlc_session *session = p->session;
    double bytes = 0;
    for (size_t i = 0; i < p->layers; i++)
        bytes += p->layer[i].parameter_bytes /
                 (session->split.layers[p->node[i]] ? session->ranks : 1);
    return bytes * (1 + p->measured.cluster.copies);
}

/* ---- The memory ------------------------------------------------------------------ */

/* Of the machine that is free; 0: not known. */
static double free_bytes(void) {
    unsigned long kilobytes = 0;
    char line[128];
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file))
        if (sscanf(line, "MemAvailable: %lu kB", &kilobytes) == 1)
            break;
    if (file)
        fclose(file);
    return (double)kilobytes * 1024;
}

/* For the group, of the rank that has least; 0: not known. Other devices do not tell
 * what is free. */
static dlc_status find_room(const planning *p, double *room) {
    const dlc_session *session = p->session;
    int32_t node = dlc_job_place(session->job, session->rank)->node, near = 0;
    for (int32_t r = 0; r < session->ranks; r++)
        near += dlc_job_place(session->job, r)->node == node;
    int on_host = (session->setup->device->caps & DLC_DEVICE_HOST) != 0;
    double most = on_host ? free_bytes() / near - weights_of(p) : 0;
    double shortage = -fmax(most, on_host ? 1 : 0);
    DLC_TRY(dlc_pace_slowest(session->connection.comm, &shortage));
    *room = -shortage;
    return DLC_OK;
}

/* ---- The choice ------------------------------------------------------------------ */

/* Can the net be had that way? If not, that is no error. */
static int is_possible(const planning *p, dlc_split_way way) {
    dlc_net_split split = p->session->split.train;
    dlc_net *net = NULL;
    split.way = way;
    split.layers = p->session->split.layers;
    int is = dlc_split_outline(p, &split, &net) == DLC_OK;
    if (is)
        dlc_net_free(net);
    else
        dlc_debug("not %s: %s", dlc_plan_split_way_text(way), dlc_detail());
    return is;
}

static void announce(const dlc_plan_portions portions[DLC_SPLIT_WAYS],
                     dlc_split_way chosen, const char *reason) {
    dlc_info("tensor_schedule = auto: %s, for %s", dlc_plan_split_way_text(chosen), reason);
    dlc_info("    %-9s %8s %14s %12s %11s", "way", "portions", "these layers",
             "not hidden", "memory");
    for (dlc_split_way way = 0; way < DLC_SPLIT_WAYS; way++)
        if (portions[way].count > 0)
            dlc_info("    %-9s %8d %11.1f ms %9.1f ms %8.1f MB",
                     dlc_plan_split_way_text(way), (int)portions[way].count,
                     portions[way].seconds * 1e3, portions[way].exposed * 1e3,
                     portions[way].bytes / 1e6);
}

dlc_status dlc_split_plan_way(planning *p, int32_t first, dlc_split_way *way) {
    dlc_plan_group group = group_of(p, first);
    dlc_plan_portions portions[DLC_SPLIT_WAYS] = {{0}};
    const char *reason = NULL;
    double room = 0;
    DLC_TRY(find_room(p, &room));
    for (dlc_split_way i = 0; i < DLC_SPLIT_WAYS; i++)
        if (i == DLC_SPLIT_WHOLE || is_possible(p, i))
            DLC_TRY(
                dlc_plan_portions_of(&group, &p->measured.cluster, i, &portions[i]));
    *way = dlc_plan_split_way(portions, room, &reason);
    if (p->session->rank == 0)
        announce(portions, *way, reason);
    return DLC_OK;
}

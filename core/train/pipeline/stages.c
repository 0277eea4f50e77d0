/* See stages.h. */
#include "train/pipeline/stages.h"

#include "base/memory.h"

void dlc_stages_free(dlc_stages *stages) {
    dlc_free(stages->first);
    *stages = (dlc_stages){0};
}

/* The rank that has `stage` of this rank's replica. */
static int32_t rank_of(const dlc_stages *stages, int32_t stage) {
    return stage * stages->replicas + stages->replica;
}

int32_t dlc_stages_of_layer(const dlc_stages *stages, int32_t layer) {
    int32_t stage = stages->stages - 1;
    while (stage > 0 && stages->first[stage] > layer)
        stage--;
    return stage;
}

static int takes_part(const dlc_graph_layer *layer, dlc_phase phase) {
    return (layer->phases & (unsigned)phase) != 0;
}

int dlc_stages_read(const dlc_stages *stages, const dlc_graph *graph, dlc_phase phase,
                    int32_t output) {
    for (int32_t i = stages->first[stages->stage]; i < stages->first[stages->stage + 1];
         i++)
        for (int32_t j = 0; j < graph->layer[i].inputs; j++)
            if (takes_part(&graph->layer[i], phase) &&
                graph->layer[i].input[j].layer == DLC_FROM_DATA &&
                graph->layer[i].input[j].output == output)
                return 1;
    return 0;
}

/* ---- Crossings --------------------------------------------------------------- */

/* Does a layer of the stage read this output? */
static int reads(const dlc_stages *stages, const dlc_graph *graph, dlc_phase phase,
                 int32_t stage, int32_t layer, int32_t output) {
    for (int32_t i = stages->first[stage]; i < stages->first[stage + 1]; i++)
        for (int32_t j = 0; j < graph->layer[i].inputs; j++)
            if (takes_part(&graph->layer[i], phase) &&
                graph->layer[i].input[j].layer == layer &&
                graph->layer[i].input[j].output == output)
                return 1;
    return 0;
}

static dlc_status take_tables(dlc_crossings *crossings, int32_t most) {
    size_t n = (size_t)most;
    crossings->in = dlc_alloc(n, sizeof *crossings->in);
    crossings->out = dlc_alloc(n, sizeof *crossings->out);
    crossings->in_rank = dlc_alloc(n, sizeof *crossings->in_rank);
    crossings->in_id = dlc_alloc(n, sizeof *crossings->in_id);
    crossings->out_id = dlc_alloc(n, sizeof *crossings->out_id);
    crossings->readers = dlc_alloc(n, sizeof *crossings->readers);
    crossings->reader = dlc_alloc(n, sizeof *crossings->reader);
    return crossings->in && crossings->out && crossings->in_rank && crossings->in_id &&
                   crossings->out_id && crossings->readers && crossings->reader
               ? DLC_OK
               : DLC_ERR_NOMEM;
}

/* One output of a layer of this stage, where later stages read it. */
static dlc_status find_readers(const dlc_stages *stages, const dlc_graph *graph,
                               const dlc_net *outline, dlc_phase phase,
                               const dlc_net_port *port, int32_t id,
                               dlc_crossings *crossings) {
    int32_t at = crossings->outs, count = 0;
    dlc_crossing_reader *reader = dlc_alloc((size_t)stages->stages, sizeof *reader);
    if (!reader)
        return DLC_ERR_NOMEM;
    crossings->out[at] = *port;
    for (int32_t s = stages->stage + 1; s < stages->stages; s++) {
        if (!reads(stages, graph, phase, s, port->layer, port->output))
            continue;
        int gradient = phase == DLC_PHASE_TRAIN &&
                       dlc_net_is_wanted(outline, port->layer, port->output,
                                         stages->first[s], stages->first[s + 1]);
        reader[count++] = (dlc_crossing_reader){rank_of(stages, s), gradient};
        crossings->out[at].gradient |= gradient;
    }
    if (count == 0) {
        dlc_free(reader);
        return DLC_OK;
    }
    crossings->out_id[at] = id;
    crossings->readers[at] = count;
    crossings->reader[at] = reader;
    crossings->outs++;
    return DLC_OK;
}

/* One output of a layer of an earlier stage, if it is read here. */
static void find_source(const dlc_stages *stages, const dlc_graph *graph,
                        const dlc_net *outline, dlc_phase phase,
                        const dlc_net_port *port, int32_t id,
                        dlc_crossings *crossings) {
    int32_t at = crossings->ins, mine = stages->stage;
    if (!reads(stages, graph, phase, mine, port->layer, port->output))
        return;
    crossings->in[at] = *port;
    crossings->in[at].gradient = phase == DLC_PHASE_TRAIN &&
                                 dlc_net_is_wanted(outline, port->layer, port->output,
                                                   stages->first[mine],
                                                   stages->first[mine + 1]);
    int32_t from = dlc_stages_of_layer(stages, port->layer);
    crossings->in_rank[at] = rank_of(stages, from);
    crossings->in_id[at] = id;
    crossings->ins++;
}

dlc_status dlc_crossings_find(const dlc_stages *stages, const dlc_graph *graph,
                              const dlc_net *outline, dlc_phase phase,
                              dlc_crossings *crossings) {
    DLC_TRY(take_tables(crossings, graph->layers * DLC_MAX_OUTPUTS));
    for (int32_t i = 0; i < stages->first[stages->stage + 1]; i++) {
        int32_t from = dlc_stages_of_layer(stages, i);
        for (int32_t o = 0; o < DLC_MAX_OUTPUTS; o++) {
            int32_t id = i * DLC_MAX_OUTPUTS + o;
            dlc_net_port port;
            if (!dlc_net_output(outline, i, o, &port))
                continue;
            if (from == stages->stage)
                DLC_TRY(
                    find_readers(stages, graph, outline, phase, &port, id, crossings));
            else
                find_source(stages, graph, outline, phase, &port, id, crossings);
        }
    }
    return DLC_OK;
}

void dlc_crossings_free(dlc_crossings *crossings) {
    for (int32_t i = 0; i < crossings->outs; i++)
        dlc_free(crossings->reader[i]);
    dlc_free(crossings->reader);
    dlc_free(crossings->readers);
    dlc_free(crossings->out_id);
    dlc_free(crossings->in_id);
    dlc_free(crossings->in_rank);
    dlc_free(crossings->out);
    dlc_free(crossings->in);
    *crossings = (dlc_crossings){0};
}

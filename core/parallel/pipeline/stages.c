/* Finds out which layer is in which stage, and which tensors cross a stage boundary. */
#include "parallel/pipeline/stages.h"

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

/* ---- Boundary tensors ------------------------------------------------------------ */

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

static dlc_status take_tables(dlc_boundary_tensors *boundary, int32_t most) {
    size_t n = (size_t)most;
    boundary->in = dlc_alloc(n, sizeof *boundary->in);
    boundary->out = dlc_alloc(n, sizeof *boundary->out);
    boundary->in_rank = dlc_alloc(n, sizeof *boundary->in_rank);
    boundary->in_id = dlc_alloc(n, sizeof *boundary->in_id);
    boundary->out_id = dlc_alloc(n, sizeof *boundary->out_id);
    boundary->readers = dlc_alloc(n, sizeof *boundary->readers);
    boundary->reader = dlc_alloc(n, sizeof *boundary->reader);
    return boundary->in && boundary->out && boundary->in_rank && boundary->in_id &&
                   boundary->out_id && boundary->readers && boundary->reader
               ? DLC_OK
               : DLC_ERR_NOMEM;
}

/* An output of a layer of this stage, if later stages read it. */
static dlc_status find_readers(const dlc_stages *stages, const dlc_graph *graph,
                               const dlc_net *outline, dlc_phase phase,
                               const dlc_net_boundary *port, int32_t id,
                               dlc_boundary_tensors *boundary) {
    int32_t at = boundary->outs, count = 0;
    dlc_boundary_reader *reader = dlc_alloc((size_t)stages->stages, sizeof *reader);
    if (!reader)
        return DLC_ERR_NOMEM;
    boundary->out[at] = *port;
    for (int32_t s = stages->stage + 1; s < stages->stages; s++) {
        if (!reads(stages, graph, phase, s, port->layer, port->output))
            continue;
        int gradient = phase == DLC_PHASE_TRAIN &&
                       dlc_net_wants_gradient(outline, port->layer, port->output,
                                              stages->first[s], stages->first[s + 1]);
        reader[count++] = (dlc_boundary_reader){rank_of(stages, s), gradient};
        boundary->out[at].gradient |= gradient;
    }
    if (count == 0) {
        dlc_free(reader);
        return DLC_OK;
    }
    boundary->out_id[at] = id;
    boundary->readers[at] = count;
    boundary->reader[at] = reader;
    boundary->outs++;
    return DLC_OK;
}

/* An output of a layer of an earlier stage, if this stage reads it. */
static void find_source(const dlc_stages *stages, const dlc_graph *graph,
                        const dlc_net *outline, dlc_phase phase,
                        const dlc_net_boundary *port, int32_t id,
                        dlc_boundary_tensors *boundary) {
    int32_t at = boundary->ins, mine = stages->stage;
    if (!reads(stages, graph, phase, mine, port->layer, port->output))
        return;
    boundary->in[at] = *port;
    boundary->in[at].gradient = phase == DLC_PHASE_TRAIN &&
                                dlc_net_wants_gradient(
                                    outline, port->layer, port->output,
                                    stages->first[mine], stages->first[mine + 1]);
    int32_t from = dlc_stages_of_layer(stages, port->layer);
    boundary->in_rank[at] = rank_of(stages, from);
    boundary->in_id[at] = id;
    boundary->ins++;
}

dlc_status dlc_boundary_tensors_find(const dlc_stages *stages, const dlc_graph *graph,
                                     const dlc_net *outline, dlc_phase phase,
                                     dlc_boundary_tensors *boundary) {
    DLC_TRY(take_tables(boundary, graph->layers * DLC_MAX_OUTPUTS));
    for (int32_t i = 0; i < stages->first[stages->stage + 1]; i++) {
        int32_t from = dlc_stages_of_layer(stages, i);
        for (int32_t o = 0; o < DLC_MAX_OUTPUTS; o++) {
            int32_t id = i * DLC_MAX_OUTPUTS + o;
            dlc_net_boundary port;
            if (!dlc_net_output(outline, i, o, &port))
                continue;
            if (from == stages->stage)
                DLC_TRY(
                    find_readers(stages, graph, outline, phase, &port, id, boundary));
            else
                find_source(stages, graph, outline, phase, &port, id, boundary);
        }
    }
    return DLC_OK;
}

void dlc_boundary_tensors_free(dlc_boundary_tensors *boundary) {
    for (int32_t i = 0; i < boundary->outs; i++)
        dlc_free(boundary->reader[i]);
    dlc_free(boundary->reader);
    dlc_free(boundary->readers);
    dlc_free(boundary->out_id);
    dlc_free(boundary->in_id);
    dlc_free(boundary->in_rank);
    dlc_free(boundary->out);
    dlc_free(boundary->in);
    *boundary = (dlc_boundary_tensors){0};
}

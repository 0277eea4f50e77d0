/* Finds out which layer is in which stage, and which tensors cross a stage boundary. */
#include "parallel/pipeline/stages.h"

#include "base/memory.h"

void dlc_stages_free(dlc_stages *stages) {
    dlc_free(stages->first);
    *stages = (dlc_stages){0};
}

/* The stage that a layer of the graph is in. */
static int32_t stage_of_layer(const dlc_stages *stages, int32_t layer) {
    int32_t stage = stages->mesh.pipeline - 1;
    while (stage > 0 && stages->first[stage] > layer)
        stage--;
    return stage;
}

static int takes_part(const dlc_graph_layer *layer, dlc_phase phase) {
    return (layer->phases & (unsigned)phase) != 0;
}

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

int dlc_stages_read(const dlc_stages *stages, const dlc_graph *graph, dlc_phase phase,
                    int32_t field) {
    return reads(stages, graph, phase, stages->stage, DLC_FROM_DATA, field);
}

/* ---- Boundary tensors ------------------------------------------------------------ */

static dlc_status take_tables(dlc_boundary_tensors *boundary, int32_t most) {
    size_t n = (size_t)most;
    boundary->in = dlc_alloc(n, sizeof *boundary->in);
    boundary->out = dlc_alloc(n, sizeof *boundary->out);
    boundary->in_id = dlc_alloc(n, sizeof *boundary->in_id);
    boundary->out_id = dlc_alloc(n, sizeof *boundary->out_id);
    boundary->source = dlc_alloc(n, sizeof *boundary->source);
    boundary->readers = dlc_alloc(n, sizeof *boundary->readers);
    boundary->reader = dlc_alloc(n, sizeof *boundary->reader);
    return boundary->in && boundary->out && boundary->in_id && boundary->out_id &&
                   boundary->source && boundary->readers && boundary->reader
               ? DLC_OK
               : DLC_ERR_NOMEM;
}

/* What finding works with. */
typedef struct search {
    const dlc_stages *stages;
    const dlc_graph *graph;
    const dlc_net *outline;
    dlc_phase phase;
    int64_t samples;
    dlc_boundary_tensors *found;
} search;

static int wants_gradient(const search *s, const dlc_net_boundary *port,
                          int32_t stage) {
    return s->phase == DLC_PHASE_TRAIN &&
           dlc_net_wants_gradient(s->outline, port->layer, port->output,
                                  s->stages->first[stage], s->stages->first[stage + 1]);
}

static dlc_status check_rows(const search *s, const dlc_net_boundary *port) {
    if (port->shape.rank > 0 && port->shape.dims[0] == s->found->rows)
        return DLC_OK;
    return dlc_fail(DLC_ERR_CONFIG,
                    "the output of layer '%s' does not have one sample per row, so "
                    "stages with different numbers of ranks cannot exchange it; give "
                    "all stages the same number, or cut the net elsewhere",
                    s->graph->layer[port->layer].name);
}

/* Finds the ranks of a stage that have samples of this rank. */
static dlc_status find_parts(const search *s, const dlc_net_boundary *port,
                             int32_t stage, dlc_boundary_peers *peers) {
    const dlc_mesh *mesh = &s->stages->mesh;
    int32_t first = dlc_mesh_stage_first(mesh, stage);
    int32_t ranks = dlc_mesh_stage_ranks(mesh, stage);
    int64_t mine, rows, its, count;
    peers->part = dlc_alloc((size_t)ranks, sizeof *peers->part);
    if (!peers->part)
        return DLC_ERR_NOMEM;
    dlc_mesh_samples(mesh, s->stages->rank, s->samples, &mine, &rows);
    for (int32_t r = first; r < first + ranks; r++) {
        dlc_mesh_samples(mesh, r, s->samples, &its, &count);
        int64_t begin = its > mine ? its : mine;
        int64_t end = its + count < mine + rows ? its + count : mine + rows;
        if (begin < end)
            peers->part[peers->parts++] = (dlc_boundary_part){r, begin - mine,
                                                              end - begin};
    }
    return peers->parts == 1 && peers->part[0].rows == rows ? DLC_OK
                                                            : check_rows(s, port);
}

static void free_peers(dlc_boundary_peers *peers, int32_t count) {
    for (int32_t i = 0; peers && i < count; i++)
        dlc_free(peers[i].part);
    dlc_free(peers);
}

/* An output of a layer of this stage, if later stages read it. */
static dlc_status find_readers(const search *s, const dlc_net_boundary *port,
                               int32_t id) {
    const dlc_stages *stages = s->stages;
    dlc_boundary_tensors *found = s->found;
    int32_t at = found->outs, last = stages->mesh.pipeline, count = 0;
    dlc_boundary_peers *reader = dlc_alloc((size_t)last, sizeof *reader);
    dlc_status status = reader ? DLC_OK : DLC_ERR_NOMEM;
    found->out[at] = *port;
    for (int32_t r = stages->stage + 1; status == DLC_OK && r < last; r++) {
        if (!reads(stages, s->graph, s->phase, r, port->layer, port->output))
            continue;
        reader[count].gradient = wants_gradient(s, port, r);
        found->out[at].gradient |= reader[count].gradient;
        status = find_parts(s, port, r, &reader[count++]);
    }
    if (status != DLC_OK || count == 0) {
        free_peers(reader, count);
        return status;
    }
    found->out_id[at] = id;
    found->readers[at] = count;
    found->reader[at] = reader;
    found->outs++;
    return DLC_OK;
}

/* An output of a layer of an earlier stage, if this stage reads it. */
static dlc_status find_source(const search *s, const dlc_net_boundary *port,
                              int32_t id) {
    const dlc_stages *stages = s->stages;
    dlc_boundary_tensors *found = s->found;
    int32_t at = found->ins, mine = stages->stage;
    if (!reads(stages, s->graph, s->phase, mine, port->layer, port->output))
        return DLC_OK;
    found->in[at] = *port;
    found->in[at].gradient = wants_gradient(s, port, mine);
    found->in_id[at] = id;
    found->ins++;
    return find_parts(s, port, stage_of_layer(stages, port->layer), &found->source[at]);
}

dlc_status dlc_boundary_tensors_find(const dlc_stages *stages, const dlc_graph *graph,
                                     const dlc_net *outline, dlc_phase phase,
                                     int64_t samples, dlc_boundary_tensors *boundary) {
    const search s = {stages, graph, outline, phase, samples, boundary};
    int64_t begin;
    DLC_TRY(take_tables(boundary, graph->layers * DLC_MAX_OUTPUTS));
    dlc_mesh_samples(&stages->mesh, stages->rank, samples, &begin, &boundary->rows);
    for (int32_t i = 0; i < stages->first[stages->stage + 1]; i++) {
        int32_t from = stage_of_layer(stages, i);
        for (int32_t o = 0; o < DLC_MAX_OUTPUTS; o++) {
            int32_t id = i * DLC_MAX_OUTPUTS + o;
            dlc_net_boundary port;
            if (dlc_net_output(outline, i, o, &port))
                DLC_TRY(from == stages->stage ? find_readers(&s, &port, id)
                                              : find_source(&s, &port, id));
        }
    }
    return DLC_OK;
}

void dlc_boundary_tensors_free(dlc_boundary_tensors *boundary) {
    for (int32_t i = 0; i < boundary->outs; i++)
        free_peers(boundary->reader[i], boundary->readers[i]);
    free_peers(boundary->source, boundary->ins);
    dlc_free(boundary->reader);
    dlc_free(boundary->readers);
    dlc_free(boundary->out_id);
    dlc_free(boundary->in_id);
    dlc_free(boundary->out);
    dlc_free(boundary->in);
    *boundary = (dlc_boundary_tensors){0};
}

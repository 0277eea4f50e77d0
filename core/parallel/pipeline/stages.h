/* Stages: consecutive layers of the net, each on ranks of its own.
 *
 * With R replicas stage s is ranks [s * R, (s + 1) * R): most of the traffic is the
 * reduction of gradients over a stage's replicas, so these are neighbours, which
 * launchers place on one machine. Replica r of a stage sends its micro-batches to
 * replica r of other stages.
 *
 * A boundary tensor is an output that a layer of a later stage reads: it is sent
 * straight to that stage, and its gradient back. */
#ifndef DLC_PARALLEL_PIPELINE_STAGES_H
#define DLC_PARALLEL_PIPELINE_STAGES_H

#include "net/net.h"

typedef struct dlc_stages {
    int32_t stages, replicas;
    int32_t stage, replica; /* of this rank */
    int32_t *first; /* own; the first layer of each stage, then the number of layers */
} dlc_stages;

void dlc_stages_free(dlc_stages *stages); /* a zeroed one is allowed */

/* The stage that a layer of the graph is in. */
int32_t dlc_stages_of_layer(const dlc_stages *stages, int32_t layer);
/* Does this stage read the batch's data (output 0 of DLC_FROM_DATA) or labels (1)? */
int dlc_stages_read(const dlc_stages *stages, const dlc_graph *graph, dlc_phase phase,
                    int32_t output);

/* A stage that reads a boundary tensor. */
typedef struct dlc_boundary_reader {
    int32_t rank;
    int gradient; /* it sends a gradient back */
} dlc_boundary_reader;

/* The boundary tensors of this rank in one phase. Initialize with {0}. */
typedef struct dlc_boundary_tensors {
    int32_t ins, outs;
    dlc_net_boundary *in, *out; /* own */
    int32_t *in_rank;           /* own; the rank that sends it */
    int32_t *in_id, *out_id; /* own; numbers for tags, equal on sender and receiver */
    int32_t *readers;        /* own; how many stages read each output */
    dlc_boundary_reader **reader; /* own */
} dlc_boundary_tensors;

/* `outline`: of all layers of the phase. */
dlc_status dlc_boundary_tensors_find(const dlc_stages *stages, const dlc_graph *graph,
                                     const dlc_net *outline, dlc_phase phase,
                                     dlc_boundary_tensors *boundary);
/* a zeroed one is allowed */
void dlc_boundary_tensors_free(dlc_boundary_tensors *boundary);

#endif

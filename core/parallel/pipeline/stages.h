/* Stages: consecutive layers of the net, each on ranks of its own.
 *
 * A stage's ranks split the samples of a micro-batch (setup/mesh.h). They are
 * neighbours, which launchers place on one machine, because most of the traffic is the
 * reduction of gradients over them.
 *
 * A boundary tensor is an output that a layer of a later stage reads: it is sent
 * straight to the ranks of that stage that have the same samples, and its gradient
 * back. Where stages have equally many ranks, that is one rank. */
#ifndef DLC_PARALLEL_PIPELINE_STAGES_H
#define DLC_PARALLEL_PIPELINE_STAGES_H

#include "net/net.h"
#include "setup/mesh.h"

typedef struct dlc_stages {
    dlc_mesh mesh;
    int32_t rank, stage; /* this rank, and its stage */
    int32_t *first; /* own; the first layer of each stage, then the number of layers */
} dlc_stages;

void dlc_stages_free(dlc_stages *stages); /* a zeroed one is allowed */

/* Does this stage read this field of the batch? */
int dlc_stages_read(const dlc_stages *stages, const dlc_graph *graph, dlc_phase phase,
                    int32_t field);

/* The rows of this rank's part of a tensor that a rank of another stage has, too. */
typedef struct dlc_boundary_part {
    int32_t rank;
    int64_t row, rows;
} dlc_boundary_part;

/* The ranks of another stage that have parts of a boundary tensor. */
typedef struct dlc_boundary_peers {
    int gradient; /* they send a gradient back */
    int32_t parts;
    dlc_boundary_part *part; /* own */
} dlc_boundary_peers;

/* The boundary tensors of this rank in one phase. Initialize with {0}. */
typedef struct dlc_boundary_tensors {
    int64_t rows; /* of each of this rank's tensors that is sent in several parts */
    int32_t ins, outs;
    dlc_net_boundary *in, *out; /* own */
    int32_t *in_id, *out_id; /* own; numbers for tags, equal on sender and receiver */
    dlc_boundary_peers *source;  /* own; that send each input */
    int32_t *readers;            /* own; how many stages read each output */
    dlc_boundary_peers **reader; /* own; these stages */
} dlc_boundary_tensors;

/* `outline`: of all layers of the phase, for this rank's part of the `samples` that the
 * stages compute at once. DLC_ERR_CONFIG if a tensor cannot be split by samples but has
 * to be. */
dlc_status dlc_boundary_tensors_find(const dlc_stages *stages, const dlc_graph *graph,
                                     const dlc_net *outline, dlc_phase phase,
                                     int64_t samples, dlc_boundary_tensors *boundary);
/* a zeroed one is allowed */
void dlc_boundary_tensors_free(dlc_boundary_tensors *boundary);

#endif

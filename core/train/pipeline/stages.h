/* Stages: the net cut into consecutive layers, each piece on ranks of its own.
 *
 * With R replicas stage s is ranks [s * R, (s + 1) * R): gradients, which are summed
 * over a stage's replicas, are most of what is sent, so these are neighbours, which
 * launchers put on one machine. Replica r of a stage passes its sub-batches to replica
 * r of others.
 *
 * What a layer reads of a layer in an earlier stage *crosses*: it is sent from there
 * straight to the stage that reads it, and its gradient back.
 */
#ifndef DLC_TRAIN_STAGES_H
#define DLC_TRAIN_STAGES_H

#include "net/net.h"

typedef struct dlc_stages {
    int32_t stages, replicas;
    int32_t stage, replica; /* this rank's */
    int32_t *first; /* own; of each stage, its first layer in the graph; then the
                       number of layers */
} dlc_stages;

void dlc_stages_free(dlc_stages *stages); /* a zeroed one is allowed */

/* The stage that has a layer of the graph. */
int32_t dlc_stages_of_layer(const dlc_stages *stages, int32_t layer);
/* Does the stage read the batch's data (DLC_FROM_DATA output 0) or labels (1)? */
int dlc_stages_read(const dlc_stages *stages, const dlc_graph *graph, dlc_phase phase,
                    int32_t output);

/* One stage that reads what crosses. */
typedef struct dlc_crossing_reader {
    int32_t rank;
    int gradient; /* it sends one back */
} dlc_crossing_reader;

/* What crosses at this rank's edge, in one phase. Start with {0}. */
typedef struct dlc_crossings {
    int32_t ins, outs;
    dlc_net_port *in, *out;       /* own */
    int32_t *in_rank;             /* own; where it comes from */
    int32_t *in_id, *out_id;      /* own; numbers that sender and receiver agree on */
    int32_t *readers;             /* own; of each that goes out */
    dlc_crossing_reader **reader; /* own */
} dlc_crossings;

/* `outline` is of all layers of the phase. */
dlc_status dlc_crossings_find(const dlc_stages *stages, const dlc_graph *graph,
                              const dlc_net *outline, dlc_phase phase,
                              dlc_crossings *crossings);
void dlc_crossings_free(dlc_crossings *crossings); /* a zeroed one is allowed */

#endif

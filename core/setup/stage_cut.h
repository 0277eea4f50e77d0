/* Where the net is cut into stages: [parallel] stages.
 *
 *     3             three, balanced by work and by what is sent between them
 *     auto          as many as there are ranks, balanced likewise
 *     conv2, ip1    a stage begins with each of these layers, after the first stage */
#ifndef DLC_SETUP_STAGE_CUT_H
#define DLC_SETUP_STAGE_CUT_H

#include "net/net.h"
#include "plan/cost.h"
#include "setup/setup.h"

/* The parsed setting. Initialize with {0}. */
typedef struct dlc_stage_cut {
    int32_t stages; /* 0: as many as there are ranks */
    int32_t *first; /* own; if layers are named: the first layer of each stage, then the
                       number of layers; NULL: to be balanced */
} dlc_stage_cut;

void dlc_stage_cut_free(dlc_stage_cut *cut); /* a zeroed one is allowed */

/* Does the setting ask for more than one stage? */
int dlc_stage_cut_is_wanted(const dlc_setup *setup);

/* Parses the setting. DLC_ERR_CONFIG with a sentence. */
dlc_status dlc_stage_cut_parse(const dlc_setup *setup, dlc_stage_cut *cut);

/* Estimates the work of the graph's layers in training from `outline`: one number for
 * each layer of the graph, in an arbitrary unit; and which of them may begin a stage,
 * so that each stage has something to train and none begins with a layer that belongs
 * to the one before it. Release both with dlc_free. */
dlc_status dlc_stage_cut_weigh(const dlc_graph *graph, const dlc_net *outline,
                               double **work, char **may_begin);

/* Cuts `layers` so that the slowest stage, including its messages to the next, is as
 * fast as possible; the earlier cut wins a tie. `boundary_cost[i]`: cost of a message,
 * in units of work, if the net is cut before layer i; NULL: free. `first` has room for
 * stages + 1. DLC_ERR_CONFIG if there are fewer places to cut. */
dlc_status dlc_stage_cut_balance(const double *work, const char *may_begin,
                                 const double *boundary_cost, int32_t layers,
                                 int32_t stages, int32_t *first);

/* Computes `boundary_cost`, one number for each layer of the graph, the first of which
 * is left unchanged; `batch`: of the outline, a micro-batch. */
dlc_status dlc_stage_cut_price(const dlc_graph *graph, const dlc_net *outline,
                               int64_t batch, const dlc_shape *sample,
                               const dlc_plan_link *link, double work_a_second,
                               double *boundary_cost);

#endif

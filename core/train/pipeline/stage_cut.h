/* Where the net is cut into stages: [parallel] stages.
 *
 *     3             three, so that none is slower than need be: by work, and by what
 *                   has to be sent from one to the next
 *     auto          as many as there are ranks, in the same way
 *     conv2, ip1    so many and one: a stage begins with each of these layers
 */
#ifndef DLC_TRAIN_STAGE_CUT_H
#define DLC_TRAIN_STAGE_CUT_H

#include "net/net.h"
#include "plan/cost.h"
#include "train/setup.h"

/* What [train] says. Start with {0}. */
typedef struct dlc_stage_cut {
    int32_t stages; /* 0: as many as there are ranks */
    int32_t *first; /* own; where it names layers: of each stage the first one, then
                       the number of layers; NULL: by work and bytes */
} dlc_stage_cut;

void dlc_stage_cut_free(dlc_stage_cut *cut); /* a zeroed one is allowed */

/* Is the net cut at all? */
int dlc_stage_cut_is_wanted(const dlc_setup *setup);

/* DLC_ERR_CONFIG with what is wrong as the detail sentence. */
dlc_status dlc_stage_cut_parse(const dlc_setup *setup, dlc_stage_cut *cut);

/* The work of the graph's layers in training, as `outline` has them: one number a layer
 * of the graph, in no unit; and which of them may begin a stage of its own, so that no
 * stage is without something to train and none begins with what the layer before it
 * would do better along with its own. Release both with dlc_free. */
dlc_status dlc_stage_cut_weigh(const dlc_graph *graph, const dlc_net *outline,
                               double **work, char **may_begin);

/* Cuts `layers` of such work so that the slowest stage, with what it exchanges with the
 * next, is as fast as can be; of equals the earlier cut. `crossing[i]`, in units of
 * work: what one message costs with all that crosses in front of layer i, if the net is
 * cut there; NULL: nothing. `first` has room for stages + 1. DLC_ERR_CONFIG: there are
 * fewer places to cut. */
dlc_status dlc_stage_cut_balance(const double *work, const char *may_begin,
                                 const double *crossing, int32_t layers, int32_t stages,
                                 int32_t *first);

/* `crossing` for that, one a layer of the graph, the first of which stays as it is;
 * `batch`: of the outline, a sub-batch. */
dlc_status dlc_stage_cut_price(const dlc_graph *graph, const dlc_net *outline,
                               int64_t batch, const dlc_shape *sample,
                               const dlc_plan_link *link, double work_a_second,
                               double *crossing);

#endif

/* The split layers at the end of a net, done portion by portion of the batch
 * (Krizhevsky 2014, arXiv:1404.5997, section 4, schemes b and c), so that no more than
 * a part of everybody's activations is gathered at a time, and what belongs to the next
 * portion is on its way while one is computed.
 *
 * The *group* is what lies behind a tensor, the *cut*, that split layers alone read:
 * from the first split layer to the loss. In the net's list of operations it is a
 * suffix that begins with the exchange that gathers the cut. What comes before runs
 * once, on this rank's samples; the group runs forward and backward for each portion in
 * turn, and its gradients are added up in the order of the portions, so a run repeats
 * to the bit:
 *
 *     forward of the rest
 *     portion 0:  gathered               | 1 is gathered
 *                 forward, backward      |
 *     portion 1:  forward, backward      | 2 is gathered; gradients of 0 go home
 *     ...
 *     backward of the rest
 *
 * In the memory plan the group's steps are neighbours, so what is used in them alone is
 * used again by the next portion. The gathered cut and its gradient have two places
 * each and take turns.
 *
 * Portions are of equal size but for the last; rows that a tensor of the group has too
 * many then are zero, without a label, and their gradients are zero.
 */
#ifndef DLC_NET_PORTIONS_H
#define DLC_NET_PORTIONS_H

#include "net/split.h"

/* A rank's rows in a portion: there from `at` on, of its own samples from `own` on. */
typedef struct net_rows {
    int64_t at, own, count;
} net_rows;

net_rows dlc_net_portion_rows(const dlc_net *net, int32_t portion, int32_t rank);

/* Before any layer is made: finds the group and how large portions are; nothing where
 * the whole batch is taken at once. */
dlc_status dlc_net_portions_open(dlc_net *net);

/* Is a layer of the graph, or an operation of the net, in the group? */
int dlc_net_in_group(const dlc_net *net, int32_t node);
int dlc_net_op_in_group(const dlc_net *net, int32_t op);

/* build.c: is the layer one that must know which sample is which, but is given rows of
 * several ranks? It is made for so many rows, which are consecutive samples, and run
 * for each such block; 0: it is run once. */
int64_t dlc_net_block_rows(const dlc_net *net, const net_op *op);
/* run.c: forward or backward of a layer, block by block where it must be. */
dlc_status dlc_net_run_layer(const dlc_net *net, net_op *op,
                             dlc_status (*run)(dlc_layer *layer,
                                               const dlc_layer_run *run));
/* Position in the batch of all ranks of the first sample that an operation of the group
 * sees; `sample`: of this rank's first. */
int64_t dlc_net_portion_sample(const dlc_net *net, const net_op *op, int64_t sample);

/* build.c: a layer that was made: may it be in the group? */
dlc_status dlc_net_check_portions(const dlc_net *net, const net_op *op);
/* plan.c: of an operation, all blocks'. */
size_t dlc_net_workspace(const dlc_net *net, const net_op *op);

/* run.c: is there nothing to do for an operation of the group, which has none of the
 * portion's rows? */
int dlc_net_is_idle(const dlc_net *net, const net_op *op);
/* run.c: before and behind an operation's backward: gradients of later portions are
 * added to those of the first. */
void dlc_net_divert_gradients(const dlc_net *net, net_op *op);
dlc_status dlc_net_add_gradients(const dlc_net *net, net_op *op);
/* run.c: behind a metric's forward. */
dlc_status dlc_net_add_metric(const dlc_net *net, const net_op *op);

/* plan.c: finds where the group begins; is a tensor in use until its end, at least?
 * Buffers that a portion leaves to the next. */
void dlc_net_portions_find(dlc_net *net);
int dlc_net_outlives_portion(const dlc_net *net, int32_t tensor);
dlc_status dlc_net_portions_plan(dlc_net *net);

/* The group's passes of a batch: forward alone, or forward and backward. */
dlc_status dlc_net_portions_forward(dlc_net *net);
dlc_status dlc_net_portions_train(dlc_net *net, float loss_scale,
                                  dlc_status (*done)(void *context, size_t elements),
                                  void *context);

#endif

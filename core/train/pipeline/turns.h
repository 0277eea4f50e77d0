/* Whose turn it is in a stage: which pass of which sub-batch comes next.
 *
 * One forward, one backward (Narayanan et al. 2019, "PipeDream", 3.2; with a flush at
 * the end of each iteration, Narayanan et al. 2021, "Memory-efficient pipeline-parallel
 * DNN training", 3): a stage goes backward wherever it can, so that what a sub-batch
 * keeps is soon free again, and forward only while fewer than stages - stage
 * sub-batches are under way, which is as many as it takes to keep the last stage at
 * work. So memory is bounded by the number of stages, not of sub-batches, and with
 * stages that take equally long (stages - 1) / (sub_batches + stages - 1) of the time
 * is lost at both ends.
 *
 * Sub-batches go forward in the order of their numbers, and backward in that order,
 * too: so gradients are summed in one order, whatever came in when.
 */
#ifndef DLC_TRAIN_TURNS_H
#define DLC_TRAIN_TURNS_H

#include <stdint.h>

typedef enum dlc_turn {
    DLC_TURN_NONE, /* nothing that could be done now: wait */
    DLC_TURN_FORWARD,
    DLC_TURN_BACKWARD,
    DLC_TURN_OVER, /* all sub-batches are through */
} dlc_turn;

typedef struct dlc_turns {
    int32_t stage, stages, sub_batches;
    int32_t forward, backward; /* the next sub-batch to go so; starts with 0 */
} dlc_turns;

/* Sub-batches that may be under way in a stage at once. */
int32_t dlc_turns_most(const dlc_turns *turns);
/* And that are now. */
int32_t dlc_turns_under_way(const dlc_turns *turns);

/* `can_forward`: is there all that the next forward needs? Likewise `can_backward`. */
dlc_turn dlc_turns_next(const dlc_turns *turns, int can_forward, int can_backward);
/* It was done. */
void dlc_turns_done(dlc_turns *turns, dlc_turn turn);

/* The share of the time in which equal stages stand still. */
double dlc_turns_bubble(int32_t stages, int32_t sub_batches);

#endif

/* See turns.h. */
#include "train/pipeline/turns.h"

int32_t dlc_turns_most(const dlc_turns *turns) {
    int32_t most = turns->stages - turns->stage;
    return most < turns->sub_batches ? most : turns->sub_batches;
}

int32_t dlc_turns_under_way(const dlc_turns *turns) {
    return turns->forward - turns->backward;
}

dlc_turn dlc_turns_next(const dlc_turns *turns, int can_forward, int can_backward) {
    int32_t under_way = dlc_turns_under_way(turns);
    if (turns->backward == turns->sub_batches)
        return DLC_TURN_OVER;
    if (under_way > 0 && can_backward)
        return DLC_TURN_BACKWARD;
    if (turns->forward < turns->sub_batches && under_way < dlc_turns_most(turns) &&
        can_forward)
        return DLC_TURN_FORWARD;
    return DLC_TURN_NONE;
}

void dlc_turns_done(dlc_turns *turns, dlc_turn turn) {
    turns->forward += turn == DLC_TURN_FORWARD;
    turns->backward += turn == DLC_TURN_BACKWARD;
}

double dlc_turns_bubble(int32_t stages, int32_t sub_batches) {
    return (double)(stages - 1) / (double)(sub_batches + stages - 1);
}

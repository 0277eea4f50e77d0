/* Bruck's all-gather. */
#include "comm/all_gather.h"

static int32_t member(const dlc_gather_group *group, int32_t index) {
    int32_t stride = group->stride ? group->stride : 1;
    return group->first + index % group->ranks * stride;
}

dlc_status dlc_gather_blocks(const dlc_gather_group *group, void *blocks,
                             size_t bytes) {
    int32_t ranks = group->ranks, me = group->rank;
    for (int32_t have = 1; have < ranks; have *= 2) {
        int32_t more = have < ranks - have ? have : ranks - have;
        size_t length = (size_t)more * bytes;
        const dlc_transfer transfer[] = {{.peer = member(group, me + have),
                                          .tag = dlc_tag_of(group->tag, 0),
                                          .to = (char *)blocks + (size_t)have * bytes,
                                          .bytes = length,
                                          .pending = group->pending},
                                         {.peer = member(group, me - have + ranks),
                                          .tag = dlc_tag_of(group->tag, 0),
                                          .from = blocks,
                                          .bytes = length,
                                          .pending = group->pending}};
        DLC_TRY(dlc_progress_engine_submit(group->engine, transfer, 2, NULL));
        while (*group->pending > 0)
            DLC_TRY(dlc_progress_engine_wait_any(group->engine));
    }
    return DLC_OK;
}

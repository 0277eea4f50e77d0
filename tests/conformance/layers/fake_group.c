/* Records and replays the blocks of ranks. */
#include "fake_group.h"

#include <check.h>
#include <string.h>

#include "base/memory.h"
#include "target.h"

static dlc_status all_gather(void *context, void *values, size_t bytes) {
    fake_rank *me = context;
    fake_group *group = me->group;
    int32_t rank = me->table.rank;
    me->calls++;
    if (!group->replays) {
        dlc_free(group->block[rank]);
        group->block[rank] = dlc_alloc(bytes, 1);
        ck_assert_ptr_nonnull(group->block[rank]);
        target_copy(group->block[rank], (char *)values + (size_t)rank * bytes, bytes);
        group->bytes = bytes;
    }
    ck_assert_uint_eq(bytes, group->bytes);
    ck_assert_uint_eq(bytes % sizeof(float), 0);
    for (int32_t r = 0; r < me->table.ranks; r++) {
        void *at = (char *)values + (size_t)r * bytes;
        if (group->replays)
            target_copy(at, group->block[r], bytes);
        else if (r != rank)
            target_fill(at, 0, bytes);
    }
    return DLC_OK;
}

void fake_group_open(fake_group *group, int32_t ranks, const dlc_merge *merges) {
    size_t bytes = (size_t)(ranks - 1) * sizeof *merges;
    *group = (fake_group){.merges = target_alloc(bytes)};
    target_copy(group->merges.base, merges, bytes);
    for (int32_t r = 0; r < ranks; r++)
        group->rank[r] = (fake_rank){.group = group,
                                     .table = {.size = sizeof(dlc_layer_group),
                                               .rank = r,
                                               .ranks = ranks,
                                               .merges = group->merges.base,
                                               .context = &group->rank[r],
                                               .all_gather = all_gather}};
}

void fake_group_close(fake_group *group) {
    for (int r = 0; r < FAKE_RANKS; r++)
        dlc_free(group->block[r]);
    target_free(&group->merges);
}

/* Keeps track of the buckets whose update is deferred, and updates them on demand. */
#include "session/updates.h"

#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "plugin/answers.h"

dlc_status dlc_updates_open(const dlc_consistency_ops *ops, dlc_consistency *model,
                            const size_t *begin, int32_t buckets, const dlc_ema *ema,
                            dlc_updates *updates) {
    char *pending = dlc_alloc((size_t)buckets, 1);
    if (!pending)
        return DLC_ERR_NOMEM;
    *updates = (dlc_updates){.ops = ops,
                             .model = model,
                             .begin = begin,
                             .buckets = buckets,
                             .ema = ema,
                             .pending = pending};
    return DLC_OK;
}

void dlc_updates_close(dlc_updates *updates) {
    dlc_free(updates->pending);
    *updates = (dlc_updates){0};
}

void dlc_updates_defer(dlc_updates *updates, int64_t iteration) {
    memset(updates->pending, 1, (size_t)updates->buckets);
    updates->count = updates->buckets;
    updates->iteration = iteration;
}

static dlc_status update_arena(dlc_updates *updates, int32_t bucket) {
    updates->pending[bucket] = 0;
    updates->count--;
    uint64_t began = dlc_now_ns();
    DLC_TRY(DLC_ASK(updates->ops, "update",
                    updates->ops->update(updates->model, updates->iteration, bucket)));
    DLC_TRY(dlc_ema_update(updates->ema, updates->begin[bucket],
                           updates->begin[bucket + 1]));
    updates->seconds += dlc_since(began);
    return DLC_OK;
}

dlc_status dlc_updates_need(void *context, size_t begin, size_t end) {
    dlc_updates *updates = context;
    /* The last buckets are reduced first. */
    for (int32_t b = updates->buckets - 1; updates->count > 0 && b >= 0; b--)
        if (updates->pending[b] && updates->begin[b] < end &&
            updates->begin[b + 1] > begin)
            DLC_TRY(update_arena(updates, b));
    return DLC_OK;
}

dlc_status dlc_updates_finish(dlc_updates *updates) {
    return dlc_updates_need(updates, 0, SIZE_MAX);
}

/* Counts the samples that are skipped, each once. */
#include "data/skips.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/memory.h"

enum { NAMED = 10 };

dlc_status dlc_skips_open(int64_t most, dlc_skips *skips) {
    *skips = (dlc_skips){.most = most};
    if (most <= 0)
        return DLC_OK;
    skips->index = dlc_alloc((size_t)most, sizeof *skips->index);
    if (!skips->index)
        return DLC_ERR_NOMEM;
    pthread_mutex_init(&skips->lock, NULL);
    skips->is_open = 1;
    return DLC_OK;
}

void dlc_skips_close(dlc_skips *skips) {
    if (!skips->is_open)
        return;
    if (skips->count > NAMED)
        dlc_warn("%" PRId64 " samples could not be read and were skipped",
                 skips->count);
    pthread_mutex_destroy(&skips->lock);
    dlc_free(skips->index);
    *skips = (dlc_skips){0};
}

static int is_known(const dlc_skips *skips, int64_t index) {
    for (int64_t i = 0; i < skips->count; i++)
        if (skips->index[i] == index)
            return 1;
    return 0;
}

/* Notes a new one; the lock is held. */
static dlc_status add(dlc_skips *skips, int64_t index) {
    if (skips->count == skips->most)
        return dlc_fail(DLC_ERR_DATA,
                        "%s; %" PRId64 " samples were skipped before it, and "
                        "max_skipped allows no more",
                        dlc_detail(), skips->count);
    skips->index[skips->count++] = index;
    if (skips->count <= NAMED)
        dlc_warn("%s; the sample is skipped", dlc_detail());
    if (skips->count == NAMED)
        dlc_warn("more samples that cannot be read are skipped without a word");
    return DLC_OK;
}

dlc_status dlc_skips_advise(void) {
    return dlc_fail(DLC_ERR_DATA,
                    "%s; `on_error = skip`, beside `source`, skips samples that cannot "
                    "be read",
                    dlc_detail());
}

int dlc_skips_have(dlc_skips *skips, int64_t index) {
    if (!skips->is_open)
        return 0;
    pthread_mutex_lock(&skips->lock);
    int is = is_known(skips, index);
    pthread_mutex_unlock(&skips->lock);
    return is;
}

dlc_status dlc_skips_add(dlc_skips *skips, int64_t index) {
    if (!skips->is_open)
        return skips->most < 0 ? DLC_ERR_DATA : dlc_skips_advise();
    pthread_mutex_lock(&skips->lock);
    dlc_status status = is_known(skips, index) ? DLC_OK : add(skips, index);
    pthread_mutex_unlock(&skips->lock);
    return status;
}

/* Finds idle memory for plain copies of tensors. */
#include "session/scratch.h"

#include "base/memory.h"
#include "session/full_state.h"

/* Idle memory for `least` elements; count 0: there is none. Gradients come last,
 * because they have to be cleared, and only if states are not put together there. */
static dlc_scratch find_idle(const dlc_session *session, size_t least,
                             int holds_states) {
    dlc_scratch idle = {.count = 0};
    if (!(session->setup->device->caps & DLC_DEVICE_HOST))
        return idle;
    idle.base = dlc_net_activations(session->net, &idle.count);
    if (idle.count >= least)
        return idle;
    for (int32_t s = DLC_PARAM_SETS; s-- > 0 && !holds_states;) {
        const dlc_arenas *arenas = dlc_net_arenas_of(session->net, s);
        if (arenas->count >= least)
            return (dlc_scratch){arenas->gradients, arenas->count, .is_gradients = 1};
    }
    return (dlc_scratch){.count = 0};
}

dlc_status dlc_scratch_take(const dlc_session *session, size_t least,
                            dlc_scratch *scratch) {
    dlc_scratch found = find_idle(session, least, dlc_full_state_is_sharded(session));
    if (!found.count) {
        found = (dlc_scratch){dlc_alloc(least, sizeof *found.base), least, .is_own = 1};
        if (!found.base)
            return DLC_ERR_NOMEM;
    }
    *scratch = found;
    return DLC_OK;
}

/* The padding between gradients must be zero. */
dlc_status dlc_scratch_give_back(const dlc_session *session, dlc_scratch *scratch) {
    dlc_status status = DLC_OK;
    if (scratch->is_own)
        dlc_free(scratch->base);
    if (scratch->is_gradients)
        status = session->device_ops->fill(session->device, NULL, scratch->base, 0,
                                           scratch->count * sizeof(float));
    *scratch = (dlc_scratch){.count = 0};
    return status;
}

uint64_t dlc_scratch_planned(const dlc_session *session, int holds_states) {
    int divided = session->part.is_divided;
    size_t least = divided && session->rank == 0 ? DLC_SCRATCH_MESSAGE : 0;
    if (!divided && session->rank > 0) /* rank 0 has everything */
        return 0;
    for (int32_t i = 0; i < dlc_net_params(session->net); i++) {
        size_t count = (size_t)dlc_shape_count(
            &dlc_net_param_at(session->net, i)->shape);
        least = count > least ? count : least;
    }
    return find_idle(session, least, holds_states).count ? 0 : least * sizeof(float);
}

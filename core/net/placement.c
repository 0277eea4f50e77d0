/* Which channels each rank computes of a tensor-parallel layer. */
#include "net/placement.h"

int dlc_net_is_tensor_parallel(const dlc_net_tensor_parallel *tp, int32_t node) {
    return tp && tp->layers[node];
}

int dlc_net_is_light(const dlc_graph_layer *layer) {
    return layer->inputs == 1 &&
           (layer->feature->caps & (DLC_LAYER_SAMPLEWISE | DLC_LAYER_POINTWISE)) != 0;
}

int64_t dlc_net_channel_begin(const dlc_net_tensor_parallel *tp, int64_t channels,
                              int32_t rank) {
    const int64_t *cut = tp->channel_share, whole = cut[tp->ranks] - cut[0];
    int64_t at = 0;
    for (int32_t r = 1; r <= rank; r++) {
        int64_t most = channels - (tp->ranks - r);
        int64_t next = channels * (cut[r] - cut[0]) / whole;
        at = next > at ? next : at + 1;
        at = at < most ? at : most;
    }
    return at;
}

dlc_status dlc_net_check_channels(const dlc_net_tensor_parallel *tp, const char *name,
                                  int64_t channels) {
    int64_t whole = tp->channel_share[tp->ranks] - tp->channel_share[0];
    if (channels < tp->ranks)
        return dlc_fail(DLC_ERR_CONFIG,
                        "layer '%s': its %lld channels cannot be split among %d ranks; "
                        "use parallel = data",
                        name, (long long)channels, (int)tp->ranks);
    if (whole < 1 || channels > INT64_MAX / whole)
        return dlc_fail(DLC_ERR_CONFIG,
                        "layer '%s': the number of channels is too large", name);
    return DLC_OK;
}

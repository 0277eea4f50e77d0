/* mixup (Zhang et al., arXiv:1710.09412) and cutmix (Yun et al., arXiv:1905.04899):
 * samples of a batch are mixed with each other, and so are their labels, which are
 * probabilities of classes then.
 *
 * The samples at positions 2k and 2k + 1 of the endless sequence are a pair. How a pair
 * is mixed depends on seed and k alone, so it is the same for any number of ranks.
 * Called by the feed. */
#ifndef DLC_DATA_MIX_H
#define DLC_DATA_MIX_H

#include "data/loader.h"

/* The settings; 0: not done. With both, each pair is mixed in one of the two ways. */
typedef struct dlc_mix_settings {
    double mixup, cutmix; /* alpha of the Beta distribution of the shares */
} dlc_mix_settings;

static inline int dlc_mix_is_on(const dlc_mix_settings *settings) {
    return settings->mixup > 0 || settings->cutmix > 0;
}

/* What happens to a pair: each sample keeps `share` of itself, or all but a box. */
typedef struct dlc_mix {
    float share;
    int is_cut;
    dlc_rect box;
} dlc_mix;

/* DLC_ERR_CONFIG: samples of these fields cannot be mixed. */
dlc_status dlc_mix_check(const dlc_mix_settings *settings, const dlc_loader *loader);
/* Draws what happens to pair k. */
dlc_mix dlc_mix_draw(const dlc_mix_settings *settings, const dlc_loader *loader,
                     int64_t k);
/* Mixes a pair, whose fields are one[i] and other[i]. */
void dlc_mix_pair(const dlc_mix *mix, const dlc_loader *loader, void *const *one,
                  void *const *other);

#endif

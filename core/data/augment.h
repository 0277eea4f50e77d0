/* Augmentation turns a sample of the source into a sample that the net reads.
 *
 * In this order: add a border of zeros (pad), cut out a square (crop), swap left and
 * right (mirror), subtract the mean, multiply (scale). In training the position of the
 * crop and the swap are random; in a test the crop is centered and nothing is swapped.
 * Called by the feed.
 */
#ifndef DLC_DATA_AUGMENT_H
#define DLC_DATA_AUGMENT_H

#include <stddef.h>
#include <stdint.h>

#include <dlcore/tensor.h>

#include "base/status.h"

typedef struct dlc_augment {
    float scale;        /* factor; 1: none */
    const double *mean; /* one per channel, or one for all */
    size_t means;       /* elements of `mean`; 0: nothing is subtracted */
    int mirror;
    int32_t crop; /* side of the square; 0: none */
    int32_t pad;  /* width of the border */
} dlc_augment;

/* The shape that results from a sample of shape `in` (C, H, W). DLC_ERR_CONFIG if the
 * settings do not fit it. */
dlc_status dlc_augment_shape(const dlc_augment *augment, const dlc_shape *in,
                             dlc_shape *out);

/* The setting that does not fit samples of this shape, "mean" or "crop"; NULL: all fit.
 */
const char *dlc_augment_misfit(const dlc_augment *augment, const dlc_shape *in);

/* Where to crop, and whether to mirror. */
typedef struct dlc_cut {
    int64_t top, left; /* in the padded sample */
    int mirror;
} dlc_cut;

/* The cut of a test: the center. */
dlc_cut dlc_augment_middle(const dlc_shape *in, const dlc_shape *out,
                           const dlc_augment *augment);
/* The cut of training: random, drawn by seed and position in the endless sequence of
 * samples. */
dlc_cut dlc_augment_draw(const dlc_shape *in, const dlc_shape *out,
                         const dlc_augment *augment, uint64_t seed, uint64_t position);

/* The value that is subtracted from a channel; 0 without means. */
float dlc_augment_mean(const dlc_augment *augment, int64_t channel);

/* Is every cut of such samples the whole sample, without a border? */
int dlc_augment_is_whole(const dlc_augment *augment, const dlc_shape *in,
                         const dlc_shape *out);

/* Augments one sample into float32. `type` of the sample is DLC_U8 or DLC_F32. */
void dlc_augment_apply(const dlc_augment *augment, const dlc_cut *cut, dlc_dtype type,
                       const dlc_shape *in, const void *from, const dlc_shape *out,
                       float *to);
/* Pads, crops and mirrors one sample of bytes, which stay bytes: the caller subtracts
 * and multiplies later. A border is 0 before that step, so bytes can hold it. */
void dlc_augment_cut(const dlc_augment *augment, const dlc_cut *cut,
                     const dlc_shape *in, const uint8_t *from, const dlc_shape *out,
                     uint8_t *to);

#endif

/* Augmentation: from a sample as the source has it to a sample as the net reads it.
 *
 * In this order: a border of zeros (pad), a square cut out (crop), left and right
 * swapped (mirror), the mean subtracted, all multiplied (scale). In training the
 * place of the cut and the swap are drawn; in a test the cut is in the middle and
 * nothing is swapped.
 */
#ifndef DLC_TRAIN_AUGMENT_H
#define DLC_TRAIN_AUGMENT_H

#include <stddef.h>
#include <stdint.h>

#include <dlcore/tensor.h>

#include "base/status.h"

typedef struct dlc_augment {
    float scale;        /* 1: as it is */
    const double *mean; /* one a channel, or one for all */
    size_t means;       /* 0: nothing is subtracted */
    int mirror;
    int32_t crop; /* side of the cut; 0: none */
    int32_t pad;  /* width of the border */
} dlc_augment;

/* Shape that comes out for a sample of shape `in` (C, H, W); DLC_ERR_CONFIG where
 * the settings don't fit it. */
dlc_status dlc_augment_shape(const dlc_augment *augment, const dlc_shape *in,
                             dlc_shape *out);

/* The setting that doesn't fit such samples, "mean" or "crop"; NULL: all do. */
const char *dlc_augment_misfit(const dlc_augment *augment, const dlc_shape *in);

/* Where to cut, and whether to swap. */
typedef struct dlc_cut {
    int64_t top, left; /* in the padded sample */
    int mirror;
} dlc_cut;

/* For a test: in the middle. */
dlc_cut dlc_augment_middle(const dlc_shape *in, const dlc_shape *out,
                           const dlc_augment *augment);
/* For training: drawn by seed and position in the endless sequence of samples. */
dlc_cut dlc_augment_draw(const dlc_shape *in, const dlc_shape *out,
                         const dlc_augment *augment, uint64_t seed, uint64_t position);

/* What is subtracted from a channel. */
float dlc_augment_mean(const dlc_augment *augment, int64_t channel);

/* Does every cut of such samples show all of one, and nothing else? */
int dlc_augment_is_whole(const dlc_augment *augment, const dlc_shape *in,
                         const dlc_shape *out);

/* One sample. `type` is DLC_U8 or DLC_F32. */
void dlc_augment_apply(const dlc_augment *augment, const dlc_cut *cut, dlc_dtype type,
                       const dlc_shape *in, const void *from, const dlc_shape *out,
                       float *to);
/* One of bytes, which stay bytes: who gets them subtracts and multiplies. A border is 0
 * before that, so bytes can say it. */
void dlc_augment_cut(const dlc_augment *augment, const dlc_cut *cut,
                     const dlc_shape *in, const uint8_t *from, const dlc_shape *out,
                     uint8_t *to);

#endif

/* Transforms: what happens to an image between its source and the net, as an ordered
 * list in net.ini:
 *
 *     transforms = random_resized_crop(224), mirror, normalize(mean=(124, 116, 104))
 *
 * A list is parsed and checked once. For each sample a plan is drawn, which says what
 * part of the image is needed and how small it may be decoded; then the list is applied
 * to what the decoder gives. Draws are functions of seed and position alone, so a
 * sample is the same on any rank and thread and after a resume.
 *
 * Between transforms an image is a view of pixels, usually of interleaved bytes (HWC).
 * Transforms that only move pixels (crops, mirror) also work on planes and on float32.
 * What comes out is CHW: float32 after `normalize`, or bytes that a device normalizes.
 *
 * Owns the table of transforms and parsing (transform_parse.c), plans
 * (transform_plan.c) and applying (transform_apply.c). Called by the
 * feed and the setup.
 *
 * Threads: a list is constant once parsed; any thread may plan and apply, each with a
 * scratch of its own. */
#ifndef DLC_DATA_TRANSFORM_H
#define DLC_DATA_TRANSFORM_H

#include <stddef.h>
#include <stdint.h>

#include <dlcore/tensor.h>

#include "config/config.h"

/* The most transforms of a list. */
#define DLC_TRANSFORMS_MAX 16

typedef struct dlc_transforms dlc_transforms;

typedef struct dlc_rect {
    int64_t x, y, width, height;
} dlc_rect;

/* A view of an image, or of a part of it. Strides are elements from one row, column or
 * channel to the next and may be negative. */
typedef struct dlc_image {
    void *pixels; /* channel 0 of the upper left pixel of this part */
    dlc_dtype type;
    int64_t channels, height, width;
    int64_t row, column, channel;
    double x, y; /* of this part in the whole image, scaled as the pixels are */
    double
        scale; /* pixels per pixel of the original, by which it was decoded; else 1 */
} dlc_image;

/* An image of interleaved bytes without gaps, whole and unscaled; and one of planes, as
 * simple sources give it. */
dlc_image dlc_image_interleaved(uint8_t *pixels, int64_t channels, int64_t height,
                                int64_t width);
dlc_image dlc_image_planes(void *pixels, dlc_dtype type, const dlc_shape *shape);

/* What one transform does to one sample; the meaning of the draws is the transform's.
 */
typedef struct dlc_step_plan {
    int64_t in_height, in_width, out_height, out_width; /* whole, unscaled */
    dlc_rect need; /* the part of the output that later transforms read */
    dlc_rect box;  /* of the input */
    int64_t choice[6];
    double amount[6];
} dlc_step_plan;

typedef struct dlc_transform_plan {
    int64_t height, width; /* of the source's image */
    dlc_rect region;       /* the part of it that is needed */
    double scale; /* 0 < scale <= 1: the decoder may scale it down as far as this */
    dlc_step_plan step[DLC_TRANSFORMS_MAX];
} dlc_transform_plan;

/* Memory for intermediate images. Start with {0}; grows as needed. */
typedef struct dlc_transform_scratch {
    void *memory[3];
    size_t bytes[3];
} dlc_transform_scratch;
void dlc_transform_scratch_free(dlc_transform_scratch *scratch);

/* Parses and checks `text` (NULL: an empty list), the value of `transforms` in
 * `section` of `config` (NULL: no file). Mistakes are added to `problems`, all of them,
 * each with its place in the list; the list then contains the transforms that are
 * sound. Free it with dlc_transforms_free. Fails only if memory runs out. */
dlc_status dlc_transforms_parse(const char *text, const dlc_config *config,
                                const char *section, dlc_problems *problems,
                                dlc_transforms **list);
void dlc_transforms_free(dlc_transforms *list); /* NULL allowed */

/* A transform that there is, for help. */
typedef struct dlc_transform_info {
    const char *name, *help;
    const dlc_option *options; /* in the order of arguments without a name */
} dlc_transform_info;
/* 0: there is no i-th one. */
int dlc_transforms_describe(size_t i, dlc_transform_info *info);

/* The shape that comes out for samples of shape `in` (C, H, W), whose height and width
 * are 0 if images differ. DLC_ERR_CONFIG with the transform that does not fit, or if
 * what comes out would differ, too. */
dlc_status dlc_transforms_shape(const dlc_transforms *list, const dlc_shape *in,
                                dlc_dtype type, dlc_shape *out);

/* The shape that a mask gets with its image: 1, H, W. Masks follow what moves pixels,
 * and nothing else changes them. */
dlc_status dlc_transforms_mask_shape(const dlc_transforms *list, const dlc_shape *in,
                                     dlc_shape *out);

/* Does the list give every sample of this shape as it is, but for `normalize`? */
int dlc_transforms_keep(const dlc_transforms *list);

/* What `normalize` does to a channel: (value - mean) * scale; without it 0 and 1. */
float dlc_transforms_mean(const dlc_transforms *list, int64_t channel);
float dlc_transforms_scale(const dlc_transforms *list, int64_t channel);

/* Draws what happens to the sample at `position`, whose image has this height and
 * width. DLC_ERR_DATA: the image is too small for a crop. */
dlc_status dlc_transforms_plan(const dlc_transforms *list, uint64_t seed,
                               uint64_t position, int64_t height, int64_t width,
                               dlc_transform_plan *plan);

/* Applies the list to an image that covers the plan's region at its scale or a larger
 * one, whose pixels stay as they are. Writes C x H x W values of `type` to `out`:
 * DLC_F32 normalized, or DLC_U8, where dlc_transforms_mean and _scale are the caller's
 * to apply; U8 needs an image of bytes. DLC_ERR_NOMEM. */
dlc_status dlc_transforms_apply(const dlc_transforms *list,
                                const dlc_transform_plan *plan, const dlc_image *image,
                                dlc_transform_scratch *scratch, dlc_dtype type,
                                void *out);
/* Applies it to the mask of such an image, one plane of bytes at full size: the classes
 * of the nearest pixels, and 0 beyond the border. Writes H x W numbers to `out`. */
dlc_status dlc_transforms_apply_mask(const dlc_transforms *list,
                                     const dlc_transform_plan *plan,
                                     const dlc_image *mask,
                                     dlc_transform_scratch *scratch, int32_t *out);
/* Applies it to boxes of such an image, `rows` rows of DLC_ROLE_BOXES
 * (transform_apply.c): each, as far as it is in the image, becomes the box around the
 * corners of what becomes of it, as far as that is in the image. Left out are those of
 * which less than the share `min_visibility` of their area is left, or less than a
 * pixel in any direction. Writes the others in their order to `to`, and returns how
 * many there are. */
int64_t dlc_transforms_apply_boxes(const dlc_transforms *list,
                                   const dlc_transform_plan *plan,
                                   double min_visibility, const float *from,
                                   int64_t rows, float *to);

#endif

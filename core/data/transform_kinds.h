/* The table of transforms, for the files of transforms only. A new transform is one row
 * of it (transform_table.c) and a function or two. */
#ifndef DLC_DATA_TRANSFORM_KINDS_H
#define DLC_DATA_TRANSFORM_KINDS_H

#include "base/random.h"
#include "config/value.h"
#include "data/affine.h"
#include "data/color.h"
#include "data/transform.h"

/* The most options of a transform, and the most maps of one. */
#define DLC_TRANSFORM_OPTIONS 8
#define DLC_TRANSFORM_MAPS 6

/* What is true of a kind of transform. */
enum {
    DLC_TRANSFORM_ANY = 1u << 0,      /* takes any type and number of channels */
    DLC_TRANSFORM_SCALABLE = 1u << 1, /* does the same to an image decoded smaller */
    DLC_TRANSFORM_RESAMPLE = 1u
                             << 2, /* makes up for a scale: what follows has scale 1 */
    DLC_TRANSFORM_COLOR = 1u << 3, /* takes 1 or 3 channels */
    DLC_TRANSFORM_LAST = 1u << 4,  /* must end the list */
    DLC_TRANSFORM_SIZED = 1u << 5, /* options are size, height, width, ...; two numbers
                                      without names are height and width */
};

struct dlc_transform;

/* A transform of a list. */
typedef struct dlc_transform_step {
    const struct dlc_transform *kind;
    dlc_option_value
        value[DLC_TRANSFORM_OPTIONS]; /* in the order of the kind's options */
    uint32_t given;                   /* bit i: option i was given */
} dlc_transform_step;

struct dlc_transforms {
    int32_t count;
    dlc_transform_step step[DLC_TRANSFORMS_MAX];
};

/* An image on its way through a list. */
typedef struct dlc_transform_work {
    const dlc_transforms *list;
    dlc_image image;
    dlc_transform_scratch *scratch;
    int at;      /* the scratch memory that holds the image; -1: the caller's */
    int is_mask; /* pixels are classes: the nearest counts, and only their place changes
                  */
} dlc_transform_work;

/* A kind of transform. NULL: nothing to check; the size stays; nothing is drawn; a part
 * of the output needs the same part of the input; pixels stay. */
typedef struct dlc_transform {
    const char *name, *help;
    const dlc_option *options; /* in the order of arguments without a name */
    unsigned flags;
    /* Checks the options together. DLC_ERR_CONFIG. */
    dlc_status (*check)(const dlc_transform_step *step);
    /* Replaces the size of the input by that of the output; 0: not known. Fails, with
     * any error, where the input is too small. */
    dlc_status (*size)(const dlc_transform_step *step, int64_t *height, int64_t *width);
    /* Sets box, choice and amount; the sizes are set. */
    void (*draw)(const dlc_transform_step *step, dlc_random *random,
                 dlc_step_plan *plan);
    /* The part of the input that `need` of the output is made of; it may exceed the
     * input. */
    dlc_rect (*reads)(const dlc_transform_step *step, const dlc_step_plan *plan);
    /* Makes `need` of the output. */
    dlc_status (*apply)(const dlc_transform_step *step, const dlc_step_plan *plan,
                        dlc_transform_work *work);
    /* Where pixels move, so that masks and boxes follow: sets the maps that `apply`
     * makes one after the other, of whole unscaled images, and returns how many. What a
     * map leaves outside of the output is lost. */
    int32_t (*maps)(const dlc_transform_step *step, const dlc_step_plan *plan,
                    dlc_affine map[DLC_TRANSFORM_MAPS]);
} dlc_transform;

/* The table; the last row has no name. */
extern const dlc_transform dlc_transform_table[];

/* Appends "the 2nd, random_crop" to a message. */
void dlc_transform_place(dlc_text *text, int32_t index, const char *name);

/* ---- Images ---- */

/* Makes `image` of this size, in scratch memory that the work's image is not in, with
 * the work's type and channels, interleaved or as planes. DLC_ERR_NOMEM. */
dlc_status dlc_work_make(dlc_transform_work *work, int64_t height, int64_t width,
                         int planes, dlc_image *image);
/* Makes the work's image `image`, which dlc_work_make has made. */
void dlc_work_take(dlc_transform_work *work, const dlc_image *image);
/* Makes the work's image interleaved, with columns from left to right. */
dlc_status dlc_work_interleave(dlc_transform_work *work);
/* Makes the work's image interleaved and the work's own, so that it may be changed. */
dlc_status dlc_work_own(dlc_transform_work *work);
/* Replaces the image by an affine map of it (transform_rotate.c). */
dlc_status dlc_work_map(dlc_transform_work *work, const dlc_affine *affine,
                        int bilinear);
/* The image as floats, in the memory of dlc_work_memory, and back (transform_color.c).
 */
dlc_status dlc_work_load_color(const dlc_transform_work *work, dlc_color *color);
dlc_status dlc_work_store_color(dlc_transform_work *work, const dlc_color *color);
/* Memory for anything else, until the next call; NULL with the detail set. */
void *dlc_work_memory(const dlc_transform_work *work, size_t bytes);

/* The element at a row and column of a part, channel 0. */
void *dlc_image_at(const dlc_image *image, int64_t row, int64_t column);

/* ---- Draws ---- */

/* Checks an option that is a range of numbers. DLC_ERR_CONFIG. */
dlc_status dlc_bounds_check(const dlc_transform_step *step, int option);
double dlc_draw_between(dlc_random *random, double least, double most);
/* Reads the whole image, whatever part is needed. */
dlc_rect dlc_read_whole(const dlc_transform_step *step, const dlc_step_plan *plan);

/* ---- Transforms, by file ---- */

/* transform_crop.c: crops and mirror. */
dlc_status dlc_crop_check(const dlc_transform_step *step);
dlc_status dlc_crop_size(const dlc_transform_step *step, int64_t *height,
                         int64_t *width);
dlc_status dlc_random_crop_size(const dlc_transform_step *step, int64_t *height,
                                int64_t *width);
void dlc_center_crop_draw(const dlc_transform_step *step, dlc_random *random,
                          dlc_step_plan *plan);
void dlc_random_crop_draw(const dlc_transform_step *step, dlc_random *random,
                          dlc_step_plan *plan);
dlc_rect dlc_crop_reads(const dlc_transform_step *step, const dlc_step_plan *plan);
dlc_status dlc_crop_apply(const dlc_transform_step *step, const dlc_step_plan *plan,
                          dlc_transform_work *work);
/* The map of every transform that makes its output of the plan's box. */
int32_t dlc_crop_maps(const dlc_transform_step *step, const dlc_step_plan *plan,
                      dlc_affine *map);
void dlc_mirror_draw(const dlc_transform_step *step, dlc_random *random,
                     dlc_step_plan *plan);
dlc_rect dlc_mirror_reads(const dlc_transform_step *step, const dlc_step_plan *plan);
dlc_status dlc_mirror_apply(const dlc_transform_step *step, const dlc_step_plan *plan,
                            dlc_transform_work *work);
int32_t dlc_mirror_maps(const dlc_transform_step *step, const dlc_step_plan *plan,
                        dlc_affine *map);

/* transform_resize.c: which part becomes which size. */
dlc_status dlc_resize_size(const dlc_transform_step *step, int64_t *height,
                           int64_t *width);
void dlc_resize_draw(const dlc_transform_step *step, dlc_random *random,
                     dlc_step_plan *plan);
dlc_status dlc_random_resized_crop_check(const dlc_transform_step *step);
dlc_status dlc_random_resized_crop_size(const dlc_transform_step *step, int64_t *height,
                                        int64_t *width);
void dlc_random_resized_crop_draw(const dlc_transform_step *step, dlc_random *random,
                                  dlc_step_plan *plan);
dlc_rect dlc_resize_reads(const dlc_transform_step *step, const dlc_step_plan *plan);
dlc_status dlc_resize_apply(const dlc_transform_step *step, const dlc_step_plan *plan,
                            dlc_transform_work *work);

/* transform_color.c */
void dlc_color_jitter_draw(const dlc_transform_step *step, dlc_random *random,
                           dlc_step_plan *plan);
dlc_rect dlc_color_jitter_reads(const dlc_transform_step *step,
                                const dlc_step_plan *plan);
dlc_status dlc_color_jitter_apply(const dlc_transform_step *step,
                                  const dlc_step_plan *plan, dlc_transform_work *work);
void dlc_lighting_draw(const dlc_transform_step *step, dlc_random *random,
                       dlc_step_plan *plan);
dlc_status dlc_lighting_apply(const dlc_transform_step *step, const dlc_step_plan *plan,
                              dlc_transform_work *work);
void dlc_grayscale_draw(const dlc_transform_step *step, dlc_random *random,
                        dlc_step_plan *plan);
dlc_status dlc_grayscale_apply(const dlc_transform_step *step,
                               const dlc_step_plan *plan, dlc_transform_work *work);

/* transform_erase.c */
dlc_status dlc_random_erasing_check(const dlc_transform_step *step);
void dlc_random_erasing_draw(const dlc_transform_step *step, dlc_random *random,
                             dlc_step_plan *plan);
dlc_status dlc_random_erasing_apply(const dlc_transform_step *step,
                                    const dlc_step_plan *plan,
                                    dlc_transform_work *work);
void dlc_cutout_draw(const dlc_transform_step *step, dlc_random *random,
                     dlc_step_plan *plan);
dlc_status dlc_cutout_apply(const dlc_transform_step *step, const dlc_step_plan *plan,
                            dlc_transform_work *work);

/* transform_rotate.c */
void dlc_rotate_draw(const dlc_transform_step *step, dlc_random *random,
                     dlc_step_plan *plan);
dlc_status dlc_rotate_apply(const dlc_transform_step *step, const dlc_step_plan *plan,
                            dlc_transform_work *work);
int32_t dlc_rotate_maps(const dlc_transform_step *step, const dlc_step_plan *plan,
                        dlc_affine *map);

/* transform_randaugment.c */
void dlc_rand_augment_draw(const dlc_transform_step *step, dlc_random *random,
                           dlc_step_plan *plan);
dlc_status dlc_rand_augment_apply(const dlc_transform_step *step,
                                  const dlc_step_plan *plan, dlc_transform_work *work);
int32_t dlc_rand_augment_maps(const dlc_transform_step *step, const dlc_step_plan *plan,
                              dlc_affine *map);

/* transform_normalize.c */
dlc_status dlc_normalize_check(const dlc_transform_step *step);

/* ---- transform_output.c: the end of a list ---- */

/* Writes the work's image to `out`: CHW, floats normalized. */
dlc_status dlc_work_write(const dlc_transform_work *work, dlc_dtype type, void *out);

#endif

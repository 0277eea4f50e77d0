/* Kinds of transforms, for the files of transforms only. A new transform is a
 * dlc_transform in one of these files, beside its options and functions, and a row of
 * the table. */
#ifndef DLC_DATA_TRANSFORM_KINDS_H
#define DLC_DATA_TRANSFORM_KINDS_H

#include <stdint.h>

#include "base/random.h"
#include "config/value.h"
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

/* ---- Affine maps (transform_move.c) and colors (transform_color.c) ---- */

/* The place (x, y) in the input, relative to its center, of a pixel of the result
 * relative to its center: (a x + b y + c, d x + e y + f). */
typedef struct dlc_affine {
    double a, b, c, d, e, f;
} dlc_affine;

dlc_affine dlc_affine_rotate(double degrees); /* counterclockwise */
/* Maps `from` to `to`, which is as large and of the same channels; both interleaved.
 * What lies outside becomes 0. Between pixels: the mean of the four around, or the
 * nearest. */
void dlc_affine_map(const dlc_affine *affine, int bilinear, const dlc_image *from,
                    const dlc_image *to);

/* The colors of an image, in float32 between 0 and 1, one plane per channel. */
typedef struct dlc_color {
    float *plane[3]; /* red, green, blue; a gray image has the first only */
    int32_t channels;
    int64_t count; /* of pixels */
} dlc_color;

/* Each replaces x by factor * x + (1 - factor) * y, cut off at 0 and 1. y is black, the
 * mean gray of the image, or the gray of the pixel. Gray images have no saturation. */
void dlc_color_brightness(const dlc_color *color, float factor);
void dlc_color_contrast(const dlc_color *color, float factor);
void dlc_color_saturation(const dlc_color *color, float factor);
/* Turns the hue by `turns` of the color wheel. */
void dlc_color_hue(const dlc_color *color, float turns);
/* Pixels of bytes, whose channels lie `channel` bytes apart and columns `column`,
 * become n floats of each plane from `at` on. */
void dlc_color_load(const dlc_color *color, const uint8_t *from, int64_t column,
                    int64_t channel, int64_t at, int64_t n);

/* ---- Kinds ---- */

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

/* The table (transform_parse.c); NULL ends it. */
extern const dlc_transform *const dlc_transform_table[];

/* Appends "the 2nd, random_crop" to a message. */
void dlc_transform_place(dlc_text *text, int32_t index, const char *name);

/* ---- Images ---- */

/* Makes `image` of this size, in scratch memory that the work's image is not in, with
 * the work's type and channels, interleaved or as planes. DLC_ERR_NOMEM. */
dlc_status dlc_work_make(dlc_transform_work *work, int64_t height, int64_t width,
                         int planes, dlc_image *image);
/* Makes the work's image `image`, which dlc_work_make has made. */
void dlc_work_take(dlc_transform_work *work, const dlc_image *image);
/* The same of one that shows the same part of the whole image. */
void dlc_work_replace(dlc_transform_work *work, dlc_image *image);
/* Makes the work's image interleaved, with columns from left to right. */
dlc_status dlc_work_interleave(dlc_transform_work *work);
/* Makes the work's image interleaved and the work's own, so that it may be changed. */
dlc_status dlc_work_own(dlc_transform_work *work);
/* Replaces the image by an affine map of it. */
dlc_status dlc_work_map(dlc_transform_work *work, const dlc_affine *affine,
                        int bilinear);
/* The image as floats, in the memory of dlc_work_memory, and back. */
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
/* Draws two sides as torchvision does: their product is a share of the image's area
 * from `scale`, and one / other is from `ratio`, which are two bounds each. */
void dlc_draw_sides(dlc_random *random, const dlc_step_plan *plan, const double *scale,
                    const double *ratio, double *one, double *other);
/* Draws the place of a box of this size in the image. */
dlc_rect dlc_draw_place(dlc_random *random, const dlc_step_plan *plan, double height,
                        double width);
/* Reads the whole image, whatever part is needed. */
dlc_rect dlc_read_whole(const dlc_transform_step *step, const dlc_step_plan *plan);

/* ---- Transforms, by file ---- */

/* transform_move.c */
extern const dlc_transform dlc_transform_center_crop, dlc_transform_random_crop,
    dlc_transform_mirror, dlc_transform_rotate;
/* Checks the sides that DLC_TRANSFORM_SIDES describes. */
dlc_status dlc_crop_check(const dlc_transform_step *step);
/* The map of every transform that makes its output of the plan's box. */
int32_t dlc_crop_maps(const dlc_transform_step *step, const dlc_step_plan *plan,
                      dlc_affine *map);

/* transform_resize.c */
extern const dlc_transform dlc_transform_resize, dlc_transform_random_resized_crop;
/* transform_color.c */
extern const dlc_transform dlc_transform_color_jitter, dlc_transform_lighting,
    dlc_transform_grayscale;
/* transform_erase.c */
extern const dlc_transform dlc_transform_random_erasing, dlc_transform_cutout;
/* transform_randaugment.c */
extern const dlc_transform dlc_transform_rand_augment;
/* transform_apply.c */
extern const dlc_transform dlc_transform_normalize;

/* The sides that crops and resizes take; one or both are given. */
#define DLC_TRANSFORM_SIDE_MAX 65536
#define DLC_TRANSFORM_SIDES(help) \
    DLC_INT("size", NULL, 1, DLC_TRANSFORM_SIDE_MAX, help), \
        DLC_INT("height", NULL, 1, DLC_TRANSFORM_SIDE_MAX, \
                "height, with `width` instead of `size`"), \
        DLC_INT("width", NULL, 1, DLC_TRANSFORM_SIDE_MAX, \
                "width, with `height` instead of `size`")

/* ---- Resampling (resample.c) ---- */

/* Resampling of images of bytes, with the filters and the antialiasing of Pillow: each
 * pixel is a weighted mean of the pixels under a filter, which is as wide as the pixel
 * if the image is made smaller. Separable: first along columns, then along rows, in
 * float32 with one rounding at the end. Results are the same on every CPU. */

typedef struct dlc_filter {
    const char *name;
    double support; /* in pixels of the larger of the two grids */
    double (*weight)(double distance);
} dlc_filter;

/* "bilinear", "bicubic", "area" or "nearest". */
const dlc_filter *dlc_filter_find(const char *name);

/* A resize along one axis: the interval `begin` .. `end` of the input becomes `size`
 * pixels. Only pixels `first` .. `first` + `count` - 1 of them are made, and no pixel
 * outside of the interval is read. */
typedef struct dlc_resample_axis {
    double begin, end;
    int64_t size, first, count;
} dlc_resample_axis;

/* The bytes of memory that dlc_resample needs for an image of this width. */
size_t dlc_resample_bytes(const dlc_filter *filter, const dlc_image *from,
                          const dlc_resample_axis *x, const dlc_resample_axis *y);

/* Resamples `from`, interleaved bytes, to x.count x y.count pixels of the same format.
 * `memory` is aligned to 64 bytes. */
void dlc_resample(const dlc_filter *filter, const dlc_image *from,
                  const dlc_resample_axis *x, const dlc_resample_axis *y, void *memory,
                  const dlc_image *to) __attribute__((nonnull));

#endif

/* The table of transforms with their options. The options of a transform stand in the
 * order in which arguments without a name are taken. */
#include "data/transform_kinds.h"

#define SIDE_MAX 65536

/* The size that crops and resizes take; `dlc_crop_check` wants one side or both. */
#define SIZE(help) \
    DLC_INT("size", NULL, 1, SIDE_MAX, help), \
        DLC_INT("height", NULL, 1, SIDE_MAX, \
                "height, with `width` instead of `size`"), \
        DLC_INT("width", NULL, 1, SIDE_MAX, "width, with `height` instead of `size`")

#define INTERPOLATION \
    DLC_CHOICE("interpolation", "bilinear", "bilinear|bicubic|area|nearest", \
               "how pixels are resampled; all but nearest are antialiased")

static const dlc_option resize_options[] = {
    SIZE("the shorter side; the other keeps the aspect ratio"),
    INTERPOLATION,
    DLC_OPTIONS_END,
};

static const dlc_option center_crop_options[] = {
    SIZE("side of the square"),
    DLC_OPTIONS_END,
};

static const dlc_option random_crop_options[] = {
    SIZE("side of the square"),
    DLC_INT("padding", "0", 0, SIDE_MAX, "width of a border of zeros, before the crop"),
    DLC_OPTIONS_END,
};

static const dlc_option random_resized_crop_options[] = {
    SIZE("side of the square"),
    INTERPOLATION,
    DLC_FLOATS("scale", "0.08, 1", 0, 1, "least and largest share of the image's area"),
    DLC_FLOATS("ratio", "0.75, 1.3333333333333333", 1e-3, 1e3,
               "least and largest width / height"),
    DLC_OPTIONS_END,
};

static const dlc_option mirror_options[] = {
    DLC_FLOAT("p", "0.5", 0, 1, "probability"),
    DLC_OPTIONS_END,
};

static const dlc_option normalize_options[] = {
    DLC_FLOATS("mean", NULL, -1e30, 1e30,
               "subtracted: one value, or one per channel, in units of the samples' "
               "values (0 .. 255 for images)"),
    DLC_FLOATS("std", NULL, 1e-30, 1e30,
               "divides what is left: one value, or one per channel"),
    DLC_FLOAT("scale", NULL, -1e30, 1e30, "factor, instead of `std`"),
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_table[] = {
    {.name = "resize",
     .help = "resize the image",
     .options = resize_options,
     .flags = DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_RESAMPLE,
     .check = dlc_crop_check,
     .size = dlc_resize_size,
     .draw = dlc_resize_draw,
     .reads = dlc_resize_reads,
     .apply = dlc_resize_apply},
    {.name = "center_crop",
     .help = "keep the middle of the image",
     .options = center_crop_options,
     .flags = DLC_TRANSFORM_ANY,
     .check = dlc_crop_check,
     .size = dlc_crop_size,
     .draw = dlc_center_crop_draw,
     .reads = dlc_crop_reads,
     .apply = dlc_crop_apply},
    {.name = "random_crop",
     .help = "keep a part of the image, at random",
     .options = random_crop_options,
     .flags = DLC_TRANSFORM_ANY | DLC_TRANSFORM_RANDOM,
     .check = dlc_crop_check,
     .size = dlc_random_crop_size,
     .draw = dlc_random_crop_draw,
     .reads = dlc_crop_reads,
     .apply = dlc_crop_apply},
    {.name = "random_resized_crop",
     .help = "resize a part of the image, of random area, aspect ratio and position",
     .options = random_resized_crop_options,
     .flags = DLC_TRANSFORM_RANDOM | DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_RESAMPLE,
     .check = dlc_random_resized_crop_check,
     .size = dlc_random_resized_crop_size,
     .draw = dlc_random_resized_crop_draw,
     .reads = dlc_resize_reads,
     .apply = dlc_resize_apply},
    {.name = "mirror",
     .help = "swap left and right, at random",
     .options = mirror_options,
     .flags = DLC_TRANSFORM_ANY | DLC_TRANSFORM_RANDOM | DLC_TRANSFORM_SCALABLE,
     .draw = dlc_mirror_draw,
     .reads = dlc_mirror_reads,
     .apply = dlc_mirror_apply},
    {.name = "normalize",
     .help = "subtract a mean and divide by a standard deviation; the last of a list",
     .options = normalize_options,
     .flags = DLC_TRANSFORM_ANY | DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_LAST,
     .check = dlc_normalize_check},
    {.name = NULL},
};

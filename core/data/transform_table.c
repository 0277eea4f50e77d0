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
    SIZE("the shorter side; the other keeps the aspect ratio; two numbers without a "
         "name are height and width"),
    INTERPOLATION,
    DLC_OPTIONS_END,
};

static const dlc_option center_crop_options[] = {
    SIZE("side of the square; two numbers without a name are height and width"),
    DLC_OPTIONS_END,
};

static const dlc_option random_crop_options[] = {
    SIZE("side of the square"),
    DLC_INT("padding", "0", 0, SIDE_MAX, "width of a border of zeros, before the crop"),
    DLC_OPTIONS_END,
};

static const dlc_option random_resized_crop_options[] = {
    SIZE("side of the square; two numbers without a name are height and width"),
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

static const dlc_option rotate_options[] = {
    DLC_OPTION("degrees", DLC_OPT_FLOAT, DLC_OPT_REQUIRED, NULL, 0, 180, NULL,
               "the most, to either side"),
    DLC_CHOICE("interpolation", "bilinear", "bilinear|nearest",
               "how pixels are taken from between pixels"),
    DLC_OPTIONS_END,
};

static const dlc_option color_jitter_options[] = {
    DLC_FLOAT("brightness", "0", 0, 10, "factor 1 - x to 1 + x"),
    DLC_FLOAT("contrast", "0", 0, 10, "factor 1 - x to 1 + x"),
    DLC_FLOAT("saturation", "0", 0, 10, "factor 1 - x to 1 + x"),
    DLC_FLOAT("hue", "0", 0, 0.5, "turns of the color wheel, -x to x"),
    DLC_OPTIONS_END,
};

static const dlc_option lighting_options[] = {
    DLC_FLOAT("std", "0.1", 0, 10, "deviation of the factors of the components"),
    DLC_OPTIONS_END,
};

static const dlc_option grayscale_options[] = {
    DLC_FLOAT("p", "1", 0, 1, "probability"),
    DLC_OPTIONS_END,
};

#define FILL \
    DLC_CHOICE( \
        "fill", "mean", "mean|zero|noise", \
        "what is put there: the mean of `normalize`, zeros before `normalize`, " \
        "or noise with the mean and std of `normalize`")

static const dlc_option random_erasing_options[] = {
    DLC_FLOAT("p", "0.5", 0, 1, "probability"),
    DLC_FLOATS("scale", "0.02, 0.33", 0, 1,
               "least and largest share of the image's area"),
    DLC_FLOATS("ratio", "0.3, 3.3", 1e-3, 1e3, "least and largest height / width"),
    FILL,
    DLC_OPTIONS_END,
};

static const dlc_option cutout_options[] = {
    DLC_INT_REQUIRED("size", 1, SIDE_MAX, "side of the square"),
    DLC_FLOAT("p", "1", 0, 1, "probability"),
    FILL,
    DLC_OPTIONS_END,
};

static const dlc_option rand_augment_options[] = {
    DLC_INT("n", "2", 1, 6, "changes of an image"),
    DLC_INT("magnitude", "9", 0, 30, "how large they are"),
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
     .flags = DLC_TRANSFORM_SIZED | DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_RESAMPLE,
     .check = dlc_crop_check,
     .size = dlc_resize_size,
     .draw = dlc_resize_draw,
     .reads = dlc_resize_reads,
     .apply = dlc_resize_apply,
     .maps = dlc_crop_maps},
    {.name = "center_crop",
     .help = "keep the middle of the image",
     .options = center_crop_options,
     .flags = DLC_TRANSFORM_SIZED | DLC_TRANSFORM_ANY,
     .check = dlc_crop_check,
     .size = dlc_crop_size,
     .draw = dlc_center_crop_draw,
     .reads = dlc_crop_reads,
     .apply = dlc_crop_apply,
     .maps = dlc_crop_maps},
    {.name = "random_crop",
     .help = "keep a part of the image, at random",
     .options = random_crop_options,
     .flags = DLC_TRANSFORM_ANY,
     .check = dlc_crop_check,
     .size = dlc_random_crop_size,
     .draw = dlc_random_crop_draw,
     .reads = dlc_crop_reads,
     .apply = dlc_crop_apply,
     .maps = dlc_crop_maps},
    {.name = "random_resized_crop",
     .help = "resize a part of the image, of random area, aspect ratio and position",
     .options = random_resized_crop_options,
     .flags = DLC_TRANSFORM_SIZED | DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_RESAMPLE,
     .check = dlc_random_resized_crop_check,
     .size = dlc_random_resized_crop_size,
     .draw = dlc_random_resized_crop_draw,
     .reads = dlc_resize_reads,
     .apply = dlc_resize_apply,
     .maps = dlc_crop_maps},
    {.name = "mirror",
     .help = "swap left and right, at random",
     .options = mirror_options,
     .flags = DLC_TRANSFORM_ANY | DLC_TRANSFORM_SCALABLE,
     .draw = dlc_mirror_draw,
     .reads = dlc_mirror_reads,
     .apply = dlc_mirror_apply,
     .maps = dlc_mirror_maps},
    {.name = "rotate",
     .help = "turn the image about its center, by a random angle",
     .options = rotate_options,
     .draw = dlc_rotate_draw,
     .reads = dlc_read_whole,
     .apply = dlc_rotate_apply,
     .maps = dlc_rotate_maps},
    {.name = "color_jitter",
     .help = "change brightness, contrast, saturation and hue, in random order",
     .options = color_jitter_options,
     .flags = DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_COLOR,
     .draw = dlc_color_jitter_draw,
     .reads = dlc_color_jitter_reads,
     .apply = dlc_color_jitter_apply},
    {.name = "lighting",
     .help = "add random multiples of the principal components of ImageNet's colors",
     .options = lighting_options,
     .flags = DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_COLOR,
     .draw = dlc_lighting_draw,
     .apply = dlc_lighting_apply},
    {.name = "grayscale",
     .help = "take the colors away; the channels stay",
     .options = grayscale_options,
     .flags = DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_COLOR,
     .draw = dlc_grayscale_draw,
     .apply = dlc_grayscale_apply},
    {.name = "rand_augment",
     .help = "change the image several times, each time as drawn from 14 changes of "
             "shape and color",
     .options = rand_augment_options,
     .flags = DLC_TRANSFORM_COLOR,
     .draw = dlc_rand_augment_draw,
     .reads = dlc_read_whole,
     .apply = dlc_rand_augment_apply,
     .maps = dlc_rand_augment_maps},
    {.name = "random_erasing",
     .help = "erase a rectangle of random area, aspect ratio and position",
     .options = random_erasing_options,
     .check = dlc_random_erasing_check,
     .draw = dlc_random_erasing_draw,
     .apply = dlc_random_erasing_apply},
    {.name = "cutout",
     .help = "erase a square around a random pixel",
     .options = cutout_options,
     .draw = dlc_cutout_draw,
     .apply = dlc_cutout_apply},
    {.name = "normalize",
     .help = "subtract a mean and divide by a standard deviation; the last of a list",
     .options = normalize_options,
     .flags = DLC_TRANSFORM_ANY | DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_LAST,
     .check = dlc_normalize_check},
    {.name = NULL},
};

int dlc_transforms_describe(size_t i, dlc_transform_info *info) {
    const dlc_transform *kind = &dlc_transform_table[i];
    if (!kind->name)
        return 0;
    *info = (dlc_transform_info){kind->name, kind->help, kind->options};
    return 1;
}

/* Tests how lists of transforms are read (core/data/transform_parse.c), the mistakes
 * that are found in them, and the shapes that come out (transform_plan.c). */
#include <string.h>

#include "base/status.h"
#include "data/transform_kinds.h"
#include "listed.h"
#include "support/scratch.h"
#include "support/test.h"

TEST(arguments_by_place_and_by_name) {
    dlc_transforms *list = listed(
        "random_crop(32, padding = 4),mirror ,  normalize( mean=(1, 2.5,3), "
        "std=( 4 ) )");
    ck_assert_int_eq(list->count, 3);
    ck_assert_str_eq(list->step[0].kind->name, "random_crop");
    ck_assert_int_eq(list->step[0].value[0].i, 32);
    ck_assert_int_eq(list->step[0].value[3].i, 4);
    ck_assert_double_eq(list->step[1].value[0].f, 0.5);
    ck_assert_float_eq(dlc_transforms_mean(list, 1), 2.5f);
    ck_assert_float_eq(dlc_transforms_scale(list, 2), 0.25f);
    ck_assert_int_eq(dlc_transforms_keep(list), 0);
    dlc_transforms_free(list);
}

TEST(empty_list) {
    dlc_transforms *list = listed(NULL);
    ck_assert_int_eq(list->count, 0);
    ck_assert_int_eq(dlc_transforms_keep(list), 1);
    ck_assert_float_eq(dlc_transforms_mean(list, 0), 0);
    ck_assert_float_eq(dlc_transforms_scale(list, 0), 1);
    dlc_transforms_free(list);
    list = listed("normalize(mean = 3, scale = 0.00390625)");
    ck_assert_int_eq(dlc_transforms_keep(list), 1);
    ck_assert_float_eq(dlc_transforms_mean(list, 2), 3);
    ck_assert_float_eq(dlc_transforms_scale(list, 2), 0.00390625f);
    dlc_transforms_free(list);
}

static const struct {
    const char *text, *says;
} mistakes[] = {
    {"resise(32)",
     "transforms: the 1st, resise: there is no such transform; did you mean resize?"},
    {"mirror, RandomResizedCrop(224)",
     "the 2nd, RandomResizedCrop: there is no such transform; did you mean "
     "random_resized_crop?"},
    {"mirror, qqqqqq",
     "the 2nd, qqqqqq: there is no such transform; there are resize, "},
    {"mirror, RandomHorizontalFlip", "did you mean mirror?"},
    {"random_crop(32, paddin=4)",
     "the 1st, random_crop: has no option \"paddin\"; did you mean padding?"},
    {"mirror(q=1)", "the 1st, mirror: has no option \"q\"; it takes p"},
    {"random_crop(x)", "the 1st, random_crop: size: \"x\" is not a whole number"},
    {"random_crop(32, padding=-1)",
     "the 1st, random_crop: padding: -1 is out of range: 0 .. 65536"},
    {"mirror(0.5, 0.5)", "the 1st, mirror: takes at most 1 argument"},
    {"mirror(0.5, p=0.5)", "the 1st, mirror: p is given twice"},
    {"random_crop(padding=1, 32)",
     "the 1st, random_crop: arguments without a name come before those with one"},
    {"random_crop(32,,padding=1)", "the 1st, random_crop: an argument is empty"},
    {"mirror,,mirror", "the 2nd, \"\": the name of a transform is missing"},
    {"mirror,", "the 2nd, \"\": the name of a transform is missing"},
    {"random_crop(32",
     "the 1st, random_crop: \")\" is missing, or something follows it"},
    {"random_crop(32) 4", "\")\" is missing, or something follows it"},
    {"center_crop", "the 1st, center_crop: needs a size, or height and width"},
    {"center_crop(height=3)", "needs a size, or height and width"},
    {"center_crop(3, height=3, width=3)", "needs a size, or height and width"},
    {"resize(3, 4, size=5)", "needs a size, or height and width"},
    {"random_crop(3, 4)", "needs a size, or height and width"},
    {"resize(32, interpolation=bicubik)",
     "interpolation: \"bicubik\" is not one of bilinear|bicubic|area|nearest; did you "
     "mean bicubic?"},
    {"random_resized_crop(224, scale=(1, 0.5))",
     "scale is two numbers, the smaller one first"},
    {"random_resized_crop(224, ratio=1)",
     "ratio is two numbers, the smaller one first"},
    {"normalize(std=1, scale=2)", "the 1st, normalize: takes std or scale, not both"},
    {"normalize(std=(1,0))", "the 1st, normalize: std: 0 is out of range"},
    {"normalize(1), mirror",
     "the 2nd, mirror: comes after normalize, which must be the last"},
    {"mirror,mirror,mirror,mirror,mirror,mirror,mirror,mirror,mirror,mirror,mirror,"
     "mirror,mirror,mirror,mirror,mirror,mirror",
     "the 17th, mirror: a list has at most 16 transforms"},
};

TEST_EACH(every_mistake_has_its_place, COUNT(mistakes)) {
    ck_contains(listed_mistakes(mistakes[_i].text), mistakes[_i].says);
}

TEST(all_mistakes_in_one_go) {
    const char *all = listed_mistakes("resise(3), random_crop(x, paddin=1), mirror(2)");
    ck_contains(all, "the 1st, resise");
    ck_contains(all, "the 2nd, random_crop: size: \"x\"");
    ck_contains(all, "the 2nd, random_crop: has no option \"paddin\"");
    ck_contains(all, "the 3rd, mirror: p: 2 is out of range");
}

/* ---- Shapes ------------------------------------------------------------------ */

static const struct {
    const char *text;
    int64_t in[3], out[3];
} shapes[] = {
    {"", {3, 5, 7}, {3, 5, 7}},
    {"resize(4, 6)", {3, 5, 7}, {3, 4, 6}},
    {"resize(4, 6, interpolation=area)", {3, 0, 0}, {3, 4, 6}},
    {"center_crop( 2,3 )", {3, 5, 7}, {3, 2, 3}},
    {"random_resized_crop(4, 6, scale=(0.5, 1))", {3, 5, 7}, {3, 4, 6}},
    {"resize(256)", {3, 375, 500}, {3, 256, 341}},
    {"resize(256)", {3, 500, 375}, {3, 341, 256}},
    {"resize(256), center_crop(224)", {1, 375, 500}, {1, 224, 224}},
    {"resize(256), center_crop(224)", {3, 0, 0}, {3, 224, 224}},
    {"resize(height=5, width=9)", {3, 0, 0}, {3, 5, 9}},
    {"random_crop(32, padding=4), mirror", {5, 28, 30}, {5, 32, 32}},
    {"random_resized_crop(224), mirror", {3, 0, 0}, {3, 224, 224}},
};

TEST_EACH(shape_is_known_beforehand, COUNT(shapes)) {
    dlc_transforms *list = listed(shapes[_i].text);
    dlc_shape in = {3, {shapes[_i].in[0], shapes[_i].in[1], shapes[_i].in[2]}}, out;
    ck_assert_int_eq(dlc_transforms_shape(list, &in, DLC_U8, &out), DLC_OK);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(out.dims[i], shapes[_i].out[i]);
    dlc_transforms_free(list);
}

static const struct {
    const char *text;
    int64_t in[3];
    dlc_dtype type;
    const char *says;
} misfits[] = {
    {"resize(256)", {3, 0, 0}, DLC_U8, "images may have different sizes"},
    {"mirror", {3, 0, 9}, DLC_U8, "images may have different sizes"},
    {"mirror, random_crop(9, padding=1)",
     {3, 8, 6},
     DLC_U8,
     "transforms: the 2nd, random_crop: cuts out 9 x 9, but the image is only 10 x 8 with "
     "its padding"},
    {"center_crop(9)",
     {3, 8, 9},
     DLC_U8,
     "cuts out 9 x 9, but the image is only 8 x 9:"},
    {"resize(4)", {3, 8, 8}, DLC_F32, "the 1st, resize: takes images of bytes"},
    {"normalize((1,2))",
     {3, 8, 8},
     DLC_F32,
     "the 1st, normalize: mean has 2 values, but the samples have 3 channels"},
    {"normalize(std=(1,2,3,4))", {3, 8, 8}, DLC_U8, "std has 4 values"},
};

TEST_EACH(refuses_what_does_not_fit, COUNT(misfits)) {
    dlc_transforms *list = listed(misfits[_i].text);
    const int64_t *dims = misfits[_i].in;
    dlc_shape in = {3, {dims[0], dims[1], dims[2]}}, out;
    ck_assert_int_eq(dlc_transforms_shape(list, &in, misfits[_i].type, &out),
                     DLC_ERR_CONFIG);
    ck_contains(dlc_detail(), misfits[_i].says);
    dlc_transforms_free(list);
}

TEST(small_image_is_bad_data) {
    dlc_transforms *list = listed("mirror, random_crop(32)");
    dlc_transform_plan plan;
    ck_assert_int_eq(dlc_transforms_plan(list, 1, 1, 32, 32, &plan), DLC_OK);
    ck_assert_int_eq(dlc_transforms_plan(list, 1, 1, 32, 31, &plan), DLC_ERR_DATA);
    ck_contains(dlc_detail(),
                "the 2nd, random_crop: cuts out 32 x 32, but the image is "
                "only 32 x 31");
    dlc_transforms_free(list);
}

/* Each table of options passes its own check, and every transform fits into a step. */
TEST(table_is_sound) {
    for (size_t i = 0; dlc_transform_table[i]; i++) {
        const dlc_transform *kind = dlc_transform_table[i];
        ck_assert_int_eq(dlc_options_check(kind->options), DLC_OK);
        size_t count = 0;
        while (kind->options[count].name)
            count++;
        ck_assert_uint_le(count, DLC_TRANSFORM_OPTIONS);
        ck_assert_ptr_nonnull(kind->help);
    }
}

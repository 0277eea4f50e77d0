/* Draws how pairs are mixed, and mixes them. */
#include "data/mix.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "data/clones.h"

/* The random stream ("mix"). */
#define STREAM UINT64_C(0x6d69780000000000)
/* Counters of a pair, each four words. */
#define COUNTERS 64

/* ---- Drawing ----------------------------------------------------------------- */

/* Of the Gamma distribution (Marsaglia and Tsang, "A simple method for generating gamma
 * variables", 2000). Of a million draws none needs so many tries. */
static double draw_gamma(dlc_random *random, double shape) {
    enum { TRIES = 16 };
    double below = shape < 1 ? pow(1 - (double)dlc_random_uniform(random), 1 / shape)
                             : 1;
    double d = (shape < 1 ? shape + 1 : shape) - 1.0 / 3, c = 1 / sqrt(9 * d);
    for (int i = 0; i < TRIES; i++) {
        double x = (double)dlc_random_normal(random), v = pow(1 + c * x, 3);
        double u = 1 - (double)dlc_random_uniform(random);
        if (1 + c * x > 0 && log(u) < 0.5 * x * x + d - d * v + d * log(v))
            return d * v * below;
    }
    return d * below;
}

/* Of the Beta distribution with both parameters alpha. */
static double draw_share(dlc_random *random, double alpha) {
    double a = draw_gamma(random, alpha), b = draw_gamma(random, alpha);
    return a + b > 0 ? a / (a + b) : 0.5;
}

static int64_t within(double at, int64_t end) {
    return at < 0 ? 0 : at > (double)end ? end : (int64_t)at;
}

/* A box of the share 1 - `share` of the picture around a random pixel, as far as it
 * lies inside. */
static void draw_box(dlc_random *random, double share, int64_t height, int64_t width,
                     dlc_mix *mix) {
    double side = sqrt(1 - share);
    double y = (double)dlc_random_below(random, (uint64_t)height);
    double x = (double)dlc_random_below(random, (uint64_t)width);
    double down = floor((double)height * side) / 2,
           right = floor((double)width * side) / 2;
    mix->box.y = within(y - down, height);
    mix->box.x = within(x - right, width);
    mix->box.height = within(y + down, height) - mix->box.y;
    mix->box.width = within(x + right, width) - mix->box.x;
    mix->share = 1 -
                 (float)(mix->box.height * mix->box.width) / (float)(height * width);
}

dlc_mix dlc_mix_draw(const dlc_mix_settings *settings, const dlc_loader *loader,
                     int64_t k) {
    const dlc_shape *shape = &loader->field[DLC_FIELD_DATA].shape;
    dlc_random random = {
        .seed = loader->args.seed, .stream = STREAM, .counter = (uint64_t)k * COUNTERS};
    int cut = dlc_random_uniform(&random) < 0.5f;
    dlc_mix mix = {.is_cut = settings->cutmix > 0 && (cut || settings->mixup <= 0)};
    double share = draw_share(&random, mix.is_cut ? settings->cutmix : settings->mixup);
    mix.share = (float)share;
    if (mix.is_cut)
        draw_box(&random, share, shape->dims[1], shape->dims[2], &mix);
    return mix;
}

/* ---- Mixing ------------------------------------------------------------------ */

CLONES static void blend(float share, int64_t n, float *restrict one,
                         float *restrict other) {
    for (int64_t i = 0; i < n; i++) {
        float first = one[i], second = other[i];
        one[i] = share * first + (1 - share) * second;
        other[i] = share * second + (1 - share) * first;
    }
}

static void swap(size_t bytes, unsigned char *restrict one,
                 unsigned char *restrict other) {
    for (size_t i = 0; i < bytes; i++) {
        unsigned char first = one[i];
        one[i] = other[i];
        other[i] = first;
    }
}

/* Swaps the box of all planes of a picture. */
static void swap_box(const dlc_rect *box, const dlc_loaded_field *field, void *one,
                     void *other) {
    const dlc_shape *shape = &field->shape;
    int64_t width = shape->dims[shape->rank - 1], height = shape->dims[shape->rank - 2];
    int64_t planes = shape->rank == 3 ? shape->dims[0] : 1;
    size_t each = dlc_dtype_bytes(field->dtype);
    for (int64_t row = 0; row < planes * box->height; row++) {
        int64_t y = row / box->height * height + box->y + row % box->height;
        size_t at = (size_t)(y * width + box->x) * each;
        swap((size_t)box->width * each, (unsigned char *)one + at,
             (unsigned char *)other + at);
    }
}

static int is_picture(const dlc_loaded_field *field) {
    return field->kind->role == DLC_ROLE_IMAGE || field->kind->role == DLC_ROLE_MASK;
}

void dlc_mix_pair(const dlc_mix *mix, const dlc_loader *loader, void *const *one,
                  void *const *other) {
    for (int32_t i = 0; i < loader->fields; i++) {
        const dlc_loaded_field *field = &loader->field[i];
        if (!field->kind || loader->args.fields.unread >> i & 1)
            continue;
        if (mix->is_cut && is_picture(field))
            swap_box(&mix->box, field, one[i], other[i]);
        else
            blend(mix->share, dlc_shape_count(&field->shape), one[i], other[i]);
    }
}

/* ---- Checking ---------------------------------------------------------------- */

dlc_status dlc_mix_check(const dlc_mix_settings *settings, const dlc_loader *loader) {
    if (settings->cutmix > 0 && loader->field[DLC_FIELD_DATA].shape.rank != 3)
        return dlc_fail(DLC_ERR_CONFIG,
                        "cutmix exchanges parts of images, but the samples have none");
    for (int32_t i = 0; i < loader->fields; i++) {
        const dlc_loaded_field *field = &loader->field[i];
        if (!field->kind ||
            (field->dtype == DLC_F32 && field->kind->role != DLC_ROLE_BOXES) ||
            (is_picture(field) && settings->mixup <= 0))
            continue;
        return dlc_fail(DLC_ERR_CONFIG, "%s: field %s is %s, which cannot be mixed",
                        settings->mixup > 0 ? "mixup" : "cutmix", field->field->name,
                        field->kind->name);
    }
    return DLC_OK;
}

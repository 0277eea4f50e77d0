/* Transforms of colors. The image becomes floats once, all changes are made there,
 * plane by plane in loops that are vectorised, and it is rounded to bytes once. */
#include <math.h>

#include "base/memory.h"
#include "base/status.h"
#include "data/clones.h"
#include "data/transform_kinds.h"

/* What of each channel makes gray, as in torchvision. */
#define RED 0.2989f
#define GREEN 0.587f
#define BLUE 0.114f

static float limit_unit(float value) {
    return value < 0 ? 0 : value > 1 ? 1 : value;
}

static float gray_of(float red, float green, float blue) {
    return RED * red + GREEN * green + BLUE * blue;
}

CLONES static void blend_plane(float *plane, int64_t n, float factor, float add) {
    for (int64_t i = 0; i < n; i++)
        plane[i] = limit_unit(factor * plane[i] + add);
}

void dlc_color_brightness(const dlc_color *color, float factor) {
    for (int32_t c = 0; c < color->channels; c++)
        blend_plane(color->plane[c], color->count, factor, 0);
}

/* The sum in eight parts, so that it can be vectorised and still has one order. */
CLONES static double sum_gray(const float *red, const float *green, const float *blue,
                              int64_t n) {
    enum { PARTS = 8 };
    double sum[PARTS] = {0}, total = 0;
    int64_t i = 0;
    for (; i + PARTS <= n; i += PARTS)
        for (int j = 0; j < PARTS; j++)
            sum[j] += (double)gray_of(red[i + j], green[i + j], blue[i + j]);
    for (; i < n; i++)
        total += (double)gray_of(red[i], green[i], blue[i]);
    for (int j = 0; j < PARTS; j++)
        total += sum[j];
    return total;
}

static double sum_plane(const float *plane, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)plane[i];
    return sum;
}

void dlc_color_contrast(const dlc_color *color, float factor) {
    float *const *plane = color->plane;
    int64_t n = color->count;
    double sum = color->channels == 3 ? sum_gray(plane[0], plane[1], plane[2], n)
                                      : sum_plane(plane[0], n);
    float add = (1 - factor) * (float)(sum / (double)n);
    for (int32_t c = 0; c < color->channels; c++)
        blend_plane(plane[c], n, factor, add);
}

CLONES static void saturate(float *restrict red, float *restrict green,
                            float *restrict blue, int64_t n, float factor) {
    for (int64_t i = 0; i < n; i++) {
        float add = (1 - factor) * gray_of(red[i], green[i], blue[i]);
        red[i] = limit_unit(factor * red[i] + add);
        green[i] = limit_unit(factor * green[i] + add);
        blue[i] = limit_unit(factor * blue[i] + add);
    }
}

void dlc_color_saturation(const dlc_color *color, float factor) {
    float *const *plane = color->plane;
    if (color->channels == 3)
        saturate(plane[0], plane[1], plane[2], color->count, factor);
}

/* The value of a channel of the color with this hue, in sixths of the wheel; the
 * channel is largest where hue - offset is 4.5 to 1.5. */
static float hue_channel(float hue, float value, float chroma) {
    float k = hue - 6 * floorf(hue / 6);
    float low = k < 4 - k ? k : 4 - k;
    low = low > 1 ? 1 : low < 0 ? 0 : low;
    return value - chroma * low;
}

CLONES static void turn_hue(float *restrict red, float *restrict green,
                            float *restrict blue, int64_t n, float sixths) {
    for (int64_t i = 0; i < n; i++) {
        float r = red[i], g = green[i], b = blue[i];
        float most = r > g ? r : g, least = r < g ? r : g;
        most = b > most ? b : most;
        least = b < least ? b : least;
        float chroma = most - least;
        float divisor = chroma > 0 ? chroma : 1; /* gray has no hue */
        float of_red = (g - b) / divisor, of_green = 2 + (b - r) / divisor,
              of_blue = 4 + (r - g) / divisor;
        float hue = most == r ? of_red : most == g ? of_green : of_blue;
        red[i] = hue_channel(hue + sixths + 5, most, chroma);
        green[i] = hue_channel(hue + sixths + 3, most, chroma);
        blue[i] = hue_channel(hue + sixths + 1, most, chroma);
    }
}

void dlc_color_hue(const dlc_color *color, float turns) {
    float *const *plane = color->plane;
    if (color->channels == 3)
        turn_hue(plane[0], plane[1], plane[2], color->count, 6 * turns);
}

static void color_shift(const dlc_color *color, const float shift[3]) {
    for (int32_t c = 0; c < color->channels; c++)
        // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): set for each channel
        blend_plane(color->plane[c], color->count, 1, shift[c]);
}

/* ---- Bytes ------------------------------------------------------------------- */

CLONES static void load3(float *restrict red, float *restrict green,
                         float *restrict blue, const uint8_t *restrict from,
                         int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        red[i] = (float)from[3 * i] * (1.0f / 255);
        green[i] = (float)from[3 * i + 1] * (1.0f / 255);
        blue[i] = (float)from[3 * i + 2] * (1.0f / 255);
    }
}

/* As load3, from right to left. */
CLONES static void load3_reversed(float *restrict red, float *restrict green,
                                  float *restrict blue, const uint8_t *restrict from,
                                  int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        red[n - 1 - i] = (float)from[3 * i] * (1.0f / 255);
        green[n - 1 - i] = (float)from[3 * i + 1] * (1.0f / 255);
        blue[n - 1 - i] = (float)from[3 * i + 2] * (1.0f / 255);
    }
}

void dlc_color_load(const dlc_color *color, const uint8_t *from, int64_t column,
                    int64_t channel, int64_t at, int64_t n) {
    float *const *plane = color->plane;
    int is_interleaved = color->channels == 3 && channel == 1;
    if (is_interleaved && column == 3) {
        load3(plane[0] + at, plane[1] + at, plane[2] + at, from, n);
        return;
    }
    if (is_interleaved && column == -3) {
        load3_reversed(plane[0] + at, plane[1] + at, plane[2] + at, from - 3 * (n - 1),
                       n);
        return;
    }
    for (int32_t c = 0; c < color->channels; c++)
        for (int64_t i = 0; i < n; i++)
            plane[c][at + i] = (float)from[i * column + c * channel] * (1.0f / 255);
}

static uint8_t to_byte(float value) {
    return (uint8_t)(int32_t)(value * 255 + 0.5f);
}

CLONES static void store3(const float *restrict red, const float *restrict green,
                          const float *restrict blue, int64_t n, uint8_t *restrict to) {
    for (int64_t i = 0; i < n; i++) {
        to[3 * i] = to_byte(red[i]);
        to[3 * i + 1] = to_byte(green[i]);
        to[3 * i + 2] = to_byte(blue[i]);
    }
}

static void color_store(const dlc_color *color, int64_t at, int64_t n, uint8_t *to) {
    float *const *plane = color->plane;
    if (color->channels == 3)
        store3(plane[0] + at, plane[1] + at, plane[2] + at, n, to);
    else
        for (int64_t i = 0; i < n; i++)
            // each channel has a plane
            // NOLINTNEXTLINE(clang-analyzer-core.NullDereference)
            to[i] = to_byte(plane[0][at + i]);
}

/* ---- Images as floats -------------------------------------------------------------
 */

/* ---- Images as floats -------------------------------------------------------- */

dlc_status dlc_work_load_color(const dlc_transform_work *work, dlc_color *color) {
    const dlc_image *image = &work->image;
    int64_t pixels = image->height * image->width;
    float *memory = dlc_work_memory(work, (size_t)(pixels * image->channels) * 4);
    if (!memory)
        return DLC_ERR_NOMEM;
    *color = (dlc_color){.channels = (int32_t)image->channels, .count = pixels};
    for (int32_t c = 0; c < color->channels; c++)
        color->plane[c] = memory + c * pixels;
    for (int64_t row = 0; row < image->height; row++)
        dlc_color_load(color, dlc_image_at(image, row, 0), image->column,
                       image->channel, row * image->width, image->width);
    return DLC_OK;
}

dlc_status dlc_work_store_color(dlc_transform_work *work, const dlc_color *color) {
    const dlc_image *from = &work->image;
    dlc_image made;
    DLC_TRY(dlc_work_make(work, from->height, from->width, 0, &made));
    color_store(color, 0, color->count, made.pixels);
    dlc_work_replace(work, &made);
    return DLC_OK;
}

/* ---- color_jitter ------------------------------------------------------------ */

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE, JITTERS };

static void (*const jitter[JITTERS])(const dlc_color *color, float factor) = {
    [BRIGHTNESS] = dlc_color_brightness,
    [CONTRAST] = dlc_color_contrast,
    [SATURATION] = dlc_color_saturation,
    [HUE] = dlc_color_hue,
};

/* The factors, and the order in which they are applied. */
static void color_jitter_draw(const dlc_transform_step *step, dlc_random *random,
                              dlc_step_plan *plan) {
    for (int i = 0; i < JITTERS; i++) {
        double most = step->value[i].f, center = i == HUE ? 0 : 1;
        double least = center - most;
        if (i != HUE && least < 0)
            least = 0;
        plan->amount[i] = dlc_draw_between(random, least, center + most);
        plan->choice[i] = i;
    }
    for (int i = JITTERS - 1; i > 0; i--) {
        int64_t j = (int64_t)dlc_random_below(random, (uint64_t)i + 1);
        int64_t swapped = plan->choice[i];
        plan->choice[i] = plan->choice[j];
        plan->choice[j] = swapped;
    }
}

/* The mean gray is that of the whole image. */
static dlc_rect color_jitter_reads(const dlc_transform_step *step,
                                   const dlc_step_plan *plan) {
    return step->value[CONTRAST].f > 0 ? dlc_read_whole(step, plan) : plan->need;
}

static dlc_status color_jitter_apply(const dlc_transform_step *step,
                                     const dlc_step_plan *plan,
                                     dlc_transform_work *work) {
    dlc_color color;
    DLC_TRY(dlc_work_load_color(work, &color));
    for (int i = 0; i < JITTERS; i++) {
        int64_t what = plan->choice[i];
        if (step->value[what].f > 0)
            jitter[what](&color, (float)plan->amount[what]);
    }
    return dlc_work_store_color(work, &color);
}

static const dlc_option color_jitter_options[] = {
    DLC_FLOAT("brightness", "0", 0, 10, "factor 1 - x to 1 + x"),
    DLC_FLOAT("contrast", "0", 0, 10, "factor 1 - x to 1 + x"),
    DLC_FLOAT("saturation", "0", 0, 10, "factor 1 - x to 1 + x"),
    DLC_FLOAT("hue", "0", 0, 0.5, "turns of the color wheel, -x to x"),
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_color_jitter = {
    .name = "color_jitter",
    .help = "change brightness, contrast, saturation and hue, in random order",
    .options = color_jitter_options,
    .flags = DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_COLOR,
    .draw = color_jitter_draw,
    .reads = color_jitter_reads,
    .apply = color_jitter_apply,
};

/* ---- lighting ---------------------------------------------------------------- */

/* Principal components of the colors of ImageNet (Krizhevsky et al., 2012), scaled by
 * their standard deviations; values between 0 and 1. */
static const double components[3][3] = {
    /* red, green, blue of each component */
    {0.2175 * -0.5675, 0.2175 * -0.5808, 0.2175 * -0.5836},
    {0.0188 * 0.7192, 0.0188 * -0.0045, 0.0188 * -0.6948},
    {0.0045 * 0.4009, 0.0045 * -0.8140, 0.0045 * 0.4203},
};

static void lighting_draw(const dlc_transform_step *step, dlc_random *random,
                          dlc_step_plan *plan) {
    for (int c = 0; c < 3; c++)
        plan->amount[c] = 0;
    for (int i = 0; i < 3; i++) {
        double alpha = step->value[0].f * (double)dlc_random_normal(random);
        for (int c = 0; c < 3; c++)
            plan->amount[c] += alpha * components[i][c];
    }
}

static dlc_status lighting_apply(const dlc_transform_step *step,
                                 const dlc_step_plan *plan, dlc_transform_work *work) {
    dlc_color color;
    (void)step;
    float shift[3];
    for (int c = 0; c < 3; c++)
        shift[c] = (float)plan->amount[c];
    DLC_TRY(dlc_work_load_color(work, &color));
    color_shift(&color, shift);
    return dlc_work_store_color(work, &color);
}

static const dlc_option lighting_options[] = {
    DLC_FLOAT("std", "0.1", 0, 10, "deviation of the factors of the components"),
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_lighting = {
    .name = "lighting",
    .help = "add random multiples of the principal components of ImageNet's colors",
    .options = lighting_options,
    .flags = DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_COLOR,
    .draw = lighting_draw,
    .apply = lighting_apply,
};

/* ---- grayscale --------------------------------------------------------------- */

static void grayscale_draw(const dlc_transform_step *step, dlc_random *random,
                           dlc_step_plan *plan) {
    plan->choice[0] = (double)dlc_random_uniform(random) < step->value[0].f;
}

static dlc_status grayscale_apply(const dlc_transform_step *step,
                                  const dlc_step_plan *plan, dlc_transform_work *work) {
    dlc_color color;
    (void)step;
    if (!plan->choice[0])
        return DLC_OK;
    DLC_TRY(dlc_work_load_color(work, &color));
    dlc_color_saturation(&color, 0);
    return dlc_work_store_color(work, &color);
}

static const dlc_option grayscale_options[] = {
    DLC_FLOAT("p", "1", 0, 1, "probability"),
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_grayscale = {
    .name = "grayscale",
    .help = "take the colors away; the channels stay",
    .options = grayscale_options,
    .flags = DLC_TRANSFORM_SCALABLE | DLC_TRANSFORM_COLOR,
    .draw = grayscale_draw,
    .apply = grayscale_apply,
};

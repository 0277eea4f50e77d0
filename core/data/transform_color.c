/* Transforms of colors. The image becomes floats once, all changes are made there, and
 * it is rounded to bytes once. */
#include "base/memory.h"
#include "base/status.h"
#include "data/color.h"
#include "data/transform_kinds.h"

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
    dlc_color_store(color, 0, color->count, made.pixels);
    made.x = from->x;
    made.y = from->y;
    made.scale = from->scale;
    dlc_work_take(work, &made);
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
void dlc_color_jitter_draw(const dlc_transform_step *step, dlc_random *random,
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
dlc_rect dlc_color_jitter_reads(const dlc_transform_step *step,
                                const dlc_step_plan *plan) {
    return step->value[CONTRAST].f > 0 ? dlc_read_whole(step, plan) : plan->need;
}

dlc_status dlc_color_jitter_apply(const dlc_transform_step *step,
                                  const dlc_step_plan *plan, dlc_transform_work *work) {
    dlc_color color;
    DLC_TRY(dlc_work_load_color(work, &color));
    for (int i = 0; i < JITTERS; i++) {
        int64_t what = plan->choice[i];
        if (step->value[what].f > 0)
            jitter[what](&color, (float)plan->amount[what]);
    }
    return dlc_work_store_color(work, &color);
}

/* ---- lighting ---------------------------------------------------------------- */

/* Principal components of the colors of ImageNet (Krizhevsky et al., 2012), scaled by
 * their standard deviations; values between 0 and 1. */
static const double components[3][3] = {
    /* red, green, blue of each component */
    {0.2175 * -0.5675, 0.2175 * -0.5808, 0.2175 * -0.5836},
    {0.0188 * 0.7192, 0.0188 * -0.0045, 0.0188 * -0.6948},
    {0.0045 * 0.4009, 0.0045 * -0.8140, 0.0045 * 0.4203},
};

void dlc_lighting_draw(const dlc_transform_step *step, dlc_random *random,
                       dlc_step_plan *plan) {
    for (int c = 0; c < 3; c++)
        plan->amount[c] = 0;
    for (int i = 0; i < 3; i++) {
        double alpha = step->value[0].f * (double)dlc_random_normal(random);
        for (int c = 0; c < 3; c++)
            plan->amount[c] += alpha * components[i][c];
    }
}

dlc_status dlc_lighting_apply(const dlc_transform_step *step, const dlc_step_plan *plan,
                              dlc_transform_work *work) {
    dlc_color color;
    (void)step;
    float shift[3];
    for (int c = 0; c < 3; c++)
        shift[c] = (float)plan->amount[c];
    DLC_TRY(dlc_work_load_color(work, &color));
    dlc_color_shift(&color, shift);
    return dlc_work_store_color(work, &color);
}

/* ---- grayscale --------------------------------------------------------------- */

void dlc_grayscale_draw(const dlc_transform_step *step, dlc_random *random,
                        dlc_step_plan *plan) {
    plan->choice[0] = (double)dlc_random_uniform(random) < step->value[0].f;
}

dlc_status dlc_grayscale_apply(const dlc_transform_step *step,
                               const dlc_step_plan *plan, dlc_transform_work *work) {
    dlc_color color;
    (void)step;
    if (!plan->choice[0])
        return DLC_OK;
    DLC_TRY(dlc_work_load_color(work, &color));
    dlc_color_saturation(&color, 0);
    return dlc_work_store_color(work, &color);
}

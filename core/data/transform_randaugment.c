/* rand_augment (Cubuk et al., 2020): several changes, chosen at random from a table,
 * all of one magnitude. Table, ranges and arithmetic are those of torchvision; pixels
 * that move are taken from the nearest. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "data/transform_kinds.h"

enum { COUNT, MAGNITUDE };
enum { MAGNITUDE_MAX = 30, LEVELS = 256 };

/* ---- Moves ------------------------------------------------------------------- */

/* Sheared about the upper left corner. */
static dlc_affine shear_x(const dlc_step_plan *plan, double amount) {
    double down = (double)plan->in_height / 2;
    return (dlc_affine){.a = 1, .b = amount, .c = amount * down, .e = 1};
}

static dlc_affine shear_y(const dlc_step_plan *plan, double amount) {
    double right = (double)plan->in_width / 2;
    return (dlc_affine){.a = 1, .d = amount, .e = 1, .f = amount * right};
}

/* By whole pixels. */
static dlc_affine translate_x(const dlc_step_plan *plan, double amount) {
    double pixels = trunc(amount * (double)plan->in_width);
    return (dlc_affine){.a = 1, .c = -pixels, .e = 1};
}

static dlc_affine translate_y(const dlc_step_plan *plan, double amount) {
    double pixels = trunc(amount * (double)plan->in_height);
    return (dlc_affine){.a = 1, .e = 1, .f = -pixels};
}

static dlc_affine rotate(const dlc_step_plan *plan, double amount) {
    (void)plan;
    return dlc_affine_rotate(amount);
}

/* ---- Colors ------------------------------------------------------------------ */

static dlc_status recolor(dlc_transform_work *work,
                          void (*how)(const dlc_color *color, float factor),
                          double amount) {
    dlc_color color;
    DLC_TRY(dlc_work_load_color(work, &color));
    how(&color, (float)(1 + amount));
    return dlc_work_store_color(work, &color);
}

static dlc_status brightness(dlc_transform_work *work, double amount) {
    return recolor(work, dlc_color_brightness, amount);
}

static dlc_status saturation(dlc_transform_work *work, double amount) {
    return recolor(work, dlc_color_saturation, amount);
}

static dlc_status contrast(dlc_transform_work *work, double amount) {
    return recolor(work, dlc_color_contrast, amount);
}

/* A pixel that is not at the edge, with its neighbors: the center counts five times. */
static float smooth(const uint8_t *at, int64_t row, int64_t column) {
    int sum = 4 * at[0];
    for (int64_t y = -1; y <= 1; y++)
        for (int64_t x = -1; x <= 1; x++)
            sum += at[y * row + x * column];
    return (float)sum / 13;
}

/* The opposite of a blur; the edge stays. */
static dlc_status sharpness(dlc_transform_work *work, double amount) {
    dlc_image made;
    DLC_TRY(dlc_work_own(work));
    const dlc_image *from = &work->image;
    float factor = (float)(1 + amount);
    DLC_TRY(dlc_work_make(work, from->height, from->width, 0, &made));
    for (int64_t y = 0; y < from->height; y++) {
        const uint8_t *source = dlc_image_at(from, y, 0);
        uint8_t *to = dlc_image_at(&made, y, 0);
        int64_t values = from->width * from->column, edge = from->column;
        memcpy(to, source, (size_t)values);
        for (int64_t i = edge; y > 0 && y + 1 < from->height && i < values - edge;
             i++) {
            float value = factor * (float)source[i] +
                          (1 - factor) * smooth(source + i, from->row, edge);
            to[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value + 0.5f);
        }
    }
    dlc_work_replace(work, &made);
    return DLC_OK;
}

/* ---- Tables of levels -------------------------------------------------------- */

/* Replaces the values of a channel by those of a table. */
static void replace_levels(const dlc_image *image, int64_t channel,
                           const uint8_t *level) {
    for (int64_t y = 0; y < image->height; y++) {
        uint8_t *at = (uint8_t *)dlc_image_at(image, y, 0) + channel;
        for (int64_t x = 0; x < image->width; x++)
            at[x * image->column] = level[at[x * image->column]];
    }
}

static void count_levels(const dlc_image *image, int64_t channel,
                         int64_t count[LEVELS]) {
    memset(count, 0, LEVELS * sizeof *count);
    for (int64_t y = 0; y < image->height; y++) {
        const uint8_t *at = (const uint8_t *)dlc_image_at(image, y, 0) + channel;
        for (int64_t x = 0; x < image->width; x++)
            count[at[x * image->column]]++;
    }
}

static dlc_status posterize(dlc_transform_work *work, double amount) {
    uint8_t level[LEVELS];
    int dropped = (int)rint(amount);
    DLC_TRY(dlc_work_own(work));
    for (int i = 0; i < LEVELS; i++)
        level[i] = (uint8_t)(i >> dropped << dropped);
    for (int64_t c = 0; c < work->image.channels; c++)
        replace_levels(&work->image, c, level);
    return DLC_OK;
}

static dlc_status solarize(dlc_transform_work *work, double amount) {
    uint8_t level[LEVELS];
    DLC_TRY(dlc_work_own(work));
    for (int i = 0; i < LEVELS; i++)
        level[i] = (uint8_t)((double)i >= amount ? 255 - i : i);
    for (int64_t c = 0; c < work->image.channels; c++)
        replace_levels(&work->image, c, level);
    return DLC_OK;
}

static void stretch(const int64_t count[LEVELS], uint8_t level[LEVELS]) {
    int least = 0, most = LEVELS - 1;
    while (least < most && !count[least])
        least++;
    while (most > least && !count[most])
        most--;
    double scale = most > least ? 255. / (most - least) : 1;
    for (int i = 0; i < LEVELS; i++) {
        double value = most > least ? (i - least) * scale : i;
        level[i] = (uint8_t)fmin(255, fmax(0, value));
    }
}

static void equalize_levels(const int64_t count[LEVELS], uint8_t level[LEVELS]) {
    int64_t all = 0, last = 0;
    for (int i = 0; i < LEVELS; i++) {
        all += count[i];
        last = count[i] ? count[i] : last;
    }
    int64_t step = (all - last) / 255, sum = step / 2;
    for (int i = 0; i < LEVELS; i++) {
        int64_t value = step ? sum / step : i;
        level[i] = (uint8_t)(value > 255 ? 255 : value);
        sum += count[i];
    }
}

/* Replaces the levels of each channel by a table that is made from how often they
 * occur. */
static dlc_status relevel(dlc_transform_work *work,
                          void (*make)(const int64_t count[LEVELS],
                                       uint8_t level[LEVELS])) {
    int64_t count[LEVELS];
    uint8_t level[LEVELS];
    DLC_TRY(dlc_work_own(work));
    for (int64_t c = 0; c < work->image.channels; c++) {
        count_levels(&work->image, c, count);
        make(count, level);
        replace_levels(&work->image, c, level);
    }
    return DLC_OK;
}

static dlc_status auto_contrast(dlc_transform_work *work, double amount) {
    (void)amount;
    return relevel(work, stretch);
}

static dlc_status equalize(dlc_transform_work *work, double amount) {
    (void)amount;
    return relevel(work, equalize_levels);
}

/* ---- The table --------------------------------------------------------------- */

static const struct operation {
    double least, most; /* the amount at magnitude 0 and at MAGNITUDE_MAX */
    int has_sign;       /* drawn: the amount may be negative */
    /* Moves pixels, or changes them; or neither. */
    dlc_affine (*map)(const dlc_step_plan *plan, double amount);
    dlc_status (*change)(dlc_transform_work *work, double amount);
} operations[] = {
    {0, 0, 0, NULL, NULL}, /* nothing */
    {0, 0.3, 1, shear_x, NULL},
    {0, 0.3, 1, shear_y, NULL},
    {0, 150. / 331, 1, translate_x, NULL}, /* of the width */
    {0, 150. / 331, 1, translate_y, NULL},
    {0, 30, 1, rotate, NULL},
    {0, 0.9, 1, NULL, brightness},
    {0, 0.9, 1, NULL, saturation},
    {0, 0.9, 1, NULL, contrast},
    {0, 0.9, 1, NULL, sharpness},
    {0, 4, 0, NULL, posterize},  /* bits that are dropped */
    {255, 0, 0, NULL, solarize}, /* the level from which it is inverted */
    {0, 0, 0, NULL, auto_contrast},
    {0, 0, 0, NULL, equalize},
};

static void rand_augment_draw(const dlc_transform_step *step, dlc_random *random,
                              dlc_step_plan *plan) {
    double magnitude = (double)step->value[MAGNITUDE].i / MAGNITUDE_MAX;
    for (int64_t i = 0; i < step->value[COUNT].i; i++) {
        plan->choice[i] = (int64_t)dlc_random_below(random, sizeof operations /
                                                                sizeof *operations);
        const struct operation *operation = &operations[plan->choice[i]];
        double amount = operation->least +
                        (operation->most - operation->least) * magnitude;
        int minus = dlc_random_uniform(random) < 0.5f;
        plan->amount[i] = minus && operation->has_sign ? -amount : amount;
    }
}

static int32_t rand_augment_maps(const dlc_transform_step *step,
                                 const dlc_step_plan *plan, dlc_affine *map) {
    int32_t count = 0;
    for (int64_t i = 0; i < step->value[COUNT].i; i++) {
        const struct operation *operation = &operations[plan->choice[i]];
        if (operation->map)
            map[count++] = operation->map(plan, plan->amount[i]);
    }
    return count;
}

static dlc_status rand_augment_apply(const dlc_transform_step *step,
                                     const dlc_step_plan *plan,
                                     dlc_transform_work *work) {
    for (int64_t i = 0; i < step->value[COUNT].i; i++) {
        const struct operation *operation = &operations[plan->choice[i]];
        if (operation->map) {
            dlc_affine map = operation->map(plan, plan->amount[i]);
            DLC_TRY(dlc_work_map(work, &map, 0));
        } else if (operation->change && !work->is_mask) {
            DLC_TRY(operation->change(work, plan->amount[i]));
        }
    }
    return DLC_OK;
}

static const dlc_option rand_augment_options[] = {
    DLC_INT("n", "2", 1, 6, "changes of an image"),
    DLC_INT("magnitude", "9", 0, 30, "how large they are"),
    DLC_OPTIONS_END,
};

const dlc_transform dlc_transform_rand_augment = {
    .name = "rand_augment",
    .help = "change the image several times, each time as drawn from 14 changes of "
            "shape and color",
    .options = rand_augment_options,
    .flags = DLC_TRANSFORM_COLOR,
    .draw = rand_augment_draw,
    .reads = dlc_read_whole,
    .apply = rand_augment_apply,
    .maps = rand_augment_maps,
};

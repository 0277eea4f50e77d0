/* Samples an image along straight lines. */
#include "data/affine.h"

#include <math.h>

dlc_affine dlc_affine_rotate(double degrees) {
    double angle = degrees * M_PI / 180, sine = sin(angle), cosine = cos(angle);
    return (dlc_affine){.a = cosine, .b = -sine, .d = sine, .e = cosine};
}

static const uint8_t *pixel_at(const dlc_image *image, int64_t y, int64_t x) {
    if (x < 0 || y < 0 || x >= image->width || y >= image->height)
        return NULL;
    return (const uint8_t *)image->pixels + y * image->row + x * image->column;
}

static void take_nearest(const dlc_image *from, double y, double x, uint8_t *to) {
    const uint8_t *pixel = pixel_at(from, (int64_t)floor(y), (int64_t)floor(x));
    for (int64_t c = 0; c < from->channels; c++)
        to[c] = pixel ? pixel[c] : 0;
}

/* Pixels outside count as 0. */
static void take_mean(const dlc_image *from, double y, double x, uint8_t *to) {
    double top = floor(y - 0.5), left = floor(x - 0.5);
    double down = y - 0.5 - top, right = x - 0.5 - left;
    const double weight[4] = {(1 - down) * (1 - right), (1 - down) * right,
                              down * (1 - right), down * right};
    const uint8_t *pixel[4];
    for (int i = 0; i < 4; i++)
        pixel[i] = pixel_at(from, (int64_t)top + i / 2, (int64_t)left + i % 2);
    for (int64_t c = 0; c < from->channels; c++) {
        double sum = 0;
        for (int i = 0; i < 4; i++)
            sum += pixel[i] ? weight[i] * (double)pixel[i][c] : 0;
        to[c] = (uint8_t)(sum + 0.5);
    }
}

void dlc_affine_map(const dlc_affine *affine, int bilinear, const dlc_image *from,
                    const dlc_image *to) {
    double middle_x = (double)from->width / 2, middle_y = (double)from->height / 2;
    for (int64_t row = 0; row < to->height; row++) {
        uint8_t *at = (uint8_t *)to->pixels + row * to->row;
        double y = (double)row + 0.5 - middle_y;
        for (int64_t column = 0; column < to->width; column++, at += to->column) {
            double x = (double)column + 0.5 - middle_x;
            double from_x = affine->a * x + affine->b * y + affine->c + middle_x;
            double from_y = affine->d * x + affine->e * y + affine->f + middle_y;
            if (bilinear)
                take_mean(from, from_y, from_x, at);
            else
                take_nearest(from, from_y, from_x, at);
        }
    }
}

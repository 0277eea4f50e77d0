/* Local response normalization of channels-last images: each element is divided by a
 * function of a box around it, of channels or of positions.
 *
 *     b = k + alpha * sum of x^2 in the box,  y = x * b^-beta
 *     dx = dy * b^-beta - 2 * alpha * beta * x * sum of dy * y / b in the box */
#ifndef DLCORE_CUDNN_LRN_BODY_H
#define DLCORE_CUDNN_LRN_BODY_H

#include "body.h"

typedef struct lrn_args {
    dlc_dtype type;
    int across;      /* 1: channels; 0: positions */
    int32_t half;    /* the box extends this far to either side */
    int32_t size[3]; /* rows, columns, channels */
    int64_t images;
    float alpha, beta, k; /* alpha is already divided by the box's volume */
    fast_divisor rows, columns, channels;
    const void *in;
    void *out;      /* backward: read */
    float *inverse; /* 1 / b; written by forward unless NULL */
    const void *out_diff;
    void *in_diff;
} lrn_args;

/* Sets the derived fields. */
BODY void lrn_ready(lrn_args *l) {
    l->rows = fast_divisor_of(l->size[0]);
    l->columns = fast_divisor_of(l->size[1]);
    l->channels = fast_divisor_of(l->size[2]);
}

/* Threads per image. */
BODY int64_t lrn_items(const lrn_args *l) {
    return (int64_t)l->size[0] * l->size[1] * l->size[2];
}

typedef struct lrn_box {
    int32_t begin[3], end[3];
    int64_t image; /* offset of the image */
} lrn_box;

BODY lrn_box lrn_box_of(const lrn_args *l, uint32_t item) {
    int32_t at[3];
    lrn_box box;
    at[2] = (int32_t)fast_divmod(&item, l->channels);
    at[1] = (int32_t)fast_divmod(&item, l->columns);
    at[0] = (int32_t)fast_divmod(&item, l->rows);
    for (int i = 0; i < 3; i++) {
        int32_t half = l->across == (i == 2) ? l->half : 0;
        box.begin[i] = (int32_t)max_i64(at[i] - half, 0);
        box.end[i] = (int32_t)min_i64(at[i] + half + 1, l->size[i]);
    }
    box.image = (int64_t)item * lrn_items(l);
    return box;
}

BODY int64_t lrn_index(const lrn_args *l, const lrn_box *box, int32_t y, int32_t x,
                       int32_t c) {
    return box->image + ((int64_t)y * l->size[1] + x) * l->size[2] + c;
}

BODY float lrn_power(float x, float exponent) {
    if (exponent == 0.75f) { /* the usual exponent, by two square roots */
        float root = sqrtf(x);
        return root * sqrtf(root);
    }
    return powf(x, exponent);
}

BODY void lrn_forward_at(const lrn_args *l, dlc_dtype type, uint32_t item) {
    const lrn_box box = lrn_box_of(l, item);
    float sum = 0;
    for (int32_t y = box.begin[0]; y < box.end[0]; y++)
        for (int32_t x = box.begin[1]; x < box.end[1]; x++)
            for (int32_t c = box.begin[2]; c < box.end[2]; c++) {
                float v = load_one(type, l->in, lrn_index(l, &box, y, x, c));
                sum += v * v;
            }
    float inverse = 1 / (l->k + l->alpha * sum);
    if (l->inverse)
        l->inverse[item] = inverse;
    store_one(type, l->out, item,
              load_one(type, l->in, item) * lrn_power(inverse, l->beta));
}

BODY void lrn_backward_at(const lrn_args *l, dlc_dtype type, uint32_t item) {
    const lrn_box box = lrn_box_of(l, item);
    float sum = 0;
    for (int32_t y = box.begin[0]; y < box.end[0]; y++)
        for (int32_t x = box.begin[1]; x < box.end[1]; x++)
            for (int32_t c = box.begin[2]; c < box.end[2]; c++) {
                int64_t at = lrn_index(l, &box, y, x, c);
                sum += load_one(type, l->out_diff, at) * load_one(type, l->out, at) *
                       l->inverse[at];
            }
    float own = load_one(type, l->out_diff, item) *
                lrn_power(l->inverse[item], l->beta);
    float in = load_one(type, l->in, item);
    store_one(type, l->in_diff, item, own - 2 * l->alpha * l->beta * in * sum);
}

#endif

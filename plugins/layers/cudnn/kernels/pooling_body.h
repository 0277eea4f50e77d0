/* Pooling of channels-last images. Backward gathers: for each pixel it visits the
 * windows that cover it, in a fixed order. */
#ifndef DLCORE_CUDNN_POOLING_BODY_H
#define DLCORE_CUDNN_POOLING_BODY_H

#include "body.h"

typedef struct pooling_args {
    dlc_dtype type;
    int average;
    int inside;     /* 1: an average excludes the padding */
    int wide;       /* 1: channels can be read 16 bytes at a time */
    int wide_place; /* 1: positions in windows are uint32_t, else uint8_t */
    int32_t in[2], out[2], kernel[2], stride[2], pad[2];
    int64_t channels, images;
    fast_divisor columns[2], rows[2], vectors; /* of in and out; channels / width */
    fast_divisor step[2];                      /* by the stride */
    const void *from;                          /* forward: in; backward: out_diff */
    void *to;                                  /* forward: out; backward: in_diff */
    void *
        place; /* position of the maximum in its window; NULL: not wanted, or average */
} pooling_args;

/* Sets the derived fields. */
BODY void pooling_ready(pooling_args *p) {
    int width;
    p->wide = p->channels % width_of(p->type, 1) == 0;
    width = width_of(p->type, p->wide);
    p->wide_place = (int64_t)p->kernel[0] * p->kernel[1] > 256;
    p->vectors = fast_divisor_of(p->channels / width);
    p->rows[0] = fast_divisor_of(p->in[0]);
    p->rows[1] = fast_divisor_of(p->out[0]);
    p->columns[0] = fast_divisor_of(p->in[1]);
    p->columns[1] = fast_divisor_of(p->out[1]);
    for (int i = 0; i < 2; i++)
        p->step[i] = fast_divisor_of(p->stride[i]);
}

/* Threads per image: one per few channels of each output (forward) or input
 * (backward). */
BODY int64_t pooling_items(const pooling_args *p, int backward) {
    const int32_t *size = backward ? p->in : p->out;
    return p->channels / width_of(p->type, p->wide) * size[0] * size[1];
}

/* The part of a window inside the image, and 1 / the area that an average divides
 * by. */
typedef struct pooling_part {
    int32_t begin[2], end[2]; /* inside */
    float share;
} pooling_part;

BODY pooling_part pooling_part_of(const pooling_args *p, int32_t y, int32_t x) {
    pooling_part part;
    float area = 1;
    for (int i = 0; i < 2; i++) {
        int32_t begin = (i ? x : y) * p->stride[i] - p->pad[i];
        int32_t end = (int32_t)min_i64(begin + p->kernel[i], p->in[i] + p->pad[i]);
        part.begin[i] = (int32_t)max_i64(begin, 0);
        part.end[i] = (int32_t)min_i64(end, p->in[i]);
        area *= (float)(p->inside ? part.end[i] - part.begin[i] : end - begin);
    }
    part.share = 1 / area;
    return part;
}

typedef struct pooling_at {
    int64_t image, channel;
    int32_t y, x;
} pooling_at;

BODY pooling_at pooling_split(const pooling_args *p, int out, int width,
                              uint32_t item) {
    pooling_at at;
    at.channel = (int64_t)fast_divmod(&item, p->vectors) * width;
    at.x = (int32_t)fast_divmod(&item, p->columns[out]);
    at.y = (int32_t)fast_divmod(&item, p->rows[out]);
    at.image = item;
    return at;
}

BODY int64_t pooling_index(const pooling_args *p, const int32_t *size, pooling_at at,
                           int32_t y, int32_t x) {
    return ((at.image * size[0] + y) * size[1] + x) * p->channels + at.channel;
}

typedef struct places {
    uint32_t v[WIDEST];
} places;

/* `wide` is p->wide_place, as a constant. */
BODY places load_places(const pooling_args *p, int wide, int width, int64_t at) {
    places out;
    if (wide) {
        for (int k = 0; k < width; k++)
            out.v[k] = ((const uint32_t *)p->place)[at + k];
        return out;
    }
    raw r;
    copy_aligned((size_t)width, r.byte, (const uint8_t *)p->place + at);
    for (int k = 0; k < width; k++)
        out.v[k] = r.byte[k];
    return out;
}

BODY void store_places(const pooling_args *p, int width, int64_t at, const places *in) {
    if (p->wide_place) {
        for (int k = 0; k < width; k++)
            ((uint32_t *)p->place)[at + k] = in->v[k];
        return;
    }
    raw r;
    for (int k = 0; k < width; k++)
        r.byte[k] = (uint8_t)in->v[k];
    copy_aligned((size_t)width, (uint8_t *)p->place + at, r.byte);
}

/* Position (y, x) of the window of output (row, column), as one number. */
BODY uint32_t pooling_place(const pooling_args *p, int32_t row, int32_t column,
                            int32_t y, int32_t x) {
    return (uint32_t)((y + p->pad[0] - row * p->stride[0]) * p->kernel[1] + x +
                      p->pad[1] - column * p->stride[1]);
}

/* Takes the first of the largest; NaN counts as larger than any number, so that it is
 * visible. */
BODY void pooling_max(const pooling_args *p, dlc_dtype type, int width, pooling_at at,
                      const pooling_part *part) {
    pack best;
    places where;
    uint32_t first = pooling_place(p, at.y, at.x, part->begin[0], part->begin[1]);
    for (int k = 0; k < width; k++) {
        best.v[k] = -INFINITY;
        where.v[k] = first;
    }
    for (int32_t y = part->begin[0]; y < part->end[0]; y++) {
        int64_t from = pooling_index(p, p->in, at, y, part->begin[1]);
        for (int32_t x = part->begin[1]; x < part->end[1]; x++, from += p->channels) {
            pack in = load(type, width, p->from, from);
            uint32_t here = pooling_place(p, at.y, at.x, y, x);
            for (int k = 0; k < width; k++)
                if (in.v[k] > best.v[k] || in.v[k] != in.v[k]) {
                    best.v[k] = in.v[k];
                    where.v[k] = here;
                }
        }
    }
    int64_t to = pooling_index(p, p->out, at, at.y, at.x);
    store(type, width, p->to, to, best);
    if (p->place)
        store_places(p, width, to, &where);
}

BODY void pooling_mean(const pooling_args *p, dlc_dtype type, int width, pooling_at at,
                       const pooling_part *part) {
    pack sum;
    for (int k = 0; k < width; k++)
        sum.v[k] = 0;
    for (int32_t y = part->begin[0]; y < part->end[0]; y++)
        for (int32_t x = part->begin[1]; x < part->end[1]; x++) {
            pack in = load(type, width, p->from, pooling_index(p, p->in, at, y, x));
            for (int k = 0; k < width; k++)
                sum.v[k] += in.v[k];
        }
    for (int k = 0; k < width; k++)
        sum.v[k] *= part->share;
    store(type, width, p->to, pooling_index(p, p->out, at, at.y, at.x), sum);
}

BODY void pooling_forward_at(const pooling_args *p, dlc_dtype type, int width,
                             uint32_t item) {
    const pooling_at at = pooling_split(p, 1, width, item);
    const pooling_part part = pooling_part_of(p, at.y, at.x);
    if (p->average)
        pooling_mean(p, type, width, at, &part);
    else
        pooling_max(p, type, width, at, &part);
}

/* The windows that cover a row or column: from *first to the returned one. */
BODY int32_t pooling_covering(const pooling_args *p, int i, int32_t at,
                              int32_t *first) {
    int32_t shifted = at + p->pad[i], before = shifted - p->kernel[i];
    *first = before < 0 ? 0 : (int32_t)fast_divide((uint32_t)before, p->step[i]) + 1;
    return (int32_t)min_i64(fast_divide((uint32_t)shifted, p->step[i]), p->out[i] - 1);
}

/* The windows that cover a pixel. */
typedef struct pooling_cover {
    int32_t top, bottom, left, right;
} pooling_cover;

/* Windows are visited row by row. WINDOWS of them are loaded before the first is used,
 * so that the loads are in flight together; those after the last match no place. */
BODY void pooling_max_backward(const pooling_args *p, dlc_dtype type, int wide,
                               int width, pooling_at at, const pooling_cover *cover,
                               pack *sum) {
    enum { WINDOWS = 4 };
    int32_t y = cover->top, x = cover->left;
    while (y <= cover->bottom) {
        pack diff[WINDOWS];
        places where[WINDOWS];
        uint32_t here[WINDOWS];
        for (int i = 0; i < WINDOWS; i++) {
            int inside = y <= cover->bottom;
            int64_t from = pooling_index(p, p->out, at, inside ? y : cover->bottom, x);
            diff[i] = load(type, width, p->from, from);
            where[i] = load_places(p, wide, width, from);
            here[i] = inside ? pooling_place(p, y, x, at.y, at.x) : UINT32_MAX;
            y += x == cover->right;
            x = x == cover->right ? cover->left : x + 1;
        }
        for (int i = 0; i < WINDOWS; i++)
            for (int k = 0; k < width; k++)
                sum->v[k] += where[i].v[k] == here[i] ? diff[i].v[k] : 0;
    }
}

BODY void pooling_mean_backward(const pooling_args *p, dlc_dtype type, int width,
                                pooling_at at, const pooling_cover *cover, pack *sum) {
    for (int32_t y = cover->top; y <= cover->bottom; y++)
        for (int32_t x = cover->left; x <= cover->right; x++) {
            const pooling_part part = pooling_part_of(p, y, x);
            pack diff = load(type, width, p->from, pooling_index(p, p->out, at, y, x));
            for (int k = 0; k < width; k++)
                sum->v[k] += diff.v[k] * part.share;
        }
}

BODY void pooling_backward_at(const pooling_args *p, dlc_dtype type, int width,
                              uint32_t item) {
    const pooling_at at = pooling_split(p, 0, width, item);
    pooling_cover cover;
    cover.bottom = pooling_covering(p, 0, at.y, &cover.top);
    cover.right = pooling_covering(p, 1, at.x, &cover.left);
    pack sum;
    for (int k = 0; k < width; k++)
        sum.v[k] = 0;
    if (p->average)
        pooling_mean_backward(p, type, width, at, &cover, &sum);
    else if (cover.left <= cover.right && p->wide_place)
        pooling_max_backward(p, type, 1, width, at, &cover, &sum);
    else if (cover.left <= cover.right)
        pooling_max_backward(p, type, 0, width, at, &cover, &sum);
    store(type, width, p->to, pooling_index(p, p->in, at, at.y, at.x), sum);
}

#endif

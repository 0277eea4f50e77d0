/* Enlarging channels-last images by a whole factor. Backward gathers: for each pixel it
 * visits those that it is a part of, in a fixed order. Both directions take the share
 * that a pixel has of a larger one's from the same function. */
#ifndef DLCORE_CUDNN_UPSAMPLE_BODY_H
#define DLCORE_CUDNN_UPSAMPLE_BODY_H

#include "body.h"

typedef struct upsample_args {
    dlc_dtype type;
    int bilinear; /* 0: nearest */
    int wide;     /* 1: channels can be read 16 bytes at a time */
    int32_t factor;
    int32_t in[2], out[2]; /* rows, columns */
    int64_t channels, images;
    fast_divisor columns[2], rows[2], vectors; /* of in and out; channels / width */
    fast_divisor by;                           /* factor */
    float step;                                /* 1 / (2 * factor) */
    const void *from;                          /* forward: in; backward: out_diff */
    void *to;                                  /* forward: out; backward: in_diff */
} upsample_args;

/* Sets the derived fields. */
BODY void upsample_ready(upsample_args *u) {
    u->wide = u->channels % width_of(u->type, 1) == 0;
    u->vectors = fast_divisor_of(u->channels / width_of(u->type, u->wide));
    for (int i = 0; i < 2; i++)
        u->out[i] = u->in[i] * u->factor;
    u->rows[0] = fast_divisor_of(u->in[0]);
    u->rows[1] = fast_divisor_of(u->out[0]);
    u->columns[0] = fast_divisor_of(u->in[1]);
    u->columns[1] = fast_divisor_of(u->out[1]);
    u->by = fast_divisor_of(u->factor);
    u->step = 1 / (2 * (float)u->factor);
}

/* Threads per image: one per few channels of each output (forward) or input
 * (backward). */
BODY int64_t upsample_items(const upsample_args *u, int backward) {
    const int32_t *size = backward ? u->in : u->out;
    return u->channels / width_of(u->type, u->wide) * size[0] * size[1];
}

typedef struct upsample_at {
    int64_t image, channel;
    int32_t place[2]; /* row, column */
} upsample_at;

BODY upsample_at upsample_split(const upsample_args *u, int out, int width,
                                uint32_t item) {
    upsample_at at;
    at.channel = (int64_t)fast_divmod(&item, u->vectors) * width;
    at.place[1] = (int32_t)fast_divmod(&item, u->columns[out]);
    at.place[0] = (int32_t)fast_divmod(&item, u->rows[out]);
    at.image = item;
    return at;
}

BODY int64_t upsample_index(const upsample_args *u, const int32_t *size, upsample_at at,
                            int32_t y, int32_t x) {
    return ((at.image * size[0] + y) * size[1] + x) * u->channels + at.channel;
}

/* The share of pixel `in` in the larger image's pixel `out`, along side i, if it is one
 * of those that this is made of. Pixels at the edge continue beyond it. */
BODY float upsample_share(const upsample_args *u, int i, int32_t in, int32_t out) {
    /* between their centers, in halves of the larger image's pixels */
    int32_t apart = 2 * (out - in * u->factor) + 1 - u->factor;
    if (!u->bilinear || (apart < 0 && in == 0) || (apart > 0 && in + 1 == u->in[i]))
        return 1;
    return (float)(2 * u->factor - (apart < 0 ? -apart : apart)) * u->step;
}

/* A range of rows or columns: [begin, end). */
typedef struct upsample_range {
    int32_t begin, end;
} upsample_range;

/* The pixels that the one at `out` is made of. */
BODY upsample_range upsample_sources(const upsample_args *u, int i, int32_t out) {
    uint32_t in = (uint32_t)out;
    int32_t rest = (int32_t)fast_divmod(&in, u->by);
    upsample_range range = {(int32_t)in, (int32_t)in + 1};
    if (u->bilinear) {
        int before = 2 * rest + 1 < u->factor;
        range.begin = (int32_t)max_i64(range.begin - before, 0);
        range.end = (int32_t)min_i64(range.end + !before, u->in[i]);
    }
    return range;
}

/* The pixels that the one at `in` is a part of. */
BODY upsample_range upsample_targets(const upsample_args *u, int i, int32_t in) {
    int64_t begin = (int64_t)in * u->factor, end = begin + u->factor;
    int64_t more = u->bilinear ? u->factor / 2 : 0;
    upsample_range range = {(int32_t)max_i64(begin - more, 0),
                            (int32_t)min_i64(end + more, u->out[i])};
    return range;
}

BODY void upsample_add(pack *sum, int width, float share, const pack *value) {
    for (int k = 0; k < width; k++)
        sum->v[k] += share * value->v[k];
}

BODY void upsample_forward_at(const upsample_args *u, dlc_dtype type, int width,
                              uint32_t item) {
    const upsample_at at = upsample_split(u, 1, width, item);
    const upsample_range rows = upsample_sources(u, 0, at.place[0]);
    const upsample_range columns = upsample_sources(u, 1, at.place[1]);
    pack sum;
    for (int k = 0; k < width; k++)
        sum.v[k] = 0;
    for (int32_t y = rows.begin; y < rows.end; y++) {
        float share = upsample_share(u, 0, y, at.place[0]);
        for (int32_t x = columns.begin; x < columns.end; x++) {
            pack in = load(type, width, u->from, upsample_index(u, u->in, at, y, x));
            upsample_add(&sum, width, share * upsample_share(u, 1, x, at.place[1]),
                         &in);
        }
    }
    store(type, width, u->to, upsample_index(u, u->out, at, at.place[0], at.place[1]),
          sum);
}

BODY void upsample_backward_at(const upsample_args *u, dlc_dtype type, int width,
                               uint32_t item) {
    const upsample_at at = upsample_split(u, 0, width, item);
    const upsample_range rows = upsample_targets(u, 0, at.place[0]);
    const upsample_range columns = upsample_targets(u, 1, at.place[1]);
    pack sum;
    for (int k = 0; k < width; k++)
        sum.v[k] = 0;
    for (int32_t y = rows.begin; y < rows.end; y++) {
        float share = upsample_share(u, 0, at.place[0], y);
        for (int32_t x = columns.begin; x < columns.end; x++) {
            pack diff = load(type, width, u->from, upsample_index(u, u->out, at, y, x));
            upsample_add(&sum, width, share * upsample_share(u, 1, at.place[1], x),
                         &diff);
        }
    }
    store(type, width, u->to, upsample_index(u, u->in, at, at.place[0], at.place[1]),
          sum);
}

#endif

/* The position of an image's tiles, and how they become rows of matrices, for
 * winograd_kernels.c. */
#ifndef ONEDNN_WINOGRAD_TILES_H
#define ONEDNN_WINOGRAD_TILES_H

#include "winograd.h"
#include "winograd_points.h"
#include "winograd_products.h"

/* A pass: forward, or backward to the data, which is also a convolution, of the
 * output's gradient with flipped filters and exchanged roles of channels. */
typedef struct pass {
    size_t side, pad[2], group;
    size_t from_channels, from[2], to_channels, to[2]; /* channels of a group */
    size_t across[2], tiles; /* of an image in each direction; of the whole batch */
} pass;

static pass pass_of(const winograd_conv *c, int backward) {
    pass p = {.side = c->side, .group = c->group};
    size_t in = c->in_channels / c->group, out = c->out_channels / c->group;
    p.from_channels = backward ? out : in;
    p.to_channels = backward ? in : out;
    for (int i = 0; i < 2; i++) {
        p.pad[i] = backward ? c->side - 1 - c->pad[i] : c->pad[i];
        p.from[i] = backward ? c->out[i] : c->in[i];
        p.to[i] = backward ? c->in[i] : c->out[i];
        size_t m = POINTS + 1 - c->side;
        p.across[i] = (p.to[i] + m - 1) / m;
    }
    p.tiles = c->batch * p.across[0] * p.across[1];
    return p;
}

/* The position of a tile: its image and first output. */
typedef struct place {
    size_t image, at[2];
} place;

static place place_of(const pass *p, size_t tile) {
    size_t m = POINTS + 1 - p->side, each = p->across[0] * p->across[1];
    size_t in_image = tile % each;
    return (place){tile / each,
                   {in_image / p->across[1] * m, in_image % p->across[1] * m}};
}

static const float nothing[LANES] __attribute__((aligned(64)));

/* Offsets of a tile's `count` x `count` vectors in a plane, beginning `before` its
 * position; negative: outside. */
static void offsets_of(const place *where, const size_t *before, const size_t *size,
                       size_t count, ptrdiff_t *offset) {
    for (size_t y = 0; y < count; y++)
        for (size_t x = 0; x < count; x++) {
            size_t row = where->at[0] + y - before[0]; /* wraps around above */
            size_t column = where->at[1] + x - before[1];
            int inside = row < size[0] && column < size[1];
            *offset++ = inside ? (ptrdiff_t)((row * size[1] + column) * LANES) : -1;
        }
}

ALWAYS vec vec_or_zero(const float *plane, ptrdiff_t offset) {
    return *vec_at(offset < 0 ? nothing : plane + offset);
}

/* Vectors of channels of a group. */
typedef struct range {
    size_t group, first, count;
} range;

/* The vectors before an image's group. */
static size_t vectors_before(const pass *p, size_t image, const range *r,
                             size_t channels) {
    return (image * p->group + r->group) * (channels / LANES) + r->first;
}

/* Transforms a tile of the input to a row of each of 36 matrices, which are `apart`
 * apart. */
static void read_tile(const pass *p, const float *from, const range *r, size_t tile,
                      float *to, size_t apart) {
    place where = place_of(p, tile);
    ptrdiff_t offset[ALL];
    offsets_of(&where, p->pad, p->from, POINTS, offset);
    size_t plane = p->from[0] * p->from[1] * LANES;
    const float *image = from +
                         vectors_before(p, where.image, r, p->from_channels) * plane;
    for (size_t v = 0; v < r->count; v++, image += plane, to += LANES) {
        vec d[ALL], half[ALL];
        EACH(i, POINTS) {
            EACH(j, POINTS)
            d[j * POINTS + i] = vec_or_zero(image, offset[j * POINTS + i]);
            points_of_image(d + i, half + i, POINTS);
        }
        EACH(i, POINTS) {
            points_of_image(half + i * POINTS, d, 1);
            EACH(j, POINTS)
            *vec_to(to + (i * POINTS + j) * apart) = d[j];
        }
    }
}

#endif

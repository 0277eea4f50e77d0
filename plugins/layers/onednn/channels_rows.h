/* Where the elements of a chunk are (channels.h), as rows that the kernels read one
 * after the other, for channels_kernels.c.
 *
 * A row holds all the channels of a part of a group, and few channels are repeated for
 * several points, so that a row is always some vectors long. If vectors hold elements
 * of one channel, it is repeated in the same way. */
#ifndef ONEDNN_CHANNELS_ROWS_H
#define ONEDNN_CHANNELS_ROWS_H

#include "channels.h"
#include "vectors.h"

/* Elements of a row that repeats its channels: at least WIDE vectors, so that sums of
 * one channel don't wait for each other; some whole cache lines; and at most. */
enum { WIDE = 4, SHORTEST = WIDE * LANES, SHORTEST_BF16 = 128, LONGEST_REPEATED = 256 };
/* How far ahead memory is fetched: far enough that a core waits for none of it. */
enum { AHEAD_BYTES = 3 << 10 };
_Static_assert(CHANNEL_GROUP % SHORTEST == 0, "whole vectors");

/* `count` rows, `step` apart, of `width` adjacent elements; `ahead` is what to fetch
 * meanwhile. */
typedef struct rows {
    size_t at, step, count, width;
    size_t ahead;
} rows;

/* The images of a chunk, and the part of each: [first, first + points). */
typedef struct extent {
    size_t image, images, first, points;
} extent;

/* Adjacent channels of a group. A row has `repeat` points of `unit` elements. */
typedef struct part {
    size_t first; /* channel of the group */
    size_t unit, repeat;
} part;

static extent extent_of(const channel_view *v, size_t chunk) {
    if (v->together > 1) {
        size_t image = chunk * v->together, left = v->images - image;
        return (extent){image, left < v->together ? left : v->together, 0, v->points};
    }
    size_t first = chunk % v->pieces * v->piece, left = v->points - first;
    return (extent){chunk / v->pieces, 1, first, left < v->piece ? left : v->piece};
}

/* Number of parts of a group. */
static size_t parts_of(const channel_view *v, size_t group) {
    if (v->along || v->side > v->group)
        return 1;
    size_t left = v->blocks * v->side - group * v->group;
    return (left < v->group ? left : v->group) / v->side;
}

/* A power of two, so that sums are added in pairs. */
static size_t repeat_of(const channel_view *v, size_t unit) {
    size_t repeat = v->bf16 ? 1 : WIDE, shortest = v->bf16 ? SHORTEST_BF16 : SHORTEST;
    if (unit != v->point_step || unit >= shortest)
        return 1;
    while (repeat * unit < shortest || repeat * unit % ((size_t)2 * LANES))
        repeat *= 2;
    return repeat * unit <= LONGEST_REPEATED ? repeat : 1;
}

static part part_of(const channel_view *v, size_t group, size_t index) {
    if (v->along)
        return (part){0, LANES, WIDE};
    size_t unit = v->side < v->group ? v->side : v->group;
    size_t left = v->side - group * v->group % v->side;
    unit = unit < left ? unit : left;
    return (part){index * v->side, unit, repeat_of(v, unit)};
}

/* Elements of a row. */
static inline size_t part_width(const part *p) {
    return p->unit * p->repeat;
}

/* The first element of an image of a chunk. */
static size_t first_element(const channel_view *v, size_t group, const part *p,
                            const extent *e, size_t image) {
    size_t channel = group * v->group + p->first;
    return (e->image + image) * v->image_step + channel / v->side * v->block_step +
           channel % v->side + e->first * v->point_step;
}

/* Where the kernel goes on after an image of a part of a chunk. */
static size_t next_element(const channel_chunk *at, const extent *e, size_t index,
                           size_t image) {
    const channel_view *v = at->task->view;
    size_t parts = parts_of(v, at->group);
    if (image + 1 < e->images || index + 1 < parts) {
        size_t same = image + 1 < e->images;
        const part p = part_of(v, at->group, same ? index : index + 1);
        return first_element(v, at->group, &p, e, same ? image + 1 : 0);
    }
    const extent next = extent_of(v, at->next);
    const part p = part_of(v, at->group, 0);
    return first_element(v, at->group, &p, &next, 0);
}

enum { MOST_ROWS = 4 };

/* The rows of an image: all but the last few, the last few, which fetch what comes
 * `next`, the points that remain, and the elements of an incomplete vector. Returns
 * their number. The kernel reads `at_once` rows side by side. */
static size_t rows_of(const channel_view *v, const part *p, const extent *e,
                      size_t base, size_t next, size_t at_once, rows all[MOST_ROWS]) {
    size_t step = v->along ? LANES : v->point_step, width = part_width(p);
    size_t units = v->along ? e->points / LANES : e->points;
    size_t left = v->along ? e->points % LANES : 0;
    size_t count = units / p->repeat, rest = units % p->repeat;
    size_t last = AHEAD_BYTES / (v->bf16 ? 2 : 4) / width + 1;
    last = last > at_once ? last : at_once;
    last = last < count ? last : count;
    size_t long_step = p->repeat * step, early = count - last, n = 0;
    if (early)
        all[n++] = (rows){base, long_step, early, width, last * long_step};
    size_t at = base + early * long_step;
    if (last)
        all[n++] = (rows){at, long_step, last, width, next - at};
    if (rest)
        all[n++] = (rows){base + count * long_step, step, rest, p->unit, 0};
    if (left)
        all[n++] = (rows){base + units * step, step, 1, left, 0};
    return n;
}

#endif

/* Passes over a tensor channel by channel, for batch normalisation: how its channels
 * lie, how the work is cut, and the loops.
 *
 * A vector holds either several channels of one point (blocked layouts, channels last)
 * or several elements of one channel (plain, lanes). Channels are taken in *groups*
 * that lie side by side, all elements of a group in *chunks*. Sums of a chunk are
 * float32; chunks are added in double precision and in their order. How the tensor is
 * cut depends on its shape alone, so results don't depend on the number of threads. */
#ifndef ONEDNN_CHANNELS_H
#define ONEDNN_CHANNELS_H

#include <stddef.h>

#include "../shared/bounds.h"

enum { CHANNEL_GROUP = 256 }; /* channels of a group, at most */

/* Steps are in elements. */
typedef struct channel_view {
    int bf16;
    int along; /* a vector holds elements of one channel; each lie one after another */
    size_t channels;
    size_t side; /* channels that lie side by side, padding included */
    size_t images, points;
    size_t image_step, block_step /* between those side by side */, point_step;

    /* How the work is cut: channel_view_cut. */
    size_t blocks;        /* of `side` channels */
    size_t group, groups; /* channels of a group, but for the last */
    size_t chunks;        /* of a group */
    size_t together;      /* images of a chunk; if 1: */
    size_t pieces, piece; /* chunks of an image, and their points */
} channel_view;

/* Of the channels of one group; zero for padding. */
typedef struct channel_values {
    float mean[CHANNEL_GROUP];
    float factor[CHANNEL_GROUP], add[CHANNEL_GROUP];
    /* backward: in_diff = factor * (diff - diff_mean - (x - mean) * diff_slope) */
    float diff_mean[CHANNEL_GROUP], diff_slope[CHANNEL_GROUP];
} channel_values;

/* One pass over a tensor. What a pass does not need is NULL. */
typedef struct channel_task {
    const channel_view *view;
    bounds limit;
    int stream;        /* past the caches: what is written is too much for them */
    const void *x;     /* the input */
    const void *other; /* of a join, is added to what is normalised */
    void *y;           /* the output */
    void *out_diff, *other_diff, *in_diff;
} channel_task;

/* A kernel's part of it. */
typedef struct channel_chunk {
    const channel_task *task;
    size_t group, chunk;
} channel_chunk;

/* `sums`: view->group numbers, then as many of the second kind. */
typedef void channel_sum_fn(const channel_chunk *at, const channel_values *values,
                            double *sums);
typedef void channel_apply_fn(const channel_chunk *at, const channel_values *values);

/* Written may be over what is read, element on element. */
typedef struct channel_kernels {
    const char *name;
    size_t lanes;
    /* Of x, and of x squared. */
    channel_sum_fn *sum;
    /* y = bounded((x - mean) * factor + add), of a join bounded(.. + other). */
    channel_apply_fn *apply;
    /* Of diff, which is `out_diff` where y was not bounded, and diff * (x - mean).
     * Of a join also other_diff = diff, for which y is read. */
    channel_sum_fn *sum_back;
    /* in_diff as channel_values says; of a join from other_diff. */
    channel_apply_fn *apply_back;
} channel_kernels;

extern const channel_kernels channels_base;
#ifdef __x86_64__
extern const channel_kernels channels_avx512, channels_avx2;
#endif

/* Fills in the second half of the view. */
void channel_view_cut(channel_view *view);

/* Channels of a group. */
static inline size_t channel_count(const channel_view *view, size_t group) {
    size_t left = view->channels - group * view->group;
    return left < view->group ? left : view->group;
}

/* Two passes over each group of channels: `first` adds up all its chunks, `between`
 * makes of the sums what `second` needs, on all its chunks. The second pass goes
 * backwards, to meet what is still in the caches. */
typedef struct channel_passes {
    const channel_task *task;
    channel_sum_fn *first;    /* NULL: none; sums are zero */
    channel_apply_fn *second; /* NULL: none */
    const void *user;
    /* What `first` reads; they come as zeros. */
    void (*before)(const void *user, size_t group, channel_values *values);
    /* Several threads may work out the same group's: one of them `keeps`, which is to
     * write what is not its own. */
    void (*between)(const void *user, size_t group, int keeps, const double *sums,
                    channel_values *values);
} channel_passes;

/* Bytes that channels_run wants; 64-byte aligned. */
size_t channels_space(const channel_view *view);
void channels_run(const channel_passes *passes, void *space);

#endif

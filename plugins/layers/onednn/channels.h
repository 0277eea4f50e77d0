/* Passes over a tensor channel by channel, for batch normalisation: the memory layout
 * of channels, how work is cut, and the loops.
 *
 * A vector holds either several channels of one point (blocked layouts, channels last)
 * or several elements of one channel (plain, batch-blocked). Channels are processed in
 * *groups* of adjacent channels, the elements of a group in *chunks*. Sums of a chunk
 * are float32; chunks are added in double precision, in order. How a tensor is cut
 * depends on its shape alone, so results don't depend on the number of threads.
 */
#ifndef ONEDNN_CHANNELS_H
#define ONEDNN_CHANNELS_H

#include <stddef.h>

#include "../shared/bounds.h"

enum { CHANNEL_GROUP = 2048 }; /* most channels of a group */

/* Steps are in elements. */
typedef struct channel_view {
    int bf16;
    int along; /* a vector holds elements of one channel, whose elements are contiguous
                */
    size_t channels;
    size_t side; /* adjacent channels, padding included */
    size_t images, points;
    size_t image_step, block_step /* between blocks of adjacent channels */, point_step;

    /* How the work is cut, by channel_view_cut: */
    size_t blocks;        /* of `side` channels */
    size_t group, groups; /* channels per group, except the last */
    size_t chunks;        /* per group */
    size_t together;      /* images per chunk; if 1: */
    size_t pieces, piece; /* chunks per image, and points of each */
} channel_view;

/* Values of the channels of one group; zero for padding. */
typedef struct channel_values {
    float mean[CHANNEL_GROUP];
    float factor[CHANNEL_GROUP], add[CHANNEL_GROUP];
    /* backward: in_diff = factor * (diff - diff_mean - (x - mean) * diff_slope) */
    float diff_mean[CHANNEL_GROUP], diff_slope[CHANNEL_GROUP];
} channel_values;

/* One pass over a tensor. Unused pointers are NULL. */
typedef struct channel_task {
    const channel_view *view;
    bounds limit;
    int stream;        /* streaming stores, where the output exceeds the caches */
    const void *x;     /* the input */
    const void *other; /* of a fused sum: added to the normalised value */
    void *y;           /* the output */
    void *out_diff, *other_diff, *in_diff;
} channel_task;

/* A chunk, the unit of a kernel's work. */
typedef struct channel_chunk {
    const channel_task *task;
    size_t group, chunk;
    size_t next; /* the chunk that the same thread processes after this one */
} channel_chunk;

/* `sums`: view->group numbers, then as many of the second kind. */
typedef void channel_sum_fn(const channel_chunk *at, const channel_values *values,
                            double *sums);
typedef void channel_apply_fn(const channel_chunk *at, const channel_values *values);

/* Outputs may overwrite inputs of the same element. */
typedef struct channel_kernels {
    const char *name;
    size_t lanes;
    /* Sums of x, and of x squared. */
    channel_sum_fn *sum;
    /* y = bounded((x - mean) * factor + add), with a fused sum bounded(.. + other). */
    channel_apply_fn *apply;
    /* Sums of diff, which is `out_diff` where y was not bounded, and of diff * (x -
     * mean). With a fused sum also writes other_diff = diff, and reads y. */
    channel_sum_fn *sum_back;
    /* in_diff as in channel_values; with a fused sum from other_diff. */
    channel_apply_fn *apply_back;
} channel_kernels;

extern const channel_kernels channels_base;
#ifdef __x86_64__
extern const channel_kernels channels_avx512, channels_avx2;
#endif

/* Computes the second half of the view. */
void channel_view_cut(channel_view *view);

/* Number of channels in a group. */
static inline size_t channel_count(const channel_view *view, size_t group) {
    size_t left = view->channels - group * view->group;
    return left < view->group ? left : view->group;
}

/* Two passes over each group of channels: `first` adds up all its chunks, `between`
 * computes from the sums what `second` needs, which runs on all chunks. The second pass
 * goes backwards, to find data still in the caches. */
typedef struct channel_passes {
    const channel_task *task;
    channel_sum_fn *first;    /* NULL: none; sums are zero */
    channel_apply_fn *second; /* NULL: none */
    const void *user;
    /* Sets what `first` reads; the values are zeroed before. */
    void (*before)(const void *user, size_t group, channel_values *values);
    /* Several threads may compute this for the same group: the one with `keeps` writes
     * what is shared. */
    void (*between)(const void *user, size_t group, int keeps, const double *sums,
                    channel_values *values);
} channel_passes;

/* Bytes of `space` for channels_run, aligned to 64. */
size_t channels_space(const channel_view *view);
void channels_run(const channel_passes *passes, void *space);

#endif

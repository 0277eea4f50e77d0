/* Batch-blocked convolution: when to use it, and the offset tables of its kernels. */
#include "batch_blocked.h"

enum {
    /* A plane of a block of images should stay in the cache: all filters pass over it.
     */
    MOST_PLANE_BYTES = 64 << 10,
    MOST_CHANNELS = 16 << 10, /* offsets in an image are int */
    /* oneDNN has optimised code for images with so few channels. */
    FEW_CHANNELS = 3,
    BLOCK = 16, /* its vectors of channels */
};

static double rounded_up(size_t channels) {
    size_t blocks = (channels + BLOCK - 1) / BLOCK;
    return (double)(blocks * BLOCK) / (double)channels;
}

/* The fraction of taps inside the image along one axis: oneDNN skips those in the
 * padding. */
static double share_inside(const batch_blocked_conv *conv, int axis) {
    size_t inside = 0, all = conv->out[axis] * conv->kernel[axis];
    for (size_t o = 0; o < conv->out[axis]; o++)
        for (size_t k = 0; k < conv->kernel[axis]; k++) {
            size_t at = o * conv->stride[axis] + k * conv->step[axis];
            inside += at >= conv->pad[axis] && at < conv->pad[axis] + conv->in[axis];
        }
    return (double)inside / (double)all;
}

static size_t in_channels(const batch_blocked_conv *conv) {
    return conv->in_channels / conv->group;
}

int batch_blocked_possible(const batch_blocked_conv *conv,
                           const batch_blocked_kernels *kernels) {
    size_t vector = kernels->lanes * sizeof(float);
    size_t in_plane = (conv->in[0] + 2 * conv->pad[0]) *
                      (conv->in[1] + 2 * conv->pad[1]) * vector;
    size_t out_plane = conv->out[0] * conv->out[1] * vector;
    return conv->batch % kernels->lanes == 0 && in_plane <= MOST_PLANE_BYTES &&
           out_plane <= MOST_PLANE_BYTES && in_channels(conv) < MOST_CHANNELS;
}

int batch_blocked_worthwhile(const batch_blocked_conv *conv) {
    double waste = rounded_up(conv->out_channels / conv->group);
    if (in_channels(conv) > FEW_CHANNELS)
        waste *= rounded_up(in_channels(conv));
    return waste * share_inside(conv, 0) * share_inside(conv, 1) >= 1.15;
}

static size_t tap_count(const batch_blocked_conv *conv) {
    return in_channels(conv) * conv->kernel[0] * conv->kernel[1];
}

size_t batch_blocked_table_bytes(const batch_blocked_conv *conv) {
    return (tap_count(conv) + conv->out[0] * conv->out[1]) * sizeof(int);
}

void batch_blocked_tables(batch_blocked_conv *conv,
                          const batch_blocked_kernels *kernels, void *memory) {
    conv->kernels = kernels;
    conv->taps = tap_count(conv);
    conv->positions = conv->out[0] * conv->out[1];
    for (int i = 0; i < 2; i++)
        conv->padded[i] = conv->in[i] + 2 * conv->pad[i];
    size_t height = conv->padded[0], width = conv->padded[1], lanes = kernels->lanes;
    int *at = conv->tap = memory;
    for (size_t c = 0; c < in_channels(conv); c++)
        for (size_t y = 0; y < conv->kernel[0]; y++)
            for (size_t x = 0; x < conv->kernel[1]; x++)
                *at++ = (int)(((c * height + y * conv->step[0]) * width +
                               x * conv->step[1]) *
                              lanes);
    conv->position = at;
    for (size_t y = 0; y < conv->out[0]; y++)
        for (size_t x = 0; x < conv->out[1]; x++)
            *at++ = (int)((y * conv->stride[0] * width + x * conv->stride[1]) * lanes);
}

size_t batch_blocked_space(const batch_blocked_conv *conv) {
    if (!conv->pad[0] && !conv->pad[1])
        return 0;
    return conv->batch * conv->in_channels * (conv->in[0] + 2 * conv->pad[0]) *
           (conv->in[1] + 2 * conv->pad[1]) * sizeof(float);
}

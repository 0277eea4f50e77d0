/* See lanes.h: when, and the tables that the kernels walk by. */
#include "lanes.h"

enum {
    /* A plane of L images must stay near: all filters pass over it. */
    MOST_PLANE_BYTES = 64 << 10,
    MOST_CHANNELS = 16 << 10, /* offsets in an image are int */
    /* oneDNN has code of its own for images of so few channels. */
    FEW_CHANNELS = 3,
    BLOCK = 16, /* its vectors of channels */
};

static double rounded_up(size_t channels) {
    size_t blocks = (channels + BLOCK - 1) / BLOCK;
    return (double)(blocks * BLOCK) / (double)channels;
}

/* Taps that meet the image along one axis, of all that are computed: oneDNN leaves
 * out those that meet the padding. */
static double share_inside(const lanes_conv *conv, int axis) {
    size_t inside = 0, all = conv->out[axis] * conv->kernel[axis];
    for (size_t o = 0; o < conv->out[axis]; o++)
        for (size_t k = 0; k < conv->kernel[axis]; k++) {
            size_t at = o * conv->stride[axis] + k * conv->step[axis];
            inside += at >= conv->pad[axis] && at < conv->pad[axis] + conv->in[axis];
        }
    return (double)inside / (double)all;
}

static size_t in_channels(const lanes_conv *conv) {
    return conv->in_channels / conv->group;
}

int lanes_possible(const lanes_conv *conv, const lanes_kernels *kernels) {
    size_t vector = kernels->lanes * sizeof(float);
    size_t in_plane = (conv->in[0] + 2 * conv->pad[0]) *
                      (conv->in[1] + 2 * conv->pad[1]) * vector;
    size_t out_plane = conv->out[0] * conv->out[1] * vector;
    return conv->batch % kernels->lanes == 0 && in_plane <= MOST_PLANE_BYTES &&
           out_plane <= MOST_PLANE_BYTES && in_channels(conv) < MOST_CHANNELS;
}

int lanes_worthwhile(const lanes_conv *conv) {
    double waste = rounded_up(conv->out_channels / conv->group);
    if (in_channels(conv) > FEW_CHANNELS)
        waste *= rounded_up(in_channels(conv));
    return waste * share_inside(conv, 0) * share_inside(conv, 1) >= 1.15;
}

static size_t tap_count(const lanes_conv *conv) {
    return in_channels(conv) * conv->kernel[0] * conv->kernel[1];
}

size_t lanes_conv_table_bytes(const lanes_conv *conv) {
    return (tap_count(conv) + conv->out[0] * conv->out[1]) * sizeof(int);
}

void lanes_conv_tables(lanes_conv *conv, const lanes_kernels *kernels, void *memory) {
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

size_t lanes_conv_space(const lanes_conv *conv) {
    if (!conv->pad[0] && !conv->pad[1])
        return 0;
    return conv->batch * conv->in_channels * (conv->in[0] + 2 * conv->pad[0]) *
           (conv->in[1] + 2 * conv->pad[1]) * sizeof(float);
}

/* Which convolutions are folded, and how. */
#include "fold.h"

#include <string.h>

static int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

/* Multiplications of an output, with engines that read four channels of a pixel at
 * least. */
enum { LEAST_CHANNELS = 4, WORTH = 2 };

static int saves_work(const fold *f) {
    int64_t folded = (int64_t)f->taps[0] * f->taps[1] * f->depth;
    int64_t plain = (int64_t)f->kernel[0] * f->kernel[1] * LEAST_CHANNELS;
    return folded <= WORTH * plain;
}

int fold_make(fold *f, int64_t channels, const int64_t pixels[2], const int64_t out[2],
              int at_once, sliding_window *window) {
    const int64_t stride = window->stride[0];
    int64_t depth = divide_up(channels * stride * stride, at_once) * at_once;
    sliding_window over = *window;
    memset(f, 0, sizeof *f);
    if (stride < 2 || window->stride[1] != stride || depth > FOLD_DEPTH)
        return 0;
    fold made = {.stride = (int32_t)stride,
                 .channels = (int32_t)channels,
                 .depth = (int32_t)depth};
    for (int i = 0; i < 2; i++) {
        int64_t pad = divide_up(window->pad_begin[i], stride); /* blocks */
        int64_t before = pad * stride - window->pad_begin[i];
        int64_t taps = divide_up(window->kernel[i] + before, stride);
        int64_t reached = out[i] - 1 + taps - pad; /* blocks after the padding */
        int64_t blocks = divide_up(pixels[i], stride);
        if (window->dilation[i] || reached < 1)
            return 0;
        blocks = blocks < reached ? blocks : reached;
        made.pixels[i] = (int32_t)pixels[i];
        made.blocks[i] = (int32_t)blocks;
        made.kernel[i] = (int32_t)window->kernel[i];
        made.taps[i] = (int32_t)taps;
        made.before[i] = (int32_t)before;
        over.kernel[i] = taps;
        over.stride[i] = 1;
        over.pad_begin[i] = pad;
        over.pad_end[i] = reached - blocks;
    }
    if (!saves_work(&made))
        return 0;
    *f = made;
    *window = over;
    return 1;
}

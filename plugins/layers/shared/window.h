/* The sliding window of convolution and pooling: its options, and the size of the
 * output over an image. */
#ifndef LAYERS_SHARED_WINDOW_H
#define LAYERS_SHARED_WINDOW_H

#include <dlcore/layer.h>

#define WINDOW_MAX 65536

/* Room for oneDNN's number of dimensions; two are used: rows, columns. */
enum { WINDOW_DIMS = 12 };

/* Dilation counts the points left out between two taps: 0 is none. */
typedef struct sliding_window {
    int64_t kernel[WINDOW_DIMS], stride[WINDOW_DIMS], dilation[WINDOW_DIMS],
        pad_begin[WINDOW_DIMS], pad_end[WINDOW_DIMS];
} sliding_window;

/* Reads the options of the window. `layer` is the layer's name, for messages. With
 * `global` (the whole image) no kernel size may be given; window_global() sets it once
 * the image is known. Dilation stays none. */
dlc_status window_read(const char *layer, const dlc_settings *settings, int global,
                       sliding_window *w);
void window_global(const dlc_shape *in, sliding_window *w);

/* Computes the number of windows, and pad_end so that they fit: rounded down, or with
 * `ceil` up, so that the last, overhanging window counts if it begins inside the image
 * (as in Caffe). */
dlc_status window_slide(const char *layer, const dlc_shape *in, int ceil,
                        sliding_window *w, int64_t out[2]);
/* The size of the image over which as many windows slide as the input has pixels, as
 * those of a transposed convolution do. */
dlc_status window_spread(const char *layer, const dlc_shape *in, sliding_window *w,
                         int64_t out[2]);

#endif

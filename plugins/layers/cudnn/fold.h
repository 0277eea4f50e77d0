/* A convolution with a stride over images of few channels, as one without a stride over
 * blocks of stride x stride pixels whose channels are those of all their pixels ("space
 * to depth"). Tensor cores multiply eight channels or more at once, and colours are
 * three: ResNet's first layer (7 x 7, stride 2) then takes 4 x 4 taps of 12 channels
 * instead of 7 x 7 of 3, which engines pad to 4 or 8. The products are the same;
 * weights of pixels that the window does not reach are zero.
 *
 * Channel c of pixel (y, x) of a block is channel (y * stride + x) * channels + c. */
#ifndef DLCORE_CUDNN_FOLD_H
#define DLCORE_CUDNN_FOLD_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#include "../shared/window.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { FOLD_DEPTH = 64 }; /* most channels of a block */

/* Rows first, then columns. */
typedef struct fold {
    int32_t stride;               /* 0: not folded */
    int32_t channels;             /* of the images and the weights */
    int32_t depth;                /* channels of a block in memory, padded with zeros */
    int32_t pixels[2], blocks[2]; /* of an image */
    int32_t kernel[2], taps[2];   /* of the window, in pixels and in blocks */
    int32_t before[2];            /* pixels before the window in its first block */
} fold;

/* Fills in *f, and *window with the window over blocks, and returns 1 if folding saves
 * work. `at_once`: channels that an engine reads at once. */
int fold_make(fold *f, int64_t channels, const int64_t pixels[2], const int64_t out[2],
              int at_once, sliding_window *window);

/* Enqueued on `stream`: images of `from_dtype`, channels x rows x columns, to blocks of
 * `dtype`; weights of float32, outputs x kernel x channels, to outputs x taps x depth
 * of `dtype`; and their gradient back to float32. */
cudaError_t fold_images(const fold *f, int from_dtype, const void *from, int dtype,
                        void *to, int64_t images, cudaStream_t stream);
cudaError_t fold_weights(const fold *f, int dtype, const float *from, void *to,
                         int64_t outputs, cudaStream_t stream);
cudaError_t fold_gradient(const fold *f, int dtype, const void *from, float *to,
                          int64_t outputs, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

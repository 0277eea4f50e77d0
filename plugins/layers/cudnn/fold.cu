/* Folds images and weights, and unfolds the weights' gradient. */
#include "fold.h"

#include <dlcore/tensor.h>

#include "launch.h"
#include "values.cuh"

namespace {

enum { THREADS = 256, MOST_BLOCKS = 65535 };

/* A channel of a block: its pixel, and where its number is from the first of the block.
 */
struct source {
    int32_t y, x, offset;
};

__device__ __forceinline__ source source_of(const fold &f, int channel) {
    int pixel = channel / f.channels, c = channel % f.channels;
    source s = {pixel / f.stride, pixel % f.stride, 0};
    s.offset = (c * f.pixels[0] + s.y) * f.pixels[1] + s.x;
    if (s.y >= f.stride)
        s.y = f.pixels[0]; /* padding: outside of all images */
    return s;
}

/* A thread stores WIDE channels of a block; the grid goes over columns, rows, images.
 */
template <typename A, typename B, int WIDE>
__global__ void __launch_bounds__(THREADS)
    images(const __grid_constant__ fold f, const A *__restrict__ from,
           B *__restrict__ to, int64_t count) {
    __shared__ source sources[FOLD_DEPTH];
    if (threadIdx.x < (unsigned)f.depth)
        sources[threadIdx.x] = source_of(f, (int)threadIdx.x);
    __syncthreads();
    int packs = f.depth / WIDE, item = (int)(blockIdx.x * THREADS + threadIdx.x);
    int column = item / packs, first = item % packs * WIDE, row = (int)blockIdx.y;
    if (column >= f.blocks[1])
        return;
    int64_t plane = (int64_t)f.pixels[0] * f.pixels[1];
    for (int64_t image = blockIdx.z; image < count; image += gridDim.z) {
        const A *at = from + image * f.channels * plane +
                      (int64_t)row * f.stride * f.pixels[1] + column * f.stride;
        float v[WIDE];
#pragma unroll
        for (int i = 0; i < WIDE; i++) {
            const source s = sources[first + i];
            bool inside = row * f.stride + s.y < f.pixels[0] &&
                          column * f.stride + s.x < f.pixels[1];
            v[i] = inside ? to_float(at[s.offset]) : 0;
        }
        int64_t block = (image * f.blocks[0] + row) * f.blocks[1] + column;
        store<B, WIDE>(v, to + block * f.depth + first);
    }
}

/* Where weight i, of outputs x kernel x channels, is among the folded ones. */
__device__ __forceinline__ int64_t folded_at(const fold &f, int64_t i) {
    int each = f.kernel[0] * f.kernel[1] * f.channels;
    int at = (int)(i % each), point = at / f.channels;
    int row = point / f.kernel[1] + f.before[0];
    int column = point % f.kernel[1] + f.before[1];
    int tap = row / f.stride * f.taps[1] + column / f.stride;
    int pixel = row % f.stride * f.stride + column % f.stride;
    return (i / each * f.taps[0] * f.taps[1] + tap) * f.depth + pixel * f.channels +
           at % f.channels;
}

/* The weights were cleared before. */
template <typename T>
__global__ void weights(const __grid_constant__ fold f, const float *from, T *to,
                        int64_t count) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        to[folded_at(f, i)] = from_float<T>(from[i]);
}

template <typename T>
__global__ void gradient(const __grid_constant__ fold f, const T *from, float *to,
                         int64_t count) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < count)
        to[i] = to_float(from[folded_at(f, i)]);
}

template <typename A, typename B>
void launch_images(const fold *f, const void *from, void *to, int64_t count,
                   cudaStream_t stream) {
    const auto kernel = images<A, B, widest<B>::N>;
    const int64_t most = MOST_BLOCKS;
    int items = f->blocks[1] * (f->depth / widest<B>::N);
    const dim3 blocks((unsigned)((items + THREADS - 1) / THREADS),
                      (unsigned)f->blocks[0], (unsigned)(count < most ? count : most));
    LAUNCH(kernel, blocks, THREADS, stream, *f, (const A *)from, (B *)to, count);
}

template <typename A>
void launch_images_to(const fold *f, int dtype, const void *from, void *to,
                      int64_t count, cudaStream_t stream) {
    if (dtype == DLC_BF16)
        launch_images<A, __nv_bfloat16>(f, from, to, count, stream);
    else if (dtype == DLC_F16)
        launch_images<A, __half>(f, from, to, count, stream);
    else
        launch_images<A, float>(f, from, to, count, stream);
}

int64_t weights_of(const fold *f, int64_t outputs) {
    return outputs * f->kernel[0] * f->kernel[1] * f->channels;
}

unsigned blocks_for(int64_t count) {
    return (unsigned)((count + THREADS - 1) / THREADS);
}

template <typename T>
void launch_weights(const fold *f, const float *from, void *to, int64_t outputs,
                    cudaStream_t stream) {
    const auto kernel = weights<T>;
    int64_t count = weights_of(f, outputs);
    LAUNCH(kernel, blocks_for(count), THREADS, stream, *f, from, (T *)to, count);
}

template <typename T>
void launch_gradient(const fold *f, const void *from, float *to, int64_t outputs,
                     cudaStream_t stream) {
    const auto kernel = gradient<T>;
    int64_t count = weights_of(f, outputs);
    LAUNCH(kernel, blocks_for(count), THREADS, stream, *f, (const T *)from, to, count);
}

/* Calls call<type>(...). */
#define BY_TYPE(dtype, call, ...) \
    if ((dtype) == DLC_BF16) \
        call<__nv_bfloat16>(__VA_ARGS__); \
    else if ((dtype) == DLC_F16) \
        call<__half>(__VA_ARGS__); \
    else \
        call<float>(__VA_ARGS__);

} // namespace

cudaError_t fold_images(const fold *f, int from_dtype, const void *from, int dtype,
                        void *to, int64_t images, cudaStream_t stream) {
    BY_TYPE(from_dtype, launch_images_to, f, dtype, from, to, images, stream)
    return cudaPeekAtLastError();
}

cudaError_t fold_weights(const fold *f, int dtype, const float *from, void *to,
                         int64_t outputs, cudaStream_t stream) {
    size_t bytes = (size_t)outputs * f->taps[0] * f->taps[1] * f->depth *
                   dlc_dtype_bytes((dlc_dtype)dtype);
    cudaError_t error = cudaMemsetAsync(to, 0, bytes, stream);
    if (error != cudaSuccess)
        return error;
    BY_TYPE(dtype, launch_weights, f, from, to, outputs, stream)
    return cudaPeekAtLastError();
}

cudaError_t fold_gradient(const fold *f, int dtype, const void *from, float *to,
                          int64_t outputs, cudaStream_t stream) {
    BY_TYPE(dtype, launch_gradient, f, from, to, outputs, stream)
    return cudaPeekAtLastError();
}

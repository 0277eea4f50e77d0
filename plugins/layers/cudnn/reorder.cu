/* Tiles are transposed in shared memory, so that both reads and writes are coalesced.
 * Images of few channels (colours) are transposed point by point. */
#include "reorder.h"

#include <dlcore/tensor.h>

#include "launch.h"
#include "values.cuh"

namespace {

enum { THREADS = 256, TILE = 32, ROWS = 8, FEW = 4, MOST_BLOCKS = 65535 };

unsigned blocks_for(int64_t items, int64_t each) {
    int64_t blocks = (items + each - 1) / each;
    const int64_t most = MOST_BLOCKS;
    return (unsigned)(blocks < 1 ? 1 : blocks < most ? blocks : most);
}

struct shape {
    int64_t images, channels, points, from_channels, to_channels;
};

/* Both tensors have the same order and as many channels in memory. */
template <typename A, typename B>
__global__ void copy_values(const A *__restrict__ from, B *__restrict__ to,
                            int64_t count) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += step)
        to[i] = from_float<B>(to_float(from[i]));
}

template <typename A, typename B>
__global__ void copy_wide(const A *__restrict__ from, B *__restrict__ to,
                          int64_t packs) {
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < packs;
         i += step) {
        float v[4];
        load<A, 4>(from + 4 * i, v);
        store<B, 4>(v, to + 4 * i);
    }
}

template <typename A, typename B>
__global__ void repad(const A *__restrict__ from, B *__restrict__ to, shape s) {
    int64_t count = s.images * s.points * s.to_channels;
    int64_t step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count;
         i += step) {
        int64_t row = i / s.to_channels, c = i % s.to_channels;
        float v = c < s.channels ? to_float(from[row * s.from_channels + c]) : 0;
        to[i] = from_float<B>(v);
    }
}

/* Channels x points -> points x channels for few channels: one thread per point, which
 * stores its channels at once. The second dimension of the grid goes over images. */
template <typename A, typename B, int TO>
__global__ void colours_last(const A *__restrict__ from, B *__restrict__ to, shape s) {
    int64_t point = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    for (int64_t image = blockIdx.y; image < s.images && point < s.points;
         image += gridDim.y) {
        const A *at = from + image * s.channels * s.points + point;
        float v[TO];
#pragma unroll
        for (int c = 0; c < TO; c++)
            v[c] = c < s.channels ? to_float(at[c * s.points]) : 0;
        B *pixel = to + (image * s.points + point) * TO;
        if constexpr (TO == 3)
            for (int c = 0; c < TO; c++)
                pixel[c] = from_float<B>(v[c]);
        else
            store<B, TO>(v, pixel);
    }
}

/* Transposes one matrix per image, rows x columns -> columns x rows. A pitch is the
 * length of a row in memory; the padding of the result is zeroed. */
template <typename A, typename B>
__global__ void transpose(const A *__restrict__ from, B *__restrict__ to,
                          int64_t images, int64_t rows, int64_t columns,
                          int64_t from_pitch, int64_t to_pitch, int64_t from_image,
                          int64_t to_image) {
    __shared__ float tile[TILE][TILE + 1];
    int64_t row_tiles = (to_pitch + TILE - 1) / TILE;
    int64_t tiles = row_tiles * ((columns + TILE - 1) / TILE) * images;
    for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
        int64_t row0 = t % row_tiles * TILE, rest = t / row_tiles;
        int64_t column_tiles = (columns + TILE - 1) / TILE;
        int64_t column0 = rest % column_tiles * TILE, image = rest / column_tiles;
        for (int y = threadIdx.y; y < TILE; y += ROWS) {
            int64_t row = row0 + y, column = column0 + threadIdx.x;
            tile[y][threadIdx.x] =
                row < rows && column < columns
                    ? to_float(from[image * from_image + row * from_pitch + column])
                    : 0;
        }
        __syncthreads();
        for (int y = threadIdx.y; y < TILE; y += ROWS) {
            int64_t row = row0 + threadIdx.x, column = column0 + y;
            if (row < to_pitch && column < columns)
                to[image * to_image + column * to_pitch + row] = from_float<B>(
                    tile[threadIdx.x][y]);
        }
        __syncthreads();
    }
}

template <typename A, typename B>
void launch_colours(const A *from, B *to, const shape &s, cudaStream_t stream) {
    typedef void kernel_of(const A *, B *, shape);
    static kernel_of *const kernels[] = {colours_last<A, B, 1>, colours_last<A, B, 2>,
                                         colours_last<A, B, 3>, colours_last<A, B, 4>};
    kernel_of *const kernel = kernels[s.to_channels - 1];
    const dim3 blocks((unsigned)((s.points + THREADS - 1) / THREADS),
                      blocks_for(s.images, 1));
    LAUNCH(kernel, blocks, THREADS, stream, from, to, s);
}

template <typename A, typename B>
void launch(const reorder_job *job, const void *src, void *dst, cudaStream_t stream) {
    const A *from = (const A *)src;
    B *to = (B *)dst;
    const shape s = {job->images, job->channels, job->points, job->from.channels,
                     job->to.channels};
    int64_t count = s.images * s.points * s.to_channels;
    const dim3 threads(TILE, ROWS);
    if (job->from.last == job->to.last && s.from_channels == s.to_channels) {
        const auto wide = copy_wide<A, B>;
        const auto single = copy_values<A, B>;
        if (count % 4 == 0)
            LAUNCH(wide, blocks_for(count / 4, THREADS), THREADS, stream, from, to,
                   count / 4);
        else
            LAUNCH(single, blocks_for(count, THREADS), THREADS, stream, from, to,
                   count);
    } else if (job->from.last && job->to.last) {
        const auto kernel = repad<A, B>;
        LAUNCH(kernel, blocks_for(count, THREADS), THREADS, stream, from, to, s);
    } else if (job->to.last && s.to_channels <= FEW) {
        launch_colours(from, to, s, stream);
    } else if (job->to.last) { /* channels x points -> points x channels */
        const auto kernel = transpose<A, B>;
        LAUNCH(kernel, blocks_for(count, TILE * TILE), threads, stream, from, to,
               s.images, s.channels, s.points, s.points, s.to_channels,
               s.channels * s.points, s.to_channels * s.points);
    } else { /* points x channels -> channels x points */
        const auto kernel = transpose<A, B>;
        LAUNCH(kernel, blocks_for(count, TILE * TILE), threads, stream, from, to,
               s.images, s.points, s.channels, s.from_channels, s.points,
               s.from_channels * s.points, s.channels * s.points);
    }
}

template <typename A>
void launch_to(const reorder_job *job, const void *src, void *dst,
               cudaStream_t stream) {
    if (job->to.dtype == DLC_BF16)
        launch<A, __nv_bfloat16>(job, src, dst, stream);
    else if (job->to.dtype == DLC_F16)
        launch<A, __half>(job, src, dst, stream);
    else
        launch<A, float>(job, src, dst, stream);
}

} // namespace

cudaError_t reorder_launch(const reorder_job *job, const void *src, void *dst,
                           cudaStream_t stream) {
    if (job->from.dtype == DLC_BF16)
        launch_to<__nv_bfloat16>(job, src, dst, stream);
    else if (job->from.dtype == DLC_F16)
        launch_to<__half>(job, src, dst, stream);
    else
        launch_to<float>(job, src, dst, stream);
    return cudaPeekAtLastError();
}

cudaError_t convert_launch(int from, const void *src, int to, void *dst, int64_t count,
                           cudaStream_t stream) {
    reorder_job job = {};
    job.from.dtype = from;
    job.to.dtype = to;
    job.images = count;
    job.from.channels = job.to.channels = job.channels = job.points = 1;
    return reorder_launch(&job, src, dst, stream);
}

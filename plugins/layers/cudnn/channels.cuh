/* Channels-last tensors as a matrix of rows (images and positions) x channels: how
 * threads traverse it, and sums over its rows in an order that depends on its shape
 * alone.
 *
 * A block has `across` x `down` threads. A thread handles as many channels as it loads
 * at once (WIDE) and goes down the rows of its chunk in steps of `down`. The sums of a
 * chunk are float32; a second kernel adds up the chunks. */
#ifndef DLCORE_CUDNN_CHANNELS_CUH
#define DLCORE_CUDNN_CHANNELS_CUH

#include <dlcore/tensor.h>

#include "values.cuh"

enum { BLOCK = 256, ACROSS_MOST = 32 };
enum { AHEAD = 4 }; /* rows of a thread in flight */
/* Multiples of what 132 multiprocessors (H100, H200) hold: two blocks each. */
enum { BLOCKS_SUMMED = 528, BLOCKS_APART = 4224 };

struct tiling {
    int64_t rows, channels, chunk_rows;
    unsigned groups, chunks, across, down;
    bool last_first; /* begins with the last chunk */
};

static inline tiling tiling_in(int64_t rows, int64_t channels, int wide,
                               int64_t blocks) {
    tiling t = {};
    int64_t columns = channels / wide;
    t.rows = rows;
    t.channels = channels;
    t.across = 1;
    while (t.across < ACROSS_MOST && t.across < columns)
        t.across *= 2;
    t.down = BLOCK / t.across;
    t.groups = (unsigned)((columns + t.across - 1) / t.across);
    int64_t step = (int64_t)t.down * AHEAD, steps = (rows + step - 1) / step;
    int64_t wanted = blocks / t.groups > 0 ? blocks / t.groups : 1;
    t.chunk_rows = (steps + wanted - 1) / wanted * step;
    t.chunks = (unsigned)((rows + t.chunk_rows - 1) / t.chunk_rows);
    return t;
}

/* For sums: each chunk costs the second kernel. */
static inline tiling tiling_of(int64_t rows, int64_t channels, int wide) {
    return tiling_in(rows, channels, wide, BLOCKS_SUMMED);
}

/* For a pass without sums over what the pass before has just read or written: its end
 * may be in the cache still. */
static inline tiling tiling_backwards(int64_t rows, int64_t channels, int wide) {
    tiling t = tiling_in(rows, channels, wide, BLOCKS_APART);
    t.last_first = true;
    return t;
}

static inline dim3 tiling_grid(const tiling &t) {
    return dim3(t.groups, t.chunks);
}

static inline dim3 tiling_block(const tiling &t) {
    return dim3(t.across, t.down);
}

/* Sets the first channel of this thread; false if it has none. */
template <int WIDE>
static __device__ __forceinline__ bool own_channel(const tiling &t, int64_t *channel) {
    *channel = ((int64_t)blockIdx.x * t.across + threadIdx.x) * WIDE;
    return *channel < t.channels;
}

/* Does load(i, at) and then use(i, at) for this thread's rows, where `at` is the place
 * of the row's first channel. AHEAD of them, i from 0, are loaded before the first is
 * used, so that enough loads are in flight: behind a store a compiler must not move a
 * load up. */
template <typename LOAD, typename USE>
static __device__ __forceinline__ void for_rows(const tiling &t, int64_t channel,
                                                LOAD load, USE use) {
    int64_t chunk = t.last_first ? t.chunks - 1 - blockIdx.y : blockIdx.y;
    int64_t end = (chunk + 1) * t.chunk_rows;
    end = end < t.rows ? end : t.rows;
    for (int64_t row = chunk * t.chunk_rows + threadIdx.y; row < end;
         row += AHEAD * t.down) {
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (row + i * t.down < end)
                load(i, (row + i * t.down) * t.channels + channel);
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            if (row + i * t.down < end)
                use(i, (row + i * t.down) * t.channels + channel);
    }
}

/* Adds up a block's SUMS numbers per channel and writes them to
 * partial[sum][chunk][channel]. All threads of the block must call it. */
template <int WIDE, int SUMS>
static __device__ __forceinline__ void
reduce_block(const tiling &t, float (&sums)[SUMS][WIDE], float *partial) {
    __shared__ float shared[BLOCK * WIDE];
    int64_t channel;
    bool mine = own_channel<WIDE>(t, &channel);
    int at = threadIdx.y * t.across + threadIdx.x;
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
#pragma unroll
        for (int i = 0; i < WIDE; i++)
            shared[i * BLOCK + at] = sums[s][i];
        __syncthreads();
        for (unsigned step = t.down / 2; step; step /= 2) {
            if (threadIdx.y < step)
#pragma unroll
                for (int i = 0; i < WIDE; i++)
                    shared[i * BLOCK + at] += shared[i * BLOCK + at + step * t.across];
            __syncthreads();
        }
        if (threadIdx.y == 0 && mine)
#pragma unroll
            for (int i = 0; i < WIDE; i++)
                partial[((int64_t)s * t.chunks + blockIdx.y) * t.channels + channel +
                        i] = shared[i * BLOCK + at];
        __syncthreads();
    }
}

/* Adds up the chunks, in a block of SIDE channels x SIDE slices of the chunks. Returns
 * true in the one thread per channel that gets the sums. All threads of the block must
 * call it. */
enum { SIDE = 32 };

template <int SUMS>
static __device__ __forceinline__ bool
reduce_chunks(const float *partial, int64_t chunks, int64_t channels,
              double (&sums)[SUMS], int64_t *channel) {
    __shared__ double shared[SIDE][SIDE];
    double mine[SUMS] = {};
    *channel = (int64_t)blockIdx.x * SIDE + threadIdx.x;
    if (*channel < channels)
#pragma unroll 8
        for (int64_t chunk = threadIdx.y; chunk < chunks; chunk += SIDE)
#pragma unroll
            for (int s = 0; s < SUMS; s++)
                mine[s] += (double)partial[(s * chunks + chunk) * channels + *channel];
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
        shared[threadIdx.y][threadIdx.x] = mine[s];
        __syncthreads();
        for (unsigned step = SIDE / 2; step; step /= 2) {
            if (threadIdx.y < step)
                shared[threadIdx.y][threadIdx.x] +=
                    shared[threadIdx.y + step][threadIdx.x];
            __syncthreads();
        }
        sums[s] = shared[0][threadIdx.x];
        __syncthreads();
    }
    return threadIdx.y == 0 && *channel < channels;
}

static inline unsigned reduction_blocks(int64_t channels) {
    return (unsigned)((channels + SIDE - 1) / SIDE);
}

static inline dim3 reduction_block() {
    return dim3(SIDE, SIDE);
}

/* Bytes of the partial sums. */
static inline size_t partial_bytes(const tiling &t, size_t sums) {
    return sums * sizeof(float) * t.chunks * (size_t)t.channels;
}

/* ---- By the type of a job, which has `dtype`, `rows` and `channels` ---------- */

template <typename T> static inline int wide_for(int64_t channels) {
    return channels % widest<T>::N ? 1 : widest<T>::N;
}

template <typename JOB> static inline int width_for(const JOB *job) {
    return job->dtype == DLC_F32 ? wide_for<float>(job->channels)
                                 : wide_for<__half>(job->channels);
}

template <typename JOB> static inline tiling tiling_for(const JOB *job) {
    return tiling_of(job->rows, job->channels, width_for(job));
}

/* Calls call<type, width>(job, ...). */
#define DISPATCH_TYPE(type, call, job, ...) \
    if (wide_for<type>((job)->channels) == 1) \
        call<type, 1>(job, __VA_ARGS__); \
    else \
        call<type, widest<type>::N>(job, __VA_ARGS__);
#define DISPATCH(call, job, ...) \
    if ((job)->dtype == DLC_BF16) { \
        DISPATCH_TYPE(__nv_bfloat16, call, job, __VA_ARGS__) \
    } else if ((job)->dtype == DLC_F16) { \
        DISPATCH_TYPE(__half, call, job, __VA_ARGS__) \
    } else { \
        DISPATCH_TYPE(float, call, job, __VA_ARGS__) \
    }

/* relu, leaky relu or clip (bounds.h). */
struct limits {
    float low, high, slope;
};

static __device__ __forceinline__ float limited(const limits &b, float v) {
    if (v <= b.low)
        v = b.slope != 0 ? b.slope * v : b.low;
    return v >= b.high ? b.high : v;
}

static __device__ __forceinline__ float limited_gradient(const limits &b, float v,
                                                         float diff) {
    if (v <= b.low)
        diff = b.slope != 0 ? b.slope * diff : 0;
    return v >= b.high ? 0 : diff;
}

#endif

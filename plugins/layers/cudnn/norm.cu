/* Forward makes three passes over memory (two reads, one write) and backward five
 * (reading gradient and x twice, one write). Sums are added in an order that depends on
 * the shape alone. */
#include "norm.h"

#include <dlcore/tensor.h>

#include "../shared/moments.h"
#include "channels.cuh"
#include "launch.h"

namespace {

/* The numbers that normalize a channel. */
template <int WIDE> struct values {
    float mean[WIDE], inverse[WIDE], factor[WIDE], add[WIDE];
};

template <int WIDE>
__device__ __forceinline__ void values_of(const norm_job &job, int64_t channel,
                                          values<WIDE> &v) {
#pragma unroll
    for (int i = 0; i < WIDE; i++) {
        int64_t c = channel + i;
        v.mean[i] = job.inverse ? job.mean[c] : job.running_mean[c];
        v.inverse[i] = job.inverse
                           ? job.inverse[c]
                           : 1.0f / sqrtf(job.running_variance[c] + job.epsilon);
        v.factor[i] = job.scale ? v.inverse[i] * job.scale[c] : v.inverse[i];
        v.add[i] = job.bias ? job.bias[c] : 0;
    }
}

template <int WIDE>
__device__ __forceinline__ float normalised(const values<WIDE> &v, int i, float x) {
    return fmaf(x - v.mean[i], v.factor[i], v.add[i]);
}

__device__ __forceinline__ limits limits_of(const norm_job &job) {
    limits b = {job.low, job.high, job.slope};
    return b;
}

/* Sums of x - p and (x - p)^2, where p is the first number of the channel. The
 * remainder is small compared with the deviation, however large the mean is. */
template <typename T, int WIDE>
__global__ void sum(tiling t, const T *__restrict__ x, float *partial) {
    int64_t channel;
    bool mine = own_channel<WIDE>(t, &channel);
    float sums[2][WIDE] = {};
    float pivot[WIDE] = {};
    if (mine)
        load<T, WIDE>(x + channel, pivot);
#pragma unroll 4
    for (int64_t row = first_row(t); mine && row < end_row(t); row += t.down) {
        float v[WIDE];
        load<T, WIDE>(x + row * t.channels + channel, v);
#pragma unroll
        for (int i = 0; i < WIDE; i++) {
            float d = v[i] - pivot[i];
            sums[0][i] += d;
            sums[1][i] = fmaf(d, d, sums[1][i]);
        }
    }
    reduce_block<WIDE, 2>(t, sums, partial);
}

/* Running averages take the unbiased variance. */
__device__ __forceinline__ void store_statistics(const norm_job &job, int64_t c,
                                                 moments m) {
    float old = job.momentum, now = 1 - old;
    job.mean[c] = (float)m.mean;
    job.inverse[c] = (float)(1 / sqrt(moments_variance(m) + (double)job.epsilon));
    job.running_mean[c] = old * job.running_mean[c] + now * (float)m.mean;
    job.running_variance[c] = old * job.running_variance[c] +
                              now * (float)moments_unbiased(m);
}

/* What this rank knows of a channel: a part of the statistics, or all. */
__device__ __forceinline__ void take_statistics(const norm_job &job, int64_t c,
                                                double mean, double variance) {
    moments m = moments_of((double)job.rows, mean, variance);
    if (job.blocks)
        moments_put(block_of(job.blocks, MOMENT_KINDS, job.channels, job.rank),
                    job.channels, c, m);
    else
        store_statistics(job, c, m);
}

template <typename T>
__global__ void finish(norm_job job, int64_t chunks, const float *partial) {
    double sums[2];
    int64_t c;
    if (!reduce_chunks<2>(partial, chunks, job.channels, sums, &c))
        return;
    double samples = (double)job.rows, moved = sums[0] / samples;
    double mean = (double)to_float(((const T *)job.x)[c]) + moved;
    take_statistics(job, c, mean, sums[1] / samples - moved * moved);
}

/* One thread per channel, from sums that were given. */
__global__ void statistics_from_sums(norm_job job) {
    int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    if (c >= job.channels)
        return;
    double samples = (double)job.rows, mean = (double)job.sums[c] / samples;
    take_statistics(job, c, mean, (double)job.squares[c] / samples - mean * mean);
}

/* The kernels that combine the blocks of all ranks have one thread per channel. */
__global__ void merge_statistics(norm_job job) {
    int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x, n = job.channels;
    if (c >= n)
        return;
    for (int i = 0; i + 1 < job.ranks; i++) {
        double *into = block_of(job.blocks, MOMENT_KINDS, n, job.merges[i].into);
        double *from = block_of(job.blocks, MOMENT_KINDS, n, job.merges[i].from);
        moments_put(into, n, c,
                    moments_merge(moments_at(into, n, c), moments_at(from, n, c)));
    }
    moments all = moments_at(job.blocks, n, c);
    store_statistics(job, c, all);
    if (c == 0)
        *job.samples = all.count;
}

__global__ void clear_block(norm_job job, int kinds) {
    int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x;
    double *own = block_of(job.blocks, kinds, job.channels, job.rank);
    for (int kind = 0; c < job.channels && kind < kinds; kind++)
        own[kind * job.channels + c] = 0;
}

template <typename T, int WIDE> __global__ void apply(tiling t, norm_job job) {
    int64_t channel;
    if (!own_channel<WIDE>(t, &channel))
        return;
    values<WIDE> of;
    values_of<WIDE>(job, channel, of);
    const limits b = limits_of(job);
    const T *x = (const T *)job.x, *other = (const T *)job.other;
#pragma unroll 4
    for (int64_t row = first_row(t); row < end_row(t); row += t.down) {
        int64_t at = row * t.channels + channel;
        float v[WIDE], more[WIDE] = {};
        load<T, WIDE>(x + at, v);
        if (other)
            load<T, WIDE>(other + at, more);
#pragma unroll
        for (int i = 0; i < WIDE; i++) {
            v[i] = normalised(of, i, v[i]) + more[i];
            v[i] = job.bounded ? limited(b, v[i]) : v[i];
        }
        store<T, WIDE>(v, (T *)job.y + at);
    }
}

/* The gradient before the activation. */
template <typename T, int WIDE>
__device__ __forceinline__ void gradient(const norm_job &job, const limits &b,
                                         const values<WIDE> &of, int64_t at,
                                         const float (&x)[WIDE], float (&d)[WIDE]) {
    float v[WIDE];
    load<T, WIDE>((const T *)job.dy + at, d);
    if (!job.bounded)
        return;
    if (job.other_diff)
        load<T, WIDE>((const T *)job.y + at, v);
#pragma unroll
    for (int i = 0; i < WIDE; i++)
        d[i] = limited_gradient(b, job.other_diff ? v[i] : normalised(of, i, x[i]),
                                d[i]);
}

/* Sums of the gradient d and of d (x - mean). The gradient of the other input of a
 * fused sum is d. */
template <typename T, int WIDE>
__global__ void sum_backward(tiling t, norm_job job, float *partial) {
    int64_t channel;
    bool mine = own_channel<WIDE>(t, &channel);
    float sums[2][WIDE] = {};
    values<WIDE> of;
    if (mine)
        values_of<WIDE>(job, channel, of);
    const limits b = limits_of(job);
    T *other_diff = (T *)job.other_diff;
    bool gives = other_diff && (job.bounded || job.other_diff != job.dy);
#pragma unroll 2
    for (int64_t row = first_row(t); mine && row < end_row(t); row += t.down) {
        int64_t at = row * t.channels + channel;
        float x[WIDE], d[WIDE];
        load<T, WIDE>((const T *)job.x + at, x);
        gradient<T, WIDE>(job, b, of, at, x, d);
        if (gives)
            store<T, WIDE>(d, other_diff + at);
#pragma unroll
        for (int i = 0; i < WIDE; i++) {
            sums[0][i] += d[i];
            sums[1][i] = fmaf(d[i], x[i] - of.mean[i], sums[1][i]);
        }
    }
    reduce_block<WIDE, 2>(t, sums, partial);
}

/* What dx needs, from the sums of a channel. */
__device__ __forceinline__ void store_slopes(const norm_job &job, int64_t c,
                                             double samples, double first,
                                             double second, float *slopes) {
    values<1> of;
    values_of<1>(job, c, of);
    double inverse = (double)of.inverse[0];
    slopes[c] = (float)(first / samples);
    slopes[job.channels + c] = (float)(second / samples * inverse * inverse);
}

/* The sums as dx needs them are stored after the partial sums, or in this rank's block;
 * also computes the gradients of the parameters. */
__global__ void finish_backward(norm_job job, int64_t chunks, const float *partial,
                                float *slopes) {
    double sums[2];
    int64_t c;
    if (!reduce_chunks<2>(partial, chunks, job.channels, sums, &c))
        return;
    values<1> of;
    values_of<1>(job, c, of);
    if (job.blocks) {
        double *own = block_of(job.blocks, SUM_KINDS, job.channels, job.rank);
        own[c] = sums[0];
        own[job.channels + c] = sums[1];
    } else if (job.by_batch) {
        store_slopes(job, c, (double)job.rows, sums[0], sums[1], slopes);
    } else {
        slopes[c] = slopes[job.channels + c] = 0;
    }
    if (job.diff_scale)
        job.diff_scale[c] = (float)(sums[1] * (double)of.inverse[0]);
    if (job.diff_bias)
        job.diff_bias[c] = (float)sums[0];
}

__global__ void merge_backward(norm_job job, float *slopes) {
    int64_t c = (int64_t)blockIdx.x * BLOCK + threadIdx.x, n = job.channels;
    if (c >= n)
        return;
    for (int i = 0; i + 1 < job.ranks; i++) {
        double *into = block_of(job.blocks, SUM_KINDS, n, job.merges[i].into);
        const double *from = block_of(job.blocks, SUM_KINDS, n, job.merges[i].from);
        into[c] += from[c];
        into[n + c] += from[n + c];
    }
    store_slopes(job, c, *job.samples, job.blocks[c], job.blocks[n + c], slopes);
}

/* With a fused sum the gradient before the activation is in other_diff. */
template <typename T, int WIDE>
__global__ void apply_backward(tiling t, norm_job job, const float *slopes) {
    int64_t channel;
    if (!own_channel<WIDE>(t, &channel))
        return;
    values<WIDE> of;
    values_of<WIDE>(job, channel, of);
    float shift[WIDE], slope[WIDE];
#pragma unroll
    for (int i = 0; i < WIDE; i++) {
        shift[i] = slopes[channel + i];
        slope[i] = slopes[t.channels + channel + i];
    }
    const limits b = limits_of(job);
#pragma unroll 2
    for (int64_t row = first_row(t); row < end_row(t); row += t.down) {
        int64_t at = row * t.channels + channel;
        float x[WIDE], d[WIDE];
        load<T, WIDE>((const T *)job.x + at, x);
        if (job.other_diff)
            load<T, WIDE>((const T *)job.other_diff + at, d);
        else
            gradient<T, WIDE>(job, b, of, at, x, d);
#pragma unroll
        for (int i = 0; i < WIDE; i++)
            d[i] = of.factor[i] * (d[i] - shift[i] - (x[i] - of.mean[i]) * slope[i]);
        store<T, WIDE>(d, (T *)job.dx + at);
    }
}

template <typename T, int WIDE>
void statistics(const norm_job *job, float *partial, cudaStream_t stream) {
    const tiling t = tiling_of(job->rows, job->channels, WIDE);
    const auto first = sum<T, WIDE>;
    const auto second = finish<T>;
    LAUNCH(first, tiling_grid(t), tiling_block(t), stream, t, (const T *)job->x,
           partial);
    LAUNCH(second, reduction_blocks(t.channels), reduction_block(), stream, *job,
           t.chunks, partial);
}

template <typename T, int WIDE> void forward(const norm_job *job, cudaStream_t stream) {
    const tiling t = tiling_of(job->rows, job->channels, WIDE);
    const auto kernel = apply<T, WIDE>;
    LAUNCH(kernel, tiling_grid(t), tiling_block(t), stream, t, *job);
}

float *slopes_in(const tiling &t, float *partial) {
    return partial + partial_bytes(t, 2) / sizeof(float);
}

template <typename T, int WIDE>
void backward(const norm_job *job, float *partial, cudaStream_t stream) {
    const tiling t = tiling_of(job->rows, job->channels, WIDE);
    float *slopes = slopes_in(t, partial);
    const auto first = sum_backward<T, WIDE>;
    const auto last = apply_backward<T, WIDE>;
    LAUNCH(first, tiling_grid(t), tiling_block(t), stream, t, *job, partial);
    LAUNCH(finish_backward, reduction_blocks(t.channels), reduction_block(), stream,
           *job, t.chunks, partial, slopes);
    if (job->dx && !job->blocks)
        LAUNCH(last, tiling_grid(t), tiling_block(t), stream, t, *job, slopes);
}

dim3 channel_blocks(const norm_job *job) {
    return dim3((unsigned)((job->channels + BLOCK - 1) / BLOCK));
}

template <typename T, int WIDE>
void backward_rest(const norm_job *job, float *partial, cudaStream_t stream) {
    const tiling t = tiling_of(job->rows, job->channels, WIDE);
    float *slopes = slopes_in(t, partial);
    const auto last = apply_backward<T, WIDE>;
    LAUNCH(merge_backward, channel_blocks(job), dim3(BLOCK), stream, *job, slopes);
    LAUNCH(last, tiling_grid(t), tiling_block(t), stream, t, *job, slopes);
}

} // namespace

size_t norm_scratch(const norm_job *job) {
    return partial_bytes(tiling_for(job), 2) +
           2 * sizeof(float) * (size_t)job->channels;
}

size_t norm_block_bytes(const norm_job *job, int ranks) {
    return (size_t)ranks * MOMENT_KINDS * (size_t)job->channels * sizeof(double);
}

cudaError_t norm_merge_statistics(const norm_job *job, cudaStream_t stream) {
    LAUNCH(merge_statistics, channel_blocks(job), dim3(BLOCK), stream, *job);
    return cudaPeekAtLastError();
}

cudaError_t norm_clear_block(const norm_job *job, int kinds, cudaStream_t stream) {
    LAUNCH(clear_block, channel_blocks(job), dim3(BLOCK), stream, *job, kinds);
    return cudaPeekAtLastError();
}

cudaError_t norm_statistics(const norm_job *job, void *scratch, cudaStream_t stream) {
    if (job->sums) {
        LAUNCH(statistics_from_sums, channel_blocks(job), dim3(BLOCK), stream, *job);
        return cudaPeekAtLastError();
    }
    DISPATCH(statistics, job, (float *)scratch, stream)
    return cudaPeekAtLastError();
}

cudaError_t norm_apply(const norm_job *job, cudaStream_t stream) {
    DISPATCH(forward, job, stream)
    return cudaPeekAtLastError();
}

cudaError_t norm_backward(const norm_job *job, void *scratch, cudaStream_t stream) {
    DISPATCH(backward, job, (float *)scratch, stream)
    return cudaPeekAtLastError();
}

cudaError_t norm_merge_backward(const norm_job *job, void *scratch,
                                cudaStream_t stream) {
    DISPATCH(backward_rest, job, (float *)scratch, stream)
    return cudaPeekAtLastError();
}

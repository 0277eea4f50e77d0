/* Forward makes three passes over memory (two reads, one write) and backward five
 * (reading gradient and x twice, one write). Sums are added in an order that depends on
 * the shape alone. */
#include "norm.h"

#include <dlcore/tensor.h>

#include "../shared/moments.h"
#include "channels.cuh"
#include "launch.h"

namespace {

enum { RESIDENT = 2 }; /* blocks of a multiprocessor, which limits their registers */

/* The numbers that normalize a channel. */
template <int WIDE> struct values {
    float mean[WIDE], inverse[WIDE], factor[WIDE], add[WIDE];
};

template <int WIDE>
__device__ __forceinline__ void values_of(const norm_job &job, int64_t channel,
                                          values<WIDE> &v) {
    float scale[WIDE];
    load(channel + (job.inverse ? job.mean : job.running_mean), v.mean);
    load(channel + (job.inverse ? job.inverse : job.running_variance), v.inverse);
    if (job.scale)
        load(job.scale + channel, scale);
    if (job.bias)
        load(job.bias + channel, v.add);
#pragma unroll
    for (int i = 0; i < WIDE; i++) {
        if (!job.inverse)
            v.inverse[i] = 1.0f / sqrtf(v.inverse[i] + job.epsilon);
        v.factor[i] = job.scale ? v.inverse[i] * scale[i] : v.inverse[i];
        v.add[i] = job.bias ? v.add[i] : 0;
    }
}

template <int WIDE>
__device__ __forceinline__ float normalised(const values<WIDE> &v, int i, float x) {
    return fmaf(x - v.mean[i], v.factor[i], v.add[i]);
}

/* A bit for each value: does the activation leave it as it is? Where it does not, all
 * gradients are scaled alike: one of low and slope is zero (bounds.h), and leaky relus
 * have no upper bound. */
template <int WIDE>
__device__ __forceinline__ uint8_t mask_of(const limits &b, const float (&v)[WIDE]) {
    unsigned mask = 0;
#pragma unroll
    for (int i = 0; i < WIDE; i++)
        mask |= (v[i] <= b.low || v[i] >= b.high ? 0u : 1u) << i;
    return (uint8_t)mask;
}

/* The gradient where it does not. */
__device__ __forceinline__ float scaled_gradient(const limits &b, float diff) {
    return b.slope != 0 ? b.slope * diff : 0;
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
    pack<T, WIDE> ahead[AHEAD];
    if (mine) {
        load(x + channel, pivot);
        for_rows(
            t, channel, [&](int k, int64_t at) { ahead[k] = fetch<WIDE>(x + at); },
            [&](int k, int64_t) {
                float v[WIDE];
                unpack(ahead[k], v);
#pragma unroll
                for (int i = 0; i < WIDE; i++) {
                    float d = v[i] - pivot[i];
                    sums[0][i] += d;
                    sums[1][i] = fmaf(d, d, sums[1][i]);
                }
            });
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

template <typename T, int WIDE, bool SUM>
__global__ void __launch_bounds__(BLOCK, RESIDENT) apply(tiling t, norm_job job) {
    int64_t channel;
    if (!own_channel<WIDE>(t, &channel))
        return;
    values<WIDE> of;
    values_of<WIDE>(job, channel, of);
    const limits b = limits_of(job);
    const T *x = (const T *)job.x, *other = (const T *)job.other;
    pack<T, WIDE> x_ahead[AHEAD], other_ahead[AHEAD];
    for_rows(
        t, channel,
        [&](int k, int64_t at) {
            x_ahead[k] = fetch<WIDE>(x + at);
            if (SUM)
                other_ahead[k] = fetch<WIDE>(other + at);
        },
        [&](int k, int64_t at) {
            float v[WIDE], more[WIDE] = {};
            unpack(x_ahead[k], v);
            if (SUM)
                unpack(other_ahead[k], more);
#pragma unroll
            for (int i = 0; i < WIDE; i++)
                v[i] = normalised(of, i, v[i]) + more[i];
            if (job.mask)
                job.mask[at / WIDE] = mask_of(b, v);
#pragma unroll
            for (int i = 0; i < WIDE; i++)
                v[i] = job.bounded ? limited(b, v[i]) : v[i];
            store<T, WIDE>(v, (T *)job.y + at);
        });
}

/* Sums of the gradient d before the activation, and of d (x - mean). With a fused sum
 * (SUM) the mask tells where the activation was bounded, and d is the gradient of the
 * sum's other input, too. */
template <typename T, int WIDE, bool SUM>
__global__ void __launch_bounds__(BLOCK, RESIDENT)
    sum_backward(tiling t, norm_job job, float *partial) {
    int64_t channel;
    bool mine = own_channel<WIDE>(t, &channel);
    float sums[2][WIDE] = {};
    values<WIDE> of;
    if (mine)
        values_of<WIDE>(job, channel, of);
    const limits b = limits_of(job);
    const T *x = (const T *)job.x, *dy = (const T *)job.dy;
    const bool gives = SUM && (job.bounded || job.other_diff != job.dy);
    pack<T, WIDE> x_ahead[AHEAD], d_ahead[AHEAD];
    unsigned mask[AHEAD];
    if (mine)
        for_rows(
            t, channel,
            [&](int k, int64_t at) {
                x_ahead[k] = fetch<WIDE>(x + at);
                d_ahead[k] = fetch<WIDE>(dy + at);
                if (SUM && job.bounded)
                    mask[k] = job.mask[at / WIDE];
            },
            [&](int k, int64_t at) {
                float v[WIDE], d[WIDE];
                unpack(x_ahead[k], v);
                unpack(d_ahead[k], d);
#pragma unroll
                for (int i = 0; i < WIDE; i++) {
                    if (SUM && job.bounded)
                        d[i] = mask[k] >> i & 1 ? d[i] : scaled_gradient(b, d[i]);
                    else if (job.bounded)
                        d[i] = limited_gradient(b, normalised(of, i, v[i]), d[i]);
                    sums[0][i] += d[i];
                    sums[1][i] = fmaf(d[i], v[i] - of.mean[i], sums[1][i]);
                }
                if (gives)
                    store<T, WIDE>(d, (T *)job.other_diff + at);
            });
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

/* With a fused sum (SUM) the gradient before the activation is in other_diff. */
template <typename T, int WIDE, bool SUM>
__global__ void __launch_bounds__(BLOCK, RESIDENT)
    apply_backward(tiling t, norm_job job, const float *slopes) {
    int64_t channel;
    if (!own_channel<WIDE>(t, &channel))
        return;
    values<WIDE> of;
    values_of<WIDE>(job, channel, of);
    float shift[WIDE], slope[WIDE];
    load(slopes + channel, shift);
    load(slopes + t.channels + channel, slope);
    const limits b = limits_of(job);
    const T *x = (const T *)job.x, *from = (const T *)(SUM ? job.other_diff : job.dy);
    pack<T, WIDE> x_ahead[AHEAD], d_ahead[AHEAD];
    for_rows(
        t, channel,
        [&](int k, int64_t at) {
            x_ahead[k] = fetch<WIDE>(x + at);
            d_ahead[k] = fetch<WIDE>(from + at);
        },
        [&](int k, int64_t at) {
            float v[WIDE], d[WIDE];
            unpack(x_ahead[k], v);
            unpack(d_ahead[k], d);
#pragma unroll
            for (int i = 0; i < WIDE; i++) {
                if (!SUM && job.bounded)
                    d[i] = limited_gradient(b, normalised(of, i, v[i]), d[i]);
                d[i] = of.factor[i] *
                       (d[i] - shift[i] - (v[i] - of.mean[i]) * slope[i]);
            }
            store<T, WIDE>(d, (T *)job.dx + at);
        });
}

/* In each pair of passes the second goes backwards. */
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
    const tiling t = tiling_backwards(job->rows, job->channels, WIDE);
    const auto kernel = job->other ? apply<T, WIDE, true> : apply<T, WIDE, false>;
    LAUNCH(kernel, tiling_grid(t), tiling_block(t), stream, t, *job);
}

float *slopes_in(const tiling &t, float *partial) {
    return partial + partial_bytes(t, 2) / sizeof(float);
}

template <typename T, int WIDE>
void backward_last(const norm_job *job, float *slopes, cudaStream_t stream) {
    const tiling t = tiling_backwards(job->rows, job->channels, WIDE);
    const auto kernel = job->other_diff ? apply_backward<T, WIDE, true>
                                        : apply_backward<T, WIDE, false>;
    LAUNCH(kernel, tiling_grid(t), tiling_block(t), stream, t, *job, slopes);
}

template <typename T, int WIDE>
void backward(const norm_job *job, float *partial, cudaStream_t stream) {
    const tiling t = tiling_of(job->rows, job->channels, WIDE);
    float *slopes = slopes_in(t, partial);
    const auto kernel = job->other_diff ? sum_backward<T, WIDE, true>
                                        : sum_backward<T, WIDE, false>;
    LAUNCH(kernel, tiling_grid(t), tiling_block(t), stream, t, *job, partial);
    LAUNCH(finish_backward, reduction_blocks(t.channels), reduction_block(), stream,
           *job, t.chunks, partial, slopes);
    if (job->dx && !job->blocks)
        backward_last<T, WIDE>(job, slopes, stream);
}

dim3 channel_blocks(const norm_job *job) {
    return dim3((unsigned)((job->channels + BLOCK - 1) / BLOCK));
}

template <typename T, int WIDE>
void backward_rest(const norm_job *job, float *partial, cudaStream_t stream) {
    float *slopes = slopes_in(tiling_of(job->rows, job->channels, WIDE), partial);
    LAUNCH(merge_backward, channel_blocks(job), dim3(BLOCK), stream, *job, slopes);
    backward_last<T, WIDE>(job, slopes, stream);
}

} // namespace

size_t norm_scratch(const norm_job *job) {
    return partial_bytes(tiling_for(job), 2) +
           2 * sizeof(float) * (size_t)job->channels;
}

size_t norm_block_bytes(const norm_job *job, int ranks) {
    return (size_t)ranks * MOMENT_KINDS * (size_t)job->channels * sizeof(double);
}

size_t norm_mask_bytes(const norm_job *job) {
    return (size_t)(job->rows * job->channels / width_for(job));
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

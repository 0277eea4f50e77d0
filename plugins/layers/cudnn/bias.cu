/* Bias and activation in one kernel; their gradients in two: sums of chunks of rows,
 * then the sum of the chunks. */
#include "bias.h"

#include <dlcore/tensor.h>

#include "channels.cuh"
#include "launch.h"

namespace {

template <typename T, int WIDE>
__global__ void add(tiling t, limits b, bool bounded, const float *bias, T *y) {
    int64_t channel;
    if (!own_channel<WIDE>(t, &channel))
        return;
    float more[WIDE] = {};
    if (bias)
        load<float, WIDE>(bias + channel, more);
    pack<T, WIDE> ahead[AHEAD];
    for_rows(
        t, channel, [&](int k, int64_t at) { ahead[k] = fetch<WIDE>(y + at); },
        [&](int k, int64_t at) {
            float v[WIDE];
            unpack(ahead[k], v);
#pragma unroll
            for (int i = 0; i < WIDE; i++) {
                v[i] += more[i];
                v[i] = bounded ? limited(b, v[i]) : v[i];
            }
            store<T, WIDE>(v, y + at);
        });
}

template <typename T, int WIDE>
__global__ void backward(tiling t, limits b, bool bounded, const T *y, T *dy,
                         float *partial) {
    int64_t channel;
    bool mine = own_channel<WIDE>(t, &channel);
    float sums[1][WIDE] = {};
    pack<T, WIDE> d_ahead[AHEAD], y_ahead[AHEAD];
    if (mine)
        for_rows(
            t, channel,
            [&](int k, int64_t at) {
                d_ahead[k] = fetch<WIDE>(dy + at);
                if (bounded)
                    y_ahead[k] = fetch<WIDE>(y + at);
            },
            [&](int k, int64_t at) {
                float d[WIDE], v[WIDE];
                unpack(d_ahead[k], d);
                if (bounded) {
                    unpack(y_ahead[k], v);
#pragma unroll
                    for (int i = 0; i < WIDE; i++)
                        d[i] = limited_gradient(b, v[i], d[i]);
                    store<T, WIDE>(d, dy + at);
                }
#pragma unroll
                for (int i = 0; i < WIDE; i++)
                    sums[0][i] += d[i];
            });
    if (partial)
        reduce_block<WIDE, 1>(t, sums, partial);
}

__global__ void finish(int64_t chunks, int64_t channels, const float *partial,
                       float *diff_bias) {
    double sums[1];
    int64_t channel;
    if (reduce_chunks<1>(partial, chunks, channels, sums, &channel))
        diff_bias[channel] = (float)sums[0];
}

template <typename T, int WIDE>
void launch_add(const bias_job *job, const float *bias, void *y, cudaStream_t stream) {
    const limits b = {job->low, job->high, job->slope};
    const tiling t = tiling_of(job->rows, job->channels, WIDE);
    const auto kernel = add<T, WIDE>;
    LAUNCH(kernel, tiling_grid(t), tiling_block(t), stream, t, b, job->bounded != 0,
           bias, (T *)y);
}

template <typename T, int WIDE>
void launch_backward(const bias_job *job, const void *y, void *dy, float *diff_bias,
                     float *partial, cudaStream_t stream) {
    const limits b = {job->low, job->high, job->slope};
    const tiling t = tiling_of(job->rows, job->channels, WIDE);
    const auto kernel = backward<T, WIDE>;
    LAUNCH(kernel, tiling_grid(t), tiling_block(t), stream, t, b, job->bounded != 0,
           (const T *)y, (T *)dy, partial);
    if (partial)
        LAUNCH(finish, reduction_blocks(t.channels), reduction_block(), stream,
               t.chunks, t.channels, partial, diff_bias);
}

} // namespace

cudaError_t bias_add(const bias_job *job, const float *bias, void *y,
                     cudaStream_t stream) {
    DISPATCH(launch_add, job, bias, y, stream)
    return cudaPeekAtLastError();
}

size_t bias_scratch(const bias_job *job) {
    return partial_bytes(tiling_for(job), 1);
}

cudaError_t bias_backward(const bias_job *job, const void *y, void *dy,
                          float *diff_bias, void *scratch, cudaStream_t stream) {
    float *partial = diff_bias ? (float *)scratch : NULL;
    DISPATCH(launch_backward, job, y, dy, diff_bias, partial, stream)
    return cudaPeekAtLastError();
}

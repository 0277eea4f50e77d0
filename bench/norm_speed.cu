/* The kernels of batch_norm (plugins/layers/cudnn/norm.h) on the shapes of ResNet-50
 * beside a plain copy, which is the limit: each pass moves only the bytes that it must.
 *
 *     norm_speed [BATCH] [fp16|bf16|float32]         (256, fp16)
 *
 * Prints a line for each shape: how often ResNet-50 has it, then for statistics,
 * forward and backward the microseconds and the bandwidth as a percentage of the
 * copy's; then the milliseconds of all of them. Exits with 77 if there is no GPU.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include <dlcore/tensor.h>

#include "norm.h"

namespace {

enum { ROUNDS = 5, RUNS = 8, SETS = 3, TENSORS = 3 };
constexpr size_t SET_BYTES = (size_t)1
                             << 30; /* a set of tensors is as large, or larger */

struct shape {
    int side, channels, times;
    bool sum, relu;
};

/* He et al. 2015, table 1, with the stride in the 3 x 3 convolution. */
const shape shapes[] = {
    {112, 64, 1, false, true},  {56, 64, 6, false, true},   {56, 256, 3, true, true},
    {56, 256, 1, false, false}, {56, 128, 1, false, true},  {28, 128, 7, false, true},
    {28, 512, 4, true, true},   {28, 512, 1, false, false}, {28, 256, 1, false, true},
    {14, 256, 11, false, true}, {14, 1024, 6, true, true},  {14, 1024, 1, false, false},
    {14, 512, 1, false, true},  {7, 512, 5, false, true},   {7, 2048, 3, true, true},
    {7, 2048, 1, false, false},
};

void check(cudaError_t error) {
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "norm_speed: %s\n", cudaGetErrorString(error));
    exit(error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver ? 77 : 1);
}

char *device_memory(size_t bytes) {
    void *memory = NULL;
    check(cudaMalloc(&memory, bytes));
    check(cudaMemset(memory, 0x3c, bytes)); /* small numbers in each type */
    return (char *)memory;
}

/* Microseconds, the median of some rounds with some runs each. */
template <typename RUN> double time_of(RUN run) {
    cudaEvent_t event[2];
    double times[ROUNDS];
    for (cudaEvent_t &e : event)
        check(cudaEventCreate(&e));
    for (int round = -1; round < ROUNDS; round++) {
        float took = 0;
        check(cudaEventRecord(event[0]));
        for (int i = 0; i < RUNS; i++)
            run(i % SETS);
        check(cudaEventRecord(event[1]));
        check(cudaEventSynchronize(event[1]));
        check(cudaEventElapsedTime(&took, event[0], event[1]));
        if (round >= 0)
            times[round] = 1e3 * took / RUNS;
    }
    std::sort(times, times + ROUNDS);
    return times[ROUNDS / 2];
}

struct bench {
    int batch;
    dlc_dtype dtype;
    char *set[SETS], *numbers, *scratch, *mask;
    double copied;   /* bytes per microsecond */
    double total[3]; /* microseconds of ResNet-50 */
};

norm_job job_of(const bench &b, const shape &s, int set, size_t bytes) {
    norm_job job = {};
    float *numbers = (float *)b.numbers;
    job.dtype = (int)b.dtype;
    job.rows = (int64_t)b.batch * s.side * s.side;
    job.channels = s.channels;
    job.epsilon = 1e-5f;
    job.momentum = 0.9f;
    job.high = INFINITY;
    job.bounded = s.relu;
    job.by_batch = 1;
    float **of_channels[] = {&job.mean,         &job.inverse,
                             &job.running_mean, &job.running_variance,
                             &job.diff_scale,   &job.diff_bias};
    for (float **at : of_channels)
        *at = numbers += 4096;
    job.scale = numbers += 4096;
    job.bias = numbers + 4096;
    job.x = b.set[set];
    job.y = job.dx = b.set[set] + bytes;
    job.dy = b.set[set] + 2 * bytes;
    job.other = s.sum ? job.dy : NULL;
    job.mask = s.sum && s.relu ? (uint8_t *)b.mask : NULL;
    return job;
}

void measure(bench &b, const shape &s) {
    size_t bytes = (size_t)b.batch * s.side * s.side * s.channels *
                   (b.dtype == DLC_F32 ? 4 : 2);
    norm_job jobs[SETS];
    for (int i = 0; i < SETS; i++)
        jobs[i] = job_of(b, s, i, bytes);
    /* Passes over a tensor: a fused sum is read, and its gradient written. */
    const double passes[] = {1, s.sum ? 3.0 : 2.0, s.sum ? 6.0 : 5.0};
    double took[3];
    took[0] = time_of([&](int i) { check(norm_statistics(&jobs[i], b.scratch, 0)); });
    took[1] = time_of([&](int i) { check(norm_apply(&jobs[i], 0)); });
    for (norm_job &job : jobs) {
        job.other = NULL;
        job.other_diff = s.sum ? job.dy : NULL;
    }
    took[2] = time_of([&](int i) { check(norm_backward(&jobs[i], b.scratch, 0)); });
    printf("%3d x %3d x %4d %2d%s%s", s.side, s.side, s.channels, s.times,
           s.sum ? " +sum" : "     ", s.relu ? " +relu" : "      ");
    for (int k = 0; k < 3; k++) {
        printf("  %8.1f us %3.0f %%", took[k],
               100 * passes[k] * (double)bytes / took[k] / b.copied);
        b.total[k] += s.times * took[k];
    }
    printf("\n");
}

} // namespace

int main(int argc, char **argv) {
    bench b = {};
    int devices = 0;
    check(cudaGetDeviceCount(&devices));
    b.batch = argc > 1 ? atoi(argv[1]) : 256;
    const char *type = argc > 2 ? argv[2] : "fp16";
    b.dtype = !strcmp(type, "float32") ? DLC_F32
              : !strcmp(type, "bf16")  ? DLC_BF16
                                       : DLC_F16;
    size_t largest = (size_t)b.batch * 56 * 56 * 256 * (b.dtype == DLC_F32 ? 4 : 2);
    for (char *&set : b.set)
        set = device_memory(std::max(SET_BYTES, TENSORS * largest));
    b.numbers = device_memory(16 * 4096 * sizeof(float));
    b.scratch = device_memory((size_t)64 << 20);
    b.mask = device_memory(largest);
    size_t half = SET_BYTES / 2;
    b.copied = 2.0 * (double)half / time_of([&](int i) {
                   check(cudaMemcpyAsync(b.set[i], b.set[i] + half, half,
                                         cudaMemcpyDeviceToDevice, 0));
               });
    printf("copy %.0f GB/s; batch %d, %s: statistics, forward, backward\n",
           b.copied / 1e3, b.batch, type);
    for (const shape &s : shapes)
        measure(b, s);
    printf("all, ms: %.2f, %.2f, %.2f\n", b.total[0] / 1e3, b.total[1] / 1e3,
           b.total[2] / 1e3);
    return 0;
}

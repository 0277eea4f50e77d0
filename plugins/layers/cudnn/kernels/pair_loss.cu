// Kernels of losses that compare each value with a target.
#include "launch.cuh"

// One block per sample.
static __global__ void __launch_bounds__(BLOCK)
    sample_kernel(const __grid_constant__ pair_loss_args l) {
    __shared__ pair_loss_sum all[BLOCK];
    int thread = (int)threadIdx.x;
    all[thread] = pair_loss_part(&l, blockIdx.x, thread, BLOCK);
    for (int step = BLOCK / 2; step; step /= 2) {
        __syncthreads();
        if (thread < step) {
            all[thread].sum += all[thread + step].sum;
            all[thread].count += all[thread + step].count;
        }
    }
    if (thread == 0)
        pair_loss_sample_done(&l, blockIdx.x, all[0]);
}

static __global__ void total_kernel(const __grid_constant__ pair_loss_args l) {
    pair_loss_total(&l);
}

static __global__ void __launch_bounds__(BLOCK)
    gradient_kernel(const __grid_constant__ pair_loss_args l) {
    int64_t i = item_id();
    if (i < l.samples * l.each)
        pair_loss_gradient(&l, i);
}

extern "C" cudaError_t pair_loss_forward_run(const pair_loss_args *l,
                                             cudaStream_t stream) {
    LAUNCH(sample_kernel, (unsigned)l->samples, BLOCK, stream, *l);
    LAUNCH(total_kernel, 1, 1, stream, *l);
    return cudaPeekAtLastError();
}

extern "C" cudaError_t pair_loss_backward_run(const pair_loss_args *l,
                                              cudaStream_t stream) {
    LAUNCH(gradient_kernel, blocks_of(l->samples * l->each), BLOCK, stream, *l);
    return cudaPeekAtLastError();
}

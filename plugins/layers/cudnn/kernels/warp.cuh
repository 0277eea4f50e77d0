// Reductions over the lanes of a warp by a butterfly, so that every lane gets bitwise
// identical results.
#ifndef DLCORE_CUDNN_WARP_CUH
#define DLCORE_CUDNN_WARP_CUH

#include "launch.cuh"

static constexpr unsigned FULL_MASK = 0xffffffffu;
static constexpr int WARPS = BLOCK / WARP_SIZE;

static __device__ __forceinline__ float warp_max(float x) {
    for (int step = WARP_SIZE / 2; step; step /= 2)
        x = max_or_nan(x, __shfl_xor_sync(FULL_MASK, x, step));
    return x;
}

static __device__ __forceinline__ pair warp_sum(pair x) {
    for (int step = WARP_SIZE / 2; step; step /= 2) {
        pair other = {__shfl_xor_sync(FULL_MASK, x.a, step),
                      __shfl_xor_sync(FULL_MASK, x.b, step)};
        x = pair_sum(x, other);
    }
    return x;
}

static __device__ __forceinline__ int32_t warp_sum(int32_t x) {
    for (int step = WARP_SIZE / 2; step; step /= 2)
        x += __shfl_xor_sync(FULL_MASK, x, step);
    return x;
}

static __device__ __forceinline__ int lane_id() {
    return (int)(threadIdx.x % WARP_SIZE);
}

// Index of the warp in the grid.
static __device__ __forceinline__ int64_t warp_id() {
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / WARP_SIZE;
}

#endif

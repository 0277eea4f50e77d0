// Sums over the lanes of a warp and the threads of a block, in the order of lanes.h.
#ifndef DLCORE_CUDNN_LANES_CUH
#define DLCORE_CUDNN_LANES_CUH

#include "launch.cuh"

static constexpr unsigned ALL_LANES = 0xffffffffu;
static constexpr int WARPS = BLOCK / LANES;

static __device__ __forceinline__ float warp_larger(float x) {
    for (int step = LANES / 2; step; step /= 2)
        x = larger(x, __shfl_xor_sync(ALL_LANES, x, step));
    return x;
}

static __device__ __forceinline__ pair warp_sum(pair x) {
    for (int step = LANES / 2; step; step /= 2) {
        pair other = {__shfl_xor_sync(ALL_LANES, x.a, step),
                      __shfl_xor_sync(ALL_LANES, x.b, step)};
        x = pair_sum(x, other);
    }
    return x;
}

static __device__ __forceinline__ int32_t warp_sum(int32_t x) {
    for (int step = LANES / 2; step; step /= 2)
        x += __shfl_xor_sync(ALL_LANES, x, step);
    return x;
}

static __device__ __forceinline__ int lane_here() {
    return (int)(threadIdx.x % LANES);
}

// The warp's number in the grid.
static __device__ __forceinline__ int64_t warp_here() {
    return (int64_t)blockIdx.x * WARPS + threadIdx.x / LANES;
}

#endif

// Helpers for launching kernels: grid sizes, and element types as template constants.
#ifndef DLCORE_CUDNN_LAUNCH_CUH
#define DLCORE_CUDNN_LAUNCH_CUH

#include <type_traits>

#include "../launch.h"
#include "kernels.h"

// An item is the work of one thread. Bodies that divide need 32-bit item numbers.
constexpr int64_t MOST_ITEMS = (1ll << 31) - BLOCK;

static inline unsigned blocks_of(int64_t items) {
    return (unsigned)((items + BLOCK - 1) / BLOCK);
}

static __device__ __forceinline__ int64_t item_id() {
    return (int64_t)blockIdx.x * BLOCK + threadIdx.x;
}

// Calls `launch` with the first image and the number of items of as many images at a
// time as have at most MOST_ITEMS; an image has `each`.
template <typename L> cudaError_t for_images(int64_t images, int64_t each, L launch) {
    int64_t at_once = max_i64(MOST_ITEMS / each, 1);
    cudaError_t error = cudaSuccess;
    for (int64_t first = 0; first < images && error == cudaSuccess; first += at_once)
        error = launch(first, (uint32_t)(min_i64(at_once, images - first) * each));
    return error;
}

// The arguments of pooling or upsample for the images from `first` on.
template <typename ARGS>
ARGS images_from(const ARGS *args, int backward, int64_t first) {
    int64_t in = args->channels * args->in[0] * args->in[1],
            out = args->channels * args->out[0] * args->out[1];
    int64_t bytes = (int64_t)size_of(args->type);
    ARGS part = *args;
    part.from = (const char *)args->from + first * (backward ? out : in) * bytes;
    part.to = (char *)args->to + first * (backward ? in : out) * bytes;
    return part;
}

template <dlc_dtype TYPE> using type_constant = std::integral_constant<dlc_dtype, TYPE>;

// Calls `launch` with the element type as a constant.
template <typename L> cudaError_t with_type(dlc_dtype type, L launch) {
    if (type == DLC_F32)
        launch(type_constant<DLC_F32>());
    else if (type == DLC_BF16)
        launch(type_constant<DLC_BF16>());
    else
        launch(type_constant<DLC_F16>());
    return cudaPeekAtLastError();
}

// Calls `launch` with element type and width (16 bytes or one element) as constants.
template <typename L> cudaError_t with_width(dlc_dtype type, int wide, L launch) {
    return with_type(type, [&](auto t) {
        if (wide)
            launch(t, std::integral_constant < int,
                   decltype(t)::value == DLC_F32 ? 4 : 8 > ());
        else
            launch(t, std::integral_constant<int, 1>());
    });
}

#endif

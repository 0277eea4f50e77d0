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

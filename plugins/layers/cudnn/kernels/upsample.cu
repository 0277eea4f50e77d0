// Kernels of upsample.
#include "launch.cuh"

template <dlc_dtype TYPE, int WIDTH, int BACKWARD>
static __global__ void __launch_bounds__(BLOCK)
    upsample_kernel(const __grid_constant__ upsample_args u, uint32_t items) {
    uint32_t item = blockIdx.x * BLOCK + threadIdx.x;
    if (item >= items)
        return;
    if (BACKWARD)
        upsample_backward_at(&u, TYPE, WIDTH, item);
    else
        upsample_forward_at(&u, TYPE, WIDTH, item);
}

template <int BACKWARD>
static cudaError_t upsample_run(const upsample_args *u, cudaStream_t stream) {
    return for_images(
        u->images, upsample_items(u, BACKWARD), [&](int64_t first, uint32_t items) {
            upsample_args part = images_from(u, BACKWARD, first);
            return with_width(u->type, u->wide, [&](auto type, auto width) {
                LAUNCH((upsample_kernel<decltype(type)::value, decltype(width)::value,
                                        BACKWARD>),
                       blocks_of(items), BLOCK, stream, part, items);
            });
        });
}

extern "C" cudaError_t upsample_forward_run(const upsample_args *u,
                                            cudaStream_t stream) {
    return upsample_run<0>(u, stream);
}

extern "C" cudaError_t upsample_backward_run(const upsample_args *u,
                                             cudaStream_t stream) {
    return upsample_run<1>(u, stream);
}

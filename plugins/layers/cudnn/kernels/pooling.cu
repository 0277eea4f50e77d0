// Kernels of pooling.
#include "launch.cuh"

template <dlc_dtype TYPE, int WIDTH, int BACKWARD>
static __global__ void __launch_bounds__(BLOCK)
    pooling_kernel(const __grid_constant__ pooling_args p, uint32_t items) {
    uint32_t item = blockIdx.x * BLOCK + threadIdx.x;
    if (item >= items)
        return;
    if (BACKWARD)
        pooling_backward_at(&p, TYPE, WIDTH, item);
    else
        pooling_forward_at(&p, TYPE, WIDTH, item);
}

template <int BACKWARD>
static cudaError_t pooling_run(const pooling_args *p, cudaStream_t stream) {
    return for_images(
        p->images, pooling_items(p, BACKWARD), [&](int64_t first, uint32_t items) {
            pooling_args part = images_from(p, BACKWARD, first);
            if (p->place)
                part.place = (char *)p->place + first * p->channels * p->out[0] *
                                                    p->out[1] * (p->wide_place ? 4 : 1);
            return with_width(p->type, p->wide, [&](auto type, auto width) {
                LAUNCH((pooling_kernel<decltype(type)::value, decltype(width)::value,
                                       BACKWARD>),
                       blocks_of(items), BLOCK, stream, part, items);
            });
        });
}

extern "C" cudaError_t pooling_forward_run(const pooling_args *p, cudaStream_t stream) {
    return pooling_run<0>(p, stream);
}

extern "C" cudaError_t pooling_backward_run(const pooling_args *p,
                                            cudaStream_t stream) {
    return pooling_run<1>(p, stream);
}

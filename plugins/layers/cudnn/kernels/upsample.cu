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

// The arguments for the images from `first` on.
static upsample_args images_from(const upsample_args *u, int backward, int64_t first) {
    int64_t in = u->channels * u->in[0] * u->in[1],
            out = u->channels * u->out[0] * u->out[1];
    int64_t bytes = (int64_t)size_of(u->type);
    upsample_args part = *u;
    part.from = (const char *)u->from + first * (backward ? out : in) * bytes;
    part.to = (char *)u->to + first * (backward ? in : out) * bytes;
    return part;
}

template <int BACKWARD>
static cudaError_t upsample_run(const upsample_args *u, cudaStream_t stream) {
    int64_t each = upsample_items(u, BACKWARD), at_once = max_i64(MOST_ITEMS / each, 1);
    cudaError_t error = cudaSuccess;
    for (int64_t first = 0; first < u->images && error == cudaSuccess;
         first += at_once) {
        upsample_args part = images_from(u, BACKWARD, first);
        uint32_t items = (uint32_t)(min_i64(at_once, u->images - first) * each);
        error = with_width(u->type, u->wide, [&](auto type, auto width) {
            LAUNCH((upsample_kernel<decltype(type)::value, decltype(width)::value,
                                    BACKWARD>),
                   blocks_of(items), BLOCK, stream, part, items);
        });
    }
    return error;
}

extern "C" cudaError_t upsample_forward_run(const upsample_args *u,
                                            cudaStream_t stream) {
    return upsample_run<0>(u, stream);
}

extern "C" cudaError_t upsample_backward_run(const upsample_args *u,
                                             cudaStream_t stream) {
    return upsample_run<1>(u, stream);
}

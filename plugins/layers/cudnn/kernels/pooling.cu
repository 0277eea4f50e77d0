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

// The arguments for the images from `first` on.
static pooling_args images_from(const pooling_args *p, int backward, int64_t first) {
    int64_t in = p->channels * p->in[0] * p->in[1],
            out = p->channels * p->out[0] * p->out[1];
    int64_t bytes = (int64_t)size_of(p->type);
    pooling_args part = *p;
    part.from = (const char *)p->from + first * (backward ? out : in) * bytes;
    part.to = (char *)p->to + first * (backward ? in : out) * bytes;
    if (p->place)
        part.place = (char *)p->place + first * out * (p->wide_place ? 4 : 1);
    return part;
}

template <int BACKWARD>
static cudaError_t pooling_run(const pooling_args *p, cudaStream_t stream) {
    int64_t each = pooling_items(p, BACKWARD), at_once = max_i64(MOST_ITEMS / each, 1);
    cudaError_t error = cudaSuccess;
    for (int64_t first = 0; first < p->images && error == cudaSuccess;
         first += at_once) {
        pooling_args part = images_from(p, BACKWARD, first);
        uint32_t items = (uint32_t)(min_i64(at_once, p->images - first) * each);
        error = with_width(p->type, p->wide, [&](auto type, auto width) {
            LAUNCH((pooling_kernel<decltype(type)::value, decltype(width)::value,
                                   BACKWARD>),
                   blocks_of(items), BLOCK, stream, part, items);
        });
    }
    return error;
}

extern "C" cudaError_t pooling_forward_run(const pooling_args *p, cudaStream_t stream) {
    return pooling_run<0>(p, stream);
}

extern "C" cudaError_t pooling_backward_run(const pooling_args *p,
                                            cudaStream_t stream) {
    return pooling_run<1>(p, stream);
}

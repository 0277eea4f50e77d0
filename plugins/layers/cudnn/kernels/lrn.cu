// Kernels of local response normalization.
#include "launch.cuh"

template <dlc_dtype TYPE, int BACKWARD>
static __global__ void __launch_bounds__(BLOCK)
    lrn_kernel(const __grid_constant__ lrn_args l, uint32_t items) {
    uint32_t item = blockIdx.x * BLOCK + threadIdx.x;
    if (item >= items)
        return;
    if (BACKWARD)
        lrn_backward_at(&l, TYPE, item);
    else
        lrn_forward_at(&l, TYPE, item);
}

// The arguments for the elements from offset `elements` on.
static lrn_args elements_from(const lrn_args *l, int64_t elements) {
    int64_t bytes = elements * (int64_t)size_of(l->type);
    lrn_args part = *l;
    part.in = (const char *)l->in + bytes;
    part.out = (char *)l->out + bytes;
    if (l->inverse)
        part.inverse = l->inverse + elements;
    if (l->in_diff) {
        part.out_diff = (const char *)l->out_diff + bytes;
        part.in_diff = (char *)l->in_diff + bytes;
    }
    return part;
}

template <int BACKWARD>
static cudaError_t lrn_run(const lrn_args *l, cudaStream_t stream) {
    int64_t each = lrn_items(l);
    return for_images(l->images, each, [&](int64_t first, uint32_t items) {
        lrn_args part = elements_from(l, first * each);
        return with_type(l->type, [&](auto type) {
            LAUNCH((lrn_kernel<decltype(type)::value, BACKWARD>), blocks_of(items),
                   BLOCK, stream, part, items);
        });
    });
}

extern "C" cudaError_t lrn_forward_run(const lrn_args *l, cudaStream_t stream) {
    return lrn_run<0>(l, stream);
}

extern "C" cudaError_t lrn_backward_run(const lrn_args *l, cudaStream_t stream) {
    return lrn_run<1>(l, stream);
}

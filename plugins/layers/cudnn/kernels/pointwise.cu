// Kernels of activations and eltwise.
#include "launch.cuh"

template <dlc_dtype TYPE, int BACKWARD>
static __global__ void __launch_bounds__(BLOCK)
    activation_kernel(const __grid_constant__ activation_args a) {
    if (BACKWARD)
        activation_backward_at(&a, TYPE, item_id());
    else
        activation_forward_at(&a, TYPE, item_id());
}

template <int BACKWARD>
static cudaError_t activation_run(const activation_args *a, cudaStream_t stream) {
    unsigned blocks = blocks_of(vector_range_of(a->type, a->count).items);
    return with_type(a->type, [&](auto type) {
        LAUNCH((activation_kernel<decltype(type)::value, BACKWARD>), blocks, BLOCK,
               stream, *a);
    });
}

extern "C" cudaError_t activation_forward_run(const activation_args *a,
                                              cudaStream_t stream) {
    return activation_run<0>(a, stream);
}

extern "C" cudaError_t activation_backward_run(const activation_args *a,
                                               cudaStream_t stream) {
    return activation_run<1>(a, stream);
}

template <dlc_dtype TYPE, int BACKWARD>
static __global__ void __launch_bounds__(BLOCK)
    eltwise_kernel(const __grid_constant__ eltwise_args a) {
    if (BACKWARD)
        eltwise_backward_at(&a, TYPE, item_id());
    else
        eltwise_forward_at(&a, TYPE, item_id());
}

template <int BACKWARD>
static cudaError_t eltwise_run(const eltwise_args *a, cudaStream_t stream) {
    unsigned blocks = blocks_of(vector_range_of(a->type, a->count).items);
    return with_type(a->type, [&](auto type) {
        LAUNCH((eltwise_kernel<decltype(type)::value, BACKWARD>), blocks, BLOCK, stream,
               *a);
    });
}

extern "C" cudaError_t eltwise_forward_run(const eltwise_args *a, cudaStream_t stream) {
    return eltwise_run<0>(a, stream);
}

extern "C" cudaError_t eltwise_backward_run(const eltwise_args *a,
                                            cudaStream_t stream) {
    return eltwise_run<1>(a, stream);
}

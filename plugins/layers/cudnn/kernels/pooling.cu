// Kernels of pooling. The grid goes over a row's items, rows and images.
#include "launch.cuh"

template <dlc_dtype TYPE, int WIDTH, int BACKWARD>
static __global__ void __launch_bounds__(BLOCK)
    pooling_kernel(const __grid_constant__ pooling_args p) {
    uint32_t item = blockIdx.x * blockDim.x + threadIdx.x;
    if (item >= pooling_items(&p, BACKWARD))
        return;
    for (int64_t image = blockIdx.z; image < p.images; image += gridDim.z)
        for (int32_t row = (int32_t)blockIdx.y; row < pooling_rows(&p, BACKWARD);
             row += (int32_t)gridDim.y)
            if (BACKWARD)
                pooling_backward_at(&p, TYPE, WIDTH, image, row, item);
            else
                pooling_forward_at(&p, TYPE, WIDTH, image, row, item);
}

template <int BACKWARD>
static cudaError_t pooling_run(const pooling_args *p, cudaStream_t stream) {
    constexpr int64_t WARP = 32, MOST = 65535; // of the second and third dimension
    int64_t items = pooling_items(p, BACKWARD);
    const unsigned threads = (unsigned)min_i64((items + WARP - 1) / WARP * WARP, BLOCK);
    const dim3 blocks((unsigned)((items + threads - 1) / threads),
                      (unsigned)min_i64(pooling_rows(p, BACKWARD), MOST),
                      (unsigned)min_i64(p->images, MOST));
    return with_width(p->type, p->wide, [&](auto type, auto width) {
        LAUNCH(
            (pooling_kernel<decltype(type)::value, decltype(width)::value, BACKWARD>),
            blocks, threads, stream, *p);
    });
}

extern "C" cudaError_t pooling_forward_run(const pooling_args *p, cudaStream_t stream) {
    return pooling_run<0>(p, stream);
}

extern "C" cudaError_t pooling_backward_run(const pooling_args *p,
                                            cudaStream_t stream) {
    return pooling_run<1>(p, stream);
}

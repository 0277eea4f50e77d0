// Kernels of softmax along one dimension.
#include "warp.cuh"

// A row is handled by the lanes of a warp, or by one thread.
template <int LANES_PER_ROW, int BACKWARD>
static __global__ void __launch_bounds__(BLOCK)
    softmax_kernel(const __grid_constant__ softmax_args s) {
    int64_t i = LANES_PER_ROW == 1 ? item_id() : warp_id();
    int lane = LANES_PER_ROW == 1 ? 0 : lane_id();
    if (i >= softmax_rows(&s))
        return;
    row_view r = softmax_row(&s, BACKWARD ? s.out : s.in, i);
    if (BACKWARD) {
        pair dot = {softmax_dot(&s, &r, lane, LANES_PER_ROW), 0};
        if (LANES_PER_ROW > 1)
            dot = warp_sum(dot);
        softmax_gradient(&s, &r, lane, LANES_PER_ROW, dot.a);
        return;
    }
    float max = row_max(&r, DLC_F32, lane, LANES_PER_ROW);
    if (LANES_PER_ROW > 1)
        max = warp_max(max);
    pair sums = row_sums(&r, DLC_F32, lane, LANES_PER_ROW, max);
    if (LANES_PER_ROW > 1)
        sums = warp_sum(sums);
    softmax_write(&s, &r, lane, LANES_PER_ROW, max, sums.a);
}

template <int BACKWARD>
static cudaError_t softmax_run(const softmax_args *s, cudaStream_t stream) {
    int64_t rows = softmax_rows(s);
    if (softmax_lanes(s) == 1)
        LAUNCH((softmax_kernel<1, BACKWARD>), blocks_of(rows), BLOCK, stream, *s);
    else
        LAUNCH((softmax_kernel<WARP_SIZE, BACKWARD>), blocks_of(rows * WARP_SIZE),
               BLOCK, stream, *s);
    return cudaPeekAtLastError();
}

extern "C" cudaError_t softmax_forward_run(const softmax_args *s, cudaStream_t stream) {
    return softmax_run<0>(s, stream);
}

extern "C" cudaError_t softmax_backward_run(const softmax_args *s,
                                            cudaStream_t stream) {
    return softmax_run<1>(s, stream);
}

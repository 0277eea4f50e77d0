// softmax along one dimension.
#include "lanes.cuh"

// A row has so many lanes: those of a warp, or one.
template <int SHARE, int BACKWARD>
static __global__ void __launch_bounds__(BLOCK)
    softmax_kernel(const __grid_constant__ softmax_args s) {
    int64_t i = SHARE == 1 ? item_here() : warp_here();
    int lane = SHARE == 1 ? 0 : lane_here();
    if (i >= softmax_rows(&s))
        return;
    row_view r = softmax_row(&s, BACKWARD ? s.out : s.in, i);
    if (BACKWARD) {
        pair dot = {softmax_dot(&s, &r, lane, SHARE), 0};
        if (SHARE > 1)
            dot = warp_sum(dot);
        softmax_gradient(&s, &r, lane, SHARE, dot.a);
        return;
    }
    float top = row_top(&r, DLC_F32, lane, SHARE);
    if (SHARE > 1)
        top = warp_larger(top);
    pair sums = row_sums(&r, DLC_F32, lane, SHARE, top);
    if (SHARE > 1)
        sums = warp_sum(sums);
    softmax_write(&s, &r, lane, SHARE, top, sums.a);
}

template <int BACKWARD>
static cudaError_t softmax_run(const softmax_args *s, cudaStream_t stream) {
    int64_t rows = softmax_rows(s);
    if (softmax_lanes(s) == 1)
        LAUNCH((softmax_kernel<1, BACKWARD>), blocks_of(rows), BLOCK, stream, *s);
    else
        LAUNCH((softmax_kernel<LANES, BACKWARD>), blocks_of(rows * LANES), BLOCK,
               stream, *s);
    return cudaPeekAtLastError();
}

extern "C" cudaError_t softmax_forward_run(const softmax_args *s, cudaStream_t stream) {
    return softmax_run<0>(s, stream);
}

extern "C" cudaError_t softmax_backward_run(const softmax_args *s,
                                            cudaStream_t stream) {
    return softmax_run<1>(s, stream);
}

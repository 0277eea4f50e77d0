// Kernels of softmax_loss and accuracy.
#include "warp.cuh"

// Adds up the results of all rows; called by all threads of one block.
static __device__ void sum_rows(const labels_args *l) {
    __shared__ label_sums all[BLOCK];
    int thread = (int)threadIdx.x;
    all[thread] = labels_partial(l, thread);
    for (int step = BLOCK / 2; step; step /= 2) {
        __syncthreads();
        if (thread < step)
            label_sums_add(&all[thread], &all[thread + step]);
    }
    if (thread == 0)
        labels_done(l, &all[0]);
}

template <dlc_dtype TYPE>
static __device__ void loss_row(const labels_args *l, int64_t i) {
    const row_view r = labels_row(l, i);
    float max = warp_max(row_max(&r, TYPE, lane_id(), WARP_SIZE));
    pair sums = warp_sum(row_sums(&r, TYPE, lane_id(), WARP_SIZE, max));
    if (lane_id() == 0)
        loss_row_done(l, TYPE, i, max, sums);
}

template <dlc_dtype TYPE>
static __device__ void accuracy_row(const labels_args *l, int64_t i) {
    int32_t better = warp_sum(accuracy_better(l, TYPE, i, lane_id(), WARP_SIZE));
    if (lane_id() == 0)
        accuracy_row_done(l, TYPE, i, better);
}

// One warp per row. If there are few rows, a single block handles them all and adds
// them up at once.
template <dlc_dtype TYPE, int ACCURACY>
static __global__ void __launch_bounds__(BLOCK)
    rows_kernel(const __grid_constant__ labels_args l) {
    for (int64_t i = warp_id(); i < l.rows; i += (int64_t)gridDim.x * WARPS)
        if (ACCURACY)
            accuracy_row<TYPE>(&l, i);
        else
            loss_row<TYPE>(&l, i);
    if (gridDim.x > 1)
        return;
    __syncthreads();
    sum_rows(&l);
}

static __global__ void __launch_bounds__(BLOCK)
    sum_kernel(const __grid_constant__ labels_args l) {
    sum_rows(&l);
}

template <dlc_dtype TYPE>
static __global__ void __launch_bounds__(BLOCK)
    gradient_kernel(const __grid_constant__ labels_args l) {
    int64_t i = warp_id();
    if (i < l.rows)
        loss_gradient(&l, TYPE, i, lane_id(), WARP_SIZE, loss_factor(&l));
}

// Below this many scores, one block is faster than launching a second kernel.
constexpr int64_t ONE_BLOCK = 16384;

template <int ACCURACY>
static cudaError_t rows_run(const labels_args *l, cudaStream_t stream) {
    unsigned blocks = l->rows * l->classes <= ONE_BLOCK
                          ? 1
                          : blocks_of(l->rows * WARP_SIZE);
    cudaError_t error = with_type(l->type, [&](auto type) {
        LAUNCH((rows_kernel<decltype(type)::value, ACCURACY>), blocks, BLOCK, stream,
               *l);
    });
    if (error != cudaSuccess || blocks == 1)
        return error;
    LAUNCH(sum_kernel, 1, BLOCK, stream, *l);
    return cudaPeekAtLastError();
}

extern "C" cudaError_t loss_forward_run(const labels_args *l, cudaStream_t stream) {
    return rows_run<0>(l, stream);
}

extern "C" cudaError_t accuracy_run(const labels_args *l, cudaStream_t stream) {
    return rows_run<1>(l, stream);
}

extern "C" cudaError_t loss_backward_run(const labels_args *l, cudaStream_t stream) {
    return with_type(l->type, [&](auto type) {
        LAUNCH((gradient_kernel<decltype(type)::value>), blocks_of(l->rows * WARP_SIZE),
               BLOCK, stream, *l);
    });
}

extern "C" cudaError_t report_open(label_report **report) {
    void *memory = nullptr;
    cudaError_t error = cudaHostAlloc(&memory, sizeof **report,
                                      cudaHostAllocMapped | cudaHostAllocPortable);
    if (error != cudaSuccess)
        return error;
    *report = (label_report *)memory;
    **report = 0;
    return cudaSuccess;
}

extern "C" void report_close(label_report *report) {
    if (report)
        (void)cudaFreeHost(report);
}

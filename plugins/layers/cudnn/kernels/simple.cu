// Kernels that are a single loop over elements or rows: dropout, scale, concat, copies.
#include "warp.cuh"

// ---- dropout -----------------------------------------------------------------------

template <dlc_dtype TYPE>
static __global__ void __launch_bounds__(BLOCK)
    dropout_kernel(const __grid_constant__ dropout_args d) {
    dropout_at(&d, TYPE, item_id());
}

extern "C" cudaError_t dropout_run(const dropout_args *d, cudaStream_t stream) {
    return with_type(d->type, [&](auto type) {
        LAUNCH((dropout_kernel<decltype(type)::value>), blocks_of(dropout_items(d)),
               BLOCK, stream, *d);
    });
}

// ---- scale -------------------------------------------------------------------------

// A block handles WARP_SIZE adjacent channels of SCALE_ROW_THREADS rows.
template <dlc_dtype TYPE, int WIDTH>
static __global__ void __launch_bounds__(BLOCK)
    scale_kernel(const __grid_constant__ scale_args s) {
    int64_t vector = (int64_t)blockIdx.x * WARP_SIZE + threadIdx.x;
    int64_t step = (int64_t)gridDim.y * SCALE_ROW_THREADS;
    if (vector >= s.channels / WIDTH)
        return;
    for (int64_t r = (int64_t)blockIdx.y * SCALE_ROW_THREADS + threadIdx.y; r < s.rows;
         r += step)
        scale_at(&s, TYPE, WIDTH, r, vector);
}

static dim3 scale_grid(int64_t across, int64_t down) {
    constexpr int64_t MOST_DOWN = 65535; // CUDA's limit
    return dim3((unsigned)((across + WARP_SIZE - 1) / WARP_SIZE),
                (unsigned)min_i64(down, MOST_DOWN));
}

extern "C" cudaError_t scale_run(const scale_args *s, cudaStream_t stream) {
    int width = scale_width(s);
    dim3 grid = scale_grid(s->channels / width,
                           (s->rows + SCALE_ROW_THREADS - 1) / SCALE_ROW_THREADS);
    return with_width(s->type, width > 1, [&](auto type, auto w) {
        LAUNCH((scale_kernel<decltype(type)::value, decltype(w)::value>), grid,
               dim3(WARP_SIZE, SCALE_ROW_THREADS), stream, *s);
    });
}

// A block handles WARP_SIZE channels of one chunk.
template <dlc_dtype TYPE>
static __global__ void __launch_bounds__(BLOCK)
    scale_partial_kernel(const __grid_constant__ scale_args s) {
    __shared__ pair all[SCALE_ROW_THREADS][WARP_SIZE];
    int64_t channel = (int64_t)blockIdx.x * WARP_SIZE + threadIdx.x;
    pair own = {0, 0};
    if (channel < s.channels)
        own = scale_partial(&s, TYPE, channel, blockIdx.y, (int)threadIdx.y);
    all[threadIdx.y][threadIdx.x] = own;
    for (unsigned step = SCALE_ROW_THREADS / 2; step; step /= 2) {
        __syncthreads();
        if (threadIdx.y < step)
            all[threadIdx.y][threadIdx.x] = pair_sum(
                all[threadIdx.y][threadIdx.x], all[threadIdx.y + step][threadIdx.x]);
    }
    if (threadIdx.y == 0 && channel < s.channels)
        scale_partial_done(&s, channel, blockIdx.y, all[0][threadIdx.x]);
}

static __global__ void __launch_bounds__(BLOCK)
    scale_sum_kernel(const __grid_constant__ scale_args s) {
    if (item_id() < s.channels)
        scale_sum_at(&s, item_id());
}

extern "C" cudaError_t scale_sums_run(const scale_args *s, cudaStream_t stream) {
    dim3 grid = scale_grid(s->channels, scale_chunks(s->rows));
    cudaError_t error = with_type(s->type, [&](auto type) {
        LAUNCH((scale_partial_kernel<decltype(type)::value>), grid,
               dim3(WARP_SIZE, SCALE_ROW_THREADS), stream, *s);
    });
    if (error != cudaSuccess)
        return error;
    LAUNCH(scale_sum_kernel, blocks_of(s->channels), BLOCK, stream, *s);
    return cudaPeekAtLastError();
}

// ---- concat ------------------------------------------------------------------------

template <int PIECE, int BACKWARD>
static __global__ void __launch_bounds__(BLOCK)
    concat_kernel(const __grid_constant__ concat_args c, int64_t first_row,
                  uint32_t items) {
    uint32_t item = blockIdx.x * BLOCK + threadIdx.x;
    if (item < items)
        concat_at(&c, BACKWARD, PIECE, first_row, item);
}

template <int PIECE>
static cudaError_t concat_rows(const concat_args *c, int backward, int64_t first,
                               uint32_t items, cudaStream_t stream) {
    if (backward)
        LAUNCH((concat_kernel<PIECE, 1>), blocks_of(items), BLOCK, stream, *c, first,
               items);
    else
        LAUNCH((concat_kernel<PIECE, 0>), blocks_of(items), BLOCK, stream, *c, first,
               items);
    return cudaPeekAtLastError();
}

extern "C" cudaError_t concat_run(const concat_args *c, int backward,
                                  cudaStream_t stream) {
    int64_t each = c->before[c->inputs], at_once = max_i64(MOST_ITEMS / each, 1);
    cudaError_t error = cudaSuccess;
    for (int64_t first = 0; first < c->rows && error == cudaSuccess; first += at_once) {
        uint32_t items = (uint32_t)(min_i64(at_once, c->rows - first) * each);
        if (c->piece == 16)
            error = concat_rows<16>(c, backward, first, items, stream);
        else if (c->piece == 4)
            error = concat_rows<4>(c, backward, first, items, stream);
        else
            error = concat_rows<2>(c, backward, first, items, stream);
    }
    return error;
}

extern "C" cudaError_t copy_run(void *to, const void *from, size_t bytes,
                                cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

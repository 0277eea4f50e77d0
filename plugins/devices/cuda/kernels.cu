/* The CUDA kernels: what each pass of sweep.cuh loads and stores around the arithmetic
 * of bodies.h, and the kernels that are no such pass, of norms and the loss scale. */
#include "kernels.h"

#include "sweep.cuh"

/* ---- One vector, two vectors ------------------------------------------------- */

namespace {

struct scale_pass {
    enum { PACK = 4 };
    float alpha;
    float *x;
    template <int W> struct seen { pack<float, W> x; };
    template <int W> __device__ void load(size_t at, seen<W> &s) const {
        s.x = load_pack<W>(x, at);
    }
    template <int W> __device__ void done(size_t at, seen<W> &s) const {
#pragma unroll
        for (int i = 0; i < W; i++)
            s.x.v[i] = body_scale(alpha, s.x.v[i]);
        store_pack(x, at, s.x);
    }
};

/* y = op(x, y) */
struct add_f32 {
    typedef float type;
    enum { PACK = 4 };
    __device__ float of(float x, float y) const {
        return body_add(x, y);
    }
};

struct axpy_f32 {
    typedef float type;
    enum { PACK = 4 };
    float alpha;
    __device__ float of(float x, float y) const {
        return body_axpy(alpha, x, y);
    }
};

struct sum_bf16 {
    typedef uint16_t type;
    enum { PACK = 8 };
    __device__ uint16_t of(uint16_t x, uint16_t y) const {
        return body_add_bf16(x, y);
    }
};

struct sum_f16 {
    typedef uint16_t type;
    enum { PACK = 8 };
    __device__ uint16_t of(uint16_t x, uint16_t y) const {
        return body_add_f16(x, y);
    }
};

template <typename Op> struct update_pass {
    typedef typename Op::type T;
    enum { PACK = Op::PACK };
    Op op;
    const T *x;
    T *y;
    template <int W> struct seen { pack<T, W> x, y; };
    template <int W> __device__ void load(size_t at, seen<W> &s) const {
        s.x = load_pack<W>(x, at);
        s.y = load_pack<W>(y, at);
    }
    template <int W> __device__ void done(size_t at, seen<W> &s) const {
#pragma unroll
        for (int i = 0; i < W; i++)
            s.y.v[i] = op.of(s.x.v[i], s.y.v[i]);
        store_pack(y, at, s.y);
    }
};

template <typename Op>
cudaError_t update(kernel_launch at, size_t n, Op op, const typename Op::type *x,
                   typename Op::type *y) {
    constexpr int W = Op::PACK;
    unsigned offset = offset_of<W>(y);
    update_pass<Op> pass = {op, x, y};
    return sweep_all<4>(at, n, offset, offset_of<W>(x) == offset, pass);
}

} // namespace

cudaError_t kernel_scale(kernel_launch at, size_t n, float alpha, float *x) {
    scale_pass pass = {alpha, x};
    return sweep_all<4>(at, n, offset_of<scale_pass::PACK>(x), true, pass);
}

cudaError_t kernel_add(kernel_launch at, size_t n, const float *x, float *y) {
    return update(at, n, add_f32{}, x, y);
}

cudaError_t kernel_axpy(kernel_launch at, size_t n, float alpha, const float *x,
                        float *y) {
    return update(at, n, axpy_f32{alpha}, x, y);
}

cudaError_t kernel_add_bf16(kernel_launch at, size_t n, const uint16_t *x,
                            uint16_t *y) {
    return update(at, n, sum_bf16{}, x, y);
}

cudaError_t kernel_add_f16(kernel_launch at, size_t n, const uint16_t *x, uint16_t *y) {
    return update(at, n, sum_f16{}, x, y);
}

/* ---- Conversions ------------------------------------------------------------- */

namespace {

#define CONVERSION(name, from_type, to_type, body) \
    struct name { \
        typedef from_type from; \
        typedef to_type to; \
        static __device__ to of(from x) { \
            return body(x); \
        } \
    }

CONVERSION(f32_to_bf16, float, uint16_t, body_bf16_of);
CONVERSION(f32_to_f16, float, uint16_t, body_f16_of);
CONVERSION(f32_to_f64, float, double, body_f64_of);
CONVERSION(f32_to_i32, float, int32_t, body_i32_of);
CONVERSION(f32_to_i64, float, int64_t, body_i64_of);
CONVERSION(f32_to_u8, float, uint8_t, body_u8_of);
CONVERSION(bf16_to_f32, uint16_t, float, body_of_bf16);
CONVERSION(f16_to_f32, uint16_t, float, body_of_f16);
CONVERSION(f64_to_f32, double, float, body_of_f64);
CONVERSION(i32_to_f32, int32_t, float, body_of_i32);
CONVERSION(i64_to_f32, int64_t, float, body_of_i64);
CONVERSION(u8_to_f32, uint8_t, float, body_of_u8);

template <typename Op> struct convert_pass {
    typedef typename Op::from From;
    typedef typename Op::to To;
    enum { PACK = 4 };
    const From *src;
    To *dst;
    template <int W> struct seen { pack<From, W> x; };
    template <int W> __device__ void load(size_t at, seen<W> &s) const {
        s.x = load_pack<W>(src, at);
    }
    template <int W> __device__ void done(size_t at, seen<W> &s) const {
        pack<To, W> y;
#pragma unroll
        for (int i = 0; i < W; i++)
            y.v[i] = Op::of(s.x.v[i]);
        store_pack(dst, at, y);
    }
};

template <typename Op>
cudaError_t convert(kernel_launch at, size_t n, const void *src, void *dst) {
    convert_pass<Op> pass = {static_cast<const typename Op::from *>(src),
                             static_cast<typename Op::to *>(dst)};
    constexpr int W = convert_pass<Op>::PACK;
    unsigned offset = offset_of<W>(pass.dst);
    return sweep_all<4>(at, n, offset, offset_of<W>(pass.src) == offset, pass);
}

typedef cudaError_t convert_fn(kernel_launch at, size_t n, const void *src, void *dst);

const struct {
    dlc_dtype from, to;
    convert_fn *convert;
} conversions[] = {
    {DLC_F32, DLC_BF16, convert<f32_to_bf16>},
    {DLC_BF16, DLC_F32, convert<bf16_to_f32>},
    {DLC_F32, DLC_F16, convert<f32_to_f16>},
    {DLC_F16, DLC_F32, convert<f16_to_f32>},
    {DLC_F32, DLC_F64, convert<f32_to_f64>},
    {DLC_F64, DLC_F32, convert<f64_to_f32>},
    {DLC_F32, DLC_I32, convert<f32_to_i32>},
    {DLC_I32, DLC_F32, convert<i32_to_f32>},
    {DLC_F32, DLC_I64, convert<f32_to_i64>},
    {DLC_I64, DLC_F32, convert<i64_to_f32>},
    {DLC_F32, DLC_U8, convert<f32_to_u8>},
    {DLC_U8, DLC_F32, convert<u8_to_f32>},
};

} // namespace

cudaError_t kernel_convert(kernel_launch at, size_t n, dlc_dtype from, const void *src,
                           dlc_dtype to, void *dst) {
    for (const auto &row : conversions)
        if (row.from == from && row.to == to)
            return row.convert(at, n, src, dst);
    return cudaErrorNotSupported;
}

/* ---- Images ------------------------------------------------------------------ */

namespace {

/* SMALL: indices fit 32 bits. */
template <bool SMALL> struct normalize_pass {
    enum { PACK = 4 };
    kernel_images to;
    uint64_t by_plane, by_channels; /* body_inverse */
    template <int W> struct seen { pack<uint8_t, W> x; };
    template <int W> __device__ void load(size_t at, seen<W> &s) const {
        s.x = load_pack<W>(to.src, at);
    }
    __device__ size_t over_plane(size_t at) const {
        return SMALL ? body_quotient((uint32_t)at, by_plane) : at / to.plane;
    }
    __device__ size_t over_channels(size_t at) const {
        return SMALL ? body_quotient((uint32_t)at, by_channels) : at / to.channels;
    }
    /* A plane may begin anywhere in a pack. */
    template <int W> __device__ void done(size_t at, seen<W> &s) const {
        size_t number = over_plane(at), left = (number + 1) * to.plane - at;
        size_t channel = number - over_channels(number) * to.channels;
        pack<float, W> y;
#pragma unroll
        for (int i = 0; i < W; i++) {
            y.v[i] = body_normalize(s.x.v[i], to.mean[channel], to.scale[channel]);
            if (--left == 0) {
                left = to.plane;
                channel = channel + 1 < to.channels ? channel + 1 : 0;
            }
        }
        store_pack(to.dst, at, y);
    }
};

template <bool SMALL>
cudaError_t normalize(kernel_launch at, size_t n, const kernel_images &images) {
    normalize_pass<SMALL> pass = {images, 0, 0};
    if (SMALL) {
        pass.by_plane = body_inverse((uint32_t)images.plane);
        pass.by_channels = body_inverse((uint32_t)images.channels);
    }
    constexpr int W = normalize_pass<SMALL>::PACK;
    unsigned offset = offset_of<W>(images.dst);
    return sweep_all<4>(at, n, offset, offset_of<W>(images.src) == offset, pass);
}

} // namespace

cudaError_t kernel_normalize(kernel_launch at, size_t n, const kernel_images *images) {
    bool small = n <= UINT32_MAX && images->plane <= UINT32_MAX &&
                 images->channels <= UINT32_MAX;
    return small ? normalize<true>(at, n, *images) : normalize<false>(at, n, *images);
}

/* ---- Sums -------------------------------------------------------------------- */

namespace {

/* Sums up to MOST sources: 2, 4, 8 or 64. The pointers are kernel parameters. */
template <int MOST> struct sum_pass {
    enum { PACK = 4, INNER = MOST < 8 ? MOST : 8, OUTER = MOST / INNER };
    const float *source[MOST];
    float *dst[KERNEL_SOURCES];
    int count, dst_count;
    template <int W> struct seen { pack<float, W> sum; };

    /* Sums `there` sources from `begin` on; all are loaded before one is used. */
    template <int W>
    __device__ pack<float, W> inner(size_t at, int begin, int there) const {
        pack<float, W> x[INNER], sum;
#pragma unroll
        for (int k = 0; k < INNER; k++)
            if (k < there)
                x[k] = load_pack<W>(source[begin + k], at);
#pragma unroll
        for (int i = 0; i < W; i++) {
            float s[INNER];
#pragma unroll
            for (int k = 0; k < INNER; k++)
                s[k] = x[k].v[i];
            sum.v[i] = body_pairwise(s, INNER, there);
        }
        return sum;
    }

    template <int W> __device__ void load(size_t at, seen<W> &s) const {
        if (OUTER == 1) {
            s.sum = inner<W>(at, 0, count);
            return;
        }
        pack<float, W> part[OUTER];
        int parts = (count + INNER - 1) / INNER;
#pragma unroll
        for (int p = 0; p < OUTER; p++)
            if (p < parts)
                part[p] = inner<W>(at, p * INNER, count - p * INNER);
#pragma unroll
        for (int i = 0; i < W; i++) {
            float sums[OUTER];
#pragma unroll
            for (int p = 0; p < OUTER; p++)
                sums[p] = part[p].v[i];
            s.sum.v[i] = body_pairwise(sums, OUTER, parts);
        }
    }

    template <int W> __device__ void done(size_t at, seen<W> &s) const {
        for (int d = 0; d < dst_count; d++)
            store_pack(dst[d], at, s.sum);
    }
};

template <int MOST, int U>
cudaError_t sum(kernel_launch at, size_t n, const float *const *sources, int count,
                float *const *dsts, int dst_count) {
    constexpr int W = sum_pass<MOST>::PACK;
    sum_pass<MOST> pass;
    unsigned offset = offset_of<W>(dsts[0]);
    bool aligned = true;
    for (int k = 0; k < MOST; k++) {
        pass.source[k] = sources[k < count ? k : 0];
        aligned = aligned && offset_of<W>(pass.source[k]) == offset;
    }
    for (int k = 0; k < KERNEL_SOURCES; k++) {
        pass.dst[k] = dsts[k < dst_count ? k : 0];
        aligned = aligned && offset_of<W>(pass.dst[k]) == offset;
    }
    pass.count = count;
    pass.dst_count = dst_count;
    return sweep_all<U>(at, n, offset, aligned, pass);
}

} // namespace

cudaError_t kernel_sum_to(kernel_launch at, size_t n, const float *const *sources,
                          int count, float *const *dsts, int dst_count) {
    if (count < 1 || dst_count < 1 || count > KERNEL_SOURCES ||
        dst_count > KERNEL_SOURCES)
        return cudaErrorInvalidValue;
    if (count <= 2)
        return sum<2, 4>(at, n, sources, count, dsts, dst_count);
    if (count <= 4)
        return sum<4, 2>(at, n, sources, count, dsts, dst_count);
    if (count <= 8)
        return sum<8, 1>(at, n, sources, count, dsts, dst_count);
    return sum<64, 1>(at, n, sources, count, dsts, dst_count);
}

/* ---- The sum of squares ------------------------------------------------------ */

namespace {

/* Called by all threads of a block; the result is valid in the first one. */
__device__ double sum_of_block(double mine) {
    __shared__ double sums[THREADS];
    sums[threadIdx.x] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half)
            sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    return sums[0];
}

/* LANES threads square a piece, in the order of the cpu device. */
__global__ void __launch_bounds__(THREADS)
    square_pieces(size_t n, size_t pieces, const float *x, double *out) {
    enum { LANES = 16, AT_ONCE = THREADS / LANES };
    __shared__ double sums[THREADS];
    const int lane = (int)threadIdx.x % LANES;
    for (size_t first = (size_t)blockIdx.x * AT_ONCE; first < pieces;
         first += (size_t)gridDim.x * AT_ONCE) {
        size_t piece = first + threadIdx.x / LANES, begin = piece * DLC_SQUARE_PIECE;
        size_t end = begin + DLC_SQUARE_PIECE < n ? begin + DLC_SQUARE_PIECE : n;
        double sum = 0.0;
        for (size_t i = begin + lane; i < end; i += LANES)
            sum += (double)x[i] * (double)x[i];
        sums[threadIdx.x] = sum;
        for (int half = LANES / 2; half > 0; half /= 2) {
            __syncthreads();
            if (lane < half)
                sums[threadIdx.x] += sums[threadIdx.x + half];
        }
        if (lane == 0 && piece < pieces)
            out[piece] = sums[threadIdx.x];
        __syncthreads();
    }
}

__global__ void __launch_bounds__(THREADS)
    add_sums(size_t count, const double *sums, double *total) {
    double sum = 0.0;
    for (size_t i = threadIdx.x; i < count; i += THREADS)
        sum += sums[i];
    sum = sum_of_block(sum);
    if (threadIdx.x == 0)
        *total = sum;
}

} // namespace

cudaError_t kernel_square_sums(kernel_launch at, size_t n, const float *x,
                               double *sums) {
    constexpr size_t MOST = 4096; /* blocks */
    size_t pieces = (n + DLC_SQUARE_PIECE - 1) / DLC_SQUARE_PIECE;
    size_t blocks = (pieces + 15) / 16;
    return launch(at, blocks < MOST ? blocks : MOST, square_pieces, n, pieces, x, sums);
}

cudaError_t kernel_total(kernel_launch at, size_t n, const double *sums,
                         double *total) {
    return launch(at, 1, add_sums, n, sums, total);
}

/* ---- A mean, the loss scale -------------------------------------------------- */

namespace {

__global__ void one_mean(float alpha, const float *x, float *y) {
    if (threadIdx.x == 0)
        body_add_mean(alpha, x, y);
}

__global__ void new_scale(const double *square, int32_t growth_interval,
                          dlc_loss_scale *scale) {
    if (threadIdx.x == 0)
        body_update_scale(scale, *square, growth_interval);
}

} // namespace

cudaError_t kernel_add_mean(kernel_launch at, float alpha, const float *x, float *y) {
    return launch(at, 1, one_mean, alpha, x, y);
}

cudaError_t kernel_update_loss_scale(kernel_launch at, const double *square,
                                     int32_t growth_interval, dlc_loss_scale *scale) {
    return launch(at, 1, new_scale, square, growth_interval, scale);
}

/* Conversions between float32 and the types in memory, for one number or for as many as
 * a thread loads at once (16 bytes). */
#ifndef DLCORE_CUDNN_VALUES_CUH
#define DLCORE_CUDNN_VALUES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

static __device__ __forceinline__ float to_float(float v) {
    return v;
}
static __device__ __forceinline__ float to_float(__nv_bfloat16 v) {
    return __bfloat162float(v);
}
static __device__ __forceinline__ float to_float(__half v) {
    return __half2float(v);
}

template <typename T> static __device__ __forceinline__ T from_float(float v);
template <> __device__ __forceinline__ float from_float<float>(float v) {
    return v;
}
template <> __device__ __forceinline__ __nv_bfloat16 from_float(float v) {
    return __float2bfloat16_rn(v);
}
template <> __device__ __forceinline__ __half from_float(float v) {
    return __float2half_rn(v);
}

/* N adjacent numbers, loaded and stored by one access. */
template <typename T, int N> struct alignas(sizeof(T) * N) pack { T at[N]; };

template <int N, typename T>
static __device__ __forceinline__ pack<T, N> fetch(const T *from) {
    return *reinterpret_cast<const pack<T, N> *>(from);
}

template <typename T, int N>
static __device__ __forceinline__ void unpack(const pack<T, N> &from, float (&to)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = to_float(from.at[i]);
}

template <typename T, int N>
static __device__ __forceinline__ void load(const T *from, float (&to)[N]) {
    unpack(fetch<N>(from), to);
}

template <typename T, int N>
static __device__ __forceinline__ void store(const float (&from)[N], T *to) {
    pack<T, N> p;
#pragma unroll
    for (int i = 0; i < N; i++)
        p.at[i] = from_float<T>(from[i]);
    *reinterpret_cast<pack<T, N> *>(to) = p;
}

/* How many numbers fill 16 bytes. */
template <typename T> struct widest {
    enum { N = 16 / sizeof(T) };
};

#endif

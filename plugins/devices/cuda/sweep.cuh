/* One pass over vectors, at the speed of memory: each thread loads several packs of
 * elements, all of them before it uses the first, so that enough loads are in flight.
 *
 * A pack is 16 bytes of the pass's narrowest type that is worth it. Packs begin where
 * every pointer is aligned; the few elements before and after them are processed one
 * at a time, by threads of the first block. Where the alignments differ, all are.
 *
 * A pass is a struct of its operands, with
 *     enum { PACK }                              elements of a pack
 *     template <int W> struct seen               what is loaded for W elements
 *     load<W>(at, seen &)                        loads them
 *     done<W>(at, seen &)                        computes and stores
 * where `at` is the index of the first element. */
#ifndef SWEEP_CUH
#define SWEEP_CUH

#include <stddef.h>
#include <stdint.h>

constexpr int THREADS = 256;

template <typename T, int W> struct alignas(sizeof(T) * W) pack { T v[W]; };

template <int W, typename T>
static __device__ __forceinline__ pack<T, W> load_pack(const T *from, size_t at) {
    return *reinterpret_cast<const pack<T, W> *>(from + at);
}

template <int W, typename T>
static __device__ __forceinline__ void store_pack(T *to, size_t at,
                                                  const pack<T, W> &value) {
    *reinterpret_cast<pack<T, W> *>(to + at) = value;
}

/* How n elements are split: `head` single ones, packs, `tail` single ones. */
struct cut {
    size_t packs;
    unsigned head, tail;
};

template <int W, int U, typename Pass>
__global__ void __launch_bounds__(THREADS)
    sweep(const __grid_constant__ Pass pass, const cut parts) {
    size_t first = (size_t)blockIdx.x * (THREADS * U) + threadIdx.x;
    typename Pass::template seen<W> seen[U];
#pragma unroll
    for (int u = 0; u < U; u++)
        if (first + u * THREADS < parts.packs)
            pass.template load<W>(parts.head + (first + u * THREADS) * W, seen[u]);
#pragma unroll
    for (int u = 0; u < U; u++)
        if (first + u * THREADS < parts.packs)
            pass.template done<W>(parts.head + (first + u * THREADS) * W, seen[u]);

    if (W > 1 && blockIdx.x == 0 && threadIdx.x < parts.head + parts.tail) {
        size_t at = threadIdx.x < parts.head
                        ? threadIdx.x
                        : parts.packs * W + threadIdx.x; /* counts the head, too */
        typename Pass::template seen<1> one;
        pass.template load<1>(at, one);
        pass.template done<1>(at, one);
    }
}

template <typename... Wants, typename... Has>
static cudaError_t launch(kernel_launch at, size_t blocks, void (*kernel)(Wants...),
                          Has... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)blocks);
    config.blockDim = dim3(THREADS);
    config.stream = at.stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/* Distance of a pointer from the pack boundary before it, in elements. */
template <int W, typename T> static unsigned offset_of(const T *at) {
    return (unsigned)((uintptr_t)at / sizeof(T) % W);
}

/* Blocks that cover all packs, U per thread; one for the edges if there are none. */
template <int U> static size_t blocks_for(size_t packs) {
    size_t blocks = (packs + THREADS * U - 1) / (THREADS * U);
    return blocks > 0 ? blocks : 1;
}

/* `offset` is the pointers' distance from the pack boundary if all have the same one
 * (`aligned`). Small passes use one pack per thread, to occupy all multiprocessors. */
template <int U, typename Pass>
static cudaError_t sweep_all(kernel_launch at, size_t n, unsigned offset, bool aligned,
                             const Pass &pass) {
    constexpr int W = Pass::PACK;
    constexpr size_t RESIDENT = 2048; /* resident threads of a multiprocessor */
    if (!aligned) {
        cut ones = {n, 0, 0};
        return launch(at, blocks_for<4>(n), sweep<1, 4, Pass>, pass, ones);
    }
    size_t head = (W - offset) % W;
    head = head < n ? head : n;
    cut parts = {(n - head) / W, (unsigned)head, (unsigned)((n - head) % W)};
    if (U > 1 && parts.packs > (size_t)at.units * RESIDENT)
        return launch(at, blocks_for<U>(parts.packs), sweep<W, U, Pass>, pass, parts);
    return launch(at, blocks_for<1>(parts.packs), sweep<W, 1, Pass>, pass, parts);
}

#endif

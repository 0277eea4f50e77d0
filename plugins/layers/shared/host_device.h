/* BODY: functions that nvcc compiles for the GPU and other compilers for the CPU, so
 * that both families get bitwise identical results, and tests run the GPU's code on the
 * host. */
#ifndef LAYERS_SHARED_HOST_DEVICE_H
#define LAYERS_SHARED_HOST_DEVICE_H

#ifdef __CUDACC__
#define BODY static __host__ __device__ __forceinline__
#else
#define BODY static inline __attribute__((always_inline))
#endif

#endif

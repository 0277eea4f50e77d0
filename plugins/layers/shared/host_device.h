/* What the families of layers have in common: functions that nvcc compiles for the GPU
 * and anybody for the processor, so that both give the same bits, and tests run the
 * GPU's text on the host. */
#ifndef LAYERS_SHARED_HOST_DEVICE_H
#define LAYERS_SHARED_HOST_DEVICE_H

#ifdef __CUDACC__
#define BODY static __host__ __device__ __forceinline__
#else
#define BODY static inline __attribute__((always_inline))
#endif

#endif

/* Functions that are compiled for the GPU by nvcc and for the processor by anybody, so
 * that tests run the very same text on the host. */
#ifndef DLCORE_CUDNN_HOST_DEVICE_H
#define DLCORE_CUDNN_HOST_DEVICE_H

#ifdef __CUDACC__
#define BODY static __host__ __device__ __forceinline__
#else
#define BODY static inline __attribute__((always_inline))
#endif

#endif

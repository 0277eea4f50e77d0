/* CUDA interoperability: a device that runs CUDA, as seen by other CUDA plugins.
 *
 * For layers and transports that work on the device "cuda":
 *
 * - All work is done in the GPU's primary context, which is the one that the CUDA
 *   runtime uses. A plugin calls cudaSetDevice with the number that dlc_cuda_device
 *   gives on each of its own threads before any other call of the runtime, and needs no
 *   context of its own.
 * - dlc_cuda_stream gives the stream of a queue, created with cudaStreamNonBlocking.
 *   Work that a plugin submits to it is work of the queue. A plugin that needs a stream
 *   of its own opens a queue.
 * - A NULL queue means to the device that the work is done when the call returns; to
 *   CUDA, NULL is the legacy default stream, which dlcore never uses.
 * - Between capture_begin and capture_end the stream is being captured, with
 *   cudaStreamCaptureModeThreadLocal.
 *
 * Any thread may call the functions, and they do not block. They return
 * DLC_ERR_UNSUPPORTED if the device does not run CUDA; the caller then sets the detail
 * sentence.
 *
 * The types are declared as CUDA declares them, so that its headers are not needed: a
 * cudaStream_t (CUstream) is a struct CUstream_st *. */
#ifndef DLCORE_CUDA_H
#define DLCORE_CUDA_H

#include <dlcore/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The name of the device, for dlc_feature.device. */
#define DLC_CUDA_DEVICE "cuda"

struct CUstream_st;

/* The CUDA runtime's number of the GPU, as cudaSetDevice takes it. */
static inline dlc_status dlc_cuda_device(const dlc_device_ops *ops, dlc_device *device,
                                         int *number) {
    return DLC_CAN(ops, native)
               ? ops->native(device, NULL, DLC_NATIVE_CUDA_DEVICE, number)
               : DLC_ERR_UNSUPPORTED;
}

/* The stream of a queue, which is not NULL. It is valid as long as the queue. */
static inline dlc_status dlc_cuda_stream(const dlc_device_ops *ops, dlc_device *device,
                                         dlc_queue *queue,
                                         struct CUstream_st **stream) {
    return DLC_CAN(ops, native)
               ? ops->native(device, queue, DLC_NATIVE_CUDA_STREAM, stream)
               : DLC_ERR_UNSUPPORTED;
}

#ifdef __cplusplus
}
#endif
#endif

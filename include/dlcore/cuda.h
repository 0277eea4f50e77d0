/* CUDA interoperability: the device "cuda" as seen by other CUDA plugins.
 *
 * For layers and transports that run on the device of the dlcore CUDA plugin:
 *
 * - A dlc_device begins with an int, the CUDA runtime's number of the GPU. All work is
 *   done in that GPU's primary context, which is the one that the runtime uses. A
 *   plugin calls cudaSetDevice(dlc_cuda_device(device)) on each of its own threads
 *   before any other call of the runtime, and needs no context of its own.
 * - A dlc_queue is a stream created with cudaStreamNonBlocking, and a dlc_event is an
 *   event created without timing. The conversion works in both directions: a plugin may
 *   pass its own streams and events to the calls of the device. A NULL queue means to
 *   the device that the work is done when the call returns; to CUDA, NULL is the legacy
 *   default stream, which dlcore never uses.
 * - Between capture_begin and capture_end the stream is being captured, with
 *   cudaStreamCaptureModeThreadLocal.
 *
 * The types are declared as CUDA declares them, so that its headers are not needed: a
 * cudaStream_t (CUstream) is a struct CUstream_st *, a cudaEvent_t (CUevent) is a
 * struct CUevent_st *. */
#ifndef DLCORE_CUDA_H
#define DLCORE_CUDA_H

#include <dlcore/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The name of the device, for dlc_feature.device. */
#define DLC_CUDA_DEVICE "cuda"

struct CUstream_st;
struct CUevent_st;

/* The CUDA runtime's number of the GPU, as cudaSetDevice takes it. */
static inline int dlc_cuda_device(const dlc_device *device) {
    return *(const int *)(const void *)device;
}

/* The stream of a queue. */
static inline struct CUstream_st *dlc_cuda_stream(dlc_queue *queue) {
    return (struct CUstream_st *)(void *)queue;
}

/* The queue of a stream. */
static inline dlc_queue *dlc_cuda_queue(struct CUstream_st *stream) {
    return (dlc_queue *)(void *)stream;
}

/* The CUDA event of an event. */
static inline struct CUevent_st *dlc_cuda_event(dlc_event *event) {
    return (struct CUevent_st *)(void *)event;
}

/* The event of a CUDA event. */
static inline dlc_event *dlc_cuda_as_event(struct CUevent_st *event) {
    return (dlc_event *)(void *)event;
}

#ifdef __cplusplus
}
#endif
#endif

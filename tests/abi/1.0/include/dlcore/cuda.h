/* The device "cuda" as other plugins of CUDA see it: layers, transports, yours.
 *
 * - A dlc_device begins with an int, the runtime's number of its GPU. All work is done
 *   in that GPU's primary context, the one that the runtime uses: a plugin calls
 *   cudaSetDevice(dlc_cuda_device(device)) on every thread of its own before anything
 *   else of the runtime, and needs no context of its own.
 * - A dlc_queue is a stream, made with cudaStreamNonBlocking; a dlc_event is an event
 *   without timing. Either way round: a plugin's own stream or event may be handed to
 *   the device's calls. NULL is no stream: to the device it means "done when the call
 *   returns", to CUDA it means the legacy default stream, which nothing here uses.
 * - While a queue is recorded (record_begin) its stream is being captured, with
 *   cudaStreamCaptureModeThreadLocal.
 *
 * The types are those of CUDA, named without its headers: a cudaStream_t (CUstream) is
 * a struct CUstream_st *, a cudaEvent_t (CUevent) a struct CUevent_st *. */
#ifndef DLCORE_CUDA_H
#define DLCORE_CUDA_H

#include <dlcore/device.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The name of the device's feature, as dlc_feature.device has it. */
#define DLC_CUDA_DEVICE "cuda"

struct CUstream_st;
struct CUevent_st;

/* The runtime's number of the GPU: of cudaSetDevice. */
static inline int dlc_cuda_device(const dlc_device *device) {
    return *(const int *)(const void *)device;
}

static inline struct CUstream_st *dlc_cuda_stream(dlc_queue *queue) {
    return (struct CUstream_st *)(void *)queue;
}

static inline dlc_queue *dlc_cuda_queue(struct CUstream_st *stream) {
    return (dlc_queue *)(void *)stream;
}

static inline struct CUevent_st *dlc_cuda_event(dlc_event *event) {
    return (struct CUevent_st *)(void *)event;
}

static inline dlc_event *dlc_cuda_as_event(struct CUevent_st *event) {
    return (dlc_event *)(void *)event;
}

#ifdef __cplusplus
}
#endif
#endif

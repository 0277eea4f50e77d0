/* Internals of the cuda device. */
#ifndef GPU_H
#define GPU_H

#include <pthread.h>

#include <cuda_runtime_api.h>

#include <dlcore/cuda.h>

#include "driver.h"

extern const dlc_host *host;

typedef struct rule_kernel rule_kernel; /* rules.c */

struct dlc_device {
    int number;       /* the runtime's index */
    int units;        /* multiprocessors */
    int by_file;      /* memory is shared by file descriptors; 0: by cudaIpc */
    int one_address;  /* pinned memory has one address on CPU and GPU */
    char address[20]; /* PCI, in the runtime's format */
    driver_calls calls;
    cudaStream_t own;           /* for calls without a queue */
    pthread_mutex_t probe_lock; /* held by semaphores.c, for the field below */
    uint32_t *probe;            /* host memory that the GPU can access */
    pthread_mutex_t rules_lock;
    rule_kernel *rules; /* owned; see rules.c */
};

/* ---- error.c ----------------------------------------------------------------- */

/* Returns the status of a failed call, sets its message, and clears the runtime's last
 * error. `device` may be NULL before one is open. */
dlc_status gpu_failed(const dlc_device *device, cudaError_t error, const char *what,
                      ...) __attribute__((format(printf, 3, 4)));
/* An error of the driver as the runtime's, which has the same numbers. */
#define DRIVER_ERROR(result) ((cudaError_t)(result))

#define GPU_TRY(device, call, ...) \
    do { \
        cudaError_t gpu_error_ = (call); \
        if (gpu_error_ != cudaSuccess) \
            return gpu_failed(device, gpu_error_, __VA_ARGS__); \
    } while (0)

/* ---- context.c --------------------------------------------------------------- */

/* The runtime's index of the GPU with this PCI address. */
dlc_status gpu_number(const char *address, int *number);
dlc_status gpu_open(const dlc_device_args *args, dlc_device **device);
void gpu_close(dlc_device *device);

/* Makes the GPU current on the calling thread. Every call begins with this. */
dlc_status gpu_use(const dlc_device *device);
/* gpu_begin finds the stream, gpu_end waits where there is no queue. `what` names the
 * call in messages: "add". `error` is the result of launching the work. */
dlc_status gpu_begin(dlc_device *device, dlc_queue *queue, const char *what,
                     cudaStream_t *stream);
dlc_status gpu_end(dlc_device *device, dlc_queue *queue, const char *what,
                   cudaError_t error);

/* ---- memory.c, pinned.c, ipc.c, ranges.c ---------------------------------------- */

dlc_status memory_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                        dlc_memory *memory);
void memory_free(dlc_device *device, dlc_memory *memory);
dlc_status ipc_export(dlc_device *device, const dlc_memory *memory,
                      dlc_ipc_handle *share);
dlc_status ipc_import(dlc_device *device, const dlc_ipc_handle *share,
                      dlc_memory *memory);

dlc_status pin(dlc_device *device, void *base, size_t bytes);
void unpin(dlc_device *device, void *base);
dlc_status ipc_can_access_peer(dlc_device *device, int32_t from, int32_t to, int *can);
void range_begin(dlc_device *device, const char *name);
void range_end(dlc_device *device);

/* ---- queues.c ---------------------------------------------------------------- */

/* A dlc_queue is a stream, and a dlc_event is an event of CUDA. */
static inline cudaStream_t gpu_stream(dlc_queue *queue) {
    return (cudaStream_t)(void *)queue;
}
static inline cudaEvent_t gpu_event(dlc_event *event) {
    return (cudaEvent_t)(void *)event;
}
dlc_status gpu_native(dlc_device *device, dlc_queue *queue, uint32_t kind,
                      void *handle);
dlc_status queue_open(dlc_device *device, dlc_queue **queue);
void queue_close(dlc_device *device, dlc_queue *queue);
dlc_status queue_sync(dlc_device *device, dlc_queue *queue);
dlc_status event_open(dlc_device *device, dlc_event **event);
void event_close(dlc_device *device, dlc_event *event);
dlc_status event_record(dlc_device *device, dlc_queue *queue, dlc_event *event);
dlc_status event_wait(dlc_device *device, dlc_queue *queue, dlc_event *event);
dlc_status event_done(dlc_device *device, dlc_event *event, int *done);
dlc_status event_sync(dlc_device *device, dlc_event *event);
/* semaphores.c */
dlc_status queue_semaphores(dlc_device *device, dlc_queue *queue,
                            const dlc_semaphore_op *steps, int32_t count);

/* ---- capture.c --------------------------------------------------------------- */

dlc_status capture_begin(dlc_device *device, dlc_queue *queue);
dlc_status capture_end(dlc_device *device, dlc_queue *queue,
                       dlc_captured_graph **graph);
dlc_status graph_launch(dlc_device *device, dlc_queue *queue,
                        dlc_captured_graph *graph);
void graph_close(dlc_device *device, dlc_captured_graph *graph);
/* Fails, and invalidates the capture, if this thread is capturing: for calls that would
 * block. */
dlc_status capture_refuse(const char *what);

/* ---- rules.c ----------------------------------------------------------------- */

/* The kernel of a rule, which is loaded when it is first asked for.
 * DLC_ERR_UNSUPPORTED: the rule has no code for this GPU. Any thread, also during a
 * capture. */
dlc_status rules_find(dlc_device *device, const dlc_rule *rule, cudaKernel_t *kernel);
void rules_close(dlc_device *device);

/* ---- compute.c --------------------------------------------------------------- */

dlc_status compute_copy(dlc_device *device, dlc_queue *queue, void *dst,
                        const void *src, size_t bytes);
dlc_status compute_fill(dlc_device *device, dlc_queue *queue, void *dst, int byte,
                        size_t bytes);
dlc_status compute_scale(dlc_device *device, dlc_queue *queue, size_t n, float alpha,
                         float *x);
dlc_status compute_add(dlc_device *device, dlc_queue *queue, size_t n, const float *x,
                       float *y);
dlc_status compute_axpy(dlc_device *device, dlc_queue *queue, size_t n, float alpha,
                        const float *x, float *y);
dlc_status compute_add_bf16(dlc_device *device, dlc_queue *queue, size_t n,
                            const uint16_t *x, uint16_t *y);
dlc_status compute_add_f16(dlc_device *device, dlc_queue *queue, size_t n,
                           const uint16_t *x, uint16_t *y);
dlc_status compute_convert(dlc_device *device, dlc_queue *queue, size_t n,
                           dlc_dtype from, const void *src, dlc_dtype to, void *dst);
dlc_status compute_sum(dlc_device *device, dlc_queue *queue, size_t n,
                       const float *const *sources, int32_t count, float *dst);
dlc_status compute_sum_to(dlc_device *device, dlc_queue *queue, size_t n,
                          const float *const *sources, int32_t count,
                          float *const *dsts, int32_t dst_count);
dlc_status compute_square_sums(dlc_device *device, dlc_queue *queue, size_t n,
                               const float *x, double *sums);
dlc_status compute_total(dlc_device *device, dlc_queue *queue, size_t n,
                         const double *sums, double *total);
dlc_status compute_update(dlc_device *device, dlc_queue *queue, size_t n,
                          const dlc_update *update, const float *gradient,
                          float *const *slots, float *weight);
dlc_status compute_add_mean(dlc_device *device, dlc_queue *queue, float alpha,
                            const float *x, float *y);
dlc_status compute_update_loss_scale(dlc_device *device, dlc_queue *queue,
                                     const double *square, int32_t growth_interval,
                                     dlc_loss_scale *scale);
dlc_status compute_normalize(dlc_device *device, dlc_queue *queue, size_t n,
                             size_t plane, size_t channels, const uint8_t *src,
                             const float *mean, const float *scale, float *dst);

#endif

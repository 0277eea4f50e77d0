/* What the files of the cuda device share. */
#ifndef GPU_H
#define GPU_H

#include <pthread.h>

#include <cuda_runtime_api.h>

#include <dlcore/cuda.h>

#include "driver.h"

extern const dlc_host *host;

struct dlc_device {
    int number;       /* the runtime's; first, as <dlcore/cuda.h> promises */
    int units;        /* multiprocessors */
    int by_file;      /* shares memory by file descriptors; 0: by cudaIpc */
    int one_address;  /* pinned memory is where it is for the processor */
    char address[20]; /* PCI, as the runtime writes it */
    driver_calls calls;
    cudaStream_t own;        /* of calls without a queue */
    pthread_mutex_t squares; /* one norm2 at a time has what is below */
    double *parts;           /* device memory */
    double *result;          /* host memory that the GPU reaches */
};

/* ---- error.c ----------------------------------------------------------------- */

/* The status and the detail sentence of a call that failed; clears the runtime's memory
 * of it. `device` may be NULL, where none is open yet. */
dlc_status gpu_failed(const dlc_device *device, cudaError_t error, const char *what,
                      ...) __attribute__((format(printf, 3, 4)));
/* The same of the driver's; its numbers are the runtime's. */
#define DRIVER_ERROR(result) ((cudaError_t)(result))

#define GPU_TRY(device, call, ...) \
    do { \
        cudaError_t gpu_error_ = (call); \
        if (gpu_error_ != cudaSuccess) \
            return gpu_failed(device, gpu_error_, __VA_ARGS__); \
    } while (0)

/* ---- context.c --------------------------------------------------------------- */

/* The runtime's number of the GPU with this PCI address. */
dlc_status gpu_number(const char *address, int *number);
dlc_status gpu_open(const dlc_device_args *args, dlc_device **device);
void gpu_close(dlc_device *device);

/* Every call begins with this: makes the calling thread one of the GPU's. */
dlc_status gpu_use(const dlc_device *device);
/* Work: between begin, which finds the stream, and end, which waits where there is no
 * queue. `what` is for messages: "add". `error` is what giving the work came to. */
dlc_status gpu_begin(dlc_device *device, dlc_queue *queue, const char *what,
                     cudaStream_t *stream);
dlc_status gpu_end(dlc_device *device, dlc_queue *queue, const char *what,
                   cudaError_t error);

/* ---- memory.c, pinned.c, share.c
 * --------------------------------------------------------------
 */

dlc_status memory_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                        dlc_memory *memory);
void memory_free(dlc_device *device, dlc_memory *memory);
dlc_status share_export(dlc_device *device, const dlc_memory *memory, dlc_share *share);
dlc_status share_import(dlc_device *device, const dlc_share *share, dlc_memory *memory);

dlc_status pin(dlc_device *device, void *base, size_t bytes);
void unpin(dlc_device *device, void *base);
dlc_status share_reaches(dlc_device *device, int32_t from, int32_t to, int *reaches);
void range_begin(dlc_device *device, const char *name);
void range_end(dlc_device *device);

/* ---- queues.c ---------------------------------------------------------------- */

dlc_status queue_open(dlc_device *device, dlc_queue **queue);
void queue_close(dlc_device *device, dlc_queue *queue);
dlc_status queue_sync(dlc_device *device, dlc_queue *queue);
dlc_status event_open(dlc_device *device, dlc_event **event);
void event_close(dlc_device *device, dlc_event *event);
dlc_status event_record(dlc_device *device, dlc_queue *queue, dlc_event *event);
dlc_status event_wait(dlc_device *device, dlc_queue *queue, dlc_event *event);
dlc_status event_done(dlc_device *device, dlc_event *event, int *done);
dlc_status event_sync(dlc_device *device, dlc_event *event);
/* words.c */
dlc_status queue_words(dlc_device *device, dlc_queue *queue, const dlc_word_step *steps,
                       int32_t count);

/* ---- record.c ---------------------------------------------------------------- */

dlc_status record_begin(dlc_device *device, dlc_queue *queue);
dlc_status record_end(dlc_device *device, dlc_queue *queue, dlc_recording **recording);
dlc_status record_run(dlc_device *device, dlc_queue *queue, dlc_recording *recording);
void record_close(dlc_device *device, dlc_recording *recording);
/* What would block is refused, and the recording spoilt, where this thread records. */
dlc_status record_refuse(const char *what);

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
dlc_status compute_norm2(dlc_device *device, dlc_queue *queue, size_t n, const float *x,
                         double *result);
dlc_status compute_momentum(dlc_device *device, dlc_queue *queue, size_t n,
                            const dlc_momentum *how, const float *gradient,
                            float *velocity, float *weight);
dlc_status compute_add_mean(dlc_device *device, dlc_queue *queue, float alpha,
                            const float *x, float *y);
dlc_status compute_adapt_scale(dlc_device *device, dlc_queue *queue, size_t n,
                               const float *gradients, int32_t patience,
                               dlc_loss_scale *scale);
dlc_status compute_normalize(dlc_device *device, dlc_queue *queue, size_t n,
                             size_t plane, size_t channels, const uint8_t *src,
                             const float *mean, float scale, float *dst);

#endif

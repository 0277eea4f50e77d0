/* Internals of the cpu device. */
#ifndef CPU_H
#define CPU_H

#include <dlcore/device.h>

typedef struct cpu_mask cpu_mask;

struct dlc_device {
    int threads;
    int32_t *cpus;    /* owned; the CPU of each thread, NULL: not bound */
    uint64_t binding; /* unique number of this device's binding */
    cpu_mask *before; /* owned; affinity of the thread that called open */
    int restore;
};

extern const dlc_host *host;

/* memory.c: allocation and sharing of memory, as dlc_device_ops describes */
dlc_status memory_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                        dlc_memory *memory);
void memory_free(dlc_device *device, dlc_memory *memory);
dlc_status memory_export(dlc_device *device, const dlc_memory *memory,
                         dlc_ipc_handle *share);
dlc_status memory_import(dlc_device *device, const dlc_ipc_handle *share,
                         dlc_memory *memory);

/* threads.c: the thread pool, its binding, and work on [0, n) cut into one range per
 * thread at multiples of `unit`. */
dlc_status threads_open(const dlc_device_args *args, dlc_device *device);
void threads_close(dlc_device *device);
typedef void range_fn(const void *job, size_t begin, size_t end);
void threads_parallel_for(const dlc_device *device, size_t n, size_t unit, range_fn *fn,
                          const void *job);

/* compute.c: runs the kernels below on the threads */
dlc_status compute_copy(dlc_device *device, dlc_queue *queue, void *dst,
                        const void *src, size_t bytes);
dlc_status compute_fill(dlc_device *device, dlc_queue *queue, void *dst, int byte,
                        size_t bytes);
dlc_status compute_scale(dlc_device *device, dlc_queue *queue, size_t n, float alpha,
                         float *x);
dlc_status compute_add(dlc_device *device, dlc_queue *queue, size_t n, const float *x,
                       float *y);
dlc_status compute_add_bf16(dlc_device *device, dlc_queue *queue, size_t n,
                            const uint16_t *x, uint16_t *y);
dlc_status compute_add_f16(dlc_device *device, dlc_queue *queue, size_t n,
                           const uint16_t *x, uint16_t *y);
dlc_status compute_add_mean(dlc_device *device, dlc_queue *queue, float alpha,
                            const float *x, float *y);
dlc_status compute_axpy(dlc_device *device, dlc_queue *queue, size_t n, float alpha,
                        const float *x, float *y);
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
dlc_status compute_update_to(dlc_device *device, dlc_queue *queue, size_t n,
                             const dlc_update *update, const float *const *gradients,
                             int32_t count, float *const *slots, float *const *weights,
                             int32_t weight_count);
dlc_status compute_update_loss_scale(dlc_device *device, dlc_queue *queue,
                                     const double *square, int32_t growth_interval,
                                     dlc_loss_scale *scale);
dlc_status compute_normalize(dlc_device *device, dlc_queue *queue, size_t n,
                             size_t plane, size_t channels, const uint8_t *src,
                             const float *mean, const float *scale, float *dst);

/* kernels.c: single-threaded loops over n elements. */
void kernel_scale(size_t n, float alpha, float *x);
void kernel_add(size_t n, const float *x, float *y);
void kernel_add_bf16(size_t n, const uint16_t *x, uint16_t *y);
void kernel_axpy(size_t n, float alpha, const float *x, float *y);
void kernel_sum(size_t begin, size_t end, const float *const *sources, int32_t count,
                float *dst);
void kernel_sum_to(size_t begin, size_t end, const float *const *sources, int32_t count,
                   float *const *dsts, int32_t dst_count);
double kernel_squares(size_t n, const float *x);
double kernel_total(size_t n, const double *x);
void kernel_normalize(size_t n, const uint8_t *src, float mean, float scale,
                      float *dst);
/* Runs a rule on the elements begin .. end-1. `gradient` is of element `begin`. */
void kernel_update(size_t begin, size_t end, const dlc_rule *rule,
                   const dlc_rule_step *step, const float *gradient,
                   float *const *slots, float *weight);
/* Writes all of weights[0 .. weight_count-1]. In a pass over more memory than the
 * caches hold, arrays that are only written use streaming stores. */
void kernel_update_to(size_t begin, size_t end, const dlc_rule *rule,
                      const dlc_rule_step *step, const float *const *gradients,
                      int32_t count, float *const *slots, float *const *weights,
                      int32_t weight_count);

/* convert.c: the loop for a pair of types; NULL where there is none. */
typedef void convert_fn(size_t n, const void *src, void *dst);
convert_fn *convert_find(dlc_dtype from, dlc_dtype to);
void convert_add_f16(size_t n, const uint16_t *x, uint16_t *y);

/* Compiles a function for each instruction set; the loader selects one. Results do not
 * differ: the loops work element by element or in an explicit order, and the files are
 * compiled without contraction into FMA. Not with the thread sanitizer, which is not
 * ready when the loader does that. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
#define CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4")))
#else
#define CLONES
#endif

/* Iterations are independent, even where an output is one of the inputs. */
#if defined(__clang__)
#define EACH _Pragma("clang loop vectorize(enable)")
#else
#define EACH _Pragma("GCC ivdep")
#endif

#endif

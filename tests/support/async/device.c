/* The device's operations: each checks that its pointers are device memory, and queues
 * the cpu's own operation. */
#include <string.h>
#include <unistd.h>

#include "async.h"

const dlc_device_ops *cpu_device;

const dlc_option device_options[] = {
    DLC_INT("async_seed", "1", 0, 1e9, "seed of the pauses"),
    DLC_INT("async_us", "200", 0, 1e6,
            "longest pause before an operation, in microseconds"),
    DLC_BOOL("async_lazy", "no", "work only when somebody waits, or after async_us"),
    DLC_BOOL("async_semaphores", "yes", "queues have semaphores"),
    DLC_CHOICE("async_peer", "ok", "ok|zeros|slow|unmappable",
               "what is wrong with the memory of other ranks"),
    DLC_OPTIONS_END,
};

dlc_status check_device_memory(const char *call, const void *address) {
    if (!address || is_device_address(address))
        return DLC_OK;
    return host->fail(DLC_ERR_DEVICE, "%s: %p is not memory of device async", call,
                      address);
}

/* ---- Opening, memory --------------------------------------------------------- */

static peer_fault read_peer_fault(const dlc_settings *settings) {
    static const char *const name[] = {"ok", "zeros", "slow", "unmappable"};
    const char *wanted = host->get_string(settings, "async_peer");
    for (int i = PEER_OK; i <= PEER_UNMAPPABLE; i++)
        if (strcmp(wanted, name[i]) == 0)
            return (peer_fault)i;
    return PEER_OK;
}

static dlc_status device_open(const dlc_device_args *args, dlc_device **device) {
    dlc_device *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    dlc_device_args cpu = *args;
    cpu.settings = NULL;
    cpu.cpus = NULL; /* another thread runs its work than the one that opens it */
    dlc_status status = cpu_device->open(&cpu, &made->cpu);
    if (status != DLC_OK) {
        host->free(made);
        return status;
    }
    made->threads = args->threads > 1 ? args->threads : 1;
    made->seed = 1;
    made->pause_us = 200;
    made->semaphores = 1;
    if (args->settings) {
        made->seed = (uint64_t)host->get_int(args->settings, "async_seed");
        made->pause_us = host->get_int(args->settings, "async_us");
        made->is_lazy = host->get_bool(args->settings, "async_lazy");
        made->semaphores = host->get_bool(args->settings, "async_semaphores");
        made->peer = read_peer_fault(args->settings);
    }
    *device = made;
    return DLC_OK;
}

static void device_close(dlc_device *device) {
    if (!device)
        return;
    cpu_device->close(device->cpu);
    host->free(device);
}

static dlc_status device_alloc(dlc_device *device, size_t bytes, uint32_t flags,
                               dlc_memory *memory) {
    dlc_status status = capture_refuse("alloc");
    if (status == DLC_OK)
        status = cpu_device->alloc(device->cpu, bytes, flags, memory);
    if (status == DLC_OK && !(flags & DLC_MEM_STAGING))
        memory->base = to_device_address(memory->base);
    return status;
}

static dlc_memory cpu_memory(const dlc_memory *memory) {
    dlc_memory cpu = *memory;
    cpu.base = to_host_address(cpu.base);
    return cpu;
}

/* ---- Memory of other ranks ----------------------------------------------------- */

enum { IMPORTS = 64 };

/* Imported memory, so that copies know it. */
static struct {
    pthread_mutex_t lock;
    dlc_memory memory[IMPORTS];
} imports = {.lock = PTHREAD_MUTEX_INITIALIZER};

static int holds(const dlc_memory *memory, const void *address) {
    uintptr_t base = (uintptr_t)to_host_address(memory->base);
    uintptr_t at = (uintptr_t)to_host_address(address);
    return memory->base && at >= base && at - base < memory->bytes;
}

static int is_imported(const void *address) {
    int found = 0;
    (void)pthread_mutex_lock(&imports.lock);
    for (int i = 0; i < IMPORTS; i++)
        found |= holds(&imports.memory[i], address);
    (void)pthread_mutex_unlock(&imports.lock);
    return found;
}

/* Replaces one entry by another; the first that is free has no base. */
static void exchange_import(const void *base, const dlc_memory *by) {
    (void)pthread_mutex_lock(&imports.lock);
    for (int i = 0; i < IMPORTS; i++) {
        if (imports.memory[i].base != base)
            continue;
        imports.memory[i] = *by;
        break;
    }
    (void)pthread_mutex_unlock(&imports.lock);
}

static void device_free(dlc_device *device, dlc_memory *memory) {
    exchange_import(memory->base, &(dlc_memory){.base = NULL});
    *memory = cpu_memory(memory);
    cpu_device->free(device->cpu, memory);
}

static dlc_status device_export(dlc_device *device, const dlc_memory *memory,
                                dlc_ipc_handle *share) {
    dlc_memory cpu = cpu_memory(memory);
    return cpu_device->ipc_export(device->cpu, &cpu, share);
}

static dlc_status device_import(dlc_device *device, const dlc_ipc_handle *share,
                                dlc_memory *memory) {
    if (device->peer == PEER_UNMAPPABLE)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "device async cannot map the memory of process %u",
                          (unsigned)share->pid);
    dlc_status status = cpu_device->ipc_import(device->cpu, share, memory);
    if (status != DLC_OK)
        return status;
    memory->base = to_device_address(memory->base);
    exchange_import(NULL, memory);
    return DLC_OK;
}

/* ---- Kernels ----------------------------------------------------------------- */

/* Arguments of most kernels, with host addresses. */
typedef struct kernel {
    dlc_device *cpu;
    peer_fault peer;
    size_t n;
    float alpha;
    int32_t number; /* a byte, or a growth interval */
    dlc_dtype from, to;
    const void *x;
    void *y;
} kernel;

/* NULL is allowed where an argument need not be device memory. */
static dlc_status submit(dlc_queue *queue, const char *call, work_fn *run,
                         const kernel *k) {
    dlc_status status = call ? check_device_memory(call, k->x) : DLC_OK;
    if (status == DLC_OK && call)
        status = check_device_memory(call, k->y);
    if (status != DLC_OK)
        return status;
    kernel cpu = *k;
    cpu.peer = k->cpu->peer;
    cpu.cpu = k->cpu->cpu;
    cpu.x = to_host_address(k->x);
    cpu.y = to_host_address(k->y);
    return work_submit(queue, run, &cpu, sizeof cpu);
}

static dlc_status run_copy(const void *args) {
    const kernel *k = args;
    int reads = k->peer && is_imported(k->x), writes = k->peer && is_imported(k->y);
    if (k->peer == PEER_SLOW && (reads || writes))
        (void)usleep((useconds_t)(k->n / 1000));
    if (k->peer == PEER_ZEROS && writes)
        return DLC_OK;
    if (k->peer == PEER_ZEROS && reads)
        return cpu_device->fill(k->cpu, NULL, k->y, 0, k->n);
    return cpu_device->copy(k->cpu, NULL, k->y, k->x, k->n);
}

static dlc_status device_copy(dlc_device *device, dlc_queue *queue, void *dst,
                              const void *src, size_t bytes) {
    return submit(queue, NULL, run_copy,
                  &(kernel){.cpu = device, .n = bytes, .x = src, .y = dst});
}

static dlc_status run_fill(const void *args) {
    const kernel *k = args;
    return cpu_device->fill(k->cpu, NULL, k->y, k->number, k->n);
}

static dlc_status device_fill_(dlc_device *device, dlc_queue *queue, void *dst,
                               int byte, size_t bytes) {
    return submit(queue, "fill", run_fill,
                  &(kernel){.cpu = device, .n = bytes, .number = byte, .y = dst});
}

static dlc_status run_scale(const void *args) {
    const kernel *k = args;
    return cpu_device->scale(k->cpu, NULL, k->n, k->alpha, k->y);
}

static dlc_status device_scale(dlc_device *device, dlc_queue *queue, size_t n,
                               float alpha, float *x) {
    return submit(queue, "scale", run_scale,
                  &(kernel){.cpu = device, .n = n, .alpha = alpha, .y = x});
}

static dlc_status run_add(const void *args) {
    const kernel *k = args;
    return cpu_device->add(k->cpu, NULL, k->n, k->x, k->y);
}

static dlc_status device_add(dlc_device *device, dlc_queue *queue, size_t n,
                             const float *x, float *y) {
    return submit(queue, "add", run_add,
                  &(kernel){.cpu = device, .n = n, .x = x, .y = y});
}

static dlc_status run_add_bf16(const void *args) {
    const kernel *k = args;
    return cpu_device->add_bf16(k->cpu, NULL, k->n, k->x, k->y);
}

static dlc_status device_add_bf16(dlc_device *device, dlc_queue *queue, size_t n,
                                  const uint16_t *x, uint16_t *y) {
    return submit(queue, "add_bf16", run_add_bf16,
                  &(kernel){.cpu = device, .n = n, .x = x, .y = y});
}

static dlc_status run_add_f16(const void *args) {
    const kernel *k = args;
    return cpu_device->add_f16(k->cpu, NULL, k->n, k->x, k->y);
}

static dlc_status device_add_f16(dlc_device *device, dlc_queue *queue, size_t n,
                                 const uint16_t *x, uint16_t *y) {
    return submit(queue, "add_f16", run_add_f16,
                  &(kernel){.cpu = device, .n = n, .x = x, .y = y});
}

static dlc_status run_axpy(const void *args) {
    const kernel *k = args;
    return cpu_device->axpy(k->cpu, NULL, k->n, k->alpha, k->x, k->y);
}

static dlc_status device_axpy(dlc_device *device, dlc_queue *queue, size_t n,
                              float alpha, const float *x, float *y) {
    return submit(queue, "axpy", run_axpy,
                  &(kernel){.cpu = device, .n = n, .alpha = alpha, .x = x, .y = y});
}

static dlc_status run_add_mean(const void *args) {
    const kernel *k = args;
    return cpu_device->add_mean(k->cpu, NULL, k->alpha, k->x, k->y);
}

static dlc_status device_add_mean(dlc_device *device, dlc_queue *queue, float alpha,
                                  const float *x, float *y) {
    return submit(queue, "add_mean", run_add_mean,
                  &(kernel){.cpu = device, .alpha = alpha, .x = x, .y = y});
}

static dlc_status run_update_loss_scale(const void *args) {
    const kernel *k = args;
    return cpu_device->update_loss_scale(k->cpu, NULL, k->x, k->number, k->y);
}

static dlc_status device_update_loss_scale(dlc_device *device, dlc_queue *queue,
                                           const double *square, int32_t patience,
                                           dlc_loss_scale *scale) {
    return submit(
        queue, "update_loss_scale", run_update_loss_scale,
        &(kernel){.cpu = device, .number = patience, .x = square, .y = scale});
}

static dlc_status run_square_sums(const void *args) {
    const kernel *k = args;
    return cpu_device->square_sums(k->cpu, NULL, k->n, k->x, k->y);
}

static dlc_status device_square_sums(dlc_device *device, dlc_queue *queue, size_t n,
                                     const float *x, double *sums) {
    return submit(queue, "square_sums", run_square_sums,
                  &(kernel){.cpu = device, .n = n, .x = x, .y = sums});
}

static dlc_status run_total(const void *args) {
    const kernel *k = args;
    return cpu_device->total(k->cpu, NULL, k->n, k->x, k->y);
}

static dlc_status device_total(dlc_device *device, dlc_queue *queue, size_t n,
                               const double *sums, double *total) {
    return submit(queue, "total", run_total,
                  &(kernel){.cpu = device, .n = n, .x = sums, .y = total});
}

static dlc_status run_convert(const void *args) {
    const kernel *k = args;
    return cpu_device->convert(k->cpu, NULL, k->n, k->from, k->x, k->to, k->y);
}

static dlc_status device_convert(dlc_device *device, dlc_queue *queue, size_t n,
                                 dlc_dtype from, const void *src, dlc_dtype to,
                                 void *dst) {
    return submit(
        queue, "convert", run_convert,
        &(kernel){.cpu = device, .n = n, .from = from, .to = to, .x = src, .y = dst});
}

/* ---- Kernels with arguments of their own --------------------------------------- */

/* The addresses follow the struct: sources, then destinations. */
typedef struct sum_args {
    dlc_device *cpu;
    size_t n;
    int32_t count, dst_count;
    void *at[];
} sum_args;

static dlc_status run_sum(const void *args) {
    const sum_args *s = args;
    const float *const *sources = (const float *const *)(const void *)s->at;
    float *const *dsts = (float *const *)(const void *)(s->at + s->count);
    if (cpu_device->sum_to)
        return cpu_device->sum_to(s->cpu, NULL, s->n, sources, s->count, dsts,
                                  s->dst_count);
    return cpu_device->sum(s->cpu, NULL, s->n, sources, s->count, dsts[0]);
}

static dlc_status device_sum_to(dlc_device *device, dlc_queue *queue, size_t n,
                                const float *const *sources, int32_t count,
                                float *const *dsts, int32_t dst_count) {
    if (count < 1 || dst_count < 1)
        return host->fail(DLC_ERR_CONFIG, "sum of %d sources to %d destinations", count,
                          dst_count);
    size_t all = (size_t)count + (size_t)dst_count;
    size_t bytes = sizeof(sum_args) + all * sizeof(void *);
    sum_args *s = host->alloc(bytes);
    if (!s)
        return DLC_ERR_NOMEM;
    *s = (sum_args){.cpu = device->cpu, .n = n, .count = count, .dst_count = dst_count};
    dlc_status status = DLC_OK;
    for (int32_t i = 0; status == DLC_OK && i < count + dst_count; i++) {
        const void *at = i < count ? (const void *)sources[i] : dsts[i - count];
        status = check_device_memory("sum", at);
        s->at[i] = to_host_address(at);
    }
    if (status == DLC_OK)
        status = work_submit(queue, run_sum, s, bytes);
    host->free(s);
    return status;
}

static dlc_status device_sum(dlc_device *device, dlc_queue *queue, size_t n,
                             const float *const *sources, int32_t count, float *dst) {
    return device_sum_to(device, queue, n, sources, count, &dst, 1);
}

typedef struct update_args {
    dlc_device *cpu;
    size_t n;
    dlc_update update;
    const float *gradient;
    float *slots[DLC_MAX_SLOTS], *weight;
} update_args;

static dlc_status run_update(const void *args) {
    const update_args *a = args;
    return cpu_device->update(a->cpu, NULL, a->n, &a->update, a->gradient, a->slots,
                              a->weight);
}

static dlc_status check_update(const dlc_update *update, const float *gradient,
                               float *const *slots, const float *weight) {
    enum { OTHERS = 7 };
    const void *all[OTHERS + DLC_MAX_SLOTS] = {gradient,
                                               weight,
                                               update->values_at,
                                               update->loss_scale,
                                               update->gradient_square,
                                               update->weight_square,
                                               update->norm_square};
    dlc_status status = DLC_OK;
    for (int32_t k = 0; k < update->rule->slots; k++)
        all[OTHERS + k] = slots[k];
    for (size_t i = 0; status == DLC_OK && i < sizeof all / sizeof *all; i++)
        status = check_device_memory("update", all[i]);
    return status;
}

static dlc_status device_update(dlc_device *device, dlc_queue *queue, size_t n,
                                const dlc_update *update, const float *gradient,
                                float *const *slots, float *weight) {
    dlc_status status = check_update(update, gradient, slots, weight);
    if (status != DLC_OK)
        return status;
    update_args args = {.cpu = device->cpu,
                        .n = n,
                        .update = *update,
                        .gradient = to_host_address(gradient),
                        .weight = to_host_address(weight)};
    args.update.values_at = to_host_address(update->values_at);
    args.update.loss_scale = to_host_address(update->loss_scale);
    args.update.gradient_square = to_host_address(update->gradient_square);
    args.update.weight_square = to_host_address(update->weight_square);
    args.update.norm_square = to_host_address(update->norm_square);
    for (int32_t k = 0; k < update->rule->slots; k++)
        args.slots[k] = to_host_address(slots[k]);
    return work_submit(queue, run_update, &args, sizeof args);
}

typedef struct normalize_args {
    dlc_device *cpu;
    size_t n, plane, channels;
    const uint8_t *src;
    const float *mean, *scale;
    float *dst;
} normalize_args;

static dlc_status run_normalize(const void *args) {
    const normalize_args *a = args;
    return cpu_device->normalize(a->cpu, NULL, a->n, a->plane, a->channels, a->src,
                                 a->mean, a->scale, a->dst);
}

static dlc_status device_normalize(dlc_device *device, dlc_queue *queue, size_t n,
                                   size_t plane, size_t channels, const uint8_t *src,
                                   const float *mean, const float *scale, float *dst) {
    const void *all[] = {src, mean, scale, dst};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        dlc_status status = check_device_memory("normalize", all[i]);
        if (status != DLC_OK)
            return status;
    }
    normalize_args args = {.cpu = device->cpu,
                           .n = n,
                           .plane = plane,
                           .channels = channels,
                           .src = to_host_address(src),
                           .mean = to_host_address(mean),
                           .scale = to_host_address(scale),
                           .dst = to_host_address(dst)};
    return work_submit(queue, run_normalize, &args, sizeof args);
}

/* ---- The table --------------------------------------------------------------- */

/* The streams of the CUDA libraries that tests replace by fakes are queues. */
static dlc_status device_native(dlc_device *device, dlc_queue *queue, uint32_t kind,
                                void *handle) {
    (void)device;
    if (kind != DLC_NATIVE_CUDA_STREAM)
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "device async has no native handle of kind %u", kind);
    *(dlc_queue **)handle = queue;
    return DLC_OK;
}

static const dlc_device_queue_ops queue_ops = {
    .size = sizeof queue_ops,
    .queue_open = queue_open,
    .queue_close = queue_close,
    .queue_sync = queue_sync,
    .event_open = event_open,
    .event_close = event_close,
    .event_record = event_record,
    .event_wait = event_wait,
    .event_done = event_done,
    .event_sync = event_sync,
    .capture_begin = capture_begin,
    .capture_end = capture_end,
    .graph_launch = graph_launch,
    .graph_close = graph_close,
    .queue_semaphores = device_semaphores,
};

dlc_device_ops device_ops = {
    .size = sizeof device_ops,
    .open = device_open,
    .close = device_close,
    .queues = &queue_ops,
    .native = device_native,
    .alloc = device_alloc,
    .free = device_free,
    .copy = device_copy,
    .fill = device_fill_,
    .ipc_export = device_export,
    .ipc_import = device_import,
    .scale = device_scale,
    .add = device_add,
    .axpy = device_axpy,
    .convert = device_convert,
    .sum = device_sum,
    .square_sums = device_square_sums,
    .total = device_total,
    .update = device_update,
    .sum_to = device_sum_to,
};

void device_fill(const dlc_device_ops *cpu) {
    cpu_device = cpu;
    device_ops.count = cpu->count;
    device_ops.describe = cpu->describe;
    device_ops.add_bf16 = DLC_CAN(cpu, add_bf16) ? device_add_bf16 : NULL;
    device_ops.add_f16 = DLC_CAN(cpu, add_f16) ? device_add_f16 : NULL;
    device_ops.add_mean = DLC_CAN(cpu, add_mean) ? device_add_mean : NULL;
    device_ops.update_loss_scale = DLC_CAN(cpu, update_loss_scale)
                                       ? device_update_loss_scale
                                       : NULL;
    device_ops.normalize = DLC_CAN(cpu, normalize) ? device_normalize : NULL;
}

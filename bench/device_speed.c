/* Compares the bandwidth of a device's element-wise kernels with that of its plain
 * copy, which is the limit: each kernel moves only the bytes that it must.
 *
 *     device_speed DEVICE [INDEX]
 *
 * Prints a line each: bandwidth, percentage of the copy's, and BELOW if that is less
 * than 85 %. Exits with 77 if there is no such device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlcore/device.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/status.h"
#include "plugin/registry.h"

enum { COUNT = 64 << 20, ROUNDS = 7, RUNS = 10, ARRAYS = 4 };
static const double bar = 0.85;

typedef struct bench {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;
    dlc_memory memory[ARRAYS];
    float *x[ARRAYS];
    double copied; /* bytes per second */
} bench;

typedef dlc_status kernel(bench *b);

static dlc_status copy(bench *b) {
    return b->ops->copy(b->device, b->queue, b->x[0], b->x[1], COUNT * sizeof(float));
}

static dlc_status scale(bench *b) {
    return b->ops->scale(b->device, b->queue, COUNT, 1.0f, b->x[0]);
}

static dlc_status add(bench *b) {
    return b->ops->add(b->device, b->queue, COUNT, b->x[1], b->x[0]);
}

static dlc_status sum(bench *b) {
    const float *sources[] = {b->x[0], b->x[1], b->x[2], b->x[3]};
    return b->ops->sum(b->device, b->queue, COUNT, sources, ARRAYS, b->x[0]);
}

static dlc_status sum_to(bench *b) {
    const float *sources[] = {b->x[0], b->x[1]};
    float *targets[] = {b->x[0], b->x[1]};
    return b->ops->sum_to(b->device, b->queue, COUNT, sources, 2, targets, 2);
}

static dlc_status to_half(bench *b) {
    return b->ops->convert(b->device, b->queue, COUNT, DLC_F32, b->x[0], DLC_F16,
                           b->x[1]);
}

/* Images of 227 x 227 pixels: planes of an odd number of bytes. */
static dlc_status normalize(bench *b) {
    return b->ops->normalize(b->device, b->queue, COUNT, 227 * 227, 3,
                             (const uint8_t *)b->x[0], b->x[2], b->x[2], b->x[1]);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Gives the median of some rounds with some runs each. */
static dlc_status time_of(bench *b, kernel *run, double *seconds) {
    double times[ROUNDS];
    for (int i = -1; i < ROUNDS; i++) {
        uint64_t since = dlc_now_ns();
        for (int k = 0; k < RUNS; k++)
            DLC_TRY(run(b));
        if (b->queue)
            DLC_TRY(b->ops->queues->queue_sync(b->device, b->queue));
        if (i >= 0)
            times[i] = dlc_since(since) / RUNS;
    }
    qsort(times, ROUNDS, sizeof *times, by_value);
    *seconds = times[ROUNDS / 2];
    return DLC_OK;
}

static dlc_status measure(bench *b, const char *name, double floats, kernel *run) {
    double seconds = 0;
    DLC_TRY(time_of(b, run, &seconds));
    double rate = floats * COUNT * sizeof(float) / seconds;
    if (run == copy)
        b->copied = rate;
    double share = rate / b->copied;
    printf("%-28s %8.1f GB/s  %3.0f %% of the copy%s\n", name, rate / 1e9, share * 100,
           share < bar ? "  BELOW" : "");
    return DLC_OK;
}

static dlc_status measure_all(bench *b) {
    DLC_TRY(measure(b, "copy", 2, copy));
    DLC_TRY(measure(b, "scale", 2, scale));
    DLC_TRY(measure(b, "add", 3, add));
    DLC_TRY(measure(b, "sum of 4", 5, sum));
    if (DLC_CAN(b->ops, sum_to))
        DLC_TRY(measure(b, "sum of 2 to 2", 4, sum_to));
    DLC_TRY(measure(b, "float32 to half precision", 1.5, to_half));
    if (DLC_CAN(b->ops, normalize))
        DLC_TRY(measure(b, "images of bytes to float32", 1.25, normalize));
    return DLC_OK;
}

static dlc_status run(bench *b, int32_t index) {
    dlc_device_args args = {.size = sizeof args, .index = index, .threads = 1};
    DLC_TRY(b->ops->open(&args, &b->device));
    if (DLC_CAN(b->ops, queues))
        DLC_TRY(b->ops->queues->queue_open(b->device, &b->queue));
    for (int i = 0; i < ARRAYS; i++) {
        b->memory[i].size = sizeof b->memory[i];
        DLC_TRY(b->ops->alloc(b->device, COUNT * sizeof(float), 0, &b->memory[i]));
        b->x[i] = b->memory[i].base;
    }
    return measure_all(b);
}

static void let_go(bench *b) {
    for (int i = 0; i < ARRAYS; i++)
        if (b->memory[i].base)
            b->ops->free(b->device, &b->memory[i]);
    if (b->queue)
        b->ops->queues->queue_close(b->device, b->queue);
    if (b->device)
        b->ops->close(b->device);
}

int main(int argc, char **argv) {
    const dlc_feature *feature = NULL;
    dlc_registry *registry = NULL;
    bench b = {.ops = NULL};

    if (argc < 2) {
        fprintf(stderr, "usage: device_speed DEVICE [INDEX]\n");
        return 2;
    }
    dlc_status status = dlc_registry_open(&registry);
    if (status == DLC_OK && dlc_registry_find(registry, DLC_KIND_DEVICE, argv[1], NULL,
                                              &feature) != DLC_OK) {
        printf("skipped: %s\n", dlc_detail());
        dlc_registry_close(registry);
        return 77;
    }
    if (status == DLC_OK) {
        b.ops = feature->ops;
        status = run(&b, argc > 2 ? atoi(argv[2]) : 0);
        let_go(&b);
    }
    if (status != DLC_OK)
        fprintf(stderr, "device_speed: %s\n", dlc_detail());
    dlc_registry_close(registry);
    return status == DLC_OK ? 0 : 1;
}

/* The checks of the optional kernels, compared with plain C, and of what a kernel may
 * do with its arguments. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "device_checks.h"

enum { COUNT = 1003 };

/* Fails unless the bytes of a device array are these. */
static void must_equal(const device_check *b, const char *call, const void *there,
                       const void *wanted, size_t bytes) {
    unsigned char *back = dlc_alloc(bytes, 1);
    if (!back)
        suite_skip(b->run, "out of memory");
    device_check_copy(b, back, there, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (back[i] != ((const unsigned char *)wanted)[i])
            suite_fail(b->run, "%s: byte %zu is %#x, not %#x", call, i, back[i],
                       ((const unsigned char *)wanted)[i]);
    dlc_free(back);
}

static void *copy_of(const device_check *b, const void *from, size_t bytes) {
    void *made = device_check_take(b, bytes);
    device_check_copy(b, made, from, bytes);
    return made;
}

/* ---- Sums -------------------------------------------------------------------- */

enum { SOURCES = 37, COPIES = 3 };

static void sum_here(float *const *here, int32_t count, size_t n) {
    for (int32_t stride = 1; stride < count; stride *= 2)
        for (int32_t i = 0; i + stride < count; i += 2 * stride)
            for (size_t j = 0; j < n; j++)
                here[i][j] += here[i + stride][j];
}

/* The arrays of pointers are gone when the call has returned. The first destination is
 * the last source. */
static void sums_many(suite_run *run) {
    device_check b;
    device_check_open(run, &b);
    for (int to_many = 0; to_many < 2; to_many++) {
        const float *sources[SOURCES];
        float *here[SOURCES], *unused, *dst[COPIES], *kept[COPIES];
        if (to_many && !DLC_CAN(b.ops, sum_to))
            break;
        for (int32_t i = 0; i < SOURCES; i++) {
            float *there = device_check_upload(&b, COUNT, 1 + (uint64_t)i, &here[i]);
            sources[i] = dst[0] = there;
        }
        for (int i = 1; i < COPIES; i++)
            dst[i] = device_check_upload(&b, COUNT, 99, &unused);
        memcpy(kept, dst, sizeof dst);
        if (to_many)
            suite_must(
                run,
                b.ops->sum_to(b.device, b.queue, COUNT, sources, SOURCES, dst, COPIES),
                "sum_to");
        else
            suite_must(run,
                       b.ops->sum(b.device, b.queue, COUNT, sources, SOURCES, dst[0]),
                       "sum");
        memset(sources, 0, sizeof sources);
        memset(dst, 0, sizeof dst);
        sum_here(here, SOURCES, COUNT);
        for (int i = 0; i < (to_many ? COPIES : 1); i++)
            device_check_compare(&b, to_many ? "sum_to" : "sum, into a source,",
                                 kept[i], here[0], COUNT, 0);
    }
}

/* ---- Means, bytes, 16-bit sums -------------------------------------------------- */

static void means_are_added(suite_run *run) {
    static const float of[][2] = {{3, 4}, {5, 0}, {-1, 8}};
    const float alpha = 0.5f;
    float wanted = 1.25f;
    device_check b;
    device_check_open(run, &b);
    if (!DLC_CAN(b.ops, add_mean))
        suite_skip(run, "it has no add_mean");
    float *there = copy_of(&b, &wanted, sizeof wanted);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        const float *x = copy_of(&b, of[i], sizeof of[i]);
        suite_must(run, b.ops->add_mean(b.device, b.queue, alpha, x, there),
                   "add_mean");
        wanted += of[i][1] > 0 ? alpha * of[i][0] / of[i][1] : 0;
    }
    must_equal(&b, "add_mean", there, &wanted, sizeof wanted);
}

static void images_are_normalized(suite_run *run) {
    enum { PLANE = 35, CHANNELS = 3 };
    static const float mean[CHANNELS] = {123.68f, 116.779f, 103.939f};
    static const float by[CHANNELS] = {0.0171f, 0.0175f, 0.0174f};
    uint8_t bytes[COUNT];
    float wanted[COUNT];
    device_check b;
    device_check_open(run, &b);
    if (!DLC_CAN(b.ops, normalize))
        suite_skip(run, "it has no normalize");
    for (size_t i = 0; i < COUNT; i++) {
        size_t channel = i / PLANE % CHANNELS;
        bytes[i] = (uint8_t)(i * 37);
        volatile float difference = (float)bytes[i] - mean[channel];
        wanted[i] = difference * by[channel];
    }
    const uint8_t *src = copy_of(&b, bytes, sizeof bytes);
    const float *means = copy_of(&b, mean, sizeof mean);
    const float *factors = copy_of(&b, by, sizeof by);
    float *there = device_check_take(&b, sizeof wanted);
    suite_must(run,
               b.ops->normalize(b.device, b.queue, COUNT, PLANE, CHANNELS, src, means,
                                factors, there),
               "normalize");
    must_equal(&b, "normalize", there, wanted, sizeof wanted);
}

/* Bytes of images become float32 on every device. */
static void bytes_become_floats(suite_run *run) {
    uint8_t bytes[COUNT];
    float wanted[COUNT];
    device_check b;
    device_check_open(run, &b);
    for (size_t i = 0; i < COUNT; i++)
        wanted[i] = bytes[i] = (uint8_t)(i * 37);
    const uint8_t *src = copy_of(&b, bytes, sizeof bytes);
    float *there = device_check_take(&b, sizeof wanted);
    dlc_status status = b.ops->convert(b.device, b.queue, COUNT, DLC_U8, src, DLC_F32,
                                       there);
    if (status == DLC_ERR_UNSUPPORTED)
        suite_skip(run, "it does not convert bytes to float32");
    suite_must(run, status, "convert");
    must_equal(&b, "convert of bytes to float32", there, wanted, sizeof wanted);
}

/* ---- Loss scale ---------------------------------------------------------------- */

/* What the header says of update_loss_scale. */
static void scale_here(dlc_loss_scale *s, double square, int32_t interval) {
    s->inverse = 1 / s->scale;
    s->overflow = !isfinite(square);
    if (s->overflow) {
        s->scale = s->scale > 2 ? s->scale / 2 : 1;
        s->good_iterations = 0;
        s->skipped++;
    } else if (++s->good_iterations >= interval) {
        s->scale = s->scale < 8388608 ? s->scale * 2 : 16777216;
        s->good_iterations = 0;
    }
}

static void loss_scales_change(suite_run *run) {
    enum { STEPS = 12, INTERVAL = 2 };
    const double squares[] = {1, 2, INFINITY, 3, (double)NAN, 0};
    device_check b;
    device_check_open(run, &b);
    if (!DLC_CAN(b.ops, update_loss_scale))
        suite_skip(run, "it has no update_loss_scale");
    for (int high = 0; high < 2; high++) {
        dlc_loss_scale wanted = {.scale = high ? 8388608.0f : 2.0f};
        dlc_loss_scale *there = copy_of(&b, &wanted, sizeof wanted);
        for (int i = 0; i < STEPS; i++) {
            double square = high ? 1 : squares[i % 6];
            const double *at = copy_of(&b, &square, sizeof square);
            suite_must(run,
                       b.ops->update_loss_scale(b.device, b.queue, at, INTERVAL, there),
                       "update_loss_scale");
            scale_here(&wanted, square, INTERVAL);
            must_equal(&b, "update_loss_scale", there, &wanted, sizeof wanted);
        }
    }
}

/* ---- Work without a queue -------------------------------------------------------- */

/* Such work is done when the call returns. */
static void works_without_a_queue(suite_run *run) {
    device_check b;
    float *x, *y;
    device_check_open(run, &b);
    if (!b.queue)
        suite_skip(run, "it has no queues, so that all its work is without one");
    b.queue = NULL;
    float *dx = device_check_upload(&b, COUNT, 1, &x);
    float *dy = device_check_upload(&b, COUNT, 2, &y);
    const float *both[] = {dx, dy};
    suite_must(run, b.ops->scale(b.device, NULL, COUNT, 3.0f, dx), "scale");
    suite_must(run, b.ops->add(b.device, NULL, COUNT, dx, dy), "add");
    suite_must(run, b.ops->axpy(b.device, NULL, COUNT, 0.5f, dx, dy), "axpy");
    suite_must(run, b.ops->sum(b.device, NULL, COUNT, both, 2, dx), "sum");
    for (size_t i = 0; i < COUNT; i++) {
        x[i] *= 3.0f;
        y[i] += x[i];
        y[i] += 0.5f * x[i];
        x[i] += y[i];
    }
    device_check_compare(&b, "scale, add, axpy and sum without a queue", dx, x, COUNT,
                         1e-6);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_DEVICE, 0, SUITE_LOADED, 60, run }

const suite_check suite_device_kernel_checks[] = {
    CHECK("device.sum_to",
          "sums of many arrays are right, into several and into a source", sums_many),
    CHECK("device.add_mean", "add_mean adds a weighted mean, or nothing",
          means_are_added),
    CHECK("device.normalize", "images are normalized, each operation rounded",
          images_are_normalized),
    CHECK("device.bytes", "bytes become float32", bytes_become_floats),
    CHECK("device.loss_scale", "the loss scale is halved and doubled",
          loss_scales_change),
    CHECK("device.no_queue", "work without a queue is done when the call returns",
          works_without_a_queue),
    {.name = NULL},
};

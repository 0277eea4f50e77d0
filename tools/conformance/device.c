/* The checks of devices: memory, copies, kernels compared with plain C, queues, and
 * sharing memory between processes. */
#include <dlcore/device.h>

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/status.h"
#include "device_checks.h"

static const size_t sizes[] = {1, 2, 7, 16, 63, 1000, 4099, 100003};
enum { SIZES = sizeof sizes / sizeof *sizes };

static int has_queues(const dlc_device_ops *ops) {
    return DLC_CAN(ops, queues);
}

void device_check_open(suite_run *run, device_check *b) {
    int32_t count = 0;
    dlc_device_args args = {
        .size = sizeof args, .settings = run->settings, .threads = 2};
    *b = (device_check){.run = run, .ops = run->feature->ops};
    suite_must(run, b->ops->count(&count), "count");
    if (count < 1)
        suite_skip(run, "this machine has no such device");
    suite_must(run, b->ops->open(&args, &b->device), "open");
    if (has_queues(b->ops))
        suite_must(run, b->ops->queues->queue_open(b->device, &b->queue), "queue_open");
}

static void finish_queue(const device_check *b) {
    if (b->queue)
        suite_must(b->run, b->ops->queues->queue_sync(b->device, b->queue),
                   "queue_sync");
}

void *device_check_take(const device_check *b, size_t bytes) {
    dlc_memory memory = {.size = sizeof memory};
    suite_must(b->run, b->ops->alloc(b->device, bytes, 0, &memory), "alloc");
    return memory.base;
}

void device_check_copy(const device_check *b, void *to, const void *from,
                       size_t bytes) {
    suite_must(b->run, b->ops->copy(b->device, b->queue, to, from, bytes), "copy");
    finish_queue(b);
}

static float *host_floats(const device_check *b, size_t count) {
    float *x = dlc_alloc(count + 1, sizeof *x);
    if (!x)
        suite_skip(b->run, "out of memory");
    return x;
}

float *device_check_upload(const device_check *b, size_t count, uint64_t seed,
                           float **here) {
    float *there = device_check_take(b, (count + 1) * sizeof *there);
    *here = host_floats(b, count);
    suite_random(*here, count, seed);
    (*here)[count] = 12345.0f;
    device_check_copy(b, there, *here, (count + 1) * sizeof **here);
    return there;
}

void device_check_compare(const device_check *b, const char *call, const float *there,
                          const float *wanted, size_t count, double tolerance) {
    float *back = host_floats(b, count);
    finish_queue(b);
    device_check_copy(b, back, there, (count + 1) * sizeof *back);
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)back[i] - (double)wanted[i]) <=
              tolerance * (1 + fabs((double)wanted[i]))))
            suite_fail(b->run, "%s of %zu elements: element %zu is %.9g, not %.9g",
                       call, count, i, (double)back[i], (double)wanted[i]);
    if (suite_bits(back[count]) != suite_bits(wanted[count]))
        suite_fail(b->run, "%s of %zu elements writes beyond the end", call, count);
    dlc_free(back);
}

/* ---- Description ------------------------------------------------------------ */

static void describes_devices(suite_run *run) {
    const dlc_device_ops *ops = run->feature->ops;
    int32_t count = -1;
    suite_must(run, ops->count(&count), "count");
    if (count < 0)
        suite_fail(run, "count is %d", count);
    for (int32_t i = 0; i < count; i++) {
        dlc_device_info info = {.size = sizeof info};
        suite_must(run, ops->describe(i, &info), "describe");
        if (!info.name[0] || !memchr(info.name, '\0', sizeof info.name))
            suite_fail(run, "device %d has no name", i);
        if (!info.memory_bytes || info.compute_units < 1)
            suite_fail(run, "device %d has %llu bytes of memory and %d compute units",
                       i, (unsigned long long)info.memory_bytes, info.compute_units);
    }
    dlc_device_info info = {.size = sizeof info};
    if (ops->describe(count, &info) == DLC_OK || ops->describe(-1, &info) == DLC_OK)
        suite_fail(run, "describe accepts an index outside 0 .. count-1");
}

/* count and describe must not start anything that a child process cannot use. */
static void works_after_a_fork(suite_run *run) {
    const dlc_device_ops *ops = run->feature->ops;
    int32_t count = 0;
    dlc_device_info info = {.size = sizeof info};
    suite_must(run, ops->count(&count), "count");
    if (count > 0)
        suite_must(run, ops->describe(0, &info), "describe");
    pid_t child = fork();
    if (child < 0)
        suite_skip(run, "fork: %s", strerror(errno));
    if (child > 0)
        _exit(0); /* the child continues and reports the result */
    int32_t again = -1;
    suite_must(run, ops->count(&again), "count after a fork");
    if (again != count)
        suite_fail(run, "count is %d, and %d after a fork", count, again);
    device_check b;
    float *here;
    device_check_open(run, &b);
    float *there = device_check_upload(&b, 100, 1, &here);
    suite_must(run, b.ops->scale(b.device, b.queue, 100, 2.0f, there), "scale");
    for (int i = 0; i < 100; i++)
        here[i] *= 2.0f;
    device_check_compare(&b, "scale", there, here, 100, 0);
}

/* ---- Memory ----------------------------------------------------------------- */

static void memory_is_zeroed(suite_run *run) {
    static const uint32_t flags[] = {0, DLC_MEM_SHARED, DLC_MEM_STAGING};
    device_check b;
    device_check_open(run, &b);
    for (int again = 0; again < 2; again++)
        for (size_t f = 0; f < sizeof flags / sizeof *flags; f++) {
            enum { BYTES = 100000 };
            dlc_memory memory = {.size = sizeof memory};
            unsigned char *back = dlc_alloc(BYTES, 1);
            if (flags[f] == DLC_MEM_SHARED && !DLC_CAN(b.ops, ipc_export))
                continue;
            if (!back)
                suite_skip(run, "out of memory");
            suite_must(run, b.ops->alloc(b.device, BYTES, flags[f], &memory), "alloc");
            if ((uintptr_t)memory.base % 64 || memory.bytes < BYTES)
                suite_fail(run,
                           "alloc returned %zu bytes at %p, not %d bytes at a multiple "
                           "of 64",
                           memory.bytes, memory.base, BYTES);
            device_check_copy(&b, back, memory.base, BYTES);
            for (size_t i = 0; i < BYTES; i++)
                if (back[i])
                    suite_fail(run, "new memory is not zeroed");
            suite_must(run, b.ops->fill(b.device, b.queue, memory.base, 0x55, BYTES),
                       "fill");
            device_check_copy(&b, back, memory.base, BYTES);
            for (size_t i = 0; i < BYTES; i++)
                if (back[i] != 0x55)
                    suite_fail(run, "fill or copy skipped byte %zu", i);
            b.ops->free(b.device, &memory);
            dlc_free(back);
        }
}

static void too_much_is_refused(suite_run *run) {
    device_check b;
    dlc_memory memory = {.size = sizeof memory};
    device_check_open(run, &b);
    (void)dlc_fail(DLC_OK, "%s", "");
    if (b.ops->alloc(b.device, SIZE_MAX / 2, 0, &memory) == DLC_OK)
        suite_fail(run, "alloc of half the address space succeeded");
    if (!*dlc_detail())
        suite_fail(run, "alloc failed without a detail sentence");
    suite_must(run, b.ops->alloc(b.device, 4096, 0, &memory),
               "alloc after one that failed");
}

/* ---- Kernels ---------------------------------------------------------------- */

static void kernels_are_right(suite_run *run) {
    device_check b;
    device_check_open(run, &b);
    for (int s = 0; s < SIZES; s++) {
        size_t n = sizes[s];
        float *x, *y;
        float *dx = device_check_upload(&b, n, 1, &x),
              *dy = device_check_upload(&b, n, 2, &y);
        suite_must(run, b.ops->scale(b.device, b.queue, n, 0.37f, dx), "scale");
        for (size_t i = 0; i < n; i++)
            x[i] *= 0.37f;
        device_check_compare(&b, "scale", dx, x, n, 0);
        suite_must(run, b.ops->add(b.device, b.queue, n, dx, dy), "add");
        for (size_t i = 0; i < n; i++)
            y[i] += x[i];
        device_check_compare(&b, "add", dy, y, n, 0);
        suite_must(run, b.ops->axpy(b.device, b.queue, n, -1.5f, dx, dy), "axpy");
        for (size_t i = 0; i < n; i++)
            y[i] += -1.5f * x[i];
        device_check_compare(&b, "axpy", dy, y, n, 1e-6);
    }
}

/* Sums must be bitwise those of the pairwise order, so that all ranks and devices
 * agree. */
static void sums_pairwise(suite_run *run) {
    enum { SOURCES = 7 };
    device_check b;
    device_check_open(run, &b);
    for (int s = 0; s < SIZES; s++)
        for (int32_t count = 1; count <= SOURCES; count++) {
            const float *sources[SOURCES];
            float *here[SOURCES];
            size_t n = sizes[s];
            for (int32_t i = 0; i < count; i++)
                sources[i] = device_check_upload(&b, n, 10 + (uint64_t)i, &here[i]);
            float *unused, *sum = device_check_upload(&b, n, 99, &unused);
            suite_must(run, b.ops->sum(b.device, b.queue, n, sources, count, sum),
                       "sum");
            for (int32_t stride = 1; stride < count; stride *= 2)
                for (int32_t i = 0; i + stride < count; i += 2 * stride)
                    for (size_t j = 0; j < n; j++)
                        here[i][j] += here[i + stride][j];
            device_check_compare(&b, "sum", sum, here[0], n, 0);
        }
}

/* The sums of pieces, whichever call adds them, and their total. */
static void norms_are_sums_of_squares(suite_run *run) {
    device_check b;
    device_check_open(run, &b);
    for (int s = 0; s < SIZES; s++) {
        size_t n = sizes[s], pieces = (n + DLC_SQUARE_PIECE - 1) / DLC_SQUARE_PIECE;
        size_t half = pieces / 2;
        float *x;
        double wanted = 0, total[2] = {-1, -2};
        float *dx = device_check_upload(&b, n, 1, &x);
        double *sums = device_check_take(&b, (pieces + 2) * sizeof *sums);
        for (size_t i = 0; i < n; i++)
            wanted += (double)x[i] * (double)x[i];
        for (size_t k = 0; k < 2; k++) {
            size_t from = k ? half : 0, skip = from * DLC_SQUARE_PIECE;
            if (k)
                suite_must(run, b.ops->square_sums(b.device, b.queue, skip, dx, sums),
                           "square_sums");
            suite_must(
                run,
                b.ops->square_sums(b.device, b.queue, n - skip, dx + skip, sums + from),
                "square_sums");
            suite_must(run,
                       b.ops->total(b.device, b.queue, pieces, sums, sums + pieces + k),
                       "total");
        }
        device_check_copy(&b, total, sums + pieces, sizeof total);
        if (!(fabs(total[0] - wanted) <= 1e-5 * wanted))
            suite_fail(run, "the squares of %zu elements add up to %.9g, not %.9g", n,
                       total[0], wanted);
        if (total[0] < total[1] || total[0] > total[1])
            suite_fail(run, "the squares of the same numbers differ if they are added "
                            "by two calls");
    }
}

static void converts_and_back(suite_run *run) {
    enum { COUNT = 1000 };
    device_check b;
    float *x;
    device_check_open(run, &b);
    float *dx = device_check_upload(&b, COUNT, 1, &x);
    void *half = device_check_take(&b, COUNT * sizeof(uint16_t));
    float *unused, *back = device_check_upload(&b, COUNT, 5, &unused);
    dlc_status status = b.ops->convert(b.device, b.queue, COUNT, DLC_F32, dx, DLC_BF16,
                                       half);
    if (status == DLC_ERR_UNSUPPORTED)
        suite_skip(run, "it does not convert to bfloat16");
    suite_must(run, status, "convert");
    suite_must(run,
               b.ops->convert(b.device, b.queue, COUNT, DLC_BF16, half, DLC_F32, back),
               "convert");
    device_check_compare(&b, "convert to bfloat16 and back", back, x, COUNT, 1.0 / 256);
}

/* ---- Queues ----------------------------------------------------------------- */

static void queues_keep_order(suite_run *run) {
    enum { COUNT = 100003, ROUNDS = 50 };
    device_check b;
    float *x;
    device_check_open(run, &b);
    if (!b.queue)
        suite_skip(run, "it has no queues");
    dlc_queue *other = NULL;
    dlc_event *event = NULL;
    suite_must(run, b.ops->queues->queue_open(b.device, &other), "queue_open");
    suite_must(run, b.ops->queues->event_open(b.device, &event), "event_open");
    float *dx = device_check_upload(&b, COUNT, 1, &x);
    for (int i = 0; i < ROUNDS; i++) {
        dlc_queue *here = i % 2 ? other : b.queue, *there = i % 2 ? b.queue : other;
        suite_must(run, b.ops->scale(b.device, here, COUNT, i % 3 ? 0.5f : 3.0f, dx),
                   "scale");
        suite_must(run, b.ops->queues->event_record(b.device, here, event),
                   "event_record");
        suite_must(run, b.ops->queues->event_wait(b.device, there, event),
                   "event_wait");
        for (size_t j = 0; j < COUNT; j++)
            x[j] *= i % 3 ? 0.5f : 3.0f;
    }
    suite_must(run, b.ops->queues->event_record(b.device, b.queue, event),
               "event_record");
    suite_must(run, b.ops->queues->event_sync(b.device, event), "event_sync");
    int done = 0;
    suite_must(run, b.ops->queues->event_done(b.device, event, &done), "event_done");
    if (!done)
        suite_fail(run, "an event is not done after event_sync has returned");
    device_check_compare(&b, "work on two queues that wait for each other", dx, x,
                         COUNT, 0);
    b.ops->queues->event_close(b.device, event);
    b.ops->queues->queue_close(b.device, other);
}

/* ---- Sharing memory --------------------------------------------------------- */

static void use_imported_memory(const device_check *b, const dlc_ipc_handle *handle,
                                size_t count) {
    dlc_memory memory = {.size = sizeof memory};
    float *wanted = host_floats(b, count);
    suite_must(b->run, b->ops->ipc_import(b->device, handle, &memory), "ipc_import");
    suite_random(wanted, count, 3);
    wanted[count] = 12345.0f;
    device_check_compare(b, "imported memory", memory.base, wanted, count, 0);
    suite_must(b->run, b->ops->scale(b->device, b->queue, count, 2.0f, memory.base),
               "scale");
    finish_queue(b);
    b->ops->free(b->device, &memory);
}

/* The parent exports and the child imports; each opens the device for itself. */
static void shares_with_a_child(suite_run *run) {
    enum { COUNT = 5000 };
    int pipes[2][2];
    char byte = 0;
    device_check b;
    dlc_ipc_handle handle = {.size = sizeof handle};
    const dlc_device_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, ipc_export))
        suite_skip(run, "it has no ipc_export");
    if (pipe(pipes[0]) != 0 || pipe(pipes[1]) != 0)
        suite_skip(run, "pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0)
        suite_skip(run, "fork: %s", strerror(errno));
    device_check_open(run, &b);
    if (child == 0) {
        if (read(pipes[0][0], &handle, sizeof handle) != (ssize_t)sizeof handle)
            _exit(1);
        use_imported_memory(&b, &handle, COUNT);
        (void)!write(pipes[1][1], &byte, 1);
        _exit(0);
    }
    dlc_memory memory = {.size = sizeof memory};
    float *numbers = host_floats(&b, COUNT);
    suite_random(numbers, COUNT, 3);
    numbers[COUNT] = 12345.0f;
    suite_must(
        run,
        b.ops->alloc(b.device, (COUNT + 1) * sizeof(float), DLC_MEM_SHARED, &memory),
        "alloc");
    device_check_copy(&b, memory.base, numbers, (COUNT + 1) * sizeof *numbers);
    suite_must(run, b.ops->ipc_export(b.device, &memory, &handle), "ipc_export");
    if (write(pipes[0][1], &handle, sizeof handle) != (ssize_t)sizeof handle)
        suite_skip(run, "write: %s", strerror(errno));
    (void)close(pipes[1][1]);
    if (read(pipes[1][0], &byte, 1) != 1)
        suite_fail(run, "the process that imported the memory died");
    (void)waitpid(child, NULL, 0);
    for (int i = 0; i < COUNT; i++)
        numbers[i] *= 2.0f;
    device_check_compare(&b, "memory that another process changed", memory.base,
                         numbers, COUNT, 0);
}

static void exports_shared_memory_only(suite_run *run) {
    device_check b;
    dlc_memory memory = {.size = sizeof memory};
    dlc_ipc_handle handle = {.size = sizeof handle};
    const dlc_device_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, ipc_export))
        suite_skip(run, "it has no ipc_export");
    device_check_open(run, &b);
    suite_must(run, b.ops->alloc(b.device, 4096, 0, &memory), "alloc");
    if (b.ops->ipc_export(b.device, &memory, &handle) == DLC_OK)
        suite_fail(run, "it exports memory that was not allocated with DLC_MEM_SHARED");
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_DEVICE, 0, SUITE_LOADED, 60, run }

const suite_check suite_device_checks[] = {
    CHECK("device.describe", "every device has a name, memory and compute units",
          describes_devices),
    CHECK("device.fork", "it works in a child after count and describe in the parent",
          works_after_a_fork),
    CHECK("device.memory", "memory is zeroed and aligned; fill and copy work",
          memory_is_zeroed),
    CHECK("device.too_much", "alloc of too much memory fails with a sentence",
          too_much_is_refused),
    CHECK("device.kernels", "scale, add and axpy are right for any size",
          kernels_are_right),
    CHECK("device.sum", "sum is bitwise that of the pairwise order", sums_pairwise),
    CHECK("device.norms", "norms are right, whoever adds which pieces",
          norms_are_sums_of_squares),
    CHECK("device.convert", "conversion to bfloat16 and back is right",
          converts_and_back),
    CHECK("device.queues", "queues keep the order of work and wait for events",
          queues_keep_order),
    CHECK("device.ipc", "another process can read and write shared memory",
          shares_with_a_child),
    CHECK("device.ipc_flag", "memory without DLC_MEM_SHARED is not exported",
          exports_shared_memory_only),
    {.name = NULL},
};

/* The checks of devices: memory, copies, and the required kernels compared with plain
 * C. */
#include <dlcore/device.h>

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "device_checks.h"
#include "digest.h"
#include "host.h"
#include "process.h"

static const size_t sizes[] = {0, 1, 2, 7, 16, 63, 1000, 4099, 100003};
enum { SIZES = sizeof sizes / sizeof *sizes };

void device_check_open_index(suite_run *run, device_check *b, int32_t index) {
    int32_t count = 0;
    dlc_device_args args = {
        .size = sizeof args, .settings = run->settings, .index = index, .threads = 2};
    *b = (device_check){.run = run, .ops = run->feature->ops};
    suite_must(run, b->ops->count(&count), "count");
    if (count < 1)
        suite_skip(run, "this machine has no such device");
    suite_must(run, b->ops->open(&args, &b->device), "open");
    if (!b->device)
        suite_fail(run, "open succeeds, but opens nothing");
    if (!b->ops->queues)
        return;
    suite_must(run, b->ops->queues->queue_open(b->device, &b->queue), "queue_open");
    if (!b->queue)
        suite_fail(run, "queue_open succeeds, but opens nothing");
}

void device_check_open(suite_run *run, device_check *b) {
    device_check_open_index(run, b, 0);
}

void device_check_finish(const device_check *b) {
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
    device_check_finish(b);
}

float *device_check_floats(const device_check *b, size_t count) {
    float *x = dlc_alloc(count + 1, sizeof *x);
    if (!x)
        suite_skip(b->run, "out of memory");
    return x;
}

float *device_check_upload(const device_check *b, size_t count, uint64_t seed,
                           float **here) {
    float *there = device_check_take(b, (count + 1) * sizeof *there);
    *here = device_check_floats(b, count);
    suite_random(*here, count, seed);
    (*here)[count] = 12345.0f;
    device_check_copy(b, there, *here, (count + 1) * sizeof **here);
    return there;
}

void device_check_compare(const device_check *b, const char *call, const float *there,
                          const float *wanted, size_t count, double tolerance) {
    float *back = device_check_floats(b, count);
    device_check_finish(b);
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

/* ---- Memory ----------------------------------------------------------------- */

/* Allocates with all that the caller of alloc relies on. */
static dlc_memory take_memory(const device_check *b, size_t bytes, uint32_t flags) {
    dlc_memory memory = {.size = sizeof memory};
    suite_must(b->run, b->ops->alloc(b->device, bytes, flags, &memory), "alloc");
    if (!memory.base || (uintptr_t)memory.base % 64 || memory.bytes < bytes)
        suite_fail(b->run,
                   "alloc returned %zu bytes at %p, not %zu bytes at a multiple of 64",
                   memory.bytes, memory.base, bytes);
    if (memory.size != sizeof memory)
        suite_fail(b->run, "alloc changes the size of the struct");
    return memory;
}

/* Fails unless all bytes of device memory have this value. */
static void must_be(const device_check *b, const void *there, int byte, size_t bytes,
                    const char *what) {
    unsigned char *back = dlc_alloc(bytes, 1);
    if (!back)
        suite_skip(b->run, "out of memory");
    device_check_copy(b, back, there, bytes);
    for (size_t i = 0; i < bytes; i++)
        if (back[i] != (unsigned char)byte)
            suite_fail(b->run, "%s: byte %zu of %zu is %d, not %d", what, i, bytes,
                       back[i], (unsigned char)byte);
    dlc_free(back);
}

static void memory_is_zeroed(suite_run *run) {
    static const uint32_t flags[] = {0, DLC_MEM_SHARED, DLC_MEM_STAGING,
                                     DLC_MEM_SHARED | DLC_MEM_STAGING};
    enum { BYTES = 100000, FLAGS = sizeof flags / sizeof *flags };
    device_check b;
    device_check_open(run, &b);
    for (int again = 0; again < 2; again++) {
        dlc_memory memory[FLAGS];
        for (int f = 0; f < FLAGS; f++) {
            memory[f] = take_memory(&b, BYTES, flags[f]);
            must_be(&b, memory[f].base, 0, BYTES, "new memory");
            if (flags[f] & DLC_MEM_STAGING) /* which is host memory */
                memset(memory[f].base, 0x50 + f, BYTES);
            else
                suite_must(
                    run,
                    b.ops->fill(b.device, b.queue, memory[f].base, 0x50 + f, BYTES),
                    "fill");
        }
        device_check_finish(&b);
        for (int f = 0; f < FLAGS; f++) {
            must_be(&b, memory[f].base, 0x50 + f, BYTES, "memory that was filled");
            b.ops->free(b.device, &memory[f]);
        }
    }
}

/* What is freed can be allocated again, many times: a 64th of the device's memory, or
 * little of the host's, whose pages may be touched. */
static void free_gives_back(suite_run *run) {
    enum { TIMES = 80, PART = 64 };
    const size_t little = (size_t)1 << 20;
    dlc_device_info info = {.size = sizeof info};
    device_check b;
    device_check_open(run, &b);
    suite_must(run, b.ops->describe(0, &info), "describe");
    size_t bytes = (size_t)(info.memory_bytes / PART);
    if ((run->feature->caps & DLC_DEVICE_HOST) || bytes < little)
        bytes = little;
    int64_t before = suite_host_allocations();
    for (int i = 0; i < TIMES; i++)
        for (uint32_t flags = 0; flags <= DLC_MEM_SHARED; flags++) {
            dlc_memory memory = {.size = sizeof memory};
            dlc_status status = b.ops->alloc(b.device, bytes, flags, &memory);
            if (i == 0 && status == DLC_ERR_NOMEM)
                suite_skip(run, "the device has no %zu bytes left", bytes);
            if (status != DLC_OK)
                suite_fail(run,
                           "alloc of %zu bytes fails after as many were freed %d "
                           "times: %s",
                           bytes, i, dlc_detail());
            b.ops->free(b.device, &memory);
        }
    if (suite_host_allocations() > before)
        suite_fail(run, "%d times alloc and free leave %lld allocations", 2 * TIMES,
                   (long long)(suite_host_allocations() - before));
}

/* ---- Copies ----------------------------------------------------------------- */

enum { SIDE = 3 << 20, SLACK = 64 };

/* Memory that a copy may read or write: the device's, staging memory, any other. */
typedef struct sides {
    unsigned char *at[3];
} sides;

static sides make_sides(const device_check *b) {
    sides s = {{take_memory(b, SIDE, 0).base,
                take_memory(b, SIDE, DLC_MEM_STAGING).base, dlc_alloc(SIDE, 1)}};
    if (!s.at[2])
        suite_skip(b->run, "out of memory");
    return s;
}

/* The first side is the device's; numbers go there and back by this queue. */
static void copy_as(const device_check *b, dlc_queue *queue, void *to, const void *from,
                    size_t bytes) {
    suite_must(b->run, b->ops->copy(b->device, queue, to, from, bytes), "copy");
    if (queue)
        device_check_finish(b);
}

/* Copies `bytes` bytes from one side to another, neither aligned, and nothing else. */
static void try_copy(const device_check *b, dlc_queue *queue, const sides *from,
                     int source, const sides *to, int target, size_t bytes) {
    static const char *const name[] = {"the device", "staging memory", "host memory"};
    static unsigned char given[SIDE], back[SIDE];
    size_t all = bytes + SLACK;
    for (size_t i = 0; i < all; i++)
        given[i] = (unsigned char)(i * 7 + bytes);
    copy_as(b, b->queue, from->at[source], given, all);
    memset(back, 0xee, all);
    copy_as(b, b->queue, to->at[target], back, all);
    copy_as(b, queue, to->at[target] + 3, from->at[source] + 1, bytes);
    copy_as(b, b->queue, back, to->at[target], all);
    for (size_t i = 0; i < all; i++) {
        int inside = i >= 3 && i < 3 + bytes;
        if (back[i] != (inside ? given[i - 2] : 0xee))
            suite_fail(b->run,
                       "copy of %zu bytes from %s to %s%s: byte %lld is %d, not %d",
                       bytes, name[source], name[target],
                       queue || !b->queue ? "" : ", without a queue", (long long)i - 3,
                       back[i], inside ? given[i - 2] : 0xee);
    }
}

static void copies_everywhere(suite_run *run) {
    static const size_t counts[] = {0, 1, 3, 64, 4099, (2 << 20) + 5};
    device_check b;
    device_check_open(run, &b);
    sides from = make_sides(&b), to = make_sides(&b);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int source = 0; source < 3; source++)
            for (int target = 0; target < 3; target++) {
                try_copy(&b, b.queue, &from, source, &to, target, counts[c]);
                if (b.queue)
                    try_copy(&b, NULL, &from, source, &to, target, counts[c]);
            }
}

static void fills_with_any_byte(suite_run *run) {
    static const int values[] = {0xff, 0, 0x80, 0x7f};
    static const size_t counts[] = {0, 1, 3, 64, 4099};
    device_check b;
    device_check_open(run, &b);
    unsigned char *at = take_memory(&b, SIDE, 0).base;
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            dlc_queue *queue = v % 2 ? NULL : b.queue;
            suite_must(run, b.ops->fill(b.device, b.queue, at, 0x11, counts[c] + SLACK),
                       "fill");
            device_check_finish(&b);
            suite_must(run, b.ops->fill(b.device, queue, at + 1, values[v], counts[c]),
                       "fill");
            device_check_finish(&b);
            must_be(&b, at, 0x11, 1, "the byte before those that were filled");
            must_be(&b, at + 1, values[v], counts[c], "fill");
            must_be(&b, at + 1 + counts[c], 0x11, SLACK - 1, "the bytes after a fill");
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
        suite_must(run,
                   b.ops->fill(b.device, b.queue, sums, 0xff,
                               (pieces + 2) * sizeof *sums), /* not a number */
                   "fill");
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
        if (!(fabs(total[0] - wanted) <= 1e-12 * wanted))
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

/* ---- What calls leave, and whether they are the same everywhere ------------------ */

typedef struct used {
    device_check b;
    float *x, *y, *here;
} used;

enum { USED = 5003 };

static void open_used(suite_run *run, used *u) {
    device_check_open(run, &u->b);
    u->x = device_check_upload(&u->b, USED, 1, &u->here);
    u->y = device_check_upload(&u->b, USED, 2, &u->here);
}

static void use_kernels(const used *u) {
    const device_check *b = &u->b;
    const float *sources[] = {u->x, u->x};
    suite_must(b->run, b->ops->add(b->device, b->queue, USED, u->x, u->y), "add");
    suite_must(b->run, b->ops->scale(b->device, b->queue, USED, 0.25f, u->y), "scale");
    suite_must(b->run, b->ops->axpy(b->device, b->queue, USED, 0.5f, u->y, u->x),
               "axpy");
    suite_must(b->run, b->ops->sum(b->device, b->queue, USED, sources, 2, u->y), "sum");
    device_check_copy(b, u->here, u->y, USED * sizeof *u->y);
}

static void use_once(void *context) {
    const used *u = context;
    dlc_memory memory = {.size = sizeof memory};
    const device_check *b = &u->b;
    suite_must(b->run, b->ops->alloc(b->device, 100003, 0, &memory), "alloc");
    suite_must(b->run, b->ops->fill(b->device, b->queue, memory.base, 1, 100003),
               "fill");
    use_kernels(u);
    device_check_finish(b);
    b->ops->free(b->device, &memory);
}

static void keeps_nothing(suite_run *run) {
    used u;
    open_used(run, &u);
    suite_repeat(run, 24, "alloc, kernels and free", use_once, &u);
}

void suite_digest_device(suite_run *run, uint64_t *digest) {
    used u;
    open_used(run, &u);
    for (int i = 0; i < 3; i++)
        use_kernels(&u);
    suite_digest_add(digest, u.here, USED * sizeof *u.here);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_DEVICE, 0, SUITE_LOADED, 60, run }

const suite_check suite_device_checks[] = {
    CHECK("device.memory", "memory is zeroed and aligned; fill and copy work",
          memory_is_zeroed),
    CHECK("device.free", "what is freed can be allocated again", free_gives_back),
    CHECK("device.too_much", "alloc of too much memory fails with a sentence",
          too_much_is_refused),
    CHECK("device.copy", "copy works from and to any memory, with any size",
          copies_everywhere),
    CHECK("device.fill", "fill sets any byte, and no others", fills_with_any_byte),
    CHECK("device.kernels", "scale, add and axpy are right for any size",
          kernels_are_right),
    CHECK("device.sum", "sum is bitwise that of the pairwise order", sums_pairwise),
    CHECK("device.norms", "norms are right, whoever adds which pieces",
          norms_are_sums_of_squares),
    CHECK("device.convert", "conversion to bfloat16 and back is right",
          converts_and_back),
    CHECK("device.leaks", "calls use no more memory, files and threads each time",
          keeps_nothing),
    {.name = NULL},
};

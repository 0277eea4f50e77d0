/* Checks of how things are opened and closed, for the kinds that one process can open
 * alone: devices, layers, solvers and data sources. */
#include <string.h>

#include <dlcore/dlcore.h>

#include "base/memory.h"
#include "base/status.h"
#include "bed.h"
#include "host.h"
#include "suite.h"

/* Something of the plugin's that was opened, or as far as it came. */
typedef struct life {
    suite_run *run;
    suite_bed bed; /* of solvers and layers */
    void *family;  /* of layers */
    void *object;
    float *arena;
} life;

enum { ELEMENTS = 64, TAIL = 16 };

/* ---- One of each kind -------------------------------------------------------- */

static dlc_status open_device(life *l) {
    const dlc_device_ops *ops = l->run->feature->ops;
    int32_t count = 0;
    dlc_device_args args = {
        .size = sizeof args, .settings = l->run->settings, .threads = 2};
    dlc_status status = ops->count(&count);
    if (status == DLC_OK && count < 1)
        suite_skip(l->run, "there is none to open");
    dlc_device *device = NULL;
    status = status == DLC_OK ? ops->open(&args, &device) : status;
    l->object = device;
    return status;
}

static dlc_status open_data(life *l) {
    const dlc_data_ops *ops = l->run->feature->ops;
    dlc_data_args args = {.size = sizeof args, .settings = l->run->settings, .seed = 1};
    dlc_source *source = NULL;
    dlc_status status = ops->open(&args, &source);
    l->object = source;
    return status;
}

static dlc_status open_layer(life *l) {
    const dlc_layer_ops *ops = l->run->feature->ops;
    dlc_family_args family = {.size = sizeof family,
                              .device_ops = l->bed.ops,
                              .device = l->bed.device,
                              .threads = 1,
                              .phase = DLC_PHASE_TRAIN,
                              .precision = DLC_F32};
    DLC_TRY(ops->family->open(&family, &l->family));
    dlc_layer_args args = {.size = sizeof args,
                           .name = "checked",
                           .settings = l->run->settings,
                           .context = l->family,
                           .phase = DLC_PHASE_TRAIN,
                           .seed = 1};
    dlc_layer *layer = NULL;
    dlc_status status = ops->create(&args, &layer);
    l->object = layer;
    return status;
}

static dlc_status open_solver(life *l) {
    static const size_t begin[] = {0, ELEMENTS};
    const dlc_solver_ops *ops = l->run->feature->ops;
    dlc_solver_needs needs = {.size = sizeof needs, .micro_batches = 1};
    dlc_segment segment = {.size = sizeof segment,
                           .name = "weight",
                           .count = ELEMENTS - TAIL,
                           .rate = 1,
                           .decay = 1};
    dlc_exchange exchange = {
        .size = sizeof exchange, .ranks = 1, .buckets = 1, .bucket_begin = begin};
    dlc_solver_args args = {.size = sizeof args,
                            .settings = l->run->settings,
                            .device_ops = l->bed.ops,
                            .device = l->bed.device,
                            .count = ELEMENTS,
                            .tail = TAIL,
                            .weights = l->arena,
                            .gradients = l->arena + ELEMENTS,
                            .segments = 1,
                            .segment = &segment,
                            .exchange = &exchange,
                            .max_iterations = 10,
                            .epoch_iterations = 5};
    DLC_TRY(ops->needs(l->run->settings, &needs));
    for (int32_t i = 0; i < needs.slots && i < DLC_MAX_SLOTS; i++)
        args.slots[i] = l->arena + (size_t)(2 + i) * ELEMENTS;
    dlc_solver *solver = NULL;
    dlc_status status = ops->create(&args, &solver);
    l->object = solver;
    return status;
}

static dlc_status life_open(life *l) {
    l->object = l->family = NULL;
    switch ((dlc_kind)l->run->feature->kind) {
    case DLC_KIND_DEVICE:
        return open_device(l);
    case DLC_KIND_DATA:
        return open_data(l);
    case DLC_KIND_LAYER:
        return open_layer(l);
    case DLC_KIND_SOLVER:
        return open_solver(l);
    case DLC_KIND_TRANSPORT:
        break;
    }
    suite_skip(l->run, "a transport is not opened alone; see transport.*");
}

static void close_layer(life *l, dlc_layer *layer) {
    const dlc_layer_ops *ops = l->run->feature->ops;
    ops->destroy(layer);
    if (l->family)
        ops->family->close(l->family);
    l->family = NULL;
}

/* `object` may be NULL. */
static void life_close(life *l, void *object) {
    const void *ops = l->run->feature->ops;
    switch ((dlc_kind)l->run->feature->kind) {
    case DLC_KIND_DEVICE:
        ((const dlc_device_ops *)ops)->close(object);
        break;
    case DLC_KIND_DATA:
        ((const dlc_data_ops *)ops)->close(object);
        break;
    case DLC_KIND_LAYER:
        close_layer(l, object);
        break;
    case DLC_KIND_SOLVER:
        ((const dlc_solver_ops *)ops)->destroy(object);
        break;
    case DLC_KIND_TRANSPORT:
        break;
    }
}

/* What solvers and layers stand on. */
static void life_begin(suite_run *run, life *l) {
    *l = (life){.run = run};
    if (run->feature->kind == DLC_KIND_LAYER || run->feature->kind == DLC_KIND_SOLVER)
        suite_bed_open(run, &l->bed);
    if (run->feature->kind == DLC_KIND_SOLVER)
        l->arena = suite_bed_floats(run, &l->bed,
                                    (size_t)(2 + DLC_MAX_SLOTS) * ELEMENTS);
}

/* ---- What must hold ---------------------------------------------------------- */

/* What needs settings that have no default says so when it is opened. */
static void must_open(life *l) {
    dlc_status status = life_open(l);
    if (status == DLC_ERR_CONFIG)
        suite_skip(l->run, "as it is set it cannot be opened: %s (give --set)",
                   dlc_detail());
    suite_must(l->run, status, "opening it");
}

/* The first time may keep something for good, a pool say; the others may not. */
static void opens_again_and_again(suite_run *run) {
    enum { TIMES = 12, SETTLED = 2 };
    int64_t pieces = 0;
    int files = 0, threads = 0;
    life l;
    life_begin(run, &l);
    for (int i = 0; i < TIMES; i++) {
        must_open(&l);
        life_close(&l, l.object);
        if (i == SETTLED) {
            pieces = suite_host_pieces();
            files = suite_count_entries(SUITE_FILES);
            threads = suite_count_entries(SUITE_THREADS);
        }
    }
    int times = TIMES - 1 - SETTLED;
    if (suite_host_pieces() > pieces)
        suite_fail(run, "opened and closed %d times it keeps %lld pieces of memory",
                   times, (long long)(suite_host_pieces() - pieces));
    if (suite_count_entries(SUITE_FILES) > files)
        suite_fail(run, "opened and closed %d times it keeps %d files open", times,
                   suite_count_entries(SUITE_FILES) - files);
    if (suite_count_entries(SUITE_THREADS) > threads)
        suite_fail(run, "opened and closed %d times it leaves %d threads", times,
                   suite_count_entries(SUITE_THREADS) - threads);
}

static void two_at_a_time(suite_run *run) {
    life l;
    life_begin(run, &l);
    must_open(&l);
    life other = l;
    suite_must(run, life_open(&other), "opening a second one");
    life_close(&l, l.object);
    life_close(&other, other.object);
}

static void takes_null(suite_run *run) {
    life l;
    life_begin(run, &l);
    life_close(&l, NULL);
}

/* Each allocation fails once: an error with its sentence, nothing left, and the next
 * time it works. */
static void goes_without_memory(suite_run *run) {
    enum { MOST = 400 };
    life l;
    life_begin(run, &l);
    must_open(&l);
    life_close(&l, l.object);
    for (int64_t n = 1; n <= MOST; n++) {
        int64_t before = suite_host_pieces();
        (void)dlc_fail(DLC_OK, "%s", "");
        suite_host_refuse(n);
        dlc_status status = life_open(&l);
        int refused = suite_host_refused();
        suite_host_refuse(0);
        if (status != DLC_OK && !*dlc_detail())
            suite_fail(run,
                       "opening fails without a sentence when allocation %lld does",
                       (long long)n);
        life_close(&l, l.object);
        if (status != DLC_OK && suite_host_pieces() > before)
            suite_fail(run,
                       "opening that fails at allocation %lld keeps %lld pieces of "
                       "memory",
                       (long long)n, (long long)(suite_host_pieces() - before));
        if (!refused)
            break;
    }
    suite_must(run, life_open(&l), "opening it after memory had run out");
    life_close(&l, l.object);
}

#define CHECK(name, promise, run) \
    { name, promise, 0, 1, SUITE_LOADED, 120, run }

const suite_check suite_life_checks[] = {
    CHECK("life.again", "opened and closed, it leaves nothing behind",
          opens_again_and_again),
    CHECK("life.two", "two may be open at once", two_at_a_time),
    CHECK("life.null", "closing takes NULL", takes_null),
    CHECK("life.memory", "each allocation may fail", goes_without_memory),
    {.name = NULL},
};

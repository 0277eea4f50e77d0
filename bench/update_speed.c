/* Compares the bandwidth of solvers' updates with that of the device's copy and of its
 * add, which like an update changes an array in place. The better one of these is the
 * limit: an update is one pass over memory, and moves only the bytes that the rule
 * must. Both work on as many bytes as the update, so that caches help all alike.
 *
 *     update_speed DEVICE THREADS SOLVER...
 *
 * Prints a line for each solver, size and call: bandwidth, percentage of the limit,
 * and BELOW if that is less than 85 %. Each round measures all of them, so that they
 * see the same load. Exits with 77 if there is no such device or solver.
 *
 * An update reads gradient, weight and slots, and writes weight and slots. update_to,
 * as two ranks use it, reads two gradients and writes two copies of the weights. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <dlcore/device.h>

#include "base/memory.h"
#include "base/status.h"
#include "config/config.h"
#include "plugin/registry.h"
#include "solver/solver.h"

enum { LARGE = 16 << 20, ROUNDS = 15, MOST_SOLVERS = 8, RANKS = 2 };
enum { ARRAYS = 2 * RANKS + DLC_MAX_SLOTS };
static const size_t sizes[] = {LARGE, 1 << 20};
static const double bar = 0.85;

/* An update comes after what it is compared with. */
enum { COPY, ADD, UPDATE, COPY_TO, ADD_TO, UPDATE_TO, KINDS };

typedef struct contestant {
    const char *name;
    dlc_settings *settings; /* owned */
    dlc_solver solver;
    dlc_update update;
    double seconds[KINDS][ROUNDS];
} contestant;

typedef struct bench {
    dlc_registry *registry;
    dlc_config *config;
    dlc_problems problems;
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;
    dlc_memory memory[ARRAYS]; /* gradients, weights, slots */
    int cpu_time;              /* 1: a clock of this process' work */
    int32_t solvers;
    contestant solver[MOST_SOLVERS];
} bench;

static float *array(const bench *b, int i) {
    return b->memory[i].base;
}

/* ---- What is measured ------------------------------------------------------------ */

static dlc_status copy(const bench *b, const contestant *c, size_t n) {
    (void)c;
    return b->ops->copy(b->device, b->queue, array(b, 0), array(b, RANKS),
                        n * sizeof(float));
}

static dlc_status add(const bench *b, const contestant *c, size_t n) {
    (void)c;
    return b->ops->add(b->device, b->queue, n, array(b, 0), array(b, RANKS));
}

static dlc_status update(const bench *b, const contestant *c, size_t n) {
    float *slots[DLC_MAX_SLOTS];
    for (int k = 0; k < DLC_MAX_SLOTS; k++)
        slots[k] = array(b, 2 * RANKS + k);
    return b->ops->update(b->device, b->queue, n, &c->update, array(b, 0), slots,
                          array(b, RANKS));
}

static dlc_status update_to(const bench *b, const contestant *c, size_t n) {
    const float *gradients[RANKS];
    float *weights[RANKS], *slots[DLC_MAX_SLOTS];
    for (int i = 0; i < RANKS; i++) {
        gradients[i] = array(b, i);
        weights[i] = array(b, RANKS + i);
    }
    for (int k = 0; k < DLC_MAX_SLOTS; k++)
        slots[k] = array(b, 2 * RANKS + k);
    return b->ops->update_to(b->device, b->queue, n, &c->update, gradients, RANKS,
                             slots, weights, RANKS);
}

static const struct {
    const char *name;
    dlc_status (*run)(const bench *b, const contestant *c, size_t n);
    int streams, streams_of_slot; /* arrays read, plus arrays written */
    int arrays;                   /* of the update, without its slots */
    int is_update;
} kinds[KINDS] = {
    {"copy", copy, 2, 0, 2, 0},       {"add", add, 3, 0, 2, 0},
    {"update", update, 3, 2, 2, 1},   {"copy", copy, 2, 0, 2 * RANKS, 0},
    {"add", add, 3, 0, 2 * RANKS, 0}, {"update_to", update_to, 5, 2, 2 * RANKS, 1}};

static int is_possible(const bench *b, int kind) {
    return kind < COPY_TO || DLC_CAN(b->ops, update_to);
}

/* The elements of an update, or of the two arrays that have as many bytes. */
static size_t length_of(const contestant *c, int kind, size_t n) {
    if (kinds[kind].is_update)
        return n;
    size_t length = n * (size_t)(kinds[kind].arrays + c->solver.slots) / 2;
    return length < LARGE ? length : LARGE;
}

/* In seconds. */
static double now(const bench *b) {
    struct timespec t;
    (void)clock_gettime(b->cpu_time ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Lasts longer than the clock's error. */
static dlc_status time_of(const bench *b, const contestant *c, int kind, size_t n,
                          double *seconds) {
    int runs = (int)(LARGE / n);
    n = length_of(c, kind, n);
    double since = now(b);
    for (int i = 0; i < runs; i++)
        DLC_TRY(kinds[kind].run(b, c, n));
    if (b->queue)
        DLC_TRY(b->ops->queues->queue_sync(b->device, b->queue));
    *seconds = (now(b) - since) / runs;
    return DLC_OK;
}

/* The first round warms up, and is replaced by the last. */
static dlc_status measure(bench *b, size_t n) {
    for (int round = 0; round <= ROUNDS; round++)
        for (int32_t s = 0; s < b->solvers; s++)
            for (int kind = 0; kind < KINDS; kind++)
                if (is_possible(b, kind))
                    DLC_TRY(time_of(b, &b->solver[s], kind, n,
                                    &b->solver[s].seconds[kind][round % ROUNDS]));
    return DLC_OK;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double rate_of(contestant *c, int kind, size_t n) {
    int streams = kinds[kind].streams + c->solver.slots * kinds[kind].streams_of_slot;
    qsort(c->seconds[kind], ROUNDS, sizeof(double), by_value);
    return streams * (double)length_of(c, kind, n) * sizeof(float) /
           c->seconds[kind][ROUNDS / 2];
}

static void print(bench *b, size_t n) {
    for (int32_t s = 0; s < b->solvers; s++) {
        double limit = 0;
        for (int kind = COPY; kind < KINDS; kind++) {
            if (!is_possible(b, kind))
                continue;
            double rate = rate_of(&b->solver[s], kind, n);
            int is_update = kinds[kind].is_update;
            if (!is_update)
                limit = limit < rate ? rate : limit;
            printf("%-10s %2d M  %-10s %7.1f GB/s", b->solver[s].name, (int)(n >> 20),
                   kinds[kind].name, rate / 1e9);
            if (is_update)
                printf("  %3.0f %% of the limit%s", rate / limit * 100,
                       rate < bar * limit ? "  BELOW" : "");
            printf("\n");
            limit = is_update ? 0 : limit;
        }
    }
}

/* ---- Opening --------------------------------------------------------------------- */

static dlc_status open_device(bench *b, const char *name, int threads) {
    const dlc_feature *feature = NULL;
    dlc_device_args args = {.size = sizeof args, .threads = threads};
    DLC_TRY(dlc_registry_find(b->registry, DLC_KIND_DEVICE, name, NULL, &feature));
    b->ops = feature->ops;
    b->cpu_time = threads == 1 && (feature->caps & DLC_DEVICE_HOST);
    DLC_TRY(b->ops->open(&args, &b->device));
    if (DLC_CAN(b->ops, queues))
        DLC_TRY(b->ops->queues->queue_open(b->device, &b->queue));
    for (int i = 0; i < ARRAYS; i++) {
        b->memory[i].size = sizeof b->memory[i];
        DLC_TRY(b->ops->alloc(b->device, LARGE * sizeof(float), 0, &b->memory[i]));
    }
    return DLC_OK;
}

/* With its default settings, at the first iteration. */
static dlc_status open_solver(bench *b, const char *name) {
    const dlc_feature *feature = NULL;
    contestant *c = &b->solver[b->solvers];
    if (b->solvers == MOST_SOLVERS)
        return dlc_fail(DLC_ERR_CONFIG, "more than %d solvers", MOST_SOLVERS);
    DLC_TRY(dlc_registry_find(b->registry, DLC_KIND_SOLVER, name, NULL, &feature));
    const dlc_option *tables[] = {feature->options, dlc_solver_options};
    DLC_TRY(
        dlc_settings_make(b->config, "solver", tables, 2, &b->problems, &c->settings));
    b->solvers++;
    c->name = name;
    DLC_TRY(dlc_solver_make(feature, c->settings, &c->solver));
    dlc_lr_job job = {.max_iterations = 1000,
                      .epoch_iterations = 100,
                      .batch = 1,
                      .effective_batch = 1};
    DLC_TRY(dlc_solver_set_schedule(&c->solver, &job));
    c->update = (dlc_update){.size = sizeof c->update,
                             .rule = c->solver.needs.rule,
                             .lr_mult = 1,
                             .decay_mult = 1,
                             .grad_scale = 1};
    return dlc_solver_values(&c->solver, 0, &c->update.values);
}

static dlc_status open_all(bench *b, int argc, char **argv) {
    static const char *const reserved[] = {"solver", NULL};
    DLC_TRY(dlc_registry_open(&b->registry));
    DLC_TRY(dlc_config_load(NULL, reserved, NULL, 0, &b->problems, &b->config));
    DLC_TRY(open_device(b, argv[1], atoi(argv[2])));
    for (int i = 3; i < argc; i++)
        DLC_TRY(open_solver(b, argv[i]));
    return DLC_OK;
}

static void close_all(bench *b) {
    for (int i = 0; i < ARRAYS; i++)
        if (b->memory[i].base)
            b->ops->free(b->device, &b->memory[i]);
    if (b->queue)
        b->ops->queues->queue_close(b->device, b->queue);
    if (b->device)
        b->ops->close(b->device);
    for (int32_t s = 0; s < b->solvers; s++)
        dlc_settings_free(b->solver[s].settings);
    dlc_config_free(b->config);
    dlc_problems_free(&b->problems);
    dlc_registry_close(b->registry);
}

int main(int argc, char **argv) {
    static bench b;
    if (argc < 4) {
        fprintf(stderr, "usage: update_speed DEVICE THREADS SOLVER...\n");
        return 2;
    }
    dlc_status status = open_all(&b, argc, argv);
    for (size_t i = 0; status == DLC_OK && i < sizeof sizes / sizeof *sizes; i++) {
        status = measure(&b, sizes[i]);
        if (status == DLC_OK)
            print(&b, sizes[i]);
    }
    if (status != DLC_OK)
        fprintf(stderr, "update_speed: %s\n", dlc_detail());
    close_all(&b);
    return status == DLC_OK ? 0 : status == DLC_ERR_PLUGIN ? 77 : 1;
}

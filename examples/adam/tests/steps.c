/* Tests fifty steps of the solver against the published algorithm in double precision:
 * two parameters with different lr_mult and decay_mult and padding between them, three
 * buckets whose borders are inside parameters, and control words, which must not
 * change. */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlcore/solver.h>

enum { COUNT = 48, CONTROL_WORDS = 16, STEPS = 50, BUCKETS = 3 };

static const double learning_rate = 0.02, beta1 = 0.8, beta2 = 0.95, epsilon = 1e-6,
                    decay = 0.1;

static void *host_alloc(size_t bytes) {
    return calloc(1, bytes + 1);
}

static double get_float(const dlc_settings *settings, const char *name) {
    static const struct {
        const char *name;
        const double *value;
    } known[] = {{"learning_rate", &learning_rate},
                 {"beta1", &beta1},
                 {"beta2", &beta2},
                 {"epsilon", &epsilon},
                 {"weight_decay", &decay}};
    (void)settings;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(known[i].name, name) == 0)
            return *known[i].value;
    return NAN;
}

static const dlc_host host = {
    .size = sizeof host, .alloc = host_alloc, .free = free, .get_float = get_float};

/* The calls of the exchange have nothing to do with one rank. */
static dlc_status nothing(void *context, int32_t bucket) {
    (void)context;
    (void)bucket;
    return DLC_OK;
}

static const dlc_segment segments[] = {
    {.size = sizeof(dlc_segment),
     .name = "w",
     .count = 20,
     .lr_mult = 1,
     .decay_mult = 1},
    {.size = sizeof(dlc_segment), .name = "b", .offset = 24, .count = 8, .lr_mult = 2},
};
static const size_t begin[] = {0, 10, 26, COUNT};

static double gradient_of(int step, int i) {
    return sin(0.7 * step + i) * (1 + i % 5);
}

/* The segment of an element; NULL for padding and control words. */
static const dlc_segment *segment_of(size_t i) {
    for (int s = 0; s < 2; s++)
        if (i >= segments[s].offset && i < segments[s].offset + segments[s].count)
            return &segments[s];
    return NULL;
}

static double reference(int i) {
    const dlc_segment *segment = segment_of((size_t)i);
    double w = i, m = 0, v = 0;
    for (int step = 0; segment && step < STEPS; step++) {
        double g = (double)(float)gradient_of(step, i), t = step + 1;
        m = beta1 * m + (1 - beta1) * g;
        v = beta2 * v + (1 - beta2) * g * g;
        double mean = m / (1 - pow(beta1, t)), square = v / (1 - pow(beta2, t));
        w -= learning_rate * segment->lr_mult *
             (mean / (sqrt(square) + epsilon) + decay * segment->decay_mult * w);
    }
    return w;
}

static dlc_status run(const dlc_solver_ops *ops, dlc_solver *solver, float *gradients) {
    dlc_status rc = DLC_OK;
    for (int step = 0; rc == DLC_OK && step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++)
            gradients[i] = (float)gradient_of(step, i);
        for (int b = 0; rc == DLC_OK && b < BUCKETS; b++)
            rc = ops->ready(solver, step, 0, b);
        if (step % 2 == 0 && rc == DLC_OK)
            rc = ops->finish(solver, step);
        for (int b = BUCKETS - 1; step % 2 && rc == DLC_OK && b >= 0; b--)
            rc = ops->update(solver, step, b);
    }
    return rc;
}

int main(int argc, char **argv) {
    void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
    const dlc_plugin *plugin = library ? dlsym(library, DLC_PLUGIN_SYMBOL) : NULL;
    static float weights[COUNT], gradients[COUNT], m[COUNT], v[COUNT];
    if (!plugin || plugin->load(&host) != DLC_OK) {
        puts("usage: steps PLUGIN.so");
        return 2;
    }
    for (int i = 0; i < COUNT; i++)
        weights[i] = (float)i;
    const dlc_exchange exchange = {.size = offsetof(dlc_exchange, shard_begin),
                                   .ranks = 1,
                                   .buckets = BUCKETS,
                                   .bucket_begin = begin,
                                   .start = nothing,
                                   .wait = nothing};
    const dlc_solver_args args = {.size = sizeof args,
                                  .count = COUNT,
                                  .control_words = CONTROL_WORDS,
                                  .weights = weights,
                                  .gradients = gradients,
                                  .slots = {m, v},
                                  .segments = 2,
                                  .segment = segments,
                                  .exchange = &exchange};
    const dlc_solver_ops *ops = plugin->features->ops;
    dlc_solver *solver = NULL;
    if (ops->create(&args, &solver) != DLC_OK || run(ops, solver, gradients) != DLC_OK)
        return 1;
    ops->destroy(solver);
    for (int i = 0; i < COUNT; i++) {
        double expected = reference(i), actual = (double)weights[i];
        if (fabs(actual - expected) <= 2e-5 * (1 + fabs(expected)))
            continue;
        printf("weight %d is %.9g, not %.9g\n", i, actual, expected);
        return 1;
    }
    return 0;
}

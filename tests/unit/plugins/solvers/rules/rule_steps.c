/* Makes steps of a solver on a device, without the core, for test_rules.py:
 *
 *     rule_steps SOLVER STEPS WEIGHT_DECAY SEGMENT... [KEY=VALUE...]
 *
 * A segment is COUNT:LR_MULT:DECAY_MULT. Standard input has, as float32, the learning
 * rate of each step, the weights, and the gradients of each step. Standard output gets
 * the weights and the slots. DLCORE_TEST_DEVICE names the device. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dlcore/device.h>
#include <dlcore/solver.h>

#include "base/status.h"
#include "config/config.h"
#include "support/mirror.h"
#include "support/plugins.h"
#include "support/test.h"

enum { SEGMENTS = 16 };

typedef struct segment {
    size_t begin, count;
    float lr_mult, decay_mult;
} segment;

typedef struct work {
    const dlc_solver_ops *ops;
    const dlc_settings *settings;
    dlc_solver_needs needs;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    segment segment[SEGMENTS];
    int segments, steps;
    float weight_decay;
    size_t count; /* elements of each array */
    float *rates, *weights, *gradients, *slots[DLC_MAX_SLOTS];
} work;

__attribute__((noreturn)) static void fail_with(const char *what) {
    fprintf(stderr, "%s: %s\n", what, dlc_detail());
    exit(1);
}

static void must(dlc_status status, const char *what) {
    if (status != DLC_OK)
        fail_with(what);
}

static float *room(size_t count) {
    float *floats = calloc(count ? count : 1, sizeof *floats);
    if (!floats)
        fail_with("memory");
    return floats;
}

static float *read_floats(size_t count) {
    float *floats = room(count);
    if (fread(floats, sizeof *floats, count, stdin) != count)
        fail_with("standard input is too short");
    return floats;
}

/* ---- A step ------------------------------------------------------------------- */

/* Squared norms of a segment's weights, and of its gradient or slot. */
static void take_norms(const work *w, const segment *s, const float *gradients,
                       double square[2]) {
    const float *other = w->needs.norms == DLC_NORMS_SLOT ? w->slots[w->needs.norm_slot]
                                                          : gradients;
    const float *of[2] = {w->weights + s->begin, other + s->begin};
    size_t pieces = (s->count + DLC_SQUARE_PIECE - 1) / DLC_SQUARE_PIECE;
    double *sums = calloc(pieces + 1, sizeof *sums);
    for (int i = 0; sums && i < 2; i++) {
        must(w->device_ops->square_sums(w->device, NULL, s->count, of[i], sums),
             "square_sums");
        must(w->device_ops->total(w->device, NULL, pieces, sums, &square[i]), "total");
    }
    free(sums);
}

/* `square` NULL: without norms. */
static void apply(const work *w, const segment *s, const dlc_rule *rule,
                  const dlc_rule_values *values, const double *square,
                  const float *gradients) {
    float *slots[DLC_MAX_SLOTS] = {0};
    dlc_update update = {.size = sizeof update,
                         .rule = rule,
                         .lr_mult = s->lr_mult,
                         .decay_mult = s->decay_mult,
                         .grad_scale = 1,
                         .values = *values,
                         .weight_square = square,
                         .norm_square = square ? square + 1 : NULL};
    for (int i = 0; i < rule->slots; i++)
        slots[i] = w->slots[i] + s->begin;
    must(w->device_ops->update(w->device, NULL, s->count, &update, gradients + s->begin,
                               slots, w->weights + s->begin),
         "update");
}

static void make_step(const work *w, int64_t iteration, const float *gradients) {
    dlc_rule_values values = {.learning_rate = w->rates[iteration],
                              .weight_decay = w->weight_decay,
                              .clip_value = INFINITY};
    if (DLC_CAN(w->ops, values))
        must(w->ops->values(w->settings, iteration, &values), "values");
    for (const segment *s = w->segment; s < w->segment + w->segments; s++) {
        if (w->needs.direction)
            apply(w, s, w->needs.direction, &values, NULL, gradients);
        double square[2] = {0};
        if (w->needs.norms)
            take_norms(w, s, gradients, square);
        apply(w, s, w->needs.rule, &values, w->needs.norms ? square : NULL, gradients);
    }
}

/* ---- Arguments ---------------------------------------------------------------- */

static void take_segment(work *w, const char *text) {
    segment *s = &w->segment[w->segments];
    if (w->segments == SEGMENTS ||
        sscanf(text, "%zu:%f:%f", &s->count, &s->lr_mult, &s->decay_mult) != 3)
        fail_with(text);
    s->begin = w->count;
    w->count += s->count;
    w->segments++;
}

static void prepare(work *w) {
    dlc_device_args args = {.size = sizeof args, .threads = 2};
    w->needs.size = sizeof w->needs;
    must(w->ops->needs(w->settings, &w->needs), "needs");
    w->device_ops = mirror_ops();
    must(w->device_ops->open(&args, &w->device), "open");
    w->rates = read_floats((size_t)w->steps);
    w->weights = read_floats(w->count);
    w->gradients = read_floats(w->count * (size_t)w->steps);
    for (int i = 0; i < w->needs.rule->slots; i++) {
        w->slots[i] = room(w->count);
        for (size_t k = 0; k < w->count; k++)
            w->slots[i][k] = w->needs.slot_initial[i];
    }
}

static void finish(work *w) {
    int written = fwrite(w->weights, sizeof(float), w->count, stdout) == w->count;
    for (int i = 0; i < w->needs.rule->slots; i++) {
        written = written &&
                  fwrite(w->slots[i], sizeof(float), w->count, stdout) == w->count;
        free(w->slots[i]);
    }
    free(w->gradients);
    free(w->weights);
    free(w->rates);
    w->device_ops->close(w->device);
    if (fflush(stdout) || !written)
        fail_with("standard output");
}

int main(int argc, char **argv) {
    work w = {0};
    if (argc < 5)
        fail_with(
            "usage: rule_steps SOLVER STEPS WEIGHT_DECAY SEGMENT... [KEY=VALUE...]");
    int code = mirror_begin(argc, argv);
    if (code != TESTS_RUN)
        return code;
    const dlc_feature *solver = plugin_find(DLC_KIND_SOLVER, argv[1]);
    int i = 4;
    while (i < argc && !strchr(argv[i], '='))
        take_segment(&w, argv[i++]);
    dlc_settings *settings = plugin_settings(solver, (const char *const *)argv + i);
    w.ops = solver->ops;
    w.settings = settings;
    w.steps = atoi(argv[2]);
    w.weight_decay = strtof(argv[3], NULL);
    prepare(&w);
    for (int step = 0; step < w.steps; step++)
        make_step(&w, step, w.gradients + (size_t)step * w.count);
    finish(&w);
    dlc_settings_free(settings);
    plugins_close();
    return 0;
}

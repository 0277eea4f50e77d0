/* Implements the grid of inputs on which layers are checked, and the values in them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "layer_fixture.h"

/* ---- Values ----------------------------------------------------------------- */

static int64_t channels_of(const dlc_shape *shape) {
    return shape->rank > 1 ? shape->dims[1] : 1;
}

/* Classes of the scores that are the first input; without scores, 0 and 1. */
static void fill_labels(const layer_fixture *f, int32_t i) {
    int64_t classes = f->run->feature->caps & DLC_LAYER_CLASSIFIES
                          ? channels_of(&f->plain_in[0].shape)
                          : 2;
    for (size_t j = 0; j < f->x_count[i]; j++) {
        int32_t label = (int32_t)((int64_t)j % classes);
        memcpy(&f->x[i][j], &label, sizeof label);
    }
}

/* Makes the values of each position add up to 1 over the channels. */
static void fill_targets(const layer_fixture *f, int32_t i) {
    int64_t channels = channels_of(&f->plain_in[i].shape);
    int64_t samples = f->plain_in[i].shape.dims[0];
    int64_t area = (int64_t)f->x_count[i] / (samples * channels);
    for (int64_t at = 0; at < samples * area; at++) {
        float *first = f->x[i] + at / area * channels * area + at % area, sum = 0;
        for (int64_t c = 0; c < channels; c++)
            sum += first[c * area] = 0.5f + 0.25f * first[c * area];
        for (int64_t c = 0; c < channels; c++)
            first[c * area] /= sum;
    }
}

void layer_fixture_fill(layer_fixture *f, uint64_t seed) {
    for (int32_t i = 0; i < f->prepared.inputs; i++) {
        suite_random(f->x[i], f->x_count[i], seed + (uint64_t)i);
        if (f->plain_in[i].dtype == DLC_I32)
            fill_labels(f, i);
        else if (f->inputs.targets && i == f->prepared.inputs - 1)
            fill_targets(f, i);
    }
    for (int32_t i = 0; i < f->prepared.params; i++) {
        suite_random(f->p[i], f->p_count[i], seed + 100 + (uint64_t)i);
        /* It may be a variance, so it is positive. */
        for (size_t j = 0; f->param[i].flags & DLC_PARAM_BUFFER && j < f->p_count[i];
             j++)
            f->p[i][j] = 0.5f + 0.25f * f->p[i][j];
    }
}

/* ---- The grid --------------------------------------------------------------- */

/* Two to five dimensions, with odd sizes and sizes of 1. */
static const dlc_shape grid[] = {
    {4, {2, 3, 5, 7}}, {4, {1, 4, 6, 6}},    {4, {3, 16, 4, 4}}, {4, {4, 1, 9, 3}},
    {2, {3, 8}},       {2, {1, 5}},          {2, {5, 17}},       {3, {2, 6, 5}},
    {3, {3, 4, 1}},    {5, {2, 3, 4, 3, 5}}, {2, {65, 9}},       {4, {2, 8, 33, 31}},
};
/* A sum over the last one is too large for finite differences. */
enum { SHAPES = sizeof grid / sizeof *grid, METRIC_SHAPES = SHAPES - 1 };

/* More than 65,536 elements, and no size that is a multiple of the usual blocks. */
static const dlc_shape large[] = {
    {4, {2, 13, 52, 51}}, {2, {257, 263}}, {3, {3, 131, 173}}};
enum { LARGE_SHAPES = sizeof large / sizeof *large };

/* Several inputs have one shape. LABELS: one integer for each sample; MAP: one for each
 * position of a sample; INDICES: integers alone. */
typedef enum input_kind {
    ONE,
    TWO,
    THREE,
    LABELS,
    MAP,
    TARGETS,
    PAIR,
    INDICES,
    END
} input_kind;

/* Kinds of inputs for layers, and for losses and metrics. Those of the second row are
 * tried only if none of the first is accepted. */
static const input_kind layer_kinds[2][5] = {{ONE, TWO, THREE, END},
                                             {LABELS, MAP, INDICES, PAIR, END}};
static const input_kind metric_kinds[2][5] = {{LABELS, MAP, TARGETS, END},
                                              {ONE, THREE, PAIR, INDICES, END}};

static void add_labels(layer_inputs *inputs, const dlc_shape *shape, int each) {
    dlc_shape *labels = &inputs->shape[inputs->count];
    *labels = (dlc_shape){.rank = 1, .dims = {shape->dims[0]}};
    for (int32_t d = 2; each && d < shape->rank; d++)
        labels->dims[labels->rank++] = shape->dims[d];
    inputs->dtype[inputs->count++] = DLC_I32;
}

static void make_inputs(input_kind kind, const dlc_shape *shape, layer_inputs *inputs) {
    static const int32_t values[] = {
        [ONE] = 1, [TWO] = 2,     [THREE] = 3, [LABELS] = 1,
        [MAP] = 1, [TARGETS] = 2, [PAIR] = 2,  [INDICES] = 1};
    *inputs = (layer_inputs){.count = values[kind], .targets = kind == TARGETS};
    for (int32_t i = 0; i < inputs->count; i++) {
        inputs->shape[i] = *shape;
        inputs->dtype[i] = kind == INDICES ? DLC_I32 : DLC_F32;
    }
    if (kind == LABELS || kind == MAP || kind == PAIR)
        add_labels(inputs, shape, kind == MAP);
}

static int try_inputs(suite_run *run, const layer_build *build,
                      const layer_inputs *inputs, layer_visitor *visit) {
    layer_fixture f;
    if (layer_fixture_open(run, build, inputs, &f) != DLC_OK)
        return 0;
    visit(&f);
    layer_fixture_close(&f);
    return 1;
}

static int try_kinds(suite_run *run, const layer_build *build, const input_kind *kinds,
                     const dlc_shape *of, int shapes, layer_visitor *visit) {
    int taken = 0;
    for (int shape = 0; shape < shapes; shape++)
        for (const input_kind *kind = kinds; *kind != END; kind++) {
            layer_inputs inputs;
            if (*kind == MAP && of[shape].rank < 3)
                continue; /* the same as LABELS */
            make_inputs(*kind, &of[shape], &inputs);
            taken += try_inputs(run, build, &inputs, visit);
        }
    return taken;
}

/* ---- Inputs that the user gives --------------------------------------------- */

/* Reads "4x3x8x8", or "4x8:int32", and returns what comes after it; NULL: it is none.
 */
static const char *parse_input(const char *text, dlc_shape *shape, dlc_dtype *dtype) {
    char *end = NULL;
    *shape = (dlc_shape){.rank = 0};
    *dtype = DLC_F32;
    for (;; text = end + 1) {
        long size = strtol(text, &end, 10);
        if (end == text || size < 1 || size > 1 << 16 || shape->rank == DLC_MAX_DIMS)
            return NULL;
        shape->dims[shape->rank++] = size;
        if (*end != 'x')
            break;
    }
    if (strncmp(end, ":int32", 6) == 0) {
        *dtype = DLC_I32;
        end += 6;
    }
    return *end == ',' || *end == '\0' ? end : NULL;
}

static void parse_inputs(suite_run *run, const char *text, layer_inputs *inputs) {
    const char *at = text;
    *inputs = (layer_inputs){.count = 0};
    while (at && inputs->count < FIXTURE_INPUTS) {
        int32_t i = inputs->count++;
        at = parse_input(at, &inputs->shape[i], &inputs->dtype[i]);
        if (at && !*at)
            return;
        at = at ? at + 1 : NULL;
    }
    suite_lack(run, "--inputs %s: it must be 1 to %d shapes, such as 4x3x8x8,4x8:int32",
               text, FIXTURE_INPUTS);
}

static int try_given(suite_run *run, const layer_build *build, layer_visitor *visit) {
    int taken = 0;
    for (size_t i = 0; i < run->subject->ninputs; i++) {
        layer_inputs inputs;
        parse_inputs(run, run->subject->inputs[i], &inputs);
        taken += try_inputs(run, build, &inputs, visit);
    }
    return taken;
}

static int is_metric(const suite_run *run) {
    return (run->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)) != 0;
}

static int try_shapes(suite_run *run, const layer_build *build, const dlc_shape *of,
                      int shapes, layer_visitor *visit) {
    int taken = 0;
    for (int i = 0; i < 2 && !taken; i++)
        taken = try_kinds(run, build, (is_metric(run) ? metric_kinds : layer_kinds)[i],
                          of, shapes, visit);
    return taken;
}

int layer_over_large(suite_run *run, layer_visitor *visit) {
    const layer_build build = {.phase = DLC_PHASE_TRAIN};
    return try_shapes(run, &build, large, LARGE_SHAPES, visit);
}

void layer_over_grid_of(suite_run *run, const layer_build *build,
                        layer_visitor *visit) {
    int shapes = is_metric(run) ? METRIC_SHAPES : SHAPES;
    int taken = try_shapes(run, build, grid, shapes, visit);
    taken += try_given(run, build, visit);
    if (!taken)
        suite_lack(run,
                   "it accepts none of the inputs that this check tries (give others "
                   "by --inputs, or settings by --set): %s",
                   dlc_detail());
}

void layer_over_grid(suite_run *run, dlc_phase phase, layer_visitor *visit) {
    const layer_build build = {.phase = phase};
    layer_over_grid_of(run, &build, visit);
}

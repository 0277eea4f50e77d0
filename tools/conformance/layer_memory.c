/* The checks of the memory contract of layers: a pass in which memory is treated as in
 * a large net must give the same values as a pass with memory of its own. */
#include "layer_values.h"

/* ---- Habits of nets --------------------------------------------------------- */

/* Compares a plain pass with several that have these habits: what a layer keeps from
 * one call shows up in the next. */
static void compare_habits(layer_fixture *f, unsigned habits, const char *why) {
    layer_values wanted;
    layer_values_show(f, 21);
    layer_values_pass(f);
    layer_values_keep(f, &wanted);
    f->habits = habits;
    for (int i = 0; i < 3; i++) {
        layer_values_pass(f);
        layer_values_same_output(f, &wanted, why);
        layer_values_same_gradients(f, &wanted, why);
    }
    f->habits = 0;
    layer_values_drop(&wanted);
}

static void leave_alone(layer_fixture *f) {
    layer_values_show(f, 21);
    layer_values_pass(f);
}

static void leaves_what_it_reads(suite_run *run) {
    layer_over_grid(run, DLC_PHASE_TRAIN, leave_alone);
    layer_over_grid(run, DLC_PHASE_TEST, leave_alone);
}

static void poison_written(layer_fixture *f) {
    compare_habits(f, LAYER_POISON_WRITTEN,
                   "where outputs and gradients are NaN before the call");
}

static void overwrites(suite_run *run) {
    layer_over_grid(run, DLC_PHASE_TRAIN, poison_written);
}

static void poison_scratch(layer_fixture *f) {
    compare_habits(f, LAYER_POISON_SCRATCH, "where scratch memory is NaN at each call");
}

static void keeps_no_scratch(suite_run *run) {
    layer_over_grid(run, DLC_PHASE_TRAIN, poison_scratch);
}

static void poison_undeclared(layer_fixture *f) {
    compare_habits(f, LAYER_POISON_UNDECLARED,
                   "where inputs and outputs that are in neither reads_in nor "
                   "reads_out are NaN");
}

static void needs_backward(suite_run *run) {
    const dlc_layer_ops *ops = run->feature->ops;
    if (!DLC_CAN(ops, backward))
        suite_skip(run, "it has no backward");
}

static void declares_what_it_reads(suite_run *run) {
    needs_backward(run);
    layer_over_grid(run, DLC_PHASE_TRAIN, poison_undeclared);
}

static void move_memory(layer_fixture *f) {
    compare_habits(f, LAYER_MOVE, "where each call gets memory at other addresses");
}

static void follows_its_memory(suite_run *run) {
    layer_over_grid(run, DLC_PHASE_TRAIN, move_memory);
}

/* ---- In place --------------------------------------------------------------- */

static int shared; /* inputs of the grid that may be overwritten */

static void share_each(layer_fixture *f) {
    for (int32_t i = 0; i < f->prepared.inputs; i++) {
        if (!layer_fixture_can_share(f, i))
            continue;
        shared++;
        f->shared = i;
        compare_habits(f, LAYER_IN_PLACE, "where in_place is made use of");
    }
    f->shared = 0;
}

static void works_in_place(suite_run *run) {
    shared = 0;
    layer_over_grid(run, DLC_PHASE_TRAIN, share_each);
    layer_over_grid(run, DLC_PHASE_TEST, share_each);
    if (!shared)
        suite_skip(run, "its output overwrites no input");
}

/* ---- Two passes ------------------------------------------------------------- */

/* The second one has a sample less with a label. */
static void show_micro_batch(layer_fixture *f, int i) {
    f->iteration = 5 + i;
    layer_values_show(f, 21 + (uint64_t)i * 100);
    if (i > 0 && layer_values_has_labels(f))
        layer_values_remove_labels(f, 0, 1);
}

/* The forward of two micro-batches, and then the backward of both, as in a pipeline. */
static void interleave(layer_fixture *f) {
    enum { PASSES = 2 };
    layer_values wanted[PASSES];
    const char *why = "while another micro-batch is between its forward and backward";
    for (int i = 0; i < PASSES; i++) {
        show_micro_batch(f, i);
        layer_values_pass(f);
        layer_values_keep(f, &wanted[i]);
    }
    for (int i = 0; i < PASSES; i++, layer_fixture_switch_pass(f)) {
        show_micro_batch(f, i);
        layer_fixture_forward(f);
        layer_values_same_output(f, &wanted[i], why);
    }
    for (int i = 0; i < PASSES; i++, layer_fixture_switch_pass(f)) {
        show_micro_batch(f, i);
        layer_fixture_backward(f);
        layer_values_same_gradients(f, &wanted[i], why);
        layer_values_drop(&wanted[i]);
    }
}

static void passes_are_independent(suite_run *run) {
    needs_backward(run);
    layer_over_grid(run, DLC_PHASE_TRAIN, interleave);
}

/* ---- Recomputation ---------------------------------------------------------- */

static void recompute(layer_fixture *f) {
    layer_values wanted;
    layer_values_show(f, 21);
    layer_fixture_forward(f);
    layer_values_keep(f, &wanted);
    f->recompute = 1; /* the fixture checks that running averages stay */
    layer_fixture_forward(f);
    f->recompute = 0;
    layer_values_same_output(f, &wanted, "when it is recomputed");
    layer_values_drop(&wanted);
}

static void recomputes(suite_run *run) {
    if (!(run->feature->caps & DLC_LAYER_RECOMPUTABLE))
        suite_skip(run, "it is not DLC_LAYER_RECOMPUTABLE");
    layer_over_grid(run, DLC_PHASE_TRAIN, recompute);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_LAYER, 0, SUITE_LOADED, 60, run }

const suite_check suite_layer_memory_checks[] = {
    CHECK("layer.read_only",
          "inputs, outputs and weights that it reads stay as they are",
          leaves_what_it_reads),
    CHECK("layer.overwrites", "outputs and gradients are overwritten, not added to",
          overwrites),
    CHECK("layer.scratch", "nothing is kept in scratch memory", keeps_no_scratch),
    CHECK("layer.undeclared", "backward reads only what reads_in and reads_out name",
          declares_what_it_reads),
    CHECK("layer.moved", "no pointer is kept from one call to the next",
          follows_its_memory),
    CHECK("layer.in_place", "the output may overwrite the inputs of in_place",
          works_in_place),
    CHECK("layer.passes", "nothing is kept in the layer from forward to backward",
          passes_are_independent),
    CHECK("layer.recompute", "forward can be repeated", recomputes),
    {.name = NULL},
};

/* The checks of solvers: of the rule itself, called directly, and of training with it.
 */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "process.h"
#include "training_fixture.h"

enum { MOST = 67 }; /* elements of a call of the rule */

/* ---- Needs and values ------------------------------------------------------- */

/* Bit by bit: NaN is like NaN, and 0 is not like -0. */
static int same_floats(const float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t one, other;
        memcpy(&one, &a[i], sizeof one);
        memcpy(&other, &b[i], sizeof other);
        if (one != other)
            return 0;
    }
    return 1;
}

static void reports_its_needs(suite_run *run) {
    training_fixture a, b;
    training_fixture_open(run, &a);
    training_fixture_open(run, &b);
    const dlc_solver_needs *one = &a.solver.needs, *other = &b.solver.needs;
    if (one->rule != other->rule || one->direction != other->direction ||
        one->norms != other->norms || one->slot_saved != other->slot_saved ||
        !same_floats(one->slot_initial, other->slot_initial, DLC_MAX_SLOTS))
        suite_fail(run, "needs gives different results for the same settings");
    if (one->slot_saved >> a.solver.slots)
        suite_fail(run, "needs.slot_saved includes slots that do not exist");
}

static int same_values(const dlc_rule_values *a, const dlc_rule_values *b) {
    return same_floats(&a->learning_rate, &b->learning_rate, 1) &&
           same_floats(&a->weight_decay, &b->weight_decay, 1) &&
           same_floats(&a->l1_decay, &b->l1_decay, 1) &&
           same_floats(&a->clip_value, &b->clip_value, 1) &&
           same_floats(a->own, b->own, DLC_RULE_VALUES);
}

static void check_finite(suite_run *run, const dlc_rule_values *values, int iteration) {
    int finite = isfinite(values->learning_rate) && isfinite(values->weight_decay) &&
                 isfinite(values->l1_decay) && !isnan(values->clip_value);
    for (int i = 0; i < DLC_RULE_VALUES; i++)
        finite = finite && isfinite(values->own[i]);
    if (!finite)
        suite_fail(run, "a hyperparameter of iteration %d is not finite", iteration);
}

static void values_are_a_function(suite_run *run) {
    training_fixture f;
    dlc_rule_values first[TRAINING_STEPS], again;
    training_fixture_open(run, &f);
    memset(first, 0, sizeof first);
    for (int i = 0; i < TRAINING_STEPS; i++) {
        suite_must(run, dlc_solver_values(&f.solver, (int64_t)i * 2500, &first[i]),
                   "values");
        check_finite(run, &first[i], i * 2500);
    }
    for (int i = TRAINING_STEPS - 1; i >= 0; i--) {
        suite_must(run, dlc_solver_values(&f.solver, (int64_t)i * 2500, &again),
                   "values");
        if (!same_values(&first[i], &again))
            suite_fail(run, "the values of iteration %d depend on earlier calls",
                       i * 2500);
    }
}

/* ---- The rule --------------------------------------------------------------- */

/* Arrays of a call of the rule, with room on both sides that it must not touch. */
typedef struct arrays {
    float gradient[MOST + 2], weight[MOST + 2], slot[DLC_MAX_SLOTS][MOST + 2];
} arrays;

static int same_arrays(const arrays *a, const arrays *b) {
    int same = same_floats(a->gradient, b->gradient, MOST + 2) &&
               same_floats(a->weight, b->weight, MOST + 2);
    for (int i = 0; i < DLC_MAX_SLOTS; i++)
        same = same && same_floats(a->slot[i], b->slot[i], MOST + 2);
    return same;
}

static void make_step(suite_run *run, dlc_solver *solver, dlc_rule_step *step) {
    training_fixture f;
    dlc_update update = {.lr_mult = 1, .decay_mult = 1, .grad_scale = 1};
    training_fixture_open(run, &f);
    suite_must(run, dlc_solver_values(&f.solver, 3, &update.values), "values");
    (void)dlc_rule_step_make(&update, step);
    *solver = f.solver;
}

static void fill_arrays(const dlc_solver *solver, arrays *a) {
    memset(a, 0, sizeof *a);
    suite_random(a->gradient, MOST + 2, 1);
    suite_random(a->weight, MOST + 2, 2);
    for (int32_t i = 0; i < solver->slots; i++) {
        suite_random(a->slot[i], MOST + 2, 3 + (uint64_t)i);
        for (size_t j = 0; j < MOST + 2; j++)
            a->slot[i][j] = fabsf(a->slot[i][j]) + solver->needs.slot_initial[i];
    }
}

/* Runs the direction, if there is one, and the rule on the elements [begin, begin + n).
 */
static void run_on(const dlc_solver *solver, const dlc_rule_step *step, arrays *a,
                   size_t begin, size_t n) {
    const dlc_rule *direction = solver->needs.direction;
    float *slots[DLC_MAX_SLOTS] = {0};
    for (int32_t i = 0; i < solver->slots; i++)
        slots[i] = a->slot[i] + begin;
    if (direction)
        direction->run(step, n, a->gradient + begin, slots, a->weight + begin);
    solver->needs.rule->run(step, n, a->gradient + begin, slots, a->weight + begin);
}

/* Each element's result depends on that element alone, whatever n is. */
static void updates_elements(suite_run *run) {
    static const size_t lengths[] = {0, 1, 2, 3, 7, 16, 33, MOST};
    dlc_solver solver;
    dlc_rule_step step = {.grad_scale = 1};
    make_step(run, &solver, &step);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        arrays together, alone;
        fill_arrays(&solver, &together);
        fill_arrays(&solver, &alone);
        run_on(&solver, &step, &together, 1, lengths[i]);
        for (size_t j = 0; j < lengths[i]; j++)
            run_on(&solver, &step, &alone, 1 + j, 1);
        if (!same_arrays(&together, &alone))
            suite_fail(run,
                       "updating %zu elements gives other results than updating each "
                       "alone, or changes something else",
                       lengths[i]);
    }
}

/* As many elements at once as a large parameter has, and in pieces. */
static void updates_many(suite_run *run) {
    enum { MANY = 70001, PIECE = 4099, STATES = DLC_MAX_SLOTS + 2 };
    dlc_solver solver;
    dlc_rule_step step = {.grad_scale = 1};
    float *state[2][STATES], *slots[DLC_MAX_SLOTS];
    make_step(run, &solver, &step);
    for (int way = 0; way < 2; way++)
        for (int i = 0; i < STATES; i++) {
            float *x = state[way][i] = dlc_alloc(MANY, sizeof *x);
            if (!x)
                suite_skip(run, "out of memory");
            suite_random(x, MANY, 11 + (uint64_t)i);
            for (size_t j = 0; i >= 2 && j < MANY; j++)
                x[j] = fabsf(x[j]);
        }
    for (int way = 0; way < 2; way++)
        for (size_t begin = 0, n = MANY; begin < MANY; begin += n) {
            n = !way ? MANY : MANY - begin < PIECE ? MANY - begin : PIECE;
            for (int i = 0; i < DLC_MAX_SLOTS; i++)
                slots[i] = state[way][2 + i] + begin;
            if (solver.needs.direction)
                solver.needs.direction->run(&step, n, state[way][0] + begin, slots,
                                            state[way][1] + begin);
            solver.needs.rule->run(&step, n, state[way][0] + begin, slots,
                                   state[way][1] + begin);
        }
    suite_process_check(run, "the rule");
    for (int i = 0; i < STATES; i++) {
        if (!same_floats(state[0][i], state[1][i], MANY))
            suite_fail(run,
                       "updating %d elements gives other results than updating them "
                       "in pieces",
                       MANY);
        dlc_free(state[0][i]);
        dlc_free(state[1][i]);
    }
}

/* ---- What a rule is told -------------------------------------------------------- */

/* Runs the rule with a step and gradients of which f is made. */
static void run_step(const dlc_solver *solver, const dlc_rule_step *step,
                     float (*f)(float gradient, float weight), arrays *a) {
    fill_arrays(solver, a);
    for (size_t i = 0; f && i < MOST; i++)
        a->gradient[i] = f(a->gradient[i], a->weight[i]);
    run_on(solver, step, a, 0, MOST);
}

static int near_arrays(const arrays *a, const arrays *b) {
    for (size_t i = 0; i < MOST; i++)
        if (!(fabsf(a->weight[i] - b->weight[i]) <= 1e-5f * (1 + fabsf(b->weight[i]))))
            return 0;
    return 1;
}

static float quarter(float gradient, float weight) {
    (void)weight;
    return gradient / 4;
}

static float clipped(float gradient, float weight) {
    (void)weight;
    return fmaxf(-0.25f, fminf(0.25f, gradient));
}

static float decayed(float gradient, float weight) {
    return gradient + 0.5f * weight;
}

static float drawn_to_0(float gradient, float weight) {
    return gradient + (weight > 0 ? 0.25f : weight < 0 ? -0.25f : 0);
}

static void must_act_as(suite_run *run, const dlc_solver *solver,
                        const dlc_rule_step *step, const dlc_rule_step *plain,
                        float (*f)(float gradient, float weight), const char *what) {
    arrays told, done;
    run_step(solver, step, NULL, &told);
    run_step(solver, plain, f, &done);
    if (!near_arrays(&told, &done))
        suite_fail(run,
                   "the rule does not obey %s of its step; take the gradient that the "
                   "body of DLC_RULE is given, or dlc_rule_gradient",
                   what);
}

/* The rule gets gradients as they were reduced, and the step says what to make of them.
 */
static void obeys_its_step(suite_run *run) {
    dlc_solver solver;
    dlc_rule_step plain = {.grad_scale = 1}, step;
    make_step(run, &solver, &plain);
    plain.weight_decay = plain.l1_decay = 0;
    plain.grad_scale = plain.weight_norm = plain.norm = 1;
    plain.clip_value = INFINITY;
    plain.learning_rate = 1;
    step = plain;
    step.grad_scale = 0.25f;
    must_act_as(run, &solver, &step, &plain, quarter, "grad_scale");
    step = plain;
    step.clip_value = 0.25f;
    must_act_as(run, &solver, &step, &plain, clipped, "clip_value");
    step = plain;
    step.weight_decay = 0.5f;
    if (!solver.needs.norms) /* a trust may depend on the decay, too */
        must_act_as(run, &solver, &step, &plain, decayed, "weight_decay");
    step = plain;
    step.l1_decay = 0.25f;
    must_act_as(run, &solver, &step, &plain, drawn_to_0, "l1_decay");
    arrays once, twice;
    step = plain;
    step.learning_rate *= 2;
    run_step(&solver, &plain, NULL, &once);
    run_step(&solver, &step, NULL, &twice);
    if (near_arrays(&once, &twice))
        suite_fail(run, "the rule makes the same step with twice the learning rate");
}

static void make_decaying(suite_run *run, dlc_solver *solver, double decay,
                          float decay_mult, dlc_rule_step *step) {
    dlc_update update = {.lr_mult = 1, .decay_mult = decay_mult, .grad_scale = 1};
    solver->weight_decay = decay;
    suite_must(run, dlc_solver_values(solver, 3, &update.values), "values");
    update.values.learning_rate = 1;
    (void)dlc_rule_step_make(&update, step);
    step->weight_norm = step->norm = 1;
}

/* A parameter of decay_mult 0, such as a bias, is not decayed. */
static void decays_as_asked(suite_run *run) {
    dlc_solver solver;
    dlc_rule_step step;
    arrays plain, none, mult_0, once, twice, double_decay;
    make_step(run, &solver, &step);
    make_decaying(run, &solver, 0, 1, &step);
    run_step(&solver, &step, NULL, &plain);
    make_decaying(run, &solver, 0, 0, &step);
    run_step(&solver, &step, NULL, &none);
    make_decaying(run, &solver, 0.25, 0, &step);
    run_step(&solver, &step, NULL, &mult_0);
    make_decaying(run, &solver, 0.25, 1, &step);
    run_step(&solver, &step, NULL, &once);
    make_decaying(run, &solver, 0.25, 2, &step);
    run_step(&solver, &step, NULL, &twice);
    make_decaying(run, &solver, 0.5, 1, &step);
    run_step(&solver, &step, NULL, &double_decay);
    if (near_arrays(&plain, &once))
        suite_fail(run, "weight_decay 0.25 changes nothing");
    if (!near_arrays(&none, &mult_0))
        suite_fail(run, "it decays a parameter whose decay_mult is 0");
    if (!near_arrays(&twice, &double_decay))
        suite_fail(run, "decay_mult 2 is not like twice the weight_decay");
}

/* Norms of 0, or far apart, are no reason for infinity. */
static void survives_norms(suite_run *run) {
    static const float norms[] = {0, 1e-15f, 1, 1e15f};
    dlc_solver solver;
    dlc_rule_step step = {.grad_scale = 1};
    make_step(run, &solver, &step);
    if (!solver.needs.norms)
        suite_skip(run, "it takes no norms");
    for (size_t i = 0; i < 16; i++) {
        arrays a;
        fill_arrays(&solver, &a);
        step.weight_norm = norms[i % 4];
        step.norm = norms[i / 4];
        run_on(&solver, &step, &a, 0, MOST);
        for (size_t j = 0; j < MOST; j++)
            if (!isfinite(a.weight[j]))
                suite_fail(run, "a weight becomes %g with norms of %g and %g",
                           (double)a.weight[j], (double)step.weight_norm,
                           (double)step.norm);
    }
}

/* Infinity and NaN stay in their element. */
static void survives_nan(suite_run *run) {
    dlc_solver solver;
    dlc_rule_step step = {.grad_scale = 1};
    make_step(run, &solver, &step);
    arrays sound, sick;
    fill_arrays(&solver, &sound);
    fill_arrays(&solver, &sick);
    sick.gradient[5] = NAN;
    sick.gradient[9] = INFINITY;
    run_on(&solver, &step, &sound, 0, MOST);
    run_on(&solver, &step, &sick, 0, MOST);
    for (size_t i = 0; i < MOST; i++)
        if (i != 5 && i != 9 && !suite_same(sound.weight + i, sick.weight + i, 1))
            suite_fail(run, "NaN in one gradient changes another weight");
    if (isfinite(sick.weight[5]))
        suite_fail(run, "a gradient of NaN goes unnoticed: the weight stays finite");
}

/* The padding between parameters is updated like the rest. */
static void keeps_padding(suite_run *run) {
    dlc_solver solver;
    dlc_rule_step step = {.grad_scale = 1};
    make_step(run, &solver, &step);
    arrays a;
    memset(&a, 0, sizeof a);
    for (int32_t i = 0; i < solver.slots; i++)
        for (size_t j = 0; j < MOST; j++)
            a.slot[i][j] = solver.needs.slot_initial[i];
    for (int i = 0; i < TRAINING_STEPS; i++)
        run_on(&solver, &step, &a, 0, MOST);
    for (size_t i = 0; i < MOST; i++)
        if (a.weight[i] != 0)
            suite_fail(run, "a weight of 0 without any gradient becomes %g",
                       (double)a.weight[i]);
}

/* ---- Training --------------------------------------------------------------- */

static void converges(suite_run *run) {
    training_fixture f;
    double rate = 0;
    training_fixture_begin(run, &f);
    double before = training_fixture_distance(&f);
    for (int64_t i = 0; i < (int64_t)10 * TRAINING_STEPS; i++) {
        rate = fmax(rate, dlc_solver_learning_rate(&f.solver, i));
        training_fixture_step(&f, i);
    }
    double after = training_fixture_distance(&f);
    if (rate <= 0)
        suite_skip(run, "its learning rate is 0 with these settings");
    if (!isfinite(after) || after >= before)
        suite_fail(run,
                   "minimizing a quadratic function, the distance to the minimum went "
                   "from %g to %g in %d steps",
                   before, after, 10 * TRAINING_STEPS);
}

/* In some iteration: in the end a rule of steps of one size may have gone back. */
static void moves_all(suite_run *run) {
    enum { STEPS = 12 };
    static float before[TRAINING_COUNT];
    static char has_moved[TRAINING_COUNT];
    training_fixture f;
    double rate = 0;
    training_fixture_begin(run, &f);
    memset(has_moved, 0, sizeof has_moved);
    for (int64_t i = 0; i < STEPS; i++) {
        memcpy(before, f.weights, sizeof before);
        rate = fmax(rate, dlc_solver_learning_rate(&f.solver, i));
        training_fixture_step(&f, i);
        for (size_t w = 0; w < TRAINING_COUNT; w++)
            has_moved[w] |= !suite_same(&before[w], &f.weights[w], 1);
    }
    if (rate <= 0)
        suite_skip(run, "its learning rate is 0 with these settings");
    for (size_t w = 0; w < TRAINING_COUNT; w++)
        if (training_fixture_is_trained(w) && !has_moved[w])
            suite_fail(run, "weight %zu of %d is the same after each of %d iterations",
                       w, TRAINING_COUNT, STEPS);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_SOLVER, 0, SUITE_LOADED, 30, run }

const suite_check suite_solver_checks[] = {
    CHECK("solver.needs", "needs is valid and depends on the settings alone",
          reports_its_needs),
    CHECK("solver.values", "the values of an iteration depend on it alone",
          values_are_a_function),
    CHECK("solver.norms", "weights stay finite for any norms", survives_norms),
    CHECK("solver.elements", "the rule updates each element by itself",
          updates_elements),
    CHECK("solver.many", "many elements are updated like few", updates_many),
    CHECK("solver.step", "the rule obeys scale, clipping, decay and learning rate",
          obeys_its_step),
    CHECK("solver.decay_mult", "a parameter is decayed as its decay_mult says",
          decays_as_asked),
    CHECK("solver.moves", "every weight that has a gradient moves", moves_all),
    CHECK("solver.nan", "NaN in a gradient stays in its element", survives_nan),
    CHECK("solver.padding", "a weight of 0 without a gradient stays 0", keeps_padding),
    CHECK("solver.converges", "it minimizes a quadratic function", converges),
    CHECK("solver.repeats", "training is bitwise reproducible", training_repeats),
    CHECK("solver.resume", "a resumed run is bitwise identical", training_resumes),
    CHECK("solver.leaks", "iterations use no more memory, files and threads each time",
          training_keeps_nothing),
    {.name = NULL},
};

/* The checks of solvers: of the rule itself, called directly, and of training with it.
 */
#include <math.h>
#include <string.h>

#include "base/status.h"
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
    CHECK("solver.nan", "NaN in a gradient stays in its element", survives_nan),
    CHECK("solver.padding", "a weight of 0 without a gradient stays 0", keeps_padding),
    CHECK("solver.converges", "it minimizes a quadratic function", converges),
    CHECK("solver.repeats", "training is bitwise reproducible", training_repeats),
    CHECK("solver.resume", "a resumed run is bitwise identical", training_resumes),
    {.name = NULL},
};

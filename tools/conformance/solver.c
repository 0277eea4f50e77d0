/* The checks of solvers. They minimize a quadratic function, half the squared distance
 * of the weights to a goal, with a fake exchange of one rank that counts its calls. */
#include <math.h>
#include <string.h>

#include <dlcore/solver.h>

#include "base/memory.h"
#include "base/status.h"
#include "device_fixture.h"

enum { SEGMENTS = 5, BUCKETS = 3, CONTROL_WORDS = 16, COUNT = 240, STEPS = 40 };

/* Segments begin at multiples of 16 elements; the last one has lr_mult 0. */
static const size_t offsets[SEGMENTS] = {0, 48, 64, 176, 208};
static const size_t counts[SEGMENTS] = {40, 7, 100, 31, 16};
/* One border is in the middle of a segment; the last bucket has the control words. */
static const size_t borders[BUCKETS + 1] = {0, 100, 208, COUNT};

/* The solver under test, with what it works on. */
typedef struct fixture {
    suite_run *run;
    const dlc_solver_ops *ops;
    device_fixture device;
    dlc_solver_needs needs;
    dlc_segment segment[SEGMENTS];
    float *weights, *gradients, *slots[DLC_MAX_SLOTS], *goal;
    dlc_exchange exchange;
    dlc_solver *solver;

    /* Numbers of calls of the exchange since forget_calls. */
    int started[BUCKETS], waited[BUCKETS], gathered[BUCKETS], flushed;
    int early; /* 1: it waited for a bucket that it had not started */
    size_t shard_begin[BUCKETS], shard_end[BUCKETS];
} fixture;

static int is_synchronous(const suite_run *run) {
    return (run->feature->caps & DLC_SOLVER_SYNCHRONOUS) != 0;
}

/* ---- The exchange ----------------------------------------------------------- */

static dlc_status count_start(void *context, int32_t bucket) {
    fixture *r = context;
    if (bucket < 0 || bucket >= BUCKETS)
        suite_fail(r->run, "it started bucket %d of %d", bucket, BUCKETS);
    r->started[bucket]++;
    return DLC_OK;
}

static dlc_status count_wait(void *context, int32_t bucket) {
    fixture *r = context;
    if (bucket < 0 || bucket >= BUCKETS)
        suite_fail(r->run, "it waited for bucket %d of %d", bucket, BUCKETS);
    r->early |= r->started[bucket] <= r->waited[bucket];
    r->waited[bucket]++;
    return DLC_OK;
}

static dlc_status count_all_gather(void *context, int32_t bucket) {
    fixture *r = context;
    if (bucket < 0 || bucket >= BUCKETS)
        suite_fail(r->run, "it called all_gather for bucket %d of %d", bucket, BUCKETS);
    r->gathered[bucket]++;
    return DLC_OK;
}

static dlc_status count_flush(void *context) {
    fixture *r = context;
    r->flushed++;
    return DLC_OK;
}

static void forget_calls(fixture *r) {
    memset(r->started, 0, sizeof r->started);
    memset(r->waited, 0, sizeof r->waited);
    memset(r->gathered, 0, sizeof r->gathered);
    r->flushed = r->early = 0;
}

/* ---- Life ------------------------------------------------------------------- */

static void lay_out(fixture *r) {
    for (int i = 0; i < SEGMENTS; i++)
        r->segment[i] = (dlc_segment){.size = sizeof(dlc_segment),
                                      .name = "segment",
                                      .offset = offsets[i],
                                      .count = counts[i],
                                      .lr_mult = i == SEGMENTS - 1 ? 0 : 1 + i % 2,
                                      .decay_mult = i % 2};
    r->exchange = (dlc_exchange){.size = sizeof r->exchange,
                                 .context = r,
                                 .ranks = 1,
                                 .buckets = BUCKETS,
                                 .bucket_begin = borders,
                                 .start = count_start,
                                 .wait = count_wait};
}

static void check_needs(const fixture *r) {
    const dlc_solver_needs *needs = &r->needs;
    if (needs->slots < 0 || needs->slots > DLC_MAX_SLOTS)
        suite_fail(r->run, "needs reports %d slots; 0 to %d are possible", needs->slots,
                   DLC_MAX_SLOTS);
    for (int32_t i = 0; i < needs->slots; i++)
        if (!needs->slot_name[i] || !*needs->slot_name[i])
            suite_fail(r->run, "slot %d has no name", i);
    if (needs->slot_saved >> needs->slots)
        suite_fail(r->run, "needs.slot_saved includes slots that do not exist");
    if (needs->accumulation_steps < 1)
        suite_fail(r->run, "needs.accumulation_steps is %d", needs->accumulation_steps);
    if (needs->deferred_update && !DLC_CAN(r->ops, update))
        suite_fail(r->run, "needs.deferred_update is set, but there is no update");
}

static void fixture_needs(suite_run *run, fixture *r) {
    *r = (fixture){.run = run, .ops = run->feature->ops};
    r->needs = (dlc_solver_needs){.size = sizeof r->needs, .accumulation_steps = 1};
    suite_must(run, r->ops->needs(run->settings, &r->needs), "needs");
    check_needs(r);
}

static dlc_status fixture_create(fixture *r) {
    dlc_solver_args args = {.size = sizeof args,
                            .settings = r->run->settings,
                            .device_ops = r->device.ops,
                            .device = r->device.handle,
                            .count = COUNT,
                            .control_words = CONTROL_WORDS,
                            .weights = r->weights,
                            .gradients = r->gradients,
                            .segments = SEGMENTS,
                            .segment = r->segment,
                            .exchange = &r->exchange,
                            .max_iterations = 1000,
                            .epoch_iterations = 100};
    for (int32_t i = 0; i < r->needs.slots; i++)
        args.slots[i] = r->slots[i];
    return r->ops->create(&args, &r->solver);
}

static void fixture_memory(fixture *r) {
    device_fixture_open(r->run, &r->device);
    r->weights = device_fixture_floats(r->run, &r->device, COUNT);
    r->gradients = device_fixture_floats(r->run, &r->device, COUNT);
    r->goal = device_fixture_floats(r->run, &r->device, COUNT);
    for (int32_t i = 0; i < r->needs.slots; i++)
        r->slots[i] = device_fixture_floats(r->run, &r->device, COUNT);
    for (int i = 0; i < SEGMENTS; i++) {
        suite_random(r->weights + offsets[i], counts[i], 7 + (uint64_t)i);
        suite_random(r->goal + offsets[i], counts[i], 70 + (uint64_t)i);
    }
    lay_out(r);
}

/* Creates a solver, ready for the first iteration. */
static void fixture_open(suite_run *run, fixture *r) {
    fixture_needs(run, r);
    fixture_memory(r);
    suite_must(run, fixture_create(r), "create");
}

static void fixture_close(fixture *r) {
    r->ops->destroy(r->solver);
    r->solver = NULL;
}

/* ---- An iteration ----------------------------------------------------------- */

static void fill_gradients(const fixture *r) {
    memset(r->gradients, 0, COUNT * sizeof(float));
    for (int i = 0; i < SEGMENTS; i++)
        for (size_t j = offsets[i]; j < offsets[i] + counts[i]; j++)
            r->gradients[j] = r->weights[j] - r->goal[j];
    for (size_t j = COUNT - CONTROL_WORDS; j < COUNT; j++)
        r->gradients[j] = 0.5f; /* the control words */
}

static void backward(fixture *r, int64_t iteration) {
    for (int32_t micro = 0; micro < r->needs.accumulation_steps; micro++) {
        fill_gradients(r);
        for (int32_t b = 0; b < BUCKETS; b++)
            suite_must(r->run, r->ops->ready(r->solver, iteration, micro, b), "ready");
    }
}

static void step(fixture *r, int64_t iteration) {
    forget_calls(r);
    backward(r, iteration);
    suite_must(r->run, r->ops->finish(r->solver, iteration), "finish");
}

static double distance(const fixture *r) {
    double sum = 0;
    for (int i = 0; i < SEGMENTS - 1; i++)
        for (size_t j = offsets[i]; j < offsets[i] + counts[i]; j++)
            sum += pow((double)r->weights[j] - (double)r->goal[j], 2);
    return sqrt(sum);
}

/* ---- Checks ----------------------------------------------------------------- */

static void reports_its_needs(suite_run *run) {
    fixture a, b;
    fixture_needs(run, &a);
    fixture_needs(run, &b);
    if (a.needs.slots != b.needs.slots ||
        a.needs.accumulation_steps != b.needs.accumulation_steps ||
        a.needs.slot_saved != b.needs.slot_saved)
        suite_fail(run, "needs gives different results for the same settings");
}

/* An older host passes a smaller struct. */
static void works_with_an_older_host(suite_run *run) {
    const dlc_solver_ops *ops = run->feature->ops;
    union {
        dlc_solver_needs needs;
        unsigned char bytes[sizeof(dlc_solver_needs)];
    } small;
    memset(&small, 0xa5, sizeof small);
    size_t size = offsetof(dlc_solver_needs, sharding);
    memset(&small, 0, size);
    small.needs.size = (uint32_t)size;
    small.needs.accumulation_steps = 1;
    dlc_status status = ops->needs(run->settings, &small.needs);
    for (size_t i = size; i < sizeof small; i++)
        if (small.bytes[i] != 0xa5)
            suite_fail(run, "needs writes beyond the end of a smaller struct");
    if (status == DLC_ERR_UNSUPPORTED)
        suite_skip(run, "it needs a newer host: %s", dlc_detail());
    suite_must(run, status, "needs");
}

static void converges(suite_run *run) {
    fixture r;
    fixture_open(run, &r);
    double before = distance(&r);
    double rate = 0;
    for (int64_t i = 0; i < (int64_t)10 * STEPS; i++) {
        rate = fmax(rate, r.ops->learning_rate(r.solver, i));
        step(&r, i);
    }
    double after = distance(&r);
    if (rate <= 0)
        suite_skip(run, "its learning rate is 0 with these settings");
    if (!isfinite(after) || after >= before)
        suite_fail(run,
                   "minimizing a quadratic function, the distance to the minimum went "
                   "from %g to %g in %d steps",
                   before, after, 10 * STEPS);
}

static void rate_is_a_function(suite_run *run) {
    fixture r;
    double first[STEPS];
    fixture_open(run, &r);
    for (int64_t i = 0; i < STEPS; i++) {
        first[i] = r.ops->learning_rate(r.solver, i * 25);
        if (!isfinite(first[i]) || first[i] < 0)
            suite_fail(run, "its learning rate at iteration %d is %g", (int)i * 25,
                       first[i]);
    }
    step(&r, 0);
    for (int64_t i = STEPS - 1; i >= 0; i--)
        if (r.ops->learning_rate(r.solver, i * 25) != first[i])
            suite_fail(run,
                       "its learning rate at iteration %d depends on earlier calls",
                       (int)i * 25);
}

static int is_in_a_segment(size_t i) {
    for (int s = 0; s < SEGMENTS; s++)
        if (i >= offsets[s] && i < offsets[s] + counts[s])
            return 1;
    return 0;
}

static void updates_segments_only(suite_run *run) {
    fixture r;
    float frozen[16];
    fixture_open(run, &r);
    memcpy(frozen, r.weights + offsets[SEGMENTS - 1], sizeof frozen);
    for (int64_t i = 0; i < STEPS; i++)
        step(&r, i);
    for (size_t i = COUNT - CONTROL_WORDS; i < COUNT; i++)
        if (r.weights[i] != 0)
            suite_fail(run, "it updates the control words, which belong to the core");
    for (size_t i = 0; i < COUNT - CONTROL_WORDS; i++)
        if (!is_in_a_segment(i) && r.weights[i] != 0)
            suite_fail(run, "it updates the padding between segments");
    if (!suite_same(frozen, r.weights + offsets[SEGMENTS - 1], counts[SEGMENTS - 1]))
        suite_fail(run, "it updates a parameter with lr_mult 0");
}

static void exchanges_every_bucket(suite_run *run) {
    fixture r;
    if (!is_synchronous(run))
        suite_skip(run, "it is not DLC_SOLVER_SYNCHRONOUS");
    fixture_open(run, &r);
    for (int64_t i = 0; i < 3; i++) {
        step(&r, i);
        if (r.early)
            suite_fail(run, "it waited for a bucket that it had not started");
        for (int b = 0; b < BUCKETS; b++)
            if (r.started[b] != 1 || r.waited[b] < 1)
                suite_fail(run,
                           "in an iteration it started bucket %d %d times and "
                           "waited for it %d times",
                           b, r.started[b], r.waited[b]);
    }
}

/* Weights must not change before their gradients are reduced. */
static void waits_before_it_updates(suite_run *run) {
    fixture r;
    float before[COUNT];
    if (!is_synchronous(run))
        suite_skip(run, "it is not DLC_SOLVER_SYNCHRONOUS");
    fixture_open(run, &r);
    for (int64_t i = 0; i < 3; i++) {
        memcpy(before, r.weights, sizeof before);
        forget_calls(&r);
        backward(&r, i);
        for (int b = 0; b < BUCKETS; b++)
            if (!r.waited[b] && !suite_same(before + borders[b], r.weights + borders[b],
                                            borders[b + 1] - borders[b]))
                suite_fail(run,
                           "it changed weights of bucket %d before it had waited for "
                           "the bucket",
                           b);
        suite_must(run, r.ops->finish(r.solver, i), "finish");
    }
}

static void repeats_itself(suite_run *run) {
    fixture a, b;
    fixture_open(run, &a);
    fixture_open(run, &b);
    for (int64_t i = 0; i < STEPS; i++) {
        step(&a, i);
        step(&b, i);
    }
    if (!suite_same(a.weights, b.weights, COUNT))
        suite_fail(run, "two runs from the same weights give different weights");
}

/* ---- Resuming --------------------------------------------------------------- */

static void carry_over(const fixture *from, fixture *to) {
    memcpy(to->weights, from->weights, COUNT * sizeof(float));
    for (int32_t i = 0; i < from->needs.slots; i++)
        if (from->needs.slot_saved >> i & 1)
            memcpy(to->slots[i], from->slots[i], COUNT * sizeof(float));
}

static void carry_blob(const fixture *from, fixture *to) {
    suite_run *run = from->run;
    size_t bytes = 0;
    if (!DLC_CAN(from->ops, save))
        return;
    suite_must(run, from->ops->save(from->solver, NULL, &bytes),
               "save (number of bytes)");
    unsigned char *blob = dlc_alloc(bytes + 1, 1);
    if (!blob)
        suite_skip(run, "out of memory");
    blob[bytes] = 0xa5;
    suite_must(run, from->ops->save(from->solver, blob, &bytes), "save");
    if (blob[bytes] != 0xa5)
        suite_fail(run, "save writes more bytes than it reported");
    suite_must(run, to->ops->load(to->solver, blob, bytes), "load of a saved state");
}

static void resumes(suite_run *run) {
    fixture whole, first, second;
    fixture_open(run, &whole);
    fixture_open(run, &first);
    for (int64_t i = 0; i < STEPS; i++)
        step(&whole, i);
    for (int64_t i = 0; i < STEPS / 2; i++)
        step(&first, i);
    fixture_needs(run, &second);
    fixture_memory(&second);
    carry_over(&first, &second);
    suite_must(run, fixture_create(&second), "create");
    carry_blob(&first, &second);
    for (int64_t i = STEPS / 2; i < STEPS; i++)
        step(&second, i);
    if (!suite_same(whole.weights, second.weights, COUNT))
        suite_fail(run,
                   "a run that is saved and resumed gives other weights than a run "
                   "without interruption");
}

static void refuses_damage(suite_run *run) {
    fixture r;
    unsigned char nonsense[37];
    fixture_open(run, &r);
    if (!DLC_CAN(r.ops, load))
        suite_skip(run, "it has no state except its slots");
    memset(nonsense, 0xee, sizeof nonsense);
    if (r.ops->load(r.solver, nonsense, sizeof nonsense) == DLC_OK)
        suite_fail(run, "load accepts 37 bytes of garbage");
    if (!*dlc_detail())
        suite_fail(run, "load failed without a detail sentence");
}

/* ---- Sharded and deferred updates ------------------------------------------- */

static void updates_its_shard(suite_run *run) {
    fixture r;
    float before[COUNT];
    fixture_needs(run, &r);
    if (!r.needs.sharding)
        suite_skip(run, "it does not support sharded updates");
    fixture_memory(&r);
    for (int b = 0; b < BUCKETS;
         b++) { /* those of rank 1 of 2, but all of the last bucket */
        size_t half = (borders[b + 1] - borders[b]) / 2;
        r.shard_begin[b] = borders[b] + (b < BUCKETS - 1 ? half : 0);
        r.shard_end[b] = borders[b + 1];
    }
    r.exchange.rank = 1;
    r.exchange.ranks = 2;
    r.exchange.shard_begin = r.shard_begin;
    r.exchange.shard_end = r.shard_end;
    r.exchange.all_gather = count_all_gather;
    r.exchange.flush = count_flush;
    suite_must(run, fixture_create(&r), "create");
    memcpy(before, r.weights, sizeof before);
    step(&r, 1);
    if (r.flushed != 1)
        suite_fail(run, "it called flush %d times in an iteration", r.flushed);
    for (int b = 0; b < BUCKETS; b++) {
        if (r.gathered[b] != 1)
            suite_fail(run, "it called all_gather for bucket %d %d times", b,
                       r.gathered[b]);
        if (!suite_same(before + borders[b], r.weights + borders[b],
                        r.shard_begin[b] - borders[b]))
            suite_fail(run, "it updated weights in the shard of another rank");
    }
}

static void defers_updates(suite_run *run) {
    fixture now, deferred;
    fixture_open(run, &now);
    if (!now.needs.deferred_update)
        suite_skip(run, "it does not support deferred updates");
    fixture_open(run, &deferred);
    for (int64_t i = 0; i < STEPS; i++) {
        step(&now, i);
        forget_calls(&deferred);
        backward(&deferred, i);
        for (int b = BUCKETS - 1; b >= 0; b--)
            suite_must(run,
                       deferred.ops->update(deferred.solver, i, (b + (int)i) % BUCKETS),
                       "update");
    }
    if (!suite_same(now.weights, deferred.weights, COUNT))
        suite_fail(run, "update of each bucket gives other weights than finish");
}

static void closes(suite_run *run) {
    fixture r;
    fixture_open(run, &r);
    r.ops->destroy(NULL);
    step(&r, 0);
    backward(&r, 1); /* destroyed in the middle of an iteration */
    fixture_close(&r);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_SOLVER, 0, SUITE_LOADED, 30, run }

const suite_check suite_solver_checks[] = {
    CHECK("solver.needs", "needs is valid and depends on the settings alone",
          reports_its_needs),
    CHECK("solver.older_host", "needs stays inside the struct of an older host",
          works_with_an_older_host),
    CHECK("solver.converges", "it minimizes a quadratic function", converges),
    CHECK("solver.learning_rate", "the learning rate depends on the iteration alone",
          rate_is_a_function),
    CHECK("solver.untouched",
          "control words, padding and frozen parameters do not change",
          updates_segments_only),
    CHECK("solver.exchange", "every bucket is started once and then waited for",
          exchanges_every_bucket),
    CHECK("solver.order", "weights change only after their gradients are reduced",
          waits_before_it_updates),
    CHECK("solver.repeats", "training is bitwise reproducible", repeats_itself),
    CHECK("solver.resume", "a resumed run is bitwise identical", resumes),
    CHECK("solver.damage", "load rejects a damaged state", refuses_damage),
    CHECK("solver.sharding", "a sharded update changes this rank's shard only",
          updates_its_shard),
    CHECK("solver.deferred_update", "update is bitwise identical to finish",
          defers_updates),
    CHECK("solver.close", "destroy works with NULL and in the middle of an iteration",
          closes),
    {.name = NULL},
};

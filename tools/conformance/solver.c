/* Checks of solvers, on a bowl: the gradient of half the squared distance to a goal.
 * The exchange is one rank's, which notes what it is asked for. */
#include <math.h>
#include <string.h>

#include <dlcore/solver.h>

#include "base/memory.h"
#include "base/status.h"
#include "bed.h"

enum { SEGMENTS = 5, BUCKETS = 3, TAIL = 16, COUNT = 240, STEPS = 40 };

/* Segments begin on multiples of 16 elements; the last one's rate is 0. */
static const size_t offsets[SEGMENTS] = {0, 48, 64, 176, 208};
static const size_t counts[SEGMENTS] = {40, 7, 100, 31, 16};
/* One border in the middle of a segment; the last bucket has the tail. */
static const size_t borders[BUCKETS + 1] = {0, 100, 208, COUNT};

/* A solver at work. */
typedef struct rig {
    suite_run *run;
    const dlc_solver_ops *ops;
    suite_bed bed;
    dlc_solver_needs needs;
    dlc_segment segment[SEGMENTS];
    float *weights, *gradients, *slots[DLC_MAX_SLOTS], *goal;
    dlc_exchange exchange;
    dlc_solver *solver;

    int started[BUCKETS], waited[BUCKETS], spread[BUCKETS], settled;
    int early; /* a bucket was waited for that had not been started */
    size_t own_begin[BUCKETS], own_end[BUCKETS];
} rig;

static int is_synchronous(const suite_run *run) {
    return (run->feature->caps & DLC_SOLVER_SYNCHRONOUS) != 0;
}

/* ---- The exchange ------------------------------------------------------------ */

static dlc_status note_start(void *context, int32_t bucket) {
    rig *r = context;
    if (bucket < 0 || bucket >= BUCKETS)
        suite_fail(r->run, "it started bucket %d of %d", bucket, BUCKETS);
    r->started[bucket]++;
    return DLC_OK;
}

static dlc_status note_wait(void *context, int32_t bucket) {
    rig *r = context;
    if (bucket < 0 || bucket >= BUCKETS)
        suite_fail(r->run, "it waited for bucket %d of %d", bucket, BUCKETS);
    r->early |= r->started[bucket] <= r->waited[bucket];
    r->waited[bucket]++;
    return DLC_OK;
}

static dlc_status note_spread(void *context, int32_t bucket) {
    rig *r = context;
    if (bucket < 0 || bucket >= BUCKETS)
        suite_fail(r->run, "it spread bucket %d of %d", bucket, BUCKETS);
    r->spread[bucket]++;
    return DLC_OK;
}

static dlc_status note_settle(void *context) {
    rig *r = context;
    r->settled++;
    return DLC_OK;
}

static void forget_notes(rig *r) {
    memset(r->started, 0, sizeof r->started);
    memset(r->waited, 0, sizeof r->waited);
    memset(r->spread, 0, sizeof r->spread);
    r->settled = r->early = 0;
}

/* ---- Life -------------------------------------------------------------------- */

static void lay_out(rig *r) {
    for (int i = 0; i < SEGMENTS; i++)
        r->segment[i] = (dlc_segment){.size = sizeof(dlc_segment),
                                      .name = "segment",
                                      .offset = offsets[i],
                                      .count = counts[i],
                                      .rate = i == SEGMENTS - 1 ? 0 : 1 + i % 2,
                                      .decay = i % 2};
    r->exchange = (dlc_exchange){.size = sizeof r->exchange,
                                 .context = r,
                                 .ranks = 1,
                                 .buckets = BUCKETS,
                                 .bucket_begin = borders,
                                 .start = note_start,
                                 .wait = note_wait};
}

static void check_needs(const rig *r) {
    const dlc_solver_needs *needs = &r->needs;
    if (needs->slots < 0 || needs->slots > DLC_MAX_SLOTS)
        suite_fail(r->run, "needs says %d slots; 0 to %d are possible", needs->slots,
                   DLC_MAX_SLOTS);
    for (int32_t i = 0; i < needs->slots; i++)
        if (!needs->slot_name[i] || !*needs->slot_name[i])
            suite_fail(r->run, "slot %d has no name", i);
    if (needs->slot_saved >> needs->slots)
        suite_fail(r->run, "needs wants to save slots that it doesn't have");
    if (needs->micro_batches < 1)
        suite_fail(r->run, "needs says %d micro-batches", needs->micro_batches);
    if (needs->late && !DLC_CAN(r->ops, update))
        suite_fail(r->run, "needs says `late`, but it has no update");
}

static void rig_needs(suite_run *run, rig *r) {
    *r = (rig){.run = run, .ops = run->feature->ops};
    r->needs = (dlc_solver_needs){.size = sizeof r->needs, .micro_batches = 1};
    suite_must(run, r->ops->needs(run->settings, &r->needs), "needs");
    check_needs(r);
}

static dlc_status rig_create(rig *r) {
    dlc_solver_args args = {.size = sizeof args,
                            .settings = r->run->settings,
                            .device_ops = r->bed.ops,
                            .device = r->bed.device,
                            .count = COUNT,
                            .tail = TAIL,
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

static void rig_memory(rig *r) {
    suite_bed_open(r->run, &r->bed);
    r->weights = suite_bed_floats(r->run, &r->bed, COUNT);
    r->gradients = suite_bed_floats(r->run, &r->bed, COUNT);
    r->goal = suite_bed_floats(r->run, &r->bed, COUNT);
    for (int32_t i = 0; i < r->needs.slots; i++)
        r->slots[i] = suite_bed_floats(r->run, &r->bed, COUNT);
    for (int i = 0; i < SEGMENTS; i++) {
        suite_random(r->weights + offsets[i], counts[i], 7 + (uint64_t)i);
        suite_random(r->goal + offsets[i], counts[i], 70 + (uint64_t)i);
    }
    lay_out(r);
}

/* Ready to begin. A solver that wants peers or two passes is another matter. */
static void rig_open(suite_run *run, rig *r) {
    rig_needs(run, r);
    rig_memory(r);
    suite_must(run, rig_create(r), "create");
}

static void rig_close(rig *r) {
    r->ops->destroy(r->solver);
    r->solver = NULL;
}

/* ---- An iteration ------------------------------------------------------------ */

static void fill_gradients(const rig *r) {
    memset(r->gradients, 0, COUNT * sizeof(float));
    for (int i = 0; i < SEGMENTS; i++)
        for (size_t j = offsets[i]; j < offsets[i] + counts[i]; j++)
            r->gradients[j] = r->weights[j] - r->goal[j];
    for (size_t j = COUNT - TAIL; j < COUNT; j++)
        r->gradients[j] = 0.5f; /* the core's words */
}

static void backward(rig *r, int64_t iteration) {
    for (int32_t micro = 0; micro < r->needs.micro_batches; micro++) {
        fill_gradients(r);
        for (int32_t b = 0; b < BUCKETS; b++)
            suite_must(r->run, r->ops->ready(r->solver, iteration, micro, b), "ready");
    }
}

static void step(rig *r, int64_t iteration) {
    forget_notes(r);
    backward(r, iteration);
    suite_must(r->run, r->ops->finish(r->solver, iteration), "finish");
}

static double distance(const rig *r) {
    double sum = 0;
    for (int i = 0; i < SEGMENTS - 1; i++)
        for (size_t j = offsets[i]; j < offsets[i] + counts[i]; j++)
            sum += pow((double)r->weights[j] - (double)r->goal[j], 2);
    return sqrt(sum);
}

/* ---- What must hold ---------------------------------------------------------- */

static void tells_its_needs(suite_run *run) {
    rig a, b;
    rig_needs(run, &a);
    rig_needs(run, &b);
    if (a.needs.slots != b.needs.slots ||
        a.needs.micro_batches != b.needs.micro_batches ||
        a.needs.slot_saved != b.needs.slot_saved)
        suite_fail(run, "needs answers two things for the same settings");
}

/* Older hosts give a smaller struct. */
static void tells_an_older_host(suite_run *run) {
    const dlc_solver_ops *ops = run->feature->ops;
    union {
        dlc_solver_needs needs;
        unsigned char bytes[sizeof(dlc_solver_needs)];
    } small;
    memset(&small, 0xa5, sizeof small);
    size_t size = offsetof(dlc_solver_needs, shards);
    memset(&small, 0, size);
    small.needs.size = (uint32_t)size;
    small.needs.micro_batches = 1;
    dlc_status status = ops->needs(run->settings, &small.needs);
    for (size_t i = size; i < sizeof small; i++)
        if (small.bytes[i] != 0xa5)
            suite_fail(run, "needs writes behind the end of a smaller struct");
    if (status == DLC_ERR_UNSUPPORTED)
        suite_skip(run, "it needs a newer host: %s", dlc_detail());
    suite_must(run, status, "needs");
}

static void comes_nearer(suite_run *run) {
    rig r;
    rig_open(run, &r);
    double before = distance(&r);
    double rate = 0;
    for (int64_t i = 0; i < (int64_t)10 * STEPS; i++) {
        rate = fmax(rate, r.ops->rate(r.solver, i));
        step(&r, i);
    }
    double after = distance(&r);
    if (rate <= 0)
        suite_skip(run, "its rate is 0 as it is set");
    if (!isfinite(after) || after >= before)
        suite_fail(run,
                   "the distance to the goal went from %g to %g in %d steps on a "
                   "bowl",
                   before, after, 10 * STEPS);
}

static void rate_is_a_function(suite_run *run) {
    rig r;
    double first[STEPS];
    rig_open(run, &r);
    for (int64_t i = 0; i < STEPS; i++) {
        first[i] = r.ops->rate(r.solver, i * 25);
        if (!isfinite(first[i]) || first[i] < 0)
            suite_fail(run, "its rate at iteration %d is %g", (int)i * 25, first[i]);
    }
    step(&r, 0);
    for (int64_t i = STEPS - 1; i >= 0; i--)
        if (r.ops->rate(r.solver, i * 25) != first[i])
            suite_fail(run, "its rate at iteration %d depends on what was asked before",
                       (int)i * 25);
}

static int is_in_a_segment(size_t i) {
    for (int s = 0; s < SEGMENTS; s++)
        if (i >= offsets[s] && i < offsets[s] + counts[s])
            return 1;
    return 0;
}

static void keeps_to_its_own(suite_run *run) {
    rig r;
    float frozen[16];
    rig_open(run, &r);
    memcpy(frozen, r.weights + offsets[SEGMENTS - 1], sizeof frozen);
    for (int64_t i = 0; i < STEPS; i++)
        step(&r, i);
    for (size_t i = COUNT - TAIL; i < COUNT; i++)
        if (r.weights[i] != 0)
            suite_fail(run, "it updates the tail, which belongs to the core");
    for (size_t i = 0; i < COUNT - TAIL; i++)
        if (!is_in_a_segment(i) && r.weights[i] != 0)
            suite_fail(run, "it makes weights of the padding between segments");
    if (!suite_same(frozen, r.weights + offsets[SEGMENTS - 1], counts[SEGMENTS - 1]))
        suite_fail(run, "it updates a parameter whose rate is 0");
}

static void exchanges_every_bucket(suite_run *run) {
    rig r;
    if (!is_synchronous(run))
        suite_skip(run, "it exchanges in ways of its own");
    rig_open(run, &r);
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

/* Weights that were changed before their sum was there. */
static void waits_before_it_updates(suite_run *run) {
    rig r;
    float before[COUNT];
    if (!is_synchronous(run))
        suite_skip(run, "it exchanges in ways of its own");
    rig_open(run, &r);
    for (int64_t i = 0; i < 3; i++) {
        memcpy(before, r.weights, sizeof before);
        forget_notes(&r);
        backward(&r, i);
        for (int b = 0; b < BUCKETS; b++)
            if (!r.waited[b] && !suite_same(before + borders[b], r.weights + borders[b],
                                            borders[b + 1] - borders[b]))
                suite_fail(run,
                           "it changed weights of bucket %d before it waited for "
                           "their gradients' sum",
                           b);
        suite_must(run, r.ops->finish(r.solver, i), "finish");
    }
}

static void repeats_itself(suite_run *run) {
    rig a, b;
    rig_open(run, &a);
    rig_open(run, &b);
    for (int64_t i = 0; i < STEPS; i++) {
        step(&a, i);
        step(&b, i);
    }
    if (!suite_same(a.weights, b.weights, COUNT))
        suite_fail(run, "two runs from the same weights end with different ones");
}

/* ---- Resuming ---------------------------------------------------------------- */

static void carry_over(const rig *from, rig *to) {
    memcpy(to->weights, from->weights, COUNT * sizeof(float));
    for (int32_t i = 0; i < from->needs.slots; i++)
        if (from->needs.slot_saved >> i & 1)
            memcpy(to->slots[i], from->slots[i], COUNT * sizeof(float));
}

static void carry_blob(const rig *from, rig *to) {
    suite_run *run = from->run;
    size_t bytes = 0;
    if (!DLC_CAN(from->ops, save))
        return;
    suite_must(run, from->ops->save(from->solver, NULL, &bytes),
               "save (how many bytes)");
    unsigned char *blob = dlc_alloc(bytes + 1, 1);
    if (!blob)
        suite_skip(run, "memory ran out");
    blob[bytes] = 0xa5;
    suite_must(run, from->ops->save(from->solver, blob, &bytes), "save");
    if (blob[bytes] != 0xa5)
        suite_fail(run, "save writes more bytes than it said");
    suite_must(run, to->ops->load(to->solver, blob, bytes), "load of its own state");
}

static void resumes(suite_run *run) {
    rig whole, first, second;
    rig_open(run, &whole);
    rig_open(run, &first);
    for (int64_t i = 0; i < STEPS; i++)
        step(&whole, i);
    for (int64_t i = 0; i < STEPS / 2; i++)
        step(&first, i);
    rig_needs(run, &second);
    rig_memory(&second);
    carry_over(&first, &second);
    suite_must(run, rig_create(&second), "create");
    carry_blob(&first, &second);
    for (int64_t i = STEPS / 2; i < STEPS; i++)
        step(&second, i);
    if (!suite_same(whole.weights, second.weights, COUNT))
        suite_fail(run, "a run that was saved and resumed ends with other weights than "
                        "one that was not");
}

static void refuses_damage(suite_run *run) {
    rig r;
    unsigned char nonsense[37];
    rig_open(run, &r);
    if (!DLC_CAN(r.ops, load))
        suite_skip(run, "it has no state beyond its slots");
    memset(nonsense, 0xee, sizeof nonsense);
    if (r.ops->load(r.solver, nonsense, sizeof nonsense) == DLC_OK)
        suite_fail(run, "load takes 37 bytes of nonsense for its state");
    if (!*dlc_detail())
        suite_fail(run, "load fails without a sentence");
}

/* ---- Parts ------------------------------------------------------------------- */

static void updates_its_shard(suite_run *run) {
    rig r;
    float before[COUNT];
    rig_needs(run, &r);
    if (!r.needs.shards)
        suite_skip(run, "it does not shard updates");
    rig_memory(&r);
    for (int b = 0; b < BUCKETS; b++) { /* as rank 1 of 2; the last bucket whole */
        size_t half = (borders[b + 1] - borders[b]) / 2;
        r.own_begin[b] = borders[b] + (b < BUCKETS - 1 ? half : 0);
        r.own_end[b] = borders[b + 1];
    }
    r.exchange.rank = 1;
    r.exchange.ranks = 2;
    r.exchange.own_begin = r.own_begin;
    r.exchange.own_end = r.own_end;
    r.exchange.spread = note_spread;
    r.exchange.settle = note_settle;
    suite_must(run, rig_create(&r), "create");
    memcpy(before, r.weights, sizeof before);
    step(&r, 1);
    if (r.settled != 1)
        suite_fail(run, "it called settle %d times in an iteration", r.settled);
    for (int b = 0; b < BUCKETS; b++) {
        if (r.spread[b] != 1)
            suite_fail(run, "it spread bucket %d %d times", b, r.spread[b]);
        if (!suite_same(before + borders[b], r.weights + borders[b],
                        r.own_begin[b] - borders[b]))
            suite_fail(run, "it updated weights that are another rank's shard");
    }
}

static void updates_late(suite_run *run) {
    rig now, late;
    rig_open(run, &now);
    if (!now.needs.late)
        suite_skip(run, "it has no late updates");
    rig_open(run, &late);
    for (int64_t i = 0; i < STEPS; i++) {
        step(&now, i);
        forget_notes(&late);
        backward(&late, i);
        for (int b = BUCKETS - 1; b >= 0; b--)
            suite_must(run, late.ops->update(late.solver, i, (b + (int)i) % BUCKETS),
                       "update");
    }
    if (!suite_same(now.weights, late.weights, COUNT))
        suite_fail(run, "updating bucket by bucket gives other weights than finish");
}

static void lets_go(suite_run *run) {
    rig r;
    rig_open(run, &r);
    r.ops->destroy(NULL);
    step(&r, 0);
    backward(&r, 1); /* given up in the middle */
    rig_close(&r);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_SOLVER, 0, SUITE_LOADED, 30, run }

const suite_check suite_solver_checks[] = {
    CHECK("solver.needs", "needs is in bounds and a function of the settings",
          tells_its_needs),
    CHECK("solver.older", "needs fills in no more than the host knows",
          tells_an_older_host),
    CHECK("solver.converges", "it comes nearer to the goal on a bowl", comes_nearer),
    CHECK("solver.learning_rate", "the rate is a function of the iteration", rate_is_a_function),
    CHECK("solver.own", "tail, padding and frozen parameters stay as they are",
          keeps_to_its_own),
    CHECK("solver.exchange", "every bucket is started once, then waited for",
          exchanges_every_bucket),
    CHECK("solver.order", "weights change after their gradients' sum is there",
          waits_before_it_updates),
    CHECK("solver.repeats", "the same run twice gives the same bits", repeats_itself),
    CHECK("solver.resume", "saved and resumed gives the same bits", resumes),
    CHECK("solver.damage", "a damaged state is refused", refuses_damage),
    CHECK("solver.shards", "of a shard it updates its own part alone",
          updates_its_shard),
    CHECK("solver.late", "bucket by bucket gives the same bits", updates_late),
    CHECK("solver.close", "destroy takes NULL, and a solver in the middle", lets_go),
    {.name = NULL},
};

/* The checks of consistency models, with one rank; consistency_ranks.c has two. */
#include <math.h>
#include <string.h>

#include "base/status.h"
#include "training_fixture.h"

static int has_update(const dlc_consistency_ops *ops) {
    return DLC_CAN(ops, update);
}

static void reports_its_needs(suite_run *run) {
    const dlc_consistency_ops *ops = run->feature->ops;
    dlc_consistency_needs a = {.size = sizeof a}, b = {.size = sizeof b};
    suite_must(run, ops->needs(run->settings, &a), "needs");
    suite_must(run, ops->needs(run->settings, &b), "needs");
    if (memcmp(&a, &b, sizeof a) != 0)
        suite_fail(run, "needs gives different results for the same settings");
    if (a.servers < 0)
        suite_fail(run, "needs reports %d servers", a.servers);
    if (a.deferred_update && !has_update(ops))
        suite_fail(run, "needs.deferred_update is set, but there is no update");
}

static void converges(suite_run *run) {
    training_fixture f;
    training_fixture_begin(run, &f);
    double before = training_fixture_distance(&f);
    training_fixture_run(&f, 0, (int64_t)10 * TRAINING_STEPS);
    double after = training_fixture_distance(&f);
    if (!isfinite(after) || after > before / 10)
        suite_fail(run,
                   "minimizing a quadratic function, the distance to the minimum went "
                   "from %g to %g in %d steps",
                   before, after, 10 * TRAINING_STEPS);
}

static void leaves_the_rest(suite_run *run) {
    training_fixture f;
    float frozen[16];
    const size_t last = training_offsets[TRAINING_SEGMENTS - 1];
    training_fixture_begin(run, &f);
    memcpy(frozen, f.weights + last, sizeof frozen);
    training_fixture_run(&f, 0, TRAINING_STEPS);
    for (size_t i = 0; i < TRAINING_COUNT; i++)
        if (!training_fixture_is_parameter(i) && f.weights[i] != 0)
            suite_fail(run, "it updates the control words, or the padding between "
                            "parameters");
    if (!suite_same(frozen, f.weights + last, 16))
        suite_fail(run, "it updates a parameter with lr_mult 0");
}

/* The first control word is what was given in this iteration, unless the model starts
 * no bucket with control words or lets ranks be in different iterations: then it may be
 * older, but does not go back. */
static void check_loss(const training_fixture *f, int64_t iteration, float word,
                       int64_t *last) {
    int is_exact = f->started[TRAINING_BUCKETS - 1] && !f->needs.allows_skew;
    int64_t given = (int64_t)((double)word * 4) - 1;
    int64_t least = is_exact ? iteration : *last;
    if (word * 4 != (float)(given + 1) || given < least || given > iteration)
        suite_fail(f->run,
                   "after iteration %lld the sum of one rank's losses is %g, which it "
                   "did not give last",
                   (long long)iteration, (double)word);
    *last = given;
}

static void exchanges_control_words(suite_run *run) {
    training_fixture f;
    int seen = 0;
    int64_t last = 0;
    training_fixture_begin(run, &f);
    for (int64_t i = 0; i < TRAINING_STEPS; i++) {
        f.loss = (float)(i + 1) / 4;
        training_fixture_backward(&f, i);
        training_fixture_finish(&f, i);
        const float *words = f.gradients + TRAINING_COUNT - TRAINING_CONTROL_WORDS;
        check_loss(&f, i, words[0], &last);
        if (words[TRAINING_CONTROL_WORDS - 1] != 0.5f)
            suite_fail(run,
                       "the last control word, which is no vote, is not the sum of "
                       "what the ranks gave");
        seen += words[1] > 0;
    }
    if (last < TRAINING_STEPS / 2)
        suite_fail(run, "the loss stays that of iteration %lld", (long long)last);
    if (seen < TRAINING_STEPS / 2)
        suite_fail(run, "of %d requests in the control words %d arrived",
                   TRAINING_STEPS, seen);
}

/* A model that moves gradients by itself uses no exchange; another one may start some
 * of the buckets only, in some iterations. */
static void waits_for_what_it_starts(suite_run *run) {
    training_fixture f;
    int used = 0;
    training_fixture_begin(run, &f);
    for (int64_t i = 0; i < TRAINING_STEPS; i++) {
        training_fixture_step(&f, i);
        for (int b = 0; b < TRAINING_BUCKETS; b++)
            used |= f.started[b];
        if (f.early)
            suite_fail(run, "it waited for a bucket that it had not started");
        if (f.again)
            suite_fail(run, "it started a bucket again before it had waited for it");
    }
    if (!used)
        suite_skip(run, "it does not use the exchange");
    suite_must(run, f.ops->synchronize(f.model, TRAINING_STEPS), "synchronize");
    for (int b = 0; b < TRAINING_BUCKETS; b++)
        if (f.pending[b])
            suite_fail(run, "it started bucket %d and did not wait for it", b);
}

/* With one rank nothing is to be agreed on. */
static void equals_sgd_alone(suite_run *run) {
    static const int64_t looks[] = {1, 7, 8, 23, TRAINING_STEPS};
    training_fixture f, plain;
    int64_t done = 0;
    training_fixture_begin(run, &f);
    training_fixture_open(run, &plain);
    training_fixture_use_synchronous(&plain);
    suite_must(run, training_fixture_create(&plain, 0), "create");
    for (size_t k = 0; k < sizeof looks / sizeof *looks; done = looks[k++]) {
        training_fixture_run(&f, done, looks[k]);
        training_fixture_run(&plain, done, looks[k]);
        suite_must(run, f.ops->synchronize(f.model, looks[k]), "synchronize");
        for (size_t i = 0; i < TRAINING_COUNT; i++)
            if (!(fabsf(f.weights[i] - plain.weights[i]) <=
                  1e-5f * (1 + fabsf(plain.weights[i]))))
                suite_fail(run,
                           "one rank alone has %g as weight %zu of %d after %lld "
                           "iterations; synchronous training has %g",
                           (double)f.weights[i], i, TRAINING_COUNT, (long long)looks[k],
                           (double)plain.weights[i]);
    }
}

/* Weights must not change before their gradients are reduced. */
static void waits_before_it_updates(suite_run *run) {
    training_fixture f;
    float before[TRAINING_COUNT];
    training_fixture_begin(run, &f);
    for (int64_t i = 0; i < 3; i++) {
        memcpy(before, f.weights, sizeof before);
        training_fixture_backward(&f, i);
        for (int b = 0; b < TRAINING_BUCKETS; b++) {
            size_t begin = training_borders[b], end = training_borders[b + 1];
            if (f.started[b] && !f.waited[b] &&
                !suite_same(before + begin, f.weights + begin, end - begin))
                suite_fail(run,
                           "it changed weights of bucket %d before it had waited for "
                           "the bucket",
                           b);
        }
        training_fixture_finish(&f, i);
    }
}

static void refuses_damage(suite_run *run) {
    training_fixture f;
    unsigned char nonsense[37];
    training_fixture_begin(run, &f);
    if (!DLC_CAN(f.ops, load))
        suite_skip(run, "it has no state except the slots");
    memset(nonsense, 0xee, sizeof nonsense);
    if (f.ops->load(f.model, nonsense, sizeof nonsense) == DLC_OK)
        suite_fail(run, "load accepts 37 bytes of garbage");
    if (!*dlc_detail())
        suite_fail(run, "load failed without a detail sentence");
}

/* ---- Updates and the end ---------------------------------------------------- */

static void defers_updates(suite_run *run) {
    training_fixture now, deferred;
    training_fixture_begin(run, &now);
    if (!now.needs.deferred_update)
        suite_skip(run, "it does not support deferred updates");
    training_fixture_begin(run, &deferred);
    for (int64_t i = 0; i < TRAINING_STEPS; i++) {
        training_fixture_step(&now, i);
        training_fixture_backward(&deferred, i);
        for (int b = TRAINING_BUCKETS - 1; b >= 0; b--)
            suite_must(run,
                       deferred.ops->update(deferred.model, i,
                                            (b + (int)i) % TRAINING_BUCKETS),
                       "update");
    }
    if (!suite_same(now.weights, deferred.weights, TRAINING_COUNT))
        suite_fail(run, "update of each bucket gives other weights than finish");
}

static void closes(suite_run *run) {
    training_fixture f;
    training_fixture_begin(run, &f);
    f.ops->destroy(NULL);
    training_fixture_step(&f, 0);
    training_fixture_backward(&f, 1); /* destroyed in the middle of an iteration */
    training_fixture_destroy(&f);
}

#define CHECK(name, promise, run) \
    { name, promise, DLC_KIND_CONSISTENCY, 0, SUITE_LOADED, 30, run }

const suite_check suite_consistency_checks[] = {
    CHECK("consistency.needs", "needs is valid and depends on the settings alone",
          reports_its_needs),
    CHECK("consistency.converges", "it minimizes a quadratic function", converges),
    CHECK("consistency.untouched",
          "control words, padding and frozen parameters do not change",
          leaves_the_rest),
    CHECK("consistency.control_words", "the control words arrive",
          exchanges_control_words),
    CHECK("consistency.exchange", "what is started is waited for, and nothing else",
          waits_for_what_it_starts),
    CHECK("consistency.alone", "one rank trains as synchronous training does",
          equals_sgd_alone),
    CHECK("consistency.order", "weights change only after their gradients are reduced",
          waits_before_it_updates),
    CHECK("consistency.ranks",
          "two ranks have the weights of one, and their control words arrive",
          training_with_two_ranks),
    CHECK("consistency.leaks",
          "iterations use no more memory, files and threads each time",
          training_keeps_nothing),
    CHECK("consistency.repeats", "training is bitwise reproducible", training_repeats),
    CHECK("consistency.resume", "a resumed run is bitwise identical", training_resumes),
    CHECK("consistency.damage", "load rejects a damaged state", refuses_damage),
    CHECK("consistency.deferred_update", "update is bitwise identical to finish",
          defers_updates),
    CHECK("consistency.close",
          "destroy works with NULL and in the middle of an iteration", closes),
    {.name = NULL},
};

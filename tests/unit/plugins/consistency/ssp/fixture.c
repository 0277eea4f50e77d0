/* Runs jobs of consistency model ssp. */
#include "fixture.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/status.h"
#include "config/config.h"
#include "support/plugins.h"

static const dlc_device_ops *device_ops;
static dlc_device *device;

static void open_device(void) {
    dlc_device_args args = {.size = sizeof args, .threads = 1};
    if (device)
        return;
    device_ops = plugin_find(DLC_KIND_DEVICE, "cpu")->ops;
    ck_assert_int_eq(device_ops->open(&args, &device), DLC_OK);
}

static void close_device(void) {
    if (device)
        device_ops->close(device);
    device = NULL;
}

/* ---- Arenas ------------------------------------------------------------------ */

static size_t pick(uint64_t *random, size_t below) {
    return (size_t)(fake_random(random) * (double)below);
}

static int is_border(const fixture_cut *cut, size_t at, int32_t count) {
    for (int32_t b = 0; b < count; b++)
        if (cut->bucket_begin[b] == at)
            return 1;
    return at == 0;
}

static void cut_buckets(uint64_t *random, int32_t buckets, fixture_cut *cut) {
    cut->buckets = buckets;
    for (int32_t b = 1; b < buckets; b++) {
        size_t at;
        do
            /* the control words are not split */
            at = pick(random, cut->count - FIXTURE_CONTROL_WORDS + 1);
        while (is_border(cut, at, b));
        int32_t i = b;
        for (; i > 1 && cut->bucket_begin[i - 1] > at; i--)
            cut->bucket_begin[i] = cut->bucket_begin[i - 1];
        cut->bucket_begin[i] = at;
    }
    cut->bucket_begin[buckets] = cut->count;
}

void fixture_cut_make(uint64_t seed, size_t count, int32_t buckets, fixture_cut *cut) {
    static const float rates[] = {1, 1, 2, 0}, decays[] = {1, 0, 1, 1};
    uint64_t random = seed * 2 + 1;
    memset(cut, 0, sizeof *cut);
    memset(cut->frozen, 1, sizeof cut->frozen);
    cut->segments = 1 + (int32_t)pick(&random, FIXTURE_SEGMENTS);
    for (int32_t i = 0; i < cut->segments; i++) {
        size_t kind = i ? pick(&random, 4) : 0;
        size_t size = count / (size_t)cut->segments + 1 + pick(&random, 9);
        cut->count += pick(&random, 2) * pick(&random, 17);
        cut->segment[i] = (rules_segment){.offset = cut->count,
                                          .count = size,
                                          .lr_mult = rates[kind],
                                          .decay_mult = decays[kind]};
        memset(cut->used + cut->count, 1, size);
        memset(cut->frozen + cut->count, rates[kind] == 0, size);
        cut->count += size;
    }
    cut->count += FIXTURE_CONTROL_WORDS;
    ck_assert_uint_le(cut->count, FIXTURE_COUNT_MAX);
    cut_buckets(&random, buckets, cut);
}

void fixture_begin(const test_fixture *fixture, float *weights,
                   float (*slot)[FIXTURE_COUNT_MAX]) {
    const fixture_cut *cut = &fixture->cut;
    for (size_t i = 0; i < cut->count - FIXTURE_CONTROL_WORDS; i++) {
        weights[i] = cut->used[i] ? (float)(i % 13) * 0.125f - 0.75f : 0;
        for (int k = 0; k < fixture->choice.rule->slots; k++)
            slot[k][i] = fixture->choice.initial[k];
    }
}

/* ---- A job ------------------------------------------------------------------- */

static void set_up(test_fixture *fixture, int32_t ranks, int32_t on_first_node,
                   const char *const *sets) {
    const dlc_feature *feature = plugin_find(DLC_KIND_CONSISTENCY, "ssp");
    fixture->ranks = ranks;
    fixture->ops = feature->ops;
    fixture->settings = plugin_settings(feature, sets);
    fixture->needs = (dlc_consistency_needs){.size = sizeof fixture->needs};
    ck_assert_msg(fixture->ops->needs(fixture->settings, &fixture->needs) == DLC_OK,
                  "%s", dlc_detail());
    fixture->servers = fixture->needs.servers;
    fake_open(&fixture->fake, ranks, on_first_node, 0);
    for (int32_t r = 0; r < ranks; r++) {
        fixture_rank *rank = &fixture->rank[r];
        rank->fixture = fixture;
        rank->me = r;
        rank->random = (uint64_t)r * 77 + 5;
        rank->exchange = (dlc_exchange){.size = sizeof rank->exchange,
                                        .rank = r,
                                        .ranks = ranks,
                                        .buckets = fixture->cut.buckets,
                                        .bucket_begin = fixture->cut.bucket_begin};
    }
}

void fixture_open(test_fixture *fixture, int32_t ranks, int32_t on_first_node,
                  const fixture_cut *cut, const rules_choice *choice,
                  const char *const *sets) {
    memset(fixture, 0, sizeof *fixture);
    open_device();
    fixture->cut = *cut;
    fixture->choice = *choice;
    fixture->rules = (rules_context){.choice = &fixture->choice,
                                     .segment = fixture->cut.segment,
                                     .segments = cut->segments};
    fixture->updater = rules_updater(&fixture->rules);
    fixture->gradient = fixture_pull;
    set_up(fixture, ranks, on_first_node, sets);
    for (int32_t r = 0; r < ranks; r++)
        fixture_begin(fixture, fixture->rank[r].weights, fixture->rank[r].slot);
}

void fixture_reopen(test_fixture *fixture, int32_t ranks, int32_t on_first_node,
                    const char *const *sets) {
    double delay = fixture->fake.delay;
    fake_close(&fixture->fake);
    dlc_settings_free(fixture->settings);
    set_up(fixture, ranks, on_first_node, sets);
    fixture->fake.delay = delay;
    for (int32_t r = 1; r < ranks; r++) {
        memcpy(fixture->rank[r].weights, fixture->rank[0].weights,
               sizeof fixture->rank[0].weights);
        memcpy(fixture->rank[r].slot, fixture->rank[0].slot,
               sizeof fixture->rank[0].slot);
    }
}

void fixture_close(test_fixture *fixture) {
    fake_close(&fixture->fake);
    dlc_settings_free(fixture->settings);
    close_device();
    plugins_close();
}

dlc_status fixture_create(fixture_rank *rank) {
    const test_fixture *fixture = rank->fixture;
    dlc_consistency_args args = {
        .size = sizeof args,
        .settings = fixture->settings,
        .device_ops = device_ops,
        .device = device,
        .count = fixture->cut.count,
        .control_words = FIXTURE_CONTROL_WORDS,
        .weights = rank->weights,
        .gradients = rank->gradients,
        .updater = &fixture->updater,
        .exchange = &rank->exchange,
        .p2p = fixture->ranks > 1 ? &fixture->fake.rank[rank->me].p2p : NULL,
        .job_rank = rank->me,
        .iteration = fixture->first,
        .batch_split = fixture->batch_split};
    for (int i = 0; i < fixture->updater.slots; i++)
        args.slots[i] = rank->slot[i];
    return fixture->ops->create(&args, &rank->model);
}

typedef struct job_thread {
    pthread_t thread;
    fixture_rank *rank;
    void (*body)(fixture_rank *rank);
    pthread_barrier_t *end;
} job_thread;

static void *run_rank(void *context) {
    job_thread *mine = context;
    fixture_rank *rank = mine->rank;
    ck_assert_msg(fixture_create(rank) == DLC_OK, "%s", dlc_detail());
    mine->body(rank);
    pthread_barrier_wait(mine->end); /* all ranks of the job */
    rank->fixture->ops->destroy(rank->model);
    rank->model = NULL;
    return NULL;
}

void fixture_run(test_fixture *fixture, void (*body)(fixture_rank *rank)) {
    job_thread job[FAKE_RANKS_MAX];
    pthread_barrier_t end;
    pthread_barrier_init(&end, NULL, (unsigned)fixture->ranks);
    for (int32_t r = 0; r < fixture->ranks; r++) {
        job[r] = (job_thread){.rank = &fixture->rank[r], .body = body, .end = &end};
        ck_assert_int_eq(pthread_create(&job[r].thread, NULL, run_rank, &job[r]), 0);
    }
    for (int32_t r = 0; r < fixture->ranks; r++)
        ck_assert_int_eq(pthread_join(job[r].thread, NULL), 0);
    pthread_barrier_destroy(&end);
}

/* ---- An iteration ------------------------------------------------------------ */

float fixture_loss(int32_t rank, int64_t iteration) {
    return 0.1f * (float)((iteration * 7 + (int64_t)rank * 3) % 11) + 0.01f;
}

float fixture_pull(int32_t rank, int64_t iteration, size_t element, float weight) {
    uint64_t random = (uint64_t)iteration * 1000003u + (uint64_t)rank * 101u + element;
    fake_random(&random);
    return 0.3f * weight + 0.2f * ((float)fake_random(&random) - 0.5f);
}

int32_t fixture_workers(const test_fixture *fixture) {
    return fixture->ranks - fixture->servers;
}

double fixture_share(const test_fixture *fixture, int32_t worker) {
    int64_t all = 0;
    if (!fixture->batch_split)
        return 1.0 / fixture_workers(fixture);
    for (int32_t w = 0; w < fixture_workers(fixture); w++)
        all += fixture->batch_split[w];
    return (double)fixture->batch_split[worker] / (double)all;
}

void fixture_gradients(const test_fixture *fixture, int32_t rank, int64_t iteration,
                       const float *weights, float *gradients) {
    double share = fixture_share(fixture, rank);
    for (size_t i = 0; i < fixture->cut.count - FIXTURE_CONTROL_WORDS; i++)
        gradients[i] = fixture->cut.used[i] && share > 0
                           ? fixture->gradient(rank, iteration, i, weights[i])
                           : 0;
}

void fixture_sum(size_t n, const float *const *from, int32_t count, float *to) {
    ck_assert_int_eq(device_ops->sum(device, NULL, n, from, count, to), DLC_OK);
}

static void take_a_break(fixture_rank *rank) {
    double pause = rank->fixture->pause * fake_random(&rank->random);
    if (pause > 0)
        (void)usleep((useconds_t)(pause * 1e6));
}

/* The core updates the last bucket first, which has the control words. */
static dlc_status update_all(fixture_rank *rank, int64_t iteration) {
    const test_fixture *fixture = rank->fixture;
    dlc_status status = DLC_OK;
    if (!rank->deferred)
        return fixture->ops->finish(rank->model, iteration);
    for (int32_t b = fixture->cut.buckets - 1; status == DLC_OK && b >= 0; b--)
        status = fixture->ops->update(rank->model, iteration, b);
    return status;
}

dlc_status fixture_iterate(fixture_rank *rank, int64_t iteration, float *control) {
    const test_fixture *fixture = rank->fixture;
    float *words = rank->gradients + fixture->cut.count - FIXTURE_CONTROL_WORDS;
    dlc_status status = DLC_OK;
    int is_server = rank->me >= fixture_workers(fixture);
    take_a_break(rank);
    if (!is_server)
        fixture_gradients(fixture, rank->me, iteration, rank->weights, rank->gradients);
    memcpy(words, control, FIXTURE_CONTROL_WORDS * sizeof *control);
    for (int32_t b = 0; status == DLC_OK && !is_server && b < fixture->cut.buckets; b++)
        status = fixture->ops->ready(rank->model, iteration, b);
    if (status == DLC_OK)
        status = update_all(rank, iteration);
    memcpy(control, words, FIXTURE_CONTROL_WORDS * sizeof *control);
    return status;
}

void fixture_iterations(fixture_rank *rank, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        float control[FIXTURE_CONTROL_WORDS] = {0};
        if (rank->me < fixture_workers(rank->fixture))
            control[0] = fixture_loss(rank->me, i);
        /* not ck_assert, which is slow in loops */
        if (fixture_iterate(rank, i, control) != DLC_OK)
            ck_abort_msg("%s", dlc_detail());
    }
}

void fixture_synchronize(fixture_rank *rank, int64_t iteration) {
    ck_assert_msg(rank->fixture->ops->synchronize(rank->model, iteration) == DLC_OK,
                  "%s", dlc_detail());
}

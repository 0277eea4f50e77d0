/* Runs jobs of solver ssp, and solver sgd as their reference. */
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
    static const double rates[] = {1, 1, 2, 0}, decays[] = {1, 0, 1, 1};
    uint64_t random = seed * 2 + 1;
    memset(cut, 0, sizeof *cut);
    cut->segments = 1 + (int32_t)pick(&random, FIXTURE_SEGMENTS);
    for (int32_t i = 0; i < cut->segments; i++) {
        size_t kind = i ? pick(&random, 4) : 0;
        size_t size = count / (size_t)cut->segments + 1 + pick(&random, 9);
        cut->count += pick(&random, 2) * pick(&random, 17);
        cut->segment[i] = (dlc_segment){.size = sizeof(dlc_segment),
                                        .name = "any",
                                        .offset = cut->count,
                                        .count = size,
                                        .lr_mult = rates[kind],
                                        .decay_mult = decays[kind]};
        memset(cut->used + cut->count, 1, size);
        cut->count += size;
    }
    cut->count += FIXTURE_CONTROL_WORDS;
    ck_assert_uint_le(cut->count, FIXTURE_COUNT_MAX);
    cut_buckets(&random, buckets, cut);
}

static void fill_weights(const fixture_cut *cut, float *weights) {
    for (size_t i = 0; i < cut->count - FIXTURE_CONTROL_WORDS; i++)
        weights[i] = cut->used[i] ? (float)(i % 13) * 0.125f - 0.75f : 0;
}

/* ---- A job ------------------------------------------------------------------- */

static dlc_solver_needs ask(const dlc_solver_ops *ops, const dlc_settings *settings) {
    dlc_solver_needs needs = {.size = sizeof needs, .accumulation_steps = 1};
    ck_assert_msg(ops->needs(settings, &needs) == DLC_OK, "%s", dlc_detail());
    return needs;
}

static void set_up(test_fixture *fixture, int32_t ranks, int32_t on_first_node,
                   const char *const *sets) {
    const dlc_feature *feature = plugin_find(DLC_KIND_SOLVER, "ssp");
    fixture->ranks = ranks;
    fixture->ops = feature->ops;
    fixture->settings = plugin_settings(feature, sets);
    fixture->needs = ask(fixture->ops, fixture->settings);
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
                  const fixture_cut *cut, const char *const *sets) {
    memset(fixture, 0, sizeof *fixture);
    open_device();
    fixture->cut = *cut;
    fixture->gradient = fixture_pull;
    set_up(fixture, ranks, on_first_node, sets);
    for (int32_t r = 0; r < ranks; r++)
        fill_weights(cut, fixture->rank[r].weights);
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

static dlc_solver_args args_of(test_fixture *fixture, fixture_rank *rank,
                               const dlc_settings *settings,
                               const dlc_solver_needs *needs) {
    return (dlc_solver_args){
        .size = sizeof(dlc_solver_args),
        .settings = settings,
        .device_ops = device_ops,
        .device = device,
        .count = fixture->cut.count,
        .control_words = FIXTURE_CONTROL_WORDS,
        .weights = rank->weights,
        .gradients = rank->gradients,
        .slots = {rank->slot[0], needs->slots > 1 ? rank->slot[1] : NULL},
        .segments = fixture->cut.segments,
        .segment = fixture->cut.segment,
        .exchange = &rank->exchange,
        .max_iterations = -1,
        .epoch_iterations = 100,
        .iteration = fixture->first,
        .batch_split = fixture->batch_split};
}

dlc_status fixture_create(fixture_rank *rank) {
    test_fixture *fixture = rank->fixture;
    dlc_solver_args args = args_of(fixture, rank, fixture->settings, &fixture->needs);
    args.p2p = fixture->ranks > 1 ? &fixture->fake.rank[rank->me].p2p : NULL;
    return fixture->ops->create(&args, &rank->solver);
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
    rank->fixture->ops->destroy(rank->solver);
    rank->solver = NULL;
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

float fixture_pull(int32_t rank, int64_t iteration, int32_t micro, size_t element,
                   float weight) {
    uint64_t random = (uint64_t)iteration * 1000003u + (uint64_t)rank * 101u +
                      (uint64_t)micro * 13u + element;
    fake_random(&random);
    return 0.3f * weight + 0.2f * ((float)fake_random(&random) - 0.5f);
}

static void fill_gradients(fixture_rank *rank, int64_t iteration, int32_t micro,
                           const float *control) {
    const test_fixture *fixture = rank->fixture;
    size_t trained = fixture->cut.count - FIXTURE_CONTROL_WORDS;
    for (size_t i = 0; i < trained; i++)
        rank->gradients[i] = fixture->cut.used[i]
                                 ? fixture->gradient(rank->me, iteration, micro, i,
                                                     rank->weights[i])
                                 : 0;
    memcpy(rank->gradients + trained, control, FIXTURE_CONTROL_WORDS * sizeof *control);
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
        return fixture->ops->finish(rank->solver, iteration);
    for (int32_t b = fixture->cut.buckets - 1; status == DLC_OK && b >= 0; b--)
        status = fixture->ops->update(rank->solver, iteration, b);
    return status;
}

dlc_status fixture_iterate(fixture_rank *rank, int64_t iteration, float *control) {
    const test_fixture *fixture = rank->fixture;
    dlc_status status = DLC_OK;
    int is_server = rank->me >= fixture->ranks - fixture->servers;
    for (int32_t m = 0; status == DLC_OK && m < fixture->needs.accumulation_steps;
         m++) {
        int last = m == fixture->needs.accumulation_steps - 1;
        float nothing[FIXTURE_CONTROL_WORDS] = {0};
        take_a_break(rank);
        fill_gradients(rank, iteration, m, last ? control : nothing);
        for (int32_t b = 0; status == DLC_OK && !is_server && b < fixture->cut.buckets;
             b++)
            status = fixture->ops->ready(rank->solver, iteration, m, b);
    }
    if (status == DLC_OK)
        status = update_all(rank, iteration);
    memcpy(control, rank->gradients + fixture->cut.count - FIXTURE_CONTROL_WORDS,
           FIXTURE_CONTROL_WORDS * sizeof *control);
    return status;
}

void fixture_iterations(fixture_rank *rank, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        float control[FIXTURE_CONTROL_WORDS] = {0};
        if (rank->me < rank->fixture->ranks - rank->fixture->servers)
            control[0] = fixture_loss(rank->me, i);
        /* not ck_assert, which is slow in loops */
        if (fixture_iterate(rank, i, control) != DLC_OK)
            ck_abort_msg("%s", dlc_detail());
    }
}

void fixture_synchronize(fixture_rank *rank, int64_t iteration) {
    ck_assert_msg(rank->fixture->ops->synchronize(rank->solver, iteration) == DLC_OK,
                  "%s", dlc_detail());
}

/* ---- The reference ----------------------------------------------------------- */

static int32_t workers_of(const test_fixture *fixture) {
    return fixture->ranks - fixture->servers;
}

/* Reduces pairwise over the workers of each node, then over the two nodes. */
static void sum_ranks(test_fixture *fixture, size_t n, float (*from)[FIXTURE_COUNT_MAX],
                      float *to) {
    const float *source[2][FAKE_RANKS_MAX] = {{NULL}}, *node[2];
    float sum[2][FIXTURE_COUNT_MAX];
    int32_t count[2] = {0, 0}, nodes = 0;
    for (int32_t w = 0; w < workers_of(fixture); w++) {
        int32_t at = fixture->fake.node[w];
        source[at][count[at]++] = from[w];
    }
    for (int32_t i = 0; i < 2; i++)
        if (count[i]) {
            device_ops->sum(device, NULL, n, source[i], count[i], sum[nodes]);
            node[nodes] = sum[nodes];
            nodes++;
        }
    device_ops->sum(device, NULL, n, node, nodes, to);
}

static void gather_rank(fixture_reference *reference, int32_t rank, float *to) {
    test_fixture *fixture = reference->fixture;
    for (size_t i = 0; i < fixture->cut.count - FIXTURE_CONTROL_WORDS; i++) {
        float sum = 0;
        for (int32_t m = 0;
             fixture->cut.used[i] && m < reference->needs.accumulation_steps; m++) {
            float one = fixture->gradient(rank, reference->iteration, m, i,
                                          reference->rank.weights[i]);
            sum = m ? one + sum : one;
        }
        to[i] = sum;
    }
    memset(to + fixture->cut.count - FIXTURE_CONTROL_WORDS, 0,
           FIXTURE_CONTROL_WORDS * sizeof *to);
    to[fixture->cut.count - FIXTURE_CONTROL_WORDS] = fixture_loss(rank,
                                                                  reference->iteration);
}

/* Everything is reduced when the first bucket starts. */
static dlc_status exchange_start(void *context, int32_t bucket) {
    fixture_reference *reference = context;
    test_fixture *fixture = reference->fixture;
    size_t begin = fixture->cut.bucket_begin[bucket],
           end = fixture->cut.bucket_begin[bucket + 1];
    static float total[FIXTURE_COUNT_MAX];
    if (bucket == 0) {
        for (int32_t w = 0; w < workers_of(fixture); w++)
            gather_rank(reference, w, reference->sums[w]);
        sum_ranks(fixture, fixture->cut.count, reference->sums, total);
    }
    memcpy(reference->rank.gradients + begin, total + begin,
           (end - begin) * sizeof *total);
    return DLC_OK;
}

static dlc_status exchange_wait(void *context, int32_t bucket) {
    (void)context;
    (void)bucket;
    return DLC_OK;
}

void fixture_reference_open(fixture_reference *reference, test_fixture *fixture,
                            const char *const *sets) {
    const dlc_feature *feature = plugin_find(DLC_KIND_SOLVER, "sgd");
    memset(reference, 0, sizeof *reference);
    reference->fixture = fixture;
    reference->ops = feature->ops;
    reference->settings = plugin_settings(feature, sets);
    reference->needs = ask(reference->ops, reference->settings);
    fill_weights(&fixture->cut, reference->rank.weights);
    reference->rank.exchange = (dlc_exchange){.size = sizeof(dlc_exchange),
                                              .context = reference,
                                              .ranks = fixture->ranks,
                                              .buckets = fixture->cut.buckets,
                                              .bucket_begin = fixture->cut.bucket_begin,
                                              .start = exchange_start,
                                              .wait = exchange_wait};
    dlc_solver_args args = args_of(fixture, &reference->rank, reference->settings,
                                   &reference->needs);
    ck_assert_msg(reference->ops->create(&args, &reference->rank.solver) == DLC_OK,
                  "%s", dlc_detail());
}

void fixture_reference_iterate(fixture_reference *reference, int64_t iteration) {
    dlc_solver *solver = reference->rank.solver;
    const fixture_cut *cut = &reference->fixture->cut;
    reference->iteration = iteration;
    for (int32_t m = 0; m < reference->needs.accumulation_steps; m++)
        for (int32_t b = 0; b < cut->buckets; b++)
            if (reference->ops->ready(solver, iteration, m, b) != DLC_OK)
                ck_abort_msg("%s", dlc_detail());
    ck_assert_int_eq(reference->ops->finish(solver, iteration), DLC_OK);
    reference->loss = reference->rank.gradients[cut->count - FIXTURE_CONTROL_WORDS];
}

void fixture_reference_close(fixture_reference *reference) {
    reference->ops->destroy(reference->rank.solver);
    dlc_settings_free(reference->settings);
}

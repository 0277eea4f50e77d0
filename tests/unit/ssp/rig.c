/* See rig.h. */
#include "rig.h"

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
    return (size_t)(sim_random(random) * (double)below);
}

static int is_border(const rig_cut *cut, size_t at, int32_t count) {
    for (int32_t b = 0; b < count; b++)
        if (cut->bucket_begin[b] == at)
            return 1;
    return at == 0;
}

static void cut_buckets(uint64_t *random, int32_t buckets, rig_cut *cut) {
    cut->buckets = buckets;
    for (int32_t b = 1; b < buckets; b++) {
        size_t at;
        do
            at = pick(random, cut->count - RIG_TAIL + 1); /* the tail is one piece */
        while (is_border(cut, at, b));
        int32_t i = b;
        for (; i > 1 && cut->bucket_begin[i - 1] > at; i--)
            cut->bucket_begin[i] = cut->bucket_begin[i - 1];
        cut->bucket_begin[i] = at;
    }
    cut->bucket_begin[buckets] = cut->count;
}

void rig_cut_make(uint64_t seed, size_t count, int32_t buckets, rig_cut *cut) {
    static const double rates[] = {1, 1, 2, 0}, decays[] = {1, 0, 1, 1};
    uint64_t random = seed * 2 + 1;
    memset(cut, 0, sizeof *cut);
    cut->segments = 1 + (int32_t)pick(&random, RIG_SEGMENTS);
    for (int32_t i = 0; i < cut->segments; i++) {
        size_t kind = i ? pick(&random, 4) : 0;
        size_t size = count / (size_t)cut->segments + 1 + pick(&random, 9);
        cut->count += pick(&random, 2) * pick(&random, 17);
        cut->segment[i] = (dlc_segment){.size = sizeof(dlc_segment),
                                        .name = "any",
                                        .offset = cut->count,
                                        .count = size,
                                        .rate = rates[kind],
                                        .decay = decays[kind]};
        memset(cut->used + cut->count, 1, size);
        cut->count += size;
    }
    cut->count += RIG_TAIL;
    ck_assert_uint_le(cut->count, RIG_COUNT_MAX);
    cut_buckets(&random, buckets, cut);
}

static void fill_weights(const rig_cut *cut, float *weights) {
    for (size_t i = 0; i < cut->count - RIG_TAIL; i++)
        weights[i] = cut->used[i] ? (float)(i % 13) * 0.125f - 0.75f : 0;
}

/* ---- A job ------------------------------------------------------------------- */

static dlc_solver_needs ask(const dlc_solver_ops *ops, const dlc_settings *settings) {
    dlc_solver_needs needs = {.size = sizeof needs, .micro_batches = 1};
    ck_assert_msg(ops->needs(settings, &needs) == DLC_OK, "%s", dlc_detail());
    return needs;
}

static void set_up(test_rig *rig, int32_t ranks, int32_t on_first_node,
                   const char *const *sets) {
    const dlc_feature *feature = plugin_find(DLC_KIND_SOLVER, "ssp");
    rig->ranks = ranks;
    rig->ops = feature->ops;
    rig->settings = plugin_settings(feature, sets);
    rig->needs = ask(rig->ops, rig->settings);
    rig->servers = rig->needs.servers;
    sim_open(&rig->sim, ranks, on_first_node, 0);
    for (int32_t r = 0; r < ranks; r++) {
        rig_rank *rank = &rig->rank[r];
        rank->rig = rig;
        rank->me = r;
        rank->random = (uint64_t)r * 77 + 5;
        rank->exchange = (dlc_exchange){.size = sizeof rank->exchange,
                                        .rank = r,
                                        .ranks = ranks,
                                        .buckets = rig->cut.buckets,
                                        .bucket_begin = rig->cut.bucket_begin};
    }
}

void rig_open(test_rig *rig, int32_t ranks, int32_t on_first_node, const rig_cut *cut,
              const char *const *sets) {
    memset(rig, 0, sizeof *rig);
    open_device();
    rig->cut = *cut;
    rig->gradient = rig_pull;
    set_up(rig, ranks, on_first_node, sets);
    for (int32_t r = 0; r < ranks; r++)
        fill_weights(cut, rig->rank[r].weights);
}

void rig_reopen(test_rig *rig, int32_t ranks, int32_t on_first_node,
                const char *const *sets) {
    double delay = rig->sim.delay;
    sim_close(&rig->sim);
    dlc_settings_free(rig->settings);
    set_up(rig, ranks, on_first_node, sets);
    rig->sim.delay = delay;
    for (int32_t r = 1; r < ranks; r++) {
        memcpy(rig->rank[r].weights, rig->rank[0].weights, sizeof rig->rank[0].weights);
        memcpy(rig->rank[r].slot, rig->rank[0].slot, sizeof rig->rank[0].slot);
    }
}

void rig_close(test_rig *rig) {
    sim_close(&rig->sim);
    dlc_settings_free(rig->settings);
    close_device();
    plugins_close();
}

static dlc_solver_args args_of(test_rig *rig, rig_rank *rank,
                               const dlc_settings *settings,
                               const dlc_solver_needs *needs) {
    return (dlc_solver_args){
        .size = sizeof(dlc_solver_args),
        .settings = settings,
        .device_ops = device_ops,
        .device = device,
        .count = rig->cut.count,
        .tail = RIG_TAIL,
        .weights = rank->weights,
        .gradients = rank->gradients,
        .slots = {rank->slot[0], needs->slots > 1 ? rank->slot[1] : NULL},
        .segments = rig->cut.segments,
        .segment = rig->cut.segment,
        .exchange = &rank->exchange,
        .max_iterations = -1,
        .epoch_iterations = 100,
        .iteration = rig->first,
        .shares = rig->shares};
}

dlc_status rig_create(rig_rank *rank) {
    test_rig *rig = rank->rig;
    dlc_solver_args args = args_of(rig, rank, rig->settings, &rig->needs);
    args.mail = rig->ranks > 1 ? &rig->sim.rank[rank->me].mail : NULL;
    return rig->ops->create(&args, &rank->solver);
}

typedef struct job_thread {
    pthread_t thread;
    rig_rank *rank;
    void (*body)(rig_rank *rank);
    pthread_barrier_t *end;
} job_thread;

static void *run_rank(void *context) {
    job_thread *mine = context;
    rig_rank *rank = mine->rank;
    ck_assert_msg(rig_create(rank) == DLC_OK, "%s", dlc_detail());
    mine->body(rank);
    pthread_barrier_wait(mine->end); /* the job's own */
    rank->rig->ops->destroy(rank->solver);
    rank->solver = NULL;
    return NULL;
}

void rig_run(test_rig *rig, void (*body)(rig_rank *rank)) {
    job_thread job[SIM_RANKS_MAX];
    pthread_barrier_t end;
    pthread_barrier_init(&end, NULL, (unsigned)rig->ranks);
    for (int32_t r = 0; r < rig->ranks; r++) {
        job[r] = (job_thread){.rank = &rig->rank[r], .body = body, .end = &end};
        ck_assert_int_eq(pthread_create(&job[r].thread, NULL, run_rank, &job[r]), 0);
    }
    for (int32_t r = 0; r < rig->ranks; r++)
        ck_assert_int_eq(pthread_join(job[r].thread, NULL), 0);
    pthread_barrier_destroy(&end);
}

/* ---- An iteration ------------------------------------------------------------ */

float rig_loss(int32_t rank, int64_t iteration) {
    return 0.1f * (float)((iteration * 7 + (int64_t)rank * 3) % 11) + 0.01f;
}

float rig_pull(int32_t rank, int64_t iteration, int32_t micro, size_t element,
               float weight) {
    uint64_t random = (uint64_t)iteration * 1000003u + (uint64_t)rank * 101u +
                      (uint64_t)micro * 13u + element;
    sim_random(&random);
    return 0.3f * weight + 0.2f * ((float)sim_random(&random) - 0.5f);
}

static void fill_gradients(rig_rank *rank, int64_t iteration, int32_t micro,
                           const float *tail) {
    const test_rig *rig = rank->rig;
    size_t trained = rig->cut.count - RIG_TAIL;
    for (size_t i = 0; i < trained; i++)
        rank->gradients[i] = rig->cut.used[i]
                                 ? rig->gradient(rank->me, iteration, micro, i,
                                                 rank->weights[i])
                                 : 0;
    memcpy(rank->gradients + trained, tail, RIG_TAIL * sizeof *tail);
}

static void take_a_break(rig_rank *rank) {
    double pause = rank->rig->pause * sim_random(&rank->random);
    if (pause > 0)
        (void)usleep((useconds_t)(pause * 1e6));
}

/* The core takes the last bucket first, which has the tail. */
static dlc_status update_all(rig_rank *rank, int64_t iteration) {
    const test_rig *rig = rank->rig;
    dlc_status status = DLC_OK;
    if (!rank->late)
        return rig->ops->finish(rank->solver, iteration);
    for (int32_t b = rig->cut.buckets - 1; status == DLC_OK && b >= 0; b--)
        status = rig->ops->update(rank->solver, iteration, b);
    return status;
}

dlc_status rig_iterate(rig_rank *rank, int64_t iteration, float *tail) {
    const test_rig *rig = rank->rig;
    dlc_status status = DLC_OK;
    int is_server = rank->me >= rig->ranks - rig->servers;
    for (int32_t m = 0; status == DLC_OK && m < rig->needs.micro_batches; m++) {
        int last = m == rig->needs.micro_batches - 1;
        float nothing[RIG_TAIL] = {0};
        take_a_break(rank);
        fill_gradients(rank, iteration, m, last ? tail : nothing);
        for (int32_t b = 0; status == DLC_OK && !is_server && b < rig->cut.buckets; b++)
            status = rig->ops->ready(rank->solver, iteration, m, b);
    }
    if (status == DLC_OK)
        status = update_all(rank, iteration);
    memcpy(tail, rank->gradients + rig->cut.count - RIG_TAIL, RIG_TAIL * sizeof *tail);
    return status;
}

void rig_iterations(rig_rank *rank, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        float tail[RIG_TAIL] = {0};
        if (rank->me < rank->rig->ranks - rank->rig->servers)
            tail[0] = rig_loss(rank->me, i);
        if (rig_iterate(rank, i, tail) != DLC_OK) /* Check notes what it asserts */
            ck_abort_msg("%s", dlc_detail());
    }
}

void rig_meet(rig_rank *rank, int64_t iteration) {
    ck_assert_msg(rank->rig->ops->meet(rank->solver, iteration) == DLC_OK, "%s",
                  dlc_detail());
}

/* ---- The reference ----------------------------------------------------------- */

static int32_t workers_of(const test_rig *rig) {
    return rig->ranks - rig->servers;
}

/* Pairwise over the workers of each node and then over the two nodes. */
static void sum_ranks(test_rig *rig, size_t n, float (*from)[RIG_COUNT_MAX],
                      float *to) {
    const float *source[2][SIM_RANKS_MAX] = {{NULL}}, *node[2];
    float sum[2][RIG_COUNT_MAX];
    int32_t count[2] = {0, 0}, nodes = 0;
    for (int32_t w = 0; w < workers_of(rig); w++) {
        int32_t at = rig->sim.node[w];
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

static void gather_rank(rig_reference *reference, int32_t rank, float *to) {
    test_rig *rig = reference->rig;
    for (size_t i = 0; i < rig->cut.count - RIG_TAIL; i++) {
        float sum = 0;
        for (int32_t m = 0; rig->cut.used[i] && m < reference->needs.micro_batches;
             m++) {
            float one = rig->gradient(rank, reference->iteration, m, i,
                                      reference->rank.weights[i]);
            sum = m ? one + sum : one;
        }
        to[i] = sum;
    }
    memset(to + rig->cut.count - RIG_TAIL, 0, RIG_TAIL * sizeof *to);
    to[rig->cut.count - RIG_TAIL] = rig_loss(rank, reference->iteration);
}

/* Whatever bucket is started: the sums were made before the first. */
static dlc_status exchange_start(void *context, int32_t bucket) {
    rig_reference *reference = context;
    test_rig *rig = reference->rig;
    size_t begin = rig->cut.bucket_begin[bucket],
           end = rig->cut.bucket_begin[bucket + 1];
    static float total[RIG_COUNT_MAX];
    if (bucket == 0) {
        for (int32_t w = 0; w < workers_of(rig); w++)
            gather_rank(reference, w, reference->sums[w]);
        sum_ranks(rig, rig->cut.count, reference->sums, total);
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

void rig_reference_open(rig_reference *reference, test_rig *rig,
                        const char *const *sets) {
    const dlc_feature *feature = plugin_find(DLC_KIND_SOLVER, "sgd");
    memset(reference, 0, sizeof *reference);
    reference->rig = rig;
    reference->ops = feature->ops;
    reference->settings = plugin_settings(feature, sets);
    reference->needs = ask(reference->ops, reference->settings);
    fill_weights(&rig->cut, reference->rank.weights);
    reference->rank.exchange = (dlc_exchange){.size = sizeof(dlc_exchange),
                                              .context = reference,
                                              .ranks = rig->ranks,
                                              .buckets = rig->cut.buckets,
                                              .bucket_begin = rig->cut.bucket_begin,
                                              .start = exchange_start,
                                              .wait = exchange_wait};
    dlc_solver_args args = args_of(rig, &reference->rank, reference->settings,
                                   &reference->needs);
    ck_assert_msg(reference->ops->create(&args, &reference->rank.solver) == DLC_OK,
                  "%s", dlc_detail());
}

void rig_reference_iterate(rig_reference *reference, int64_t iteration) {
    dlc_solver *solver = reference->rank.solver;
    const rig_cut *cut = &reference->rig->cut;
    reference->iteration = iteration;
    for (int32_t m = 0; m < reference->needs.micro_batches; m++)
        for (int32_t b = 0; b < cut->buckets; b++)
            if (reference->ops->ready(solver, iteration, m, b) != DLC_OK)
                ck_abort_msg("%s", dlc_detail());
    ck_assert_int_eq(reference->ops->finish(solver, iteration), DLC_OK);
    reference->loss = reference->rank.gradients[cut->count - RIG_TAIL];
}

void rig_reference_close(rig_reference *reference) {
    reference->ops->destroy(reference->rank.solver);
    dlc_settings_free(reference->settings);
}

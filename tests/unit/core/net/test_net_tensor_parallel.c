/* Tests nets with tensor-parallel layers (core/net/pass_split.c, op_reshard.c,
 * run_chunks.c): losses, gradients and initial weights of several ranks, each of them a
 * thread, match those of the whole net on one rank. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "fixture.h"
#include "support/fake_p2p.h"
#include "support/plugins.h"
#include "support/scratch.h"
#include "support/test.h"

enum { BATCH = 7, CHANNELS = 3, SIDE = 6, CLASSES = 4 };
enum { SAMPLE = CHANNELS * SIDE * SIDE };

/* Tolerance: sums in another order, of numbers around 1. */
static const double WITHIN = 3e-6;

/* Tensor-parallel convolutions, one of which has an activation fused into it and is
 * read by tensor-parallel layers and by others; a dropout between tensor-parallel
 * layers, and one elsewhere; two losses, one directly after a tensor-parallel layer. */
static const char *const branches =
    "[a]\ntype = convolution\nnum_output = 9\nkernel_size = 3\npad = 1\n"
    "bias_filler = constant(0.1)\nparallel = tensor\n"
    "[a_act]\ntype = sigmoid\n"
    "[b]\ntype = convolution\nnum_output = 9\nkernel_size = 1\n"
    "[c]\ntype = eltwise\ninput = a_act, b\n"
    "[d]\ntype = concat\ninput = c, a_act\n"
    "[p]\ntype = pooling\nmethod = average\nkernel_size = 2\nstride = 2\n"
    "[p_drop]\ntype = dropout\nratio = 0.3\n"
    "[flat]\ntype = flatten\n"
    "[e]\ntype = inner_product\nnum_output = 11\nparallel = tensor\n"
    "[e_act]\ntype = relu\n"
    "[e_drop]\ntype = dropout\n"
    "[f]\ntype = inner_product\nnum_output = 4\nparallel = tensor\n"
    "[side]\ntype = inner_product\nnum_output = 5\ninput = a_act\nparallel = tensor\n"
    "[side_act]\ntype = tanh\n"
    "[side_out]\ntype = inner_product\nnum_output = 4\n"
    "[loss]\ntype = softmax_loss\ninput = f\n"
    "[side_loss]\ntype = softmax_loss\ninput = side_out\nloss_weight = 0.3\n";

/* All layers are tensor-parallel, even the one that reads the batch. */
static const char *const all_parallel =
    "[a]\ntype = convolution\nnum_output = 6\nkernel_size = 3\nparallel = tensor\n"
    "[a_act]\ntype = relu\n"
    "[b]\ntype = convolution\nnum_output = 7\nkernel_size = 3\nparallel = tensor\n"
    "[e]\ntype = inner_product\nnum_output = 4\nparallel = tensor\n"
    "[loss]\ntype = softmax_loss\n";

/* A tensor-parallel layer before the chunked part; two layers that read the input of
 * the chunked part; a dropout on the samples of all ranks and one on a rank's own; a
 * layer after the tensor-parallel ones that is not; several losses and a metric. */
static const char *const chunked =
    "[a]\ntype = convolution\nnum_output = 6\nkernel_size = 3\nparallel = tensor\n"
    "[a_act]\ntype = relu\n"
    "[p]\ntype = pooling\nmethod = average\nkernel_size = 2\nstride = 2\n"
    "[e]\ntype = inner_product\nnum_output = 11\nparallel = tensor\n"
    "[e_act]\ntype = relu\n"
    "[e_drop]\ntype = dropout\n"
    "[f]\ntype = inner_product\nnum_output = 9\nparallel = tensor\n"
    "[side]\ntype = inner_product\nnum_output = 4\ninput = p\nparallel = tensor\n"
    "[f_act]\ntype = tanh\ninput = f\n"
    "[f_drop]\ntype = dropout\nratio = 0.3\n"
    "[g]\ntype = inner_product\nnum_output = 4\n"
    "[accuracy]\ntype = accuracy\ninput = g\nphase = both\n"
    "[loss]\ntype = softmax_loss\ninput = g\n"
    "[side_loss]\ntype = softmax_loss\ninput = side\nloss_weight = 0.3\n";

typedef struct sample_batch {
    float data[BATCH * SAMPLE];
    int32_t labels[BATCH];
} sample_batch;

static void fill_batch(sample_batch *batch) {
    dlc_random random = dlc_random_make(11, 0);
    for (size_t i = 0; i < sizeof batch->data / sizeof *batch->data; i++)
        batch->data[i] = dlc_random_normal(&random);
    for (int i = 0; i < BATCH; i++)
        batch->labels[i] = (int32_t)dlc_random_below(&random, CLASSES);
}

static void ok(dlc_status status) {
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

/* ---- Ranks ------------------------------------------------------------------- */

typedef struct rank_net {
    dlc_net_tensor_parallel tensor_parallel;
    dlc_progress_engine *engine, *chunk_engine;
    dlc_net *net, *test_net;
    const sample_batch *batch;
    int64_t first, count;
    double loss; /* this rank's share */
    dlc_status status;
    char detail[256];
} rank_net;

typedef struct fake_job {
    net_fixture fixture;     /* the whole net */
    fake_p2p p2p, chunk_p2p; /* of reshard operations, and of batch chunks */
    int32_t ranks;
    int64_t first[FAKE_RANKS + 1];
    char layers[32];
    rank_net rank[FAKE_RANKS];
} fake_job;

/* Opens a job whose samples and channels are split in these proportions. */
static void open_job_by(fake_job *job, const char *text, int32_t ranks,
                        const int64_t *counts, dlc_tensor_schedule schedule) {
    memset(job, 0, sizeof *job);
    fixture_net(&job->fixture, text, BATCH, CHANNELS, SIDE, SIDE);
    fake_p2p_open(&job->p2p, ranks);
    fake_p2p_open(&job->chunk_p2p, ranks);
    job->ranks = ranks;
    for (int32_t r = 0; r < ranks; r++)
        job->first[r + 1] = job->first[r] + counts[r];
    ck_assert_int_eq(job->first[ranks], BATCH);
    ck_assert_int_le(job->fixture.graph->layers, (int)sizeof job->layers);
    for (int32_t i = 0; i < job->fixture.graph->layers; i++)
        job->layers[i] = job->fixture.graph->layer[i].parallel == DLC_PARALLEL_TENSOR;
    for (int32_t r = 0; r < ranks; r++) {
        rank_net *rank = &job->rank[r];
        rank->first = job->first[r];
        rank->count = counts[r];
        ok(dlc_progress_engine_open(&job->p2p.endpoint[r].p2p, 0, &rank->engine));
        ok(dlc_progress_engine_open(&job->chunk_p2p.endpoint[r].p2p,
                                    dlc_net_max_transfers(ranks), &rank->chunk_engine));
        rank->tensor_parallel = (dlc_net_tensor_parallel){
            .rank = r,
            .schedule = schedule,
            .reshard_engine = rank->engine,
            .chunk_engine = rank->chunk_engine,
            .ranks = ranks,
            .layers = job->layers,
            .first_sample = job->first,
            .channel_share = job->first};
        dlc_net_args args = job->fixture.args;
        args.batch = counts[r];
        args.tensor_parallel = &rank->tensor_parallel;
        ok(dlc_net_build(&args, &rank->net));
        ok(dlc_net_allocate(rank->net));
    }
}

static void open_job(fake_job *job, const char *text, int32_t ranks,
                     const int64_t *counts) {
    open_job_by(job, text, ranks, counts, DLC_TENSOR_WHOLE_BATCH);
}

static void close_job(fake_job *job) {
    for (int32_t r = 0; r < job->ranks; r++) {
        dlc_progress_engine_close(job->rank[r].engine);
        dlc_progress_engine_close(job->rank[r].chunk_engine);
        dlc_net_free(job->rank[r].test_net);
        dlc_net_free(job->rank[r].net);
    }
    ck_assert_int_eq(fake_p2p_close(&job->p2p), 0);
    ck_assert_int_eq(fake_p2p_close(&job->chunk_p2p), 0);
    fixture_close(&job->fixture);
}

static dlc_status add_loss(dlc_net *net, double share, double *loss) {
    for (int32_t i = 0; i < dlc_net_metrics(net); i++) {
        dlc_metric metric;
        DLC_TRY(dlc_net_metric(net, i, &metric));
        if (metric.is_loss)
            *loss += share * metric.weight * metric.sum / metric.count;
    }
    return DLC_OK;
}

/* Gradients of each set become final from the first element on. */
static dlc_status note_end(void *context, int32_t set, size_t elements) {
    size_t *end = context;
    if (elements <= end[set])
        return dlc_fail(DLC_ERR_INTERNAL, "set %d is final twice", (int)set);
    end[set] = elements;
    return DLC_OK;
}

static dlc_status check_ends(const dlc_net *net, const size_t *end) {
    for (int32_t s = 0; s < DLC_PARAM_SETS; s++) {
        const dlc_arenas *arenas = dlc_net_arenas_of(net, s);
        const dlc_segment *last = arenas->segment + arenas->segments - 1;
        if (arenas->segments && end[s] != last->offset + last->count)
            return dlc_fail(DLC_ERR_INTERNAL, "set %d ends early", (int)s);
    }
    return DLC_OK;
}

static dlc_status pass(rank_net *rank) {
    size_t end[DLC_PARAM_SETS] = {0};
    double share = (double)rank->count / BATCH;
    rank->loss = 0;
    DLC_TRY(dlc_net_set_input(rank->net, rank->batch->data + rank->first * SAMPLE,
                              rank->batch->labels + rank->first));
    DLC_TRY(dlc_net_forward(rank->net, 3, rank->first));
    DLC_TRY(dlc_net_backward(rank->net, (float)share, note_end, end));
    DLC_TRY(check_ends(rank->net, end));
    return add_loss(rank->net, share, &rank->loss);
}

static dlc_status test_pass(rank_net *rank) {
    rank->loss = 0;
    DLC_TRY(dlc_net_set_input(rank->test_net, rank->batch->data + rank->first * SAMPLE,
                              rank->batch->labels + rank->first));
    DLC_TRY(dlc_net_forward(rank->test_net, 3, rank->first));
    return add_loss(rank->test_net, (double)rank->count / BATCH, &rank->loss);
}

static void *run_rank(void *argument) {
    rank_net *rank = argument;
    rank->status = rank->test_net ? test_pass(rank) : pass(rank);
    if (rank->status != DLC_OK)
        strncpy(rank->detail, dlc_detail(), sizeof rank->detail - 1);
    return NULL;
}

/* Runs all ranks at once; returns the loss over all. */
static double run_job(fake_job *job, const sample_batch *batch) {
    pthread_t thread[FAKE_RANKS];
    double loss = 0;
    for (int32_t r = 0; r < job->ranks; r++) {
        job->rank[r].batch = batch;
        ck_assert_int_eq(pthread_create(&thread[r], NULL, run_rank, &job->rank[r]), 0);
    }
    for (int32_t r = 0; r < job->ranks; r++)
        ck_assert_int_eq(pthread_join(thread[r], NULL), 0);
    for (int32_t r = 0; r < job->ranks; r++) {
        ck_assert_msg(job->rank[r].status == DLC_OK, "%s", job->rank[r].detail);
        loss += job->rank[r].loss;
    }
    return loss;
}

/* ---- The whole net ----------------------------------------------------------- */

static double run_whole(const fake_job *job, const sample_batch *batch) {
    dlc_net *net = job->fixture.net;
    double loss = 0;
    ok(dlc_net_set_input(net, batch->data, batch->labels));
    ok(dlc_net_forward(net, 3, 0));
    ok(add_loss(net, 1, &loss));
    ok(dlc_net_backward(net, 1, NULL, NULL));
    return loss;
}

/* Parameter i, or its gradient, in plain layout. */
static float *plain_of(dlc_net *net, int32_t i, int gradient) {
    const dlc_net_param *param = dlc_net_param_at(net, i);
    const dlc_arenas *arenas = dlc_net_arenas_of(net, param->set);
    float *plain = dlc_alloc((size_t)dlc_shape_count(&param->shape), sizeof *plain);
    ck_assert_ptr_nonnull(plain);
    ok(dlc_net_param_export(net, i, gradient ? arenas->gradients : arenas->weights,
                            plain));
    return plain;
}

/* Parameter i over all ranks: the concatenated rows of a sharded one, otherwise the sum
 * of the gradients or the weights of any rank. */
static float *combine(fake_job *job, int32_t i, int gradient) {
    const dlc_net_param *whole = dlc_net_param_at(job->fixture.net, i);
    size_t count = (size_t)dlc_shape_count(&whole->shape), rows = 0;
    float *sum = dlc_alloc(count, sizeof *sum);
    ck_assert_ptr_nonnull(sum);
    for (int32_t r = 0; r < job->ranks; r++) {
        dlc_net *net = job->rank[r].net;
        const dlc_net_param *param = dlc_net_param_at(net, i);
        ck_assert_str_eq(param->name, whole->name);
        ck_assert_int_eq(param->order, whole->order);
        ck_assert_mem_eq(&param->whole, &whole->shape, sizeof whole->shape);
        size_t n = (size_t)dlc_shape_count(&param->shape);
        size_t row = count / (size_t)whole->shape.dims[0];
        float *mine = plain_of(net, i, gradient);
        float *to = sum + (size_t)param->first * row;
        for (size_t k = 0; k < n; k++)
            to[k] = gradient ? to[k] + mine[k] : mine[k];
        rows += param->set == DLC_PARAMS_ROWS ? n : 0;
        dlc_free(mine);
    }
    ck_assert_uint_eq(
        rows,
        dlc_net_param_at(job->rank[0].net, i)->set == DLC_PARAMS_ROWS ? count : 0);
    return sum;
}

static void compare_all(fake_job *job, int gradient, double within) {
    for (int32_t i = 0; i < dlc_net_params(job->fixture.net); i++) {
        const dlc_net_param *param = dlc_net_param_at(job->fixture.net, i);
        float *expected = plain_of(job->fixture.net, i, gradient);
        float *found = combine(job, i, gradient);
        for (int64_t k = 0; k < dlc_shape_count(&param->shape); k++)
            if (!(fabs((double)found[k] - (double)expected[k]) <= within))
                ck_abort_msg("%s[%d]: %.9g, with one rank %.9g", param->name, (int)k,
                             (double)found[k], (double)expected[k]);
        dlc_free(found);
        dlc_free(expected);
    }
}

static uint32_t bits_of_gradients(fake_job *job) {
    uint32_t hash = 5381;
    for (int32_t i = 0; i < dlc_net_params(job->fixture.net); i++) {
        float *all = combine(job, i, 1);
        int64_t count = dlc_shape_count(&dlc_net_param_at(job->fixture.net, i)->shape);
        for (int64_t k = 0; k < count; k++) {
            uint32_t bits;
            memcpy(&bits, &all[k], sizeof bits);
            hash = hash * 33 + bits;
        }
        dlc_free(all);
    }
    return hash;
}

/* ---- Tests ------------------------------------------------------------------- */

static const struct {
    int32_t ranks;
    int64_t count[FAKE_RANKS];
} jobs[] = {{2, {4, 3}}, {2, {1, 6}}, {3, {2, 3, 2}}, {4, {2, 2, 2, 1}}};

enum { JOBS = sizeof jobs / sizeof *jobs };

TEST_SETTINGS(.timeout = 30, .setup = scratch_setup, .teardown = scratch_teardown,
              .setup_once = plugins_open);

TEST_EACH(matches_one_rank, 2 * JOBS) {
    const char *text = _i < JOBS ? branches : all_parallel;
    fake_job job;
    sample_batch batch;
    fill_batch(&batch);
    open_job(&job, text, jobs[_i % JOBS].ranks, jobs[_i % JOBS].count);
    compare_all(&job, 0, 0);
    double whole = run_whole(&job, &batch);
    for (int again = 0; again < 2; again++) { /* the second time in used memory */
        ck_assert_double_eq_tol(run_job(&job, &batch), whole, WITHIN);
        compare_all(&job, 1, WITHIN);
    }
    ck_assert_int_gt(job.p2p.sent, 0);
    close_job(&job);
}

/* Results match, and gradients are bitwise repeatable. */
TEST_EACH(chunks_match_one_rank, 4 * JOBS) {
    static const dlc_tensor_schedule schedules[] = {DLC_TENSOR_BY_RANK,
                                                    DLC_TENSOR_CHUNKED};
    int at = _i / 2 % JOBS;
    const char *text = _i / 2 < JOBS ? chunked : all_parallel;
    fake_job job;
    sample_batch batch;
    fill_batch(&batch);
    open_job_by(&job, text, jobs[at].ranks, jobs[at].count, schedules[_i % 2]);
    compare_all(&job, 0, 0);
    double whole = run_whole(&job, &batch);
    uint32_t sum = 0;
    for (int again = 0; again < 3; again++) {
        ck_assert_double_eq_tol(run_job(&job, &batch), whole, WITHIN);
        compare_all(&job, 1, WITHIN);
        uint32_t bits = bits_of_gradients(&job);
        ck_assert(again == 0 || bits == sum);
        sum = bits;
    }
    ck_assert_int_gt(job.chunk_p2p.sent, 0);
    close_job(&job);
}

static size_t activations_of(const char *text, dlc_tensor_schedule schedule) {
    static const int64_t counts[] = {4, 3};
    fake_job job;
    open_job_by(&job, text, 2, counts, schedule);
    size_t bytes = dlc_net_memory_plan(job.rank[0].net).activations;
    close_job(&job);
    return bytes;
}

/* Most of this net is in the chunked part. */
TEST(chunks_need_less_memory) {
    static const char *const wide =
        "[e]\ntype = inner_product\nnum_output = 8\nparallel = tensor\n"
        "[e_drop]\ntype = dropout\n[s]\ntype = softmax_loss\n";
    static const char *const deep =
        "[a]\ntype = convolution\nnum_output = 8\nkernel_size = 3\npad = 1\n"
        "parallel = tensor\n[a_act]\ntype = tanh\n"
        "[b]\ntype = convolution\nnum_output = 8\nkernel_size = 3\npad = 1\n"
        "parallel = tensor\n[b_act]\ntype = tanh\n"
        "[c]\ntype = convolution\nnum_output = 8\nkernel_size = 3\npad = 1\n"
        "parallel = tensor\n[c_act]\ntype = tanh\n"
        "[e]\ntype = inner_product\nnum_output = 4\nparallel = tensor\n"
        "[s]\ntype = softmax_loss\n";
    size_t whole = activations_of(deep, DLC_TENSOR_WHOLE_BATCH);
    ck_assert_uint_lt(activations_of(deep, DLC_TENSOR_BY_RANK), whole * 3 / 4);
    ck_assert_uint_lt(activations_of(deep, DLC_TENSOR_CHUNKED), whole * 3 / 4);
    ck_assert_uint_gt(activations_of(wide, DLC_TENSOR_CHUNKED), 0);
}

TEST_EACH(test_nets_match, DLC_TENSOR_SCHEDULES) {
    fake_job job;
    sample_batch batch;
    fill_batch(&batch);
    open_job_by(&job, _i ? chunked : branches, 3, jobs[2].count,
                (dlc_tensor_schedule)_i);
    dlc_net *test_net = fixture_test_net(&job.fixture, BATCH);
    double whole = 0;
    ok(dlc_net_set_input(test_net, batch.data, batch.labels));
    ok(dlc_net_forward(test_net, 3, 0));
    ok(add_loss(test_net, 1, &whole));
    for (int32_t r = 0; r < job.ranks; r++) {
        dlc_net_args args = job.fixture.args;
        args.phase = DLC_PHASE_TEST;
        args.batch = job.rank[r].count;
        args.tensor_parallel = &job.rank[r].tensor_parallel;
        args.train_net = job.rank[r].net;
        ok(dlc_net_build(&args, &job.rank[r].test_net));
        ok(dlc_net_allocate(job.rank[r].test_net));
    }
    ck_assert_double_eq_tol(run_job(&job, &batch), whole, WITHIN);
    dlc_net_free(test_net);
    close_job(&job);
}

/* Parameters of tensor-parallel layers are in arenas of their own, and nowhere else. */
TEST(arenas_of_rows_are_separate) {
    fake_job job;
    open_job(&job, branches, 2, jobs[0].count);
    const dlc_arenas *arenas = dlc_net_arenas(job.rank[0].net);
    const dlc_arenas *sharded = dlc_net_arenas_of(job.rank[0].net, DLC_PARAMS_ROWS);
    ck_assert_int_eq(arenas->segments, 4);  /* b, side_out */
    ck_assert_int_eq(sharded->segments, 8); /* a, e, f, side */
    ck_assert_uint_eq(sharded->control_words, 0);
    ck_assert_str_eq(sharded->segment[0].name, "side.weight");
    ck_assert_str_eq(sharded->segment[7].name, "a.bias");
    ck_assert_int_eq(dlc_net_arenas_of(job.fixture.net, DLC_PARAMS_ROWS)->segments, 0);
    ck_assert_uint_eq(dlc_net_arenas_of(job.fixture.net, DLC_PARAMS_ROWS)->count, 0);
    close_job(&job);
}

static void refused(fake_job *job, const char *words) {
    dlc_net_args args = job->fixture.args;
    dlc_net *net = NULL;
    args.batch = job->rank[0].count;
    args.tensor_parallel = &job->rank[0].tensor_parallel;
    ck_assert_int_ne(dlc_net_build(&args, &net), DLC_OK);
    ck_assert_msg(strstr(dlc_detail(), words) != NULL, "%s", dlc_detail());
}

TEST(refuses_what_cannot_be_split) {
    fake_job job;
    static const char *const grouped =
        "[a]\ntype = convolution\nnum_output = 6\nkernel_size = 3\ngroup = 3\n"
        "[e]\ntype = inner_product\nnum_output = 4\n[loss]\ntype = softmax_loss\n";
    /* Fewer channels than ranks. */
    static const char *const narrow =
        "[a]\ntype = convolution\nnum_output = 3\nkernel_size = 3\n"
        "[e]\ntype = inner_product\nnum_output = 4\n[loss]\ntype = softmax_loss\n";
    open_job(&job, narrow, 4, jobs[3].count);
    job.layers[0] = 1;
    refused(&job, "its 3 channels cannot be split among 4 ranks");
    job.layers[0] = 0;
    close_job(&job);

    open_job(&job, grouped, 2, jobs[0].count);
    job.layers[0] = 1;
    refused(&job, "group = 3 cannot be split");
    job.layers[0] = 0;
    close_job(&job);
}

/* Whichever allocation fails, the build returns an error and leaks nothing. */
TEST(build_without_memory) {
    fake_job job;
    open_job_by(&job, chunked, 2, jobs[0].count, DLC_TENSOR_CHUNKED);
    dlc_net_args args = job.fixture.args;
    args.batch = job.rank[0].count;
    args.tensor_parallel = &job.rank[0].tensor_parallel;
    size_t n = 1;
    for (;; n++) {
        dlc_net *net = NULL;
        dlc_memory_fail_at(n);
        dlc_status status = dlc_net_build(&args, &net);
        dlc_memory_fail_at(0);
        if (status == DLC_OK) {
            dlc_net_free(net);
            break;
        }
        ck_assert_ptr_null(net);
    }
    ck_assert_uint_gt(n, 50);
    close_job(&job);
}

/* Nets whose layers are split, each rank a thread: losses, gradients and first weights
 * are those of the unsplit net. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "desk.h"
#include "rig.h"
#include "support/scratch.h"

enum {
    BATCH = 7,
    CHANNELS = 3,
    SIDE = 6,
    CLASSES = 4,
    SAMPLE = CHANNELS * SIDE * SIDE
};

/* Sums in another order, of numbers around 1. */
static const double WITHIN = 3e-6;

/* Split convolutions, one of which ends in an activation of its own and is read by
 * split layers and by others; a dropout between split layers, and one that isn't; two
 * losses, one of a split layer that nothing follows. */
static const char *const branches =
    "[a]\ntype = convolution\nnum_output = 9\nkernel_size = 3\npad = 1\n"
    "bias_filler = constant(0.1)\nparallel = model\n"
    "[a_act]\ntype = sigmoid\n"
    "[b]\ntype = convolution\nnum_output = 9\nkernel_size = 1\n"
    "[c]\ntype = eltwise\ninput = a_act, b\n"
    "[d]\ntype = concat\ninput = c, a_act\n"
    "[p]\ntype = pooling\nmethod = average\nkernel_size = 2\nstride = 2\n"
    "[p_drop]\ntype = dropout\nratio = 0.3\n"
    "[flat]\ntype = flatten\n"
    "[e]\ntype = inner_product\nnum_output = 11\nparallel = model\n"
    "[e_act]\ntype = relu\n"
    "[e_drop]\ntype = dropout\n"
    "[f]\ntype = inner_product\nnum_output = 4\nparallel = model\n"
    "[side]\ntype = inner_product\nnum_output = 5\ninput = a_act\nparallel = model\n"
    "[side_act]\ntype = tanh\n"
    "[side_out]\ntype = inner_product\nnum_output = 4\n"
    "[loss]\ntype = softmax_loss\ninput = f\n"
    "[side_loss]\ntype = softmax_loss\ninput = side_out\nloss_weight = 0.3\n";

/* Everything, from the batch on. */
static const char *const all_split =
    "[a]\ntype = convolution\nnum_output = 6\nkernel_size = 3\nparallel = model\n"
    "[a_act]\ntype = relu\n"
    "[b]\ntype = convolution\nnum_output = 7\nkernel_size = 3\nparallel = model\n"
    "[e]\ntype = inner_product\nnum_output = 4\nparallel = model\n"
    "[loss]\ntype = softmax_loss\n";

/* A split layer that has the whole batch at once, whatever the way; the cut, that two
 * layers read; a dropout of all samples and one of a rank's own; an unsplit layer
 * behind the split ones; several losses and a metric. */
static const char *const portioned =
    "[a]\ntype = convolution\nnum_output = 6\nkernel_size = 3\nparallel = model\n"
    "[a_act]\ntype = relu\n"
    "[p]\ntype = pooling\nmethod = average\nkernel_size = 2\nstride = 2\n"
    "[e]\ntype = inner_product\nnum_output = 11\nparallel = model\n"
    "[e_act]\ntype = relu\n"
    "[e_drop]\ntype = dropout\n"
    "[f]\ntype = inner_product\nnum_output = 9\nparallel = model\n"
    "[side]\ntype = inner_product\nnum_output = 4\ninput = p\nparallel = model\n"
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

typedef struct split_rank {
    dlc_net_split split;
    dlc_courier *courier;
    dlc_net *net, *twin;
    const sample_batch *batch;
    int64_t first, count;
    double loss; /* this rank's share */
    dlc_status status;
    char detail[256];
} split_rank;

typedef struct split_job {
    net_rig rig;      /* of the unsplit net */
    desk desk, aside; /* aside: the couriers' */
    int32_t ranks;
    int64_t first[DESK_RANKS + 1];
    char layers[32];
    split_rank rank[DESK_RANKS];
} split_job;

/* Samples, and with them channels, in these proportions. */
static void open_job_by(split_job *job, const char *text, int32_t ranks,
                        const int64_t *counts, dlc_split_way way) {
    memset(job, 0, sizeof *job);
    rig_net(&job->rig, text, BATCH, CHANNELS, SIDE, SIDE);
    desk_open(&job->desk, ranks);
    desk_open(&job->aside, ranks);
    job->ranks = ranks;
    for (int32_t r = 0; r < ranks; r++)
        job->first[r + 1] = job->first[r] + counts[r];
    ck_assert_int_eq(job->first[ranks], BATCH);
    ck_assert_int_le(job->rig.graph->layers, (int)sizeof job->layers);
    for (int32_t i = 0; i < job->rig.graph->layers; i++)
        job->layers[i] = job->rig.graph->layer[i].parallel == DLC_PARALLEL_MODEL;
    for (int32_t r = 0; r < ranks; r++) {
        split_rank *rank = &job->rank[r];
        rank->first = job->first[r];
        rank->count = counts[r];
        ok(dlc_courier_open(&job->aside.seat[r].mail, dlc_net_parcels(ranks),
                            &rank->courier));
        rank->split = (dlc_net_split){.rank = r,
                                      .way = way,
                                      .courier = rank->courier,
                                      .ranks = ranks,
                                      .layers = job->layers,
                                      .first = job->first,
                                      .cut = job->first,
                                      .mail = &job->desk.seat[r].mail};
        dlc_net_args args = job->rig.args;
        args.batch = counts[r];
        args.split = &rank->split;
        ok(dlc_net_build(&args, &rank->net));
        ok(dlc_net_allocate(rank->net));
    }
}

static void open_job(split_job *job, const char *text, int32_t ranks,
                     const int64_t *counts) {
    open_job_by(job, text, ranks, counts, DLC_SPLIT_WHOLE);
}

static void close_job(split_job *job) {
    for (int32_t r = 0; r < job->ranks; r++) {
        dlc_courier_close(job->rank[r].courier);
        dlc_net_free(job->rank[r].twin);
        dlc_net_free(job->rank[r].net);
    }
    ck_assert_int_eq(desk_close(&job->desk), 0);
    ck_assert_int_eq(desk_close(&job->aside), 0);
    rig_close(&job->rig);
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

static dlc_status pass(split_rank *rank) {
    double share = (double)rank->count / BATCH;
    rank->loss = 0;
    DLC_TRY(dlc_net_set_input(rank->net, rank->batch->data + rank->first * SAMPLE,
                              rank->batch->labels + rank->first));
    DLC_TRY(dlc_net_forward(rank->net, 3, rank->first));
    DLC_TRY(dlc_net_backward(rank->net, (float)share, NULL, NULL));
    return add_loss(rank->net, share, &rank->loss);
}

static dlc_status test_pass(split_rank *rank) {
    rank->loss = 0;
    DLC_TRY(dlc_net_set_input(rank->twin, rank->batch->data + rank->first * SAMPLE,
                              rank->batch->labels + rank->first));
    DLC_TRY(dlc_net_forward(rank->twin, 3, rank->first));
    return add_loss(rank->twin, (double)rank->count / BATCH, &rank->loss);
}

static void *run_rank(void *argument) {
    split_rank *rank = argument;
    rank->status = rank->twin ? test_pass(rank) : pass(rank);
    if (rank->status != DLC_OK)
        strncpy(rank->detail, dlc_detail(), sizeof rank->detail - 1);
    return NULL;
}

/* All ranks at once; the loss of all. */
static double run_job(split_job *job, const sample_batch *batch) {
    pthread_t thread[DESK_RANKS];
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

/* ---- The unsplit net --------------------------------------------------------- */

static double run_whole(const split_job *job, const sample_batch *batch) {
    dlc_net *net = job->rig.net;
    double loss = 0;
    ok(dlc_net_set_input(net, batch->data, batch->labels));
    ok(dlc_net_forward(net, 3, 0));
    ok(add_loss(net, 1, &loss));
    ok(dlc_net_backward(net, 1, NULL, NULL));
    return loss;
}

/* Parameter i, or its gradient, plain. */
static float *plain_of(dlc_net *net, int32_t i, int gradient) {
    const dlc_net_param *param = dlc_net_param_at(net, i);
    const dlc_arenas *arenas = param->is_split ? dlc_net_split_arenas(net)
                                               : dlc_net_arenas(net);
    float *plain = dlc_alloc((size_t)dlc_shape_count(&param->shape), sizeof *plain);
    ck_assert_ptr_nonnull(plain);
    ok(dlc_net_param_export(net, i, gradient ? arenas->gradients : arenas->weights,
                            plain));
    return plain;
}

/* What the ranks have of parameter i, put together: rows of a split one, and of others
 * the sum of gradients or anybody's weights. */
static float *together(split_job *job, int32_t i, int gradient) {
    const dlc_net_param *whole = dlc_net_param_at(job->rig.net, i);
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
        rows += param->is_split ? n : 0;
        dlc_free(mine);
    }
    ck_assert_uint_eq(rows,
                      dlc_net_param_at(job->rank[0].net, i)->is_split ? count : 0);
    return sum;
}

static void compare_all(split_job *job, int gradient, double within) {
    for (int32_t i = 0; i < dlc_net_params(job->rig.net); i++) {
        const dlc_net_param *param = dlc_net_param_at(job->rig.net, i);
        float *expected = plain_of(job->rig.net, i, gradient);
        float *found = together(job, i, gradient);
        for (int64_t k = 0; k < dlc_shape_count(&param->shape); k++)
            ck_assert_msg(fabs((double)found[k] - (double)expected[k]) <= within,
                          "%s[%d]: %.9g, unsplit %.9g", param->name, (int)k,
                          (double)found[k], (double)expected[k]);
        dlc_free(found);
        dlc_free(expected);
    }
}

static uint32_t bits_of_gradients(split_job *job) {
    uint32_t hash = 5381;
    for (int32_t i = 0; i < dlc_net_params(job->rig.net); i++) {
        float *all = together(job, i, 1);
        int64_t count = dlc_shape_count(&dlc_net_param_at(job->rig.net, i)->shape);
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
    int64_t count[DESK_RANKS];
} jobs[] = {{2, {4, 3}}, {2, {1, 6}}, {3, {2, 3, 2}}, {4, {2, 2, 2, 1}}};

enum { JOBS = sizeof jobs / sizeof *jobs };

START_TEST(is_as_unsplit) {
    const char *text = _i < JOBS ? branches : all_split;
    split_job job;
    sample_batch batch;
    fill_batch(&batch);
    open_job(&job, text, jobs[_i % JOBS].ranks, jobs[_i % JOBS].count);
    compare_all(&job, 0, 0);
    double whole = run_whole(&job, &batch);
    for (int again = 0; again < 2; again++) { /* the second in used memory */
        ck_assert_double_eq_tol(run_job(&job, &batch), whole, WITHIN);
        compare_all(&job, 1, WITHIN);
    }
    ck_assert_int_gt(job.desk.sent, 0);
    close_job(&job);
}
END_TEST

/* No letter is as long as where the whole batch is gathered; gradients repeat to the
 * bit. */
START_TEST(portions_are_as_unsplit) {
    static const dlc_split_way ways[] = {DLC_SPLIT_ROTATING, DLC_SPLIT_SLICED};
    int at = _i / 2 % JOBS;
    const char *text = _i / 2 < JOBS ? portioned : all_split;
    split_job job;
    sample_batch batch;
    fill_batch(&batch);
    open_job_by(&job, text, jobs[at].ranks, jobs[at].count, ways[_i % 2]);
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
    ck_assert_int_gt(job.aside.sent, 0);
    close_job(&job);
}
END_TEST

static size_t activations_of(const char *text, dlc_split_way way) {
    static const int64_t counts[] = {4, 3};
    split_job job;
    open_job_by(&job, text, 2, counts, way);
    size_t bytes = dlc_net_memory_plan(job.rank[0].net).activations;
    close_job(&job);
    return bytes;
}

/* Little of this net is not in the group. */
START_TEST(portions_need_less_memory) {
    static const char *const wide =
        "[e]\ntype = inner_product\nnum_output = 8\nparallel = model\n"
        "[e_drop]\ntype = dropout\n[s]\ntype = softmax_loss\n";
    static const char *const deep =
        "[a]\ntype = convolution\nnum_output = 8\nkernel_size = 3\npad = 1\n"
        "parallel = tensor\n[a_act]\ntype = tanh\n"
        "[b]\ntype = convolution\nnum_output = 8\nkernel_size = 3\npad = 1\n"
        "parallel = tensor\n[b_act]\ntype = tanh\n"
        "[c]\ntype = convolution\nnum_output = 8\nkernel_size = 3\npad = 1\n"
        "parallel = tensor\n[c_act]\ntype = tanh\n"
        "[e]\ntype = inner_product\nnum_output = 4\nparallel = model\n"
        "[s]\ntype = softmax_loss\n";
    size_t whole = activations_of(deep, DLC_SPLIT_WHOLE);
    ck_assert_uint_lt(activations_of(deep, DLC_SPLIT_ROTATING), whole * 3 / 4);
    ck_assert_uint_lt(activations_of(deep, DLC_SPLIT_SLICED), whole * 3 / 4);
    ck_assert_uint_gt(activations_of(wide, DLC_SPLIT_SLICED), 0);
}
END_TEST

START_TEST(twins_are_as_unsplit) {
    split_job job;
    sample_batch batch;
    fill_batch(&batch);
    open_job_by(&job, _i ? portioned : branches, 3, jobs[2].count, (dlc_split_way)_i);
    dlc_net *twin = rig_twin(&job.rig, BATCH);
    double whole = 0;
    ok(dlc_net_set_input(twin, batch.data, batch.labels));
    ok(dlc_net_forward(twin, 3, 0));
    ok(add_loss(twin, 1, &whole));
    for (int32_t r = 0; r < job.ranks; r++) {
        dlc_net_args args = job.rig.args;
        args.phase = DLC_PHASE_TEST;
        args.batch = job.rank[r].count;
        args.split = &job.rank[r].split;
        args.twin = job.rank[r].net;
        ok(dlc_net_build(&args, &job.rank[r].twin));
        ok(dlc_net_allocate(job.rank[r].twin));
    }
    ck_assert_double_eq_tol(run_job(&job, &batch), whole, WITHIN);
    dlc_net_free(twin);
    close_job(&job);
}
END_TEST

/* Parameters of split layers lie in arenas of their own, and nowhere else. */
START_TEST(arenas_are_apart) {
    split_job job;
    open_job(&job, branches, 2, jobs[0].count);
    const dlc_arenas *arenas = dlc_net_arenas(job.rank[0].net);
    const dlc_arenas *split = dlc_net_split_arenas(job.rank[0].net);
    ck_assert_int_eq(arenas->segments, 4); /* b, side_out */
    ck_assert_int_eq(split->segments, 8);  /* a, e, f, side */
    ck_assert_uint_eq(split->tail, 0);
    ck_assert_str_eq(split->segment[0].name, "side.weight");
    ck_assert_str_eq(split->segment[7].name, "a.bias");
    ck_assert_int_eq(dlc_net_split_arenas(job.rig.net)->segments, 0);
    ck_assert_uint_eq(dlc_net_split_arenas(job.rig.net)->count, 0);
    close_job(&job);
}
END_TEST

static void refused(split_job *job, const char *words) {
    dlc_net_args args = job->rig.args;
    dlc_net *net = NULL;
    args.batch = job->rank[0].count;
    args.split = &job->rank[0].split;
    ck_assert_int_ne(dlc_net_build(&args, &net), DLC_OK);
    ck_assert_msg(strstr(dlc_detail(), words) != NULL, "%s", dlc_detail());
}

START_TEST(what_cannot_be_split_is_refused) {
    split_job job;
    static const char *const grouped =
        "[a]\ntype = convolution\nnum_output = 6\nkernel_size = 3\ngroup = 3\n"
        "[e]\ntype = inner_product\nnum_output = 4\n[loss]\ntype = softmax_loss\n";
    /* Fewer channels than ranks. */
    static const char *const narrow =
        "[a]\ntype = convolution\nnum_output = 3\nkernel_size = 3\n"
        "[e]\ntype = inner_product\nnum_output = 4\n[loss]\ntype = softmax_loss\n";
    open_job(&job, narrow, 4, jobs[3].count);
    job.layers[0] = 1;
    refused(&job, "its 3 channels cannot be shared out among 4 ranks");
    job.layers[0] = 0;
    close_job(&job);

    open_job(&job, grouped, 2, jobs[0].count);
    job.layers[0] = 1;
    refused(&job, "group = 3 cannot be split");
    job.layers[0] = 0;
    close_job(&job);
}
END_TEST

/* No memory, at every point: an error, and nothing is lost. */
START_TEST(build_without_memory) {
    split_job job;
    open_job_by(&job, portioned, 2, jobs[0].count, DLC_SPLIT_SLICED);
    dlc_net_args args = job.rig.args;
    args.batch = job.rank[0].count;
    args.split = &job.rank[0].split;
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
END_TEST

int main(void) {
    Suite *suite = suite_create("net_split");
    TCase *cases = tcase_create("net_split");
    tcase_set_timeout(cases, 30);
    tcase_add_checked_fixture(cases, scratch_setup, scratch_teardown);
    tcase_add_loop_test(cases, is_as_unsplit, 0, 2 * JOBS);
    tcase_add_loop_test(cases, portions_are_as_unsplit, 0, 4 * JOBS);
    tcase_add_test(cases, portions_need_less_memory);
    tcase_add_loop_test(cases, twins_are_as_unsplit, 0, DLC_SPLIT_WAYS);
    tcase_add_test(cases, arenas_are_apart);
    tcase_add_test(cases, what_cannot_be_split_is_refused);
    tcase_add_test(cases, build_without_memory);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

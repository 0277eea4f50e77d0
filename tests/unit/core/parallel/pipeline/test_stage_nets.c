/* Nets of the stages of a pipeline, each with memory for its micro-batches in flight,
 * compute the loss and gradients of the whole net, for any cut. Micro-batches are
 * added up in another order than the whole net's samples, so gradients agree to 1e-5 of
 * the largest element of each tensor. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "parallel/pipeline/stages.h"
#include "plan/work_order.h"
#include "support/plugins.h"
#include "support/scratch.h"
#include "support/test.h"
#include "unit/core/net/fixture.h"

enum { CHANNELS = 3, SIDE = 8, BATCH = 12, CLASSES = 5, STAGES = 4, PORTS = 8 };

/* Skips within stages and over one or two of them; one tensor that two later stages
 * read; labels read in two places; random numbers. */
static const char *const residual =
    "[a]\ntype = convolution\nnum_output = 6\nkernel_size = 3\npad = 1\n"
    "weight_filler = msra\n"
    "[a_act]\ntype = relu\n"
    "[b]\ntype = convolution\nnum_output = 6\nkernel_size = 3\npad = 1\n"
    "weight_filler = msra\n"
    "[b_act]\ntype = relu\n"
    "[c]\ntype = convolution\nnum_output = 6\nkernel_size = 1\nweight_filler = msra\n"
    "[sum]\ntype = eltwise\ninput = c, a_act\n"
    "[sum_act]\ntype = relu\n"
    "[side]\ntype = inner_product\nnum_output = 5\nweight_filler = xavier\n"
    "[d]\ntype = convolution\nnum_output = 4\nkernel_size = 3\nweight_filler = msra\n"
    "input = sum_act\n"
    "[d_act]\ntype = relu\n"
    "[e]\ntype = inner_product\nnum_output = 7\nweight_filler = xavier\n"
    "[drop]\ntype = dropout\nratio = 0.4\n"
    "[f]\ntype = inner_product\nnum_output = 5\ninput = sum_act\n"
    "weight_filler = xavier\n"
    "[joined]\ntype = concat\ninput = drop, f\n"
    "[g]\ntype = inner_product\nnum_output = 5\nweight_filler = xavier\n"
    "[loss]\ntype = softmax_loss\ninput = g\n"
    "[side_loss]\ntype = softmax_loss\ninput = side\nloss_weight = 0.3\n";

typedef struct sample_batch {
    float data[BATCH * CHANNELS * SIDE * SIDE];
    int32_t labels[BATCH];
} sample_batch;

/* One stage: its net, and the boundary tensors of each micro-batch. */
typedef struct stage {
    dlc_stages stages;
    dlc_boundary_tensors boundary;
    dlc_net *net;
    dlc_work_order schedule;
    float *sum;
    void *in[BATCH][PORTS], *in_diff[BATCH][PORTS];
    void *out[BATCH][PORTS], *out_diff[BATCH][PORTS];
} stage;

static sample_batch batch;

static void ok(dlc_status status) {
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

static void fill_batch(void) {
    dlc_random random = dlc_random_make(11, 0);
    for (size_t i = 0; i < sizeof batch.data / sizeof *batch.data; i++)
        batch.data[i] = dlc_random_normal(&random);
    for (int i = 0; i < BATCH; i++)
        batch.labels[i] = (int32_t)dlc_random_below(&random, CLASSES);
}

static double loss_of(const dlc_net *net, double share) {
    double loss = 0;
    for (int32_t i = 0; i < dlc_net_metrics(net); i++) {
        dlc_metric metric;
        ok(dlc_net_metric(net, i, &metric));
        loss += share * metric.weight * metric.sum / metric.count;
    }
    return loss;
}

/* ---- Stages ------------------------------------------------------------------ */

static void *boundary_memory(const dlc_net_boundary *port) {
    void *memory = NULL;
    size_t bytes = (size_t)dlc_shape_count(&port->shape) * sizeof(float);
    ck_assert_int_eq(posix_memalign(&memory, 64, bytes), 0);
    memset(memory, 0x7f, bytes); /* NaN, unless it is written */
    return memory;
}

/* Opens the net of stage s. */
static void open_stage(const net_fixture *fixture, const dlc_net *outline,
                       int32_t *first, int32_t stages, int32_t s, int32_t micro_batches,
                       stage *made) {
    memset(made, 0, sizeof *made);
    made->stages = (dlc_stages){
        .mesh = {.ranks = stages, .pipeline = stages, .tensor = 1},
        .rank = s,
        .stage = s,
        .first = first};
    made->schedule = (dlc_work_order){
        .stage = s, .stages = stages, .micro_batches = micro_batches};
    ok(dlc_boundary_tensors_find(&made->stages, fixture->graph, outline,
                                 DLC_PHASE_TRAIN, BATCH / micro_batches,
                                 &made->boundary));
    dlc_net_args args = fixture->args;
    args.batch = BATCH / micro_batches;
    args.first = first[s];
    args.end = first[s + 1];
    args.boundaries_in = made->boundary.ins;
    args.boundaries_out = made->boundary.outs;
    args.boundary_in = made->boundary.in;
    args.boundary_out = made->boundary.out;
    args.micro_batch_buffers = dlc_work_order_max_in_flight(&made->schedule);
    ok(dlc_net_build(&args, &made->net));
    ok(dlc_net_allocate(made->net));
    made->sum = dlc_alloc(dlc_net_arenas(made->net)->count, sizeof(float));
    ck_assert_ptr_nonnull(made->sum);
    ck_assert_int_le(args.boundaries_in, PORTS);
    ck_assert_int_le(args.boundaries_out, PORTS);
    for (int32_t k = 0; k < micro_batches; k++) {
        for (int32_t i = 0; i < args.boundaries_in; i++) {
            made->in[k][i] = boundary_memory(&args.boundary_in[i]);
            if (args.boundary_in[i].gradient)
                made->in_diff[k][i] = boundary_memory(&args.boundary_in[i]);
        }
        for (int32_t i = 0; i < args.boundaries_out; i++) {
            made->out[k][i] = boundary_memory(&args.boundary_out[i]);
            if (args.boundary_out[i].gradient)
                made->out_diff[k][i] = boundary_memory(&args.boundary_out[i]);
        }
    }
}

static void close_stage(stage *made) {
    for (int32_t k = 0; k < BATCH; k++)
        for (int32_t i = 0; i < PORTS; i++) {
            free(made->in[k][i]);
            free(made->in_diff[k][i]);
            free(made->out[k][i]);
            free(made->out_diff[k][i]);
        }
    dlc_net_free(made->net);
    dlc_boundary_tensors_free(&made->boundary);
    dlc_free(made->sum);
}

static int32_t find_out(const stage *from, int32_t id) {
    int32_t i = 0;
    while (i < from->boundary.outs && from->boundary.out_id[i] != id)
        i++;
    ck_assert_int_lt(i, from->boundary.outs);
    return i;
}

static size_t bytes_of(const dlc_net_boundary *port) {
    return (size_t)dlc_shape_count(&port->shape) * sizeof(float);
}

static void enter(stage *it, int32_t k, int64_t each) {
    dlc_net_micro_batch pass = {.buffers = k %
                                           dlc_work_order_max_in_flight(&it->schedule),
                                .iteration = 3,
                                .sample = k * each,
                                .in = it->in[k],
                                .in_diff = it->in_diff[k],
                                .out = it->out[k],
                                .out_diff = it->out_diff[k]};
    dlc_net_begin_micro_batch(it->net, &pass);
    ok(dlc_net_set_input(it->net, batch.data + k * each * CHANNELS * SIDE * SIDE,
                         batch.labels + k * each));
}

/* Copies the inputs from earlier stages and runs forward. */
static double forward(stage *all, int32_t s, int32_t k, int64_t each) {
    stage *it = &all[s];
    for (int32_t i = 0; i < it->boundary.ins; i++) {
        const stage *from = &all[it->boundary.source[i].part[0].rank];
        memcpy(it->in[k][i], from->out[k][find_out(from, it->boundary.in_id[i])],
               bytes_of(&it->boundary.in[i]));
    }
    enter(it, k, each);
    ok(dlc_net_forward(it->net, 3, k * each));
    return loss_of(it->net, (double)each / BATCH);
}

static void add(float *sum, const float *more, size_t count) {
    for (size_t i = 0; i < count; i++)
        sum[i] += more[i];
}

/* Sums the gradients of this stage's outputs from later stages. */
static void gather_gradients(stage *all, int32_t s, int32_t stages, int32_t k) {
    stage *it = &all[s];
    int received[PORTS] = {0};
    for (int32_t r = s + 1; r < stages; r++)
        for (int32_t i = 0; i < all[r].boundary.ins; i++) {
            const dlc_net_boundary *port = &all[r].boundary.in[i];
            if (all[r].boundary.source[i].part[0].rank != s || !port->gradient)
                continue;
            int32_t out = find_out(it, all[r].boundary.in_id[i]);
            size_t count = (size_t)dlc_shape_count(&port->shape);
            if (received[out]++)
                add(it->out_diff[k][out], all[r].in_diff[k][i], count);
            else
                memcpy(it->out_diff[k][out], all[r].in_diff[k][i],
                       count * sizeof(float));
        }
    for (int32_t i = 0; i < it->boundary.outs; i++)
        ck_assert_int_eq(received[i] > 0, it->boundary.out[i].gradient);
}

static void backward(stage *all, int32_t s, int32_t stages, int32_t k, int64_t each) {
    stage *it = &all[s];
    gather_gradients(all, s, stages, k);
    const dlc_arenas *arenas = dlc_net_arenas(it->net);
    enter(it, k, each);
    ok(dlc_net_backward(it->net, (float)each / BATCH, NULL, NULL));
    add(it->sum, arenas->gradients, arenas->count);
    memcpy(arenas->gradients, it->sum, arenas->count * sizeof(float));
}

/* Have all stages that send something to this one run micro-batch k forward? */
static int has_inputs(const stage *all, int32_t s, int32_t k) {
    for (int32_t i = 0; i < all[s].boundary.ins; i++)
        if (all[all[s].boundary.source[i].part[0].rank].schedule.forward <= k)
            return 0;
    return 1;
}

static int has_gradients(const stage *all, int32_t s, int32_t stages, int32_t k) {
    for (int32_t r = s + 1; r < stages; r++)
        for (int32_t i = 0; i < all[r].boundary.ins; i++)
            if (all[r].boundary.source[i].part[0].rank == s &&
                all[r].boundary.in[i].gradient && all[r].schedule.backward <= k)
                return 0;
    return 1;
}

/* Runs the steps of all stages in turn, as far as they can; returns the loss. */
static double run(stage *all, int32_t stages, int32_t micro_batches) {
    int64_t each = BATCH / micro_batches;
    double loss = 0;
    for (int over = 0; over < stages;) {
        over = 0;
        for (int32_t s = 0; s < stages; s++) {
            dlc_work_order *schedule = &all[s].schedule;
            int can_forward = schedule->forward < micro_batches &&
                              has_inputs(all, s, schedule->forward);
            int can_backward = schedule->backward < schedule->forward &&
                               has_gradients(all, s, stages, schedule->backward);
            dlc_work step = dlc_work_order_next(schedule, can_forward, can_backward);
            if (step == DLC_WORK_FORWARD)
                loss += forward(all, s, schedule->forward, each);
            else if (step == DLC_WORK_BACKWARD)
                backward(all, s, stages, schedule->backward, each);
            dlc_work_order_done(schedule, step);
            over += step == DLC_WORK_DONE;
        }
    }
    return loss;
}

/* ---- Comparing --------------------------------------------------------------- */

static int32_t find_param(const dlc_net *net, const char *name) {
    int32_t i = 0;
    while (i < dlc_net_params(net) && strcmp(dlc_net_param_at(net, i)->name, name) != 0)
        i++;
    return i;
}

static float *plain_gradient(dlc_net *net, int32_t i) {
    size_t count = (size_t)dlc_shape_count(&dlc_net_param_at(net, i)->shape);
    float *plain = dlc_alloc(count, sizeof *plain);
    ck_assert_ptr_nonnull(plain);
    ok(dlc_net_param_export(net, i, dlc_net_arenas(net)->gradients, plain));
    return plain;
}

static void compare(dlc_net *whole, dlc_net *part, int32_t i, const char *what) {
    const double tolerance = 1e-5;
    const dlc_net_param *param = dlc_net_param_at(part, i);
    int32_t j = find_param(whole, param->name);
    ck_assert_int_lt(j, dlc_net_params(whole));
    float *a = plain_gradient(whole, j), *b = plain_gradient(part, i);
    size_t count = (size_t)dlc_shape_count(&param->shape);
    double most = 0, off = 0;
    for (size_t n = 0; n < count; n++) {
        most = fmax(most, fabs((double)a[n]));
        off = fmax(off, fabs((double)a[n] - (double)b[n]));
    }
    ck_assert_msg(off <= tolerance * most, "%s: the gradient of %s is off by %g of %g",
                  what, param->name, off, most);
    ck_assert_double_gt(most, 0);
    dlc_free(a);
    dlc_free(b);
}

static void check_cut(net_fixture *fixture, double loss, int32_t *first, int32_t stages,
                      int32_t micro_batches) {
    stage all[STAGES];
    char what[96];
    dlc_net *outline = NULL;
    dlc_net_args args = fixture->args;
    int32_t params = 0;
    args.outline = 1;
    args.batch = BATCH / micro_batches;
    ok(dlc_net_build(&args, &outline));
    for (int32_t s = 0; s < stages; s++)
        open_stage(fixture, outline, first, stages, s, micro_batches, &all[s]);
    dlc_net_free(outline);
    snprintf(what, sizeof what, "%d micro-batches, stages from %d %d %d",
             (int)micro_batches, (int)first[1], stages > 2 ? (int)first[2] : 0,
             stages > 3 ? (int)first[3] : 0);
    double got = run(all, stages, micro_batches);
    ck_assert_msg(fabs(got - loss) <= 1e-5 * fabs(loss), "%s: loss %g, not %g", what,
                  got, loss);
    for (int32_t s = 0; s < stages; s++)
        for (int32_t i = 0; i < dlc_net_params(all[s].net); i++, params++)
            compare(fixture->net, all[s].net, i, what);
    ck_assert_int_eq(params, dlc_net_params(fixture->net));
    for (int32_t s = 0; s < stages; s++)
        close_stage(&all[s]);
}

static double run_whole(net_fixture *fixture) {
    fixture_net(fixture, residual, BATCH, CHANNELS, SIDE, SIDE);
    fill_batch();
    ok(dlc_net_set_input(fixture->net, batch.data, batch.labels));
    ok(dlc_net_forward(fixture->net, 3, 0));
    double loss = loss_of(fixture->net, 1);
    ok(dlc_net_backward(fixture->net, 1, NULL, NULL));
    return loss;
}

TEST_SETTINGS(.timeout = 120, .setup = scratch_setup, .teardown = scratch_teardown,
              .setup_once = plugins_open);

/* Every cut into two stages. */
TEST(any_two_stages) {
    net_fixture fixture;
    double loss = run_whole(&fixture);
    for (int32_t at = 1; at < fixture.graph->layers; at++) {
        int32_t first[] = {0, at, fixture.graph->layers};
        check_cut(&fixture, loss, first, 2, 4);
    }
    fixture_close(&fixture);
}

/* Random cuts into three and four stages, some of one layer, for several numbers of
 * micro-batches. */
TEST_EACH(more_stages, 4) {
    static const int32_t counts[] = {1, 2, 3, 6, 12};
    net_fixture fixture;
    double loss = run_whole(&fixture);
    dlc_random random = dlc_random_make(5, (uint64_t)_i);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        int32_t layers = fixture.graph->layers, first[STAGES + 1] = {0};
        int32_t stages = 3 + _i % 2;
        first[stages] = layers;
        for (int32_t s = 1; s < stages; s++) {
            uint64_t room = (uint64_t)(layers - (stages - s) - first[s - 1]);
            first[s] = first[s - 1] + 1 + (int32_t)dlc_random_below(&random, room);
        }
        check_cut(&fixture, loss, first, stages, counts[c]);
    }
    fixture_close(&fixture);
}

/* Memory depends on the stage, not on the number of micro-batches. */
TEST(memory_is_bounded) {
    net_fixture fixture;
    (void)run_whole(&fixture);
    int32_t first[] = {0, 8, fixture.graph->layers};
    dlc_net *outline = NULL;
    dlc_net_args args = fixture.args;
    args.outline = 1;
    args.batch = 1;
    ok(dlc_net_build(&args, &outline));
    dlc_boundary_tensors boundary = {0};
    dlc_stages stages = {.mesh = {.ranks = 2, .pipeline = 2, .tensor = 1},
                         .first = first};
    ok(dlc_boundary_tensors_find(&stages, fixture.graph, outline, DLC_PHASE_TRAIN, 1,
                                 &boundary));
    args = fixture.args;
    args.batch = 1;
    args.end = first[1];
    args.boundaries_out = boundary.outs;
    args.boundary_out = boundary.out;
    size_t bytes[3];
    for (int32_t buffers = 1; buffers <= 2; buffers++) {
        dlc_net *net = NULL;
        args.micro_batch_buffers = buffers;
        ok(dlc_net_build(&args, &net));
        bytes[buffers] = dlc_net_memory_plan(net).activations;
        dlc_net_free(net);
    }
    ck_assert_uint_gt(bytes[2], bytes[1]);
    ck_assert_uint_le(bytes[2], 2 * bytes[1] + 64);
    ck_assert_uint_lt(bytes[2], dlc_net_memory_plan(fixture.net).activations);
    dlc_boundary_tensors_free(&boundary);
    dlc_net_free(outline);
    fixture_close(&fixture);
}

/* The boundary of a rank in a job of three ranks that have the first stage, and two
 * that have the second, with 8 samples: 2, 3, 3 and 4, 4 of them. */
static void check_parts(int32_t rank, int32_t rows, const dlc_boundary_part *wanted,
                        int32_t parts) {
    static const int32_t stage_ranks[] = {3, 2};
    net_fixture fixture;
    (void)run_whole(&fixture);
    int32_t first[] = {0, 8, fixture.graph->layers};
    dlc_net *outline = NULL;
    dlc_net_args args = fixture.args;
    args.outline = 1;
    args.batch = rows;
    ok(dlc_net_build(&args, &outline));
    dlc_boundary_tensors boundary = {0};
    dlc_stages stages = {
        .mesh = {.ranks = 5, .pipeline = 2, .tensor = 1, .stage_ranks = stage_ranks},
        .rank = rank,
        .stage = rank >= 3,
        .first = first};
    ok(dlc_boundary_tensors_find(&stages, fixture.graph, outline, DLC_PHASE_TRAIN, 8,
                                 &boundary));
    ck_assert_int_eq(boundary.rows, rows);
    ck_assert_int_gt(boundary.ins + boundary.outs, 0);
    const dlc_boundary_peers *peers = rank < 3 ? boundary.reader[0] : boundary.source;
    ck_assert_int_eq(peers->parts, parts);
    for (int32_t i = 0; i < parts; i++) {
        ck_assert_int_eq(peers->part[i].rank, wanted[i].rank);
        ck_assert_int_eq(peers->part[i].row, wanted[i].row);
        ck_assert_int_eq(peers->part[i].rows, wanted[i].rows);
    }
    dlc_boundary_tensors_free(&boundary);
    dlc_net_free(outline);
    fixture_close(&fixture);
}

TEST(stages_of_unequal_ranks_split_tensors) {
    check_parts(0, 2, (const dlc_boundary_part[]){{3, 0, 2}}, 1);
    check_parts(1, 3, (const dlc_boundary_part[]){{3, 0, 2}, {4, 2, 1}}, 2);
    check_parts(3, 4, (const dlc_boundary_part[]){{0, 0, 2}, {1, 2, 2}}, 2);
    check_parts(4, 4, (const dlc_boundary_part[]){{1, 0, 1}, {2, 1, 3}}, 2);
}

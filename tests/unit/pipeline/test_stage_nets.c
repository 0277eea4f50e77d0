/* Nets that are pieces of one, each with memory for so many sub-batches as its stage
 * has under way, give what the whole net gives: loss and gradients, for any cut.
 * Sub-batches are added up in another order than the whole net's samples, so they agree
 * to 1e-5 of the largest number of each tensor, not to the bit. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "support/scratch.h"
#include "train/pipeline/stages.h"
#include "train/pipeline/turns.h"
#include "unit/net/rig.h"

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

/* One stage: its net, and for each sub-batch where its ports lie. */
typedef struct stage {
    dlc_stages stages;
    dlc_crossings crossings;
    dlc_net *net;
    dlc_turns turns;
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

static void *port_memory(const dlc_net_port *port) {
    void *memory = NULL;
    size_t bytes = (size_t)dlc_shape_count(&port->shape) * sizeof(float);
    ck_assert_int_eq(posix_memalign(&memory, 64, bytes), 0);
    memset(memory, 0x7f, bytes); /* what isn't written is no number */
    return memory;
}

/* A rank of the stage's own, in one process. */
static void open_stage(const net_rig *rig, const dlc_net *outline, int32_t *first,
                       int32_t stages, int32_t s, int32_t sub_batches, stage *made) {
    memset(made, 0, sizeof *made);
    made->stages = (dlc_stages){
        .stages = stages, .replicas = 1, .stage = s, .first = first};
    made->turns = (dlc_turns){.stage = s, .stages = stages, .sub_batches = sub_batches};
    ok(dlc_crossings_find(&made->stages, rig->graph, outline, DLC_PHASE_TRAIN,
                          &made->crossings));
    dlc_net_args args = rig->args;
    args.batch = BATCH / sub_batches;
    args.first = first[s];
    args.end = first[s + 1];
    args.ports_in = made->crossings.ins;
    args.ports_out = made->crossings.outs;
    args.port_in = made->crossings.in;
    args.port_out = made->crossings.out;
    args.lanes = dlc_turns_most(&made->turns);
    ok(dlc_net_build(&args, &made->net));
    ok(dlc_net_allocate(made->net));
    made->sum = dlc_alloc(dlc_net_arenas(made->net)->count, sizeof(float));
    ck_assert_ptr_nonnull(made->sum);
    ck_assert_int_le(args.ports_in, PORTS);
    ck_assert_int_le(args.ports_out, PORTS);
    for (int32_t k = 0; k < sub_batches; k++) {
        for (int32_t i = 0; i < args.ports_in; i++) {
            made->in[k][i] = port_memory(&args.port_in[i]);
            if (args.port_in[i].gradient)
                made->in_diff[k][i] = port_memory(&args.port_in[i]);
        }
        for (int32_t i = 0; i < args.ports_out; i++) {
            made->out[k][i] = port_memory(&args.port_out[i]);
            if (args.port_out[i].gradient)
                made->out_diff[k][i] = port_memory(&args.port_out[i]);
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
    dlc_crossings_free(&made->crossings);
    dlc_free(made->sum);
}

static int32_t find_out(const stage *from, int32_t id) {
    int32_t i = 0;
    while (i < from->crossings.outs && from->crossings.out_id[i] != id)
        i++;
    ck_assert_int_lt(i, from->crossings.outs);
    return i;
}

static size_t bytes_of(const dlc_net_port *port) {
    return (size_t)dlc_shape_count(&port->shape) * sizeof(float);
}

static void enter(stage *it, int32_t k, int64_t each) {
    dlc_net_pass pass = {.lane = k % dlc_turns_most(&it->turns),
                         .iteration = 3,
                         .sample = k * each,
                         .in = it->in[k],
                         .in_diff = it->in_diff[k],
                         .out = it->out[k],
                         .out_diff = it->out_diff[k]};
    dlc_net_enter(it->net, &pass);
    ok(dlc_net_set_input(it->net, batch.data + k * each * CHANNELS * SIDE * SIDE,
                         batch.labels + k * each));
}

/* The inputs come from the stages before. */
static double forward(stage *all, int32_t s, int32_t k, int64_t each) {
    stage *it = &all[s];
    for (int32_t i = 0; i < it->crossings.ins; i++) {
        const stage *from = &all[it->crossings.in_rank[i]];
        memcpy(it->in[k][i], from->out[k][find_out(from, it->crossings.in_id[i])],
               bytes_of(&it->crossings.in[i]));
    }
    enter(it, k, each);
    ok(dlc_net_forward(it->net, 3, k * each));
    return loss_of(it->net, (double)each / BATCH);
}

static void add(float *sum, const float *more, size_t count) {
    for (size_t i = 0; i < count; i++)
        sum[i] += more[i];
}

/* The gradients of what went out come from the stages behind, and are added up. */
static void gather_gradients(stage *all, int32_t s, int32_t stages, int32_t k) {
    stage *it = &all[s];
    int came[PORTS] = {0};
    for (int32_t r = s + 1; r < stages; r++)
        for (int32_t i = 0; i < all[r].crossings.ins; i++) {
            const dlc_net_port *port = &all[r].crossings.in[i];
            if (all[r].crossings.in_rank[i] != s || !port->gradient)
                continue;
            int32_t out = find_out(it, all[r].crossings.in_id[i]);
            size_t count = (size_t)dlc_shape_count(&port->shape);
            if (came[out]++)
                add(it->out_diff[k][out], all[r].in_diff[k][i], count);
            else
                memcpy(it->out_diff[k][out], all[r].in_diff[k][i],
                       count * sizeof(float));
        }
    for (int32_t i = 0; i < it->crossings.outs; i++)
        ck_assert_int_eq(came[i] > 0, it->crossings.out[i].gradient);
}

static void backward(stage *all, int32_t s, int32_t stages, int32_t k, int64_t each) {
    stage *it = &all[s];
    gather_gradients(all, s, stages, k);
    dlc_net_write_gradients(it->net, k > 0 ? it->sum : NULL);
    enter(it, k, each);
    ok(dlc_net_backward(it->net, (float)each / BATCH, NULL, NULL));
    if (k > 0)
        add(dlc_net_arenas(it->net)->gradients, it->sum,
            dlc_net_arenas(it->net)->count);
}

/* Has every stage that gives sub-batch k something to this one done so? */
static int has_inputs(const stage *all, int32_t s, int32_t k) {
    for (int32_t i = 0; i < all[s].crossings.ins; i++)
        if (all[all[s].crossings.in_rank[i]].turns.forward <= k)
            return 0;
    return 1;
}

static int has_gradients(const stage *all, int32_t s, int32_t stages, int32_t k) {
    for (int32_t r = s + 1; r < stages; r++)
        for (int32_t i = 0; i < all[r].crossings.ins; i++)
            if (all[r].crossings.in_rank[i] == s && all[r].crossings.in[i].gradient &&
                all[r].turns.backward <= k)
                return 0;
    return 1;
}

/* All stages in turn, each what it can do; returns the loss. */
static double run(stage *all, int32_t stages, int32_t sub_batches) {
    int64_t each = BATCH / sub_batches;
    double loss = 0;
    for (int over = 0; over < stages;) {
        over = 0;
        for (int32_t s = 0; s < stages; s++) {
            dlc_turns *turns = &all[s].turns;
            int can_forward = turns->forward < sub_batches &&
                              has_inputs(all, s, turns->forward);
            int can_backward = turns->backward < turns->forward &&
                               has_gradients(all, s, stages, turns->backward);
            dlc_turn turn = dlc_turns_next(turns, can_forward, can_backward);
            if (turn == DLC_TURN_FORWARD)
                loss += forward(all, s, turns->forward, each);
            else if (turn == DLC_TURN_BACKWARD)
                backward(all, s, stages, turns->backward, each);
            dlc_turns_done(turns, turn);
            over += turn == DLC_TURN_OVER;
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

static void check_cut(net_rig *rig, double loss, int32_t *first, int32_t stages,
                      int32_t sub_batches) {
    stage all[STAGES];
    char what[96];
    dlc_net *outline = NULL;
    dlc_net_args args = rig->args;
    int32_t params = 0;
    args.outline = 1;
    args.batch = BATCH / sub_batches;
    ok(dlc_net_build(&args, &outline));
    for (int32_t s = 0; s < stages; s++)
        open_stage(rig, outline, first, stages, s, sub_batches, &all[s]);
    dlc_net_free(outline);
    snprintf(what, sizeof what, "%d sub-batches, stages from %d %d %d",
             (int)sub_batches, (int)first[1], stages > 2 ? (int)first[2] : 0,
             stages > 3 ? (int)first[3] : 0);
    double got = run(all, stages, sub_batches);
    ck_assert_msg(fabs(got - loss) <= 1e-5 * fabs(loss), "%s: loss %g, not %g", what,
                  got, loss);
    for (int32_t s = 0; s < stages; s++)
        for (int32_t i = 0; i < dlc_net_params(all[s].net); i++, params++)
            compare(rig->net, all[s].net, i, what);
    ck_assert_int_eq(params, dlc_net_params(rig->net));
    for (int32_t s = 0; s < stages; s++)
        close_stage(&all[s]);
}

static double run_whole(net_rig *rig) {
    rig_net(rig, residual, BATCH, CHANNELS, SIDE, SIDE);
    fill_batch();
    ok(dlc_net_set_input(rig->net, batch.data, batch.labels));
    ok(dlc_net_forward(rig->net, 3, 0));
    double loss = loss_of(rig->net, 1);
    ok(dlc_net_backward(rig->net, 1, NULL, NULL));
    return loss;
}

/* Every place to cut it in two. */
START_TEST(any_two_stages) {
    net_rig rig;
    double loss = run_whole(&rig);
    for (int32_t at = 1; at < rig.graph->layers; at++) {
        int32_t first[] = {0, at, rig.graph->layers};
        check_cut(&rig, loss, first, 2, 4);
    }
    rig_close(&rig);
}
END_TEST

/* Some in three and four, for several numbers of sub-batches; what lies between two
 * cuts may be one layer. */
START_TEST(more_stages) {
    static const int32_t counts[] = {1, 2, 3, 6, 12};
    net_rig rig;
    double loss = run_whole(&rig);
    dlc_random random = dlc_random_make(5, (uint64_t)_i);
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
        int32_t layers = rig.graph->layers, first[STAGES + 1] = {0};
        int32_t stages = 3 + _i % 2;
        first[stages] = layers;
        for (int32_t s = 1; s < stages; s++) {
            uint64_t room = (uint64_t)(layers - (stages - s) - first[s - 1]);
            first[s] = first[s - 1] + 1 + (int32_t)dlc_random_below(&random, room);
        }
        check_cut(&rig, loss, first, stages, counts[c]);
    }
    rig_close(&rig);
}
END_TEST

/* Memory goes with the stage, not with the number of sub-batches. */
START_TEST(memory_is_bounded) {
    net_rig rig;
    (void)run_whole(&rig);
    int32_t first[] = {0, 8, rig.graph->layers};
    dlc_net *outline = NULL;
    dlc_net_args args = rig.args;
    args.outline = 1;
    args.batch = 1;
    ok(dlc_net_build(&args, &outline));
    dlc_crossings crossings = {0};
    dlc_stages stages = {.stages = 2, .replicas = 1, .first = first};
    ok(dlc_crossings_find(&stages, rig.graph, outline, DLC_PHASE_TRAIN, &crossings));
    args = rig.args;
    args.batch = 1;
    args.end = first[1];
    args.ports_out = crossings.outs;
    args.port_out = crossings.out;
    size_t bytes[3];
    for (int32_t lanes = 1; lanes <= 2; lanes++) {
        dlc_net *net = NULL;
        args.lanes = lanes;
        ok(dlc_net_build(&args, &net));
        bytes[lanes] = dlc_net_memory_plan(net).activations;
        dlc_net_free(net);
    }
    ck_assert_uint_gt(bytes[2], bytes[1]);
    ck_assert_uint_le(bytes[2], 2 * bytes[1] + 64);
    ck_assert_uint_lt(bytes[2], dlc_net_memory_plan(rig.net).activations);
    dlc_crossings_free(&crossings);
    dlc_net_free(outline);
    rig_close(&rig);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("stage nets");
    TCase *cases = tcase_create("stage nets");
    tcase_set_timeout(cases, 120);
    tcase_add_checked_fixture(cases, scratch_setup, scratch_teardown);
    tcase_add_test(cases, any_two_stages);
    tcase_add_loop_test(cases, more_stages, 0, 4);
    tcase_add_test(cases, memory_is_bounded);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

/* Derives the arguments of a session's nets, builds and allocates them. */
#include "run/nets.h"

#include <string.h>

#include "parallel/pipeline/pipeline.h"
#include "parallel/tensor/tensor_parallel.h"
#include "run/memory.h"
#include "session/layout_check.h"
#include "session/param_sets.h"

static dlc_status note_activity(void *context, const char *phase, const char *layer) {
    dlc_job_activity(context, phase, layer, 0);
    return strcmp(phase, DLC_SETUP) == 0 ? dlc_job_check(context) : DLC_OK;
}

static dlc_status make_args(dlc_session *session, dlc_phase phase,
                            const dlc_data_setup *data, int64_t batch,
                            dlc_net *train_net, dlc_net_args *made) {
    dlc_net_args args = {
        .graph = session->setup->graph,
        .phase = phase,
        .device_feature = session->setup->device,
        .device_ops = session->device_ops,
        .device = session->device,
        .queue = session->queue,
        .threads = dlc_job_threads(session->job),
        .precision = dlc_setup_precision(session->setup),
        .math = dlc_settings_is(session->setup->train_settings, "precision", "tf32")
                    ? DLC_MATH_TF32
                    : 0,
        .autotune = dlc_settings_get_bool(session->setup->train_settings, "autotune"),
        .recompute = dlc_settings_get_bool(session->setup->train_settings, "recompute"),
        .batch = batch,
        .seed = session->setup->seed,
        .shared = {[DLC_PARAMS_WHOLE] = session->ranks > 1},
        .train_net = train_net,
        .plain_params = session->plain,
        .on_activity = note_activity,
        .activity_context = session->job,
        .wait_for_weights = phase == DLC_PHASE_TRAIN ? dlc_param_sets_need : NULL,
        .weights_context = session,
        .group = phase == DLC_PHASE_TRAIN ? dlc_layer_group_table(&session->layer_group)
                                          : NULL,
        .empty = phase == DLC_PHASE_TRAIN && session->local_batch == 0};
    dlc_loss_scale *scale = session->loss_scale.base;
    if (session->control.on_device && phase == DLC_PHASE_TRAIN) {
        /* With gradient accumulation each pass has its own step, passed to the call. */
        if (session->accumulation_steps == 1)
            args.step_at = &session->control.on_device->step;
        args.loss_scale_at = scale ? &scale->scale : NULL;
    }
    if (session->pipeline)
        dlc_pipeline_shape_net(session->pipeline, &args);
    if (session->tensor)
        dlc_tensor_parallel_shape_net(session->tensor, &args);
    DLC_TRY(dlc_setup_sample_fields(session->setup, data, phase, &args.fields));
    *made = args;
    return DLC_OK;
}

static dlc_status build_net(dlc_session *session, dlc_phase phase,
                            const dlc_data_setup *data, int64_t batch,
                            dlc_net *train_net, dlc_net **net) {
    dlc_net_args args;
    DLC_TRY(make_args(session, phase, data, batch, train_net, &args));
    return dlc_net_build(&args, net);
}

/* A rank without samples builds its net for the batch of a rank that has some, so that
 * both choose the same layouts. */
static int64_t net_batch(const dlc_session *session) {
    int64_t offset, share = session->local_batch;
    for (int32_t r = 0; share == 0 && r < session->ranks; r++)
        dlc_setup_rank_samples(session->setup, r, &offset, &share);
    return share;
}

/* Ranks run collective layers together. */
static dlc_status check_collective(const dlc_session *session) {
    const char *layer = dlc_net_collective_layer(session->net);
    if (!layer || dlc_session_allows(session, DLC_ALLOW_COLLECTIVE))
        return DLC_OK;
    return dlc_fail(DLC_ERR_CONFIG,
                    "layer '%s' computes statistics over the samples of all ranks, "
                    "which then must be in the same iteration, but consistency '%s' "
                    "lets them be in different ones; set statistics = local, or "
                    "[consistency] type = synchronous",
                    layer, session->setup->consistency->name);
}

dlc_status dlc_nets_build(dlc_session *session) {
    const dlc_setup *setup = session->setup;
    DLC_TRY(build_net(session, DLC_PHASE_TRAIN, &setup->train, net_batch(session), NULL,
                      &session->net));
    DLC_TRY(check_collective(session));
    if (!setup->test.source)
        return DLC_OK;
    return build_net(session, DLC_PHASE_TEST, &setup->test, setup->test.batch,
                     session->net, &session->test_net);
}

void dlc_nets_free(dlc_session *session) {
    dlc_net_free(session->test_net);
    dlc_net_free(session->net);
    session->net = session->test_net = NULL;
}

dlc_status dlc_nets_build_train(dlc_session *session, dlc_net **net) {
    return build_net(session, DLC_PHASE_TRAIN, &session->setup->train,
                     session->local_batch, NULL, net);
}

dlc_status dlc_nets_open(dlc_session *session) {
    for (int again = 1; again;) {
        dlc_nets_free(session);
        DLC_TRY(dlc_nets_build(session));
        if (session->iteration == 0)
            DLC_TRY(dlc_memory_check(session));
        DLC_TRY(dlc_net_allocate(session->net));
        if (session->test_net)
            DLC_TRY(dlc_net_allocate(session->test_net));
        DLC_TRY(dlc_layout_check(session, &again));
    }
    return DLC_OK;
}

/* The net of a test alone, which owns its parameters. */
static dlc_status make_test_args(dlc_session *session, dlc_net_args *args) {
    const dlc_data_setup *test = &session->setup->test;
    DLC_TRY(make_args(session, DLC_PHASE_TEST, test, test->batch, NULL, args));
    args->layers = session->output.needed;
    return DLC_OK;
}

dlc_status dlc_nets_build_test_outline(dlc_session *session, dlc_net **net) {
    dlc_net_args args;
    DLC_TRY(make_test_args(session, &args));
    args.outline = 1;
    return dlc_net_build(&args, net);
}

dlc_status dlc_nets_open_test(dlc_session *session) {
    dlc_net_args args;
    DLC_TRY(make_test_args(session, &args));
    args.boundaries_out = session->output.is_wanted;
    args.boundary_out = &session->output.boundary;
    DLC_TRY(dlc_net_build(&args, &session->test_net));
    DLC_TRY(dlc_memory_check(session));
    return dlc_net_allocate(session->test_net);
}

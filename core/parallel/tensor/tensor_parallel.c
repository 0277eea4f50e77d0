/* Tensor parallelism in a session: which layers are split and how samples and channels
 * are assigned; the p2p channels, checkpoint shards and solver of split layers; padding
 * of tests. */
#include "parallel/tensor/tensor_parallel.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "parallel/pipeline/pipeline.h"
#include "parallel/tensor/planning.h"
#include "plan/batch_chunks.h"
#include "session/session.h"

/* ---- Which layers ---------------------------------------------------------------- */

static dlc_status check_job(const dlc_session *session) {
    if (session->asynchronous)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "consistency '%s' lets ranks be ahead of each other, which ranks that "
            "split a layer cannot be; set parallel = data",
            session->setup->consistency->name);
    if (dlc_solver_needs_whole_tensors(&session->solver))
        return dlc_fail(
            DLC_ERR_CONFIG,
            "solver '%s' needs whole tensors on one rank for %s, and of split layers no "
            "rank has all; set parallel = data, or use another setting or solver",
            session->solver.name, dlc_solver_whole_reason(&session->solver));
    if (session->loss_scale.base)
        return dlc_fail(DLC_ERR_CONFIG, "layers cannot be split with fp16; set "
                                        "[train] precision = bf16, or parallel = data");
    if (session->setup->batch_split.is_auto)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "[parallel] batch_split = auto may change the batch split while it runs, "
            "which split layers do not support; give a list of proportions, or set "
            "parallel = data");
    if (session->pipeline)
        return dlc_fail(DLC_ERR_CONFIG,
                        "layers cannot be split in a pipeline; set parallel = data, or "
                        "remove [parallel] stages");
    return DLC_OK;
}

static void announce(const dlc_session *session) {
    const dlc_graph *graph = session->setup->graph;
    dlc_text names = {0};
    for (int32_t i = 0; i < graph->layers; i++)
        if (session->tensor_parallel.layers[i])
            dlc_text_add(&names, "%s%s", names.length ? ", " : "",
                         graph->layer[i].name);
    if (names.length)
        dlc_info("tensor parallel, split over the ranks by channels: %s",
                 dlc_text_string(&names));
    if (session->tensor_parallel.train.schedule != DLC_TENSOR_WHOLE_BATCH)
        dlc_info("the last of them get the samples of all ranks in batch chunks: %s",
                 dlc_plan_schedule_text(session->tensor_parallel.train.schedule));
    dlc_text_free(&names);
}

static dlc_status assign_samples(dlc_session *session) {
    dlc_tensor_parallel *tensor = &session->tensor_parallel;
    size_t ranks = (size_t)session->ranks;
    tensor->first = dlc_alloc(ranks + 1, sizeof *tensor->first);
    tensor->test_first = dlc_alloc(ranks + 1, sizeof *tensor->test_first);
    if (!tensor->first || !tensor->test_first)
        return DLC_ERR_NOMEM;
    for (size_t r = 0; r < ranks; r++) {
        int64_t offset = 0, count = 0;
        dlc_setup_rank_samples(session->setup, (int32_t)r, &offset, &count);
        if (count == 0)
            return dlc_fail(
                DLC_ERR_CONFIG,
                "rank %d has no samples, so layers cannot be split; give it "
                "samples ([parallel] batch_split), or set parallel = data",
                (int)r);
        tensor->first[r + 1] = offset + count;
        tensor->test_first[r + 1] = (int64_t)(r + 1) * session->setup->test.batch;
    }
    tensor->train = (dlc_net_tensor_parallel){.rank = session->rank,
                                              .ranks = session->ranks,
                                              .layers = tensor->layers,
                                              .first_sample = tensor->first,
                                              .channel_share = tensor->first};
    tensor->test = tensor->train;
    tensor->test.first_sample = tensor->test_first;
    return DLC_OK;
}

/* How many layers set `parallel` to this value. */
static int32_t count_layers(const dlc_session *session, dlc_parallel parallel) {
    const dlc_graph *graph = session->setup->graph;
    int32_t count = 0;
    for (int32_t i = 0; i < graph->layers; i++)
        count += graph->layer[i].parallel == parallel;
    return session->ranks > 1 && !session->setup->data_parallel_only ? count : 0;
}

static int has_open_layers(const dlc_session *session) {
    return !session->is_plan && count_layers(session, DLC_PARALLEL_AUTO) > 0;
}

static const char *schedule_text(const dlc_session *session) {
    return dlc_settings_get_string(session->setup->parallel_settings,
                                   "tensor_schedule");
}

static int has_open_schedule(const dlc_session *session) {
    return !session->is_plan && count_layers(session, DLC_PARALLEL_TENSOR) > 0 &&
           strcmp(schedule_text(session), "auto") == 0;
}

int dlc_tensor_parallel_is_open(const dlc_session *session) {
    return has_open_layers(session) || has_open_schedule(session);
}

/* Lets the planner decide about layers with `parallel = auto`. */
static dlc_status choose_open(dlc_session *session, planning *p) {
    const dlc_graph *graph = session->setup->graph;
    char *chosen = dlc_alloc((size_t)graph->layers, 1);
    if (!chosen)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_tensor_parallel_plan(p, chosen);
    if (status == DLC_OK)
        memcpy(session->tensor_parallel.layers, chosen, (size_t)graph->layers);
    dlc_free(chosen);
    return status;
}

static void count_split(dlc_session *session) {
    const dlc_graph *graph = session->setup->graph;
    dlc_tensor_parallel *tensor = &session->tensor_parallel;
    for (int32_t i = 0; i < graph->layers; i++) {
        tensor->layers[i] |= graph->layer[i].parallel == DLC_PARALLEL_TENSOR;
        tensor->count += tensor->layers[i];
    }
}

/* If the layers were left open, the interconnect has been measured already. */
static dlc_status choose_schedule(dlc_session *session, planning *p) {
    dlc_tensor_parallel *tensor = &session->tensor_parallel;
    const char *text = schedule_text(session);
    dlc_tensor_schedule schedule = DLC_TENSOR_WHOLE_BATCH;
    int is_auto = strcmp(text, "auto") == 0;
    int32_t first = dlc_net_find_chunked_part(session->setup->graph, DLC_PHASE_TRAIN,
                                              tensor->layers);
    while (!is_auto && strcmp(dlc_plan_schedule_text(schedule), text) != 0)
        schedule++;
    if (first < 0 && is_auto)
        dlc_debug("tensor_schedule = auto: whole_batch, because %s", dlc_detail());
    else if (first < 0 && schedule != DLC_TENSOR_WHOLE_BATCH &&
             has_open_layers(session))
        schedule = DLC_TENSOR_WHOLE_BATCH; /* the planner may have split no layer */
    else if (first < 0 && schedule != DLC_TENSOR_WHOLE_BATCH)
        return dlc_fail(
            DLC_ERR_CONFIG, "%s: %s; set tensor_schedule = whole_batch",
            dlc_settings_where(session->setup->parallel_settings, "tensor_schedule"),
            dlc_detail());
    else if (is_auto && !session->is_plan)
        DLC_TRY(dlc_tensor_parallel_plan_schedule(p, first, &schedule));
    tensor->train.schedule = tensor->test.schedule = schedule;
    return DLC_OK;
}

/* Decides all that is open, with the planner's measurements. */
static dlc_status choose_all(dlc_session *session, planning *p) {
    if (has_open_layers(session))
        DLC_TRY(choose_open(session, p));
    count_split(session);
    return session->tensor_parallel.count ? choose_schedule(session, p) : DLC_OK;
}

dlc_status dlc_tensor_parallel_choose(dlc_session *session) {
    dlc_tensor_parallel *tensor = &session->tensor_parallel;
    int demanded = count_layers(session, DLC_PARALLEL_TENSOR) > 0;
    if (!demanded && !has_open_layers(session))
        return DLC_OK;
    tensor->layers = dlc_alloc((size_t)session->setup->graph->layers, 1);
    if (!tensor->layers)
        return DLC_ERR_NOMEM;
    if (check_job(session) != DLC_OK) {
        if (demanded)
            return DLC_ERR_CONFIG;
        if (session->rank == 0)
            dlc_info("parallel = auto: no layer is split (%s)", dlc_detail());
        return DLC_OK;
    }
    DLC_TRY(assign_samples(session));
    planning p = {.session = session};
    if (dlc_tensor_parallel_is_open(session))
        DLC_TRY(dlc_tensor_parallel_planning_open(session, &p));
    dlc_status status = choose_all(session, &p);
    dlc_tensor_parallel_planning_close(&p);
    if (status == DLC_OK && session->rank == 0)
        announce(session);
    return status;
}

const dlc_net_tensor_parallel *dlc_tensor_parallel_net_split(const dlc_session *session,
                                                             dlc_phase phase) {
    if (!session->tensor_parallel.count)
        return NULL;
    return phase == DLC_PHASE_TRAIN ? &session->tensor_parallel.train
                                    : &session->tensor_parallel.test;
}

/* ---- Opening --------------------------------------------------------------------- */

dlc_status dlc_tensor_parallel_open_p2p(dlc_session *session) {
    dlc_tensor_parallel *tensor = &session->tensor_parallel;
    if (!tensor->count)
        return DLC_OK;
    const dlc_comm_args *how = &session->connection.how;
    DLC_TRY(dlc_progress_engine_connect(how, 0, &tensor->engine));
    if (tensor->train.schedule != DLC_TENSOR_WHOLE_BATCH)
        DLC_TRY(dlc_progress_engine_connect(how, dlc_net_max_transfers(session->ranks),
                                            &tensor->chunk_engine));
    tensor->train.reshard_engine = tensor->test.reshard_engine = tensor->engine;
    tensor->train.chunk_engine = tensor->test.chunk_engine = tensor->chunk_engine;
    return DLC_OK;
}

dlc_status dlc_tensor_parallel_open_slots(dlc_session *session) {
    dlc_tensor_parallel *tensor = &session->tensor_parallel;
    return dlc_slots_open(&session->solver, session->device_ops, session->device,
                          dlc_net_sharded_arenas(session->net)->count, tensor->slot);
}

/* ---- Checkpoint shards ----------------------------------------------------------- */

static float *arena_of(const dlc_session *session, int32_t i, int32_t slot) {
    const dlc_net_param *param = dlc_net_param_at(session->net, i);
    if (slot < 0)
        return dlc_net_param_arena(session->net, i);
    return param->is_sharded ? session->tensor_parallel.slot[slot].base
                             : session->slot[slot].base;
}

static dlc_status export_shard(void *context, int32_t i, int32_t slot, float *plain) {
    const dlc_session *session = context;
    return dlc_net_param_export(session->net, i, arena_of(session, i, slot), plain);
}

static dlc_status import_shard(void *context, int32_t i, int32_t slot,
                               const float *plain) {
    const dlc_session *session = context;
    return dlc_net_param_import(session->net, i, plain, arena_of(session, i, slot));
}

dlc_status dlc_tensor_parallel_open_shards(dlc_session *session) {
    const dlc_tensor_parallel *tensor = &session->tensor_parallel;
    int32_t count = dlc_net_params(session->net);
    if (!tensor->count && !session->pipeline)
        return DLC_OK;
    dlc_shard *shard = dlc_alloc((size_t)count, sizeof *shard);
    if (!shard)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < count; i++) {
        const dlc_net_param *param = dlc_net_param_at(session->net, i);
        shard[i].shape = param->whole;
        shard[i].first = param->first;
        shard[i].rows = param->shape.rank > 0 ? param->shape.dims[0] : 1;
        shard[i].order = param->order;
        shard[i].is_buffer = param->is_buffer;
        strncpy(shard[i].name, param->name, DLC_SHARD_NAME - 1);
    }
    dlc_shards_args args = {
        .job = session->job,
        .engine = tensor->count ? tensor->engine : session->pipeline->engine,
        .device_ops = session->device_ops,
        .device = session->device,
        .on_host = (session->setup->device->caps & DLC_DEVICE_HOST) != 0,
        .shard = shard,
        .shards = count,
        .export = export_shard,
        .import = import_shard,
        .context = session};
    dlc_status status = dlc_shards_open(&args, &session->shards);
    dlc_free(shard);
    return status;
}

/* ---- The update ------------------------------------------------------------------ */

dlc_status dlc_tensor_parallel_start(dlc_session *session) {
    dlc_tensor_parallel *tensor = &session->tensor_parallel;
    const dlc_arenas *arenas = dlc_net_sharded_arenas(session->net);
    dlc_update_target target = {.solver = &session->solver,
                                .device_ops = session->device_ops,
                                .device = session->device,
                                .queue = session->queue,
                                .segment = arenas->segment,
                                .segments = arenas->segments,
                                .count = arenas->count};
    float *slots[DLC_MAX_SLOTS] = {0};
    if (!arenas->count)
        return DLC_OK;
    for (int32_t i = 0; i < session->solver.slots; i++)
        slots[i] = tensor->slot[i].base;
    return dlc_local_update_open(&target, arenas->weights, arenas->gradients, slots,
                                 &tensor->update);
}

dlc_status dlc_tensor_parallel_ready(dlc_session *session, int32_t micro_batch) {
    return dlc_local_update_ready(&session->tensor_parallel.update, session->iteration,
                                  micro_batch);
}

dlc_status dlc_tensor_parallel_finish(dlc_session *session) {
    return dlc_local_update_finish(&session->tensor_parallel.update,
                                   session->iteration);
}

/* ---- Tests ----------------------------------------------------------------------- */

/* Runs passes of the test net on samples without labels, which count in no metric. */
static dlc_status pad_passes(dlc_session *session, int64_t passes) {
    const dlc_data_setup *test = &session->setup->test;
    size_t batch = (size_t)test->batch;
    dlc_shape sample;
    DLC_TRY(dlc_setup_sample_shape(test, &sample));
    float *data = dlc_alloc(batch * (size_t)dlc_shape_count(&sample), sizeof *data);
    int32_t *labels = dlc_alloc(batch, sizeof *labels);
    dlc_status status = data && labels ? DLC_OK : DLC_ERR_NOMEM;
    for (size_t i = 0; status == DLC_OK && i < batch; i++)
        labels[i] = DLC_LABEL_NONE;
    if (status == DLC_OK)
        status = dlc_net_set_input(session->test_net, data, labels);
    for (; status == DLC_OK && passes > 0; passes--)
        status = dlc_net_forward(session->test_net, session->iteration, 0);
    if (status == DLC_OK)
        status = dlc_net_sync(session->test_net);
    dlc_free(labels);
    dlc_free(data);
    return status;
}

dlc_status dlc_tensor_parallel_pad_test(dlc_session *session, int64_t batches) {
    int64_t most = batches;
    if (!session->tensor_parallel.engine) /* a test without training splits nothing */
        return DLC_OK;
    int64_t *all = dlc_alloc((size_t)session->ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(session->job, &batches, sizeof batches, all);
    for (int32_t r = 0; status == DLC_OK && r < session->ranks; r++)
        most = all[r] > most ? all[r] : most;
    dlc_free(all);
    return status == DLC_OK && most > batches ? pad_passes(session, most - batches)
                                              : status;
}

void dlc_tensor_parallel_close(dlc_session *session) {
    dlc_tensor_parallel *tensor = &session->tensor_parallel;
    dlc_local_update_close(&tensor->update);
    dlc_slots_close(session->device_ops, session->device, tensor->slot);
    dlc_progress_engine_close(tensor->chunk_engine);
    dlc_progress_engine_close(tensor->engine);
    dlc_free(tensor->layers);
    dlc_free(tensor->first);
    dlc_free(tensor->test_first);
    *tensor = (dlc_tensor_parallel){0};
}

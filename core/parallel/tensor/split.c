/* Tensor parallelism in a session: which layers are split and how samples and channels
 * are assigned; their progress engines; padding of tests. */
#include "parallel/tensor/tensor_parallel.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "checkpoint/shards.h"
#include "parallel/tensor/planning.h"
#include "plan/batch_chunks.h"
#include "setup/setup.h"

/* ---- Which layers ---------------------------------------------------------------- */

static void announce_tensor_layers(const dlc_session *session,
                                   const dlc_tensor_parallel *tensor) {
    const dlc_graph *graph = session->setup->graph;
    dlc_text names = {0};
    for (int32_t i = 0; i < graph->layers; i++)
        if (tensor->layers[i])
            dlc_text_add(&names, "%s%s", names.length ? ", " : "",
                         graph->layer[i].name);
    if (names.length || names.failed)
        dlc_info("tensor parallel, split over %d ranks by channels: %s",
                 (int)session->mesh.tensor, dlc_text_string(&names));
    if (tensor->train.schedule != DLC_TENSOR_WHOLE_BATCH)
        dlc_info("the last of them get the samples of all ranks in batch chunks: %s",
                 dlc_plan_schedule_text(tensor->train.schedule));
    dlc_text_free(&names);
}

/* How many samples a rank puts through the net at once. */
static int64_t samples_of(const dlc_session *session, int32_t rank, dlc_phase phase) {
    int64_t begin, count = session->setup->test.batch;
    int64_t stage = phase == DLC_PHASE_TRAIN ? session->stage_samples.train
                                             : session->stage_samples.test;
    if (stage > 0)
        dlc_mesh_samples(&session->mesh, rank, stage, &begin, &count);
    else if (phase == DLC_PHASE_TRAIN)
        dlc_setup_rank_samples(session->setup, rank, &begin, &count);
    return count;
}

/* Channels are split in proportion to samples, unless several groups have to split them
 * alike. */
static dlc_status assign_samples(const dlc_session *session,
                                 const dlc_tensor_parallel *tensor) {
    const dlc_mesh *mesh = &session->mesh;
    dlc_mesh_group group = dlc_mesh_tensor_group(mesh, session->rank);
    for (int32_t r = 0; r < group.ranks; r++) {
        int32_t rank = group.first + r;
        int64_t count = samples_of(session, rank, DLC_PHASE_TRAIN);
        if (count == 0)
            return dlc_fail(
                DLC_ERR_CONFIG,
                "rank %d has no samples and therefore makes no passes, but each pass of "
                "a split layer needs every rank of its tensor group; give it samples "
                "([parallel] batch_split), or set parallel = data",
                (int)rank);
        tensor->first[r + 1] = tensor->first[r] + count;
        tensor->test_first[r + 1] = tensor->test_first[r] +
                                    samples_of(session, rank, DLC_PHASE_TEST);
        tensor->share[r + 1] = group.ranks < mesh->ranks ? r + 1 : tensor->first[r + 1];
    }
    return DLC_OK;
}

static dlc_status make_group(const dlc_session *session, dlc_tensor_parallel *tensor) {
    dlc_mesh_group group = dlc_mesh_tensor_group(&session->mesh, session->rank);
    size_t edges = (size_t)group.ranks + 1;
    tensor->first = dlc_alloc(edges, sizeof *tensor->first);
    tensor->test_first = dlc_alloc(edges, sizeof *tensor->test_first);
    tensor->share = dlc_alloc(edges, sizeof *tensor->share);
    if (!tensor->first || !tensor->test_first || !tensor->share)
        return DLC_ERR_NOMEM;
    tensor->train = (dlc_net_tensor_parallel){.rank = session->rank - group.first,
                                              .ranks = group.ranks,
                                              .layers = tensor->layers,
                                              .first_sample = tensor->first,
                                              .channel_share = tensor->share};
    tensor->test = tensor->train;
    tensor->test.first_sample = tensor->test_first;
    return assign_samples(session, tensor);
}

/* How many layers set `parallel` to this value. */
static int32_t count_layers_split(const dlc_session *session, dlc_parallel parallel) {
    const dlc_graph *graph = session->setup->graph;
    int32_t count = 0;
    for (int32_t i = 0; i < graph->layers; i++)
        count += graph->layer[i].parallel == parallel;
    return session->ranks > 1 && !session->setup->data_parallel_only ? count : 0;
}

static int has_open_layers(const dlc_session *session) {
    return !session->is_plan && count_layers_split(session, DLC_PARALLEL_AUTO) > 0;
}

static const char *schedule_text(const dlc_session *session) {
    return dlc_settings_get_string(session->setup->parallel_settings,
                                   "tensor_schedule");
}

/* [parallel] tensor is a number, but no layer says that it is to be divided. */
static int is_implied(const dlc_session *session) {
    return session->setup->mesh_sizes.tensor > 1 &&
           count_layers_split(session, DLC_PARALLEL_AUTO) +
                   count_layers_split(session, DLC_PARALLEL_TENSOR) ==
               0;
}

static int is_demanded(const dlc_session *session) {
    return count_layers_split(session, DLC_PARALLEL_TENSOR) > 0 || is_implied(session);
}

/* Is the schedule left open? A pipeline's micro-batches are the chunks already. */
static int has_open_schedule(const dlc_session *session) {
    return is_demanded(session) && session->mesh.pipeline == 1 &&
           dlc_is_auto(schedule_text(session));
}

int dlc_tensor_parallel_needs_connection(const dlc_session *session) {
    return session->mesh.tensor > 1 &&
           (count_layers_split(session, DLC_PARALLEL_AUTO) > 0 ||
            has_open_schedule(session));
}

/* Lets the planner decide about layers with `parallel = auto`. */
static dlc_status choose_open(planning *p) {
    const dlc_graph *graph = p->session->setup->graph;
    char *chosen = dlc_alloc((size_t)graph->layers, 1);
    if (!chosen)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_tensor_parallel_choose_layers(p, chosen);
    if (status == DLC_OK)
        memcpy(p->tensor->layers, chosen, (size_t)graph->layers);
    dlc_free(chosen);
    return status;
}

static void count_split(const dlc_graph *graph, dlc_tensor_parallel *tensor) {
    for (int32_t i = 0; i < graph->layers; i++) {
        tensor->layers[i] |= graph->layer[i].parallel == DLC_PARALLEL_TENSOR;
        tensor->count += tensor->layers[i];
    }
}

/* If the layers were left open, the interconnect has been measured already. */
static dlc_status choose_schedule(planning *p) {
    const dlc_session *session = p->session;
    dlc_tensor_parallel *tensor = p->tensor;
    const char *text = schedule_text(session);
    dlc_tensor_schedule schedule = DLC_TENSOR_WHOLE_BATCH;
    int is_auto = dlc_is_auto(text);
    int32_t first = dlc_net_find_chunked_part(session->setup->graph, DLC_PHASE_TRAIN,
                                              tensor->layers);
    while (!is_auto && strcmp(dlc_plan_schedule_text(schedule), text) != 0)
        schedule++;
    if (session->mesh.pipeline > 1 && is_auto)
        schedule = DLC_TENSOR_WHOLE_BATCH;
    else if (session->mesh.pipeline > 1 && schedule != DLC_TENSOR_WHOLE_BATCH)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "%s: a micro-batch of a pipeline stage is the chunk already; set "
            "tensor_schedule = whole_batch",
            dlc_settings_where(session->setup->parallel_settings, "tensor_schedule"));
    else if (first < 0 && is_auto)
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
static dlc_status choose_all(planning *p) {
    if (p->is_implied)
        dlc_tensor_parallel_choose_by_bytes(p);
    else if (has_open_layers(p->session))
        DLC_TRY(choose_open(p));
    count_split(p->session->setup->graph, p->tensor);
    return p->tensor->count ? choose_schedule(p) : DLC_OK;
}

static dlc_status choose_split(dlc_session *session, dlc_tensor_parallel *tensor) {
    planning p = {.session = session,
                  .tensor = tensor,
                  .is_implied = is_implied(session),
                  .is_measured = has_open_layers(session) ||
                                 (has_open_schedule(session) && !session->is_plan)};
    DLC_TRY(make_group(session, tensor));
    if (p.is_measured || p.is_implied)
        DLC_TRY(dlc_tensor_parallel_planning_open(&p));
    dlc_status status = choose_all(&p);
    dlc_tensor_parallel_planning_close(&p);
    if (status == DLC_OK && session->rank == 0)
        announce_tensor_layers(session, tensor);
    return status;
}

dlc_status dlc_tensor_parallel_plan(dlc_session *session) {
    if (session->mesh.tensor == 1 ||
        (!is_demanded(session) && !has_open_layers(session)))
        return DLC_OK;
    dlc_tensor_parallel *tensor = dlc_alloc(1, sizeof *tensor);
    if (!tensor)
        return DLC_ERR_NOMEM;
    session->tensor = tensor; /* freed when the session is closed */
    tensor->session = session;
    tensor->layers = dlc_alloc((size_t)session->setup->graph->layers, 1);
    if (!tensor->layers)
        return DLC_ERR_NOMEM;
    DLC_TRY(choose_split(session, tensor));
    if (tensor->count > 0) {
        session->rules_out |= DLC_ALLOW_REBALANCE;
        return DLC_OK;
    }
    dlc_tensor_parallel_close(tensor);
    session->tensor = NULL;
    session->mesh.tensor = 1;
    return DLC_OK;
}

dlc_status dlc_tensor_parallel_divide(dlc_tensor_parallel *tensor) {
    return assign_samples(tensor->session, tensor);
}

void dlc_tensor_parallel_shape_net(const dlc_tensor_parallel *tensor,
                                   dlc_net_args *args) {
    args->tensor_parallel = args->phase == DLC_PHASE_TRAIN ? &tensor->train
                                                           : &tensor->test;
    args->shared[DLC_PARAMS_ROWS] = dlc_mesh_data(&tensor->session->mesh) > 1;
}

/* ---- Opening --------------------------------------------------------------------- */

/* The group's messages. */
static dlc_status connect_group(const dlc_session *session, const dlc_comm_args *how,
                                dlc_tensor_parallel *tensor) {
    const dlc_comm_args args = dlc_process_group_args(&tensor->group, how);
    DLC_TRY(dlc_progress_engine_connect(&args, 0, &tensor->engine));
    if (tensor->train.schedule != DLC_TENSOR_WHOLE_BATCH)
        DLC_TRY(dlc_progress_engine_connect(
            &args, dlc_net_max_transfers(session->mesh.tensor), &tensor->chunk_engine));
    tensor->train.reshard_engine = tensor->test.reshard_engine = tensor->engine;
    tensor->train.chunk_engine = tensor->test.chunk_engine = tensor->chunk_engine;
    return DLC_OK;
}

/* The reduction of rows over the groups of a stage that have the same. */
static dlc_status connect_replicas(dlc_session *session, const dlc_comm_args *how,
                                   dlc_tensor_parallel *tensor) {
    dlc_param_set *rows = &session->set[DLC_PARAMS_ROWS];
    DLC_TRY(dlc_process_group_open(session->job,
                                   dlc_mesh_data_group(&session->mesh, session->rank),
                                   &tensor->replicas));
    const dlc_comm_args args = dlc_process_group_args(&tensor->replicas, how);
    DLC_TRY(dlc_comm_open(&args, &tensor->comm));
    rows->comm = tensor->comm;
    rows->replicas = (dlc_replicas){
        .ranks = dlc_mesh_data_group(&session->mesh, session->rank),
        .parts = session->mesh.tensor,
        .how = args,
        .oob = tensor->replicas.oob};
    return dlc_process_group_finish(&tensor->replicas);
}

dlc_status dlc_tensor_parallel_connect(dlc_tensor_parallel *tensor) {
    dlc_session *session = tensor->session;
    const dlc_comm_args *how = &session->connection.how;
    DLC_TRY(dlc_process_group_open(session->job,
                                   dlc_mesh_tensor_group(&session->mesh, session->rank),
                                   &tensor->group));
    DLC_TRY(connect_group(session, how, tensor));
    DLC_TRY(dlc_process_group_finish(&tensor->group));
    if (session->mesh.tensor < session->ranks && session->mesh.pipeline == 1)
        DLC_TRY(dlc_progress_engine_connect(how, 0, &tensor->world_engine));
    session->model_norms.rows = tensor->engine;
    if (session->mesh.pipeline == 1)
        session->model_norms.all = tensor->world_engine ? tensor->world_engine
                                                        : tensor->engine;
    return connect_replicas(session, how, tensor);
}

/* With pipeline stages the shards are open already. */
dlc_status dlc_tensor_parallel_open(dlc_tensor_parallel *tensor) {
    return dlc_shards_open(tensor->session, tensor->world_engine ? tensor->world_engine
                                                                 : tensor->engine);
}

/* Split layers need all ranks in every pass of a test: each makes as many as the rank
 * with the most batches. */
dlc_status dlc_tensor_parallel_count_test_passes(const dlc_tensor_parallel *tensor,
                                                 int64_t *passes) {
    const dlc_session *session = tensor->session;
    int64_t *all = dlc_alloc((size_t)session->ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(session->job, passes, sizeof *passes, all);
    for (int32_t r = 0; status == DLC_OK && r < session->ranks; r++)
        *passes = all[r] > *passes ? all[r] : *passes;
    dlc_free(all);
    return status;
}

double dlc_tensor_parallel_waited(const dlc_tensor_parallel *tensor) {
    return dlc_progress_engine_waited(tensor->engine) +
           dlc_progress_engine_waited(tensor->chunk_engine) +
           dlc_progress_engine_waited(tensor->world_engine);
}

/* A layer that is split processes the samples of all ranks of the group. */
void dlc_tensor_parallel_find_part(const dlc_tensor_parallel *tensor,
                                   dlc_rank_part *part) {
    const dlc_session *session = tensor->session;
    part->is_divided = 1;
    part->ranks = 1;
    part->samples = tensor->first[session->mesh.tensor];
    part->is_counted = session->rank >
                       dlc_mesh_stage_group(&session->mesh, session->rank).first;
}

/* ---- Closing ------------------------------------------------------------------- */

void dlc_tensor_parallel_disconnect(dlc_tensor_parallel *tensor) {
    dlc_shards_close(tensor->session);
    dlc_progress_engine_close(tensor->chunk_engine);
    dlc_progress_engine_close(tensor->engine);
    dlc_progress_engine_close(tensor->world_engine);
    tensor->chunk_engine = tensor->engine = tensor->world_engine = NULL;
    dlc_comm_close(tensor->comm);
    tensor->comm = NULL;
    dlc_process_group_close(&tensor->replicas);
    dlc_process_group_close(&tensor->group);
}

void dlc_tensor_parallel_close(dlc_tensor_parallel *tensor) {
    if (!tensor)
        return;
    dlc_free(tensor->layers);
    dlc_free(tensor->share);
    dlc_free(tensor->first);
    dlc_free(tensor->test_first);
    dlc_free(tensor);
}

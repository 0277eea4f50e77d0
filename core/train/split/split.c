/* See split.h. */
#include "train/split/split.h"

#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "plan/portions.h"
#include "train/checkpoint/run_folder.h"
#include "train/pipeline/pipeline.h"
#include "train/session.h"
#include "train/split/planning.h"

/* ---- Which layers ---------------------------------------------------------------- */

static dlc_status check_job(const dlc_session *session) {
    if (session->asynchronous)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "solver '%s' lets ranks go ahead of each other, which ranks that "
            "share a layer cannot; take parallel = data",
            session->setup->solver->name);
    if (!session->needs.shards)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "solver '%s', as it is set, needs all gradients on one rank, and "
            "of split layers no rank has all; take parallel = data, or leave "
            "out what needs them (clip_gradients)",
            session->setup->solver->name);
    if (session->loss_scale.base)
        return dlc_fail(DLC_ERR_CONFIG,
                        "layers cannot be split in half precision; take "
                        "[train] precision = bf16, or parallel = data");
    if (session->setup->shares.measured)
        return dlc_fail(DLC_ERR_CONFIG,
                        "[parallel] batch_split = auto may change the shares as it goes, which "
                        "split layers cannot follow; give them as a list, or take "
                        "parallel = data");
    if (session->pipeline)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "layers cannot be split in a pipeline; take parallel = data, or "
            "leave out [parallel] stages");
    return DLC_OK;
}

static void announce(const dlc_session *session) {
    const dlc_graph *graph = session->setup->graph;
    dlc_text names = {0};
    for (int32_t i = 0; i < graph->layers; i++)
        if (session->split.layers[i])
            dlc_text_add(&names, "%s%s", names.length ? ", " : "",
                         graph->layer[i].name);
    if (names.length)
        dlc_info("split over the ranks by channels: %s", dlc_text_string(&names));
    if (session->split.train.way != DLC_SPLIT_WHOLE)
        dlc_info("the last of them get the samples of all ranks in portions: %s",
                 dlc_plan_split_way_text(session->split.train.way));
    dlc_text_free(&names);
}

static dlc_status share_samples(dlc_session *session) {
    dlc_split *split = &session->split;
    size_t ranks = (size_t)session->ranks;
    split->first = dlc_alloc(ranks + 1, sizeof *split->first);
    split->test_first = dlc_alloc(ranks + 1, sizeof *split->test_first);
    if (!split->first || !split->test_first)
        return DLC_ERR_NOMEM;
    for (size_t r = 0; r < ranks; r++) {
        int64_t offset = 0, count = 0;
        dlc_setup_share(session->setup, (int32_t)r, &offset, &count);
        if (count == 0)
            return dlc_fail(
                DLC_ERR_CONFIG,
                "rank %d has no samples, so layers cannot be split; give it "
                "a share, or take parallel = data",
                (int)r);
        split->first[r + 1] = offset + count;
        split->test_first[r + 1] = (int64_t)(r + 1) * session->setup->test.batch;
    }
    split->train = (dlc_net_split){.rank = session->rank,
                                   .ranks = session->ranks,
                                   .layers = split->layers,
                                   .first = split->first,
                                   .cut = split->first};
    split->test = split->train;
    split->test.first = split->test_first;
    return DLC_OK;
}

/* How many layers say so. */
static int32_t count_layers(const dlc_session *session, dlc_parallel parallel) {
    const dlc_graph *graph = session->setup->graph;
    int32_t count = 0;
    for (int32_t i = 0; i < graph->layers; i++)
        count += graph->layer[i].parallel == parallel;
    return session->ranks > 1 && !session->setup->unsplit ? count : 0;
}

static int has_open_layers(const dlc_session *session) {
    return !session->is_plan && count_layers(session, DLC_PARALLEL_AUTO) > 0;
}

static const char *way_text(const dlc_session *session) {
    return dlc_settings_get_string(session->setup->parallel_settings, "tensor_schedule");
}

static int has_open_way(const dlc_session *session) {
    return !session->is_plan && count_layers(session, DLC_PARALLEL_MODEL) > 0 &&
           strcmp(way_text(session), "auto") == 0;
}

int dlc_split_is_open(const dlc_session *session) {
    return has_open_layers(session) || has_open_way(session);
}

/* For layers that leave it open. */
static dlc_status choose_open(dlc_session *session, planning *p) {
    const dlc_graph *graph = session->setup->graph;
    char *chosen = dlc_alloc((size_t)graph->layers, 1);
    if (!chosen)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_split_plan(p, chosen);
    if (status == DLC_OK)
        memcpy(session->split.layers, chosen, (size_t)graph->layers);
    dlc_free(chosen);
    return status;
}

static void count_split(dlc_session *session) {
    const dlc_graph *graph = session->setup->graph;
    dlc_split *split = &session->split;
    for (int32_t i = 0; i < graph->layers; i++) {
        split->layers[i] |= graph->layer[i].parallel == DLC_PARALLEL_MODEL;
        split->count += split->layers[i];
    }
}

/* Where it was left open which layers, all is measured anyway. */
static dlc_status choose_way(dlc_session *session, planning *p) {
    dlc_split *split = &session->split;
    const char *text = way_text(session);
    dlc_split_way way = DLC_SPLIT_WHOLE;
    int is_auto = strcmp(text, "auto") == 0;
    int32_t first = dlc_net_find_group(session->setup->graph, DLC_PHASE_TRAIN,
                                       split->layers);
    while (!is_auto && strcmp(dlc_plan_split_way_text(way), text) != 0)
        way++;
    if (first < 0 && is_auto)
        dlc_debug("tensor_schedule = auto: whole_batch, for %s", dlc_detail());
    else if (first < 0 && way != DLC_SPLIT_WHOLE && has_open_layers(session))
        way = DLC_SPLIT_WHOLE; /* the planner may have split nothing */
    else if (first < 0 && way != DLC_SPLIT_WHOLE)
        return dlc_fail(DLC_ERR_CONFIG, "%s: %s; take tensor_schedule = whole_batch",
                        dlc_settings_where(session->setup->parallel_settings, "tensor_schedule"), dlc_detail());
    else if (is_auto && !session->is_plan)
        DLC_TRY(dlc_split_plan_way(p, first, &way));
    split->train.way = split->test.way = way;
    return DLC_OK;
}

/* With what was measured, if anything is open. */
static dlc_status choose_all(dlc_session *session, planning *p) {
    if (has_open_layers(session))
        DLC_TRY(choose_open(session, p));
    count_split(session);
    return session->split.count ? choose_way(session, p) : DLC_OK;
}

dlc_status dlc_split_choose(dlc_session *session) {
    dlc_split *split = &session->split;
    int demanded = count_layers(session, DLC_PARALLEL_MODEL) > 0;
    if (!demanded && !has_open_layers(session))
        return DLC_OK;
    split->layers = dlc_alloc((size_t)session->setup->graph->layers, 1);
    if (!split->layers)
        return DLC_ERR_NOMEM;
    if (check_job(session) != DLC_OK) {
        if (demanded)
            return DLC_ERR_CONFIG;
        if (session->rank == 0)
            dlc_info("parallel = auto: no layer is split (%s)", dlc_detail());
        return DLC_OK;
    }
    DLC_TRY(share_samples(session));
    planning p = {.session = session};
    if (dlc_split_is_open(session))
        DLC_TRY(dlc_split_planning_open(session, &p));
    dlc_status status = choose_all(session, &p);
    dlc_split_planning_close(&p);
    if (status == DLC_OK && session->rank == 0)
        announce(session);
    return status;
}

const dlc_net_split *dlc_split_of(const dlc_session *session, dlc_phase phase) {
    if (!session->split.count)
        return NULL;
    return phase == DLC_PHASE_TRAIN ? &session->split.train : &session->split.test;
}

/* ---- Opening --------------------------------------------------------------------- */

dlc_status dlc_split_open_mail(dlc_session *session) {
    dlc_split *split = &session->split;
    if (!split->count)
        return DLC_OK;
    DLC_TRY(dlc_mailbox_open(&session->connection.how, &split->mail));
    split->train.mail = split->test.mail = dlc_mailbox_table(split->mail);
    if (split->train.way == DLC_SPLIT_WHOLE)
        return DLC_OK;
    DLC_TRY(dlc_mailbox_open(&session->connection.how, &split->ahead));
    DLC_TRY(dlc_courier_open(dlc_mailbox_table(split->ahead),
                             dlc_net_parcels(session->ranks), &split->courier));
    split->train.courier = split->test.courier = split->courier;
    return DLC_OK;
}

dlc_status dlc_split_open_slots(dlc_session *session) {
    dlc_split *split = &session->split;
    size_t bytes = dlc_net_split_arenas(session->net)->count * sizeof(float);
    for (int32_t i = 0; bytes > 0 && i < session->needs.slots; i++) {
        split->slot[i] = (dlc_memory){.size = sizeof split->slot[i]};
        DLC_TRY(session->device_ops->alloc(session->device, bytes, 0, &split->slot[i]));
    }
    return DLC_OK;
}

/* ---- Pieces ---------------------------------------------------------------------- */

static float *arena_of(const dlc_session *session, int32_t i, int32_t slot) {
    const dlc_net_param *param = dlc_net_param_at(session->net, i);
    if (slot < 0)
        return dlc_net_param_arena(session->net, i);
    return param->is_split ? session->split.slot[slot].base : session->slot[slot].base;
}

static dlc_status export_piece(void *context, int32_t i, int32_t slot, float *plain) {
    const dlc_session *session = context;
    return dlc_net_param_export(session->net, i, arena_of(session, i, slot), plain);
}

static dlc_status import_piece(void *context, int32_t i, int32_t slot,
                               const float *plain) {
    const dlc_session *session = context;
    return dlc_net_param_import(session->net, i, plain, arena_of(session, i, slot));
}

dlc_status dlc_split_open_pieces(dlc_session *session) {
    const dlc_split *split = &session->split;
    int32_t count = dlc_net_params(session->net);
    if (!split->count && !session->pipeline)
        return DLC_OK;
    dlc_piece *piece = dlc_alloc((size_t)count, sizeof *piece);
    if (!piece)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < count; i++) {
        const dlc_net_param *param = dlc_net_param_at(session->net, i);
        piece[i].shape = param->whole;
        piece[i].first = param->first;
        piece[i].rows = param->shape.rank > 0 ? param->shape.dims[0] : 1;
        piece[i].order = param->order;
        piece[i].is_buffer = param->is_buffer;
        strncpy(piece[i].name, param->name, DLC_PIECE_NAME - 1);
    }
    dlc_pieces_args args = {
        .job = session->job,
        .mail = split->count ? split->train.mail : dlc_pipeline_mail(session),
        .device_ops = session->device_ops,
        .device = session->device,
        .on_host = (session->setup->device->caps & DLC_DEVICE_HOST) != 0,
        .piece = piece,
        .pieces = count,
        .export = export_piece,
        .import = import_piece,
        .context = session};
    dlc_status status = dlc_pieces_open(&args, &session->pieces);
    dlc_free(piece);
    return status;
}

/* ---- The solver ------------------------------------------------------------------ */

static dlc_status nothing_to_exchange(void *context, int32_t bucket) {
    (void)context;
    (void)bucket;
    return DLC_OK;
}

dlc_status dlc_split_start(dlc_session *session) {
    dlc_split *split = &session->split;
    const dlc_arenas *arenas = dlc_net_split_arenas(session->net);
    if (!arenas->count)
        return DLC_OK;
    split->border[1] = arenas->count;
    split->exchange = (dlc_exchange){.size = sizeof split->exchange,
                                     .ranks = 1,
                                     .buckets = 1,
                                     .bucket_begin = split->border,
                                     .start = nothing_to_exchange,
                                     .wait = nothing_to_exchange};
    dlc_solver_args args = {.size = sizeof args,
                            .settings = session->setup->solver_settings,
                            .device_ops = session->device_ops,
                            .device = session->device,
                            .queue = session->queue,
                            .count = arenas->count,
                            .weights = arenas->weights,
                            .gradients = arenas->gradients,
                            .segments = arenas->segments,
                            .segment = arenas->segment,
                            .exchange = &split->exchange,
                            .max_iterations = session->max_iterations,
                            .epoch_iterations = session->epoch_iterations,
                            .iteration = session->iteration,
                            .schedule = dlc_run_folder_schedule(session->run_folder)};
    for (int32_t i = 0; i < session->needs.slots; i++)
        args.slots[i] = split->slot[i].base;
    DLC_TRY(session->solver_ops->create(&args, &split->solver));
    if (session->saved)
        DLC_TRY(session->solver_ops->load(split->solver, session->saved,
                                          session->saved_bytes));
    return DLC_OK;
}

dlc_status dlc_split_ready(dlc_session *session, int32_t micro) {
    if (!session->split.solver)
        return DLC_OK;
    return session->solver_ops->ready(session->split.solver, session->iteration, micro,
                                      0);
}

dlc_status dlc_split_finish(dlc_session *session) {
    if (!session->split.solver)
        return DLC_OK;
    return session->solver_ops->finish(session->split.solver, session->iteration);
}

/* ---- Tests ----------------------------------------------------------------------- */

/* Samples that count nowhere. */
static dlc_status pass_along(dlc_session *session, int64_t passes) {
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

dlc_status dlc_split_test_on(dlc_session *session, int64_t batches) {
    int64_t most = batches;
    if (!session->split.mail) /* a test by itself splits nothing */
        return DLC_OK;
    int64_t *all = dlc_alloc((size_t)session->ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_allgather(session->job, &batches, sizeof batches, all);
    for (int32_t r = 0; status == DLC_OK && r < session->ranks; r++)
        most = all[r] > most ? all[r] : most;
    dlc_free(all);
    return status == DLC_OK && most > batches ? pass_along(session, most - batches)
                                              : status;
}

void dlc_split_close(dlc_session *session) {
    dlc_split *split = &session->split;
    if (split->solver)
        session->solver_ops->destroy(split->solver);
    for (int32_t i = 0; i < DLC_MAX_SLOTS; i++)
        if (split->slot[i].base)
            session->device_ops->free(session->device, &split->slot[i]);
    dlc_mailbox_cancel(split->ahead);
    dlc_courier_close(split->courier);
    dlc_mailbox_close(split->ahead);
    dlc_mailbox_close(split->mail);
    dlc_free(split->layers);
    dlc_free(split->first);
    dlc_free(split->test_first);
    *split = (dlc_split){0};
}

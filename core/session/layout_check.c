/* Finds out a parameter's layout by importing a ramp of numbers and hashing where each
 * of them ends up. */
#include "session/layout_check.h"

#include <string.h>
#include <xxhash.h>

#include "base/log.h"
#include "base/memory.h"
#include "session/digest.h"

/* What a rank says about a parameter. */
typedef struct answer {
    uint64_t which;  /* digest of its name, shape and rows: equal where it is reduced */
    uint64_t layout; /* digest of where its elements are; 0: it is not reduced */
} answer;

/* Whole parameters are reduced over all ranks, rows over those that have the same. */
static int is_reduced(const dlc_session *session, const dlc_net_param *param) {
    return param->set == DLC_PARAMS_WHOLE ||
           dlc_mesh_data_group(&session->mesh, session->rank).ranks > 1;
}

static uint64_t digest_name(const dlc_net_param *param) {
    uint64_t digest = XXH64(param->name, strlen(param->name), (uint64_t)param->first);
    return XXH64(param->shape.dims,
                 (size_t)param->shape.rank * sizeof param->shape.dims[0], digest);
}

/* ---- Digests --------------------------------------------------------------------- */

static void fill_ramp(float *plain, size_t count) {
    enum { EXACT = 1 << 24 }; /* integers up to this are exact in float32 */
    for (size_t i = 0; i < count; i++)
        plain[i] = (float)(i % EXACT + 1);
}

/* Imports the ramp where the parameter's gradient is, and clears it. */
static dlc_status ramp_in_gradient(const dlc_session *session, int32_t i,
                                   const float *ramp, uint64_t *digest) {
    const dlc_net_param *param = dlc_net_param_at(session->net, i);
    float *arena = dlc_net_arenas_of(session->net, param->set)->gradients;
    dlc_status status = dlc_net_param_import(session->net, i, ramp, arena);
    if (status == DLC_OK)
        status = dlc_digest_floats(session, arena + param->offset, param->count,
                                   digest);
    dlc_status cleared = session->device_ops->fill(
        session->device, NULL, arena + param->offset, 0, param->count * sizeof *arena);
    return status == DLC_OK ? cleared : status;
}

/* A frozen parameter has no gradient: its own values make way for the ramp. */
static dlc_status ramp_in_values(const dlc_session *session, int32_t i,
                                 const float *ramp, uint64_t *digest) {
    const dlc_net_param *param = dlc_net_param_at(session->net, i);
    float *arena = dlc_net_param_arena(session->net, i);
    float *values = dlc_alloc((size_t)dlc_shape_count(&param->shape), sizeof *values);
    if (!values)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_net_param_export(session->net, i, arena, values);
    if (status == DLC_OK)
        status = dlc_net_param_import(session->net, i, ramp, arena);
    if (status == DLC_OK)
        status = dlc_digest_floats(session, arena + param->offset, param->count,
                                   digest);
    if (status == DLC_OK)
        status = dlc_net_param_import(session->net, i, values, arena);
    dlc_free(values);
    return status;
}

static dlc_status digest_ramp(const dlc_session *session, int32_t i, uint64_t *digest) {
    const dlc_net_param *param = dlc_net_param_at(session->net, i);
    size_t count = (size_t)dlc_shape_count(&param->shape);
    float *ramp = dlc_alloc(count, sizeof *ramp);
    if (!ramp)
        return DLC_ERR_NOMEM;
    fill_ramp(ramp, count);
    dlc_status status = param->is_frozen ? ramp_in_values(session, i, ramp, digest)
                                         : ramp_in_gradient(session, i, ramp, digest);
    dlc_free(ramp);
    return status;
}

static dlc_status digest_layout(const dlc_session *session, int32_t i,
                                uint64_t *digest) {
    const dlc_net_param *param = dlc_net_param_at(session->net, i);
    const uint64_t place[] = {param->offset, param->count};
    *digest = 0;
    if (!is_reduced(session, param))
        return DLC_OK;
    /* Offsets follow from the counts of earlier parameters, so only the count is
     * hashed. */
    *digest = XXH64(&place[1], sizeof place[1], 0);
    /* A vector has only one possible layout. */
    return param->shape.rank < 2 || param->is_average ? DLC_OK
                                                      : digest_ramp(session, i, digest);
}

static dlc_status answer_all(const dlc_session *session, answer *mine) {
    for (int32_t i = 0; i < dlc_net_params(session->net); i++) {
        mine[i].which = digest_name(dlc_net_param_at(session->net, i));
        DLC_TRY(digest_layout(session, i, &mine[i].layout));
    }
    return DLC_OK;
}

/* ---- Comparing ------------------------------------------------------------------- */

/* What all ranks said: `most` answers of each, of which the last may be empty. */
typedef struct answers {
    answer *answer;
    int64_t most;
} answers;

static dlc_status find_most(const dlc_session *session, int64_t *most) {
    int64_t mine = dlc_net_params(session->net);
    int64_t *all = dlc_alloc((size_t)session->ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(session->job, &mine, sizeof mine, all);
    for (int32_t r = 0; status == DLC_OK && r < session->ranks; r++)
        *most = all[r] > *most ? all[r] : *most;
    dlc_free(all);
    return status;
}

static dlc_status gather_layouts(const dlc_session *session, answers *all) {
    DLC_TRY(find_most(session, &all->most));
    size_t capacity = (size_t)all->most;
    answer *mine = dlc_alloc(capacity, sizeof *mine);
    all->answer = dlc_alloc(capacity * (size_t)session->ranks, sizeof *all->answer);
    dlc_status status = mine && all->answer ? answer_all(session, mine) : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = dlc_job_all_gather(session->job, mine, capacity * sizeof *mine,
                                    all->answer);
    dlc_free(mine);
    return status;
}

static const answer *answer_of(const answers *all, int32_t r, int64_t i) {
    return &all->answer[r * all->most + i];
}

/* Names of parameters are "layer.parameter". */
static int32_t layer_of_param(const dlc_session *session, int32_t i) {
    const char *name = dlc_net_param_at(session->net, i)->name;
    return dlc_graph_layer_named_part(session->setup->graph, name,
                                      (size_t)(strrchr(name, '.') - name));
}

/* Does rank r lay out parameter i differently from the first rank that has it? */
static int layout_differs(const answers *all, int32_t r, int64_t i) {
    const answer *its = answer_of(all, r, i);
    int32_t first = 0;
    while (answer_of(all, first, i)->which != its->which)
        first++;
    return answer_of(all, first, i)->layout != its->layout;
}

static dlc_status fail_layout(const dlc_session *session, int32_t rank, int32_t i,
                              int is_mine) {
    return dlc_fail(
        DLC_ERR_PLUGIN,
        "rank %d lays out parameter %s differently from lower ranks, although "
        "its layer was told to keep it plain; train on equal machines with "
        "equal batches, or with another layers plugin",
        (int)rank, is_mine ? dlc_net_param_at(session->net, i)->name : "of a layer");
}

/* Marks layers whose parameters must be plain; *unlike: there are some on any rank. */
static dlc_status compare_layouts(const dlc_session *session, const answers *all,
                                  int is_last, int *differs) {
    for (int32_t r = 0; r < session->ranks; r++)
        for (int32_t i = 0; i < all->most; i++) {
            if (!layout_differs(all, r, i))
                continue;
            int is_mine = answer_of(all, session->rank, i)->which ==
                          answer_of(all, r, i)->which;
            *differs = 1;
            if (is_last)
                return fail_layout(session, r, i, is_mine);
            if (is_mine)
                session->plain[layer_of_param(session, i)] = 1;
        }
    return DLC_OK;
}

static void announce_plain_layers(const dlc_session *session) {
    const dlc_graph *graph = session->setup->graph;
    dlc_text names = {0};
    for (int32_t i = 0; i < graph->layers; i++)
        if (session->plain[i])
            dlc_text_add(&names, "%s%s", names.length ? ", " : "",
                         graph->layer[i].name);
    if (names.length || names.failed)
        dlc_info(
            "the ranks would lay out parameters differently, because their batches "
            "or machines differ; parameters of these layers stay plain: %s",
            dlc_text_string(&names));
    dlc_text_free(&names);
}

dlc_status dlc_layout_check(dlc_session *session, int *rebuild) {
    int is_last = session->plain != NULL, differs = 0;
    answers all = {0};
    *rebuild = 0;
    if (session->ranks == 1)
        return DLC_OK;
    if (!is_last &&
        !(session->plain = dlc_alloc((size_t)session->setup->graph->layers, 1)))
        return DLC_ERR_NOMEM;
    dlc_status status = gather_layouts(session, &all);
    if (status == DLC_OK)
        status = compare_layouts(session, &all, is_last, &differs);
    dlc_free(all.answer);
    if (status == DLC_OK && differs && session->rank == 0)
        announce_plain_layers(session);
    *rebuild = differs;
    return status;
}

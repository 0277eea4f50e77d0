/* Compares what several ranks hold, in two steps: one digest for each group of ranks
 * always, and a digest for each tensor once these differ. */
#include "session/digest.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "session/loss_scale.h"

/* What is compared over the same ranks: a set of parameters, or values that all ranks
 * have. */
enum { PART_JOB = DLC_PARAM_SETS, PARTS };

/* The items of PART_JOB. */
enum { ITEM_RATE, ITEM_SCALE, JOB_ITEMS };

/* What a rank says first. */
typedef struct summary {
    uint64_t part[PARTS];
    int64_t items; /* of all its parts */
} summary;

/* Where ranks differ. */
typedef struct difference {
    int32_t part;
    dlc_mesh_group ranks; /* that must not */
    int64_t item;         /* the first that differs */
    int64_t others;       /* further items that do */
} difference;

/* ---- Digests --------------------------------------------------------------------- */

dlc_status dlc_digest_floats(const dlc_session *session, const float *at, size_t count,
                             uint64_t *digest) {
    enum { CHUNK = 1 << 20 };
    int on_host = (session->setup->device->caps & DLC_DEVICE_HOST) != 0;
    size_t room = count < CHUNK ? count : CHUNK;
    float *copy = on_host ? NULL : dlc_alloc(room, sizeof *copy);
    dlc_status status = on_host || copy ? DLC_OK : DLC_ERR_NOMEM;
    for (size_t begin = 0; status == DLC_OK && begin < count; begin += room) {
        size_t left = count - begin, bytes = (left < room ? left : room) * sizeof *at;
        if (!on_host)
            status = session->device_ops->copy(session->device, NULL, copy, at + begin,
                                               bytes);
        if (status == DLC_OK)
            *digest = XXH64(on_host ? at + begin : copy, bytes, *digest);
    }
    dlc_free(copy);
    return status;
}

static uint64_t digest_text(const char *text) {
    return XXH64(text, strlen(text), 0);
}

/* With the learning rate, all of what it depends on beside the settings. */
static uint64_t digest_rate(const dlc_session *session) {
    char plateau[DLC_LR_PLATEAU_TEXT], text[DLC_LR_PLATEAU_TEXT + 64];
    dlc_lr_plateau_print(&session->solver.plateau, plateau);
    (void)snprintf(text, sizeof text, "%" PRId64 " %a %s", session->iteration,
                   dlc_solver_learning_rate(&session->solver, session->iteration),
                   plateau);
    return digest_text(text);
}

static dlc_status digest_scale(const dlc_session *session, uint64_t *digest) {
    dlc_loss_scale scale;
    char text[DLC_LOSS_SCALE_TEXT];
    if (!session->loss_scale.base || session->needs.allows_skew)
        return DLC_OK;
    DLC_TRY(dlc_loss_scale_read(session->device_ops, session->device,
                                &session->loss_scale, &scale));
    dlc_loss_scale_print(&scale, text);
    *digest = digest_text(text);
    return DLC_OK;
}

/* ---- Items ----------------------------------------------------------------------- */

/* Each parameter has as many items: its values, and the states of the solver. */
static int32_t items_each(const dlc_session *session) {
    return 1 + dlc_solver_states(&session->solver);
}

static int64_t items_of(const dlc_session *session) {
    return JOB_ITEMS + (int64_t)dlc_net_params(session->net) * items_each(session);
}

/* Must other ranks have the same values of this parameter? */
static int is_shared(const dlc_net_param *param, dlc_digest_of what) {
    int is_own = param->is_average && !param->is_frozen; /* of a rank's samples */
    return what == DLC_DIGEST_AVERAGES ? is_own && param->set == DLC_PARAMS_WHOLE
                                       : !is_own || param->is_common;
}

/* Must other ranks have the same solver states of it? Not where each rank has a shard
 * of them, or makes steps of its own. */
static int has_states(const dlc_session *session, const dlc_net_param *param) {
    const dlc_param_set *set = &session->set[param->set];
    return !param->is_buffer && !session->needs.allows_skew &&
           !dlc_exchanger_table(set->exchanger)->shard_begin;
}

static dlc_status digest_values(const dlc_session *session, int32_t i,
                                uint64_t *digest) {
    const dlc_net_param *param = dlc_net_param_at(session->net, i);
    const dlc_memory *slot = session->set[param->set].slot;
    const float *values = dlc_net_param_arena(session->net, i);
    DLC_TRY(dlc_digest_floats(session, values + param->offset, param->count, digest));
    for (int32_t s = 1; s < items_each(session) && has_states(session, param); s++)
        DLC_TRY(dlc_digest_floats(session,
                                  (const float *)slot[s - 1].base + param->offset,
                                  param->count, &digest[s]));
    return DLC_OK;
}

/* The digest of each item; those that nobody else has stay 0. */
static dlc_status digest_items(const dlc_session *session, dlc_digest_of what,
                               uint64_t *item) {
    DLC_TRY(dlc_net_sync(session->net));
    item[ITEM_RATE] = digest_rate(session);
    DLC_TRY(digest_scale(session, &item[ITEM_SCALE]));
    for (int32_t i = 0; i < dlc_net_params(session->net); i++)
        if (is_shared(dlc_net_param_at(session->net, i), what))
            DLC_TRY(
                digest_values(session, i, &item[JOB_ITEMS + i * items_each(session)]));
    return DLC_OK;
}

static int32_t part_of(const dlc_session *session, int64_t item) {
    int64_t param = (item - JOB_ITEMS) / items_each(session);
    return item < JOB_ITEMS ? PART_JOB
                            : dlc_net_param_at(session->net, (int32_t)param)->set;
}

static summary sum_up(const dlc_session *session, const uint64_t *item) {
    summary made = {.items = items_of(session)};
    for (int64_t k = 0; k < made.items; k++) {
        uint64_t *part = &made.part[part_of(session, k)];
        *part = XXH64(&item[k], sizeof item[k], *part);
    }
    return made;
}

static void name_item(const dlc_session *session, int64_t item, char *name,
                      size_t room) {
    int32_t each = items_each(session);
    int64_t at = item - JOB_ITEMS;
    if (item < JOB_ITEMS) {
        (void)snprintf(name, room, "%s",
                       item == ITEM_RATE ? "learning rate" : "loss scale");
        return;
    }
    const char *param = dlc_net_param_at(session->net, (int32_t)(at / each))->name;
    int32_t state = (int32_t)(at % each) - 1;
    (void)snprintf(
        name, room, "%s of '%s'",
        state < 0 ? "values" : dlc_solver_state_name(&session->solver, state), param);
}

/* ---- Comparing ------------------------------------------------------------------- */

static dlc_mesh_group group_with_values(const dlc_session *session, int32_t rank,
                                        int32_t part) {
    if (part == PART_JOB)
        return (dlc_mesh_group){.stride = 1, .ranks = session->ranks};
    return part == DLC_PARAMS_ROWS ? dlc_mesh_data_group(&session->mesh, rank)
                                   : dlc_mesh_stage_group(&session->mesh, rank);
}

static int32_t member(const dlc_mesh_group *group, int32_t i) {
    return group->first + i * group->stride;
}

/* Returns 1, and the first group whose ranks differ. */
static int find_unlike_part(const dlc_session *session, const summary *all,
                            difference *found) {
    for (int32_t r = 0; r < session->ranks; r++)
        for (int32_t p = 0; p < PARTS; p++) {
            dlc_mesh_group group = group_with_values(session, r, p);
            if (all[r].part[p] == all[group.first].part[p])
                continue;
            *found = (difference){.part = p, .ranks = group};
            return 1;
        }
    return 0;
}

/* Counts the ranks of the group that have the same digest as member `i`. */
static int32_t count_like(const dlc_mesh_group *group, const uint64_t *digest,
                          int32_t i) {
    int32_t count = 0;
    for (int32_t j = 0; j < group->ranks; j++)
        count += digest[member(group, j)] == digest[member(group, i)];
    return count;
}

/* digest: of the item, of each rank. Lists the ranks that most do not agree with, or
 * all where there is no majority. */
static dlc_status fail(const dlc_session *session, const difference *found,
                       const uint64_t *digest, const char *name) {
    const dlc_mesh_group *group = &found->ranks;
    dlc_text ranks = {0}, more = {0};
    int32_t listed = 0, majority = 0;
    for (int32_t i = 0; i < group->ranks; i++)
        majority |= 2 * count_like(group, digest, i) > group->ranks;
    for (int32_t i = 0; i < group->ranks; i++) {
        if (majority && 2 * count_like(group, digest, i) > group->ranks)
            continue;
        const dlc_rank_info *info = dlc_job_rank_info(session->job, member(group, i));
        dlc_text_add(&ranks, "%s%d (host %s)", listed++ ? ", " : "",
                     (int)member(group, i), info->host);
    }
    if (found->others)
        dlc_text_add(&more, " (and %" PRId64 " other tensor%s)", found->others,
                     found->others > 1 ? "s" : "");
    const char *plural = listed > 1 ? "s" : "", *have = listed > 1 ? "have" : "has";
    const dlc_setup *setup = session->setup;
    dlc_status status = dlc_fail(
        DLC_ERR_INTERNAL,
        "rank%s %s %s drifted %s: after iteration %" PRId64 " the %s%s differ%s, "
        "although all bits must be the same. Transport '%s', solver '%s', consistency "
        "'%s' or the memory of a machine has changed them; dlcore plugin check tests "
        "plugins. These weights are not saved, and the checkpoints that exist were "
        "compared before they were written",
        plural, dlc_text_string(&ranks), have,
        majority ? "away from the other ranks" : "apart", session->iteration, name,
        dlc_text_string(&more), strncmp(name, "values", 6) == 0 ? "" : "s",
        session->connection.transport, setup->solver->name, setup->consistency->name);
    dlc_text_free(&ranks);
    dlc_text_free(&more);
    return status;
}

/* Finds the items that differ; all: `most` of each rank. */
static void find_items(const uint64_t *all, int64_t most, difference *found) {
    const dlc_mesh_group *group = &found->ranks;
    int64_t differ = 0;
    for (int64_t k = most - 1; k >= 0; k--) {
        int differs = 0;
        for (int32_t i = 1; i < group->ranks; i++)
            differs |= all[member(group, i) * most + k] != all[group->first * most + k];
        if (differs)
            found->item = k;
        differ += differs;
    }
    found->others = differ - 1;
}

/* Collective. The ranks differ: says which, and in what. */
static dlc_status explain(dlc_session *session, const uint64_t *item, int64_t most,
                          difference *found) {
    enum { NAME = 192 };
    char name[NAME] = "";
    uint64_t *mine = dlc_alloc((size_t)most, sizeof *mine);
    uint64_t *all = dlc_alloc((size_t)most * (size_t)session->ranks, sizeof *all);
    uint64_t *digest = dlc_alloc((size_t)session->ranks, sizeof *digest);
    dlc_status status = mine && all && digest ? DLC_OK : DLC_ERR_NOMEM;
    for (int64_t k = 0; status == DLC_OK && k < items_of(session); k++)
        if (part_of(session, k) == found->part)
            mine[k] = item[k];
    if (status == DLC_OK)
        status = dlc_job_all_gather(session->job, mine, (size_t)most * sizeof *mine,
                                    all);
    if (status == DLC_OK) {
        find_items(all, most, found);
        for (int32_t r = 0; r < session->ranks; r++)
            digest[r] = all[r * most + found->item];
        if (session->rank == found->ranks.first)
            name_item(session, found->item, name, sizeof name);
        status = dlc_job_broadcast(session->job, found->ranks.first, name, sizeof name);
    }
    if (status == DLC_OK)
        status = fail(session, found, digest, name);
    dlc_free(digest);
    dlc_free(all);
    dlc_free(mine);
    return status;
}

static dlc_status compare_digests(dlc_session *session, const uint64_t *item,
                                  summary *all) {
    const summary mine = sum_up(session, item);
    difference found;
    int64_t most = 0;
    DLC_TRY(dlc_job_all_gather(session->job, &mine, sizeof mine, all));
    for (int32_t r = 0; r < session->ranks; r++)
        most = all[r].items > most ? all[r].items : most;
    return find_unlike_part(session, all, &found) ? explain(session, item, most, &found)
                                                  : DLC_OK;
}

dlc_status dlc_digest_compare(dlc_session *session, dlc_digest_of what) {
    if (session->ranks == 1)
        return DLC_OK;
    uint64_t began = dlc_now_ns();
    uint64_t *item = dlc_alloc((size_t)items_of(session), sizeof *item);
    summary *all = dlc_alloc((size_t)session->ranks, sizeof *all);
    dlc_status status = item && all ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = digest_items(session, what, item);
    if (status == DLC_OK)
        status = compare_digests(session, item, all);
    if (status == DLC_OK)
        dlc_debug("compared with the other ranks in %.1f ms", dlc_since(began) * 1e3);
    dlc_free(all);
    dlc_free(item);
    return status;
}

/* Forms the teams of each level from domains. */
#include "comm/levels.h"

#include "base/memory.h"
#include "base/status.h"
#include "comm/nodes.h"

int dlc_levels_same_domain(const dlc_rank_info *a, const dlc_rank_info *b,
                           dlc_domain_level level) {
    if (level == DLC_DOMAIN_JOB)
        return 1;
    if (level == DLC_DOMAIN_RACK)
        return a->domain[level] == b->domain[level];
    return a->node == b->node &&
           (level == DLC_DOMAIN_MACHINE || a->domain[level] == b->domain[level]);
}

/* ---- Making ------------------------------------------------------------------ */

/* What the levels below leave to a rank. */
typedef struct part {
    int32_t shard; /* number of its part of the domain's buffer */
    int goes_on;   /* it takes part in further levels */
} part;

static dlc_status allocate(dlc_levels *l) {
    size_t count = (size_t)l->ranks;
    l->order = dlc_alloc(count, sizeof *l->order);
    int complete = l->order != NULL;
    for (int32_t i = 0; i < l->levels; i++) {
        dlc_level *level = &l->level[i];
        level->team = dlc_alloc(count, sizeof *level->team);
        level->position = dlc_alloc(count, sizeof *level->position);
        level->size = dlc_alloc(count, sizeof *level->size);
        level->leads = dlc_alloc(count, sizeof *level->leads);
        complete &= level->team && level->position && level->size && level->leads;
    }
    return complete ? DLC_OK : DLC_ERR_NOMEM;
}

/* Puts a rank into the team of the first rank with the same part, or a team of its own.
 */
static void join(const dlc_levels *l, const dlc_rank_info *rank_info, const part *parts,
                 dlc_domain_level within, dlc_level *level, int32_t i) {
    int32_t r = l->order[i];
    level->team[r] = r;
    level->size[r] = 1;
    level->position[r] = 0;
    for (int32_t k = 0; k < i; k++) {
        int32_t first = l->order[k];
        if (level->team[first] != first || parts[first].shard != parts[r].shard ||
            !dlc_levels_same_domain(&rank_info[first], &rank_info[r], within))
            continue;
        level->team[r] = first;
        level->position[r] = level->size[first]++;
        return;
    }
}

static void form_teams(const dlc_levels *l, const dlc_rank_info *rank_info,
                       dlc_domain_level within, dlc_level *level, part *parts) {
    int32_t size = 0;
    level->even = 1;
    for (int32_t i = 0; i < l->ranks; i++) {
        int32_t r = l->order[i];
        level->team[r] = -1;
        level->leads[r] = parts[r].goes_on && parts[r].shard == 0;
        if (parts[r].goes_on)
            join(l, rank_info, parts, within, level, i);
    }
    for (int32_t r = 0; r < l->ranks; r++) {
        if (level->team[r] < 0)
            continue;
        level->size[r] = level->size[level->team[r]];
        level->even &= size == 0 || level->size[r] == size;
        size = level->size[r];
    }
    for (int32_t r = 0; r < l->ranks; r++) {
        if (level->team[r] < 0)
            continue;
        if (level->even)
            parts[r].shard = parts[r].shard * size + level->position[r];
        else
            parts[r].goes_on = level->position[r] == 0;
    }
}

dlc_status dlc_levels_make(const dlc_rank_info *rank_info, int32_t ranks,
                           const dlc_domain_level *within, int32_t levels,
                           dlc_levels *made) {
    dlc_levels l = {.ranks = ranks, .levels = levels};
    if (levels < 1 || levels > DLC_COMM_LEVELS || within[levels - 1] != DLC_DOMAIN_JOB)
        return dlc_fail(DLC_ERR_INTERNAL, "%d levels do not end with all ranks",
                        (int)levels);
    part *parts = dlc_alloc((size_t)ranks, sizeof *parts);
    dlc_status status = parts ? allocate(&l) : DLC_ERR_NOMEM;
    if (status != DLC_OK) {
        dlc_levels_free(&l);
        dlc_free(parts);
        return status;
    }
    for (int32_t r = 0; r < ranks; r++)
        parts[r] = (part){.goes_on = 1};
    dlc_nodes_sort(rank_info, ranks, l.order);
    for (int32_t i = 0; i < levels; i++)
        form_teams(&l, rank_info, within[i], &l.level[i], parts);
    dlc_free(parts);
    *made = l;
    return DLC_OK;
}

void dlc_levels_free(dlc_levels *levels) {
    for (int32_t i = 0; i < levels->levels; i++) {
        dlc_free(levels->level[i].leads);
        dlc_free(levels->level[i].size);
        dlc_free(levels->level[i].position);
        dlc_free(levels->level[i].team);
    }
    dlc_free(levels->order);
    *levels = (dlc_levels){0};
}

/* ---- Asking ------------------------------------------------------------------ */

int32_t dlc_levels_team(const dlc_levels *levels, int32_t level, int32_t rank,
                        int32_t *members) {
    const dlc_level *its = &levels->level[level];
    int32_t count = 0;
    for (int32_t i = 0; its->team[rank] >= 0 && i < levels->ranks; i++)
        if (its->team[levels->order[i]] == its->team[rank])
            members[count++] = levels->order[i];
    return count;
}

int dlc_levels_has_shards(const dlc_levels *levels) {
    for (int32_t i = 0; i + 1 < levels->levels; i++)
        if (!levels->level[i].even)
            return 0;
    return 1;
}

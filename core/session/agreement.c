/* Compares what the ranks have chosen, and finds out why it differs. */
#include "session/agreement.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

dlc_status dlc_choice_label_make(const dlc_transport_choice *choice,
                                 dlc_choice_label *label) {
    dlc_text name = {0};
    *label = (dlc_choice_label){.name = ""};
    dlc_transport_choice_name(choice, &name);
    dlc_status status = dlc_text_status(&name);
    if (status == DLC_OK)
        (void)snprintf(label->name, sizeof label->name, "%s", dlc_text_string(&name));
    for (int32_t i = 0; i < choice->levels; i++)
        label->level[i] = (char)('A' + choice->level[i].scope.within);
    dlc_text_free(&name);
    return status;
}

dlc_status dlc_agreement_check(dlc_job *job, const dlc_choice_label *mine,
                               dlc_disagreement *found) {
    int32_t ranks = dlc_job_ranks(job);
    dlc_choice_label *all = dlc_alloc((size_t)ranks, sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(job, mine, sizeof *mine, all);
    *found = (dlc_disagreement){.rank = -1};
    for (int32_t r = 1; status == DLC_OK && found->rank < 0 && r < ranks; r++)
        if (memcmp(&all[r], &all[0], sizeof *all) != 0)
            *found = (dlc_disagreement){.rank = r, .choice = {all[0], all[r]}};
    dlc_free(all);
    return status;
}

dlc_status dlc_agreement_refuse(dlc_job *job, const dlc_disagreement *found) {
    const char *first = found->choice[0].name, *other = found->choice[1].name;
    return dlc_fail(DLC_ERR_CONFIG,
                    "rank 0 (host %s) would use transport %s, but rank %d (host %s) "
                    "would use %s: choose one that all ranks can use with --transport",
                    dlc_job_rank_info(job, 0)->host, *first ? first : "none",
                    found->rank, dlc_job_rank_info(job, found->rank)->host,
                    *other ? other : "none");
}

/* ---- What a rank cannot use ------------------------------------------------------ */

/* A rank's answer to a choice. */
typedef struct answer {
    int32_t level; /* the first that it cannot use; -1: it can use all */
    int elsewhere; /* it can use the transport of that level on others */
    char reason[120];
} answer;

/* Sets the transport and the scope of a level. 0: the choice has no such level. */
static int get_level(const dlc_choice_label *choice, int32_t level,
                     dlc_transport_finding *its) {
    const char *name = choice->name;
    for (int32_t i = 0; i < level && name; i++) {
        name = strchr(name, '+');
        name += name != NULL;
    }
    if (level >= DLC_DOMAIN_LEVELS || !name || !*name)
        return 0;
    *its = (dlc_transport_finding){
        .scope = {level ? choice->level[level - 1] - 'A' : DLC_SCOPE_RANKS,
                  choice->level[level] - 'A'}};
    (void)snprintf(its->name, sizeof its->name, "%.*s", (int)strcspn(name, "+"), name);
    return 1;
}

/* Whether the verdicts allow a level; if not, the answer has the reason. */
static int can_use(const dlc_transport_choice *mine, const dlc_transport_finding *level,
                   answer *its) {
    const char *reason = NULL;
    its->elsewhere = 0;
    for (size_t i = 0; i < mine->verdicts; i++) {
        const dlc_transport_verdict *v = &mine->verdict[i];
        int here = dlc_comm_scope_is_same(v->scope, level->scope);
        if (strcmp(v->name, level->name) != 0)
            continue;
        if (here && v->seconds > 0)
            return 1;
        its->elsewhere |= v->seconds > 0;
        reason = here || !reason ? v->reason : reason;
    }
    (void)snprintf(its->reason, sizeof its->reason, "%s",
                   reason ? reason : "it is not installed there");
    return 0;
}

static void answer_to(const dlc_transport_choice *mine, const dlc_choice_label *choice,
                      answer *its) {
    dlc_transport_finding level;
    *its = (answer){.level = -1};
    for (int32_t i = 0; its->level < 0 && get_level(choice, i, &level); i++)
        if (!can_use(mine, &level, its))
            its->level = i;
}

/* The first of the ranks' answers that is an objection to choice[which]. */
static void find_objection(dlc_job *job, answer (*all)[2], int which,
                           const dlc_choice_label *choice,
                           dlc_transport_finding *objection) {
    objection->name[0] = '\0';
    for (int32_t r = 0; r < dlc_job_ranks(job); r++) {
        const answer *its = &all[r][which];
        if (its->level < 0 || !get_level(choice, its->level, objection))
            continue;
        objection->everywhere = !its->elsewhere;
        (void)snprintf(objection->text, sizeof objection->text, "rank %d (host %s): %s",
                       r, dlc_job_rank_info(job, r)->host, its->reason);
        return;
    }
}

dlc_status dlc_agreement_ask(dlc_job *job, const dlc_transport_choice *mine,
                             const dlc_disagreement *found,
                             dlc_transport_finding objection[2]) {
    answer its[2];
    answer(*all)[2] = dlc_alloc((size_t)dlc_job_ranks(job), sizeof *all);
    if (!all)
        return DLC_ERR_NOMEM;
    memset(its, 0, sizeof its);
    for (int i = 0; i < 2; i++)
        answer_to(mine, &found->choice[i], &its[i]);
    dlc_status status = dlc_job_all_gather(job, its, sizeof its, all);
    for (int i = 0; status == DLC_OK && i < 2; i++)
        find_objection(job, all, i, &found->choice[i], &objection[i]);
    dlc_free(all);
    return status;
}

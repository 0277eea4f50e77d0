/* Chooses transports by their scores, and writes the verdicts as text. */
#include "comm/choose.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/nodes.h"
#include "plugin/answers.h"

enum { REASON = 256 };

/* A group of ranks, and what its transports' scores depend on. */
typedef struct request {
    const dlc_registry *registry;
    const char *device;
    const dlc_transport_args *args;
    dlc_settings_of *settings_of;
    void *context;
    dlc_nodes nodes;
    dlc_rank_info *rank_info; /* owned; of the ranks in a scope */
} request;

static dlc_status add_verdict(dlc_transport_choice *choice, const char *name,
                              dlc_comm_scope scope, int32_t score, const char *reason) {
    dlc_transport_verdict *grown = dlc_grow(choice->verdict, choice->verdicts,
                                            choice->verdicts + 1,
                                            sizeof *choice->verdict);
    if (!grown)
        return DLC_ERR_NOMEM;
    choice->verdict = grown;
    dlc_transport_verdict *v = &grown[choice->verdicts++];
    v->scope = scope;
    v->score = score;
    v->name = dlc_strdup(name);
    v->reason = dlc_strdup(reason);
    return v->name && v->reason ? DLC_OK : DLC_ERR_NOMEM;
}

/* ---- Asking a transport ------------------------------------------------------ */

/* Collects the ranks of a scope, for DLC_SCOPE_INTRA_NODE those of one node; returns
 * how many there are. */
static int32_t collect_ranks(request *q, dlc_comm_scope scope, int32_t node) {
    const dlc_nodes *nodes = &q->nodes;
    int32_t count = 0;
    for (int32_t r = 0; r < nodes->ranks; r++)
        if (scope == DLC_SCOPE_ALL ||
            (scope == DLC_SCOPE_INTRA_NODE && nodes->node[r] == node) ||
            (scope == DLC_SCOPE_INTER_NODE && nodes->local[r] == 0))
            q->rank_info[count++] = nodes->rank_info[r];
    return count;
}

/* Asks a transport for its score for one set of ranks; 0 if the call fails, or
 * gives a score that there is not. */
static void ask_score(const dlc_feature *feature, dlc_transport_args *query,
                      int32_t *score, char *reason) {
    *score = 0;
    if (dlc_answer_score(feature, query, reason, REASON, score) != DLC_OK)
        (void)snprintf(reason, REASON, "%s", dlc_detail());
}

/* Asks for the score in a scope; for DLC_SCOPE_INTRA_NODE it is the lowest over the
 * nodes that have several ranks. */
static void ask_scope(request *q, const dlc_feature *feature, dlc_comm_scope scope,
                      dlc_transport_args *query, int32_t *score, char *reason) {
    int32_t nodes = scope == DLC_SCOPE_INTRA_NODE ? q->nodes.nodes : 1;
    char its_reason[REASON];
    int asked = 0;

    for (int32_t node = 0; node < nodes; node++) {
        int32_t its = 0;
        query->ranks = collect_ranks(q, scope, node);
        query->rank = 0;
        query->rank_info = q->rank_info;
        if (scope == DLC_SCOPE_INTRA_NODE && query->ranks < 2)
            continue;
        ask_score(feature, query, &its, its_reason);
        if (asked && its >= *score)
            continue;
        asked = 1;
        *score = its;
        memcpy(reason, its_reason, REASON);
    }
}

/* Adds the verdict on a transport that is loaded. */
static dlc_status judge(request *q, const dlc_feature *feature, dlc_comm_scope scope,
                        dlc_transport_choice *choice) {
    dlc_transport_args query = *q->args;
    int32_t score = 0;
    char reason[REASON] = "";

    query.settings = NULL;
    query.oob_all_gather = NULL;
    if (q->settings_of)
        DLC_TRY(q->settings_of(q->context, feature, &query.settings));
    ask_scope(q, feature, scope, &query, &score, reason);
    return add_verdict(choice, feature->name, scope, score, reason);
}

/* Adds the verdict on an installed transport, loading it if it can work with the
 * device. *feature is NULL if it can't be used. */
static dlc_status judge_entry(request *q, const dlc_feature_entry *entry,
                              dlc_comm_scope scope, dlc_transport_choice *choice,
                              const dlc_feature **feature) {
    char reason[REASON] = "";

    *feature = NULL;
    if (entry->state == DLC_ENTRY_USABLE && entry->device &&
        strcmp(entry->device, q->device) != 0) {
        (void)snprintf(reason, sizeof reason, "works with %s, not with %s",
                       entry->device, q->device);
        return add_verdict(choice, entry->name, scope, 0, reason);
    }
    if (entry->state == DLC_ENTRY_USABLE) {
        dlc_status status = dlc_registry_use(q->registry, entry, feature);
        if (status == DLC_OK)
            return judge(q, *feature, scope, choice);
        if (status != DLC_ERR_PLUGIN)
            return status;
    }
    if (scope != DLC_SCOPE_ALL) /* its verdict was added for DLC_SCOPE_ALL */
        return DLC_OK;
    return add_verdict(choice, entry->name, scope, 0, entry->reason);
}

/* ---- Choosing ---------------------------------------------------------------- */

typedef struct best {
    const dlc_feature *feature;
    size_t verdict;
    int32_t score;
} best;

/* Judges every installed transport, in the order of the registry. */
static dlc_status judge_all(request *q, dlc_comm_scope scope,
                            dlc_transport_choice *choice, best *found) {
    const dlc_feature_entry *entry = NULL;
    const dlc_feature *feature = NULL;

    *found = (best){0};
    for (size_t i = 0;
         (entry = dlc_registry_feature(q->registry, DLC_KIND_TRANSPORT, i)) != NULL;
         i++) {
        DLC_TRY(judge_entry(q, entry, scope, choice, &feature));
        if (!feature)
            continue;
        size_t last = choice->verdicts - 1;
        int32_t its = choice->verdict[last].score;
        if (its > found->score)
            *found = (best){feature, last, its};
    }
    return DLC_OK;
}

static dlc_status none_fits(const dlc_transport_choice *choice) {
    dlc_text why = {0};
    for (size_t i = 0; i < choice->verdicts; i++)
        if (choice->verdict[i].scope == DLC_SCOPE_ALL)
            dlc_text_add(&why, "%s%s: %s", i > 0 ? "; " : "", choice->verdict[i].name,
                         choice->verdict[i].reason);
    dlc_status status = dlc_fail(
        DLC_ERR_CONFIG, "no transport can connect these ranks: %s",
        choice->verdicts > 0 ? dlc_text_string(&why) : "none is installed");
    dlc_text_free(&why);
    return status;
}

/* Whether the group has two levels: several nodes, and nodes of several ranks. */
static int has_levels(const request *q) {
    return q->nodes.nodes > 1 && q->nodes.nodes < q->nodes.ranks;
}

static dlc_status choose_best(request *q, dlc_transport_choice *choice) {
    best all = {0}, intra = {0}, inter = {0};

    DLC_TRY(judge_all(q, DLC_SCOPE_ALL, choice, &all));
    if (has_levels(q)) {
        DLC_TRY(judge_all(q, DLC_SCOPE_INTRA_NODE, choice, &intra));
        DLC_TRY(judge_all(q, DLC_SCOPE_INTER_NODE, choice, &inter));
    }
    if (intra.feature && inter.feature && intra.score > all.score) {
        choice->verdict[intra.verdict].chosen = 1;
        choice->verdict[inter.verdict].chosen = 1;
        choice->feature = intra.feature;
        choice->inter_node = inter.feature;
        return DLC_OK;
    }
    if (!all.feature)
        return none_fits(choice);
    choice->verdict[all.verdict].chosen = 1;
    choice->feature = all.feature;
    return DLC_OK;
}

static const char *scope_text(dlc_comm_scope scope) {
    static const char *const text[] = {"", " inside the nodes", " between the nodes"};
    return text[scope];
}

static dlc_status choose_one(request *q, const char *name, dlc_comm_scope scope,
                             dlc_transport_choice *choice, const dlc_feature **chosen) {
    const dlc_feature *feature = NULL;
    DLC_TRY(
        dlc_registry_find(q->registry, DLC_KIND_TRANSPORT, name, q->device, &feature));
    DLC_TRY(judge(q, feature, scope, choice));
    dlc_transport_verdict *verdict = &choice->verdict[choice->verdicts - 1];
    if (verdict->score == 0)
        return dlc_fail(DLC_ERR_CONFIG, "transport %s cannot connect these ranks%s: %s",
                        name, scope_text(scope), verdict->reason);
    verdict->chosen = 1;
    *chosen = feature;
    return DLC_OK;
}

static dlc_status choose_two(request *q, const char *intra_node, const char *inter_node,
                             dlc_transport_choice *choice) {
    if (!has_levels(q))
        return choose_one(q, q->nodes.nodes == 1 ? intra_node : inter_node,
                          DLC_SCOPE_ALL, choice, &choice->feature);
    DLC_TRY(choose_one(q, intra_node, DLC_SCOPE_INTRA_NODE, choice, &choice->feature));
    return choose_one(q, inter_node, DLC_SCOPE_INTER_NODE, choice, &choice->inter_node);
}

static dlc_status choose_by_name(request *q, const char *wanted,
                                 dlc_transport_choice *choice) {
    const char *plus = strchr(wanted, '+');
    if (!plus)
        return choose_one(q, wanted, DLC_SCOPE_ALL, choice, &choice->feature);
    char *intra_node = dlc_format("%.*s", (int)(plus - wanted), wanted);
    if (!intra_node)
        return DLC_ERR_NOMEM;
    dlc_status status = choose_two(q, intra_node, plus + 1, choice);
    dlc_free(intra_node);
    return status;
}

dlc_status dlc_transport_choose(const dlc_registry *registry, const char *wanted,
                                const char *device, const dlc_transport_args *args,
                                dlc_settings_of *settings_of, void *context,
                                dlc_transport_choice *choice) {
    request q = {.registry = registry,
                 .device = device,
                 .args = args,
                 .settings_of = settings_of,
                 .context = context};
    q.rank_info = dlc_alloc((size_t)args->ranks, sizeof *q.rank_info);
    dlc_status status = q.rank_info
                            ? dlc_nodes_make(args->rank_info, args->ranks, &q.nodes)
                            : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = strcmp(wanted, "auto") == 0 ? choose_best(&q, choice)
                                             : choose_by_name(&q, wanted, choice);
    if (status != DLC_OK)
        choice->feature = choice->inter_node = NULL;
    dlc_nodes_free(&q.nodes);
    dlc_free(q.rank_info);
    return status;
}

/* ---- Text -------------------------------------------------------------- */

void dlc_transport_choice_name(const dlc_transport_choice *choice, dlc_text *text) {
    dlc_text_add(text, "%s%s%s", choice->feature->name, choice->inter_node ? "+" : "",
                 choice->inter_node ? choice->inter_node->name : "");
}

/* The score of the transport chosen for a scope, 0 if none was. */
static int32_t chosen_score(const dlc_transport_choice *choice, dlc_comm_scope scope) {
    for (size_t i = 0; i < choice->verdicts; i++)
        if (choice->verdict[i].chosen && choice->verdict[i].scope == scope)
            return choice->verdict[i].score;
    return 0;
}

void dlc_transport_choice_text(const dlc_transport_choice *choice, dlc_text *text) {
    for (size_t i = 0; i < choice->verdicts; i++) {
        const dlc_transport_verdict *v = &choice->verdict[i];
        if (v->chosen)
            dlc_text_add(text, "transport: %s%s: %s\n", v->name, scope_text(v->scope),
                         v->reason);
    }
    for (size_t i = 0; i < choice->verdicts; i++) {
        const dlc_transport_verdict *v = &choice->verdict[i];
        int32_t against = chosen_score(choice, v->scope);
        if (v->chosen)
            continue;
        dlc_text_add(text, "    not %s%s: ", v->name, scope_text(v->scope));
        if (v->score > 0 && against > 0)
            dlc_text_add(text, "slower here (%d against %d): ", v->score, against);
        else if (v->score > 0)
            dlc_text_add(text, "slower here: ");
        dlc_text_add(text, "%s\n", v->reason);
    }
}

void dlc_transport_choice_free(dlc_transport_choice *choice) {
    for (size_t i = 0; i < choice->verdicts; i++) {
        dlc_free(choice->verdict[i].name);
        dlc_free(choice->verdict[i].reason);
    }
    dlc_free(choice->verdict);
    *choice = (dlc_transport_choice){0};
}

/* The choice of transports: scores, reasons, and the sentence when none fits. */
#include "comm/choose.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "comm/nodes.h"

enum { REASON = 256 };

/* What is asked, and whom it is about. */
typedef struct question {
    const dlc_registry *registry;
    const char *device;
    const dlc_transport_args *args;
    dlc_settings_of *settings_of;
    void *context;
    dlc_nodes nodes;
    dlc_place *places; /* own; of the ranks of a route */
} question;

static dlc_status add_verdict(dlc_choice *choice, const char *name, dlc_route route,
                              int32_t score, const char *reason) {
    dlc_verdict *grown = dlc_grow(choice->verdict, choice->verdicts,
                                  choice->verdicts + 1, sizeof *choice->verdict);
    if (!grown)
        return DLC_ERR_NOMEM;
    choice->verdict = grown;
    dlc_verdict *v = &grown[choice->verdicts++];
    v->route = route;
    v->score = score;
    v->name = dlc_strdup(name);
    v->reason = dlc_strdup(reason);
    return v->name && v->reason ? DLC_OK : DLC_ERR_NOMEM;
}

/* ---- Asking a transport ------------------------------------------------------ */

/* Puts the ranks of a route together, inside of one node where that is the route;
 * returns how many there are. */
static int32_t gather_places(question *q, dlc_route route, int32_t node) {
    const dlc_nodes *nodes = &q->nodes;
    int32_t count = 0;
    for (int32_t r = 0; r < nodes->ranks; r++)
        if (route == DLC_ROUTE_ALL ||
            (route == DLC_ROUTE_INSIDE && nodes->node[r] == node) ||
            (route == DLC_ROUTE_BETWEEN && nodes->local[r] == 0))
            q->places[count++] = nodes->place[r];
    return count;
}

/* A transport that fails to answer cannot be used. */
static void ask(const dlc_feature *feature, dlc_transport_args *probe, int32_t *score,
                char *reason) {
    const dlc_transport_ops *ops = feature->ops;
    int32_t its = 0;

    reason[0] = '\0';
    dlc_status status = ops->score(probe, &its, reason, REASON);
    if (status != DLC_OK)
        (void)snprintf(reason, REASON, "%s", dlc_detail());
    *score = status == DLC_OK && its > 0 ? its : 0;
}

/* Its score on a route; on that inside nodes the lowest of all that have several
 * ranks. */
static void ask_route(question *q, const dlc_feature *feature, dlc_route route,
                      dlc_transport_args *probe, int32_t *score, char *reason) {
    int32_t nodes = route == DLC_ROUTE_INSIDE ? q->nodes.nodes : 1;
    char its_reason[REASON];
    int asked = 0;

    for (int32_t node = 0; node < nodes; node++) {
        int32_t its = 0;
        probe->ranks = gather_places(q, route, node);
        probe->rank = 0;
        probe->places = q->places;
        if (route == DLC_ROUTE_INSIDE && probe->ranks < 2)
            continue;
        ask(feature, probe, &its, its_reason);
        if (asked && its >= *score)
            continue;
        asked = 1;
        *score = its;
        memcpy(reason, its_reason, REASON);
    }
}

/* Asks one that is loaded. */
static dlc_status judge(question *q, const dlc_feature *feature, dlc_route route,
                        dlc_choice *choice) {
    dlc_transport_args probe = *q->args;
    int32_t score = 0;
    char reason[REASON] = "";

    probe.settings = NULL;
    probe.allgather = NULL;
    if (q->settings_of)
        DLC_TRY(q->settings_of(q->context, feature, &probe.settings));
    ask_route(q, feature, route, &probe, &score, reason);
    return add_verdict(choice, feature->name, route, score, reason);
}

/* Loads one, to ask it, unless that would be in vain. *feature: NULL where it was. */
static dlc_status judge_entry(question *q, const dlc_feature_entry *entry,
                              dlc_route route, dlc_choice *choice,
                              const dlc_feature **feature) {
    char reason[REASON] = "";

    *feature = NULL;
    if (entry->state == DLC_ENTRY_USABLE && entry->device &&
        strcmp(entry->device, q->device) != 0) {
        (void)snprintf(reason, sizeof reason, "works with %s, not with %s",
                       entry->device, q->device);
        return add_verdict(choice, entry->name, route, 0, reason);
    }
    if (entry->state == DLC_ENTRY_USABLE) {
        dlc_status status = dlc_registry_use(q->registry, entry, feature);
        if (status == DLC_OK)
            return judge(q, *feature, route, choice);
        if (status != DLC_ERR_PLUGIN)
            return status;
    }
    if (route != DLC_ROUTE_ALL) /* once is enough */
        return DLC_OK;
    return add_verdict(choice, entry->name, route, 0, entry->reason);
}

/* ---- Choosing ---------------------------------------------------------------- */

typedef struct best {
    const dlc_feature *feature;
    size_t verdict;
    int32_t score;
} best;

/* Every transport found, in the order of the registry. */
static dlc_status judge_all(question *q, dlc_route route, dlc_choice *choice,
                            best *found) {
    const dlc_feature_entry *entry = NULL;
    const dlc_feature *feature = NULL;

    *found = (best){0};
    for (size_t i = 0;
         (entry = dlc_registry_feature(q->registry, DLC_KIND_TRANSPORT, i)) != NULL;
         i++) {
        DLC_TRY(judge_entry(q, entry, route, choice, &feature));
        if (!feature)
            continue;
        size_t last = choice->verdicts - 1;
        int32_t its = choice->verdict[last].score;
        if (its > found->score)
            *found = (best){feature, last, its};
    }
    return DLC_OK;
}

static dlc_status none_fits(const dlc_choice *choice) {
    dlc_text why = {0};
    for (size_t i = 0; i < choice->verdicts; i++)
        if (choice->verdict[i].route == DLC_ROUTE_ALL)
            dlc_text_add(&why, "%s%s: %s", i > 0 ? "; " : "", choice->verdict[i].name,
                         choice->verdict[i].reason);
    dlc_status status = dlc_fail(DLC_ERR_CONFIG, "no transport joins these ranks: %s",
                                 choice->verdicts > 0 ? dlc_text_string(&why)
                                                      : "none is installed");
    dlc_text_free(&why);
    return status;
}

/* Are there two levels at all? */
static int has_levels(const question *q) {
    return q->nodes.nodes > 1 && q->nodes.nodes < q->nodes.ranks;
}

static dlc_status choose_best(question *q, dlc_choice *choice) {
    best all = {0}, inside = {0}, between = {0};

    DLC_TRY(judge_all(q, DLC_ROUTE_ALL, choice, &all));
    if (has_levels(q)) {
        DLC_TRY(judge_all(q, DLC_ROUTE_INSIDE, choice, &inside));
        DLC_TRY(judge_all(q, DLC_ROUTE_BETWEEN, choice, &between));
    }
    if (inside.feature && between.feature && inside.score > all.score) {
        choice->verdict[inside.verdict].chosen = 1;
        choice->verdict[between.verdict].chosen = 1;
        choice->feature = inside.feature;
        choice->between = between.feature;
        return DLC_OK;
    }
    if (!all.feature)
        return none_fits(choice);
    choice->verdict[all.verdict].chosen = 1;
    choice->feature = all.feature;
    return DLC_OK;
}

static const char *route_text(dlc_route route) {
    static const char *const text[] = {"", " inside the nodes", " between the nodes"};
    return text[route];
}

static dlc_status choose_one(question *q, const char *name, dlc_route route,
                             dlc_choice *choice, const dlc_feature **chosen) {
    const dlc_feature *feature = NULL;
    DLC_TRY(
        dlc_registry_find(q->registry, DLC_KIND_TRANSPORT, name, q->device, &feature));
    DLC_TRY(judge(q, feature, route, choice));
    dlc_verdict *verdict = &choice->verdict[choice->verdicts - 1];
    if (verdict->score == 0)
        return dlc_fail(DLC_ERR_CONFIG, "transport %s cannot join these ranks%s: %s",
                        name, route_text(route), verdict->reason);
    verdict->chosen = 1;
    *chosen = feature;
    return DLC_OK;
}

static dlc_status choose_two(question *q, const char *inside, const char *between,
                             dlc_choice *choice) {
    if (!has_levels(q))
        return choose_one(q, q->nodes.nodes == 1 ? inside : between, DLC_ROUTE_ALL,
                          choice, &choice->feature);
    DLC_TRY(choose_one(q, inside, DLC_ROUTE_INSIDE, choice, &choice->feature));
    return choose_one(q, between, DLC_ROUTE_BETWEEN, choice, &choice->between);
}

static dlc_status choose_by_name(question *q, const char *wanted, dlc_choice *choice) {
    const char *plus = strchr(wanted, '+');
    if (!plus)
        return choose_one(q, wanted, DLC_ROUTE_ALL, choice, &choice->feature);
    char *inside = dlc_format("%.*s", (int)(plus - wanted), wanted);
    if (!inside)
        return DLC_ERR_NOMEM;
    dlc_status status = choose_two(q, inside, plus + 1, choice);
    dlc_free(inside);
    return status;
}

dlc_status dlc_comm_choose(const dlc_registry *registry, const char *wanted,
                           const char *device, const dlc_transport_args *args,
                           dlc_settings_of *settings_of, void *context,
                           dlc_choice *choice) {
    question q = {.registry = registry,
                  .device = device,
                  .args = args,
                  .settings_of = settings_of,
                  .context = context};
    q.places = dlc_alloc((size_t)args->ranks, sizeof *q.places);
    dlc_status status = q.places ? dlc_nodes_make(args->places, args->ranks, &q.nodes)
                                 : DLC_ERR_NOMEM;
    if (status == DLC_OK)
        status = strcmp(wanted, "auto") == 0 ? choose_best(&q, choice)
                                             : choose_by_name(&q, wanted, choice);
    if (status != DLC_OK)
        choice->feature = choice->between = NULL;
    dlc_nodes_free(&q.nodes);
    dlc_free(q.places);
    return status;
}

/* ---- For people -------------------------------------------------------------- */

void dlc_choice_name(const dlc_choice *choice, dlc_text *text) {
    dlc_text_add(text, "%s%s%s", choice->feature->name, choice->between ? "+" : "",
                 choice->between ? choice->between->name : "");
}

/* The score of what was chosen for a route, 0 where nothing was. */
static int32_t chosen_score(const dlc_choice *choice, dlc_route route) {
    for (size_t i = 0; i < choice->verdicts; i++)
        if (choice->verdict[i].chosen && choice->verdict[i].route == route)
            return choice->verdict[i].score;
    return 0;
}

void dlc_choice_text(const dlc_choice *choice, dlc_text *text) {
    for (size_t i = 0; i < choice->verdicts; i++) {
        const dlc_verdict *v = &choice->verdict[i];
        if (v->chosen)
            dlc_text_add(text, "transport: %s%s: %s\n", v->name, route_text(v->route),
                         v->reason);
    }
    for (size_t i = 0; i < choice->verdicts; i++) {
        const dlc_verdict *v = &choice->verdict[i];
        int32_t against = chosen_score(choice, v->route);
        if (v->chosen)
            continue;
        dlc_text_add(text, "    not %s%s: ", v->name, route_text(v->route));
        if (v->score > 0 && against > 0)
            dlc_text_add(text, "slower here (%d against %d): ", v->score, against);
        else if (v->score > 0)
            dlc_text_add(text, "slower here: ");
        dlc_text_add(text, "%s\n", v->reason);
    }
}

void dlc_choice_free(dlc_choice *choice) {
    for (size_t i = 0; i < choice->verdicts; i++) {
        dlc_free(choice->verdict[i].name);
        dlc_free(choice->verdict[i].reason);
    }
    dlc_free(choice->verdict);
    *choice = (dlc_choice){0};
}

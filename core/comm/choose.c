/* Chooses levels and transports by what is predicted: a search over the stacks of
 * levels that the ranks' domains allow. */
#include "comm/choose.h"
#include "base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "plugin/answers.h"

enum { REASON = 256 };
#define DEFAULT_BYTES 64e6 /* reduced in an iteration, if that is not known */
/* What one more level must gain: predictions are no more accurate. */
#define LEVEL_MARGIN 0.02

/* What all transports predict for a scope. The verdicts of the transport that can be
 * used are `first` .. of the choice, in the order of the registry. */
typedef struct asked {
    int done;
    size_t verdict[2];             /* of the fastest, and the second */
    const dlc_feature *feature[2]; /* NULL: there is none */
    dlc_transport_path path[2];
} asked;

enum { SCOPES = (DLC_DOMAIN_LEVELS + 1) * DLC_DOMAIN_LEVELS };

typedef struct request {
    const dlc_choose_args *args;
    dlc_scopes scopes;
    double bytes;
    asked *asked; /* owned; per scope */
    dlc_transport_choice *choice;
} request;

static asked *asked_of(request *q, dlc_comm_scope scope) {
    return &q->asked[(scope.below + 1) * DLC_DOMAIN_LEVELS + scope.within];
}

static double predicted_seconds(const request *q, const dlc_transport_prediction *p,
                                double bytes) {
    if (!(p->bandwidth > 0))
        return 0;
    return q->args->cost ? q->args->cost(p, bytes) : p->latency + bytes / p->bandwidth;
}

static dlc_status add_verdict(request *q, const char *name, dlc_comm_scope scope,
                              double seconds, const char *reason) {
    dlc_transport_choice *choice = q->choice;
    dlc_transport_verdict *grown = dlc_grow_by_one(choice->verdict, choice->verdicts,
                                                   sizeof *choice->verdict);
    if (!grown)
        return DLC_ERR_NOMEM;
    choice->verdict = grown;
    dlc_transport_verdict *v = &grown[choice->verdicts++];
    *v = (dlc_transport_verdict){.scope = scope,
                                 .seconds = seconds,
                                 .name = dlc_strdup(name),
                                 .reason = dlc_strdup(reason)};
    return v->name && v->reason ? DLC_OK : DLC_ERR_NOMEM;
}

/* ---- Asking a transport ------------------------------------------------------ */

/* Asks for the prediction in a scope: that of its slowest group. A call that fails says
 * that it cannot connect them. */
static dlc_status ask_scope(request *q, const dlc_feature *feature,
                            dlc_comm_scope scope, const dlc_settings *settings,
                            dlc_transport_path *path, char *reason) {
    dlc_transport_prediction *slowest = &path->prediction;
    double bytes = q->bytes * dlc_scopes_fraction(&q->scopes, scope);
    dlc_transport_args query;
    char its_reason[REASON];
    int32_t at = 0;
    int any = 0;
    *slowest = (dlc_transport_prediction){.size = sizeof *slowest};
    while (dlc_scopes_next(&q->scopes, scope, &at, &query)) {
        dlc_transport_prediction its = {.size = sizeof its};
        query.settings = settings;
        dlc_status status = dlc_answer_prediction(feature, &query, its_reason, REASON,
                                                  &its);
        if (status == DLC_ERR_NOMEM)
            return status;
        if (status != DLC_OK)
            (void)snprintf(its_reason, REASON, "%s", dlc_detail());
        int can = its.bandwidth > 0;
        if (any && can &&
            predicted_seconds(q, &its, bytes) <= predicted_seconds(q, slowest, bytes))
            continue;
        any = 1;
        *slowest = its;
        path->link_bandwidth = query.link_bandwidth;
        memcpy(reason, its_reason, REASON);
        if (!can)
            break;
    }
    return DLC_OK;
}

/* What was found out when a transport was tried counts more than what it predicts. A
 * slow link is also slow if other levels are below. */
static void correct(const request *q, const char *name, dlc_comm_scope scope,
                    dlc_transport_prediction *prediction, char *reason) {
    const dlc_choose_args *args = q->args;
    for (size_t i = 0; i < args->findings && prediction->bandwidth > 0; i++) {
        const dlc_transport_finding *f = &args->finding[i];
        int same = f->scope.within == scope.within &&
                   (f->scope.below == scope.below || f->slowdown > 0);
        if (strcmp(f->name, name) != 0 || !(same || f->everywhere))
            continue;
        (void)snprintf(reason, REASON, "%s", f->text);
        prediction->latency *= f->slowdown;
        prediction->small_bandwidth /= fmax(f->slowdown, 1);
        prediction->bandwidth /= f->slowdown > 0 ? f->slowdown : INFINITY;
    }
}

/* Adds the verdict on a transport that is loaded. */
static dlc_status judge(request *q, const dlc_feature *feature, dlc_comm_scope scope,
                        dlc_transport_path *path) {
    const dlc_settings *settings = NULL;
    char reason[REASON] = "";
    if (q->args->settings_of)
        DLC_TRY(q->args->settings_of(q->args->context, feature, &settings));
    DLC_TRY(ask_scope(q, feature, scope, settings, path, reason));
    correct(q, feature->name, scope, &path->prediction, reason);
    double bytes = q->bytes * dlc_scopes_fraction(&q->scopes, scope);
    return add_verdict(q, feature->name, scope,
                       predicted_seconds(q, &path->prediction, bytes), reason);
}

/* Adds the verdict on an installed transport, loading it if it can work with the
 * device. *feature is NULL if it can't be used. */
static dlc_status judge_entry(request *q, const dlc_feature_entry *entry,
                              dlc_comm_scope scope, const dlc_feature **feature,
                              dlc_transport_path *path) {
    char reason[REASON] = "";

    *feature = NULL;
    if (entry->state == DLC_ENTRY_USABLE && entry->device &&
        strcmp(entry->device, q->args->device) != 0) {
        (void)snprintf(reason, sizeof reason, "works with %s, not with %s",
                       entry->device, q->args->device);
        return add_verdict(q, entry->name, scope, 0, reason);
    }
    if (entry->state == DLC_ENTRY_USABLE) {
        dlc_status status = dlc_registry_use(q->args->registry, entry, feature);
        if (status == DLC_OK)
            return judge(q, *feature, scope, path);
        if (status != DLC_ERR_PLUGIN)
            return status;
    }
    if (scope.below != DLC_SCOPE_RANKS || scope.within != DLC_DOMAIN_JOB)
        return DLC_OK; /* its verdict was added for all ranks */
    return add_verdict(q, entry->name, scope, 0, entry->reason);
}

/* Puts a verdict first or second, if it is faster than what is there. */
static void rank_verdict(const request *q, asked *a, const dlc_feature *feature,
                         const dlc_transport_path *path) {
    const dlc_transport_verdict *verdict = q->choice->verdict;
    size_t mine = q->choice->verdicts - 1;
    int at = 2;
    while (at > 0 && (!a->feature[at - 1] ||
                      verdict[mine].seconds < verdict[a->verdict[at - 1]].seconds))
        at--;
    if (at > 1)
        return;
    if (at == 0) {
        a->feature[1] = a->feature[0];
        a->verdict[1] = a->verdict[0];
        a->path[1] = a->path[0];
    }
    a->feature[at] = feature;
    a->verdict[at] = mine;
    a->path[at] = *path;
}

/* Judges every installed transport in a scope, once. */
static dlc_status judge_all(request *q, dlc_comm_scope scope) {
    asked *a = asked_of(q, scope);
    const dlc_feature_entry *entry = NULL;
    const dlc_feature *feature = NULL;
    dlc_transport_path path = {.link_bandwidth = 0};
    if (a->done)
        return DLC_OK;
    a->done = 1;
    for (size_t i = 0; (entry = dlc_registry_feature(q->args->registry,
                                                     DLC_KIND_TRANSPORT, i)) != NULL;
         i++) {
        DLC_TRY(judge_entry(q, entry, scope, &feature, &path));
        if (feature && path.prediction.bandwidth > 0)
            rank_verdict(q, a, feature, &path);
    }
    return DLC_OK;
}

/* ---- Stacks of levels -------------------------------------------------------- */

/* A communicator that might be: `pick` is 0 for the fastest transport of a level and 1
 * for the second. */
typedef struct stack {
    dlc_comm_scope scope[DLC_DOMAIN_LEVELS];
    int pick[DLC_DOMAIN_LEVELS];
    int32_t levels;
    double seconds; /* 0: it cannot be */
} stack;

/* A reduction goes through all levels, one after the other. */
static void weigh_stack(request *q, stack *s) {
    dlc_transport_prediction sum = {.size = sizeof sum};
    s->seconds = 0;
    for (int32_t i = 0; i < s->levels; i++) {
        const asked *a = asked_of(q, s->scope[i]);
        double fraction = dlc_scopes_fraction(&q->scopes, s->scope[i]);
        const dlc_transport_prediction *p = &a->path[s->pick[i]].prediction;
        if (!a->feature[s->pick[i]])
            return;
        sum.latency += p->latency;
        sum.small_bandwidth += fraction / p->small_bandwidth;
        sum.bandwidth += fraction / p->bandwidth;
    }
    sum.small_bandwidth = 1 / sum.small_bandwidth;
    sum.bandwidth = 1 / sum.bandwidth;
    s->seconds = predicted_seconds(q, &sum, q->bytes);
}

static double with_margin(const stack *s) {
    return s->seconds * (1 + LEVEL_MARGIN * s->levels);
}

static void keep_best_stack(const stack *s, stack best[2]) {
    if (!(s->seconds > 0))
        return;
    if (!(best[0].seconds > 0) || with_margin(s) < with_margin(&best[0])) {
        best[1] = best[0];
        best[0] = *s;
    } else if (!(best[1].seconds > 0) || with_margin(s) < with_margin(&best[1])) {
        best[1] = *s;
    }
}

/* Weighs a stack with the fastest transports, and with each second one instead. */
static dlc_status try_stack(request *q, stack *s, stack best[2]) {
    for (int32_t i = 0; i < s->levels; i++)
        DLC_TRY(judge_all(q, s->scope[i]));
    weigh_stack(q, s);
    keep_best_stack(s, best);
    for (int32_t i = 0; i < s->levels; i++) {
        s->pick[i] = 1;
        weigh_stack(q, s);
        keep_best_stack(s, best);
        s->pick[i] = 0;
    }
    return DLC_OK;
}

/* The stack of the levels whose bits are set, and all ranks. */
static stack make_stack(const dlc_domain_level *level, int32_t levels, unsigned bits) {
    stack s = {.levels = 0};
    int32_t below = DLC_SCOPE_RANKS;
    for (int32_t i = 0; i <= levels; i++) {
        int32_t within = i < levels ? (int32_t)level[i] : DLC_DOMAIN_JOB;
        if (i < levels && !(bits >> i & 1))
            continue;
        s.scope[s.levels++] = (dlc_comm_scope){below, within};
        below = within;
    }
    return s;
}

static void add_stack_name(request *q, const stack *s, dlc_text *text) {
    for (int32_t i = 0; i < s->levels; i++)
        dlc_text_add(text, "%s%s", i > 0 ? "+" : "",
                     asked_of(q, s->scope[i])->feature[s->pick[i]]->name);
}

static dlc_status take_best(request *q, const stack best[2]) {
    dlc_transport_choice *choice = q->choice;
    dlc_text next = {0};
    for (int32_t i = 0; i < best->levels; i++) {
        const asked *a = asked_of(q, best->scope[i]);
        choice->verdict[a->verdict[best->pick[i]]].chosen = 1;
        choice->level[i] = (dlc_transport_level){
            a->feature[best->pick[i]], best->scope[i], a->path[best->pick[i]]};
    }
    choice->levels = best->levels;
    choice->seconds = best->seconds;
    if (!(best[1].seconds > 0))
        return DLC_OK;
    add_stack_name(q, &best[1], &next);
    dlc_status status = dlc_text_status(&next);
    if (status == DLC_OK) {
        choice->next = dlc_strdup(dlc_text_string(&next));
        choice->next_seconds = best[1].seconds;
        status = choice->next ? DLC_OK : DLC_ERR_NOMEM;
    }
    dlc_text_free(&next);
    return status;
}

static dlc_status none_fits(const dlc_transport_choice *choice) {
    dlc_text why = {0};
    const char *between = "";
    for (size_t i = 0; i < choice->verdicts; i++) {
        const dlc_transport_verdict *v = &choice->verdict[i];
        if (v->scope.below != DLC_SCOPE_RANKS || v->scope.within != DLC_DOMAIN_JOB)
            continue;
        dlc_text_add(&why, "%s%s: %s", between, v->name, v->reason);
        between = "; ";
    }
    dlc_status status = dlc_fail(
        DLC_ERR_CONFIG, "no transport can connect these ranks: %s",
        choice->verdicts > 0 ? dlc_text_string(&why) : "none is installed");
    dlc_text_free(&why);
    return status;
}

static dlc_status choose_best(request *q) {
    dlc_domain_level level[DLC_DOMAIN_LEVELS];
    int32_t levels = dlc_scopes_levels(&q->scopes, level);
    stack best[2] = {{.levels = 0}};
    for (unsigned bits = 0; bits < 1u << levels; bits++) {
        stack s = make_stack(level, levels, bits);
        DLC_TRY(try_stack(q, &s, best));
    }
    return best->seconds > 0 ? take_best(q, best) : none_fits(q->choice);
}

/* ---- By name ----------------------------------------------------------------- */

static dlc_status choose_one(request *q, const char *name, dlc_comm_scope scope) {
    dlc_transport_choice *choice = q->choice;
    const dlc_feature *feature = NULL;
    dlc_transport_path path = {.link_bandwidth = 0};
    char text[48];
    DLC_TRY(dlc_registry_find(q->args->registry, DLC_KIND_TRANSPORT, name,
                              q->args->device, &feature));
    DLC_TRY(judge(q, feature, scope, &path));
    dlc_transport_verdict *verdict = &choice->verdict[choice->verdicts - 1];
    dlc_comm_scope_text(scope, text);
    if (!(path.prediction.bandwidth > 0))
        return dlc_fail(DLC_ERR_CONFIG, "transport %s cannot connect these ranks%s: %s",
                        name, text, verdict->reason);
    verdict->chosen = 1;
    choice->seconds += verdict->seconds;
    choice->level[choice->levels++] = (dlc_transport_level){feature, scope, path};
    return DLC_OK;
}

/* Two names: inside and between the nodes; three: also between the racks. Of levels
 * that the ranks do not have, the outer name counts, for nodes of several ranks on one
 * node the inner one. */
static dlc_status choose_named(request *q, char *const *name, int32_t names) {
    static const dlc_domain_level end[] = {DLC_DOMAIN_MACHINE, DLC_DOMAIN_RACK,
                                           DLC_DOMAIN_JOB};
    dlc_comm_scope all = {DLC_SCOPE_RANKS, DLC_DOMAIN_JOB};
    if (names == 1 || q->scopes.domains[DLC_DOMAIN_MACHINE] == 1)
        return choose_one(q, name[0], all);
    int32_t below = DLC_SCOPE_RANKS;
    for (int32_t i = 0; i < names; i++) {
        dlc_domain_level within = i + 1 < names ? end[i] : DLC_DOMAIN_JOB;
        if (within != DLC_DOMAIN_JOB &&
            !dlc_scopes_has_level(&q->scopes, below, within))
            continue;
        DLC_TRY(choose_one(q, name[i], (dlc_comm_scope){below, within}));
        below = within;
    }
    return DLC_OK;
}

static dlc_status choose_by_name(request *q) {
    enum { NAMES = 3 };
    char *copy = dlc_strdup(q->args->wanted), *name[NAMES + 1], *rest = copy;
    int32_t names = 0;
    if (!copy)
        return DLC_ERR_NOMEM;
    while (rest && names <= NAMES)
        name[names++] = strsep(&rest, "+");
    dlc_status status = names > NAMES
                            ? dlc_fail(DLC_ERR_CONFIG,
                                       "'%s' names more than three transports: inside "
                                       "nodes, between nodes, between racks",
                                       q->args->wanted)
                            : choose_named(q, name, names);
    dlc_free(copy);
    return status;
}

dlc_status dlc_transport_choose(const dlc_choose_args *args,
                                dlc_transport_choice *choice) {
    request q = {.args = args,
                 .bytes = args->bytes > 0 ? args->bytes : DEFAULT_BYTES,
                 .choice = choice,
                 .asked = dlc_alloc(SCOPES, sizeof *q.asked)};
    dlc_status status = q.asked ? dlc_scopes_open(args, &q.scopes) : DLC_ERR_NOMEM;
    choice->bytes = q.bytes;
    if (status == DLC_OK)
        status = dlc_is_auto(args->wanted) ? choose_best(&q) : choose_by_name(&q);
    if (status != DLC_OK)
        choice->levels = 0;
    dlc_scopes_close(&q.scopes);
    dlc_free(q.asked);
    return status;
}

/* ---- As text --------------------------------------------------------------------- */

static const char *level_plural(int32_t level) {
    static const char *const text[DLC_DOMAIN_LEVELS] = {
        "devices",    "NVLink islands", "PCIe switches", "host bridges",
        "NUMA nodes", "nodes",          "racks",         "jobs"};
    return text[level];
}

void dlc_comm_scope_text(dlc_comm_scope scope, char text[48]) {
    if (scope.below != DLC_SCOPE_RANKS)
        (void)snprintf(text, 48, " between the %s", level_plural(scope.below));
    else if (scope.within != DLC_DOMAIN_JOB)
        (void)snprintf(text, 48, " inside the %s", level_plural(scope.within));
    else
        text[0] = '\0';
}

void dlc_transport_choice_name(const dlc_transport_choice *choice, dlc_text *text) {
    for (int32_t i = 0; i < choice->levels; i++)
        dlc_text_add(text, "%s%s", i > 0 ? "+" : "", choice->level[i].feature->name);
}

/* The verdict that was chosen in a scope; NULL: the choice has no such level. */
static const dlc_transport_verdict *chosen_in(const dlc_transport_choice *choice,
                                              dlc_comm_scope scope) {
    for (size_t i = 0; i < choice->verdicts; i++)
        if (choice->verdict[i].chosen &&
            dlc_comm_scope_is_same(choice->verdict[i].scope, scope))
            return &choice->verdict[i];
    return NULL;
}

/* The seconds of the choice in a scope: of all of it for all ranks. -1: the choice has
 * no such level. */
static double chosen_seconds(const dlc_transport_choice *choice, dlc_comm_scope scope) {
    const dlc_transport_verdict *chosen = chosen_in(choice, scope);
    if (scope.below == DLC_SCOPE_RANKS && scope.within == DLC_DOMAIN_JOB)
        return choice->seconds;
    return chosen ? chosen->seconds : -1;
}

static void add_duration(dlc_text *text, double seconds) {
    if (seconds >= 1)
        dlc_text_add(text, "%.3g s", seconds);
    else if (seconds >= 1e-3)
        dlc_text_add(text, "%.3g ms", seconds * 1e3);
    else
        dlc_text_add(text, "%.3g us", seconds * 1e6);
}

static void add_prediction(const dlc_transport_choice *choice, dlc_text *text) {
    if (!(choice->seconds > 0))
        return;
    dlc_text_add(text, "    predicted ");
    add_duration(text, choice->seconds);
    dlc_text_add(text, " to reduce %.3g MB", choice->bytes / 1e6);
    if (choice->next) {
        dlc_text_add(text, "; next best: %s, ", choice->next);
        add_duration(text, choice->next_seconds);
    }
    dlc_text_add(text, "\n");
}

void dlc_transport_choice_text(const dlc_transport_choice *choice, dlc_text *text) {
    char scope[48];
    for (int32_t i = 0; i < choice->levels; i++) {
        const dlc_transport_verdict *v = chosen_in(choice, choice->level[i].scope);
        dlc_comm_scope_text(v->scope, scope);
        dlc_text_add(text, "transport: %s%s: %s\n", v->name, scope, v->reason);
    }
    add_prediction(choice, text);
    for (size_t i = 0; i < choice->verdicts; i++) {
        const dlc_transport_verdict *v = &choice->verdict[i];
        double against = chosen_seconds(choice, v->scope);
        if (v->chosen || against < 0)
            continue;
        dlc_comm_scope_text(v->scope, scope);
        dlc_text_add(text, "    not %s%s: ", v->name, scope);
        if (v->seconds > 0 && against > 0) {
            dlc_text_add(text, "slower, ");
            add_duration(text, v->seconds);
            dlc_text_add(text, " against ");
            add_duration(text, against);
            dlc_text_add(text, ": ");
        }
        dlc_text_add(text, "%s\n", v->reason);
    }
}

void dlc_transport_choice_free(dlc_transport_choice *choice) {
    for (size_t i = 0; i < choice->verdicts; i++) {
        dlc_free(choice->verdict[i].name);
        dlc_free(choice->verdict[i].reason);
    }
    dlc_free(choice->verdict);
    dlc_free(choice->next);
    *choice = (dlc_transport_choice){0};
}

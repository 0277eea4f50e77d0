/* See split.h. */
#include "plan/split.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

/* How a tensor lies: each rank has its samples; all samples; its channels of all. */
enum { OWN, WHOLE, SLICED, SPREADS };

/* Splitting must be faster by so much to be worth its while: predictions are no better.
 */
static const double MARGIN = 0.02;

/* How many rounds of trying to change the choice for one layer. */
enum { ROUNDS = 4 };

typedef struct problem {
    const dlc_plan_layer *layer;
    size_t layers;
    const dlc_plan_cluster *cluster;
    const dlc_plan_exchange *exchange;
    double samples; /* of a rank */
    size_t first;   /* layer that isn't light: what it reads has no gradient */
} problem;

/* ---- Exchanging activations ------------------------------------------------------ */

/* Forward and backward of a tensor of `bytes` over all ranks that is needed otherwise
 * than it lies. */
typedef struct move {
    double forward, backward;
    double bytes; /* that a rank sends, both ways */
} move;

static move move_between(const problem *p, int from, int to, double bytes) {
    double ranks = dlc_plan_ranks(p->cluster);
    double gather = dlc_plan_gather(p->cluster, bytes);
    double swap = dlc_plan_all_to_all(p->cluster, bytes / ranks);
    double gathered = bytes * (ranks - 1) / ranks, swapped = gathered / ranks;
    if (from == to)
        return (move){0};
    if (from == SLICED && to == OWN)
        return (move){swap, swap, 2 * swapped};
    if (from == WHOLE && to == OWN)
        return (move){0, gather, gathered};
    return (move){gather, gather, 2 * gathered};
}

static move move_to(const problem *p, size_t i, int from, int to) {
    double ranks = dlc_plan_ranks(p->cluster);
    move m = move_between(p, from, to, p->layer[i].in_bytes * p->samples * ranks);
    if (i <= p->first) {
        m.backward = 0;
        m.bytes /= 2;
    }
    return m;
}

/* ---- A choice -------------------------------------------------------------------- */

static double update_of(const problem *p, double bytes) {
    return p->cluster->update > 0 ? bytes / p->cluster->update : 0;
}

/* A split layer's fixed part is that of its share of the weights. */
static double fixed_saved(const problem *p, double fixed) {
    return fixed * (1 - 1.0 / dlc_plan_ranks(p->cluster));
}

/* What is there besides the layers' own times, for a choice. */
static void find_extra(const problem *p, const char *model, dlc_plan_extra *extra) {
    int spread = OWN;
    for (size_t i = 0; i < p->layers; i++) {
        const dlc_plan_layer *layer = &p->layer[i];
        extra[i] = (dlc_plan_extra){0};
        if (layer->is_light)
            continue;
        move m = move_to(p, i, spread, model[i] ? WHOLE : OWN);
        extra[i].forward = m.forward;
        extra[i].backward = m.backward;
        spread = model[i] ? SLICED : OWN;
        if (!model[i])
            continue;
        extra[i].alone = 1;
        extra[i].parameter_bytes = layer->parameter_bytes / dlc_plan_ranks(p->cluster);
        extra[i].forward -= fixed_saved(p, layer->forward.fixed);
        extra[i].backward -= fixed_saved(p, layer->backward.fixed);
    }
}

static dlc_status step_of(const problem *p, const char *model, dlc_plan_extra *extra,
                          dlc_plan_step *step) {
    find_extra(p, model, extra);
    return dlc_plan_step_of(p->layer, p->layers, extra, p->cluster, p->exchange,
                            p->samples, step);
}

/* ---- Layer by layer -------------------------------------------------------------- */

/* Seconds of a layer of its own, where the exchange of gradients counts by `price`. */
static double own_cost(const problem *p, size_t i, int model, double price) {
    const dlc_plan_layer *layer = &p->layer[i];
    double seconds = dlc_plan_compute(layer, 1, p->samples),
           bytes = layer->parameter_bytes;
    double scale = p->exchange->scale > 0 ? p->exchange->scale : 1;
    if (model)
        return seconds - fixed_saved(p, layer->forward.fixed + layer->backward.fixed) +
               update_of(p, bytes / dlc_plan_ranks(p->cluster));
    if (bytes <= 0)
        return seconds;
    double pass = dlc_plan_pass(p->cluster, bytes * scale);
    if (pass > 0)
        return seconds + price * pass;
    return seconds + update_of(p, bytes) +
           price * dlc_plan_all_reduce(p->cluster, p->exchange->way, bytes * scale);
}

typedef struct path {
    double cost[SPREADS];
    int from[SPREADS]; /* the spread before */
} path;

static void extend(const problem *p, size_t i, double price, const path *before,
                   path *after) {
    *after = (path){{INFINITY, INFINITY, INFINITY}, {0}};
    for (int from = 0; from < SPREADS; from++) {
        if (p->layer[i].is_light) {
            after->cost[from] = before->cost[from] + own_cost(p, i, 0, price);
            after->from[from] = from;
            continue;
        }
        for (int model = 0; model <= p->layer[i].can_split; model++) {
            move m = move_to(p, i, from, model ? WHOLE : OWN);
            int to = model ? SLICED : OWN;
            double cost = before->cost[from] + m.forward + m.backward +
                          own_cost(p, i, model, price);
            if (cost < after->cost[to]) {
                after->cost[to] = cost;
                after->from[to] = from;
            }
        }
    }
}

/* The cheapest way through all layers. `path` has layers + 1 elements. */
static void find_path(const problem *p, double price, path *path_, char *model) {
    path_[0] = (path){{0, INFINITY, INFINITY}, {0}};
    for (size_t i = 0; i < p->layers; i++)
        extend(p, i, price, &path_[i], &path_[i + 1]);
    int spread = OWN;
    const double *last = path_[p->layers].cost;
    for (int s = 0; s < SPREADS; s++)
        if (last[s] < last[spread])
            spread = s;
    for (size_t i = p->layers; i-- > 0;) {
        model[i] = !p->layer[i].is_light && spread == SLICED;
        spread = path_[i + 1].from[spread];
    }
}

/* ---- The search ------------------------------------------------------------------ */

typedef struct search {
    problem p;
    char *best, *trial;    /* own; is a layer split? */
    dlc_plan_extra *extra; /* own */
    path *path;            /* own */
    dlc_plan_step step;    /* of `best` */
} search;

static void close_search(search *s) {
    dlc_free(s->path);
    dlc_free(s->extra);
    dlc_free(s->trial);
    dlc_free(s->best);
}

static dlc_status open_search(const problem *p, search *s) {
    *s = (search){.p = *p};
    s->best = dlc_alloc(p->layers, 1);
    s->trial = dlc_alloc(p->layers, 1);
    s->extra = dlc_alloc(p->layers, sizeof *s->extra);
    s->path = dlc_alloc(p->layers + 1, sizeof *s->path);
    if (!s->best || !s->trial || !s->extra || !s->path) {
        close_search(s);
        return DLC_ERR_NOMEM;
    }
    return DLC_OK;
}

static dlc_status try_trial(search *s, int *better) {
    dlc_plan_step step;
    DLC_TRY(step_of(&s->p, s->trial, s->extra, &step));
    if (better)
        *better = step.seconds < s->step.seconds;
    if (step.seconds < s->step.seconds) {
        s->step = step;
        memcpy(s->best, s->trial, s->p.layers);
    }
    return DLC_OK;
}

/* Backward hides some of the exchange: how much, only the whole step tells. So ways are
 * found for several prices of it, then single layers are changed. */
static dlc_status find_best(search *s) {
    static const double prices[] = {1, 0.5, 0.2, 0.05};
    for (size_t k = 0; k < sizeof prices / sizeof *prices; k++) {
        find_path(&s->p, prices[k], s->path, s->trial);
        DLC_TRY(try_trial(s, NULL));
    }
    for (int round = 0, moved = 1; moved && round < ROUNDS; round++) {
        moved = 0;
        for (size_t i = 0; i < s->p.layers; i++) {
            int better = 0;
            if (!s->p.layer[i].can_split || s->p.layer[i].is_light)
                continue;
            memcpy(s->trial, s->best, s->p.layers);
            s->trial[i] = !s->trial[i];
            DLC_TRY(try_trial(s, &better));
            moved |= better;
        }
    }
    return DLC_OK;
}

/* ---- What comes of it ------------------------------------------------------------ */

static void tell_layers(const problem *p, const char *model, dlc_plan_choice *choice) {
    double ranks = dlc_plan_ranks(p->cluster);
    int spread = OWN;
    for (size_t i = 0; i < p->layers; i++) {
        const dlc_plan_layer *layer = &p->layer[i];
        choice[i] = (dlc_plan_choice){.model = layer->is_light ? spread == SLICED
                                                               : model[i]};
        if (layer->is_light)
            continue;
        /* The rest of the net as it was chosen. */
        move as_data = move_to(p, i, spread, OWN),
             as_model = move_to(p, i, spread, WHOLE);
        choice[i].data_seconds = own_cost(p, i, 0, 1) + as_data.forward +
                                 as_data.backward;
        choice[i].model_seconds = own_cost(p, i, 1, 1) + as_model.forward +
                                  as_model.backward;
        choice[i].data_bytes = as_data.bytes +
                               2 * layer->parameter_bytes * (1 - 1 / ranks);
        choice[i].model_bytes = as_model.bytes;
        spread = model[i] ? SLICED : OWN;
    }
}

static dlc_status tell(search *s, dlc_plan_choice *choice, dlc_plan_extra *extra,
                       dlc_plan_split *split) {
    const problem *p = &s->p;
    dlc_plan_split made = {.split = 0};
    memset(s->trial, 0, p->layers);
    DLC_TRY(step_of(p, s->trial, s->extra, &made.data));
    made.memory_data = dlc_plan_memory(p->layer, p->layers, NULL, p->cluster,
                                       p->samples);
    DLC_TRY(step_of(p, s->best, s->extra, &made.mix));
    made.memory_mix = dlc_plan_memory(p->layer, p->layers, s->extra, p->cluster,
                                      p->samples);
    for (size_t i = 0; i < p->layers; i++)
        made.split += s->best[i];
    tell_layers(p, s->best, choice);
    if (extra)
        memcpy(extra, s->extra, p->layers * sizeof *extra);
    *split = made;
    return DLC_OK;
}

static problem make_problem(const dlc_plan_layer *layer, size_t layers,
                            const dlc_plan_cluster *cluster,
                            const dlc_plan_exchange *exchange, double samples) {
    problem p = {layer, layers, cluster, exchange, samples, 0};
    while (p.first < layers && layer[p.first].is_light)
        p.first++;
    return p;
}

dlc_status dlc_plan_split_of(const dlc_plan_layer *layer, size_t layers,
                             const dlc_plan_cluster *cluster,
                             const dlc_plan_exchange *exchange, double samples,
                             dlc_plan_choice *choice, dlc_plan_extra *extra,
                             dlc_plan_split *split) {
    problem p = make_problem(layer, layers, cluster, exchange, samples);
    search s;
    DLC_TRY(dlc_plan_check(cluster));
    DLC_TRY(open_search(&p, &s));
    dlc_status status = step_of(&p, s.best, s.extra, &s.step);
    double data = s.step.seconds;
    if (status == DLC_OK && dlc_plan_ranks(cluster) > 1)
        status = find_best(&s);
    if (s.step.seconds > data * (1 - MARGIN))
        memset(s.best, 0, layers);
    if (status == DLC_OK)
        status = tell(&s, choice, extra, split);
    close_search(&s);
    return status;
}

dlc_status dlc_plan_split_cost(const dlc_plan_layer *layer, size_t layers,
                               const dlc_plan_cluster *cluster,
                               const dlc_plan_exchange *exchange, double samples,
                               dlc_plan_choice *choice, dlc_plan_extra *extra,
                               dlc_plan_split *split) {
    problem p = make_problem(layer, layers, cluster, exchange, samples);
    search s;
    DLC_TRY(dlc_plan_check(cluster));
    DLC_TRY(open_search(&p, &s));
    for (size_t i = 0; i < layers; i++)
        s.best[i] = choice[i].model && !layer[i].is_light;
    dlc_status status = tell(&s, choice, extra, split);
    close_search(&s);
    return status;
}

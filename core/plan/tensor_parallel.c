/* Searches for the layers to split: shortest paths over the layers for several prices
 * of the exchange, then changes of single layers, each judged by a simulated step. */
#include "plan/tensor_parallel.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

/* The placement of a tensor: each rank has its samples; all samples; its channels of
 * all samples. */
enum { SAMPLE_SHARDED, REPLICATED, CHANNEL_SHARDED, PLACEMENTS };

/* Rounds of changing single layers. */
enum { ROUNDS = 4 };

typedef struct problem {
    const dlc_plan_layer *layer;
    size_t layers;
    const dlc_plan_cluster *cluster;
    const dlc_plan_exchange *exchange;
    double samples; /* of a rank */
    size_t first;   /* the first layer that isn't light; its input needs no gradient */
} problem;

/* ---- Resharding activations ------------------------------------------------------ */

/* The cost of changing the placement of a tensor, forward, and of its gradient,
 * backward. */
typedef struct reshard {
    double forward, backward;
    double bytes; /* that a rank sends in both */
} reshard;

static reshard reshard_between(const problem *p, int from, int to, double bytes) {
    double ranks = dlc_plan_ranks(p->cluster);
    double gather = dlc_plan_all_gather(p->cluster, bytes);
    double swap = dlc_plan_all_to_all(p->cluster, bytes / ranks);
    double gathered = bytes * (ranks - 1) / ranks, swapped = gathered / ranks;
    if (from == to)
        return (reshard){0};
    if (from == CHANNEL_SHARDED && to == SAMPLE_SHARDED)
        return (reshard){swap, swap, 2 * swapped};
    if (from == REPLICATED && to == SAMPLE_SHARDED)
        return (reshard){0, gather, gathered};
    return (reshard){gather, gather, 2 * gathered};
}

static reshard reshard_to(const problem *p, size_t i, int from, int to) {
    double ranks = dlc_plan_ranks(p->cluster);
    reshard m = reshard_between(p, from, to, p->layer[i].in_bytes * p->samples * ranks);
    if (i <= p->first) {
        m.backward = 0;
        m.bytes /= 2;
    }
    return m;
}

/* ---- A choice -------------------------------------------------------------------- */

/* The time saved because a split layer reads only its share of the weights. */
static double fixed_saved(const problem *p, double fixed) {
    return fixed * (1 - 1.0 / dlc_plan_ranks(p->cluster));
}

/* Computes what a choice adds to the layers' own times. */
static void find_extra(const problem *p, const char *split, dlc_plan_extra *extra) {
    int placement = SAMPLE_SHARDED;
    for (size_t i = 0; i < p->layers; i++) {
        const dlc_plan_layer *layer = &p->layer[i];
        extra[i] = (dlc_plan_extra){0};
        if (layer->is_light)
            continue;
        reshard m = reshard_to(p, i, placement, split[i] ? REPLICATED : SAMPLE_SHARDED);
        extra[i].forward = m.forward;
        extra[i].backward = m.backward;
        placement = split[i] ? CHANNEL_SHARDED : SAMPLE_SHARDED;
        if (!split[i])
            continue;
        extra[i].is_split = 1;
        extra[i].parameter_bytes = layer->parameter_bytes / dlc_plan_ranks(p->cluster);
        extra[i].forward -= fixed_saved(p, layer->forward.fixed);
        extra[i].backward -= fixed_saved(p, layer->backward.fixed);
    }
}

static dlc_status step_of(const problem *p, const char *split, dlc_plan_extra *extra,
                          dlc_plan_step *step) {
    find_extra(p, split, extra);
    return dlc_plan_step_of(p->layer, p->layers, extra, p->cluster, p->exchange,
                            p->samples, step);
}

/* ---- Layer by layer -------------------------------------------------------------- */

/* Seconds of a layer, with the exchange of its gradients weighted by `price`. */
static double layer_cost(const problem *p, size_t i, int split, double price) {
    const dlc_plan_layer *layer = &p->layer[i];
    double seconds = dlc_plan_compute(layer, 1, p->samples),
           bytes = layer->parameter_bytes;
    double scale = p->exchange->scale > 0 ? p->exchange->scale : 1;
    if (split)
        return seconds - fixed_saved(p, layer->forward.fixed + layer->backward.fixed) +
               dlc_plan_update_seconds(p->cluster, bytes / dlc_plan_ranks(p->cluster));
    if (bytes <= 0)
        return seconds;
    double fused = dlc_plan_fused_update(p->cluster, bytes * scale);
    if (fused > 0)
        return seconds + price * fused;
    return seconds + dlc_plan_update_seconds(p->cluster, bytes) +
           price *
               dlc_plan_all_reduce(p->cluster, p->exchange->algorithm, bytes * scale);
}

typedef struct path {
    double cost[PLACEMENTS];
    int from[PLACEMENTS]; /* the placement before */
} path;

static void extend(const problem *p, size_t i, double price, const path *before,
                   path *after) {
    *after = (path){{INFINITY, INFINITY, INFINITY}, {0}};
    for (int from = 0; from < PLACEMENTS; from++) {
        if (p->layer[i].is_light) {
            after->cost[from] = before->cost[from] + layer_cost(p, i, 0, price);
            after->from[from] = from;
            continue;
        }
        for (int split = 0; split <= p->layer[i].can_split; split++) {
            reshard m = reshard_to(p, i, from, split ? REPLICATED : SAMPLE_SHARDED);
            int to = split ? CHANNEL_SHARDED : SAMPLE_SHARDED;
            double cost = before->cost[from] + m.forward + m.backward +
                          layer_cost(p, i, split, price);
            if (cost < after->cost[to]) {
                after->cost[to] = cost;
                after->from[to] = from;
            }
        }
    }
}

/* Finds the cheapest sequence of placements. `path_` has layers + 1 elements. */
static void find_path(const problem *p, double price, path *path_, char *split) {
    path_[0] = (path){{0, INFINITY, INFINITY}, {0}};
    for (size_t i = 0; i < p->layers; i++)
        extend(p, i, price, &path_[i], &path_[i + 1]);
    int placement = SAMPLE_SHARDED;
    const double *last = path_[p->layers].cost;
    for (int s = 0; s < PLACEMENTS; s++)
        if (last[s] < last[placement])
            placement = s;
    for (size_t i = p->layers; i-- > 0;) {
        split[i] = !p->layer[i].is_light && placement == CHANNEL_SHARDED;
        placement = path_[i + 1].from[placement];
    }
}

/* ---- The search ------------------------------------------------------------------ */

typedef struct search {
    problem p;
    char *best, *trial;    /* owned; per layer: is it split? */
    dlc_plan_extra *extra; /* owned */
    path *path;            /* owned */
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

/* Only a simulated step shows how much of the exchange backward hides. So choices are
 * found for several prices of the exchange, then single layers are changed. */
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

/* ---- Result ------------------------------------------------------------ */

static void fill_choices(const problem *p, const char *split,
                         dlc_plan_layer_choice *choice) {
    double ranks = dlc_plan_ranks(p->cluster);
    int placement = SAMPLE_SHARDED;
    for (size_t i = 0; i < p->layers; i++) {
        const dlc_plan_layer *layer = &p->layer[i];
        choice[i] = (dlc_plan_layer_choice){
            .tensor = layer->is_light ? placement == CHANNEL_SHARDED : split[i]};
        if (layer->is_light)
            continue;
        /* With the rest of the net as chosen. */
        reshard as_data = reshard_to(p, i, placement, SAMPLE_SHARDED),
                as_tensor = reshard_to(p, i, placement, REPLICATED);
        choice[i].data_seconds = layer_cost(p, i, 0, 1) + as_data.forward +
                                 as_data.backward;
        choice[i].tensor_seconds = layer_cost(p, i, 1, 1) + as_tensor.forward +
                                   as_tensor.backward;
        choice[i].data_bytes = as_data.bytes +
                               2 * layer->parameter_bytes * (1 - 1 / ranks);
        choice[i].tensor_bytes = as_tensor.bytes;
        placement = split[i] ? CHANNEL_SHARDED : SAMPLE_SHARDED;
    }
}

static dlc_status make_result(search *s, dlc_plan_layer_choice *choice,
                              dlc_plan_extra *extra, dlc_plan_tensor_parallel *result) {
    const problem *p = &s->p;
    dlc_plan_tensor_parallel made = {.split = 0};
    memset(s->trial, 0, p->layers);
    DLC_TRY(step_of(p, s->trial, s->extra, &made.data));
    made.memory_data = dlc_plan_memory(p->layer, p->layers, NULL, p->cluster,
                                       p->samples);
    DLC_TRY(step_of(p, s->best, s->extra, &made.mix));
    made.memory_mix = dlc_plan_memory(p->layer, p->layers, s->extra, p->cluster,
                                      p->samples);
    for (size_t i = 0; i < p->layers; i++)
        made.split += s->best[i];
    fill_choices(p, s->best, choice);
    if (extra)
        memcpy(extra, s->extra, p->layers * sizeof *extra);
    *result = made;
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

dlc_status dlc_plan_choose_tensor_parallel(
    const dlc_plan_layer *layer, size_t layers, const dlc_plan_cluster *cluster,
    const dlc_plan_exchange *exchange, double samples, dlc_plan_layer_choice *choice,
    dlc_plan_extra *extra, dlc_plan_tensor_parallel *result) {
    problem p = make_problem(layer, layers, cluster, exchange, samples);
    search s;
    DLC_TRY(dlc_plan_check(cluster));
    DLC_TRY(open_search(&p, &s));
    dlc_status status = step_of(&p, s.best, s.extra, &s.step);
    double data = s.step.seconds;
    if (status == DLC_OK && dlc_plan_ranks(cluster) > 1)
        status = find_best(&s);
    if (s.step.seconds > data * (1 - DLC_PLAN_MARGIN))
        memset(s.best, 0, layers);
    if (status == DLC_OK)
        status = make_result(&s, choice, extra, result);
    close_search(&s);
    return status;
}

dlc_status dlc_plan_cost_tensor_parallel(const dlc_plan_layer *layer, size_t layers,
                                         const dlc_plan_cluster *cluster,
                                         const dlc_plan_exchange *exchange,
                                         double samples, dlc_plan_layer_choice *choice,
                                         dlc_plan_extra *extra,
                                         dlc_plan_tensor_parallel *result) {
    problem p = make_problem(layer, layers, cluster, exchange, samples);
    search s;
    DLC_TRY(dlc_plan_check(cluster));
    DLC_TRY(open_search(&p, &s));
    for (size_t i = 0; i < layers; i++)
        s.best[i] = choice[i].tensor && !layer[i].is_light;
    dlc_status status = make_result(&s, choice, extra, result);
    close_search(&s);
    return status;
}

double dlc_plan_tensor_gain(const dlc_plan_layer *layer, double samples) {
    double activations = samples * (layer->in_bytes + layer->out_bytes);
    return layer->can_split && activations > 0 ? layer->parameter_bytes / activations
                                               : 0;
}

/* A step of data parallelism, played through: when backward has filled each bucket,
 * when its sum is there, who waits for it. The rules are those of core/comm/exchange.h.
 */
#include <math.h>

#include "base/memory.h"
#include "plan/buckets.h"

/* It settles in the second step: a step begins with nothing under way but what the one
 * before has left. */
enum { STEPS = 3 };

typedef struct play {
    const dlc_plan_layer *layer;
    const dlc_plan_extra *extra; /* or NULL */
    size_t layers;
    const dlc_plan_cluster *cluster;
    double samples;
    dlc_plan_overlap overlap;
    dlc_plan_buckets buckets;
    double *cost;   /* own; seconds of each bucket's sum */
    double *filled; /* own; when it may begin; */
    double *summed; /* own; when it is there */
    size_t *stack;  /* own; buckets that wait */
    int *updated;   /* own; have its weights been updated? */
} play;

static dlc_plan_extra extra_of(const play *p, size_t i) {
    return p->extra ? p->extra[i] : (dlc_plan_extra){0};
}

static double forward_of(const play *p, size_t i) {
    return dlc_plan_seconds(p->layer[i].forward, p->samples) + extra_of(p, i).forward;
}

static double backward_of(const play *p, size_t i) {
    return dlc_plan_seconds(p->layer[i].backward, p->samples) + extra_of(p, i).backward;
}

static double update_of(const play *p, double bytes) {
    return p->cluster->update > 0 ? bytes / p->cluster->update : 0;
}

/* ---- The exchange's side --------------------------------------------------------- */

static void exchange_in_order(play *p) {
    double now = 0;
    for (size_t k = 0; k < p->buckets.count; k++) {
        now = fmax(now, p->filled[k]) + p->cost[k];
        p->summed[k] = now;
    }
}

/* Of the buckets that are filled the last one goes next. */
static void exchange_newest(play *p) {
    size_t count = p->buckets.count, waiting = 0, next = 0;
    double now = 0;
    while (waiting > 0 || next < count) {
        if (waiting == 0)
            now = fmax(now, p->filled[next]);
        while (next < count && p->filled[next] <= now)
            p->stack[waiting++] = next++;
        size_t k = p->stack[--waiting];
        now += p->cost[k];
        p->summed[k] = now;
    }
}

/* ---- The side of the layers ------------------------------------------------------ */

/* Sharded, a rank updates its part; in one pass that was part of the sum. */
static double updated_of(const play *p, double bytes) {
    return p->overlap == DLC_PLAN_OVERLAP_SHARDS ? bytes / dlc_plan_ranks(p->cluster)
           : p->overlap == DLC_PLAN_OVERLAP_PASS ? 0
                                                 : bytes;
}

/* Waits for a bucket and updates its weights. */
static double take_in(play *p, size_t k, double now) {
    if (p->updated[k])
        return now;
    p->updated[k] = 1;
    return fmax(now, p->summed[k]) +
           update_of(p, updated_of(p, p->buckets.piece[k].bytes));
}

/* Sharded, what is given out when a bucket is updated is hidden by nothing. */
static double take_in_all(play *p, double now) {
    for (size_t k = 0; k < p->buckets.count; k++) {
        now = take_in(p, k, now);
        if (p->overlap == DLC_PLAN_OVERLAP_SHARDS)
            now += p->cost[k];
    }
    return now;
}

/* Buckets go from the last layer to the first: each is needed by its first layer. */
static double play_forward(play *p, double now, int first) {
    size_t k = first ? 0 : p->buckets.count;
    for (size_t i = 0; i < p->layers; i++) {
        for (; k > 0 && p->buckets.piece[k - 1].first <= i; k--)
            now = take_in(p, k - 1, now);
        now += forward_of(p, i);
    }
    return now;
}

static double play_backward(play *p, double now) {
    size_t k = 0;
    for (size_t i = p->layers; i-- > 0;) {
        dlc_plan_extra extra = extra_of(p, i);
        now += backward_of(p, i) +
               (extra.alone ? update_of(p, extra.parameter_bytes) : 0);
        for (; k < p->buckets.count && p->buckets.piece[k].first == i; k++) {
            if (k + 1 < p->buckets.count) /* the last is summed where it was filled */
                now += p->cluster->handover;
            p->filled[k] = now;
        }
    }
    for (k = 0; k < p->buckets.count; k++) {
        p->filled[k] = p->overlap == DLC_PLAN_OVERLAP_NONE ? now : p->filled[k];
        p->updated[k] = 0;
    }
    return now;
}

static double play_steps(play *p) {
    double now = 0, begun = 0;
    for (int step = 0; step < STEPS; step++) {
        begun = now;
        now = play_forward(p, now, step == 0);
        now = play_backward(p, now);
        if (p->overlap == DLC_PLAN_OVERLAP_AHEAD)
            exchange_newest(p);
        else
            exchange_in_order(p);
        if (p->overlap != DLC_PLAN_OVERLAP_AHEAD)
            now = take_in_all(p, now);
    }
    return now - begun;
}

/* ---- A step ---------------------------------------------------------------------- */

static dlc_status cut(play *p, const dlc_plan_exchange *exchange, double scale,
                      dlc_plan_step *step) {
    double *bytes = dlc_alloc(p->layers, sizeof *bytes), sum = 0;
    if (!bytes)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < p->layers; i++)
        sum += bytes[i] = extra_of(p, i).alone ? 0 : p->layer[i].parameter_bytes;
    step->bytes = sum * scale;
    step->bucket = exchange->bucket > 0 ? exchange->bucket
                   : p->overlap == DLC_PLAN_OVERLAP_NONE
                       ? INFINITY
                       : dlc_plan_bucket(p->cluster, exchange->way, step->bytes);
    dlc_status status = dlc_plan_ranks(p->cluster) == 1
                            ? dlc_plan_buckets_cut(bytes, p->layers, INFINITY,
                                                   &p->buckets)
                            : dlc_plan_buckets_cut(bytes, p->layers,
                                                   step->bucket / scale, &p->buckets);
    dlc_free(bytes);
    return status;
}

static dlc_status open_play(play *p, const dlc_plan_exchange *exchange, double scale,
                            dlc_plan_step *step) {
    DLC_TRY(cut(p, exchange, scale, step));
    p->cost = dlc_alloc(p->buckets.count, sizeof *p->cost);
    p->filled = dlc_alloc(p->buckets.count, sizeof *p->filled);
    p->summed = dlc_alloc(p->buckets.count, sizeof *p->summed);
    p->stack = dlc_alloc(p->buckets.count, sizeof *p->stack);
    p->updated = dlc_alloc(p->buckets.count, sizeof *p->updated);
    if (!p->cost || !p->filled || !p->summed || !p->stack || !p->updated)
        return DLC_ERR_NOMEM;
    double part = p->overlap == DLC_PLAN_OVERLAP_SHARDS ? 0.5 : 1;
    for (size_t k = 0; k < p->buckets.count; k++) {
        double bytes = p->buckets.piece[k].bytes * scale;
        double sum = p->overlap == DLC_PLAN_OVERLAP_PASS
                         ? dlc_plan_pass(p->cluster, bytes)
                         : dlc_plan_all_reduce(p->cluster, exchange->way, bytes);
        p->cost[k] = part * sum; /* one of its two halves */
        step->exchange += sum;
    }
    return DLC_OK;
}

static void close_play(play *p) {
    dlc_free(p->updated);
    dlc_free(p->stack);
    dlc_free(p->summed);
    dlc_free(p->filled);
    dlc_free(p->cost);
    dlc_plan_buckets_free(&p->buckets);
}

static void add_layers(const play *p, dlc_plan_step *step) {
    for (size_t i = 0; i < p->layers; i++) {
        dlc_plan_extra extra = extra_of(p, i);
        step->forward += forward_of(p, i);
        step->backward += backward_of(p, i);
        step->update += update_of(p, extra.alone
                                         ? extra.parameter_bytes
                                         : updated_of(p, p->layer[i].parameter_bytes));
    }
}

/* What was hidden has taken time from the layers after all. */
static void add_stolen(const dlc_plan_cluster *cluster, dlc_plan_step *step) {
    double others = step->forward + step->backward + step->update + step->rest;
    step->exposed = fmax(step->seconds - others, 0);
    double hidden = fmax(step->exchange - step->exposed, 0);
    step->seconds += fmin(cluster->stolen, 1) * hidden;
    step->exposed = fmax(step->seconds - others, 0);
}

static dlc_status one_step(play p, const dlc_plan_exchange *exchange,
                           dlc_plan_overlap overlap, dlc_plan_step *step) {
    double scale = exchange->scale > 0 ? exchange->scale : 1;
    dlc_plan_cluster cluster = *p.cluster;
    dlc_plan_step made = {.overlap = overlap};
    if (dlc_plan_ranks(&cluster) == 1)
        cluster.handover = cluster.stolen = 0; /* nothing is handed over */
    p.cluster = &cluster;
    p.overlap = overlap;
    dlc_status status = open_play(&p, exchange, scale, &made);
    if (status == DLC_OK) {
        add_layers(&p, &made);
        made.buckets = (int32_t)p.buckets.count;
        made.seconds = play_steps(&p) + cluster.rest;
        made.rest = cluster.rest;
        add_stolen(&cluster, &made);
        *step = made;
    }
    close_play(&p);
    return status;
}

static int can_pass(const dlc_plan_cluster *cluster) {
    return dlc_plan_pass(cluster, 1) > 0;
}

static dlc_status best_step(const play *p, const dlc_plan_exchange *exchange,
                            dlc_plan_step *step) {
    dlc_plan_step best, other;
    if (can_pass(p->cluster))
        return one_step(*p, exchange, DLC_PLAN_OVERLAP_PASS, step);
    DLC_TRY(one_step(*p, exchange, DLC_PLAN_OVERLAP_BACKWARD, &best));
    for (dlc_plan_overlap overlap = DLC_PLAN_OVERLAP_AHEAD;
         overlap < DLC_PLAN_OVERLAP_PASS && dlc_plan_ranks(p->cluster) > 1; overlap++) {
        DLC_TRY(one_step(*p, exchange, overlap, &other));
        if (other.seconds < best.seconds)
            best = other;
    }
    *step = best;
    return DLC_OK;
}

dlc_status dlc_plan_step_of(const dlc_plan_layer *layer, size_t layers,
                            const dlc_plan_extra *extra,
                            const dlc_plan_cluster *cluster,
                            const dlc_plan_exchange *exchange, double samples,
                            dlc_plan_step *step) {
    const play p = {.layer = layer,
                    .extra = extra,
                    .layers = layers,
                    .cluster = cluster,
                    .samples = samples};
    DLC_TRY(dlc_plan_check(cluster));
    if (exchange->overlap == DLC_PLAN_OVERLAP_PASS && !can_pass(cluster))
        return dlc_fail(DLC_ERR_CONFIG, "sums and updates in one pass are for ranks of "
                                        "one machine that reach each other's memory");
    return exchange->overlap == DLC_PLAN_OVERLAP_BEST
               ? best_step(&p, exchange, step)
               : one_step(p, exchange, exchange->overlap, step);
}

double dlc_plan_memory(const dlc_plan_layer *layer, size_t layers,
                       const dlc_plan_extra *extra, const dlc_plan_cluster *cluster,
                       double samples) {
    double bytes = cluster->other_bytes;
    for (size_t i = 0; i < layers; i++) {
        int alone = extra && extra[i].alone;
        double kept = layer[i].kept_bytes > 0 ? layer[i].kept_bytes
                                              : layer[i].out_bytes;
        double weights = alone ? extra[i].parameter_bytes : layer[i].parameter_bytes;
        bytes += weights * (1 + cluster->copies) + kept * samples;
    }
    return bytes;
}

/* Simulates a data-parallel step: when backward has filled each bucket, when its
 * reduction is done, and what waits for it. The rules are those of
 * core/comm/exchange.h. */
#include <math.h>

#include "base/memory.h"
#include "plan/buckets.h"

/* The steady state is reached in the second step, since a step depends only on what the
 * one before has left in flight. */
enum { STEPS = 3 };

typedef struct simulation {
    const dlc_plan_layer *layer;
    const dlc_plan_extra *extra; /* or NULL */
    size_t layers;
    const dlc_plan_cluster *cluster;
    double samples;
    dlc_plan_overlap overlap;
    dlc_plan_buckets buckets;
    double *cost;    /* owned; seconds of each bucket's reduction */
    double *filled;  /* owned; when each may begin */
    double *reduced; /* owned; when each is done */
    size_t *stack;   /* owned; buckets that wait */
    int *updated;    /* owned; whether its weights have been updated */
} simulation;

static dlc_plan_extra extra_of(const simulation *p, size_t i) {
    return p->extra ? p->extra[i] : (dlc_plan_extra){0};
}

static double forward_of(const simulation *p, size_t i) {
    return dlc_plan_seconds(p->layer[i].forward, p->samples) + extra_of(p, i).forward;
}

static double backward_of(const simulation *p, size_t i) {
    return dlc_plan_seconds(p->layer[i].backward, p->samples) + extra_of(p, i).backward;
}

/* ---- The exchange --------------------------------------------------------- */

static void exchange_in_order(simulation *p) {
    double now = 0;
    for (size_t k = 0; k < p->buckets.count; k++) {
        now = fmax(now, p->filled[k]) + p->cost[k];
        p->reduced[k] = now;
    }
}

/* Of the filled buckets the newest is reduced next. */
static void exchange_newest(simulation *p) {
    size_t count = p->buckets.count, waiting = 0, next = 0;
    double now = 0;
    while (waiting > 0 || next < count) {
        if (waiting == 0)
            now = fmax(now, p->filled[next]);
        while (next < count && p->filled[next] <= now)
            p->stack[waiting++] = next++;
        size_t k = p->stack[--waiting];
        now += p->cost[k];
        p->reduced[k] = now;
    }
}

/* ---- The layers ------------------------------------------------------ */

/* The bytes of weights that a rank updates: its shard if updates are sharded, none
 * after a fused update. */
static double updated_of(const simulation *p, double bytes) {
    return p->overlap == DLC_PLAN_OVERLAP_SHARDED ? bytes / dlc_plan_ranks(p->cluster)
           : p->overlap == DLC_PLAN_OVERLAP_FUSED ? 0
                                                  : bytes;
}

/* Waits for a bucket and updates its weights. */
static double finish_bucket(simulation *p, size_t k, double now) {
    if (p->updated[k])
        return now;
    p->updated[k] = 1;
    return fmax(now, p->reduced[k]) +
           dlc_plan_update_seconds(p->cluster,
                                   updated_of(p, p->buckets.bucket[k].bytes));
}

/* Finishes all buckets; nothing hides the all-gather of sharded updates. */
static double finish_all(simulation *p, double now) {
    for (size_t k = 0; k < p->buckets.count; k++) {
        now = finish_bucket(p, k, now);
        if (p->overlap == DLC_PLAN_OVERLAP_SHARDED)
            now += p->cost[k];
    }
    return now;
}

/* Buckets are in backward order; forward needs each from its first layer on. */
static double simulate_forward(simulation *p, double now, int first) {
    size_t k = first ? 0 : p->buckets.count;
    for (size_t i = 0; i < p->layers; i++) {
        for (; k > 0 && p->buckets.bucket[k - 1].first <= i; k--)
            now = finish_bucket(p, k - 1, now);
        now += forward_of(p, i);
    }
    return now;
}

static double simulate_backward(simulation *p, double now) {
    size_t k = 0;
    for (size_t i = p->layers; i-- > 0;) {
        dlc_plan_extra extra = extra_of(p, i);
        now += backward_of(p, i) +
               (extra.is_split
                    ? dlc_plan_update_seconds(p->cluster, extra.parameter_bytes)
                    : 0);
        for (; k < p->buckets.count && p->buckets.bucket[k].first == i; k++) {
            if (k + 1 < p->buckets.count) /* the train thread reduces the last itself */
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

static double simulate_steps(simulation *p) {
    double now = 0, begun = 0;
    for (int step = 0; step < STEPS; step++) {
        begun = now;
        now = simulate_forward(p, now, step == 0);
        now = simulate_backward(p, now);
        if (p->overlap == DLC_PLAN_OVERLAP_FORWARD)
            exchange_newest(p);
        else
            exchange_in_order(p);
        if (p->overlap != DLC_PLAN_OVERLAP_FORWARD)
            now = finish_all(p, now);
    }
    return now - begun;
}

/* ---- A step ---------------------------------------------------------------------- */

static dlc_status cut(simulation *p, const dlc_plan_exchange *exchange, double scale,
                      dlc_plan_step *step) {
    double *bytes = dlc_alloc(p->layers, sizeof *bytes), sum = 0;
    if (!bytes)
        return DLC_ERR_NOMEM;
    for (size_t i = 0; i < p->layers; i++)
        sum += bytes[i] = extra_of(p, i).is_split ? 0 : p->layer[i].parameter_bytes;
    step->bytes = sum * scale;
    step->bucket = exchange->bucket > 0 ? exchange->bucket
                   : p->overlap == DLC_PLAN_OVERLAP_NONE
                       ? INFINITY
                       : dlc_plan_bucket_bytes(p->cluster, exchange->algorithm,
                                               step->bytes);
    dlc_status status = dlc_plan_ranks(p->cluster) == 1
                            ? dlc_plan_buckets_cut(bytes, p->layers, INFINITY,
                                                   &p->buckets)
                            : dlc_plan_buckets_cut(bytes, p->layers,
                                                   step->bucket / scale, &p->buckets);
    dlc_free(bytes);
    return status;
}

static dlc_status open_simulation(simulation *p, const dlc_plan_exchange *exchange,
                                  double scale, dlc_plan_step *step) {
    DLC_TRY(cut(p, exchange, scale, step));
    p->cost = dlc_alloc(p->buckets.count, sizeof *p->cost);
    p->filled = dlc_alloc(p->buckets.count, sizeof *p->filled);
    p->reduced = dlc_alloc(p->buckets.count, sizeof *p->reduced);
    p->stack = dlc_alloc(p->buckets.count, sizeof *p->stack);
    p->updated = dlc_alloc(p->buckets.count, sizeof *p->updated);
    if (!p->cost || !p->filled || !p->reduced || !p->stack || !p->updated)
        return DLC_ERR_NOMEM;
    double fraction = p->overlap == DLC_PLAN_OVERLAP_SHARDED ? 0.5 : 1;
    for (size_t k = 0; k < p->buckets.count; k++) {
        double bytes = p->buckets.bucket[k].bytes * scale;
        double sum = p->overlap == DLC_PLAN_OVERLAP_FUSED
                         ? dlc_plan_fused_update(p->cluster, bytes)
                         : dlc_plan_all_reduce(p->cluster, exchange->algorithm, bytes);
        p->cost[k] = fraction * sum; /* half of an all-reduce */
        step->exchange += sum;
    }
    return DLC_OK;
}

static void close_simulation(simulation *p) {
    dlc_free(p->updated);
    dlc_free(p->stack);
    dlc_free(p->reduced);
    dlc_free(p->filled);
    dlc_free(p->cost);
    dlc_plan_buckets_free(&p->buckets);
}

static void add_layers(const simulation *p, dlc_plan_step *step) {
    for (size_t i = 0; i < p->layers; i++) {
        dlc_plan_extra extra = extra_of(p, i);
        step->forward += forward_of(p, i);
        step->backward += backward_of(p, i);
        step->update += dlc_plan_update_seconds(
            p->cluster, extra.is_split ? extra.parameter_bytes
                                       : updated_of(p, p->layer[i].parameter_bytes));
    }
}

/* Adds the time by which overlapping reductions slow down the layers. */
static void add_interference(const dlc_plan_cluster *cluster, dlc_plan_step *step) {
    double others = step->forward + step->backward + step->update + step->rest;
    step->exposed = fmax(step->seconds - others, 0);
    double hidden = fmax(step->exchange - step->exposed, 0);
    step->seconds += fmin(cluster->interference, 1) * hidden;
    step->exposed = fmax(step->seconds - others, 0);
}

static dlc_status one_step(simulation p, const dlc_plan_exchange *exchange,
                           dlc_plan_overlap overlap, dlc_plan_step *step) {
    double scale = exchange->scale > 0 ? exchange->scale : 1;
    dlc_plan_cluster cluster = *p.cluster;
    dlc_plan_step made = {.overlap = overlap};
    if (dlc_plan_ranks(&cluster) == 1)
        cluster.handover = cluster.interference = 0; /* nothing is exchanged */
    p.cluster = &cluster;
    p.overlap = overlap;
    dlc_status status = open_simulation(&p, exchange, scale, &made);
    if (status == DLC_OK) {
        add_layers(&p, &made);
        made.buckets = (int32_t)p.buckets.count;
        made.seconds = simulate_steps(&p) + cluster.rest;
        made.rest = cluster.rest;
        add_interference(&cluster, &made);
        *step = made;
    }
    close_simulation(&p);
    return status;
}

static int can_fuse_update(const dlc_plan_cluster *cluster) {
    return dlc_plan_fused_update(cluster, 1) > 0;
}

static dlc_status best_step(const simulation *p, const dlc_plan_exchange *exchange,
                            dlc_plan_step *step) {
    dlc_plan_step best, other;
    if (can_fuse_update(p->cluster))
        return one_step(*p, exchange, DLC_PLAN_OVERLAP_FUSED, step);
    DLC_TRY(one_step(*p, exchange, DLC_PLAN_OVERLAP_BACKWARD, &best));
    for (dlc_plan_overlap overlap = DLC_PLAN_OVERLAP_FORWARD;
         overlap < DLC_PLAN_OVERLAP_FUSED && dlc_plan_ranks(p->cluster) > 1;
         overlap++) {
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
    const simulation p = {.layer = layer,
                          .extra = extra,
                          .layers = layers,
                          .cluster = cluster,
                          .samples = samples};
    DLC_TRY(dlc_plan_check(cluster));
    if (exchange->overlap == DLC_PLAN_OVERLAP_FUSED && !can_fuse_update(cluster))
        return dlc_fail(DLC_ERR_CONFIG,
                        "a fused update needs ranks of one machine that "
                        "can access each other's memory");
    return exchange->overlap == DLC_PLAN_OVERLAP_BEST
               ? best_step(&p, exchange, step)
               : one_step(p, exchange, exchange->overlap, step);
}

double dlc_plan_memory(const dlc_plan_layer *layer, size_t layers,
                       const dlc_plan_extra *extra, const dlc_plan_cluster *cluster,
                       double samples) {
    double bytes = cluster->other_bytes;
    for (size_t i = 0; i < layers; i++) {
        int is_split = extra && extra[i].is_split;
        double kept = layer[i].kept_bytes > 0 ? layer[i].kept_bytes
                                              : layer[i].out_bytes;
        double weights = is_split ? extra[i].parameter_bytes : layer[i].parameter_bytes;
        bytes += weights * (1 + cluster->copies) + kept * samples;
    }
    return bytes;
}

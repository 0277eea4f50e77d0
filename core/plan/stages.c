/* See stages.h. */
#include "plan/stages.h"

#include <math.h>

#include "base/memory.h"

/* ---- Cutting --------------------------------------------------------------------- */

static double sending(const dlc_plan_layer *layer, size_t layers,
                      const dlc_plan_link *link, double samples, size_t end) {
    return end < layers
               ? link->latency + layer[end - 1].cut_bytes * samples / link->bandwidth
               : 0;
}

static dlc_status check(size_t layers, const dlc_plan_link *link, double samples,
                        int32_t stages) {
    if (stages < 1 || (size_t)stages > layers)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%d stages of %zu layers: a stage needs a layer "
                        "at least",
                        (int)stages, layers);
    if (!(samples > 0) || (stages > 1 && !(link->bandwidth > 0)))
        return dlc_fail(DLC_ERR_CONFIG, "a pipeline needs samples, and a link with a "
                                        "bandwidth");
    return DLC_OK;
}

/* best[s * (layers + 1) + i]: the slowest of s + 1 stages over the first i layers, as
 * fast as can be; from[] the like: where the last of them begins. */
typedef struct cutting {
    const double *before; /* seconds of the layers before i */
    const double *send;   /* of what crosses in front of i, both ways */
    size_t layers;
    double *best;
    size_t *from;
} cutting;

static void fill_row(const cutting *c, int32_t s) {
    size_t width = c->layers + 1;
    double *best = c->best + (size_t)s * width;
    for (size_t i = (size_t)s + 1; i <= c->layers; i++) {
        best[i] = INFINITY;
        for (size_t m = (size_t)s; m < i; m++) {
            double last = c->before[i] - c->before[m] + c->send[i];
            double slowest = s > 0 ? fmax(best[m - width], last) : last;
            if (s == 0 && m > 0)
                break;
            if (slowest < best[i]) {
                best[i] = slowest;
                c->from[(size_t)s * width + i] = m;
            }
        }
    }
}

static void read_cuts(const cutting *c, int32_t stages, dlc_plan_stage *stage) {
    size_t end = c->layers;
    for (int32_t s = stages; s-- > 0;) {
        stage[s] = (dlc_plan_stage){.end = end};
        stage[s].first = end = c->from[(size_t)s * (c->layers + 1) + end];
    }
}

dlc_status dlc_plan_stages_cut(const dlc_plan_layer *layer, size_t layers,
                               const dlc_plan_link *link, double samples,
                               int32_t stages, dlc_plan_stage *stage) {
    DLC_TRY(check(layers, link, samples, stages));
    size_t width = layers + 1;
    double *before = dlc_alloc(2 * width, sizeof *before), *send = before + width;
    double *best = dlc_alloc((size_t)stages * width, sizeof *best);
    size_t *from = dlc_alloc((size_t)stages * width, sizeof *from);
    dlc_status status = before && best && from ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK) {
        cutting c = {before, send, layers, best, from};
        for (size_t i = 1; i <= layers; i++) {
            before[i] = before[i - 1] + dlc_plan_compute(&layer[i - 1], 1, samples);
            send[i] = stages > 1 ? 2 * sending(layer, layers, link, samples, i) : 0;
        }
        for (int32_t s = 0; s < stages; s++)
            fill_row(&c, s);
        read_cuts(&c, stages, stage);
        status = dlc_plan_stages_measure(layer, layers, link, samples, stages, stage);
    }
    dlc_free(from);
    dlc_free(best);
    dlc_free(before);
    return status;
}

dlc_status dlc_plan_stages_measure(const dlc_plan_layer *layer, size_t layers,
                                   const dlc_plan_link *link, double samples,
                                   int32_t stages, dlc_plan_stage *stage) {
    DLC_TRY(check(layers, link, samples, stages));
    for (int32_t s = 0; s < stages; s++) {
        dlc_plan_stage made = {.first = stage[s].first, .end = stage[s].end};
        if (made.first >= made.end || made.end > layers ||
            made.first != (s > 0 ? stage[s - 1].end : 0) ||
            (s == stages - 1 && made.end != layers))
            return dlc_fail(DLC_ERR_CONFIG,
                            "stage %d: stages must follow on each other "
                            "and hold all layers",
                            (int)s);
        for (size_t i = made.first; i < made.end; i++) {
            made.forward += dlc_plan_seconds(layer[i].forward, samples);
            made.backward += dlc_plan_seconds(layer[i].backward, samples);
            made.parameter_bytes += layer[i].parameter_bytes;
        }
        made.send_bytes = made.end < layers ? layer[made.end - 1].cut_bytes * samples
                                            : 0;
        made.send = stages > 1 ? sending(layer, layers, link, samples, made.end) : 0;
        stage[s] = made;
    }
    return DLC_OK;
}

/* ---- Running --------------------------------------------------------------------- */

/* What a stage has done, and when each sub-batch left it, forward and backward. */
typedef struct worker {
    int32_t forwards, backwards;
    double now;
    double *went, *came; /* -1: not yet */
} worker;

typedef struct run {
    const dlc_plan_stage *stage;
    worker *worker;
    int32_t stages, sub_batches;
} run;

/* One forward, one backward, as soon as as many are under way as may be. */
static int goes_forward(const run *r, int32_t s) {
    const worker *w = &r->worker[s];
    int32_t most = r->stages - s;
    return w->forwards < r->sub_batches && w->forwards - w->backwards < most;
}

/* When what the next piece of work needs is there; -1: not yet known. */
static double ready(const run *r, int32_t s, int forward) {
    const worker *w = &r->worker[s];
    if (forward) {
        if (s == 0)
            return 0;
        double went = r->worker[s - 1].went[w->forwards];
        return went < 0 ? -1 : went + r->stage[s - 1].send;
    }
    if (s == r->stages - 1)
        return w->went[w->backwards];
    double came = r->worker[s + 1].came[w->backwards];
    return came < 0 ? -1 : came + r->stage[s].send;
}

/* One piece of work of a stage; 0: it has none that it could do. */
static int advance(const run *r, int32_t s) {
    worker *w = &r->worker[s];
    int forward = goes_forward(r, s);
    if (w->backwards == r->sub_batches)
        return 0;
    double since = ready(r, s, forward);
    if (since < 0)
        return 0;
    w->now = fmax(w->now, since) +
             (forward ? r->stage[s].forward : r->stage[s].backward);
    if (forward)
        w->went[w->forwards++] = w->now;
    else
        w->came[w->backwards++] = w->now;
    return 1;
}

static void play(const run *r) {
    for (int moved = 1; moved;) {
        moved = 0;
        for (int32_t s = 0; s < r->stages; s++)
            while (advance(r, s))
                moved = 1;
    }
}

static void read_run(const run *r, const dlc_plan_layer *layer, double samples,
                     double copies, dlc_plan_stage *stage,
                     dlc_plan_pipeline *pipeline) {
    double busy = 0;
    *pipeline = (dlc_plan_pipeline){.slowest = 0};
    for (int32_t s = 0; s < r->stages; s++) {
        double kept = 0, under_way = fmin(r->stages - s, r->sub_batches);
        for (size_t i = stage[s].first; i < stage[s].end; i++)
            kept += layer[i].kept_bytes > 0 ? layer[i].kept_bytes : layer[i].out_bytes;
        if (s > 0)
            kept += layer[stage[s].first - 1].cut_bytes;
        double each = stage[s].forward + stage[s].backward;
        stage[s].memory_bytes = stage[s].parameter_bytes * (1 + copies) +
                                kept * samples * under_way;
        stage[s].busy = each * r->sub_batches;
        busy += stage[s].busy;
        pipeline->slowest = fmax(pipeline->slowest, each);
        pipeline->seconds = fmax(pipeline->seconds, r->worker[s].now);
        pipeline->memory_bytes = fmax(pipeline->memory_bytes, stage[s].memory_bytes);
    }
    if (pipeline->seconds > 0)
        pipeline->bubble = fmax(1 - busy / (pipeline->seconds * r->stages), 0);
}

dlc_status dlc_plan_pipeline_run(const dlc_plan_layer *layer, double samples,
                                 int32_t sub_batches, double copies, int32_t stages,
                                 dlc_plan_stage *stage, dlc_plan_pipeline *pipeline) {
    if (sub_batches < 1 || stages < 1)
        return dlc_fail(DLC_ERR_CONFIG, "a pipeline needs a stage and a sub-batch at "
                                        "least");
    size_t each = (size_t)sub_batches;
    worker *workers = dlc_alloc((size_t)stages, sizeof *workers);
    double *times = dlc_alloc(2 * (size_t)stages, each * sizeof *times);
    dlc_status status = workers && times ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK) {
        run r = {stage, workers, stages, sub_batches};
        for (size_t i = 0; i < 2 * (size_t)stages * each; i++)
            times[i] = -1;
        for (int32_t s = 0; s < stages; s++) {
            workers[s].went = times + 2 * (size_t)s * each;
            workers[s].came = workers[s].went + each;
        }
        play(&r);
        read_run(&r, layer, samples, copies, stage, pipeline);
    }
    dlc_free(times);
    dlc_free(workers);
    return status;
}

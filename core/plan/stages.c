/* Cuts a net by dynamic programming, and simulates the 1F1B schedule. */
#include "plan/stages.h"

#include "plan/work_order.h"

#include <math.h>

#include "base/memory.h"

/* ---- Micro-batches --------------------------------------------------------------- */

void dlc_plan_stages_accumulate(dlc_plan_layer *layer, size_t layers,
                                double bandwidth) {
    for (size_t i = 0; bandwidth > 0 && i < layers; i++)
        layer[i].backward.fixed += layer[i].parameter_bytes / bandwidth;
}

/* ---- Cutting --------------------------------------------------------------------- */

static int32_t ranks_of(const int32_t *stage_ranks, int32_t s) {
    return stage_ranks ? stage_ranks[s] : 1;
}

/* Between stages of so many ranks, the link of a rank in the smaller one is busiest. */
static double sending(const dlc_plan_layer *layer, size_t layers,
                      const dlc_plan_link *link, double samples, int32_t ranks,
                      size_t end) {
    return end < layers ? link->latency + layer[end - 1].cut_bytes * samples / ranks /
                                              link->bandwidth
                        : 0;
}

double dlc_plan_stages_work(const double *work, const int32_t *stage_ranks,
                            int32_t stages, int64_t micro_batches) {
    double sum = 0, most = 0;
    for (int32_t s = 0; s < stages; s++) {
        double own = work[s] / ranks_of(stage_ranks, s);
        sum += own;
        most = fmax(most, own);
    }
    return sum + (double)(micro_batches - 1) * most;
}

static int32_t fewer(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static dlc_status check_stages_args(size_t layers, const dlc_plan_link *link,
                                    double samples, int32_t stages) {
    if (stages < 1 || (size_t)stages > layers)
        return dlc_fail(DLC_ERR_CONFIG,
                        "%d stages for %zu layers: every stage needs at "
                        "least one layer",
                        (int)stages, layers);
    if (!(samples > 0) || (stages > 1 && !(link->bandwidth > 0)))
        return dlc_fail(DLC_ERR_CONFIG, "a pipeline needs samples, and a link with a "
                                        "bandwidth above 0");
    return DLC_OK;
}

/* best[s * (layers + 1) + i]: the time of the slowest of s + 1 stages over the first i
 * layers, minimized; from[] with the same index: where the last of these stages begins.
 */
typedef struct cutting {
    const dlc_plan_layer *layer;
    size_t layers;
    const dlc_plan_link *link;
    double samples;
    int32_t stages;
    const int32_t *stage_ranks;
    double *fixed, *per_sample; /* seconds of the layers before layer i */
    double *best;
    size_t *from;
} cutting;

/* Seconds of stage s if it has layers [m, i): of its layers, and of its sends in both
 * directions. */
static double seconds_of_stage(const cutting *c, int32_t s, size_t m, size_t i) {
    int32_t ranks = ranks_of(c->stage_ranks, s);
    double seconds = c->fixed[i] - c->fixed[m] +
                     (c->per_sample[i] - c->per_sample[m]) * c->samples / ranks;
    if (s + 1 < c->stages)
        ranks = fewer(ranks, ranks_of(c->stage_ranks, s + 1));
    return c->stages == 1 ? seconds
                          : seconds + 2 * sending(c->layer, c->layers, c->link,
                                                  c->samples, ranks, i);
}

static void fill_row(const cutting *c, int32_t s) {
    size_t width = c->layers + 1;
    double *best = c->best + (size_t)s * width;
    for (size_t i = (size_t)s + 1; i <= c->layers; i++) {
        best[i] = INFINITY;
        for (size_t m = (size_t)s; m < i; m++) {
            double last = seconds_of_stage(c, s, m, i);
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

static void sum_before(const cutting *c) {
    for (size_t i = 0; i < c->layers; i++) {
        const dlc_plan_layer *layer = &c->layer[i];
        c->fixed[i + 1] = c->fixed[i] + layer->forward.fixed + layer->backward.fixed;
        c->per_sample[i + 1] = c->per_sample[i] + layer->forward.per_sample +
                               layer->backward.per_sample;
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
                               int32_t stages, const int32_t *stage_ranks,
                               dlc_plan_stage *stage) {
    DLC_TRY(check_stages_args(layers, link, samples, stages));
    size_t width = layers + 1;
    cutting c = {.layer = layer,
                 .layers = layers,
                 .link = link,
                 .samples = samples,
                 .stages = stages,
                 .stage_ranks = stage_ranks,
                 .fixed = dlc_alloc(width, sizeof *c.fixed),
                 .per_sample = dlc_alloc(width, sizeof *c.per_sample),
                 .best = dlc_alloc((size_t)stages * width, sizeof *c.best),
                 .from = dlc_alloc((size_t)stages * width, sizeof *c.from)};
    dlc_status status = c.fixed && c.per_sample && c.best && c.from ? DLC_OK
                                                                    : DLC_ERR_NOMEM;
    if (status == DLC_OK) {
        sum_before(&c);
        for (int32_t s = 0; s < stages; s++)
            fill_row(&c, s);
        read_cuts(&c, stages, stage);
        status = dlc_plan_stages_measure(layer, layers, link, samples, stages,
                                         stage_ranks, stage);
    }
    dlc_free(c.from);
    dlc_free(c.best);
    dlc_free(c.per_sample);
    dlc_free(c.fixed);
    return status;
}

static void measure_stages(const dlc_plan_layer *layer, size_t layers,
                           const dlc_plan_link *link, double samples,
                           int32_t reader_ranks, dlc_plan_stage *made) {
    double own = samples / made->ranks;
    for (size_t i = made->first; i < made->end; i++) {
        made->forward += dlc_plan_seconds(layer[i].forward, own);
        made->backward += dlc_plan_seconds(layer[i].backward, own);
        made->parameter_bytes += layer[i].parameter_bytes;
    }
    if (made->end == layers)
        return;
    made->send_bytes = layer[made->end - 1].cut_bytes * own;
    made->send = sending(layer, layers, link, samples, fewer(made->ranks, reader_ranks),
                         made->end);
}

dlc_status dlc_plan_stages_measure(const dlc_plan_layer *layer, size_t layers,
                                   const dlc_plan_link *link, double samples,
                                   int32_t stages, const int32_t *stage_ranks,
                                   dlc_plan_stage *stage) {
    DLC_TRY(check_stages_args(layers, link, samples, stages));
    for (int32_t s = 0; s < stages; s++) {
        int32_t reader = ranks_of(stage_ranks, s + 1 < stages ? s + 1 : s);
        dlc_plan_stage made = {.first = stage[s].first,
                               .end = stage[s].end,
                               .ranks = ranks_of(stage_ranks, s)};
        if (made.first >= made.end || made.end > layers ||
            made.first != (s > 0 ? stage[s - 1].end : 0) ||
            (s == stages - 1 && made.end != layers))
            return dlc_fail(DLC_ERR_CONFIG,
                            "stage %d: stages must be contiguous and contain "
                            "all layers",
                            (int)s);
        measure_stages(layer, layers, link, samples, reader, &made);
        stage[s] = made;
    }
    return DLC_OK;
}

/* ---- Cutting by work ------------------------------------------------------------- */

/* The first layer that may begin a stage; what comes before it is part of the first
 * stage. */
static int32_t first_place(const char *may_begin, int32_t layers) {
    int32_t i = 0;
    while (i < layers && !may_begin[i])
        i++;
    return i;
}

/* Layers that must stay together: from one possible cut to the next. */
typedef struct units {
    dlc_plan_layer *layer; /* own */
    int32_t *first;        /* own; in the graph */
    int32_t count;
} units;

static dlc_status gather_units(const double *work, const char *may_begin,
                               const double *boundary_cost, int32_t layers,
                               units *made) {
    int32_t none = first_place(may_begin, layers);
    made->layer = dlc_alloc((size_t)layers, sizeof *made->layer);
    made->first = dlc_alloc((size_t)layers, sizeof *made->first);
    if (!made->layer || !made->first)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < layers; i++) {
        if (i == 0 || (may_begin[i] && i != none)) {
            if (i > 0 && boundary_cost)
                made->layer[made->count - 1].cut_bytes = boundary_cost[i];
            made->first[made->count++] = i;
        }
        made->layer[made->count - 1].forward.per_sample += work[i];
    }
    return DLC_OK;
}

static dlc_status cut_units(const units *made, int32_t stages,
                            const int32_t *stage_ranks, int32_t *first) {
    /* Boundary tensors are priced in units of work already. */
    const dlc_plan_link link = {.bandwidth = 1};
    dlc_plan_stage *stage = dlc_alloc((size_t)stages, sizeof *stage);
    if (!stage)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_plan_stages_cut(made->layer, (size_t)made->count, &link, 1,
                                            stages, stage_ranks, stage);
    for (int32_t s = 0; status == DLC_OK && s < stages; s++)
        first[s] = made->first[stage[s].first];
    dlc_free(stage);
    return status;
}

dlc_status dlc_plan_stages_balance(const double *work, const char *may_begin,
                                   const double *boundary_cost, int32_t layers,
                                   int32_t stages, const int32_t *stage_ranks,
                                   int32_t *first) {
    units made = {0};
    dlc_status status = gather_units(work, may_begin, boundary_cost, layers, &made);
    if (status == DLC_OK && stages > made.count)
        status = dlc_fail(DLC_ERR_CONFIG,
                          "the net has layers with weights for %d stages, not for %d",
                          (int)made.count, (int)stages);
    if (status == DLC_OK)
        status = cut_units(&made, stages, stage_ranks, first);
    if (status == DLC_OK)
        first[stages] = layers;
    dlc_free(made.first);
    dlc_free(made.layer);
    return status;
}

void dlc_plan_stages_price(const dlc_plan_layer *layer, int32_t layers,
                           const dlc_plan_link *link, double samples,
                           double work_per_second, double *boundary_cost) {
    for (int32_t i = 1; i < layers; i++)
        boundary_cost[i] = sending(layer, (size_t)layers, link, samples, 1, (size_t)i) *
                           work_per_second;
}

/* ---- Simulating ---------------------------------------------------------------------
 */

/* The progress of a stage, and when each micro-batch has left it, forward and backward.
 */
typedef struct worker {
    dlc_work_order order;
    double now;
    double *forward_end, *backward_end; /* -1: not yet */
} worker;

typedef struct run {
    const dlc_plan_stage *stage;
    worker *worker;
    int32_t stages, micro_batches;
} run;

/* When the inputs of the next work are available; -1: not yet known. */
static double ready_at(const run *r, int32_t s, int forward) {
    const worker *w = &r->worker[s];
    if (forward) {
        if (s == 0)
            return 0;
        double sent = r->worker[s - 1].forward_end[w->order.forward];
        return sent < 0 ? -1 : sent + r->stage[s - 1].send;
    }
    if (s == r->stages - 1)
        return w->forward_end[w->order.backward];
    double sent_back = r->worker[s + 1].backward_end[w->order.backward];
    return sent_back < 0 ? -1 : sent_back + r->stage[s].send;
}

/* Does the next work of a stage; 0: there is none that it can do. */
static int advance(const run *r, int32_t s) {
    worker *w = &r->worker[s];
    dlc_work work = dlc_work_order_next(&w->order, 1, 1);
    int forward = work == DLC_WORK_FORWARD;
    if (work == DLC_WORK_DONE)
        return 0;
    double since = ready_at(r, s, forward);
    if (since < 0)
        return 0;
    w->now = fmax(w->now, since) +
             (forward ? r->stage[s].forward : r->stage[s].backward);
    if (forward)
        w->forward_end[w->order.forward] = w->now;
    else
        w->backward_end[w->order.backward] = w->now;
    dlc_work_order_done(&w->order, work);
    return 1;
}

static void simulate_stages(const run *r) {
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
    double busy = 0, ranks = 0;
    *pipeline = (dlc_plan_pipeline){.slowest = 0};
    for (int32_t s = 0; s < r->stages; s++) {
        double kept = 0, in_flight = fmin(r->stages - s, r->micro_batches);
        for (size_t i = stage[s].first; i < stage[s].end; i++)
            kept += layer[i].kept_bytes > 0 ? layer[i].kept_bytes : layer[i].out_bytes;
        if (s > 0)
            kept += layer[stage[s].first - 1].cut_bytes;
        double each = stage[s].forward + stage[s].backward;
        /* Gradients are added up over micro-batches, in memory of their own. */
        double sums = r->micro_batches > 1 ? 1 : 0;
        stage[s].memory_bytes = stage[s].parameter_bytes * (1 + copies + sums) +
                                kept * samples / stage[s].ranks * in_flight;
        stage[s].busy = each * r->micro_batches;
        busy += stage[s].busy * stage[s].ranks;
        ranks += stage[s].ranks;
        pipeline->slowest = fmax(pipeline->slowest, each);
        pipeline->seconds = fmax(pipeline->seconds, r->worker[s].now);
        pipeline->memory_bytes = fmax(pipeline->memory_bytes, stage[s].memory_bytes);
    }
    if (pipeline->seconds > 0)
        pipeline->bubble = fmax(1 - busy / (pipeline->seconds * ranks), 0);
}

dlc_status dlc_plan_pipeline_run(const dlc_plan_layer *layer, double samples,
                                 int32_t micro_batches, double copies, int32_t stages,
                                 dlc_plan_stage *stage, dlc_plan_pipeline *pipeline) {
    if (micro_batches < 1 || stages < 1)
        return dlc_fail(DLC_ERR_CONFIG, "a pipeline needs at least one stage and one "
                                        "micro-batch");
    size_t each = (size_t)micro_batches;
    worker *workers = dlc_alloc((size_t)stages, sizeof *workers);
    double *times = dlc_alloc(2 * (size_t)stages, each * sizeof *times);
    dlc_status status = workers && times ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK) {
        run r = {stage, workers, stages, micro_batches};
        for (size_t i = 0; i < 2 * (size_t)stages * each; i++)
            times[i] = -1;
        for (int32_t s = 0; s < stages; s++) {
            workers[s].order = (dlc_work_order){.stage = s,
                                                .stages = stages,
                                                .micro_batches = micro_batches,
                                                .fixed_order = 1};
            workers[s].forward_end = times + 2 * (size_t)s * each;
            workers[s].backward_end = workers[s].forward_end + each;
        }
        simulate_stages(&r);
        read_run(&r, layer, samples, copies, stage, pipeline);
    }
    dlc_free(times);
    dlc_free(workers);
    return status;
}

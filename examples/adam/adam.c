/* The solver "adam" for the processor (Kingma and Ba 2015, "Adam: a method for
 * stochastic optimization", algorithm 1), with the weight decay of Loshchilov and
 * Hutter 2019, "Decoupled weight decay regularization":
 *
 *     m = beta1 m + (1 - beta1) g           m' = m / (1 - beta1^t)
 *     v = beta2 v + (1 - beta2) g^2         v' = v / (1 - beta2^t)
 *     weight -= rate (m' / (sqrt(v') + epsilon) + decay weight)
 *
 * A bucket of gradients is exchanged as soon as backward has filled it, and its weights
 * are updated as soon as its sum is there. Where the core wants updates sharded, each
 * rank updates its part and has the moments of that part only. */
#include <math.h>

#include <dlcore/solver.h>

static const dlc_host *host;

enum { SLOT_M, SLOT_V, SLOTS };
enum { SMALL = 16384 }; /* not worth waking a thread for */

struct dlc_solver {
    const dlc_exchange *exchange;
    float *weights, *gradients, *m, *v;
    size_t trained; /* elements before the core's tail */
    const dlc_segment *segment;
    int32_t segments;
    double rate, beta1, beta2, epsilon, decay;
};

static dlc_status adam_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

/* It can do with a part of the gradients at a time, where the core knows such. */
static void take_parts(dlc_solver_needs *needs) {
    if (DLC_HAS(needs, shards))
        needs->shards = 1;
    if (DLC_HAS(needs, late))
        needs->late = 1;
}

/* Two arenas of state, which go into checkpoints. The number of the step is the
 * iteration's: it needs no state. */
static dlc_status adam_needs(const dlc_settings *settings, dlc_solver_needs *needs) {
    (void)settings;
    needs->slots = SLOTS;
    needs->slot_name[SLOT_M] = "m";
    needs->slot_name[SLOT_V] = "v";
    needs->slot_saved = 1u << SLOT_M | 1u << SLOT_V;
    take_parts(needs);
    return DLC_OK;
}

static void adam_destroy(dlc_solver *solver) {
    host->free(solver);
}

static dlc_status adam_create(const dlc_solver_args *args, dlc_solver **solver) {
    dlc_solver *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->exchange = args->exchange;
    made->weights = args->weights;
    made->gradients = args->gradients;
    made->m = args->slots[SLOT_M];
    made->v = args->slots[SLOT_V];
    made->trained = args->count - args->tail;
    made->segment = args->segment;
    made->segments = args->segments;
    made->rate = host->get_float(args->settings, "learning_rate");
    made->beta1 = host->get_float(args->settings, "beta1");
    made->beta2 = host->get_float(args->settings, "beta2");
    made->epsilon = host->get_float(args->settings, "epsilon");
    made->decay = host->get_float(args->settings, "weight_decay");
    *solver = made;
    return DLC_OK;
}

static double adam_rate(dlc_solver *solver, int64_t iteration) {
    (void)iteration;
    return solver->rate;
}

/* ---- The step -------------------------------------------------------------------- */

/* One step over [begin, end) of the arenas, where the multipliers are the same. */
static void step(const dlc_solver *solver, int64_t iteration, size_t begin, size_t end,
                 const dlc_segment *segment) {
    double t = (double)iteration + 1;
    float rate = (float)(solver->rate * segment->rate);
    float decay = (float)(solver->decay * segment->decay);
    float beta1 = (float)solver->beta1, beta2 = (float)solver->beta2;
    float m_scale = (float)(1 / (1 - pow(solver->beta1, t)));
    float v_scale = (float)(1 / (1 - pow(solver->beta2, t)));
    float epsilon = (float)solver->epsilon;
    const float *gradient = solver->gradients;
    float *weight = solver->weights, *m = solver->m, *v = solver->v;
#pragma omp parallel for schedule(static) if (end - begin > SMALL)
    for (size_t i = begin; i < end; i++) {
        float g = gradient[i];
        m[i] = beta1 * m[i] + (1 - beta1) * g;
        v[i] = beta2 * v[i] + (1 - beta2) * g * g;
        weight[i] -= rate * (m[i] * m_scale / (sqrtf(v[i] * v_scale) + epsilon) +
                             decay * weight[i]);
    }
}

/* The parameters that lie in [begin, end), or the parts of them. */
static void step_between(const dlc_solver *solver, int64_t iteration, size_t begin,
                         size_t end) {
    const dlc_segment *segment = solver->segment;
    for (int32_t s = 0; s < solver->segments; s++, segment = DLC_NEXT(segment)) {
        size_t from = segment->offset, to = segment->offset + segment->count;
        from = from > begin ? from : begin;
        to = to < end ? to : end;
        if (from < to && segment->rate != 0)
            step(solver, iteration, from, to, segment);
    }
}

/* What this rank updates of a bucket: all of it, or its shard. */
static void step_bucket(const dlc_solver *solver, int64_t iteration, int32_t bucket,
                        int sharded) {
    const dlc_exchange *exchange = solver->exchange;
    size_t begin = sharded ? exchange->own_begin[bucket]
                           : exchange->bucket_begin[bucket];
    size_t end = sharded ? exchange->own_end[bucket]
                         : exchange->bucket_begin[bucket + 1];
    step_between(solver, iteration, begin,
                 end < solver->trained ? end : solver->trained);
}

/* ---- An iteration ---------------------------------------------------------------- */

static dlc_status adam_ready(dlc_solver *solver, int64_t iteration, int32_t micro,
                             int32_t bucket) {
    (void)iteration;
    (void)micro;
    return solver->exchange->start(solver->exchange->context, bucket);
}

static dlc_status adam_update(dlc_solver *solver, int64_t iteration, int32_t bucket) {
    const dlc_exchange *exchange = solver->exchange;
    dlc_status rc = exchange->wait(exchange->context, bucket);
    if (rc == DLC_OK)
        step_bucket(solver, iteration, bucket, 0);
    return rc;
}

static dlc_status adam_finish(dlc_solver *solver, int64_t iteration) {
    const dlc_exchange *exchange = solver->exchange;
    int sharded = DLC_CAN(exchange, settle);
    dlc_status rc = DLC_OK;
    for (int32_t b = 0; rc == DLC_OK && b < exchange->buckets; b++) {
        rc = exchange->wait(exchange->context, b);
        if (rc != DLC_OK)
            break;
        step_bucket(solver, iteration, b, sharded);
        if (sharded)
            rc = exchange->spread(exchange->context, b);
    }
    return rc == DLC_OK && sharded ? exchange->settle(exchange->context) : rc;
}

/* ---- The plugin ------------------------------------------------------------------ */

static const dlc_option options[] = {
    DLC_FLOAT("learning_rate", "0.001", 0, 1e9, "learning rate"),
    DLC_FLOAT("beta1", "0.9", 0, 0.999999, "how long the mean gradient remembers"),
    DLC_FLOAT("beta2", "0.999", 0, 0.999999, "how long its square does"),
    DLC_FLOAT("epsilon", "1e-8", 1e-30, 1, "keeps small gradients from large steps"),
    DLC_FLOAT("weight_decay", "0", 0, 1e9,
              "pulls weights to zero; times the parameter's own multiplier"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = adam_needs,
    .create = adam_create,
    .destroy = adam_destroy,
    .rate = adam_rate,
    .ready = adam_ready,
    .finish = adam_finish,
    .update = adam_update,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "adam",
     .help = "steps as long as the gradient is steady (Adam, AdamW)",
     .device = "cpu",
     .caps = DLC_SOLVER_SYNCHRONOUS,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

const dlc_plugin dlc_plugin_v1 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "adam",
    .version = PLUGIN_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = adam_load,
};

/* The solver "adam" for the CPU (Kingma and Ba 2015, "Adam: A Method for Stochastic
 * Optimization", algorithm 1), with the weight decay of Loshchilov and Hutter 2019,
 * "Decoupled Weight Decay Regularization":
 *
 *     m = beta1 m + (1 - beta1) g           m' = m / (1 - beta1^t)
 *     v = beta2 v + (1 - beta2) g^2         v' = v / (1 - beta2^t)
 *     weight -= learning_rate (m' / (sqrt(v') + epsilon) + weight_decay weight)
 *
 * It starts to all-reduce a bucket as soon as backward has filled it, and updates its
 * weights as soon as it is reduced. With sharded updates each rank updates its shard of
 * each bucket and uses the moments of that shard only. */
#include <math.h>

#include <dlcore/solver.h>

static const dlc_host *host;

enum { SLOT_M, SLOT_V, SLOTS };
enum { SMALL = 16384 }; /* up to so many elements one thread is faster */

struct dlc_solver {
    const dlc_exchange *exchange;
    float *weights, *gradients, *m, *v;
    size_t trained; /* elements before the control words */
    const dlc_segment *segment;
    int32_t segments;
    double learning_rate, beta1, beta2, epsilon, weight_decay;
};

static dlc_status adam_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

/* Declares support for sharded and deferred updates, if the core has them. */
static void offer_partial_updates(dlc_solver_needs *needs) {
    if (DLC_HAS(needs, sharding))
        needs->sharding = 1;
    if (DLC_HAS(needs, deferred_update))
        needs->deferred_update = 1;
}

/* Asks for two slots that are saved in checkpoints. The number of the step follows from
 * the iteration, so it needs no state. */
static dlc_status adam_needs(const dlc_settings *settings, dlc_solver_needs *needs) {
    (void)settings;
    needs->slots = SLOTS;
    needs->slot_name[SLOT_M] = "m";
    needs->slot_name[SLOT_V] = "v";
    needs->slot_saved = 1u << SLOT_M | 1u << SLOT_V;
    offer_partial_updates(needs);
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
    made->trained = args->count - args->control_words;
    made->segment = args->segment;
    made->segments = args->segments;
    made->learning_rate = host->get_float(args->settings, "learning_rate");
    made->beta1 = host->get_float(args->settings, "beta1");
    made->beta2 = host->get_float(args->settings, "beta2");
    made->epsilon = host->get_float(args->settings, "epsilon");
    made->weight_decay = host->get_float(args->settings, "weight_decay");
    *solver = made;
    return DLC_OK;
}

static double adam_learning_rate(dlc_solver *solver, int64_t iteration) {
    (void)iteration;
    return solver->learning_rate;
}

/* ---- The step --------------------------------------------------------------- */

/* One step of the elements [begin, end), which belong to one segment. */
static void step(const dlc_solver *solver, int64_t iteration, size_t begin, size_t end,
                 const dlc_segment *segment) {
    double t = (double)iteration + 1;
    float rate = (float)(solver->learning_rate * segment->lr_mult);
    float decay = (float)(solver->weight_decay * segment->decay_mult);
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

/* One step of all segments, or parts of them, in [begin, end). */
static void step_between(const dlc_solver *solver, int64_t iteration, size_t begin,
                         size_t end) {
    const dlc_segment *segment = solver->segment;
    for (int32_t s = 0; s < solver->segments; s++, segment = DLC_NEXT(segment)) {
        size_t from = segment->offset, to = segment->offset + segment->count;
        from = from > begin ? from : begin;
        to = to < end ? to : end;
        if (from < to && segment->lr_mult != 0)
            step(solver, iteration, from, to, segment);
    }
}

/* One step of a bucket, or of this rank's shard of it. */
static void step_bucket(const dlc_solver *solver, int64_t iteration, int32_t bucket,
                        int sharded) {
    const dlc_exchange *exchange = solver->exchange;
    size_t begin = sharded ? exchange->shard_begin[bucket]
                           : exchange->bucket_begin[bucket];
    size_t end = sharded ? exchange->shard_end[bucket]
                         : exchange->bucket_begin[bucket + 1];
    step_between(solver, iteration, begin,
                 end < solver->trained ? end : solver->trained);
}

/* ---- An iteration ----------------------------------------------------------- */

static dlc_status adam_ready(dlc_solver *solver, int64_t iteration, int32_t micro_batch,
                             int32_t bucket) {
    (void)iteration;
    (void)micro_batch;
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
    int sharded = DLC_CAN(exchange, flush);
    dlc_status rc = DLC_OK;
    for (int32_t b = 0; rc == DLC_OK && b < exchange->buckets; b++) {
        rc = exchange->wait(exchange->context, b);
        if (rc != DLC_OK)
            break;
        step_bucket(solver, iteration, b, sharded);
        if (sharded)
            rc = exchange->all_gather(exchange->context, b);
    }
    return rc == DLC_OK && sharded ? exchange->flush(exchange->context) : rc;
}

/* ---- The plugin ------------------------------------------------------------- */

static const dlc_option options[] = {
    DLC_FLOAT("learning_rate", "0.001", 0, 1e9, "learning rate"),
    DLC_FLOAT("beta1", "0.9", 0, 0.999999, "decay rate of the mean of gradients"),
    DLC_FLOAT("beta2", "0.999", 0, 0.999999,
              "decay rate of the mean of squared gradients"),
    DLC_FLOAT("epsilon", "1e-8", 1e-30, 1,
              "added to the denominator, for numerical stability"),
    DLC_FLOAT("weight_decay", "0", 0, 1e9,
              "decoupled weight decay; multiplied by the decay_mult of each parameter"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = adam_needs,
    .create = adam_create,
    .destroy = adam_destroy,
    .learning_rate = adam_learning_rate,
    .ready = adam_ready,
    .finish = adam_finish,
    .update = adam_update,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "adam",
     .help = "adaptive moment estimation (Adam, AdamW)",
     .device = "cpu",
     .caps = DLC_SOLVER_SYNCHRONOUS,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

const dlc_plugin dlc_plugin_v0 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "adam",
    .version = PLUGIN_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = adam_load,
};

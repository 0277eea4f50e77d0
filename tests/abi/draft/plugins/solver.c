/* The solver "draft-solver": plain gradient descent, weight -= learning_rate *
 * gradient.
 *
 * It starts to all-reduce a bucket as soon as backward has filled it. When all buckets
 * are reduced, every rank makes the same update, so all ranks keep the same weights. It
 * works on any device, because the device does the arithmetic. */
#include <dlcore/solver.h>

static const dlc_host *host;

struct dlc_solver {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;
    const dlc_exchange *exchange;
    float *weights, *gradients;
    const dlc_segment *segment; /* one for each parameter tensor; walk with DLC_NEXT */
    int32_t segments;
    double learning_rate, weight_decay;
};

static dlc_status solver_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

/* Keeps the defaults: no slots, and one micro-batch in an iteration. */
static dlc_status solver_needs(const dlc_settings *settings, dlc_solver_needs *needs) {
    (void)settings;
    (void)needs;
    return DLC_OK;
}

static dlc_status solver_create(const dlc_solver_args *args, dlc_solver **solver) {
    if (DLC_HAS(args, loss_scale) && args->loss_scale)
        return host->fail(
            DLC_ERR_UNSUPPORTED,
            "draft-solver does not support the loss scale that half precision needs; set "
            "[train] precision = bf16 or float32");
    dlc_solver *made = host->alloc(sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->ops = args->device_ops;
    made->device = args->device;
    made->queue = args->queue;
    made->exchange = args->exchange;
    made->weights = args->weights;
    made->gradients = args->gradients;
    made->segment = args->segment;
    made->segments = args->segments;
    made->learning_rate = host->get_float(args->settings, "learning_rate");
    made->weight_decay = host->get_float(args->settings, "weight_decay");
    *solver = made;
    return DLC_OK;
}

static void solver_destroy(dlc_solver *solver) {
    host->free(solver);
}

static double solver_learning_rate(dlc_solver *solver, int64_t iteration) {
    (void)iteration;
    return solver->learning_rate;
}

/* Starts to all-reduce a bucket that backward has filled, while backward goes on. */
static dlc_status solver_ready(dlc_solver *solver, int64_t iteration,
                               int32_t micro_batch, int32_t bucket) {
    (void)iteration;
    (void)micro_batch;
    return solver->exchange->start(solver->exchange->context, bucket);
}

/* weight = (1 - rate * decay) * weight - rate * gradient, where rate and decay include
 * the factors of the parameter tensor. */
static dlc_status update(dlc_solver *solver, double learning_rate,
                         const dlc_segment *segment) {
    float *weight = solver->weights + segment->offset;
    const float *gradient = solver->gradients + segment->offset;
    double rate = learning_rate * segment->lr_mult;
    double decay = rate * solver->weight_decay * segment->decay_mult;
    dlc_status rc = DLC_OK;
    if (decay != 0)
        rc = solver->ops->scale(solver->device, solver->queue, segment->count,
                                (float)(1 - decay), weight);
    if (rc == DLC_OK && rate != 0)
        rc = solver->ops->axpy(solver->device, solver->queue, segment->count,
                               (float)-rate, gradient, weight);
    return rc;
}

/* Waits for all buckets, then updates the weights. The last bucket includes the control
 * words of the core, which are reduced but never updated. */
static dlc_status solver_finish(dlc_solver *solver, int64_t iteration) {
    const dlc_exchange *exchange = solver->exchange;
    const dlc_segment *segment = solver->segment;
    double learning_rate = solver_learning_rate(solver, iteration);
    dlc_status rc = DLC_OK;
    for (int32_t b = 0; rc == DLC_OK && b < exchange->buckets; b++)
        rc = exchange->wait(exchange->context, b);
    for (int32_t s = 0; rc == DLC_OK && s < solver->segments; s++) {
        rc = update(solver, learning_rate, segment);
        segment = DLC_NEXT(segment);
    }
    return rc;
}

static const dlc_option options[] = {
    DLC_FLOAT("learning_rate", "0.01", 0, 1e9, "learning rate"),
    DLC_FLOAT("weight_decay", "0", 0, 1e9,
              "L2 regularization; multiplied by the decay_mult of each parameter"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = solver_needs,
    .create = solver_create,
    .destroy = solver_destroy,
    .learning_rate = solver_learning_rate,
    .ready = solver_ready,
    .finish = solver_finish,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "draft-solver",
     .help = "plain gradient descent",
     .caps = DLC_SOLVER_SYNCHRONOUS,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

const dlc_plugin dlc_plugin_v0 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "draft-solver",
    .version = PLUGIN_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = solver_load,
};

/* The solver "@NAME@": plain gradient descent, weight -= rate * gradient.
 *
 * The exchange of a bucket begins as soon as backward has filled it. When all sums are
 * there every rank has the same ones, makes the same update and so keeps the same
 * weights. It works on any device: the arithmetic is the device's.
 */
#include <dlcore/solver.h>

static const dlc_host *host;

struct dlc_solver {
    const dlc_device_ops *ops;
    dlc_device *device;
    dlc_queue *queue;
    const dlc_exchange *exchange;
    float *weights, *gradients;
    const dlc_segment *segment; /* one a parameter tensor; walked with DLC_NEXT */
    int32_t segments;
    double rate, decay;
};

static dlc_status solver_load(const dlc_host *services) {
    host = services;
    return DLC_OK;
}

/* No state besides the weights, one pass an iteration: as it comes. */
static dlc_status solver_needs(const dlc_settings *settings, dlc_solver_needs *needs) {
    (void)settings;
    (void)needs;
    return DLC_OK;
}

static dlc_status solver_create(const dlc_solver_args *args, dlc_solver **solver) {
    if (DLC_HAS(args, loss_scale) && args->loss_scale)
        return host->fail(
            DLC_ERR_UNSUPPORTED,
            "@NAME@ knows no loss scale, which half precision needs; take "
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
    made->rate = host->get_float(args->settings, "learning_rate");
    made->decay = host->get_float(args->settings, "weight_decay");
    *solver = made;
    return DLC_OK;
}

static void solver_destroy(dlc_solver *solver) {
    host->free(solver);
}

static double solver_rate(dlc_solver *solver, int64_t iteration) {
    (void)iteration;
    return solver->rate;
}

/* A bucket is filled: its sum over the ranks may begin, while backward goes on. */
static dlc_status solver_ready(dlc_solver *solver, int64_t iteration, int32_t micro,
                               int32_t bucket) {
    (void)iteration;
    (void)micro;
    return solver->exchange->start(solver->exchange->context, bucket);
}

/* weight = (1 - rate * decay) * weight - rate * gradient, with the tensor's own
 * multipliers of both. */
static dlc_status update(dlc_solver *solver, double rate, const dlc_segment *segment) {
    float *weight = solver->weights + segment->offset;
    const float *gradient = solver->gradients + segment->offset;
    double own = rate * segment->rate, decay = own * solver->decay * segment->decay;
    dlc_status rc = DLC_OK;
    if (decay != 0)
        rc = solver->ops->scale(solver->device, solver->queue, segment->count,
                                (float)(1 - decay), weight);
    if (rc == DLC_OK && own != 0)
        rc = solver->ops->axpy(solver->device, solver->queue, segment->count,
                               (float)-own, gradient, weight);
    return rc;
}

/* All buckets were started, the one with the tail of the arena too; the tail is the
 * core's, and summed is all that it is to be. */
static dlc_status solver_finish(dlc_solver *solver, int64_t iteration) {
    const dlc_exchange *exchange = solver->exchange;
    const dlc_segment *segment = solver->segment;
    double rate = solver_rate(solver, iteration);
    dlc_status rc = DLC_OK;
    for (int32_t b = 0; rc == DLC_OK && b < exchange->buckets; b++)
        rc = exchange->wait(exchange->context, b);
    for (int32_t s = 0; rc == DLC_OK && s < solver->segments; s++) {
        rc = update(solver, rate, segment);
        segment = DLC_NEXT(segment);
    }
    return rc;
}

static const dlc_option options[] = {
    DLC_FLOAT("learning_rate", "0.01", 0, 1e9, "learning rate"),
    DLC_FLOAT("weight_decay", "0", 0, 1e9,
              "pulls weights to zero; times the parameter's own multiplier"),
    DLC_OPTIONS_END,
};

static const dlc_solver_ops ops = {
    .size = sizeof ops,
    .needs = solver_needs,
    .create = solver_create,
    .destroy = solver_destroy,
    .rate = solver_rate,
    .ready = solver_ready,
    .finish = solver_finish,
};

static const dlc_feature features[] = {
    {.size = sizeof(dlc_feature),
     .kind = DLC_KIND_SOLVER,
     .name = "@NAME@",
     .help = "plain gradient descent",
     .caps = DLC_SOLVER_SYNCHRONOUS,
     .options = options,
     .ops = &ops},
    DLC_FEATURES_END,
};

const dlc_plugin dlc_plugin_v1 = {
    .size = sizeof(dlc_plugin),
    .abi_minor = DLC_ABI_MINOR,
    .name = "@NAME@",
    .version = PLUGIN_VERSION,
    .license = "BSD-2-Clause",
    .features = features,
    .load = solver_load,
};

/* Checks the answers of layers: shapes, parameters, sets of tensors and sizes. */
#include "net/layer_calls.h"

#include <math.h>

#include "plugin/answers.h"

/* Refuses an answer, in the name of the layer. */
#define REFUSE(op, ...) \
    dlc_net_blame(op, NULL, dlc_answer_refuse((op)->feature, __VA_ARGS__))

/* ---- infer ------------------------------------------------------------------- */

static int is_well_formed(const dlc_shape *shape, dlc_dtype dtype) {
    int sound = dlc_dtype_bytes(dtype) > 0 && shape->rank >= 0 &&
                shape->rank <= DLC_MAX_DIMS;
    for (int32_t i = 0; sound && i < shape->rank; i++)
        sound = shape->dims[i] >= 1;
    return sound;
}

/* A shape without sense is the plugin's fault; one that is too large, the net's. */
static dlc_status check_shape(const net_op *op, const char *what, const char *which,
                              const dlc_shape *shape, dlc_dtype dtype) {
    if (!is_well_formed(shape, dtype))
        return REFUSE(op, "%s %s is empty, or of no valid type or rank", what, which);
    if (!dlc_answer_is_tensor(shape, dtype))
        return dlc_fail(DLC_ERR_CONFIG, "layer '%s': its %s %s is too large", op->name,
                        what, which);
    return DLC_OK;
}

static int is_factor(double factor) {
    return isfinite(factor) && factor >= 0;
}

static dlc_status check_params(const net_op *op, int train) {
    const dlc_param *param = op->param;
    int trained = 0;
    int32_t bad = dlc_answer_bad_name(&param->name, sizeof *param, op->plan.params);
    if (bad >= 0)
        return REFUSE(op, "parameter %d has no valid name of its own", (int)bad);
    for (int32_t i = 0; i < op->plan.params; i++) {
        trained |= !(param[i].flags & DLC_PARAM_BUFFER);
        DLC_TRY(check_shape(op, "parameter", param[i].name, &param[i].shape, DLC_F32));
        if (!is_factor(param[i].lr_mult) || !is_factor(param[i].decay_mult))
            return REFUSE(op,
                          "lr_mult and decay_mult of parameter %s are %g and %g; they "
                          "must be finite and not negative",
                          param[i].name, param[i].lr_mult, param[i].decay_mult);
    }
    if (train && trained && !DLC_CAN(op->ops, backward))
        return REFUSE(op, "it has parameters to train, but no backward");
    return DLC_OK;
}

static dlc_status check_inferred(const net_op *op, int train) {
    const dlc_layer_plan *plan = &op->plan;
    if (plan->outputs < 1 || plan->outputs > DLC_MAX_OUTPUTS)
        return REFUSE(op, "it has %d outputs; 1 to %d are possible", (int)plan->outputs,
                      DLC_MAX_OUTPUTS);
    if (plan->params < 0 || plan->params > DLC_MAX_PARAMS)
        return REFUSE(op, "it has %d parameters; 0 to %d are possible",
                      (int)plan->params, DLC_MAX_PARAMS);
    for (int32_t i = 0; i < plan->outputs; i++) {
        const char which[] = {(char)('0' + i), '\0'};
        DLC_TRY(check_shape(op, "output", which, &op->out[i].shape, op->out[i].dtype));
    }
    if (plan->multiply_adds < 0)
        return REFUSE(op, "its multiply_adds is %lld", (long long)plan->multiply_adds);
    return check_params(op, train);
}

dlc_status dlc_layer_infer(net_op *op, int train) {
    dlc_status status = op->ops->infer(op->layer, &op->plan);
    return status == DLC_OK ? check_inferred(op, train)
                            : dlc_net_blame(op, NULL, status);
}

/* ---- prepare ----------------------------------------------------------------- */

/* A layout may pad a tensor, but not drop a part of it. */
static int fits(const dlc_tensor *tensor) {
    size_t count = (size_t)dlc_shape_count(&tensor->shape);
    return dlc_answer_is_tensor(&tensor->shape, tensor->dtype) &&
           tensor->bytes <= DLC_ANSWER_BYTES_MAX &&
           (tensor->layout || !tensor->bytes ||
            tensor->bytes >= count * dlc_dtype_bytes(tensor->dtype));
}

static dlc_status check_tensors(const net_op *op) {
    for (int32_t i = 0; i < op->plan.inputs; i++)
        if (!fits(&op->in[i]))
            return REFUSE(op, "it wants input %d in a type or size that it cannot have",
                          (int)i);
    for (int32_t i = 0; i < op->plan.outputs; i++)
        if (!fits(&op->out[i]))
            return REFUSE(op, "it gives output %d a type or size that it cannot have",
                          (int)i);
    return DLC_OK;
}

static dlc_status check_counts(const net_op *op) {
    const int64_t most = (int64_t)(DLC_ANSWER_BYTES_MAX / sizeof(float));
    for (int32_t i = 0; i < op->plan.params; i++) {
        int64_t least = dlc_shape_count(&op->param[i].shape);
        int64_t count = op->param[i].count;
        if (count < least || count > most)
            return REFUSE(
                op, "it lays out parameter %s, of %lld elements, in %lld elements",
                op->param[i].name, (long long)least, (long long)count);
    }
    return DLC_OK;
}

static int is_beyond(uint64_t set, int32_t count) {
    return count < 64 && set >> count != 0;
}

static dlc_status check_sets(const net_op *op) {
    const dlc_layer_plan *plan = &op->plan;
    if (is_beyond(plan->no_gradient | plan->reads_in | plan->in_place, plan->inputs))
        return REFUSE(op,
                      "no_gradient, reads_in or in_place includes inputs that it does "
                      "not have");
    if (is_beyond(plan->reads_out, plan->outputs))
        return REFUSE(op, "reads_out includes outputs that it does not have");
    if (plan->accumulates_gradient & ~plan->shared_gradient)
        return REFUSE(op, "accumulates_gradient includes inputs that are not in "
                          "shared_gradient");
    return DLC_OK;
}

static dlc_status check_prepared(const net_op *op) {
    DLC_TRY(check_tensors(op));
    DLC_TRY(check_counts(op));
    DLC_TRY(check_sets(op));
    if (op->plan.workspace_bytes > DLC_ANSWER_BYTES_MAX ||
        op->plan.scratch_bytes > DLC_ANSWER_BYTES_MAX)
        return REFUSE(
            op,
            "it wants %zu bytes of workspace and %zu of scratch memory, which "
            "no machine has",
            op->plan.workspace_bytes, op->plan.scratch_bytes);
    return DLC_OK;
}

dlc_status dlc_layer_prepare(net_op *op) {
    dlc_status status = op->ops->prepare(op->layer, &op->plan);
    return status == DLC_OK ? check_prepared(op) : dlc_net_blame(op, NULL, status);
}

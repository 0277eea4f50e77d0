/* Checks the answers of layers: shapes, parameters, sets of tensors and sizes. */
#include "net/ops.h"

#include <math.h>
#include <string.h>

#include "config/config.h"
#include "plugin/answers.h"

/* Refuses an answer, in the name of the layer. */
#define REFUSE(op, ...) \
    dlc_net_blame(op, NULL, dlc_answer_refuse(feature_of(op), __VA_ARGS__))

static const dlc_feature *feature_of(const net_op *op) {
    return ((const net_layer *)op)->from->feature;
}

/* ---- infer ----------------------------------------------------------------------- */

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
    dlc_filler filler;
    int trained = 0;
    int32_t bad = dlc_answer_bad_name(&param->name, sizeof *param, op->shapes.params);
    if (bad >= 0)
        return REFUSE(op, "parameter %d has no valid name of its own", (int)bad);
    for (int32_t i = 0; i < op->shapes.params; i++) {
        trained |= net_is_trained(op, i);
        DLC_TRY(check_shape(op, "parameter", param[i].name, &param[i].shape, DLC_F32));
        if (!is_factor(param[i].lr_mult) || !is_factor(param[i].decay_mult))
            return REFUSE(op,
                          "lr_mult and decay_mult of parameter %s are %g and %g; they "
                          "must be finite and not negative",
                          param[i].name, param[i].lr_mult, param[i].decay_mult);
        if (param[i].filler && dlc_filler_parse(param[i].filler, &filler) != DLC_OK)
            return REFUSE(op, "the filler of parameter %s: %s", param[i].name,
                          dlc_detail());
    }
    if (train && trained && !DLC_CAN(((const net_layer *)op)->calls, backward))
        return REFUSE(op, "it has parameters to train, but no backward");
    return DLC_OK;
}

static dlc_status check_inferred(const net_op *op, int train) {
    const dlc_layer_shapes *shapes = &op->shapes;
    if (shapes->outputs < 1 || shapes->outputs > DLC_MAX_OUTPUTS)
        return REFUSE(op, "it has %d outputs; 1 to %d are possible",
                      (int)shapes->outputs, DLC_MAX_OUTPUTS);
    if (shapes->params < 0 || shapes->params > DLC_MAX_PARAMS)
        return REFUSE(op, "it has %d parameters; 0 to %d are possible",
                      (int)shapes->params, DLC_MAX_PARAMS);
    for (int32_t i = 0; i < shapes->outputs; i++) {
        const char which[] = {(char)('0' + i), '\0'};
        DLC_TRY(check_shape(op, "output", which, &op->out[i].shape, op->out[i].dtype));
    }
    if (shapes->multiply_adds < 0)
        return REFUSE(op, "its multiply_adds is %lld",
                      (long long)shapes->multiply_adds);
    return check_params(op, train);
}

dlc_status dlc_layer_infer(net_layer *layer, int train) {
    net_op *op = &layer->op;
    for (int32_t i = 0; i < DLC_MAX_PARAMS; i++)
        op->param[i] = (dlc_param){
            .size = sizeof(dlc_param), .lr_mult = 1, .decay_mult = 1};
    memset(op->out, 0, sizeof op->out);
    op->shapes = (dlc_layer_shapes){.size = sizeof op->shapes,
                                    .inputs = op->memory.inputs,
                                    .in = op->in,
                                    .outputs = 1,
                                    .out = op->out,
                                    .param = op->param};
    dlc_status status = DLC_ASK(layer->calls, "infer",
                                layer->calls->infer(layer->layer, &op->shapes));
    if (status != DLC_OK)
        return dlc_net_blame(op, NULL, status);
    DLC_TRY(check_inferred(op, train));
    op->memory.outputs = op->shapes.outputs;
    op->memory.params = op->shapes.params;
    for (int32_t i = 0; i < op->memory.params; i++)
        op->param_count[i] = dlc_shape_count(&op->param[i].shape);
    return DLC_OK;
}

/* ---- prepare --------------------------------------------------------------------- */

/* A layout may pad a tensor, but not drop a part of it. */
static int is_possible(const dlc_tensor *tensor) {
    size_t count = (size_t)dlc_shape_count(&tensor->shape);
    return dlc_answer_is_tensor(&tensor->shape, tensor->dtype) &&
           tensor->bytes <= DLC_ANSWER_BYTES_MAX &&
           (tensor->layout || !tensor->bytes ||
            tensor->bytes >= count * dlc_dtype_bytes(tensor->dtype));
}

static dlc_status check_layouts(const net_op *op) {
    for (int32_t i = 0; i < op->memory.inputs; i++)
        if (!is_possible(&op->in[i]))
            return REFUSE(op, "it wants input %d in a type or size that it cannot have",
                          (int)i);
    for (int32_t i = 0; i < op->memory.outputs; i++)
        if (!is_possible(&op->out[i]))
            return REFUSE(op, "it gives output %d a type or size that it cannot have",
                          (int)i);
    return DLC_OK;
}

static dlc_status check_counts(const net_op *op) {
    const int64_t most = (int64_t)(DLC_ANSWER_BYTES_MAX / sizeof(float));
    for (int32_t i = 0; i < op->memory.params; i++) {
        int64_t least = dlc_shape_count(&op->param[i].shape);
        int64_t count = op->param_count[i];
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
    const dlc_layer_memory *memory = &op->memory;
    if (is_beyond(op->shapes.no_gradient | memory->reads_in | memory->in_place,
                  memory->inputs))
        return REFUSE(op,
                      "no_gradient, reads_in or in_place includes inputs that it does "
                      "not have");
    if (is_beyond(memory->reads_out, memory->outputs))
        return REFUSE(op, "reads_out includes outputs that it does not have");
    if (memory->accumulates_gradient & ~memory->shared_gradient)
        return REFUSE(op, "accumulates_gradient includes inputs that are not in "
                          "shared_gradient");
    return DLC_OK;
}

static dlc_status check_prepared(const net_op *op) {
    DLC_TRY(check_layouts(op));
    DLC_TRY(check_counts(op));
    DLC_TRY(check_sets(op));
    if (op->memory.workspace_bytes > DLC_ANSWER_BYTES_MAX ||
        op->memory.scratch_bytes > DLC_ANSWER_BYTES_MAX)
        return REFUSE(
            op,
            "it wants %zu bytes of workspace and %zu of scratch memory, which "
            "no machine has",
            op->memory.workspace_bytes, op->memory.scratch_bytes);
    return DLC_OK;
}

dlc_status dlc_layer_prepare(net_layer *layer) {
    net_op *op = &layer->op;
    dlc_status status = DLC_ASK(layer->calls, "prepare",
                                layer->calls->prepare(layer->layer, &op->memory));
    return status == DLC_OK ? check_prepared(op) : dlc_net_blame(op, NULL, status);
}

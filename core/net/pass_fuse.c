/* The pass `fuse`: a layer takes over its only reader, an elementwise layer or a sum of
 * two, so that a tensor need not be written and read again. */
#include "base/log.h"
#include "base/memory.h"
#include "net/passes.h"

/* The readers of a tensor, while layers take over others: how many there are, and the
 * sum of their indices, which is the index of an only one. */
typedef struct readers {
    int32_t count;
    int64_t sum;
} readers;

static void count_reader(readers *of, const net_op *op, int32_t tensor, int by) {
    of[tensor].count += by;
    of[tensor].sum += by * (int64_t)op->index;
}

static void count_inputs(readers *of, const net_op *op, int by) {
    for (int32_t j = 0; j < op->memory.inputs; j++)
        count_reader(of, op, op->input[j], by);
}

/* The only reader of a tensor; NULL if there are none or several. */
static net_op *only_reader(const dlc_net *net, const readers *of, int32_t tensor) {
    return of[tensor].count == 1 ? net->op[of[tensor].sum] : NULL;
}

/* Is it an elementwise layer without parameters, by its capability bits and its shapes?
 */
static int may_be_fused(const net_op *op) {
    int inputs = op->caps & DLC_LAYER_POINTWISE ? 1
                 : op->caps & DLC_LAYER_BINARY  ? 2
                                                : 0;
    return op->memory.inputs == inputs && op->memory.outputs == 1 &&
           op->memory.params == 0;
}

/* The input of a binary layer that is not the output of operation `op`; NO_TENSOR if it
 * is computed later than that operation. */
static int32_t other_input(const dlc_net *net, const net_op *binary, const net_op *op) {
    int32_t other = binary->input[binary->input[0] == op->output[0]];
    const net_op *producer = net->tensor[other].producer;
    return !producer || producer->index < op->index ? other : NO_TENSOR;
}

static void take_over(dlc_net *net, readers *of, net_op *op, net_op *next,
                      int32_t other) {
    count_inputs(of, next, -1);
    if (other != NO_TENSOR) {
        count_reader(of, op, other, 1);
        op->input[op->memory.inputs] = other;
        op->in[op->memory.inputs++] = net->tensor[other].tensor;
    }
    next->fused_into = op;
    op->output[0] = next->output[0];
    op->out[0] = next->out[0];
    net->tensor[op->output[0]].producer = op;
    dlc_debug("layer '%s' is fused into '%s'", next->name, op->name);
}

/* Fuses the layers that follow into this one, for as long as it accepts them. */
static dlc_status fuse_followers(dlc_net *net, readers *of, net_op *op) {
    int has_binary = 0;
    while (op->memory.outputs == 1) {
        net_op *next = only_reader(net, of, op->output[0]);
        if (!next || !may_be_fused(next))
            return DLC_OK;
        int is_binary = next->memory.inputs == 2;
        int32_t other = is_binary ? other_input(net, next, op) : NO_TENSOR;
        if (is_binary && (other == NO_TENSOR || has_binary))
            return DLC_OK;
        dlc_status status = op->ops->fuse(op, next);
        if (status == DLC_ERR_UNSUPPORTED)
            return DLC_OK;
        if (status != DLC_OK)
            return dlc_net_blame(op, NULL, status);
        has_binary |= is_binary;
        take_over(net, of, op, next, other);
    }
    return DLC_OK;
}

dlc_status dlc_net_pass_fuse(dlc_net *net) {
    readers *of = dlc_alloc((size_t)net->tensors, sizeof *of);
    dlc_status status = of ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t i = 0; of && i < net->ops; i++)
        count_inputs(of, net->op[i], 1);
    for (int32_t i = 0; status == DLC_OK && i < net->ops; i++)
        if (!net->op[i]->fused_into && net->op[i]->ops->fuse)
            status = fuse_followers(net, of, net->op[i]);
    dlc_free(of);
    return status;
}

/* Builds, allocates and frees a net. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "net/batch_chunks.h"
#include "net/internal.h"

int32_t dlc_net_tensor_add(dlc_net *net, const dlc_tensor *tensor, int32_t producer) {
    if (net->tensors == net->tensor_room) {
        int32_t room = net->tensor_room ? net->tensor_room * 2 : 32;
        net_tensor *grown = dlc_grow(net->tensor, (size_t)net->tensor_room,
                                     (size_t)room, sizeof *grown);
        if (!grown)
            return DLC_ERR_NOMEM;
        net->tensor = grown;
        net->tensor_room = room;
    }
    net->tensor[net->tensors] = (net_tensor){.tensor = *tensor,
                                             .producer = producer,
                                             .data_buffer = NO_BUFFER,
                                             .diff_buffer = NO_BUFFER,
                                             .recompute_before = NO_OP,
                                             .recompute_buffer = NO_BUFFER};
    return net->tensors++;
}

dlc_status dlc_net_blame(const net_op *op, const char *phase, dlc_status status) {
    char quoted[256];
    snprintf(quoted, sizeof quoted, "'%s'", op->name);
    if (strstr(dlc_detail(), quoted))
        return status;
    return dlc_fail(status, "layer %s%s%s: %s", quoted, phase ? ", " : "",
                    phase ? phase : "", dlc_detail());
}

void dlc_net_op_free(net_op *op) {
    if (op->ops)
        op->ops->destroy(op->layer);
    dlc_net_reshard_free(op->reshard);
    if (op->family) {
        op->family->reorder_destroy(op->reorder_forward);
        op->family->reorder_destroy(op->reorder_backward);
    }
    dlc_free(op->in);
    dlc_free(op->out);
    dlc_free(op->param);
    dlc_free(op->param_count);
    dlc_free(op->input);
    dlc_free(op->output);
    dlc_free(op->edge);
    dlc_free(op->in_data);
    dlc_free(op->in_diff);
    dlc_free(op->out_data);
    dlc_free(op->out_diff);
    dlc_free(op->params);
    dlc_free(op->param_diffs);
}

dlc_status dlc_net_build(const dlc_net_args *args, dlc_net **net) {
    dlc_net *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->args = *args;
    dlc_status status = dlc_net_make_layers(made);
    if (status == DLC_OK && !args->outline)
        status = dlc_net_prepare(made);
    if (status == DLC_OK)
        status = dlc_net_lay_out_params(made);
    if (status == DLC_OK && !args->outline)
        status = dlc_net_plan(made);
    if (status != DLC_OK) {
        dlc_net_free(made);
        return status;
    }
    *net = made;
    return DLC_OK;
}

dlc_status dlc_net_allocate(dlc_net *net) {
    DLC_TRY(dlc_net_take_params(net));
    return dlc_net_take_memory(net);
}

static void free_memory(dlc_net *net, dlc_memory *memory) {
    if (memory->base)
        net->args.device_ops->free(net->args.device, memory);
}

void dlc_net_free(dlc_net *net) {
    if (!net)
        return;
    for (int32_t i = 0; i < net->ops; i++)
        dlc_net_op_free(&net->op[i]);
    for (int32_t i = 0; i < net->families; i++)
        net->family[i].family->close(net->family[i].context);
    for (int32_t i = 0; i < net->params && net->param_name; i++)
        dlc_free(net->param_name[i]);
    free_memory(net, &net->weights);
    free_memory(net, &net->gradients);
    free_memory(net, &net->buffers);
    free_memory(net, &net->frozen);
    free_memory(net, &net->sharded_weights);
    free_memory(net, &net->sharded_gradients);
    free_memory(net, &net->sharded_frozen);
    if (!net->borrows_activations)
        free_memory(net, &net->activations);
    dlc_free(net->chunks.transfer);
    dlc_free(net->param_name);
    dlc_free(net->param);
    dlc_free(net->param_op);
    dlc_free(net->param_index);
    dlc_free(net->segment);
    dlc_free(net->sharded_segment);
    dlc_free(net->buffer);
    dlc_free(net->family);
    dlc_free(net->tensor);
    dlc_free(net->op);
    dlc_free(net);
}

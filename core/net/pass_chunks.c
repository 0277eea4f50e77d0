/* The pass `chunks`: finds the operations that work on batch chunks (chunks.h), and
 * says which tensors are in use until the last chunk. In the memory plan the steps of
 * the chunked part are adjacent, so buffers that are used only there are reused by the
 * next chunk. */
#include "net/passes.h"

/* The operation that gathers the input of the chunked part. */
static int gathers(const dlc_net *net, const net_op *op) {
    return net->tensor[op->output[0]].in_chunk && !net->tensor[op->input[0]].in_chunk;
}

dlc_status dlc_net_pass_chunks(dlc_net *net) {
    int32_t first = 0;
    while (first < net->ops && !(net->chunks.count > 0 && gathers(net, net->op[first])))
        first++;
    net->chunks.first_op = first;
    if (first == net->ops)
        return DLC_OK;
    const net_op *gather = net->op[first];
    int32_t end = net_backward_step(net, gather);
    net->tensor[gather->input[0]].kept_until = end;
    net->tensor[gather->output[0]].kept_until = end;
    for (int32_t i = 0; i < net->args.fields.count; i++) {
        int32_t label = net->chunks.label[i];
        if (label == NO_TENSOR)
            continue;
        net->tensor[i].kept_until = end;
        net->tensor[label].kept_until = end;
    }
    return DLC_OK;
}

/* Runs passes: a schedule over the operations, forward and backward. */
#include <string.h>

#include "net/run_chunks.h"

dlc_status dlc_net_set_input(dlc_net *net, const float *data, const int32_t *labels) {
    net_tensor *tensor = net->tensor;
    if (!dlc_net_on_host(net)) {
        DLC_TRY(dlc_net_copy(net, tensor[TENSOR_DATA].data, data,
                             dlc_tensor_bytes(&tensor[TENSOR_DATA].tensor)));
        return dlc_net_copy(net, tensor[TENSOR_LABEL].data, labels,
                            dlc_tensor_bytes(&tensor[TENSOR_LABEL].tensor));
    }
    /* Read in place and never written; memcpy only drops the const. */
    memcpy(&tensor[TENSOR_DATA].data, &data, sizeof data);
    memcpy(&tensor[TENSOR_LABEL].data, &labels, sizeof labels);
    return DLC_OK;
}

dlc_status dlc_net_set_bytes(dlc_net *net, const uint8_t *data, const float *mean,
                             const float *scale, const int32_t *labels) {
    const dlc_net_args *args = &net->args;
    net_tensor *tensor = net->tensor;
    const dlc_shape *shape = &tensor[TENSOR_DATA].tensor.shape;
    size_t count = (size_t)dlc_shape_count(shape), channels = (size_t)shape->dims[1];
    size_t plane = count / (size_t)shape->dims[0] / channels;
    DLC_TRY(args->device_ops->normalize(args->device, args->queue, count, plane,
                                        channels, data, mean, scale,
                                        tensor[TENSOR_DATA].data));
    return dlc_net_copy(net, tensor[TENSOR_LABEL].data, labels,
                        dlc_tensor_bytes(&tensor[TENSOR_LABEL].tensor));
}

static void reset_times(dlc_net *net) {
    for (int32_t i = 0; i < net->ops; i++)
        memset(net->op[i]->ns, 0, sizeof net->op[i]->ns);
}

/* With batch chunks the rest of forward comes with backward when the net trains. */
dlc_status dlc_net_forward(dlc_net *net, int64_t iteration, int64_t sample) {
    if (net->timed)
        reset_times(net);
    net->iteration = iteration;
    dlc_net_set_sample(net, sample);
    for (int32_t i = 0; i < net->chunks.first_op; i++)
        DLC_TRY(dlc_net_forward_op(net, net->op[i]));
    return net_is_training(net) ? DLC_OK : dlc_net_chunks_forward(net);
}

dlc_status dlc_net_backward(dlc_net *net, float loss_scale,
                            dlc_status (*done)(void *context, size_t elements),
                            void *context) {
    const net_done after = {done, context};
    net->loss_scale = loss_scale;
    DLC_TRY(dlc_net_chunks_train(net, &after));
    for (int32_t i = net->chunks.first_op - 1; i >= 0; i--) {
        net_op *op = net->op[i];
        DLC_TRY(dlc_net_backward_op(net, op));
        DLC_TRY(dlc_net_gradients_done(net, op, &after));
    }
    return DLC_OK;
}

/* ---- Timing ---------------------------------------------------------------------- */

void dlc_net_time(dlc_net *net, int on) {
    net->timed = on;
    reset_times(net);
}

void dlc_net_seconds(const dlc_net *net, int32_t i, double seconds[DLC_NET_PARTS]) {
    for (int part = 0; part < DLC_NET_PARTS; part++)
        seconds[part] = (double)net->op[i]->ns[part] * 1e-9;
}

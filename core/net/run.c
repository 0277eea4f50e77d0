/* Runs passes: a schedule over the operations, forward and backward. */
#include <string.h>

#include "net/run_chunks.h"

const dlc_net_fields *dlc_net_batch_fields(const dlc_net *net) {
    return &net->args.fields;
}

static dlc_status copy_fields(const dlc_net *net, const void *const *value,
                              int32_t first) {
    for (int32_t i = first; i < net->args.fields.count; i++)
        DLC_TRY(dlc_net_copy(net, net->tensor[i].data, value[i],
                             dlc_tensor_bytes(&net->tensor[i].tensor)));
    return DLC_OK;
}

dlc_status dlc_net_set_batch(dlc_net *net, const void *const *value) {
    if (!dlc_net_on_host(net))
        return copy_fields(net, value, 0);
    /* Read in place and never written; memcpy only drops the const. */
    for (int32_t i = 0; i < net->args.fields.count; i++)
        memcpy(&net->tensor[i].data, &value[i], sizeof value[i]);
    return DLC_OK;
}

dlc_status dlc_net_set_bytes(dlc_net *net, const void *const *value, const float *mean,
                             const float *scale) {
    const dlc_net_args *args = &net->args;
    const net_tensor *data = &net->tensor[DLC_FIELD_DATA];
    const dlc_shape *shape = &data->tensor.shape;
    size_t count = (size_t)dlc_shape_count(shape), channels = (size_t)shape->dims[1];
    size_t plane = count / (size_t)shape->dims[0] / channels;
    DLC_TRY(args->device_ops->normalize(args->device, args->queue, count, plane,
                                        channels, value[DLC_FIELD_DATA], mean, scale,
                                        data->data));
    return copy_fields(net, value, DLC_FIELD_DATA + 1);
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

dlc_status dlc_net_backward(dlc_net *net, float loss_scale, dlc_net_done *done,
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

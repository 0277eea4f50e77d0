/* dropout: in training each element is zeroed with probability `ratio` and the others
 * are scaled up, so that the mean stays the same and testing has nothing to do.
 *
 * Which elements are zeroed is drawn by (seed, layer, iteration, index of the element
 * in the global batch), as on the CPU. Nothing is kept for backward, which draws the
 * same numbers again: that costs less than reading them from memory. */
#include <math.h>

#include "cudnn.h"
#include "kernels/kernels.h"

typedef struct dropout {
    dlc_layer head;
    dropout_args args; /* without the pointers */
    size_t bytes;      /* of the tensor */
} dropout;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(dropout), out);
    if (status != DLC_OK)
        return status;
    dropout_args *d = &((dropout *)*out)->args;
    double ratio = host->get_float(args->settings, "ratio");
    d->seed = args->seed;
    d->index = args->index;
    d->limit = (uint32_t)lrint(ratio * 4294967296.0);
    d->scale = (float)(1 / (1 - ratio));
    return DLC_OK;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    dropout_args *d = &((dropout *)layer)->args;
    dlc_status status = infer_elementwise(layer, shapes);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    d->count = dlc_shape_count(in);
    d->features = d->count / in->dims[0];
    d->channels = in->rank > 1 ? in->dims[1] : 1;
    d->spatial = d->features / d->channels;
    return DLC_OK;
}

static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    dropout *drop = (dropout *)layer;
    const dlc_layout *layout = layout_simple(layer->net, &memory->in[0],
                                             &drop->args.last);
    if (!layout)
        return DLC_ERR_NOMEM;
    layout_give(&memory->in[0], layout);
    layout_give(&memory->out[0], layout);
    drop->args.type = layout->dtype;
    drop->bytes = layout->bytes;
    memory->in_place = 1;
    return DLC_OK;
}

static cudaError_t apply(const dropout *drop, const dlc_layer_run *run,
                         const void *from, void *to) {
    dropout_args args = drop->args;
    args.step = (dlc_step){.iteration = run->iteration, .sample = run->sample};
    args.step_at = step_at(run);
    args.from = from;
    args.to = to;
    return dropout_run(&args, drop->head.net->stream);
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const dropout *drop = (const dropout *)layer;
    cudaError_t error = cudaSuccess;
    if (layer->phase == DLC_PHASE_TRAIN)
        error = apply(drop, run, run->in[0], run->out[0]);
    else if (run->in[0] != run->out[0])
        error = copy_run(run->out[0], run->in[0], drop->bytes, layer->net->stream);
    return check_cuda(error, layer->name, "do its forward pass");
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    if (!run->in_diff[0])
        return DLC_OK;
    return check_cuda(
        apply((const dropout *)layer, run, run->out_diff[0], run->in_diff[0]),
        layer->name, "do its backward pass");
}

const dlc_layer_ops dropout_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &cudnn_family,
    .create = create,
    .destroy = layer_free,
    .infer = infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};

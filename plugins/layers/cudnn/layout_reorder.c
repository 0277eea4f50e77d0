/* Conversions of tensors between layouts. */
#include "cudnn.h"
#include "reorder.h"

int layouts_are_same(const dlc_tensor *a, const dlc_tensor *b) {
    if (a->layout == b->layout)
        return 1;
    if (!a->layout)
        return b->layout->plain;
    if (!b->layout)
        return a->layout->plain;
    return a->layout->last == b->layout->last && a->layout->plain == b->layout->plain &&
           a->layout->channels == b->layout->channels &&
           a->layout->fold.stride == b->layout->fold.stride;
}

struct dlc_reorder {
    context *net;
    reorder_job job;
    fold fold; /* of the target */
};

void layout_reorder_destroy(dlc_reorder *reorder) {
    host->free(reorder);
}

static int is_float(dlc_dtype dtype) {
    return dtype == DLC_F32 || dtype == DLC_BF16 || dtype == DLC_F16;
}

static reorder_side side_of(const dlc_layout *layout) {
    return (reorder_side){.dtype = (int)layout->dtype,
                          .last = layout->last && !layout->plain,
                          .channels = layout->channels};
}

dlc_status layout_reorder_create(void *opaque, const dlc_tensor *from,
                                 const dlc_tensor *to, dlc_reorder **out) {
    context *net = opaque;
    if (!is_float(from->dtype) || !is_float(to->dtype))
        return host->fail(DLC_ERR_UNSUPPORTED,
                          "the cudnn family can only convert float32, bfloat16 and "
                          "float16 tensors");
    const dlc_layout *source = layout_of(net, from), *target = layout_of(net, to);
    if (!source || !target)
        return DLC_ERR_NOMEM;
    if (target->fold.stride && !source->plain)
        return host->fail(DLC_ERR_INTERNAL, "only plain images can be folded");
    dlc_reorder *reorder = host->alloc(sizeof *reorder);
    if (!reorder)
        return DLC_ERR_NOMEM;
    const dlc_shape *shape = &from->shape;
    reorder->net = net;
    reorder->fold = target->fold;
    reorder->job = (reorder_job){.from = side_of(source), .to = side_of(target)};
    reorder->job.images = shape->rank ? shape->dims[0] : 1;
    reorder->job.channels = shape->rank > 1 ? shape->dims[1] : 1;
    reorder->job.points = 1;
    for (int i = 2; i < shape->rank; i++)
        reorder->job.points *= shape->dims[i];
    *out = reorder;
    return DLC_OK;
}

dlc_status layout_reorder_run(dlc_reorder *reorder, const void *src, void *dst) {
    const reorder_job *job = &reorder->job;
    cudaStream_t stream = reorder->net->stream;
    cudaError_t error = reorder->fold.stride
                            ? fold_images(&reorder->fold, job->from.dtype, src,
                                          job->to.dtype, dst, job->images, stream)
                            : reorder_launch(job, src, dst, stream);
    return check_cuda(error, NULL, "reorder a tensor");
}

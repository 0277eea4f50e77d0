/* See intake.h. */
#include "train/intake.h"

#include "base/memory.h"
#include "base/status.h"

static dlc_status take_memory(const dlc_intake *intake, size_t bytes,
                              dlc_memory *memory) {
    *memory = (dlc_memory){.size = sizeof *memory};
    return intake->ops->alloc(intake->device, bytes, 0, memory);
}

static size_t data_bytes(const dlc_intake *intake) {
    dlc_shape sample = dlc_feed_shape(intake->feed);
    return (size_t)intake->batch * (size_t)dlc_shape_count(&sample) *
           dlc_dtype_bytes(dlc_feed_dtype(intake->feed));
}

static size_t label_bytes(const dlc_intake *intake) {
    return (size_t)intake->batch * sizeof(int32_t);
}

static dlc_status open_slot(const dlc_intake *intake, dlc_intake_slot *slot) {
    DLC_TRY(take_memory(intake, data_bytes(intake), &slot->data));
    DLC_TRY(take_memory(intake, label_bytes(intake), &slot->labels));
    DLC_TRY(intake->ops->event_open(intake->device, &slot->arrived));
    return intake->ops->event_open(intake->device, &slot->taken);
}

static int takes_bytes(const dlc_intake *intake) {
    return dlc_feed_dtype(intake->feed) == DLC_U8;
}

static dlc_status put_mean(dlc_intake *intake) {
    const dlc_augment *augment = dlc_feed_augment(intake->feed);
    size_t channels = (size_t)dlc_feed_shape(intake->feed).dims[0];
    float *mean = dlc_alloc(channels, sizeof *mean);
    if (!mean)
        return DLC_ERR_NOMEM;
    for (size_t c = 0; c < channels; c++)
        mean[c] = dlc_augment_mean(augment, (int64_t)c);
    dlc_status status = take_memory(intake, channels * sizeof *mean, &intake->mean);
    if (status == DLC_OK)
        status = intake->ops->copy(intake->device, NULL, intake->mean.base, mean,
                                   channels * sizeof *mean);
    dlc_free(mean);
    return status;
}

dlc_status dlc_intake_open(dlc_intake *intake) {
    if (!intake->queue)
        return DLC_OK;
    if (takes_bytes(intake))
        DLC_TRY(put_mean(intake));
    DLC_TRY(intake->ops->queue_open(intake->device, &intake->upload));
    DLC_TRY(open_slot(intake, &intake->slot[0]));
    return open_slot(intake, &intake->slot[1]);
}

static void close_slot(const dlc_intake *intake, dlc_intake_slot *slot) {
    if (slot->taken)
        intake->ops->event_close(intake->device, slot->taken);
    if (slot->arrived)
        intake->ops->event_close(intake->device, slot->arrived);
    if (slot->labels.base)
        intake->ops->free(intake->device, &slot->labels);
    if (slot->data.base)
        intake->ops->free(intake->device, &slot->data);
}

void dlc_intake_close(dlc_intake *intake) {
    if (intake->upload) /* nobody frees what a copy still writes to */
        (void)intake->ops->queue_sync(intake->device, intake->upload);
    close_slot(intake, &intake->slot[0]);
    close_slot(intake, &intake->slot[1]);
    if (intake->upload)
        intake->ops->queue_close(intake->device, intake->upload);
    if (intake->mean.base)
        intake->ops->free(intake->device, &intake->mean);
    *intake = (dlc_intake){0};
}

/* The feed's next batch, whose memory is good until the one after it is asked for. */
static dlc_status next_of_feed(dlc_intake *intake, dlc_batch *batch) {
    if (intake->reading)
        DLC_TRY(intake->ops->event_sync(intake->device, intake->reading));
    intake->reading = NULL;
    return dlc_feed_next(intake->feed, batch);
}

static dlc_status fill(dlc_intake *intake, dlc_intake_slot *slot) {
    const dlc_device_ops *ops = intake->ops;
    dlc_batch batch;

    DLC_TRY(next_of_feed(intake, &batch));
    if (slot->was_taken)
        DLC_TRY(ops->event_wait(intake->device, intake->upload, slot->taken));
    DLC_TRY(ops->copy(intake->device, intake->upload, slot->data.base, batch.data,
                      data_bytes(intake)));
    DLC_TRY(ops->copy(intake->device, intake->upload, slot->labels.base, batch.labels,
                      label_bytes(intake)));
    DLC_TRY(ops->event_record(intake->device, intake->upload, slot->arrived));
    intake->reading = slot->arrived;
    slot->iteration = batch.iteration;
    slot->is_full = 1;
    return DLC_OK;
}

dlc_status dlc_intake_ahead(dlc_intake *intake) {
    dlc_intake_slot *slot = &intake->slot[intake->at];
    return !intake->queue || slot->is_full ? DLC_OK : fill(intake, slot);
}

static dlc_status show_in_place(dlc_intake *intake, int64_t *iteration) {
    dlc_batch batch;
    DLC_TRY(dlc_feed_next(intake->feed, &batch));
    *iteration = batch.iteration;
    return dlc_net_set_input(intake->net, batch.data, batch.labels);
}

/* Bytes become floats as they are shown, on the net's queue: instead of a copy. */
static dlc_status show(const dlc_intake *intake, const dlc_intake_slot *slot) {
    if (takes_bytes(intake))
        return dlc_net_set_bytes(intake->net, slot->data.base, intake->mean.base,
                                 dlc_feed_augment(intake->feed)->scale,
                                 slot->labels.base);
    return dlc_net_set_input(intake->net, slot->data.base, slot->labels.base);
}

dlc_status dlc_intake_next(dlc_intake *intake, int64_t *iteration) {
    const dlc_device_ops *ops = intake->ops;
    dlc_intake_slot *slot = &intake->slot[intake->at];

    if (!intake->queue)
        return show_in_place(intake, iteration);
    DLC_TRY(dlc_intake_ahead(intake));
    DLC_TRY(ops->event_wait(intake->device, intake->queue, slot->arrived));
    DLC_TRY(show(intake, slot));
    DLC_TRY(ops->event_record(intake->device, intake->queue, slot->taken));
    slot->was_taken = 1;
    slot->is_full = 0;
    intake->at ^= 1;
    *iteration = slot->iteration;
    return DLC_OK;
}

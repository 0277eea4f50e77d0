/* Copies batches to a device through two slots in device memory, on a queue of its own.
 */
#include "data/upload.h"

#include "base/memory.h"
#include "base/status.h"
#include "plugin/device_objects.h"

static size_t field_bytes(const dlc_upload *upload, int32_t i) {
    return (size_t)upload->batch * dlc_feed_field(upload->feed, i)->bytes;
}

static dlc_status open_slot(const dlc_upload *upload, dlc_upload_slot *slot) {
    for (int32_t i = 0; i < dlc_feed_fields(upload->feed); i++)
        DLC_TRY(dlc_device_alloc(upload->ops, upload->device, field_bytes(upload, i), 0,
                                 &slot->field[i]));
    DLC_TRY(dlc_device_open_event(upload->ops, upload->device, &slot->arrived));
    return dlc_device_open_event(upload->ops, upload->device, &slot->collected);
}

static int is_bytes(const dlc_upload *upload) {
    return dlc_feed_dtype(upload->feed) == DLC_U8;
}

/* Copies a value of each channel to the device. */
static dlc_status upload_values(const dlc_upload *upload,
                                float (*value)(const dlc_transforms *, int64_t),
                                dlc_memory *memory) {
    const dlc_transforms *transforms = dlc_feed_transforms(upload->feed);
    size_t channels = (size_t)dlc_feed_shape(upload->feed).dims[0];
    float *values = dlc_alloc(channels, sizeof *values);
    if (!values)
        return DLC_ERR_NOMEM;
    for (size_t c = 0; c < channels; c++)
        values[c] = value(transforms, (int64_t)c);
    dlc_status status = dlc_device_alloc(upload->ops, upload->device,
                                         channels * sizeof *values, 0, memory);
    if (status == DLC_OK)
        status = upload->ops->copy(upload->device, NULL, memory->base, values,
                                   channels * sizeof *values);
    dlc_free(values);
    return status;
}

dlc_status dlc_upload_open(dlc_upload *upload) {
    if (!upload->queue)
        return DLC_OK;
    if (is_bytes(upload)) {
        DLC_TRY(upload_values(upload, dlc_transforms_mean, &upload->mean));
        DLC_TRY(upload_values(upload, dlc_transforms_scale, &upload->scale));
    }
    DLC_TRY(dlc_device_open_queue(upload->ops, upload->device, &upload->upload_queue));
    DLC_TRY(open_slot(upload, &upload->slot[0]));
    return open_slot(upload, &upload->slot[1]);
}

static void close_slot(const dlc_upload *upload, dlc_upload_slot *slot) {
    if (slot->collected)
        upload->ops->queues->event_close(upload->device, slot->collected);
    if (slot->arrived)
        upload->ops->queues->event_close(upload->device, slot->arrived);
    for (int32_t i = 0; i < DLC_NET_FIELDS; i++)
        dlc_device_free(upload->ops, upload->device, &slot->field[i]);
}

void dlc_upload_close(dlc_upload *upload) {
    if (upload->upload_queue) /* a copy may still be writing to the slots */
        (void)upload->ops->queues->queue_sync(upload->device, upload->upload_queue);
    close_slot(upload, &upload->slot[0]);
    close_slot(upload, &upload->slot[1]);
    if (upload->upload_queue)
        upload->ops->queues->queue_close(upload->device, upload->upload_queue);
    dlc_device_free(upload->ops, upload->device, &upload->scale);
    dlc_device_free(upload->ops, upload->device, &upload->mean);
    *upload = (dlc_upload){0};
}

/* Gets the feed's next batch, once the previous one, whose memory it reuses, was
 * copied. */
static dlc_status next_feed_batch(dlc_upload *upload, dlc_batch *batch) {
    if (upload->copying)
        DLC_TRY(upload->ops->queues->event_sync(upload->device, upload->copying));
    upload->copying = NULL;
    return dlc_feed_next(upload->feed, batch);
}

static dlc_status fill_slot(dlc_upload *upload, dlc_upload_slot *slot) {
    const dlc_device_ops *ops = upload->ops;
    dlc_batch batch;

    DLC_TRY(next_feed_batch(upload, &batch));
    if (slot->was_used)
        DLC_TRY(ops->queues->event_wait(upload->device, upload->upload_queue,
                                        slot->collected));
    for (int32_t i = 0; i < dlc_feed_fields(upload->feed); i++)
        DLC_TRY(ops->copy(upload->device, upload->upload_queue, slot->field[i].base,
                          batch.field[i], field_bytes(upload, i)));
    DLC_TRY(
        ops->queues->event_record(upload->device, upload->upload_queue, slot->arrived));
    upload->copying = slot->arrived;
    slot->iteration = batch.iteration;
    slot->is_full = 1;
    return DLC_OK;
}

dlc_status dlc_upload_prefetch(dlc_upload *upload) {
    dlc_upload_slot *slot = &upload->slot[upload->at];
    return !upload->queue || slot->is_full ? DLC_OK : fill_slot(upload, slot);
}

static dlc_status set_input_in_place(dlc_upload *upload, int64_t *iteration) {
    dlc_batch batch;
    DLC_TRY(dlc_feed_next(upload->feed, &batch));
    *iteration = batch.iteration;
    return dlc_net_set_batch(upload->net, batch.field);
}

/* Hands the batch to the net. Bytes are converted to floats on the net's queue, which
 * replaces a copy. */
static dlc_status set_input(const dlc_upload *upload, const dlc_upload_slot *slot) {
    const void *value[DLC_NET_FIELDS];
    for (int32_t i = 0; i < DLC_NET_FIELDS; i++)
        value[i] = slot->field[i].base;
    return is_bytes(upload) ? dlc_net_set_bytes(upload->net, value, upload->mean.base,
                                                upload->scale.base)
                            : dlc_net_set_batch(upload->net, value);
}

dlc_status dlc_upload_next(dlc_upload *upload, int64_t *iteration) {
    const dlc_device_ops *ops = upload->ops;
    dlc_upload_slot *slot = &upload->slot[upload->at];

    if (!upload->queue)
        return set_input_in_place(upload, iteration);
    DLC_TRY(dlc_upload_prefetch(upload));
    DLC_TRY(ops->queues->event_wait(upload->device, upload->queue, slot->arrived));
    DLC_TRY(set_input(upload, slot));
    DLC_TRY(ops->queues->event_record(upload->device, upload->queue, slot->collected));
    slot->was_used = 1;
    slot->is_full = 0;
    upload->at ^= 1;
    *iteration = slot->iteration;
    return DLC_OK;
}

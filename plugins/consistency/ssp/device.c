/* The model's memory on the device, and its queues and events.
 *
 * Where shards live. Weights, slots and updates of a shard stay in memory of the
 * device, also where the host cannot access that. Let a net have n bytes of weights, on
 * R ranks. In an iteration a rank pushes what other ranks own, n (R-1)/R, receives as
 * much for its own shard, and the answers are as much again in either direction. Where
 * the transport cannot reach the device's memory, all of that crosses the host's link
 * once: 4 n (R-1)/R. With shards in host memory it would be 2 n, all gradients down and
 * all weights up, which is less from three ranks on. But then a transport that reaches
 * the device's memory saves nothing, where it now moves nothing through the host; the
 * rule, which reads and writes R + 2 (slots + 1) arrays of n/R, would be bound by the
 * host's memory, ten times slower than the device's; and the rule would run on another
 * device than in synchronous training. Down and up share a link that is full duplex. So
 * what is staged is left to the transport, behind the p2p channel, and nothing here is.
 *
 * Queues. The training thread submits its work to the queue of the net: steps, and
 * copies of weights that have arrived. A push is sent when the event after its last
 * work is done, so the training thread may be ahead of its queue. An owner's work, on
 * the communication thread, has a queue of its own, which that thread waits for before
 * it sends an answer; the net's queue never waits for it. Weights that have arrived are
 * not overwritten before the event after the copy that reads them. A device without
 * queues has no events either, and everything is done at once. */
#include "ssp.h"

/* ---- Memory ------------------------------------------------------------------ */

static void *make(ssp *s, size_t bytes, uint32_t flags) {
    block *made = host->alloc(sizeof *made);
    if (!made)
        return NULL;
    made->memory.size = sizeof made->memory;
    if (s->ops->alloc(s->device, bytes, flags, &made->memory) != DLC_OK) {
        host->free(made);
        return NULL;
    }
    pthread_mutex_lock(&s->lock);
    made->next = s->blocks;
    s->blocks = made;
    pthread_mutex_unlock(&s->lock);
    return made->memory.base;
}

dlc_status device_floats(ssp *s, size_t count, float **floats) {
    *floats = make(s, (count + 1) * sizeof **floats, 0);
    return *floats ? DLC_OK : DLC_ERR_NOMEM;
}

void *device_host_memory(ssp *s, size_t bytes) {
    return make(s, bytes, DLC_MEM_STAGING);
}

/* ---- Queues and events ------------------------------------------------------- */

dlc_status device_record(const ssp *s, dlc_event *event) {
    return event ? s->ops->queues->event_record(s->device, s->queue, event) : DLC_OK;
}

dlc_status device_is_done(const ssp *s, dlc_event *event, int *done) {
    *done = 1;
    return event ? s->ops->queues->event_done(s->device, event, done) : DLC_OK;
}

dlc_status device_finish(const ssp *s) {
    return s->own_queue ? s->ops->queues->queue_sync(s->device, s->own_queue) : DLC_OK;
}

static size_t slice_count(const ssp *s) {
    return (size_t)s->buckets * (size_t)s->owners;
}

static dlc_status open_events(ssp *s) {
    const dlc_device_queue_ops *queues = s->ops->queues;
    dlc_status status = DLC_OK;
    s->complete = host->alloc((size_t)s->buckets * sizeof(dlc_event *));
    if (!s->complete)
        return DLC_ERR_NOMEM;
    for (int32_t b = 0; status == DLC_OK && b < s->buckets; b++)
        status = queues->event_open(s->device, &s->complete[b]);
    for (size_t i = 0; status == DLC_OK && i < slice_count(s); i++)
        status = queues->event_open(s->device, &s->slices[i].read);
    return status;
}

dlc_status device_open(ssp *s) {
    size_t words = (size_t)(1 + WORD_SLOTS) * MAX_CONTROL_WORDS;
    s->words_in = device_host_memory(s, words * sizeof *s->words_in);
    if (!s->words_in)
        return DLC_ERR_NOMEM;
    s->words_out = s->words_in + MAX_CONTROL_WORDS;
    if (!s->queue)
        return DLC_OK;
    dlc_status status = s->ops->queues->queue_open(s->device, &s->own_queue);
    return status == DLC_OK ? open_events(s) : status;
}

static void close_event(const ssp *s, dlc_event *event) {
    if (event)
        s->ops->queues->event_close(s->device, event);
}

static void close_queues(ssp *s) {
    (void)s->ops->queues->queue_sync(s->device, s->queue);
    if (s->own_queue)
        s->ops->queues->queue_close(s->device, s->own_queue);
    for (int32_t b = 0; s->complete && b < s->buckets; b++)
        close_event(s, s->complete[b]);
    for (size_t i = 0; s->slices && i < slice_count(s); i++)
        close_event(s, s->slices[i].read);
    host->free((void *)s->complete);
}

void device_close(ssp *s) {
    if (s->queue)
        close_queues(s);
    while (s->blocks) {
        block *one = s->blocks;
        s->blocks = one->next;
        s->ops->free(s->device, &one->memory);
        host->free(one);
    }
}

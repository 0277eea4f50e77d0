/* The transport: p2p-tree's, in the cpu's memory, with collectives as work for a queue.
 * The queue's thread blocks in them as a GPU would. */
#include <pthread.h>
#include <stdio.h>

#include "later.h"

static const dlc_transport_ops *near_ops;

struct dlc_endpoint {
    dlc_transport_args args; /* the near transport's */
    dlc_endpoint *near;
    /* Its calls come from one thread at a time; guards `failed`, too. */
    pthread_mutex_t lock;
    dlc_status failed;
};

static void lock(dlc_endpoint *e) {
    (void)pthread_mutex_lock(&e->lock);
}

static dlc_status unlock(dlc_endpoint *e, dlc_status status) {
    (void)pthread_mutex_unlock(&e->lock);
    return status;
}

static dlc_transport_args near_args(const dlc_transport_args *args) {
    dlc_transport_args near = *args;
    if (near.device_ops)
        near.device_ops = near_device;
    if (near.device)
        near.device = near.device->near;
    return near;
}

static dlc_status transport_score(const dlc_transport_args *args, int32_t *score,
                                  char *reason, size_t reason_bytes) {
    dlc_transport_args near = near_args(args);
    dlc_status status = near_ops->score(&near, score, reason, reason_bytes);
    if (status == DLC_OK && *score > 0) {
        *score = 1; /* whoever wants it names it */
        (void)snprintf(reason, reason_bytes, "work for a queue");
    }
    return status;
}

static void transport_close(dlc_endpoint *e) {
    if (!e)
        return;
    near_ops->close(e->near);
    (void)pthread_mutex_destroy(&e->lock);
    host->free(e);
}

static dlc_status transport_open(const dlc_transport_args *args,
                                 dlc_endpoint **endpoint) {
    dlc_endpoint *e = host->alloc(sizeof *e);
    if (!e)
        return DLC_ERR_NOMEM;
    (void)pthread_mutex_init(&e->lock, NULL);
    e->args = near_args(args);
    dlc_status status = near_ops->open(&e->args, &e->near);
    if (status != DLC_OK) {
        transport_close(e);
        return status;
    }
    *endpoint = e;
    return DLC_OK;
}

/* ---- What blocks ------------------------------------------------------------- */

static dlc_status transport_send(dlc_endpoint *e, int32_t peer, dlc_tag tag,
                                 const void *buffer, size_t bytes,
                                 dlc_request **request) {
    lock(e);
    return unlock(e,
                  near_ops->send(e->near, peer, tag, to_near(buffer), bytes, request));
}

static dlc_status transport_recv(dlc_endpoint *e, int32_t peer, dlc_tag tag,
                                 void *buffer, size_t bytes, dlc_request **request) {
    lock(e);
    return unlock(e,
                  near_ops->recv(e->near, peer, tag, to_near(buffer), bytes, request));
}

static dlc_status transport_test(dlc_endpoint *e, dlc_request *request, int *done) {
    lock(e);
    return unlock(e, near_ops->test(e->near, request, done));
}

static dlc_status transport_wait(dlc_endpoint *e, dlc_request *request) {
    dlc_status status = must_not_record("wait");
    if (status != DLC_OK)
        return status;
    lock(e);
    return unlock(e, near_ops->wait(e->near, request));
}

static dlc_status transport_attach(dlc_endpoint *e, const dlc_memory *memory) {
    dlc_memory near = *memory;
    near.base = to_near(near.base);
    lock(e);
    return unlock(e, near_ops->attach(e->near, &near));
}

static dlc_status transport_broadcast(dlc_endpoint *e, int32_t root, void *buffer,
                                      size_t bytes) {
    dlc_status status = must_not_record("broadcast");
    if (status != DLC_OK)
        return status;
    lock(e);
    return unlock(e, near_ops->broadcast(e->near, root, to_near(buffer), bytes));
}

/* ---- Work -------------------------------------------------------------------- */

typedef dlc_status collective(dlc_endpoint *endpoint, float *buffer, size_t count);

typedef struct sum_work {
    dlc_endpoint *endpoint;
    collective *call;
    float *buffer;
    size_t count;
} sum_work;

static dlc_status run_work(const void *args) {
    const sum_work *w = args;
    dlc_endpoint *e = w->endpoint;
    lock(e);
    dlc_status status = e->failed;
    if (status == DLC_OK)
        status = e->failed = w->call(e->near, w->buffer, w->count);
    return unlock(e, status);
}

static dlc_status give(dlc_endpoint *e, dlc_queue *queue, collective *call,
                       float *buffer, size_t count) {
    dlc_status status = need_far("a collective", buffer);
    if (status != DLC_OK)
        return status;
    sum_work w = {e, call, to_near(buffer), count};
    return work_give(queue, run_work, &w, sizeof w);
}

static dlc_status queue_all_reduce(dlc_endpoint *e, dlc_queue *queue, float *buffer,
                                   size_t count) {
    return give(e, queue, near_ops->all_reduce, buffer, count);
}

static dlc_status queue_reduce_scatter(dlc_endpoint *e, dlc_queue *queue, float *buffer,
                                       size_t count) {
    return give(e, queue, near_ops->reduce_scatter, buffer, count);
}

static dlc_status queue_all_gather(dlc_endpoint *e, dlc_queue *queue, float *buffer,
                                   size_t count) {
    return give(e, queue, near_ops->all_gather, buffer, count);
}

static dlc_status transport_all_reduce(dlc_endpoint *e, float *buffer, size_t count) {
    return queue_all_reduce(e, NULL, buffer, count);
}

static dlc_status transport_reduce_scatter(dlc_endpoint *e, float *buffer,
                                           size_t count) {
    return queue_reduce_scatter(e, NULL, buffer, count);
}

static dlc_status transport_all_gather(dlc_endpoint *e, float *buffer, size_t count) {
    return queue_all_gather(e, NULL, buffer, count);
}

/* Cheap: where work is under way it is not known yet. */
static dlc_status transport_poll(dlc_endpoint *e) {
    if (pthread_mutex_trylock(&e->lock) != 0)
        return e->args.check(e->args.job);
    dlc_status status = unlock(e, e->failed);
    if (status != DLC_OK)
        return host->fail(status, "a collective on a queue failed");
    return e->args.check(e->args.job);
}

const dlc_transport_ops transport_ops = {
    .size = sizeof transport_ops,
    .score = transport_score,
    .open = transport_open,
    .close = transport_close,
    .send = transport_send,
    .recv = transport_recv,
    .test = transport_test,
    .wait = transport_wait,
    .all_reduce = transport_all_reduce,
    .reduce_scatter = transport_reduce_scatter,
    .all_gather = transport_all_gather,
    .broadcast = transport_broadcast,
    .attach = transport_attach,
    .queue_all_reduce = queue_all_reduce,
    .queue_reduce_scatter = queue_reduce_scatter,
    .queue_all_gather = queue_all_gather,
    .poll = transport_poll,
};

void transport_fill(const dlc_feature *near, dlc_feature *ours) {
    near_ops = near->ops;
    ours->options = near->options;
}

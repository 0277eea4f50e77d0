/* The transport: p2p-tree's, in the cpu's memory, with stream-ordered collectives. The
 * queue's thread blocks in them as a GPU would. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "async.h"

static const dlc_transport_ops *near_ops;

struct dlc_endpoint {
    dlc_transport_args args; /* for the cpu's transport */
    dlc_endpoint *cpu;
    /* Serializes its calls; guards `failed`, too. */
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

static dlc_transport_args cpu_args(const dlc_transport_args *args) {
    dlc_transport_args cpu = *args;
    if (cpu.device_ops)
        cpu.device_ops = cpu_device;
    if (cpu.device)
        cpu.device = cpu.device->cpu;
    return cpu;
}

static dlc_status transport_predict(const dlc_transport_args *args,
                                    dlc_transport_prediction *prediction, char *reason,
                                    size_t reason_bytes) {
    dlc_transport_args cpu = cpu_args(args);
    dlc_status status = near_ops->predict(&cpu, prediction, reason, reason_bytes);
    if (status == DLC_OK && prediction->bandwidth > 0) {
        *prediction = dlc_predict(args, 1, 1e-3, 1e-3); /* for users that name it */
        (void)snprintf(reason, reason_bytes, "stream-ordered");
    }
    return status;
}

static void transport_close(dlc_endpoint *e) {
    if (!e)
        return;
    near_ops->close(e->cpu);
    (void)pthread_mutex_destroy(&e->lock);
    host->free(e);
}

static dlc_status transport_open(const dlc_transport_args *args,
                                 dlc_endpoint **endpoint) {
    dlc_endpoint *e = host->alloc(sizeof *e);
    if (!e)
        return DLC_ERR_NOMEM;
    (void)pthread_mutex_init(&e->lock, NULL);
    e->args = cpu_args(args);
    dlc_status status = near_ops->open(&e->args, &e->cpu);
    if (status != DLC_OK) {
        transport_close(e);
        return status;
    }
    *endpoint = e;
    return DLC_OK;
}

/* ---- Blocking calls ------------------------------------------------------------ */

static dlc_status transport_send(dlc_endpoint *e, int32_t peer, dlc_tag tag,
                                 const void *buffer, size_t bytes,
                                 dlc_request **request) {
    lock(e);
    return unlock(
        e, near_ops->send(e->cpu, peer, tag, to_host_address(buffer), bytes, request));
}

static dlc_status transport_recv(dlc_endpoint *e, int32_t peer, dlc_tag tag,
                                 void *buffer, size_t bytes, dlc_request **request) {
    lock(e);
    return unlock(
        e, near_ops->recv(e->cpu, peer, tag, to_host_address(buffer), bytes, request));
}

static dlc_status transport_test(dlc_endpoint *e, dlc_request *request, int *done) {
    lock(e);
    return unlock(e, near_ops->test(e->cpu, request, done));
}

static dlc_status transport_wait(dlc_endpoint *e, dlc_request *request) {
    dlc_status status = capture_refuse("wait");
    if (status != DLC_OK)
        return status;
    lock(e);
    return unlock(e, near_ops->wait(e->cpu, request));
}

static dlc_status transport_register(dlc_endpoint *e, const dlc_memory *memory) {
    dlc_memory cpu = *memory;
    cpu.base = to_host_address(cpu.base);
    lock(e);
    return unlock(e, near_ops->register_buffer(e->cpu, &cpu));
}

static dlc_status transport_broadcast(dlc_endpoint *e, int32_t root, void *buffer,
                                      size_t bytes) {
    dlc_status status = capture_refuse("broadcast");
    if (status != DLC_OK)
        return status;
    lock(e);
    return unlock(e, near_ops->broadcast(e->cpu, root, to_host_address(buffer), bytes));
}

/* ---- Stream-ordered calls ------------------------------------------------------ */

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
        status = e->failed = w->call(e->cpu, w->buffer, w->count);
    return unlock(e, status);
}

static dlc_status submit(dlc_endpoint *e, dlc_queue *queue, collective *call,
                         float *buffer, size_t count) {
    dlc_status status = check_device_memory("a collective", buffer);
    if (status != DLC_OK)
        return status;
    sum_work w = {e, call, to_host_address(buffer), count};
    return work_submit(queue, run_work, &w, sizeof w);
}

static dlc_status queue_all_reduce(dlc_endpoint *e, dlc_queue *queue, float *buffer,
                                   size_t count) {
    return submit(e, queue, near_ops->all_reduce, buffer, count);
}

static dlc_status queue_reduce_scatter(dlc_endpoint *e, dlc_queue *queue, float *buffer,
                                       size_t count) {
    return submit(e, queue, near_ops->reduce_scatter, buffer, count);
}

static dlc_status queue_all_gather(dlc_endpoint *e, dlc_queue *queue, float *buffer,
                                   size_t count) {
    return submit(e, queue, near_ops->all_gather, buffer, count);
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

/* Cheap: cannot tell while work is in flight. */
static dlc_status transport_poll(dlc_endpoint *e) {
    if (pthread_mutex_trylock(&e->lock) != 0)
        return e->args.check(e->args.job);
    dlc_status status = unlock(e, e->failed);
    if (status != DLC_OK)
        return host->fail(status, "a collective on a queue failed");
    return e->args.check(e->args.job);
}

static const dlc_transport_queue_ops stream_ordered_ops = {
    .size = sizeof stream_ordered_ops,
    .all_reduce = queue_all_reduce,
    .reduce_scatter = queue_reduce_scatter,
    .all_gather = queue_all_gather,
    .poll = transport_poll,
};

const dlc_transport_ops transport_ops = {
    .size = sizeof transport_ops,
    .predict = transport_predict,
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
    .register_buffer = transport_register,
    .queues = &stream_ordered_ops,
};

/* ---- An adapter that needs locked memory -------------------------------------- */

dlc_transport_ops locking_ops;

static dlc_status locking_predict(const dlc_transport_args *args,
                                  dlc_transport_prediction *prediction, char *reason,
                                  size_t reason_bytes) {
    dlc_status status = transport_predict(args, prediction, reason, reason_bytes);
    if (status == DLC_OK && prediction->bandwidth > 0)
        *prediction = dlc_predict(args, 1e-9, 10, 10);
    if (!getenv("ASYNC_LOCKING"))
        prediction->bandwidth = 0;
    return status;
}

/* Only the last rank has the adapter, so the others must notice that it fails. */
static dlc_status locking_open(const dlc_transport_args *args,
                               dlc_endpoint **endpoint) {
    struct rlimit locked;
    if (args->rank == args->ranks - 1 && getrlimit(RLIMIT_MEMLOCK, &locked) == 0 &&
        locked.rlim_cur < (rlim_t)1 << 20)
        return host->fail(DLC_ERR_UNAVAILABLE, "the adapter cannot register memory");
    return transport_open(args, endpoint);
}

void transport_fill(const dlc_feature *cpu, dlc_feature *ours) {
    near_ops = cpu->ops;
    locking_ops = transport_ops;
    locking_ops.predict = locking_predict;
    locking_ops.open = locking_open;
    ours->options = cpu->options;
}

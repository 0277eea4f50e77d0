/* Internals of the nccl transport.
 *
 * Streams, events and memory belong to the device "cuda" (<dlcore/cuda.h>) and are used
 * through its operations: this plugin needs only types of CUDA.
 *
 * The communicator is nonblocking: NCCL returns "in progress", and we poll until it is
 * not, calling args->check meanwhile. So the loss of a peer ends a wait for it: the
 * communicator is aborted, here as on every other rank.
 */
#ifndef NCCL_TRANSPORT_H
#define NCCL_TRANSPORT_H

#include <dlcore/cuda.h>
#include <dlcore/transport.h>

#include "library.h"

typedef struct batch batch; /* messages.c */

typedef struct registration {
    struct registration *next;
    void *handle;
} registration;

struct dlc_endpoint {
    const dlc_transport_args *args;
    int32_t rank, ranks;
    uint64_t spin_ns;

    ncclComm_t comm;     /* NULL: not created yet, or aborted */
    dlc_queue *queue;    /* owned; for blocking calls */
    cudaStream_t stream; /* of that queue */
    dlc_event *event;    /* owned; end of a blocking call */
    dlc_memory token;    /* owned; for messages of 0 bytes */

    registration *registered;
    dlc_request *requests; /* those in flight, newest first */
    dlc_status failed;     /* the first error: the endpoint can only be closed */
    char problem[256];     /* and its message */
};

extern const dlc_host *host;

/* endpoint.c: endpoint_open is collective over the group. */
dlc_status endpoint_open(const dlc_transport_args *args, dlc_endpoint **endpoint);
void endpoint_close(dlc_endpoint *endpoint);
dlc_status endpoint_register(dlc_endpoint *endpoint, const dlc_memory *memory);
dlc_status endpoint_describe(dlc_endpoint *endpoint, char *text, size_t text_bytes);
/* The CUDA stream of a queue. */
dlc_status endpoint_stream(dlc_endpoint *endpoint, dlc_queue *queue,
                           cudaStream_t *stream);

/* wait.c */
/* DLC_OK, or the error that ended this endpoint. */
dlc_status endpoint_check(const dlc_endpoint *endpoint);
/* Waits until NCCL has accepted a call that returned `result`. `what` completes the
 * message "NCCL cannot <what>". */
dlc_status endpoint_await(dlc_endpoint *endpoint, ncclResult_t result,
                          const char *what);
/* Reports an error of NCCL, or the end of the job. */
dlc_status endpoint_poll(dlc_endpoint *endpoint);
/* Blocks until the event is done. */
dlc_status wait_for(dlc_endpoint *endpoint, dlc_event *event, const char *what);

/* collectives.c: the collective calls of dlc_transport_ops. */
dlc_status all_reduce(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status reduce_scatter(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status all_gather(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status broadcast(dlc_endpoint *endpoint, int32_t root, void *buffer, size_t bytes);
dlc_status queue_all_reduce(dlc_endpoint *endpoint, dlc_queue *queue, float *buffer,
                            size_t count);
dlc_status queue_reduce_scatter(dlc_endpoint *endpoint, dlc_queue *queue, float *buffer,
                                size_t count);
dlc_status queue_all_gather(dlc_endpoint *endpoint, dlc_queue *queue, float *buffer,
                            size_t count);

/* messages.c: the send and receive calls of dlc_transport_ops; see there for their
 * limits. */
dlc_status message_send(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag,
                        const void *buffer, size_t bytes, dlc_request **request);
dlc_status message_recv(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag, void *buffer,
                        size_t bytes, dlc_request **request);
dlc_status request_test(dlc_endpoint *endpoint, dlc_request *request, int *done);
dlc_status request_wait(dlc_endpoint *endpoint, dlc_request *request);
void messages_close(dlc_endpoint *endpoint);

#endif

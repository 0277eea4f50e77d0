/* What the files of the nccl transport share.
 *
 * Streams, events and memory are those of the device "cuda" (<dlcore/cuda.h>) and are
 * handled by its operations: this plugin itself needs nothing of CUDA but names.
 *
 * The communicator is one that never blocks: NCCL answers "in progress", and we look
 * until it is not, asking the job meanwhile. So a peer that is lost while NCCL waits
 * for it ends the wait: the communicator is aborted, here as on every other rank.
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

    ncclComm_t comm;  /* NULL: not yet, or aborted */
    dlc_queue *queue; /* own; of what blocks */
    dlc_event *event; /* own; the end of that */
    dlc_memory token; /* own; for messages of no bytes */

    registration *registered;
    dlc_request *requests; /* all that are not done, newest first */
    dlc_status failed;     /* the first error: good for closing only */
    char problem[256];     /* its sentence */
};

extern const dlc_host *host;

/* endpoint.c */
dlc_status endpoint_open(const dlc_transport_args *args, dlc_endpoint **endpoint);
void endpoint_close(dlc_endpoint *endpoint);
dlc_status endpoint_attach(dlc_endpoint *endpoint, const dlc_memory *memory);
dlc_status endpoint_describe(dlc_endpoint *endpoint, char *text, size_t text_bytes);

/* wait.c */
/* Ends the endpoint with an error: aborts the communicator, keeps the sentence. */
dlc_status endpoint_fail(dlc_endpoint *endpoint, dlc_status status, const char *format,
                         ...) __attribute__((format(printf, 3, 4)));
/* DLC_OK while it is good for anything. */
dlc_status endpoint_good(const dlc_endpoint *endpoint);
/* What a call of NCCL answered: until the communicator has taken it in. `what` is for
 * the sentence: "NCCL cannot <what>". */
dlc_status endpoint_took(dlc_endpoint *endpoint, ncclResult_t result, const char *what);
/* Has anything failed, is the job ending? */
dlc_status endpoint_poll(dlc_endpoint *endpoint);
/* Until the event has come. */
dlc_status wait_for(dlc_endpoint *endpoint, dlc_event *event, const char *what);

/* collectives.c */
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

/* messages.c */
dlc_status message_send(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag,
                        const void *buffer, size_t bytes, dlc_request **request);
dlc_status message_recv(dlc_endpoint *endpoint, int32_t peer, dlc_tag tag, void *buffer,
                        size_t bytes, dlc_request **request);
dlc_status request_test(dlc_endpoint *endpoint, dlc_request *request, int *done);
dlc_status request_wait(dlc_endpoint *endpoint, dlc_request *request);
void messages_close(dlc_endpoint *endpoint);

#endif

/* Internals of the mpi transport.
 *
 * A process has one MPI: it is initialised when the first endpoint opens (world.c), and
 * finalised when the process ends without an error. An endpoint is a communicator of
 * its own over the ranks of the group. The first group must be all of MPI_COMM_WORLD,
 * since MPI_Init is collective over all processes; later groups may be parts of it.
 */
#ifndef ENDPOINT_H
#define ENDPOINT_H

#include <mpi.h>

#include <dlcore/transport.h>

extern const dlc_host *host;

/* A message, or a receive whose tag has not been announced yet. */
struct dlc_request {
    dlc_request *next, *prior; /* in the list of all requests in flight */
    dlc_request *waiting; /* next in the list of receives whose tag is unknown_tags */
    dlc_tag tag;
    int32_t peer;
    int is_receive, posted;
    unsigned char *buffer;
    size_t bytes;
    uint64_t announcement[2]; /* sent for a new tag: the tag, its number */
    MPI_Request announced;
    size_t pieces,
        done;        /* at most INT_MAX bytes each; the first `done` of them are done */
    MPI_Request one; /* used where one piece is enough */
    MPI_Request *piece; /* &one, or owned */
    size_t moved;       /* bytes received */
};

/* Numbers of 64-bit tags, in the order of their first use: an open-addressing hash
 * table. */
typedef struct tag_slot {
    dlc_tag tag;
    int number; /* 0: free */
} tag_slot;

typedef struct tag_table {
    tag_slot *slot; /* owned */
    size_t room, count;
} tag_table;

typedef struct peer_state {
    tag_table out, in;
    dlc_request *first, *last; /* receives whose tag is unknown_tags */
} peer_state;

struct dlc_endpoint {
    const dlc_transport_args *args;
    MPI_Comm comm;
    int has_comm;
    int failed; /* an error was returned: close must not wait for peers */
    peer_state *peers;
    dlc_request *in_flight;
    size_t
        unknown_tags; /* number of receives whose tag is unknown_tags, of all peers */
    size_t in_flight_count;
    uint64_t spin_ns; /* how long to poll before sleeping */
    /* For reduce-scatter and all-gather. */
    int *slices;    /* element counts of all ranks, then their offsets */
    dlc_memory sum; /* scratch for this rank's slice; grows as needed */
};

/* world.c: MPI's initialisation and the endpoint's communicator */
int world_size(
    void); /* from the launcher's environment; 0: not started by a launcher */
dlc_status world_open(dlc_endpoint *endpoint);
/* Frees the communicator; if nothing failed, waits for the peers to do so, too. */
void world_close(dlc_endpoint *endpoint);
int world_is_cuda_aware(void);
/* Writes the library's name, "Open MPI v4.1.4". */
void world_library(char *text, size_t bytes);
/* Fails with an MPI error; `what` names the operation, "sending". */
dlc_status world_failed(dlc_endpoint *endpoint, int code, const char *what);

/* tags.c: tags_find returns 0 where the tag has no number; tags_add gives it one. */
int tags_find(const tag_table *table, dlc_tag tag);
dlc_status tags_add(tag_table *table, dlc_tag tag, int number);
void tags_free(tag_table *table);

/* wait.c: blocks until a condition holds or the job ends. */
typedef dlc_status condition(dlc_endpoint *endpoint, void *what, int *holds);
dlc_status wait_until(dlc_endpoint *endpoint, condition *look, void *what);
dlc_status wait_for(dlc_endpoint *endpoint, MPI_Request *request, const char *what);

/* messages.c: the send and receive calls of dlc_transport_ops */
dlc_status messages_send(dlc_endpoint *endpoint, int32_t to, dlc_tag tag,
                         const void *buffer, size_t bytes, dlc_request **request);
dlc_status messages_recv(dlc_endpoint *endpoint, int32_t from, dlc_tag tag,
                         void *buffer, size_t bytes, dlc_request **request);
dlc_status messages_test(dlc_endpoint *endpoint, dlc_request *request, int *done);
dlc_status messages_wait(dlc_endpoint *endpoint, dlc_request *request);
void messages_close(dlc_endpoint *endpoint);

/* collectives.c: the collective calls of dlc_transport_ops */
dlc_status collective_all_reduce(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status collective_reduce_scatter(dlc_endpoint *endpoint, float *buffer,
                                     size_t count);
dlc_status collective_all_gather(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status collective_broadcast(dlc_endpoint *endpoint, int32_t root, void *buffer,
                                size_t bytes);

#endif

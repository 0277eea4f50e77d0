/* What the files of the mpi transport share.
 *
 * MPI is one a process: it is initialised when the first endpoint opens (world.c) and
 * finalised when the process ends, if all went well. An endpoint is a communicator of
 * its own over the ranks of the group: all of MPI's world, for MPI begins with all
 * processes together; a part of it only later.
 */
#ifndef ENDPOINT_H
#define ENDPOINT_H

#include <mpi.h>

#include <dlcore/transport.h>

extern const dlc_host *host;

/* A message, or a receive that waits for its tag to be announced. */
struct dlc_request {
    dlc_request *next, *prior; /* of all that are under way */
    dlc_request *waiting;      /* behind it, of those that wait for an announcement */
    dlc_tag tag;
    int32_t peer;
    int is_receive, posted;
    unsigned char *buffer;
    size_t bytes;
    uint64_t announcement[2]; /* what is sent of a new tag: the tag, its number */
    MPI_Request announced;
    size_t pieces, done; /* of INT_MAX bytes at most; done are the first of them */
    MPI_Request one;     /* where one piece is enough */
    MPI_Request *piece;  /* &one, or own */
    size_t moved;        /* bytes that came in */
};

/* Numbers of 64-bit tags, in the order of their first use: an open hash table. */
typedef struct tag_slot {
    dlc_tag tag;
    int number; /* 0: free */
} tag_slot;

typedef struct tag_table {
    tag_slot *slot; /* own */
    size_t room, count;
} tag_table;

typedef struct neighbour {
    tag_table out, in;
    dlc_request *first, *last; /* receives whose tag is not known yet */
} neighbour;

struct dlc_endpoint {
    const dlc_transport_args *args;
    MPI_Comm comm;
    int has_comm;
    int failed; /* an error was returned: peers may not be waited for */
    neighbour *peers;
    dlc_request *under_way;
    size_t unknown; /* receives whose tag is not known yet, of all peers */
    size_t under_way_count;
    uint64_t spin_ns; /* how long to look before sleeping */
    /* For sums that are scattered. */
    int *slices;    /* how many elements each rank's has, then where they begin */
    dlc_memory sum; /* of this rank's; made larger as needed */
};

/* world.c */
int world_has_begun(void);
int world_size(void); /* as the launcher tells in the environment; 0: not at all */
dlc_status world_open(dlc_endpoint *endpoint);
/* Ends the communicator; waits for the peers to do the same if all is well. */
void world_close(dlc_endpoint *endpoint);
int world_is_cuda_aware(void);
/* "Open MPI v4.1.4" */
void world_library(char *text, size_t bytes);
/* The status and sentence of an MPI error; `what` was being done. */
dlc_status world_failed(dlc_endpoint *endpoint, int code, const char *what);

/* tags.c: 0 where the tag has no number yet; and gives it one. */
int tags_find(const tag_table *table, dlc_tag tag);
dlc_status tags_add(tag_table *table, dlc_tag tag, int number);
void tags_free(tag_table *table);

/* wait.c: until a condition holds or the job ends. */
typedef dlc_status condition(dlc_endpoint *endpoint, void *what, int *holds);
dlc_status wait_until(dlc_endpoint *endpoint, condition *look, void *what);
dlc_status wait_for(dlc_endpoint *endpoint, MPI_Request *request, const char *what);

/* messages.c */
dlc_status messages_send(dlc_endpoint *endpoint, int32_t to, dlc_tag tag,
                         const void *buffer, size_t bytes, dlc_request **request);
dlc_status messages_recv(dlc_endpoint *endpoint, int32_t from, dlc_tag tag,
                         void *buffer, size_t bytes, dlc_request **request);
dlc_status messages_test(dlc_endpoint *endpoint, dlc_request *request, int *done);
dlc_status messages_wait(dlc_endpoint *endpoint, dlc_request *request);
void messages_close(dlc_endpoint *endpoint);

/* collectives.c */
dlc_status collective_all_reduce(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status collective_reduce_scatter(dlc_endpoint *endpoint, float *buffer,
                                     size_t count);
dlc_status collective_all_gather(dlc_endpoint *endpoint, float *buffer, size_t count);
dlc_status collective_broadcast(dlc_endpoint *endpoint, int32_t root, void *buffer,
                                size_t bytes);

#endif

/* One rank's side of a group on the transport under test. Every usable transport of
 * this build that works between ranks of this machine runs the same suite, on the
 * device that DLCORE_TEST_DEVICE names (else "cpu"), with the setting
 * DLCORE_TEST_DEVICE_SET. */
#ifndef TEST_GROUP_H
#define TEST_GROUP_H

#include "support/plugins.h"
#include "support/ranks.h"

typedef struct group {
    test_rank *rank;
    const dlc_transport_ops *ops;
    dlc_endpoint *endpoint;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    int device_memory; /* the CPU cannot read the device's memory */
    /* Owned. */
    struct shadow *shadows;
    dlc_rank_info *places;
    dlc_settings *settings;
    dlc_transport_args args;
} group;

/* Names of the transports under test; NULL after the last. */
const char *group_transport(size_t i);

/* Does the device have memory of its own? Then fewer ranks are enough. */
int group_has_device_memory(void);
/* The most ranks that tests should use: more take a minute on an asynchronous device
 * and under sanitizers, and cover no other code. */
int group_most_ranks(void);

/* A transport and its settings ("slots=2", NULL-terminated; NULL: defaults). */
typedef struct group_kind {
    const char *transport;
    const char *const *sets;
} group_kind;

void group_open(group *g, test_rank *rank, const group_kind *kind);
/* Does all but call the endpoint's open, for tests that expect it to fail. */
void group_prepare(group *g, test_rank *rank, const group_kind *kind);
void group_close(group *g);

void group_send(group *g, int to, dlc_tag tag, const void *buffer, size_t bytes,
                dlc_request **request);
void group_recv(group *g, int from, dlc_tag tag, void *buffer, size_t bytes,
                dlc_request **request);
void group_wait(group *g, dlc_request *request);
dlc_status group_finish(group *g, dlc_request *request);
dlc_status group_test(group *g, dlc_request *request, int *done);

/* The transport's collectives, on host memory whatever the device's memory is. */
dlc_status group_all_reduce(group *g, float *buffer, size_t count);
dlc_status group_reduce_scatter(group *g, float *buffer, size_t count);
dlc_status group_all_gather(group *g, float *buffer, size_t count);
dlc_status group_broadcast(group *g, int32_t root, void *buffer, size_t bytes);

/* Fills and checks bytes that identify sender, receiver and message. */
void group_write(void *buffer, size_t bytes, int from, int to, uint64_t what);
int group_is(const void *buffer, size_t bytes, int from, int to, uint64_t what);

#endif

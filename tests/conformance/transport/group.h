/* One rank's side of a group on the transport under test: every usable transport of
 * this build that can join ranks of this machine passes the same suite. */
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
    /* Own. */
    dlc_place *places;
    dlc_settings *settings;
    dlc_transport_args args;
} group;

/* Names of the transports under test; NULL behind the last. */
const char *group_transport(size_t i);

/* Which transport, and its settings ("slots=2", NULL-terminated; NULL: defaults). */
typedef struct group_kind {
    const char *transport;
    const char *const *sets;
} group_kind;

void group_open(group *g, test_rank *rank, const group_kind *kind);
/* All but the endpoint's own open, for tests that expect it to fail. */
void group_prepare(group *g, test_rank *rank, const group_kind *kind);
void group_close(group *g);

void group_send(group *g, int to, dlc_tag tag, const void *buffer, size_t bytes,
                dlc_request **request);
void group_recv(group *g, int from, dlc_tag tag, void *buffer, size_t bytes,
                dlc_request **request);
void group_wait(group *g, dlc_request *request);

/* Bytes that tell who sent what to whom. */
void group_write(void *buffer, size_t bytes, int from, int to, uint64_t what);
int group_is(const void *buffer, size_t bytes, int from, int to, uint64_t what);

#endif

/* A fixture: a net made from the text of a net.ini, on the CPU. */
#ifndef TEST_NET_RIG_H
#define TEST_NET_RIG_H

#include "net/net.h"

typedef struct net_fixture {
    dlc_config *config;
    dlc_problems problems;
    dlc_graph *graph;
    const dlc_feature *device_feature;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_net_args args;
    dlc_net *net;
} net_fixture;

/* Makes the graph alone; its mistakes are in fixture.problems. */
dlc_status fixture_graph(net_fixture *fixture, const char *text);
/* The same for samples with these fields. */
dlc_status fixture_graph_of(net_fixture *fixture, const char *text,
                            const dlc_field_names *fields);
/* Makes the graph, and allocates a training net of it for `batch` samples of c x h x w.
 * Fails the test with the reason if that is not possible. */
void fixture_net(net_fixture *fixture, const char *text, int64_t batch, int64_t c,
                 int64_t h, int64_t w);
/* Makes a test net that reads the parameters of the training net. */
dlc_net *fixture_test_net(net_fixture *fixture, int64_t batch);
void fixture_close(net_fixture *fixture);

#endif

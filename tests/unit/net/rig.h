/* A net from the text of a net.ini, on the processor, for tests. */
#ifndef TEST_NET_RIG_H
#define TEST_NET_RIG_H

#include "net/net.h"

typedef struct net_rig {
    dlc_registry *registry;
    dlc_config *config;
    dlc_problems problems;
    dlc_graph *graph;
    const dlc_feature *device_feature;
    const dlc_device_ops *device_ops;
    dlc_device *device;
    dlc_net_args args;
    dlc_net *net;
} net_rig;

/* The graph alone: its mistakes are left in rig.problems. */
dlc_status rig_graph(net_rig *rig, const char *text);
/* The graph, and a training net of it for `batch` samples of c x h x w, allocated.
 * Ends the test with the reason when it cannot be made. */
void rig_net(net_rig *rig, const char *text, int64_t batch, int64_t c, int64_t h,
             int64_t w);
/* The twin of the training net in the test phase. */
dlc_net *rig_twin(net_rig *rig, int64_t batch);
void rig_close(net_rig *rig);

#endif

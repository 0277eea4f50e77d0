/* Nets of layers that a test makes up itself, on the processor: what such layers and
 * their family have in common, and the net from a list of them. */
#ifndef TEST_NET_MADE_UP_H
#define TEST_NET_MADE_UP_H

#include "net/net.h"

enum { MADE_UP_LAYERS = 10, MADE_UP_READS = 3 };

/* The last three are the test's to use. */
struct dlc_layer {
    const char *name;
    int32_t inputs;
    uint64_t told, adds;
};

/* Its reorders copy, whatever the layouts, and tell `made_up_reordering` before; NULL:
 * nobody. */
extern const dlc_family made_up_family;
extern void (*made_up_reordering)(void);

dlc_status made_up_create(const dlc_layer_args *args, dlc_layer **layer);
void made_up_destroy(dlc_layer *layer);

/* A loss is 1, of 1 sample, whatever comes in; its gradient is the test's business. */
dlc_status made_up_infer_loss(dlc_layer *layer, dlc_layer_plan *plan);
dlc_status made_up_loss(const dlc_layer_run *run);

/* Of functions TYPE_forward and TYPE_backward. */
#define MADE_UP_OPS(INFER, PREPARE, TYPE) \
    { \
        .size = sizeof(dlc_layer_ops), .family = &made_up_family, \
        .create = made_up_create, .destroy = made_up_destroy, .infer = (INFER), \
        .prepare = (PREPARE), .forward = TYPE##_forward, .backward = TYPE##_backward \
    }
#define MADE_UP_FEATURE(NAME, CAPS, OPS) \
    { \
        .size = sizeof(dlc_feature), .kind = DLC_KIND_LAYER, .name = (NAME), \
        .caps = (CAPS), .ops = (OPS) \
    }

/* Layer i is named by letter i of the alphabet; `reads` names its inputs, '-' the data.
 * A loss has the labels, too. One without a type ends a list. */
typedef struct made_up_layer {
    const dlc_feature *type;
    const char *reads;
} made_up_layer;

typedef struct made_up_net {
    dlc_registry *registry;
    dlc_device_ops device_ops; /* own, of the device found: a test may put in others */
    dlc_device *device;
    char name[MADE_UP_LAYERS][2];
    dlc_graph_input input[MADE_UP_LAYERS][MADE_UP_READS];
    dlc_graph_layer layer[MADE_UP_LAYERS];
    dlc_graph graph;
    dlc_net_args args; /* `batch` and `sample` are left to the test */
    dlc_net *net;
} made_up_net;

/* Ends the test with the reason. */
void made_up_ok(dlc_status status);

/* All up to the net. */
void made_up_begin(made_up_net *m, const made_up_layer *layers);
/* The net of m.args, in memory. */
void made_up_build(made_up_net *m);
void made_up_close(made_up_net *m);

#endif

/* Nets of fake layers, which a test defines itself, on the CPU: what such layers and
 * their family have in common, and how to make a net of a list of them. */
#ifndef TEST_NET_MADE_UP_H
#define TEST_NET_MADE_UP_H

#include "net/net.h"

enum { FAKE_LAYERS = 10, FAKE_READS = 3 };

/* The last three members are for the test to use. */
struct dlc_layer {
    const char *name;
    int32_t inputs;
    uint64_t told, adds;
};

/* The family of all fake layers. Its reorders copy, whatever the layouts, after calling
 * `fake_reordering` unless that is NULL. */
extern const dlc_family fake_family;
extern void (*fake_reordering)(void);

dlc_status fake_create(const dlc_layer_args *args, dlc_layer **layer);
void fake_destroy(dlc_layer *layer);

/* A loss is 1, of 1 sample, whatever its input; the test defines its gradient. */
dlc_status fake_infer_loss(dlc_layer *layer, dlc_layer_shapes *shapes);
dlc_status fake_loss(const dlc_layer_run *run);

/* Tables for a type with functions TYPE_forward and TYPE_backward. */
#define FAKE_OPS(INFER, PREPARE, TYPE) \
    { \
        .size = sizeof(dlc_layer_ops), .family = &fake_family, .create = fake_create, \
        .destroy = fake_destroy, .infer = (INFER), .prepare = (PREPARE), \
        .forward = TYPE##_forward, .backward = TYPE##_backward \
    }
#define FAKE_FEATURE(NAME, CAPS, OPS) \
    { \
        .size = sizeof(dlc_feature), .kind = DLC_KIND_LAYER, .name = (NAME), \
        .caps = (CAPS), .ops = (OPS) \
    }

/* Layer i is named by letter i of the alphabet; `reads` names its inputs, '-' the data.
 * A loss reads the labels, too. An entry without a type ends a list. */
typedef struct fake_layer {
    const dlc_feature *type;
    const char *reads;
} fake_layer;

typedef struct fake_net {
    dlc_device_ops device_ops; /* own copy; a test may replace some */
    dlc_device *device;
    char name[FAKE_LAYERS][2];
    dlc_graph_input input[FAKE_LAYERS][FAKE_READS];
    dlc_graph_layer layer[FAKE_LAYERS];
    dlc_graph graph;
    dlc_net_args args; /* the test sets `batch` and `sample` */
    dlc_net *net;
} fake_net;

/* Fails the test with the reason, unless the status is DLC_OK. */
void fake_ok(dlc_status status);

/* Makes everything but the net. */
void fake_begin(fake_net *m, const fake_layer *layers);
/* Builds and allocates the net of m.args. */
void fake_build(fake_net *m);
void fake_close(fake_net *m);

#endif

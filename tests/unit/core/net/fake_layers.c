/* The family of fake layers, and nets of them. */
#include "fake_layers.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "support/plugins.h"

/* ---- Family and layers ------------------------------------------------------- */

void (*fake_reordering)(void);

struct dlc_reorder {
    size_t bytes;
};

static dlc_status open_family(const dlc_family_args *args, void **context) {
    (void)args;
    *context = NULL;
    return DLC_OK;
}

static void close_family(void *context) {
    (void)context;
}

static int same_layout(const dlc_tensor *a, const dlc_tensor *b) {
    return a->layout == b->layout;
}

static dlc_status reorder_create(void *context, const dlc_tensor *from,
                                 const dlc_tensor *to, dlc_reorder **reorder) {
    (void)context;
    (void)to;
    *reorder = dlc_alloc(1, sizeof **reorder);
    if (!*reorder)
        return DLC_ERR_NOMEM;
    (*reorder)->bytes = dlc_tensor_bytes(from);
    return DLC_OK;
}

static dlc_status reorder_run(dlc_reorder *reorder, const void *src, void *dst) {
    if (fake_reordering)
        fake_reordering();
    memcpy(dst, src, reorder->bytes);
    return DLC_OK;
}

static void reorder_destroy(dlc_reorder *reorder) {
    dlc_free(reorder);
}

const dlc_family fake_family = {.size = sizeof fake_family,
                                .name = "fake",
                                .open = open_family,
                                .close = close_family,
                                .same_layout = same_layout,
                                .reorder_create = reorder_create,
                                .reorder_run = reorder_run,
                                .reorder_destroy = reorder_destroy};

dlc_status fake_create(const dlc_layer_args *args, dlc_layer **layer) {
    *layer = dlc_alloc(1, sizeof **layer);
    if (!*layer)
        return DLC_ERR_NOMEM;
    (*layer)->name = args->name;
    return DLC_OK;
}

void fake_destroy(dlc_layer *layer) {
    dlc_free(layer);
}

dlc_status fake_infer_loss(dlc_layer *layer, dlc_layer_shapes *shapes) {
    layer->inputs = 1;
    shapes->out[0] = (dlc_tensor){.shape = {.rank = 1, .dims = {2}}, .dtype = DLC_F32};
    shapes->no_gradient = 2;
    return DLC_OK;
}

dlc_status fake_loss(const dlc_layer_run *run) {
    memcpy(run->out[0], (const float[]){1, 1}, 2 * sizeof(float));
    return DLC_OK;
}

/* ---- Nets -------------------------------------------------------------------- */

void fake_ok(dlc_status status) {
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

static void make_graph(fake_net *m, const fake_layer *layers) {
    int32_t i = 0;
    for (; layers[i].type; i++) {
        const char *reads = layers[i].reads;
        int32_t count = (int32_t)strlen(reads);
        for (int32_t j = 0; j < count; j++)
            m->input[i][j].layer = reads[j] == '-' ? DLC_FROM_DATA : reads[j] - 'a';
        if (layers[i].type->caps & DLC_LAYER_LOSS)
            m->input[i][count++] = (dlc_graph_input){DLC_FROM_DATA, 1};
        m->name[i][0] = (char)('a' + i);
        m->layer[i] = (dlc_graph_layer){.name = m->name[i],
                                        .feature = layers[i].type,
                                        .phases = DLC_PHASE_TRAIN,
                                        .loss_weight = 1,
                                        .inputs = count,
                                        .input = m->input[i]};
    }
    m->graph = (dlc_graph){.layers = i, .layer = m->layer};
}

void fake_begin(fake_net *m, const fake_layer *layers) {
    const dlc_device_args device_args = {.size = sizeof device_args, .threads = 1};
    const dlc_feature *device = NULL;
    memset(m, 0, sizeof *m);
    fake_ok(dlc_registry_use_first(plugins_registry(), DLC_KIND_DEVICE, &device));
    memcpy(&m->device_ops, device->ops, sizeof m->device_ops);
    fake_ok(m->device_ops.open(&device_args, &m->device));
    make_graph(m, layers);
    m->args = (dlc_net_args){.graph = &m->graph,
                             .phase = DLC_PHASE_TRAIN,
                             .device_feature = device,
                             .device_ops = &m->device_ops,
                             .device = m->device,
                             .threads = 1,
                             .precision = DLC_F32};
}

void fake_build(fake_net *m) {
    fake_ok(dlc_net_build(&m->args, &m->net));
    fake_ok(dlc_net_allocate(m->net));
}

void fake_close(fake_net *m) {
    dlc_net_free(m->net);
    m->device_ops.close(m->device);
}

/* See rig.h. */
#include "rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "support/scratch.h"

static const char *const standing[] = {"net", "run", NULL};

dlc_status rig_graph(net_rig *rig, const char *text) {
    memset(rig, 0, sizeof *rig);
    ck_assert_int_eq(dlc_registry_open(&rig->registry), DLC_OK);
    ck_assert_int_eq(
        dlc_registry_use_first(rig->registry, DLC_KIND_DEVICE, &rig->device_feature),
        DLC_OK);
    const char *path = scratch_write("net.ini", text, strlen(text));
    dlc_status status = dlc_config_load(path, standing, NULL, 0, &rig->problems,
                                        &rig->config);
    ck_assert_int_eq(status, DLC_OK);
    status = dlc_graph_make(rig->config, standing, rig->registry,
                            rig->device_feature->name, &rig->problems, &rig->graph);
    ck_assert_int_eq(status, DLC_OK);
    return rig->problems.errors ? DLC_ERR_CONFIG : DLC_OK;
}

void rig_net(net_rig *rig, const char *text, int64_t batch, int64_t c, int64_t h,
             int64_t w) {
    dlc_status status = rig_graph(rig, text);
    if (status != DLC_OK)
        dlc_problems_report(&rig->problems);
    ck_assert_int_eq(status, DLC_OK);
    rig->device_ops = rig->device_feature->ops;
    dlc_device_args device = {.size = sizeof device, .threads = 1};
    ck_assert_int_eq(rig->device_ops->open(&device, &rig->device), DLC_OK);
    rig->args = (dlc_net_args){.graph = rig->graph,
                               .phase = DLC_PHASE_TRAIN,
                               .device_feature = rig->device_feature,
                               .device_ops = rig->device_ops,
                               .device = rig->device,
                               .threads = 1,
                               .sample = {.rank = 3, .dims = {c, h, w}},
                               .batch = batch,
                               .seed = 5};
    status = dlc_net_build(&rig->args, &rig->net);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    status = dlc_net_allocate(rig->net);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

dlc_net *rig_twin(net_rig *rig, int64_t batch) {
    dlc_net_args args = rig->args;
    dlc_net *twin = NULL;
    args.phase = DLC_PHASE_TEST;
    args.batch = batch;
    args.twin = rig->net;
    dlc_status status = dlc_net_build(&args, &twin);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    status = dlc_net_allocate(twin);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return twin;
}

void rig_close(net_rig *rig) {
    dlc_net_free(rig->net);
    if (rig->device)
        rig->device_ops->close(rig->device);
    dlc_graph_free(rig->graph);
    dlc_problems_free(&rig->problems);
    dlc_config_free(rig->config);
    dlc_registry_close(rig->registry);
}

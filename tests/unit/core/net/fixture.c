/* Builds graphs and nets from text, with the plugins of this build. */
#include "fixture.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "support/plugins.h"
#include "support/scratch.h"

static const char *const reserved[] = {"net", "run", NULL};

dlc_status fixture_graph(net_fixture *fixture, const char *text) {
    static const dlc_field_names simple = {.is_known = 1,
                                           .count = 2,
                                           .name = {"image", "label"},
                                           .data = "image",
                                           .label = "label"};
    return fixture_graph_of(fixture, text, &simple);
}

dlc_status fixture_graph_of(net_fixture *fixture, const char *text,
                            const dlc_field_names *fields) {
    memset(fixture, 0, sizeof *fixture);
    ck_assert_int_eq(dlc_registry_use_first(plugins_registry(), DLC_KIND_DEVICE,
                                            &fixture->device_feature),
                     DLC_OK);
    const char *path = scratch_write("net.ini", text, strlen(text));
    dlc_status status = dlc_config_load(path, reserved, NULL, 0, &fixture->problems,
                                        &fixture->config);
    ck_assert_int_eq(status, DLC_OK);
    status = dlc_graph_make(fixture->config, reserved, fields, plugins_registry(),
                            fixture->device_feature->name, &fixture->problems,
                            &fixture->graph);
    ck_assert_int_eq(status, DLC_OK);
    return fixture->problems.errors ? DLC_ERR_CONFIG : DLC_OK;
}

void fixture_net(net_fixture *fixture, const char *text, int64_t batch, int64_t c,
                 int64_t h, int64_t w) {
    dlc_status status = fixture_graph(fixture, text);
    if (status != DLC_OK)
        dlc_problems_report(&fixture->problems);
    ck_assert_int_eq(status, DLC_OK);
    fixture->device_ops = fixture->device_feature->ops;
    dlc_device_args device = {.size = sizeof device, .threads = 1};
    ck_assert_int_eq(fixture->device_ops->open(&device, &fixture->device), DLC_OK);
    fixture->args = (dlc_net_args){.graph = fixture->graph,
                                   .phase = DLC_PHASE_TRAIN,
                                   .device_feature = fixture->device_feature,
                                   .device_ops = fixture->device_ops,
                                   .device = fixture->device,
                                   .threads = 1,
                                   .sample = {.rank = 3, .dims = {c, h, w}},
                                   .batch = batch,
                                   .seed = 5};
    status = dlc_net_build(&fixture->args, &fixture->net);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    status = dlc_net_allocate(fixture->net);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
}

dlc_net *fixture_test_net(net_fixture *fixture, int64_t batch) {
    dlc_net_args args = fixture->args;
    dlc_net *test_net = NULL;
    args.phase = DLC_PHASE_TEST;
    args.batch = batch;
    args.train_net = fixture->net;
    dlc_status status = dlc_net_build(&args, &test_net);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    status = dlc_net_allocate(test_net);
    ck_assert_msg(status == DLC_OK, "%s", dlc_detail());
    return test_net;
}

void fixture_close(net_fixture *fixture) {
    dlc_net_free(fixture->net);
    if (fixture->device)
        fixture->device_ops->close(fixture->device);
    dlc_graph_free(fixture->graph);
    dlc_problems_free(&fixture->problems);
    dlc_config_free(fixture->config);
}

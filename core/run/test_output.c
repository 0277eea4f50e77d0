/* Plans, opens and reads the output that a test hands out. */
#include "run/test_output.h"

#include "base/memory.h"
#include "net/graph.h"
#include "plugin/device_objects.h"
#include "run/nets.h"

/* Asks an outline of the test net. */
dlc_status dlc_test_output_plan(dlc_session *session) {
    dlc_session_output *output = &session->output;
    const dlc_graph *graph = session->setup->graph;
    dlc_net *outline = NULL;
    if (output->alone) {
        output->needed = dlc_graph_needed(graph, output->from);
        if (!output->needed)
            return DLC_ERR_NOMEM;
    }
    DLC_TRY(dlc_nets_build_test_outline(session, &outline));
    int found = dlc_net_output(outline, output->from.layer, output->from.output,
                               &output->boundary);
    dlc_net_free(outline);
    const dlc_shape *shape = &output->boundary.shape;
    if (!found || output->boundary.dtype != DLC_F32 || shape->rank < 1)
        return dlc_fail(DLC_ERR_CONFIG,
                        "the output of layer '%s' is no floating-point "
                        "tensor of the test net",
                        graph->layer[output->from.layer].name);
    if (shape->dims[0] != session->setup->test.batch)
        return dlc_fail(
            DLC_ERR_CONFIG,
            "layer '%s' has no output for each sample: it computes one for the "
            "whole batch",
            graph->layer[output->from.layer].name);
    output->values = (size_t)(dlc_shape_count(shape) / shape->dims[0]);
    return DLC_OK;
}

dlc_status dlc_test_output_open(dlc_session *session) {
    dlc_session_output *output = &session->output;
    size_t count = (size_t)dlc_shape_count(&output->boundary.shape);
    DLC_TRY(dlc_device_alloc(session->device_ops, session->device,
                             count * sizeof(float), 0, &output->memory));
    output->host = session->setup->device->caps & DLC_DEVICE_HOST
                       ? output->memory.base
                       : dlc_alloc(count, sizeof(float));
    if (!output->host)
        return DLC_ERR_NOMEM;
    dlc_net_begin_micro_batch(session->test_net,
                              &(dlc_net_micro_batch){.out = &output->memory.base});
    return DLC_OK;
}

void dlc_test_output_close(dlc_session *session) {
    dlc_session_output *output = &session->output;
    if (output->host != output->memory.base)
        dlc_free(output->host);
    dlc_device_free(session->device_ops, session->device, &output->memory);
    dlc_free(output->needed);
    *output = (dlc_session_output){.is_wanted = 0};
}

dlc_status dlc_test_output_read(const dlc_session *session, const float **values) {
    const dlc_session_output *output = &session->output;
    size_t bytes = (size_t)dlc_shape_count(&output->boundary.shape) * sizeof(float);
    if (output->host != output->memory.base)
        DLC_TRY(session->device_ops->copy(session->device, NULL, output->host,
                                          output->memory.base, bytes));
    *values = output->host;
    return DLC_OK;
}

/* A net for people: one row a layer of the graph. */
#include "net/internal.h"

#include <stdio.h>
#include <string.h>

static const net_op *op_of_row(const dlc_net *net, int32_t row) {
    for (int32_t i = 0; i < net->ops; i++)
        if (net->op[i].feature && row-- == 0)
            return &net->op[i];
    return NULL;
}

int32_t dlc_net_rows(const dlc_net *net) {
    int32_t rows = 0;
    for (int32_t i = 0; i < net->ops; i++)
        rows += net->op[i].feature != NULL;
    return rows;
}

dlc_status dlc_net_row_at(const dlc_net *net, int32_t i, dlc_net_row *row) {
    const net_op *op = op_of_row(net, i);
    if (!op)
        return dlc_fail(DLC_ERR_INTERNAL, "the net has no row %d", (int)i);
    *row = (dlc_net_row){.name = op->name,
                         .type = op->feature->name,
                         .output = op->out[0].shape,
                         .multiply_adds = op->plan.multiply_adds,
                         .forward_seconds = (double)op->forward_ns * 1e-9,
                         .backward_seconds = (double)op->backward_ns * 1e-9};
    for (int32_t j = 0; j < op->plan.params; j++)
        if (!(op->param[j].flags & DLC_PARAM_BUFFER))
            row->parameters += dlc_shape_count(&op->param[j].shape);
    if (op->absorbed_by != NO_OP)
        row->absorbed_by = net->op[op->absorbed_by].name;
    else if (DLC_CAN(op->ops, describe))
        op->ops->describe(op->layer, row->choice, sizeof row->choice);
    return DLC_OK;
}

void dlc_net_time(dlc_net *net, int on) {
    net->timed = on;
    for (int32_t i = 0; i < net->ops; i++)
        net->op[i].forward_ns = net->op[i].backward_ns = 0;
}

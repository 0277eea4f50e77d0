/* The pass `fork_sums`: where several operations read a tensor, their gradients are
 * added up in the order of backward. The reader whose backward runs first writes the
 * tensor's gradient; later ones accumulate into it, or write a part that is then added.
 */
#include "net/passes.h"

static int reads_before(const net_op *op, int32_t j) {
    for (int32_t k = 0; k < j; k++)
        if (op->edge[k].wanted && op->input[k] == op->input[j])
            return 1;
    return 0;
}

/* A layer cannot accumulate into what it writes in the same call. */
static void add_up(const dlc_net *net, net_op *op, int32_t j) {
    int reads_twice = reads_before(op, j);
    int written = reads_twice || dlc_net_later_gradient(net, op, op->input[j]);
    int can = !reads_twice && op->memory.accumulates_gradient >> j & 1;
    op->edge[j].accumulates = written && can;
    op->edge[j].add = written && !can;
}

dlc_status dlc_net_pass_fork_sums(dlc_net *net) {
    DLC_TRY(dlc_net_find_reads(net));
    for (int32_t i = 0; i < net->ops; i++)
        for (int32_t j = 0; j < net->op[i]->memory.inputs; j++)
            if (net->op[i]->runs_backward && net->op[i]->edge[j].wanted)
                add_up(net, net->op[i], j);
    return DLC_OK;
}

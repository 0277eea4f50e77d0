/* Builds a net by passes, allocates and frees it. */
#include "base/memory.h"
#include "net/memory.h"
#include "net/passes.h"

/* In their order. An outline has shapes, gradients and parameters, but no layouts and
 * no memory. */
static const struct {
    dlc_net_pass_call *pass;
    int in_outline;
} PASSES[] = {
    {dlc_net_pass_stage, 1},        /* takes this rank's layers from the graph */
    {dlc_net_pass_shard, 1},        /* places tensors among the ranks */
    {dlc_net_pass_infer, 1},        /* creates the layers, infers shapes */
    {dlc_net_pass_fuse, 0},         /* lets layers do the work of others */
    {dlc_net_pass_gradients, 1},    /* finds the gradients that are needed */
    {dlc_net_pass_layouts, 0},      /* agrees on layouts */
    {dlc_net_pass_params, 1},       /* gives parameters their places in the arenas */
    {dlc_net_pass_fork_sums, 0},    /* says how gradients are added up */
    {dlc_net_pass_recompute, 0},    /* marks what is not kept for backward */
    {dlc_net_pass_chunks, 0},       /* marks what outlives a batch chunk */
    {dlc_net_pass_memory, 0},       /* plans buffers and their lifetimes */
    {dlc_net_pass_chunk_memory, 0}, /* plans what batch chunks need besides */
    {dlc_net_pass_offsets, 0},      /* lets buffers share memory */
};

static void set_fields(dlc_net_args *args) {
    if (args->fields.count)
        return;
    args->fields.count = 2;
    args->fields.field[DLC_FIELD_DATA] = (dlc_net_field){
        .name = "data", .dtype = DLC_F32, .shape = args->sample};
    args->fields.field[DLC_FIELD_LABEL] = (dlc_net_field){
        .name = "label", .is_label = 1, .dtype = DLC_I32};
}

dlc_status dlc_net_build(const dlc_net_args *args, dlc_net **net) {
    dlc_net *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->args = *args;
    set_fields(&made->args);
    dlc_status status = DLC_OK;
    for (size_t i = 0; status == DLC_OK && i < sizeof PASSES / sizeof *PASSES; i++)
        if (PASSES[i].in_outline || !args->outline)
            status = PASSES[i].pass(made);
    if (status == DLC_OK)
        status = dlc_net_find_reads(made); /* for reports */
    if (status != DLC_OK) {
        dlc_net_free(made);
        return status;
    }
    *net = made;
    return DLC_OK;
}

dlc_status dlc_net_allocate(dlc_net *net) {
    DLC_TRY(dlc_net_take_params(net));
    return dlc_net_take_memory(net);
}

void dlc_net_free(dlc_net *net) {
    if (!net)
        return;
    for (int32_t i = 0; i < net->ops; i++)
        if (net->op[i])
            dlc_net_op_free(net->op[i]);
    for (int32_t i = 0; i < net->families; i++)
        net->family[i].family->close(net->family[i].context);
    for (int32_t i = 0; i < net->params; i++)
        dlc_free(net->param[i].name);
    dlc_net_free_memory(net);
    dlc_net_chunks_close(&net->chunks);
    dlc_names_free(&net->param_names);
    dlc_free(net->param);
    dlc_free(net->segment[DLC_PARAMS_WHOLE]);
    dlc_free(net->segment[DLC_PARAMS_ROWS]);
    dlc_free(net->buffer);
    dlc_free(net->family);
    dlc_free(net->reads);
    dlc_free(net->tensor);
    dlc_free(net->of_node);
    dlc_free(net->op);
    dlc_free(net);
}

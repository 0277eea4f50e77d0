/* Primitives: compiled on their first run, memory objects bound when an address
 * changes. Both matter: creating a primitive takes milliseconds, and in oneDNN 2.x
 * binding memory writes zeros to its padding. */
#include "onednn.h"

#include <string.h>

static const char *status_text(dnnl_status_t st) {
    switch (st) {
    case dnnl_out_of_memory:
        return "out of memory";
    case dnnl_invalid_arguments:
        return "invalid arguments";
    case dnnl_unimplemented:
        return "not implemented";
    default:
        return "it failed";
    }
}

dlc_status dnnl_failed(dnnl_status_t st, const char *layer, const char *what) {
    dlc_status status = DLC_ERR_INTERNAL;
    if (st == dnnl_out_of_memory)
        status = DLC_ERR_NOMEM;
    else if (st == dnnl_unimplemented || st == dnnl_invalid_arguments)
        status = DLC_ERR_UNSUPPORTED;
    if (layer)
        return host->fail(status, "layer '%s': oneDNN cannot %s: %s (status %d)", layer,
                          what, status_text(st), (int)st);
    return host->fail(status, "oneDNN cannot %s: %s (status %d)", what, status_text(st),
                      (int)st);
}

dlc_status op_init(op *o, context *net, const char *layer, const char *what,
                   dnnl_status_t st, dnnl_primitive_desc_t pd) {
    if (st != dnnl_success)
        return dnnl_failed(st, layer, what);
    op_clear(o);
    o->net = net;
    o->layer = layer;
    o->pd = pd;
    md_t scratch = dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
    o->scratch_bytes = scratch ? dnnl_memory_desc_get_size(scratch) : 0;
    return DLC_OK;
}

dlc_status op_reorder(op *o, context *net, const char *layer, const dlc_layout *from,
                      const dlc_layout *to) {
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t st = dnnl_reorder_primitive_desc_create(
        &pd, from->md, net->engine, to->md, net->engine, net->attr);
    return op_init(o, net, layer, "reorder a tensor", st, pd);
}

void op_clear(op *o) {
    for (int i = 0; i < o->args; i++)
        (void)dnnl_memory_destroy(o->arg[i].memory);
    if (o->primitive)
        (void)dnnl_primitive_destroy(o->primitive);
    if (o->pd)
        (void)dnnl_primitive_desc_destroy(o->pd);
    memset(o, 0, sizeof *o);
}

static dnnl_status_t add_slot(op *o, int arg, md_t md) {
    if (o->args == OP_ARGS)
        return dnnl_out_of_memory;
    dnnl_memory_t memory = NULL;
    dnnl_status_t st = dnnl_memory_create(&memory, md, o->net->engine,
                                          DNNL_MEMORY_NONE);
    if (st != dnnl_success)
        return st;
    o->arg[o->args] = (dnnl_exec_arg_t){.arg = arg, .memory = memory};
    o->at[o->args++] = NULL;
    return dnnl_success;
}

/* The slot of an argument, created on first use; -1: the primitive has no such
 * argument, -2: an error. */
static int slot_of(op *o, int arg, dnnl_status_t *st) {
    for (int i = 0; i < o->args; i++)
        if (o->arg[i].arg == arg)
            return i;
    md_t md = dnnl_primitive_desc_query_md(o->pd, dnnl_query_exec_arg_md, arg);
    if (!md || dnnl_memory_desc_get_size(md) == 0)
        return -1;
    *st = add_slot(o, arg, md);
    return *st == dnnl_success ? o->args - 1 : -2;
}

dlc_status op_run_all(op *o, const op_bind *binds, int count) {
    dnnl_status_t st = dnnl_success;
    if (!o->primitive && (st = dnnl_primitive_create(&o->primitive, o->pd)))
        return dnnl_failed(st, o->layer, "compile a primitive");
    for (int i = 0; i < count; i++) {
        int slot = slot_of(o, binds[i].arg, &st);
        if (slot == -2)
            return dnnl_failed(st, o->layer, "make a memory object");
        if (slot < 0 || o->at[slot] == binds[i].at)
            continue;
        st = memory_point(o->arg[slot].memory, (void *)(uintptr_t)binds[i].at,
                          o->net->stream);
        if (st != dnnl_success)
            return dnnl_failed(st, o->layer, "bind memory");
        o->at[slot] = binds[i].at;
    }
    st = dnnl_primitive_execute(o->primitive, o->net->stream, o->args, o->arg);
    if (st == dnnl_success)
        st = dnnl_stream_wait(o->net->stream);
    return st == dnnl_success ? DLC_OK : dnnl_failed(st, o->layer, "run a primitive");
}

md_t op_md(const op *o, dnnl_query_t what) {
    return dnnl_primitive_desc_query_md(o->pd, what, 0);
}

const dlc_layout *op_layout(op *o, dnnl_query_t what) {
    md_t md = op_md(o, what);
    if (!md) {
        (void)host->fail(DLC_ERR_INTERNAL,
                         "layer '%s': oneDNN does not report a layout", o->layer);
        return NULL;
    }
    return layout_of_md(o->net, md);
}

static const char *pd_name(const_dnnl_primitive_desc_t pd) {
    const char *text = NULL;
    if (!pd || dnnl_primitive_desc_query(pd, dnnl_query_impl_info_str, 0,
                                         (void *)&text) != dnnl_success)
        return "none";
    return text;
}

const char *op_name(const op *o) {
    return pd_name(o->pd);
}

int pd_is_slow(dnnl_primitive_desc_t pd) {
    return strncmp(pd_name(pd), "ref", 3) == 0;
}

int pd_is_winograd(dnnl_primitive_desc_t pd) {
    return strstr(pd_name(pd), "wino") != NULL;
}

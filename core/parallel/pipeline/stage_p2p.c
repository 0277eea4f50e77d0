/* Stage p2p: each slot counts its transfers in flight. */
#include "parallel/pipeline/stage_p2p.h"

#include "base/memory.h"
#include "plugin/device_objects.h"

/* What a slot may wait for. */
typedef enum flow { INPUTS, OUTPUTS, GRADIENTS, RETURNS, FLOWS } flow;

typedef struct slot {
    void **in, **in_diff; /* own arrays of pointers into `memory` */
    void **out, **out_diff;
    void ***received; /* own; gradients of output i, one from each of its readers */
    int32_t pending[FLOWS];
} slot;

struct dlc_stage_p2p {
    dlc_stage_p2p_args args;
    dlc_memory memory; /* of all slots */
    slot *slots;
    uint64_t sent;
};

/* ---- Opening and closing ----------------------------------------------------- */

static size_t boundary_bytes(const dlc_net_boundary *port) {
    dlc_tensor tensor = {.dtype = port->dtype, .shape = port->shape};
    size_t bytes = dlc_tensor_bytes(&tensor), mask = 63;
    return (bytes + mask) & ~mask;
}

static size_t message_bytes(const dlc_net_boundary *port) {
    dlc_tensor tensor = {.dtype = port->dtype, .shape = port->shape};
    return dlc_tensor_bytes(&tensor);
}

static size_t slot_bytes(const dlc_boundary_tensors *boundary) {
    size_t bytes = 0;
    for (int32_t i = 0; i < boundary->ins; i++)
        bytes += boundary_bytes(&boundary->in[i]) * (boundary->in[i].gradient ? 2 : 1);
    for (int32_t i = 0; i < boundary->outs; i++) {
        bytes += boundary_bytes(&boundary->out[i]);
        for (int32_t r = 0; r < boundary->readers[i]; r++)
            if (boundary->reader[i][r].gradient)
                bytes += boundary_bytes(&boundary->out[i]);
    }
    return bytes;
}

static void *take_boundary(char **at, const dlc_net_boundary *port) {
    void *taken = *at;
    *at += boundary_bytes(port);
    return taken;
}

static dlc_status lay_out_out(const dlc_boundary_tensors *boundary, int32_t i,
                              slot *made, char **at) {
    const dlc_net_boundary *port = &boundary->out[i];
    made->out[i] = take_boundary(at, port);
    made->received[i] = dlc_alloc((size_t)boundary->readers[i],
                                  sizeof **made->received);
    if (!made->received[i])
        return DLC_ERR_NOMEM;
    for (int32_t r = 0; r < boundary->readers[i]; r++) {
        if (!boundary->reader[i][r].gradient)
            continue;
        made->received[i][r] = take_boundary(at, port);
        if (!made->out_diff[i])
            made->out_diff[i] = made->received[i][r];
    }
    return DLC_OK;
}

static dlc_status lay_out(const dlc_boundary_tensors *boundary, slot *made, char *at) {
    size_t ins = (size_t)boundary->ins, outs = (size_t)boundary->outs;
    made->in = dlc_alloc(ins, sizeof *made->in);
    made->in_diff = dlc_alloc(ins, sizeof *made->in_diff);
    made->out = dlc_alloc(outs, sizeof *made->out);
    made->out_diff = dlc_alloc(outs, sizeof *made->out_diff);
    made->received = dlc_alloc(outs, sizeof *made->received);
    if (!made->in || !made->in_diff || !made->out || !made->out_diff || !made->received)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < boundary->ins; i++) {
        made->in[i] = take_boundary(&at, &boundary->in[i]);
        if (boundary->in[i].gradient)
            made->in_diff[i] = take_boundary(&at, &boundary->in[i]);
    }
    for (int32_t i = 0; i < boundary->outs; i++)
        DLC_TRY(lay_out_out(boundary, i, made, &at));
    return DLC_OK;
}

static dlc_status prepare(dlc_stage_p2p *stage_p2p) {
    const dlc_stage_p2p_args *args = &stage_p2p->args;
    size_t bytes = slot_bytes(args->boundary), slots = (size_t)args->slots;
    stage_p2p->slots = dlc_alloc(slots, sizeof *stage_p2p->slots);
    if (!stage_p2p->slots)
        return DLC_ERR_NOMEM;
    if (bytes > 0)
        DLC_TRY(dlc_device_alloc(args->device_ops, args->device, bytes * slots, 0,
                                 &stage_p2p->memory));
    for (size_t i = 0; i < slots; i++)
        DLC_TRY(lay_out(args->boundary, &stage_p2p->slots[i],
                        (char *)stage_p2p->memory.base + i * bytes));
    return DLC_OK;
}

dlc_status dlc_stage_p2p_open(const dlc_stage_p2p_args *args,
                              dlc_stage_p2p **stage_p2p) {
    dlc_stage_p2p *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->args = *args;
    dlc_status status = prepare(made);
    if (status != DLC_OK) {
        dlc_stage_p2p_close(made);
        return status;
    }
    *stage_p2p = made;
    return DLC_OK;
}

static void free_slot(const dlc_boundary_tensors *boundary, slot *made) {
    for (int32_t i = 0; made->received && i < boundary->outs; i++)
        dlc_free(made->received[i]);
    dlc_free(made->received);
    dlc_free(made->out_diff);
    dlc_free(made->out);
    dlc_free(made->in_diff);
    dlc_free(made->in);
}

void dlc_stage_p2p_close(dlc_stage_p2p *stage_p2p) {
    if (!stage_p2p)
        return;
    for (int32_t i = 0; stage_p2p->slots && i < stage_p2p->args.slots; i++)
        free_slot(stage_p2p->args.boundary, &stage_p2p->slots[i]);
    dlc_device_free(stage_p2p->args.device_ops, stage_p2p->args.device,
                    &stage_p2p->memory);
    dlc_free(stage_p2p->slots);
    dlc_free(stage_p2p);
}

/* ---- A micro-batch's messages ---------------------------------------------------- */

static slot *message_slot(const dlc_stage_p2p *stage_p2p, int32_t micro_batch) {
    return &stage_p2p->slots[micro_batch % stage_p2p->args.slots];
}

/* Which tensor of which micro-batch; its gradient has the same tag in the other
 * direction. */
static dlc_tag tag_of(int32_t id, int32_t micro_batch) {
    return dlc_tag_of(DLC_TAG_STAGE_TENSOR,
                      (uint64_t)(uint32_t)id << 32 | (uint32_t)micro_batch);
}

/* Sends a tensor to the peers that have parts of it, or receives it from them. */
static dlc_status move(dlc_stage_p2p *stage_p2p, const dlc_net_boundary *port,
                       const dlc_boundary_peers *peers, dlc_tag tag, char *tensor,
                       int sends, int32_t *pending) {
    int64_t rows = stage_p2p->args.boundary->rows;
    for (int32_t i = 0; i < peers->parts; i++) {
        const dlc_boundary_part *part = &peers->part[i];
        size_t row = part->rows == rows ? 0 : message_bytes(port) / (size_t)rows;
        size_t bytes = row ? row * (size_t)part->rows : message_bytes(port);
        char *at = tensor + row * (size_t)part->row;
        const dlc_transfer transfer = {part->rank,        tag,   sends ? at : NULL,
                                       sends ? NULL : at, bytes, pending};
        stage_p2p->sent += sends ? bytes : 0;
        DLC_TRY(dlc_progress_engine_submit(stage_p2p->args.engine, &transfer, 1, NULL));
    }
    return DLC_OK;
}

dlc_status dlc_stage_p2p_post_receives(dlc_stage_p2p *stage_p2p, int32_t micro_batch) {
    const dlc_boundary_tensors *boundary = stage_p2p->args.boundary;
    slot *into = message_slot(stage_p2p, micro_batch);
    for (int32_t i = 0; i < boundary->ins; i++)
        DLC_TRY(move(stage_p2p, &boundary->in[i], &boundary->source[i],
                     tag_of(boundary->in_id[i], micro_batch), into->in[i], 0,
                     &into->pending[INPUTS]));
    return DLC_OK;
}

int dlc_stage_p2p_has_inputs(const dlc_stage_p2p *stage_p2p, int32_t micro_batch) {
    return message_slot(stage_p2p, micro_batch)->pending[INPUTS] == 0;
}

int dlc_stage_p2p_outputs_sent(const dlc_stage_p2p *stage_p2p, int32_t micro_batch) {
    return message_slot(stage_p2p, micro_batch)->pending[OUTPUTS] == 0;
}

/* Receives of gradients are posted first, so that no send waits for one. */
dlc_status dlc_stage_p2p_send(dlc_stage_p2p *stage_p2p, int32_t micro_batch) {
    const dlc_boundary_tensors *boundary = stage_p2p->args.boundary;
    slot *from = message_slot(stage_p2p, micro_batch);
    for (int32_t i = 0; i < boundary->outs; i++) {
        const dlc_net_boundary *port = &boundary->out[i];
        dlc_tag tag = tag_of(boundary->out_id[i], micro_batch);
        for (int32_t r = 0; r < boundary->readers[i]; r++) {
            const dlc_boundary_peers *reader = &boundary->reader[i][r];
            if (reader->gradient)
                DLC_TRY(move(stage_p2p, port, reader, tag, from->received[i][r], 0,
                             &from->pending[GRADIENTS]));
            DLC_TRY(move(stage_p2p, port, reader, tag, from->out[i], 1,
                         &from->pending[OUTPUTS]));
        }
    }
    return DLC_OK;
}

int dlc_stage_p2p_has_gradients(const dlc_stage_p2p *stage_p2p, int32_t micro_batch) {
    const slot *at = message_slot(stage_p2p, micro_batch);
    return at->pending[GRADIENTS] == 0 && at->pending[RETURNS] == 0;
}

dlc_status dlc_stage_p2p_add_gradients(dlc_stage_p2p *stage_p2p, int32_t micro_batch) {
    const dlc_stage_p2p_args *args = &stage_p2p->args;
    const slot *at = message_slot(stage_p2p, micro_batch);
    for (int32_t i = 0; i < args->boundary->outs; i++) {
        size_t count = (size_t)dlc_shape_count(&args->boundary->out[i].shape);
        for (int32_t r = 0; r < args->boundary->readers[i]; r++)
            if (at->received[i][r] && at->received[i][r] != at->out_diff[i])
                DLC_TRY(args->device_ops->add(args->device, NULL, count,
                                              at->received[i][r], at->out_diff[i]));
    }
    return DLC_OK;
}

dlc_status dlc_stage_p2p_return_gradients(dlc_stage_p2p *stage_p2p,
                                          int32_t micro_batch) {
    const dlc_boundary_tensors *boundary = stage_p2p->args.boundary;
    slot *from = message_slot(stage_p2p, micro_batch);
    for (int32_t i = 0; i < boundary->ins; i++)
        if (boundary->in[i].gradient)
            DLC_TRY(move(stage_p2p, &boundary->in[i], &boundary->source[i],
                         tag_of(boundary->in_id[i], micro_batch), from->in_diff[i], 1,
                         &from->pending[RETURNS]));
    return DLC_OK;
}

void dlc_stage_p2p_bind(dlc_stage_p2p *stage_p2p, int32_t micro_batch,
                        dlc_net_micro_batch *of_net) {
    const slot *at = message_slot(stage_p2p, micro_batch);
    of_net->in = at->in;
    of_net->in_diff = at->in_diff;
    of_net->out = at->out;
    of_net->out_diff = at->out_diff;
}

size_t dlc_stage_p2p_bytes(const dlc_boundary_tensors *boundary, int32_t slots) {
    return slot_bytes(boundary) * (size_t)slots;
}

size_t dlc_stage_p2p_memory(const dlc_stage_p2p *stage_p2p) {
    return dlc_stage_p2p_bytes(stage_p2p->args.boundary, stage_p2p->args.slots);
}

uint64_t dlc_stage_p2p_sent(const dlc_stage_p2p *stage_p2p) {
    return stage_p2p->sent;
}

int dlc_stage_p2p_is_sending(const dlc_stage_p2p *stage_p2p) {
    int32_t pending = 0;
    for (int32_t i = 0; i < stage_p2p->args.slots; i++)
        pending += stage_p2p->slots[i].pending[OUTPUTS] +
                   stage_p2p->slots[i].pending[RETURNS];
    return pending > 0;
}

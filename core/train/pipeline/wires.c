/* See wires.h. One table of requests under way; each counts down a counter of its slot
 * when it is done. */
#include "train/pipeline/wires.h"

#include "base/memory.h"

/* What a slot still waits for. */
typedef enum flow { INPUTS, OUTPUTS, GRADIENTS, RETURNS, FLOWS } flow;

typedef struct slot {
    void **in, **in_diff; /* own arrays; into `memory` */
    void **out, **out_diff;
    void ***came; /* own; gradients of out i from each of its readers */
    int32_t left[FLOWS];
} slot;

typedef struct entry {
    int32_t *left;
} entry;

struct dlc_wires {
    dlc_wires_args args;
    dlc_memory memory; /* of all slots */
    slot *slots;
    dlc_request **request; /* own; NULL: not in use */
    entry *entries;        /* own; as many */
    int32_t room;
    int32_t used; /* none at or behind this one is in use */
    uint64_t sent;
};

/* How long a wait for news may take before it looks around. */
#define WAIT_S 0.1

/* ---- Opening and closing ----------------------------------------------------- */

static size_t port_bytes(const dlc_net_port *port) {
    dlc_tensor tensor = {.dtype = port->dtype, .shape = port->shape};
    size_t bytes = dlc_tensor_bytes(&tensor), mask = 63;
    return (bytes + mask) & ~mask;
}

static size_t message_bytes(const dlc_net_port *port) {
    dlc_tensor tensor = {.dtype = port->dtype, .shape = port->shape};
    return dlc_tensor_bytes(&tensor);
}

static size_t slot_bytes(const dlc_crossings *crossings) {
    size_t bytes = 0;
    for (int32_t i = 0; i < crossings->ins; i++)
        bytes += port_bytes(&crossings->in[i]) * (crossings->in[i].gradient ? 2 : 1);
    for (int32_t i = 0; i < crossings->outs; i++) {
        bytes += port_bytes(&crossings->out[i]);
        for (int32_t r = 0; r < crossings->readers[i]; r++)
            if (crossings->reader[i][r].gradient)
                bytes += port_bytes(&crossings->out[i]);
    }
    return bytes;
}

/* Requests that may be under way of one slot. */
static int32_t slot_requests(const dlc_crossings *crossings) {
    int32_t count = 2 * crossings->ins;
    for (int32_t i = 0; i < crossings->outs; i++)
        count += 2 * crossings->readers[i];
    return count;
}

static void *take(char **at, const dlc_net_port *port) {
    void *taken = *at;
    *at += port_bytes(port);
    return taken;
}

static dlc_status lay_out_out(const dlc_crossings *crossings, int32_t i, slot *made,
                              char **at) {
    const dlc_net_port *port = &crossings->out[i];
    made->out[i] = take(at, port);
    made->came[i] = dlc_alloc((size_t)crossings->readers[i], sizeof **made->came);
    if (!made->came[i])
        return DLC_ERR_NOMEM;
    for (int32_t r = 0; r < crossings->readers[i]; r++) {
        if (!crossings->reader[i][r].gradient)
            continue;
        made->came[i][r] = take(at, port);
        if (!made->out_diff[i])
            made->out_diff[i] = made->came[i][r];
    }
    return DLC_OK;
}

static dlc_status lay_out(const dlc_crossings *crossings, slot *made, char *at) {
    size_t ins = (size_t)crossings->ins, outs = (size_t)crossings->outs;
    made->in = dlc_alloc(ins, sizeof *made->in);
    made->in_diff = dlc_alloc(ins, sizeof *made->in_diff);
    made->out = dlc_alloc(outs, sizeof *made->out);
    made->out_diff = dlc_alloc(outs, sizeof *made->out_diff);
    made->came = dlc_alloc(outs, sizeof *made->came);
    if (!made->in || !made->in_diff || !made->out || !made->out_diff || !made->came)
        return DLC_ERR_NOMEM;
    for (int32_t i = 0; i < crossings->ins; i++) {
        made->in[i] = take(&at, &crossings->in[i]);
        if (crossings->in[i].gradient)
            made->in_diff[i] = take(&at, &crossings->in[i]);
    }
    for (int32_t i = 0; i < crossings->outs; i++)
        DLC_TRY(lay_out_out(crossings, i, made, &at));
    return DLC_OK;
}

static dlc_status prepare(dlc_wires *wires) {
    const dlc_wires_args *args = &wires->args;
    size_t bytes = slot_bytes(args->crossings), slots = (size_t)args->slots;
    wires->room = slot_requests(args->crossings) * args->slots;
    wires->request = dlc_alloc((size_t)wires->room, sizeof(dlc_request *));
    wires->entries = dlc_alloc((size_t)wires->room, sizeof *wires->entries);
    wires->slots = dlc_alloc(slots, sizeof *wires->slots);
    if (!wires->request || !wires->entries || !wires->slots)
        return DLC_ERR_NOMEM;
    wires->memory = (dlc_memory){.size = sizeof wires->memory};
    if (bytes > 0)
        DLC_TRY(
            args->device_ops->alloc(args->device, bytes * slots, 0, &wires->memory));
    for (size_t i = 0; i < slots; i++)
        DLC_TRY(lay_out(args->crossings, &wires->slots[i],
                        (char *)wires->memory.base + i * bytes));
    return DLC_OK;
}

dlc_status dlc_wires_open(const dlc_wires_args *args, dlc_wires **wires) {
    dlc_wires *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->args = *args;
    dlc_status status = prepare(made);
    if (status != DLC_OK) {
        dlc_wires_close(made);
        return status;
    }
    *wires = made;
    return DLC_OK;
}

static void free_slot(const dlc_crossings *crossings, slot *made) {
    for (int32_t i = 0; made->came && i < crossings->outs; i++)
        dlc_free(made->came[i]);
    dlc_free(made->came);
    dlc_free(made->out_diff);
    dlc_free(made->out);
    dlc_free(made->in_diff);
    dlc_free(made->in);
}

void dlc_wires_close(dlc_wires *wires) {
    if (!wires)
        return;
    for (int32_t i = 0; wires->slots && i < wires->args.slots; i++)
        free_slot(wires->args.crossings, &wires->slots[i]);
    if (wires->memory.base)
        wires->args.device_ops->free(wires->args.device, &wires->memory);
    dlc_free(wires->slots);
    dlc_free(wires->entries);
    dlc_free(wires->request);
    dlc_free(wires);
}

/* ---- Requests ---------------------------------------------------------------- */

static slot *slot_of(const dlc_wires *wires, int32_t sub_batch) {
    return &wires->slots[sub_batch % wires->args.slots];
}

static int32_t free_entry(const dlc_wires *wires) {
    int32_t i = 0;
    while (i < wires->used && wires->request[i])
        i++;
    return i;
}

static dlc_status note(dlc_wires *wires, dlc_request *request, int32_t *left) {
    int32_t at = free_entry(wires);
    if (at == wires->room)
        return dlc_fail(DLC_ERR_INTERNAL, "more messages between stages than planned");
    wires->request[at] = request;
    wires->entries[at].left = left;
    wires->used = at >= wires->used ? at + 1 : wires->used;
    ++*left;
    return DLC_OK;
}

static void settle(dlc_wires *wires, int32_t i) {
    wires->request[i] = NULL;
    --*wires->entries[i].left;
    while (wires->used > 0 && !wires->request[wires->used - 1])
        wires->used--;
}

static dlc_status send(dlc_wires *wires, int32_t rank, dlc_tag tag, const void *from,
                       size_t bytes, int32_t *left) {
    const dlc_mail *mail = wires->args.mail;
    dlc_request *request = NULL;
    DLC_TRY(mail->send(mail->context, rank, tag, from, bytes, &request));
    wires->sent += bytes;
    return note(wires, request, left);
}

static dlc_status recv(dlc_wires *wires, int32_t rank, dlc_tag tag, void *to,
                       size_t bytes, int32_t *left) {
    const dlc_mail *mail = wires->args.mail;
    dlc_request *request = NULL;
    DLC_TRY(mail->recv(mail->context, rank, tag, to, bytes, &request));
    return note(wires, request, left);
}

dlc_status dlc_wires_poll(dlc_wires *wires) {
    const dlc_mail *mail = wires->args.mail;
    for (int32_t i = 0; i < wires->used; i++) {
        int done = 0;
        if (wires->request[i])
            DLC_TRY(mail->test(mail->context, wires->request[i], &done));
        if (done)
            settle(wires, i);
    }
    return DLC_OK;
}

dlc_status dlc_wires_wait(dlc_wires *wires) {
    const dlc_mail *mail = wires->args.mail;
    int32_t which = -1;
    DLC_TRY(mail->check(mail->context));
    if (wires->used == 0)
        return dlc_fail(DLC_ERR_INTERNAL, "a stage waits for nothing");
    DLC_TRY(mail->wait_any(mail->context, wires->request, wires->used, WAIT_S, &which));
    if (which >= 0)
        settle(wires, which);
    return DLC_OK;
}

dlc_status dlc_wires_drain(dlc_wires *wires) {
    while (wires->used > 0)
        DLC_TRY(dlc_wires_wait(wires));
    return DLC_OK;
}

/* ---- A sub-batch's way ------------------------------------------------------- */

/* Which tensor of which sub-batch; its gradient goes the other way. */
static dlc_tag tag_of(int32_t id, int32_t sub_batch) {
    return (dlc_tag)(uint32_t)id << 32 | (uint32_t)sub_batch;
}

dlc_status dlc_wires_expect(dlc_wires *wires, int32_t sub_batch) {
    const dlc_crossings *crossings = wires->args.crossings;
    slot *into = slot_of(wires, sub_batch);
    for (int32_t i = 0; i < crossings->ins; i++)
        DLC_TRY(recv(wires, crossings->in_rank[i],
                     tag_of(crossings->in_id[i], sub_batch), into->in[i],
                     message_bytes(&crossings->in[i]), &into->left[INPUTS]));
    return DLC_OK;
}

int dlc_wires_has_inputs(const dlc_wires *wires, int32_t sub_batch) {
    return slot_of(wires, sub_batch)->left[INPUTS] == 0;
}

int dlc_wires_is_free(const dlc_wires *wires, int32_t sub_batch) {
    return slot_of(wires, sub_batch)->left[OUTPUTS] == 0;
}

/* The receives of gradients come first: nothing is kept for want of one. */
dlc_status dlc_wires_send(dlc_wires *wires, int32_t sub_batch) {
    const dlc_crossings *crossings = wires->args.crossings;
    slot *from = slot_of(wires, sub_batch);
    for (int32_t i = 0; i < crossings->outs; i++) {
        size_t bytes = message_bytes(&crossings->out[i]);
        dlc_tag tag = tag_of(crossings->out_id[i], sub_batch);
        for (int32_t r = 0; r < crossings->readers[i]; r++) {
            const dlc_crossing_reader *reader = &crossings->reader[i][r];
            if (reader->gradient)
                DLC_TRY(recv(wires, reader->rank, tag, from->came[i][r], bytes,
                             &from->left[GRADIENTS]));
            DLC_TRY(send(wires, reader->rank, tag, from->out[i], bytes,
                         &from->left[OUTPUTS]));
        }
    }
    return DLC_OK;
}

int dlc_wires_has_gradients(const dlc_wires *wires, int32_t sub_batch) {
    const slot *at = slot_of(wires, sub_batch);
    return at->left[GRADIENTS] == 0 && at->left[RETURNS] == 0;
}

dlc_status dlc_wires_add_gradients(dlc_wires *wires, int32_t sub_batch) {
    const dlc_wires_args *args = &wires->args;
    const slot *at = slot_of(wires, sub_batch);
    for (int32_t i = 0; i < args->crossings->outs; i++) {
        size_t count = (size_t)dlc_shape_count(&args->crossings->out[i].shape);
        for (int32_t r = 0; r < args->crossings->readers[i]; r++)
            if (at->came[i][r] && at->came[i][r] != at->out_diff[i])
                DLC_TRY(args->device_ops->add(args->device, NULL, count, at->came[i][r],
                                              at->out_diff[i]));
    }
    return DLC_OK;
}

dlc_status dlc_wires_give_back(dlc_wires *wires, int32_t sub_batch) {
    const dlc_crossings *crossings = wires->args.crossings;
    slot *from = slot_of(wires, sub_batch);
    for (int32_t i = 0; i < crossings->ins; i++)
        if (crossings->in[i].gradient)
            DLC_TRY(send(wires, crossings->in_rank[i],
                         tag_of(crossings->in_id[i], sub_batch), from->in_diff[i],
                         message_bytes(&crossings->in[i]), &from->left[RETURNS]));
    return DLC_OK;
}

void dlc_wires_point(dlc_wires *wires, int32_t sub_batch, dlc_net_pass *pass) {
    const slot *at = slot_of(wires, sub_batch);
    pass->in = at->in;
    pass->in_diff = at->in_diff;
    pass->out = at->out;
    pass->out_diff = at->out_diff;
}

size_t dlc_wires_bytes(const dlc_crossings *crossings, int32_t slots) {
    return slot_bytes(crossings) * (size_t)slots;
}

size_t dlc_wires_memory(const dlc_wires *wires) {
    return dlc_wires_bytes(wires->args.crossings, wires->args.slots);
}

uint64_t dlc_wires_sent(const dlc_wires *wires) {
    return wires->sent;
}

/* Gathers and scatters the shards of parameters. Rank 0 broadcasts a command over the
 * control channel; every rank finds in the same list which rank has which rows, so that
 * senders and receivers need no further agreement.
 */
#include "checkpoint/shards.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "plugin/device_objects.h"
#include "session/full_state.h"
#include "session/scratch.h"

/* One rank's shard of a tensor. */
typedef struct holder {
    int32_t rank, index; /* its index among that rank's parameters */
    int64_t first, rows;
    const dlc_shard *shard; /* as the rank describes it, while the list is made */
} holder;

typedef struct sharded_tensor {
    dlc_shard whole;
    int32_t holders;
    const holder *holder; /* in dlc_shards.holder; in rank order */
} sharded_tensor;

struct dlc_shards {
    dlc_session *session;
    dlc_progress_engine *engine;
    holder *holder; /* own; of all tensors */
    int32_t tensors;
    sharded_tensor *tensor;  /* own */
    size_t room;             /* elements that copies need at least */
    dlc_scratch plain;       /* lent, on other ranks than 0, while they serve */
    int32_t held, held_slot; /* tensor and slot of the shard in there; -1: none */
    dlc_memory staging;      /* if the device has its own memory: the largest message */
};

enum { MESSAGE = DLC_SCRATCH_MESSAGE };

enum { COMMAND_GET = 1, COMMAND_PUT, COMMAND_END };

/* `row`, `rows`: of one holder; all that there are if the tensor is put. */
typedef struct command {
    int32_t kind, tensor, slot;
    int64_t row, rows;
} command;

/* ---- The list of shards ------------------------------------------------------ */

static int64_t whole_rows(const dlc_shape *shape) {
    return shape->rank > 0 ? shape->dims[0] : 1;
}

/* Elements of a row. */
static size_t row_elements(const dlc_shape *shape) {
    int64_t rows = whole_rows(shape);
    return rows > 0 ? (size_t)(dlc_shape_count(shape) / rows) : 0;
}

static dlc_shard describe_shard(const dlc_net_param *param) {
    dlc_shard shard = {.shape = param->whole,
                       .first = param->first,
                       .rows = whole_rows(&param->shape),
                       .order = param->order,
                       .is_buffer = param->is_buffer};
    strncpy(shard.name, param->name, DLC_SHARD_NAME - 1);
    return shard;
}

static int by_order_and_rank(const void *left, const void *right) {
    const holder *a = left, *b = right;
    if (a->shard->order != b->shard->order)
        return a->shard->order < b->shard->order ? -1 : 1;
    return a->rank < b->rank ? -1 : a->rank > b->rank;
}

static int begins_tensor(const holder *all, size_t i) {
    return i == 0 || all[i].shard->order != all[i - 1].shard->order;
}

static dlc_status check_holder(const dlc_shard *whole, const holder *has) {
    const dlc_shard *shard = has->shard;
    if (strncmp(whole->name, shard->name, DLC_SHARD_NAME) == 0 &&
        dlc_shape_equal(&whole->shape, &shard->shape) && shard->first >= 0 &&
        shard->rows >= 0 && shard->rows <= whole->rows - shard->first)
        return DLC_OK;
    return dlc_fail(DLC_ERR_INTERNAL,
                    "rank %d disagrees with lower ranks about parameter '%.100s'",
                    (int)has->rank, shard->name);
}

/* The holder that sends row `row`: rank 0 if it has it, else the one with the most
 * rows from there on. */
static const holder *source_of(const sharded_tensor *tensor, int64_t row) {
    const holder *best = NULL;
    for (int32_t i = 0; i < tensor->holders; i++) {
        const holder *has = &tensor->holder[i];
        if (row < has->first || row >= has->first + has->rows)
            continue;
        if (has->rank == 0)
            return has;
        if (!best || has->first + has->rows > best->first + best->rows)
            best = has;
    }
    return best;
}

static dlc_status check_whole(const sharded_tensor *tensor) {
    for (int64_t row = 0; row < tensor->whole.rows;) {
        const holder *has = source_of(tensor, row);
        if (!has)
            return dlc_fail(DLC_ERR_INTERNAL, "no rank has row %lld of parameter '%s'",
                            (long long)row, tensor->whole.name);
        row = has->first + has->rows;
    }
    return DLC_OK;
}

/* Groups `count` holders, which are sorted, by their tensors. */
static dlc_status group_holders(dlc_shards *shards, size_t count) {
    size_t tensors = 0;
    for (size_t i = 0; i < count; i++)
        tensors += (size_t)begins_tensor(shards->holder, i);
    shards->tensor = dlc_alloc(tensors, sizeof *shards->tensor);
    if (!shards->tensor)
        return DLC_ERR_NOMEM;
    sharded_tensor *last = NULL;
    for (size_t i = 0; i < count; i++) {
        holder *has = &shards->holder[i];
        if (begins_tensor(shards->holder, i)) {
            last = &shards->tensor[shards->tensors++];
            *last = (sharded_tensor){.whole = *has->shard, .holder = has};
            last->whole.first = 0;
            last->whole.rows = whole_rows(&has->shard->shape);
        }
        DLC_TRY(check_holder(&last->whole, has));
        last->holders++;
    }
    for (int32_t t = 0; t < shards->tensors; t++)
        DLC_TRY(check_whole(&shards->tensor[t]));
    return DLC_OK;
}

/* `list` has room for `most` shards per rank, `count` the number that each has. */
static dlc_status read_list(dlc_shards *shards, const int32_t *count, size_t most,
                            const dlc_shard *list) {
    size_t all = 0, n = 0;
    for (int32_t r = 0; r < shards->session->ranks; r++)
        all += (size_t)count[r];
    shards->holder = dlc_alloc(all, sizeof *shards->holder);
    if (!shards->holder)
        return DLC_ERR_NOMEM;
    for (int32_t r = 0; r < shards->session->ranks; r++)
        for (int32_t i = 0; i < count[r]; i++) {
            const dlc_shard *shard = &list[(size_t)r * most + (size_t)i];
            shards->holder[n++] = (holder){r, i, shard->first, shard->rows, shard};
        }
    qsort(shards->holder, all, sizeof *shards->holder, by_order_and_rank);
    dlc_status status = group_holders(shards, all);
    for (size_t i = 0; i < all; i++)
        shards->holder[i].shard = NULL; /* belongs to the caller */
    return status;
}

/* Gathers the shards of all ranks, with room for `most` per rank. */
static dlc_status gather_list(const dlc_session *session, size_t most,
                              dlc_shard **list) {
    dlc_shard *mine = dlc_alloc(most, sizeof *mine);
    dlc_shard *all = dlc_alloc((size_t)session->ranks * most, sizeof *all);
    dlc_status status = mine && all ? DLC_OK : DLC_ERR_NOMEM;
    for (int32_t i = 0; status == DLC_OK && i < dlc_net_params(session->net); i++)
        mine[i] = describe_shard(dlc_net_param_at(session->net, i));
    if (status == DLC_OK)
        status = dlc_job_all_gather(session->job, mine, most * sizeof *mine, all);
    dlc_free(mine);
    if (status == DLC_OK)
        *list = all;
    else
        dlc_free(all);
    return status;
}

/* Every rank announces how many shards it has, then each of them. */
static dlc_status exchange_list(dlc_shards *shards) {
    const dlc_session *session = shards->session;
    const int32_t own = dlc_net_params(session->net);
    size_t most = 1;
    dlc_shard *list = NULL;
    int32_t *count = dlc_alloc((size_t)session->ranks, sizeof *count);
    if (!count)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(session->job, &own, sizeof own, count);
    for (int32_t r = 0; status == DLC_OK && r < session->ranks; r++)
        most = (size_t)count[r] > most ? (size_t)count[r] : most;
    if (status == DLC_OK)
        status = gather_list(session, most, &list);
    if (status == DLC_OK)
        status = read_list(shards, count, most, list);
    dlc_free(list);
    dlc_free(count);
    return status;
}

/* ---- Opening and closing ----------------------------------------------------- */

/* The largest shard of this rank; on rank 0 also a row of any tensor. */
static size_t find_room(const dlc_shards *shards) {
    const int32_t rank = shards->session->rank;
    size_t most = rank == 0 && shards->tensors > 0 ? MESSAGE : 0;
    for (int32_t t = 0; t < shards->tensors; t++) {
        const sharded_tensor *tensor = &shards->tensor[t];
        size_t row = row_elements(&tensor->whole.shape);
        most = rank == 0 && row > most ? row : most;
        for (int32_t i = 0; i < tensor->holders; i++) {
            size_t n = (size_t)tensor->holder[i].rows * row;
            if (tensor->holder[i].rank == rank && n > most)
                most = n;
        }
    }
    return most;
}

static dlc_status allocate_staging(dlc_shards *shards) {
    const dlc_session *session = shards->session;
    size_t most = shards->room < MESSAGE ? shards->room : MESSAGE;
    if (most == 0 || session->setup->device->caps & DLC_DEVICE_HOST)
        return DLC_OK;
    return dlc_device_alloc(session->device_ops, session->device, most * sizeof(float),
                            0, &shards->staging);
}

dlc_status dlc_shards_open(dlc_session *session, dlc_progress_engine *engine) {
    if (session->shards)
        return DLC_OK;
    dlc_shards *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    *made = (dlc_shards){.session = session, .engine = engine, .held = -1};
    session->shards = made;
    dlc_status status = exchange_list(made);
    made->room = find_room(made);
    if (status == DLC_OK)
        status = allocate_staging(made);
    if (status != DLC_OK)
        dlc_shards_close(session);
    return status;
}

void dlc_shards_close(dlc_session *session) {
    dlc_shards *shards = session->shards;
    if (!shards)
        return;
    dlc_device_free(session->device_ops, session->device, &shards->staging);
    dlc_free(shards->tensor);
    dlc_free(shards->holder);
    dlc_free(shards);
    session->shards = NULL;
}

int32_t dlc_shards_count(const dlc_shards *shards) {
    return shards->tensors;
}

size_t dlc_shards_room(const dlc_shards *shards) {
    return shards->room;
}

const dlc_shard *dlc_shards_at(const dlc_shards *shards, int32_t tensor) {
    return &shards->tensor[tensor].whole;
}

/* ---- Messages ---------------------------------------------------------------- */

/* Sends to a rank, or receives from it; blocks. */
static dlc_status transfer_elements(const dlc_shards *shards, int32_t peer,
                                    const void *from, void *to, size_t count) {
    const dlc_transfer one = {.peer = peer,
                              .tag = dlc_tag_of(DLC_TAG_SHARD, 0),
                              .from = from,
                              .to = to,
                              .bytes = count * sizeof(float)};
    uint64_t handle = 0;
    DLC_TRY(dlc_progress_engine_submit(shards->engine, &one, 1, &handle));
    return dlc_progress_engine_wait(shards->engine, handle);
}

/* Moves `count` elements to a rank (`from`) or from there (`to`), by way of device
 * memory if that is not the host's. */
static dlc_status move_elements(const dlc_shards *shards, int32_t peer,
                                const float *from, float *to, size_t count) {
    const dlc_session *session = shards->session;
    float *staging = shards->staging.base;
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < MESSAGE ? count - at : MESSAGE;
        const float *sent = from ? from + at : NULL;
        float *received = to ? to + at : NULL;
        if (!staging) {
            DLC_TRY(transfer_elements(shards, peer, sent, received, n));
            continue;
        }
        if (sent)
            DLC_TRY(session->device_ops->copy(session->device, NULL, staging, sent,
                                              n * sizeof *sent));
        DLC_TRY(transfer_elements(shards, peer, sent ? staging : NULL,
                                  sent ? NULL : staging, n));
        if (received)
            DLC_TRY(session->device_ops->copy(session->device, NULL, received, staging,
                                              n * sizeof *received));
    }
    return DLC_OK;
}

static dlc_status send_rows(const dlc_shards *shards, int32_t peer, const float *plain,
                            size_t count) {
    return move_elements(shards, peer, plain, NULL, count);
}

static dlc_status receive_rows(const dlc_shards *shards, int32_t peer, float *plain,
                               size_t count) {
    return move_elements(shards, peer, NULL, plain, count);
}

/* ---- One tensor -------------------------------------------------------------- */

static float *arena_of(const dlc_session *session, int32_t i, int32_t slot) {
    return slot < 0 ? dlc_net_param_arena(session->net, i)
                    : dlc_full_state_arena(session, i, slot);
}

/* Copies this rank's shard to `plain`, unless it is there since the rows before. */
static dlc_status export_shard(dlc_shards *shards, const command *cmd,
                               const holder *has, float *plain) {
    const dlc_session *session = shards->session;
    if (cmd->row > has->first && shards->held == cmd->tensor &&
        shards->held_slot == cmd->slot)
        return DLC_OK;
    DLC_TRY(dlc_net_param_export(session->net, has->index,
                                 arena_of(session, has->index, cmd->slot), plain));
    shards->held = cmd->tensor;
    shards->held_slot = cmd->slot;
    return DLC_OK;
}

/* Moves rows to rank 0; runs on it and on their holder. Rank 0 finds them at *data. */
static dlc_status get_rows(dlc_shards *shards, const command *cmd, float *plain,
                           const float **data) {
    const int32_t rank = shards->session->rank;
    const sharded_tensor *tensor = &shards->tensor[cmd->tensor];
    const holder *has = source_of(tensor, cmd->row);
    size_t n = row_elements(&tensor->whole.shape), count = (size_t)cmd->rows * n;
    if (rank != 0 && has->rank != rank)
        return DLC_OK;
    *data = plain;
    if (has->rank != rank) {
        shards->held = -1;
        return receive_rows(shards, has->rank, plain, count);
    }
    DLC_TRY(export_shard(shards, cmd, has, plain));
    *data = plain + (size_t)(cmd->row - has->first) * n;
    return rank == 0 ? DLC_OK : send_rows(shards, 0, *data, count);
}

/* Copies rows to this rank's shard. */
static dlc_status import_shard(const dlc_session *session, const holder *has,
                               int32_t slot, const float *plain) {
    return dlc_net_param_import(session->net, has->index, plain,
                                arena_of(session, has->index, slot));
}

static dlc_status put_rows(dlc_shards *shards, const command *cmd, const float *plain) {
    const dlc_session *session = shards->session;
    const sharded_tensor *tensor = &shards->tensor[cmd->tensor];
    size_t n = row_elements(&tensor->whole.shape);
    shards->held = -1;
    for (int32_t i = 0; i < tensor->holders; i++) {
        const holder *has = &tensor->holder[i];
        size_t count = (size_t)has->rows * n;
        if (has->rows == 0 || (session->rank != 0 && has->rank != session->rank))
            continue;
        const float *rows = plain ? plain + (size_t)has->first * n : shards->plain.base;
        if (session->rank != 0)
            DLC_TRY(receive_rows(shards, 0, shards->plain.base, count));
        DLC_TRY(has->rank == session->rank ? import_shard(session, has, cmd->slot, rows)
                                           : send_rows(shards, has->rank, rows, count));
    }
    return DLC_OK;
}

/* ---- Commands ---------------------------------------------------------------- */

static dlc_status exchange_command(dlc_shards *shards, command *cmd) {
    DLC_TRY(dlc_job_broadcast(shards->session->job, 0, cmd, sizeof *cmd));
    return cmd->kind != COMMAND_END && cmd->slot >= 0
               ? dlc_full_state_take(shards->session, cmd->slot)
               : DLC_OK;
}

dlc_status dlc_shards_get(dlc_shards *shards, int32_t tensor, int32_t slot, size_t at,
                          float *plain, size_t room, const float **data,
                          size_t *count) {
    const sharded_tensor *from = &shards->tensor[tensor];
    size_t n = row_elements(&from->whole.shape);
    const int64_t row = n ? (int64_t)(at / n) : 0;
    const holder *has = source_of(from, row);
    int64_t most = n ? (int64_t)(room / n) : INT64_MAX,
            left = has->first + has->rows - row;
    command cmd = {COMMAND_GET, tensor, slot, row, left};
    if (has->rank != 0 && left > most)
        cmd.rows = most;
    DLC_TRY(exchange_command(shards, &cmd));
    DLC_TRY(get_rows(shards, &cmd, plain, data));
    *count = (size_t)cmd.rows * n;
    return DLC_OK;
}

dlc_status dlc_shards_put(dlc_shards *shards, int32_t tensor, int32_t slot,
                          const float *plain) {
    command cmd = {.kind = COMMAND_PUT, .tensor = tensor, .slot = slot};
    DLC_TRY(exchange_command(shards, &cmd));
    return put_rows(shards, &cmd, plain);
}

dlc_status dlc_shards_end(dlc_shards *shards) {
    command cmd = {.kind = COMMAND_END};
    shards->held = -1;
    return exchange_command(shards, &cmd);
}

static dlc_status serve_commands(dlc_shards *shards) {
    for (;;) {
        command cmd = {0};
        const float *data;
        DLC_TRY(exchange_command(shards, &cmd));
        if (cmd.kind == COMMAND_END)
            return DLC_OK;
        DLC_TRY(cmd.kind == COMMAND_GET
                    ? get_rows(shards, &cmd, shards->plain.base, &data)
                    : put_rows(shards, &cmd, NULL));
    }
}

dlc_status dlc_shards_serve(dlc_shards *shards) {
    shards->held = -1;
    DLC_TRY(dlc_scratch_take(shards->session, shards->room, &shards->plain));
    dlc_status status = serve_commands(shards);
    dlc_status given = dlc_scratch_give_back(shards->session, &shards->plain);
    return status == DLC_OK ? given : status;
}

/* Gathers and scatters the shards of tensors. Rank 0 broadcasts a command over the
 * control channel; every rank finds in the same list which rank has which rows, so that
 * senders and receivers need no further agreement.
 */
#include "checkpoint/shards.h"

#include <string.h>

#include "base/memory.h"
#include "plugin/device_objects.h"

/* One rank's shard of a tensor. */
typedef struct holder {
    int32_t rank, index; /* its index among that rank's shards */
    int64_t first, rows;
} holder;

typedef struct sharded_tensor {
    dlc_shard whole;
    int32_t holders;
    holder *holder; /* own; in rank order */
} sharded_tensor;

struct dlc_shards {
    dlc_shards_args args;
    int32_t rank, ranks;
    int32_t tensors;
    sharded_tensor *tensor;
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

/* The position of a tensor in the list, or where to insert it. */
static int32_t position_of(const dlc_shards *shards, int32_t order) {
    int32_t begin = 0, end = shards->tensors;
    while (begin < end) {
        int32_t middle = begin + (end - begin) / 2;
        if (shards->tensor[middle].whole.order < order)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

static dlc_status insert_tensor(dlc_shards *shards, int32_t at,
                                const dlc_shard *shard) {
    size_t count = (size_t)shards->tensors;
    sharded_tensor *grown = dlc_grow_by_one(shards->tensor, count, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    shards->tensor = grown;
    memmove(&grown[at + 1], &grown[at], (count - (size_t)at) * sizeof *grown);
    grown[at] = (sharded_tensor){.whole = *shard};
    grown[at].whole.first = 0;
    grown[at].whole.rows = whole_rows(&shard->shape);
    shards->tensors++;
    return DLC_OK;
}

static dlc_status add_holder(dlc_shards *shards, int32_t rank, int32_t index,
                             const dlc_shard *shard) {
    int32_t at = position_of(shards, shard->order);
    if (at == shards->tensors || shards->tensor[at].whole.order != shard->order)
        DLC_TRY(insert_tensor(shards, at, shard));
    sharded_tensor *tensor = &shards->tensor[at];
    if (strncmp(tensor->whole.name, shard->name, DLC_SHARD_NAME) != 0 ||
        !dlc_shape_equal(&tensor->whole.shape, &shard->shape) || shard->first < 0 ||
        shard->rows < 0 || shard->rows > tensor->whole.rows - shard->first)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "rank %d disagrees with lower ranks about parameter '%.100s'",
                        (int)rank, shard->name);
    size_t count = (size_t)tensor->holders;
    holder *grown = dlc_grow_by_one(tensor->holder, count, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    tensor->holder = grown;
    grown[count] = (holder){rank, index, shard->first, shard->rows};
    tensor->holders++;
    return DLC_OK;
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

/* Gathers the shards of all ranks, with room for `most` per rank. */
static dlc_status gather_list(const dlc_shards *shards, size_t most, dlc_shard **list) {
    const dlc_shards_args *args = &shards->args;
    dlc_shard *mine = dlc_alloc(most, sizeof *mine);
    dlc_shard *all = dlc_alloc((size_t)shards->ranks * most, sizeof *all);
    dlc_status status = mine && all ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK) {
        if (args->shards > 0)
            memcpy(mine, args->shard, (size_t)args->shards * sizeof *mine);
        status = dlc_job_all_gather(args->job, mine, most * sizeof *mine, all);
    }
    dlc_free(mine);
    if (status == DLC_OK)
        *list = all;
    else
        dlc_free(all);
    return status;
}

static dlc_status read_list(dlc_shards *shards, const int32_t *count, size_t most,
                            const dlc_shard *list) {
    for (int32_t r = 0; r < shards->ranks; r++)
        for (int32_t i = 0; i < count[r]; i++)
            DLC_TRY(add_holder(shards, r, i, &list[(size_t)r * most + (size_t)i]));
    for (int32_t t = 0; t < shards->tensors; t++)
        DLC_TRY(check_whole(&shards->tensor[t]));
    return DLC_OK;
}

/* Every rank announces how many shards it has, then each of them. */
static dlc_status exchange_list(dlc_shards *shards) {
    const dlc_shards_args *args = &shards->args;
    size_t most = 1;
    dlc_shard *list = NULL;
    int32_t *count = dlc_alloc((size_t)shards->ranks, sizeof *count);
    if (!count)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_all_gather(args->job, &args->shards,
                                           sizeof args->shards, count);
    for (int32_t r = 0; status == DLC_OK && r < shards->ranks; r++)
        most = (size_t)count[r] > most ? (size_t)count[r] : most;
    if (status == DLC_OK)
        status = gather_list(shards, most, &list);
    if (status == DLC_OK)
        status = read_list(shards, count, most, list);
    dlc_free(list);
    dlc_free(count);
    return status;
}

/* ---- Opening and closing ----------------------------------------------------- */

/* The largest shard of this rank; on rank 0 also a row of any tensor. */
static size_t find_room(const dlc_shards *shards) {
    size_t most = shards->rank == 0 && shards->tensors > 0 ? MESSAGE : 0;
    for (int32_t t = 0; t < shards->tensors; t++) {
        const sharded_tensor *tensor = &shards->tensor[t];
        size_t row = row_elements(&tensor->whole.shape);
        most = shards->rank == 0 && row > most ? row : most;
        for (int32_t i = 0; i < tensor->holders; i++) {
            size_t n = (size_t)tensor->holder[i].rows * row;
            if (tensor->holder[i].rank == shards->rank && n > most)
                most = n;
        }
    }
    return most;
}

static dlc_status allocate(dlc_shards *shards) {
    const dlc_shards_args *args = &shards->args;
    size_t most = shards->room < MESSAGE ? shards->room : MESSAGE;
    if (most == 0 || args->on_host)
        return DLC_OK;
    return dlc_device_alloc(args->device_ops, args->device, most * sizeof(float), 0,
                            &shards->staging);
}

dlc_status dlc_shards_open(const dlc_shards_args *args, dlc_shards **shards) {
    dlc_shards *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->args = *args;
    made->rank = dlc_job_rank(args->job);
    made->ranks = dlc_job_ranks(args->job);
    dlc_status status = exchange_list(made);
    made->held = -1;
    made->room = find_room(made);
    if (status == DLC_OK)
        status = allocate(made);
    made->args.shard = NULL; /* belongs to the caller */
    if (status != DLC_OK) {
        dlc_shards_close(made);
        return status;
    }
    *shards = made;
    return DLC_OK;
}

void dlc_shards_close(dlc_shards *shards) {
    if (!shards)
        return;
    for (int32_t t = 0; t < shards->tensors; t++)
        dlc_free(shards->tensor[t].holder);
    dlc_free(shards->tensor);
    dlc_device_free(shards->args.device_ops, shards->args.device, &shards->staging);
    dlc_free(shards);
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
static dlc_status transfer(const dlc_shards *shards, int32_t peer, const void *from,
                           void *to, size_t count) {
    const dlc_transfer one = {.peer = peer,
                              .tag = dlc_tag_of(DLC_TAG_SHARD, 0),
                              .from = from,
                              .to = to,
                              .bytes = count * sizeof(float)};
    uint64_t handle = 0;
    DLC_TRY(dlc_progress_engine_submit(shards->args.engine, &one, 1, &handle));
    return dlc_progress_engine_wait(shards->args.engine, handle);
}

/* Moves `count` elements to a rank (`from`) or from there (`to`), by way of device
 * memory if that is not the host's. */
static dlc_status move(const dlc_shards *shards, int32_t peer, const float *from,
                       float *to, size_t count) {
    const dlc_shards_args *args = &shards->args;
    float *staging = shards->staging.base;
    for (size_t at = 0, n; at < count; at += n) {
        n = count - at < MESSAGE ? count - at : MESSAGE;
        const float *sent = from ? from + at : NULL;
        float *received = to ? to + at : NULL;
        if (!staging) {
            DLC_TRY(transfer(shards, peer, sent, received, n));
            continue;
        }
        if (sent)
            DLC_TRY(args->device_ops->copy(args->device, NULL, staging, sent,
                                           n * sizeof *sent));
        DLC_TRY(
            transfer(shards, peer, sent ? staging : NULL, sent ? NULL : staging, n));
        if (received)
            DLC_TRY(args->device_ops->copy(args->device, NULL, received, staging,
                                           n * sizeof *received));
    }
    return DLC_OK;
}

static dlc_status send(const dlc_shards *shards, int32_t peer, const float *plain,
                       size_t count) {
    return move(shards, peer, plain, NULL, count);
}

static dlc_status recv(const dlc_shards *shards, int32_t peer, float *plain,
                       size_t count) {
    return move(shards, peer, NULL, plain, count);
}

/* ---- One tensor -------------------------------------------------------------- */

/* Copies this rank's shard to `plain`, unless it is there since the rows before. */
static dlc_status export(dlc_shards *shards, const command *cmd, const holder *has,
                         float *plain) {
    const dlc_shards_args *args = &shards->args;
    if (cmd->row > has->first && shards->held == cmd->tensor &&
        shards->held_slot == cmd->slot)
        return DLC_OK;
    DLC_TRY(args->export(args->context, has->index, cmd->slot, plain));
    shards->held = cmd->tensor;
    shards->held_slot = cmd->slot;
    return DLC_OK;
}

/* Moves rows to rank 0; runs on it and on their holder. Rank 0 finds them at *data. */
static dlc_status get(dlc_shards *shards, const command *cmd, float *plain,
                      const float **data) {
    const sharded_tensor *tensor = &shards->tensor[cmd->tensor];
    const holder *has = source_of(tensor, cmd->row);
    size_t n = row_elements(&tensor->whole.shape), count = (size_t)cmd->rows * n;
    if (shards->rank != 0 && has->rank != shards->rank)
        return DLC_OK;
    *data = plain;
    if (has->rank != shards->rank) {
        shards->held = -1;
        return recv(shards, has->rank, plain, count);
    }
    DLC_TRY(export(shards, cmd, has, plain));
    *data = plain + (size_t)(cmd->row - has->first) * n;
    return shards->rank == 0 ? DLC_OK : send(shards, 0, *data, count);
}

static dlc_status put(dlc_shards *shards, const command *cmd, const float *plain) {
    const dlc_shards_args *args = &shards->args;
    const sharded_tensor *tensor = &shards->tensor[cmd->tensor];
    size_t n = row_elements(&tensor->whole.shape);
    shards->held = -1;
    for (int32_t i = 0; i < tensor->holders; i++) {
        const holder *has = &tensor->holder[i];
        size_t count = (size_t)has->rows * n;
        if (has->rows == 0)
            continue;
        if (shards->rank == 0 && has->rank != 0) {
            DLC_TRY(send(shards, has->rank, plain + (size_t)has->first * n, count));
        } else if (shards->rank == 0) {
            DLC_TRY(args->import(args->context, has->index, cmd->slot,
                                 plain + (size_t)has->first * n));
        } else if (has->rank == shards->rank) {
            DLC_TRY(recv(shards, 0, shards->plain.base, count));
            DLC_TRY(
                args->import(args->context, has->index, cmd->slot, shards->plain.base));
        }
    }
    return DLC_OK;
}

/* ---- Commands ---------------------------------------------------------------- */

static dlc_status exchange_command(dlc_shards *shards, command *cmd) {
    DLC_TRY(dlc_job_broadcast(shards->args.job, 0, cmd, sizeof *cmd));
    return cmd->kind != COMMAND_END && cmd->slot >= 0
               ? shards->args.prepare(shards->args.context, cmd->slot)
               : DLC_OK;
}

dlc_status dlc_shards_get(dlc_shards *shards, int32_t tensor, int32_t slot, int64_t row,
                          float *plain, size_t room, const float **data,
                          int64_t *rows) {
    const sharded_tensor *from = &shards->tensor[tensor];
    const holder *has = source_of(from, row);
    size_t n = row_elements(&from->whole.shape);
    int64_t most = n ? (int64_t)(room / n) : INT64_MAX,
            left = has->first + has->rows - row;
    command cmd = {COMMAND_GET, tensor, slot, row, left};
    if (has->rank != 0 && left > most)
        cmd.rows = most;
    DLC_TRY(exchange_command(shards, &cmd));
    DLC_TRY(get(shards, &cmd, plain, data));
    *rows = cmd.rows;
    return DLC_OK;
}

dlc_status dlc_shards_put(dlc_shards *shards, int32_t tensor, int32_t slot,
                          const float *plain) {
    command cmd = {.kind = COMMAND_PUT, .tensor = tensor, .slot = slot};
    DLC_TRY(exchange_command(shards, &cmd));
    return put(shards, &cmd, plain);
}

dlc_status dlc_shards_end(dlc_shards *shards) {
    command cmd = {.kind = COMMAND_END};
    shards->held = -1;
    return exchange_command(shards, &cmd);
}

static dlc_status serve(dlc_shards *shards) {
    for (;;) {
        command cmd = {0};
        const float *data;
        DLC_TRY(exchange_command(shards, &cmd));
        if (cmd.kind == COMMAND_END)
            return DLC_OK;
        DLC_TRY(cmd.kind == COMMAND_GET ? get(shards, &cmd, shards->plain.base, &data)
                                        : put(shards, &cmd, NULL));
    }
}

dlc_status dlc_shards_serve(dlc_shards *shards) {
    const dlc_shards_args *args = &shards->args;
    shards->held = -1;
    DLC_TRY(args->lend(args->context, shards->room, &shards->plain));
    dlc_status status = serve(shards);
    dlc_status given = args->give_back(args->context, &shards->plain);
    return status == DLC_OK ? given : status;
}

/* See pieces.h. Rank 0 says over the control channel what comes next; every rank finds
 * in the same list who has which rows, so that senders and receivers need no more
 * words.
 */
#include "train/checkpoint/pieces.h"

#include <string.h>

#include "base/memory.h"

/* One rank's rows of a tensor. */
typedef struct holding {
    int32_t rank, index; /* its number among that rank's pieces */
    int64_t first, rows;
} holding;

typedef struct tensor_pieces {
    dlc_piece whole;
    int32_t holdings;
    holding *holding; /* in the order of ranks */
} tensor_pieces;

struct dlc_pieces {
    dlc_pieces_args args;
    int32_t rank, ranks;
    int32_t tensors;
    tensor_pieces *tensor;
    float *plain;       /* but on rank 0: room for its largest piece */
    dlc_memory staging; /* on a device of its own memory: for the largest message */
};

enum { ASK_GET = 1, ASK_PUT, ASK_END };

typedef struct question {
    int32_t what, tensor, slot;
} question;

static const dlc_tag TAG = UINT64_C(0xdc01000000000000);

/* ---- Who has what ---------------------------------------------------------------- */

static int64_t whole_rows(const dlc_shape *shape) {
    return shape->rank > 0 ? shape->dims[0] : 1;
}

/* Elements of a row. */
static size_t row_elements(const dlc_shape *shape) {
    int64_t rows = whole_rows(shape);
    return rows > 0 ? (size_t)(dlc_shape_count(shape) / rows) : 0;
}

/* Where a tensor stands in the list, or should. */
static int32_t place_of(const dlc_pieces *pieces, int32_t order) {
    int32_t i = 0;
    while (i < pieces->tensors && pieces->tensor[i].whole.order < order)
        i++;
    return i;
}

static dlc_status insert_tensor(dlc_pieces *pieces, int32_t at,
                                const dlc_piece *piece) {
    size_t count = (size_t)pieces->tensors;
    tensor_pieces *grown = dlc_grow(pieces->tensor, count, count + 1, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    pieces->tensor = grown;
    memmove(&grown[at + 1], &grown[at], (count - (size_t)at) * sizeof *grown);
    grown[at] = (tensor_pieces){.whole = *piece};
    grown[at].whole.first = 0;
    grown[at].whole.rows = whole_rows(&piece->shape);
    pieces->tensors++;
    return DLC_OK;
}

static dlc_status add_holding(dlc_pieces *pieces, int32_t rank, int32_t index,
                              const dlc_piece *piece) {
    int32_t at = place_of(pieces, piece->order);
    if (at == pieces->tensors || pieces->tensor[at].whole.order != piece->order)
        DLC_TRY(insert_tensor(pieces, at, piece));
    tensor_pieces *tensor = &pieces->tensor[at];
    if (strncmp(tensor->whole.name, piece->name, DLC_PIECE_NAME) != 0 ||
        !dlc_shape_equal(&tensor->whole.shape, &piece->shape) || piece->first < 0 ||
        piece->rows < 0 || piece->rows > tensor->whole.rows - piece->first)
        return dlc_fail(DLC_ERR_INTERNAL,
                        "rank %d has parameter '%.100s' otherwise than ranks before it",
                        (int)rank, piece->name);
    size_t count = (size_t)tensor->holdings;
    holding *grown = dlc_grow(tensor->holding, count, count + 1, sizeof *grown);
    if (!grown)
        return DLC_ERR_NOMEM;
    tensor->holding = grown;
    grown[count] = (holding){rank, index, piece->first, piece->rows};
    tensor->holdings++;
    return DLC_OK;
}

/* The one to send row `row`: rank 0 if it has it, else who reaches farthest. */
static const holding *source_of(const tensor_pieces *tensor, int64_t row) {
    const holding *best = NULL;
    for (int32_t i = 0; i < tensor->holdings; i++) {
        const holding *has = &tensor->holding[i];
        if (row < has->first || row >= has->first + has->rows)
            continue;
        if (has->rank == 0)
            return has;
        if (!best || has->first + has->rows > best->first + best->rows)
            best = has;
    }
    return best;
}

static dlc_status check_whole(const tensor_pieces *tensor) {
    for (int64_t row = 0; row < tensor->whole.rows;) {
        const holding *has = source_of(tensor, row);
        if (!has)
            return dlc_fail(DLC_ERR_INTERNAL, "no rank has row %lld of parameter '%s'",
                            (long long)row, tensor->whole.name);
        row = has->first + has->rows;
    }
    return DLC_OK;
}

/* Everybody's, `most` places a rank. */
static dlc_status gather_list(const dlc_pieces *pieces, size_t most, dlc_piece **list) {
    const dlc_pieces_args *args = &pieces->args;
    dlc_piece *mine = dlc_alloc(most, sizeof *mine);
    dlc_piece *all = dlc_alloc((size_t)pieces->ranks * most, sizeof *all);
    dlc_status status = mine && all ? DLC_OK : DLC_ERR_NOMEM;
    if (status == DLC_OK) {
        if (args->pieces > 0)
            memcpy(mine, args->piece, (size_t)args->pieces * sizeof *mine);
        status = dlc_job_allgather(args->job, mine, most * sizeof *mine, all);
    }
    dlc_free(mine);
    if (status == DLC_OK)
        *list = all;
    else
        dlc_free(all);
    return status;
}

static dlc_status read_list(dlc_pieces *pieces, const int32_t *count, size_t most,
                            const dlc_piece *list) {
    for (int32_t r = 0; r < pieces->ranks; r++)
        for (int32_t i = 0; i < count[r]; i++)
            DLC_TRY(add_holding(pieces, r, i, &list[(size_t)r * most + (size_t)i]));
    for (int32_t t = 0; t < pieces->tensors; t++)
        DLC_TRY(check_whole(&pieces->tensor[t]));
    return DLC_OK;
}

/* Every rank tells how many it has, then each of them. */
static dlc_status share_list(dlc_pieces *pieces) {
    const dlc_pieces_args *args = &pieces->args;
    size_t most = 1;
    dlc_piece *list = NULL;
    int32_t *count = dlc_alloc((size_t)pieces->ranks, sizeof *count);
    if (!count)
        return DLC_ERR_NOMEM;
    dlc_status status = dlc_job_allgather(args->job, &args->pieces, sizeof args->pieces,
                                          count);
    for (int32_t r = 0; status == DLC_OK && r < pieces->ranks; r++)
        most = (size_t)count[r] > most ? (size_t)count[r] : most;
    if (status == DLC_OK)
        status = gather_list(pieces, most, &list);
    if (status == DLC_OK)
        status = read_list(pieces, count, most, list);
    dlc_free(list);
    dlc_free(count);
    return status;
}

/* ---- Life ------------------------------------------------------------------------ */

/* Rank 0 has the caller's memory; the others need some of their own. */
static dlc_status take_memory(dlc_pieces *pieces) {
    const dlc_pieces_args *args = &pieces->args;
    size_t most = 0;
    for (int32_t t = 0; t < pieces->tensors; t++) {
        const tensor_pieces *tensor = &pieces->tensor[t];
        for (int32_t i = 0; i < tensor->holdings; i++) {
            size_t n = (size_t)tensor->holding[i].rows *
                       row_elements(&tensor->whole.shape);
            if ((tensor->holding[i].rank == pieces->rank || pieces->rank == 0) &&
                n > most)
                most = n;
        }
    }
    if (most == 0)
        return DLC_OK;
    pieces->plain = pieces->rank > 0 ? dlc_alloc(most, sizeof(float)) : NULL;
    if (pieces->rank > 0 && !pieces->plain)
        return DLC_ERR_NOMEM;
    if (args->on_host)
        return DLC_OK;
    pieces->staging = (dlc_memory){.size = sizeof pieces->staging};
    return args->device_ops->alloc(args->device, most * sizeof(float), 0,
                                   &pieces->staging);
}

dlc_status dlc_pieces_open(const dlc_pieces_args *args, dlc_pieces **pieces) {
    dlc_pieces *made = dlc_alloc(1, sizeof *made);
    if (!made)
        return DLC_ERR_NOMEM;
    made->args = *args;
    made->rank = dlc_job_rank(args->job);
    made->ranks = dlc_job_ranks(args->job);
    dlc_status status = share_list(made);
    if (status == DLC_OK)
        status = take_memory(made);
    made->args.piece = NULL; /* the caller's */
    if (status != DLC_OK) {
        dlc_pieces_close(made);
        return status;
    }
    *pieces = made;
    return DLC_OK;
}

void dlc_pieces_close(dlc_pieces *pieces) {
    if (!pieces)
        return;
    for (int32_t t = 0; t < pieces->tensors; t++)
        dlc_free(pieces->tensor[t].holding);
    dlc_free(pieces->tensor);
    dlc_free(pieces->plain);
    if (pieces->staging.base)
        pieces->args.device_ops->free(pieces->args.device, &pieces->staging);
    dlc_free(pieces);
}

int32_t dlc_pieces_count(const dlc_pieces *pieces) {
    return pieces->tensors;
}

const dlc_piece *dlc_pieces_at(const dlc_pieces *pieces, int32_t tensor) {
    return &pieces->tensor[tensor].whole;
}

/* ---- Messages -------------------------------------------------------------------- */

static dlc_status wait_for(const dlc_pieces *pieces, dlc_request *request) {
    const dlc_mail *mail = pieces->args.mail;
    int32_t which = -1;
    while (which < 0) {
        DLC_TRY(mail->check(mail->context));
        DLC_TRY(mail->wait_any(mail->context, &request, 1, 0.1, &which));
    }
    return DLC_OK;
}

/* Mail goes from and to the device's memory. */
static float *place_for(const dlc_pieces *pieces, float *plain) {
    return pieces->args.on_host ? plain : pieces->staging.base;
}

static dlc_status send(const dlc_pieces *pieces, int32_t peer, const float *plain,
                       size_t count) {
    const dlc_pieces_args *args = &pieces->args;
    const void *from = plain;
    dlc_request *request = NULL;
    if (!args->on_host) {
        DLC_TRY(args->device_ops->copy(args->device, NULL, pieces->staging.base, plain,
                                       count * sizeof(float)));
        from = pieces->staging.base;
    }
    DLC_TRY(args->mail->send(args->mail->context, peer, TAG, from,
                             count * sizeof(float), &request));
    return wait_for(pieces, request);
}

static dlc_status recv(const dlc_pieces *pieces, int32_t peer, float *plain,
                       size_t count) {
    const dlc_pieces_args *args = &pieces->args;
    float *to = place_for(pieces, plain);
    dlc_request *request = NULL;
    DLC_TRY(args->mail->recv(args->mail->context, peer, TAG, to, count * sizeof(float),
                             &request));
    DLC_TRY(wait_for(pieces, request));
    if (args->on_host)
        return DLC_OK;
    return args->device_ops->copy(args->device, NULL, plain, to, count * sizeof(float));
}

/* ---- One tensor ------------------------------------------------------------------ */

/* Rows [row, end) of rank `has->rank`, on both sides. */
static dlc_status fetch(const dlc_pieces *pieces, const tensor_pieces *tensor,
                        const holding *has, int64_t row, int32_t slot, float *plain) {
    const dlc_pieces_args *args = &pieces->args;
    size_t n = row_elements(&tensor->whole.shape);
    size_t count = (size_t)(has->first + has->rows - row) * n;
    if (pieces->rank == 0 && has->rank == 0)
        return args->export(args->context, has->index, slot,
                            plain + (size_t)has->first * n);
    if (pieces->rank == 0)
        return recv(pieces, has->rank, plain + (size_t)row * n, count);
    if (has->rank != pieces->rank)
        return DLC_OK;
    DLC_TRY(args->export(args->context, has->index, slot, pieces->plain));
    return send(pieces, 0, pieces->plain + (size_t)(row - has->first) * n, count);
}

static dlc_status get(const dlc_pieces *pieces, const question *asked, float *plain) {
    const tensor_pieces *tensor = &pieces->tensor[asked->tensor];
    for (int64_t row = 0; row < tensor->whole.rows;) {
        const holding *has = source_of(tensor, row);
        DLC_TRY(fetch(pieces, tensor, has, row, asked->slot, plain));
        row = has->first + has->rows;
    }
    return DLC_OK;
}

static dlc_status put(const dlc_pieces *pieces, const question *asked,
                      const float *plain) {
    const dlc_pieces_args *args = &pieces->args;
    const tensor_pieces *tensor = &pieces->tensor[asked->tensor];
    size_t n = row_elements(&tensor->whole.shape);
    for (int32_t i = 0; i < tensor->holdings; i++) {
        const holding *has = &tensor->holding[i];
        size_t count = (size_t)has->rows * n;
        if (has->rows == 0)
            continue;
        if (pieces->rank == 0 && has->rank != 0) {
            DLC_TRY(send(pieces, has->rank, plain + (size_t)has->first * n, count));
        } else if (pieces->rank == 0) {
            DLC_TRY(args->import(args->context, has->index, asked->slot,
                                 plain + (size_t)has->first * n));
        } else if (has->rank == pieces->rank) {
            DLC_TRY(recv(pieces, 0, pieces->plain, count));
            DLC_TRY(
                args->import(args->context, has->index, asked->slot, pieces->plain));
        }
    }
    return DLC_OK;
}

/* ---- Asking and serving ---------------------------------------------------------- */

static dlc_status ask(dlc_pieces *pieces, question *asked) {
    return dlc_job_broadcast(pieces->args.job, 0, asked, sizeof *asked);
}

dlc_status dlc_pieces_get(dlc_pieces *pieces, int32_t tensor, int32_t slot,
                          float *plain) {
    question asked = {ASK_GET, tensor, slot};
    DLC_TRY(ask(pieces, &asked));
    return get(pieces, &asked, plain);
}

dlc_status dlc_pieces_put(dlc_pieces *pieces, int32_t tensor, int32_t slot,
                          const float *plain) {
    question asked = {ASK_PUT, tensor, slot};
    DLC_TRY(ask(pieces, &asked));
    return put(pieces, &asked, plain);
}

dlc_status dlc_pieces_end(dlc_pieces *pieces) {
    question asked = {.what = ASK_END};
    return ask(pieces, &asked);
}

dlc_status dlc_pieces_serve(dlc_pieces *pieces) {
    for (;;) {
        question asked = {0};
        DLC_TRY(ask(pieces, &asked));
        if (asked.what == ASK_END)
            return DLC_OK;
        DLC_TRY(asked.what == ASK_GET ? get(pieces, &asked, NULL)
                                      : put(pieces, &asked, NULL));
    }
}

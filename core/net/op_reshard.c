/* A reshard operation: gives a tensor another placement. In either placement every rank
 * has a *region* of the tensor, samples by channels; each rank sends to each other rank
 * what its old region and the other's new region have in common. Gradients take the
 * opposite direction; in backward of a replicated tensor all ranks have the same
 * region, and what they contribute to it is added up. It blocks. */
#include "base/memory.h"
#include "net/ops.h"

typedef struct net_reshard {
    net_op op; /* first */
    net_placement from, to;
    int in_chunk;                       /* the output has the rows of a batch chunk */
    int64_t samples, channels, spatial; /* of the tensor, over all ranks */
    char *name;                         /* own; the operation's */
    uint64_t *received;                 /* own; handle of the transfer from each rank */
    const float **source; /* own; what each rank contributes, this one included */
    const float **pack;   /* own; what is sent to each rank */
} net_reshard;

/* ---- Regions --------------------------------------------------------------------- */

typedef struct region {
    int64_t row, rows, channel, channels;
} region;

/* The region of a rank; `chunk` is the batch chunk, if the tensor is of one. */
static region region_of(const dlc_net *net, const net_reshard *reshard,
                        net_placement placement, int32_t rank, int32_t chunk) {
    const dlc_net_tensor_parallel *tp = net->args.tensor_parallel;
    const int64_t *first = tp->first_sample;
    region made = {0, reshard->samples, 0, reshard->channels};
    if (placement == SAMPLE_SHARDED && reshard->in_chunk) {
        net_rows rows = dlc_net_chunk_rows(&net->chunks, chunk, rank);
        made.row = rows.at;
        made.rows = rows.count;
    } else if (placement == SAMPLE_SHARDED) {
        made.row = first[rank] - first[0];
        made.rows = first[rank + 1] - first[rank];
    } else if (placement == CHANNEL_SHARDED) {
        made.channel = dlc_net_channel_begin(tp, reshard->channels, rank);
        made.channels = dlc_net_channel_begin(tp, reshard->channels, rank + 1) -
                        made.channel;
    }
    return made;
}

static int64_t common_range(int64_t a, int64_t a_count, int64_t b, int64_t b_count,
                            int64_t *count) {
    int64_t begin = a > b ? a : b;
    int64_t end = a + a_count < b + b_count ? a + a_count : b + b_count;
    *count = end > begin ? end - begin : 0;
    return begin;
}

static region intersect(const region *a, const region *b) {
    region made;
    made.row = common_range(a->row, a->rows, b->row, b->rows, &made.rows);
    made.channel = common_range(a->channel, a->channels, b->channel, b->channels,
                                &made.channels);
    return made;
}

/* ---- Blocks ---------------------------------------------------------------------- */

/* A region within another, as rows of elements. */

typedef struct block {
    int64_t begin, rows, width, stride; /* in elements */
} block;

static block block_in(const net_reshard *reshard, const region *outer,
                      const region *inner) {
    int64_t spatial = reshard->spatial;
    return (block){.begin = ((inner->row - outer->row) * outer->channels +
                             inner->channel - outer->channel) *
                            spatial,
                   .rows = inner->rows,
                   .width = inner->channels * spatial,
                   .stride = outer->channels * spatial};
}

static size_t block_count(const block *b) {
    return (size_t)(b->rows * b->width);
}

static int is_dense(const block *b) {
    return b->rows <= 1 || b->width == b->stride;
}

/* The block in packed form. */
static block packed(const block *b) {
    return (block){.rows = b->rows, .width = b->width, .stride = b->width};
}

static dlc_status copy_block(const dlc_net *net, const float *from,
                             const block *at_from, float *to, const block *at_to) {
    int dense = is_dense(at_from) && is_dense(at_to);
    int64_t rows = dense ? 1 : at_from->rows;
    size_t bytes = sizeof(float) *
                   (dense ? block_count(at_from) : (size_t)at_from->width);
    for (int64_t i = 0; i < rows; i++)
        DLC_TRY(dlc_net_copy(net, to + at_to->begin + i * at_to->stride,
                             from + at_from->begin + i * at_from->stride, bytes));
    return DLC_OK;
}

/* ---- One direction of a reshard operation ---------------------------------------- */

typedef struct direction {
    const dlc_net *net;
    const net_reshard *reshard;
    net_placement from, to;
    int32_t chunk;
    int sums;
    region here, there; /* what this rank has, and what it receives */
    const float *src;
    float *dst;
    float *scratch; /* NULL: only count how much is needed */
    size_t used;    /* elements of `scratch` */
} direction;

static region region_from(const direction *dir, int32_t rank) {
    return region_of(dir->net, dir->reshard, dir->from, rank, dir->chunk);
}

static region region_to(const direction *dir, int32_t rank) {
    return region_of(dir->net, dir->reshard, dir->to, rank, dir->chunk);
}

static direction direction_of(const dlc_net *net, const net_reshard *reshard,
                              int backward, int32_t chunk) {
    int32_t rank = net->args.tensor_parallel->rank;
    direction dir = {.net = net,
                     .reshard = reshard,
                     .from = backward ? reshard->to : reshard->from,
                     .to = backward ? reshard->from : reshard->to,
                     .chunk = chunk};
    dir.sums = backward && reshard->to == REPLICATED;
    dir.here = region_from(&dir, rank);
    dir.there = region_to(&dir, rank);
    return dir;
}

static float *take_scratch(direction *dir, size_t count) {
    enum { LINE = 16 };
    float *place = dir->scratch ? dir->scratch + dir->used : NULL;
    dir->used += (count + LINE - 1) / LINE * LINE;
    return place;
}

/* The place in dst of what a rank sends. */
static block incoming_block(const direction *dir, int32_t rank) {
    region theirs = region_from(dir, rank);
    region shared = intersect(&theirs, &dir->there);
    return block_in(dir->reshard, &dir->there, &shared);
}

/* The place in src of what is sent to a rank. */
static block outgoing_block(const direction *dir, int32_t rank) {
    region theirs = region_to(dir, rank);
    region shared = intersect(&dir->here, &theirs);
    return block_in(dir->reshard, &dir->here, &shared);
}

static int is_staged(const direction *dir, const block *b) {
    return dir->sums || !is_dense(b);
}

/* Sends to a rank, or receives from it. */
static dlc_status submit_one(const direction *dir, int32_t rank, const float *from,
                             float *to, size_t count, uint64_t *handle) {
    const dlc_transfer one = {.peer = rank,
                              .tag = dlc_tag_of(DLC_TAG_RESHARD, 0),
                              .from = from,
                              .to = to,
                              .bytes = count * sizeof(float)};
    return dlc_progress_engine_submit(dir->net->args.tensor_parallel->reshard_engine,
                                      &one, 1, handle);
}

static dlc_status begin_receive(direction *dir) {
    const dlc_net_tensor_parallel *tp = dir->net->args.tensor_parallel;
    for (int32_t i = 1; i < tp->ranks; i++) {
        int32_t rank = net_other_rank(tp, i);
        block b = incoming_block(dir, rank);
        size_t count = block_count(&b);
        if (!count)
            continue;
        float *to = is_staged(dir, &b) ? take_scratch(dir, count) : NULL;
        if (!dir->scratch)
            continue;
        if (!to)
            to = dir->dst + b.begin;
        dir->reshard->source[rank] = to;
        DLC_TRY(submit_one(dir, rank, NULL, to, count, &dir->reshard->received[rank]));
    }
    return DLC_OK;
}

static dlc_status pack_outgoing(direction *dir) {
    const dlc_net_tensor_parallel *tp = dir->net->args.tensor_parallel;
    for (int32_t rank = 0; rank < tp->ranks; rank++) {
        block b = outgoing_block(dir, rank), dense = packed(&b);
        int mine = rank == tp->rank;
        if (!block_count(&b) || (mine && !dir->sums))
            continue;
        float *pack = is_dense(&b) ? NULL : take_scratch(dir, block_count(&b));
        if (!dir->scratch)
            continue;
        dir->reshard->pack[rank] = pack ? pack : dir->src + b.begin;
        if (pack)
            DLC_TRY(copy_block(dir->net, dir->src, &b, pack, &dense));
    }
    return DLC_OK;
}

static dlc_status send_packed(const direction *dir) {
    const dlc_net_tensor_parallel *tp = dir->net->args.tensor_parallel;
    for (int32_t i = 1; i < tp->ranks; i++) {
        int32_t rank = net_other_rank(tp, i);
        block b = outgoing_block(dir, rank);
        if (block_count(&b))
            DLC_TRY(submit_one(dir, rank, dir->reshard->pack[rank], NULL,
                               block_count(&b), NULL));
    }
    return DLC_OK;
}

/* Copies what a rank has sent to its place. */
static dlc_status unpack_from(const direction *dir, int32_t rank) {
    block b = incoming_block(dir, rank), dense = packed(&b);
    if (dir->sums || is_dense(&b))
        return DLC_OK;
    return copy_block(dir->net, dir->reshard->source[rank], &dense, dir->dst, &b);
}

static dlc_status wait_received(const direction *dir) {
    const dlc_net_tensor_parallel *tp = dir->net->args.tensor_parallel;
    for (int32_t i = 1; i < tp->ranks; i++) {
        int32_t rank = net_other_rank(tp, i);
        block b = incoming_block(dir, rank);
        if (!block_count(&b))
            continue;
        DLC_TRY(
            dlc_progress_engine_wait(tp->reshard_engine, dir->reshard->received[rank]));
        DLC_TRY(unpack_from(dir, rank));
    }
    return dlc_progress_engine_drain(tp->reshard_engine);
}

/* Handles this rank's own part: a contribution to the sum, or a copy to its place. */
static dlc_status keep_own(const direction *dir) {
    int32_t rank = dir->net->args.tensor_parallel->rank;
    block from = outgoing_block(dir, rank), to = incoming_block(dir, rank);
    if (dir->sums) {
        dir->reshard->source[rank] = dir->reshard->pack[rank];
        return DLC_OK;
    }
    return copy_block(dir->net, dir->src, &from, dir->dst, &to);
}

static dlc_status sum_contributions(const direction *dir) {
    const dlc_net_args *args = &dir->net->args;
    int64_t count = dir->there.rows * dir->there.channels * dir->reshard->spatial;
    if (!dir->sums || count == 0)
        return DLC_OK;
    return args->device_ops->sum(args->device, args->queue, (size_t)count,
                                 dir->reshard->source, args->tensor_parallel->ranks,
                                 dir->dst);
}

/* Clears dst if there are rows that no rank sends, as in the last batch chunk. */
static dlc_status clear_rest(const direction *dir) {
    const dlc_net_args *args = &dir->net->args;
    const net_reshard *reshard = dir->reshard;
    int64_t capacity = dir->to == SAMPLE_SHARDED ? dir->net->chunks.local_rows
                                                 : reshard->samples;
    int64_t rows = 0, channels = dir->there.channels;
    if (!reshard->in_chunk ||
        (dir->from != SAMPLE_SHARDED && dir->to != SAMPLE_SHARDED))
        return DLC_OK;
    for (int32_t rank = 0; rank < args->tensor_parallel->ranks; rank++)
        rows += region_from(dir, rank).rows;
    rows = dir->to == SAMPLE_SHARDED ? dir->there.rows : rows;
    if (rows == capacity)
        return DLC_OK;
    return args->device_ops->fill(args->device, args->queue, dir->dst, 0,
                                  (size_t)(capacity * channels * reshard->spatial) *
                                      sizeof(float));
}

static dlc_status reshard_direction(direction *dir) {
    const dlc_net *net = dir->net;
    DLC_TRY(clear_rest(dir));
    DLC_TRY(dlc_net_sync(net)); /* dst and scratch are no longer in use */
    DLC_TRY(begin_receive(dir));
    DLC_TRY(pack_outgoing(dir));
    DLC_TRY(dlc_net_sync(net));
    DLC_TRY(send_packed(dir));
    DLC_TRY(keep_own(dir));
    DLC_TRY(wait_received(dir));
    return sum_contributions(dir);
}

static dlc_status reshard_forward(const dlc_net *net, net_op *op, net_run kind) {
    direction dir = direction_of(net, (net_reshard *)op, 0, net->chunks.current);
    dir.src = net->tensor[op->input[0]].data;
    dir.dst = net->tensor[op->output[0]].data;
    dir.scratch = op->scratch[kind];
    return reshard_direction(&dir);
}

static dlc_status reshard_backward(const dlc_net *net, net_op *op, uint32_t parts) {
    direction dir = direction_of(net, (net_reshard *)op, 1, net->chunks.current);
    (void)parts;
    dir.src = net->tensor[op->output[0]].diff;
    dir.dst = op->edge[0].target;
    dir.scratch = op->scratch[NET_RUN_BACKWARD];
    return reshard_direction(&dir);
}

/* ---- Shapes ---------------------------------------------------------------------- */

static size_t scratch_of(const dlc_net *net, const net_reshard *reshard, int backward) {
    int32_t chunks = reshard->in_chunk ? net->chunks.count : 1;
    size_t most = 0;
    for (int32_t k = 0; k < chunks; k++) {
        direction dir = direction_of(net, reshard, backward, k);
        (void)begin_receive(&dir); /* without scratch memory this only counts */
        (void)pack_outgoing(&dir);
        most = dir.used > most ? dir.used : most;
    }
    return most * sizeof(float);
}

/* The larger of both directions. Never 0: a NULL scratch pointer means that bytes are
 * only counted. */
static size_t scratch_bytes(const dlc_net *net, const net_reshard *reshard) {
    size_t there = scratch_of(net, reshard, 0);
    size_t back = net_is_training(net) ? scratch_of(net, reshard, 1) : 0;
    size_t most = there > back ? there : back;
    return most ? most : sizeof(float);
}

static int64_t rows_here(const dlc_net *net, net_placement placement, int in_chunk) {
    const dlc_net_tensor_parallel *tp = net->args.tensor_parallel;
    const int64_t *first = tp->first_sample;
    if (in_chunk)
        return placement == SAMPLE_SHARDED ? net->chunks.local_rows : net->chunks.rows;
    return placement == SAMPLE_SHARDED ? first[tp->rank + 1] - first[tp->rank]
                                       : first[tp->ranks] - first[0];
}

static dlc_status check_sample_rows(const dlc_net *net, int32_t tensor) {
    const net_tensor *from = &net->tensor[tensor];
    const dlc_shape *shape = &from->tensor.shape;
    if (!from->is_inferred || from->tensor.dtype == DLC_I32 || shape->rank < 1 ||
        shape->dims[0] != rows_here(net, from->placement, from->in_chunk))
        return dlc_fail(
            DLC_ERR_CONFIG,
            "the output of '%s' does not have one sample per row, so layers "
            "that read it cannot use parallel = tensor",
            dlc_net_tensor_name(net, tensor));
    return DLC_OK;
}

/* Sets the tensor's shape over all ranks. */
static void set_whole_shape(const dlc_net *net, net_reshard *reshard) {
    const net_tensor *from = &net->tensor[reshard->op.input[0]];
    const dlc_shape *shape = &from->tensor.shape;
    reshard->samples = rows_here(net, REPLICATED, reshard->in_chunk);
    reshard->channels = from->placement == CHANNEL_SHARDED ? from->channels
                        : shape->rank > 1                  ? shape->dims[1]
                                                           : 1;
    reshard->spatial = 1;
    for (int32_t i = 2; i < shape->rank; i++)
        reshard->spatial *= shape->dims[i];
}

/* It moves plain float32. */
static dlc_status infer_reshard(dlc_net *net, net_op *op) {
    net_reshard *reshard = (net_reshard *)op;
    DLC_TRY(check_sample_rows(net, op->input[0]));
    set_whole_shape(net, reshard);
    op->in[0] = op->out[0] = (dlc_tensor){
        .shape = net->tensor[op->input[0]].tensor.shape, .dtype = DLC_F32};
    op->out[0].shape.dims[0] = rows_here(net, reshard->to, reshard->in_chunk);
    if (op->out[0].shape.rank > 1)
        op->out[0].shape.dims[1] = reshard->channels;
    op->memory.scratch_bytes = scratch_bytes(net, reshard);
    op->has_backward = 1;
    dlc_net_set_shape(net, op->output[0], &op->out[0]);
    return DLC_OK;
}

/* ---- The kind -------------------------------------------------------------------- */

static void free_reshard(net_op *op) {
    net_reshard *reshard = (net_reshard *)op;
    dlc_free(reshard->pack);
    dlc_free(reshard->source);
    dlc_free(reshard->received);
    dlc_free(reshard->name);
}

static const dlc_net_op_ops RESHARD = {.is_collective = 1,
                                       .infer = infer_reshard,
                                       .forward = reshard_forward,
                                       .backward = reshard_backward,
                                       .describe = dlc_net_describe_inserted,
                                       .free = free_reshard};

static dlc_status make_reshard(const dlc_net *net, net_reshard *made) {
    size_t ranks = (size_t)net->args.tensor_parallel->ranks;
    made->name = dlc_format("%s of %s",
                            made->from == SAMPLE_SHARDED ? "all-gather" : "reshard",
                            dlc_net_tensor_name(net, made->op.input[0]));
    made->op.name = made->name;
    made->received = dlc_alloc(ranks, sizeof *made->received);
    made->source = dlc_alloc(ranks, sizeof *made->source);
    made->pack = dlc_alloc(ranks, sizeof *made->pack);
    return made->name && made->received && made->source && made->pack ? DLC_OK
                                                                      : DLC_ERR_NOMEM;
}

static const net_op *find_reshard(const dlc_net *net, int32_t tensor,
                                  net_placement placement) {
    int32_t at = net->tensor[tensor].converted;
    for (; at != NO_TENSOR; at = net->tensor[at].converted_before) {
        const net_op *op = net->tensor[at].producer;
        if (op->ops == &RESHARD && ((const net_reshard *)op)->to == placement)
            return op;
    }
    return NULL;
}

static dlc_status add_reshard(dlc_net *net, const net_op *reader, int32_t tensor,
                              net_placement placement, int in_chunk, net_op **op) {
    net_op *added = dlc_net_op_insert(net, reader->index, &RESHARD, sizeof(net_reshard),
                                      1);
    if (!added)
        return DLC_ERR_NOMEM;
    net_reshard *reshard = (net_reshard *)added;
    reshard->from = net->tensor[tensor].placement;
    reshard->to = placement;
    reshard->in_chunk = in_chunk;
    added->input[0] = tensor;
    DLC_TRY(make_reshard(net, reshard));
    DLC_TRY(dlc_net_output_add(net, added, 0));
    net->tensor[added->output[0]].placement = placement;
    net->tensor[added->output[0]].in_chunk = in_chunk;
    dlc_net_note_conversion(net, tensor, added->output[0]);
    *op = added;
    return DLC_OK;
}

dlc_status dlc_net_reshard_input(dlc_net *net, net_op *reader, int32_t i,
                                 net_placement placement, int in_chunk) {
    int32_t tensor = reader->input[i];
    if (net->tensor[tensor].placement == placement)
        return DLC_OK;
    if (net->tensor[tensor].placement == REPLICATED)
        return dlc_fail(DLC_ERR_INTERNAL, "'%s' works on the samples of all ranks",
                        dlc_net_tensor_name(net, tensor));
    const net_op *found = find_reshard(net, tensor, placement);
    net_op *added = NULL;
    if (!found) {
        DLC_TRY(add_reshard(net, reader, tensor, placement, in_chunk, &added));
        found = added;
    }
    reader->input[i] = found->output[0];
    return DLC_OK;
}

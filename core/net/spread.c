/* An exchange at work. In its from and to spread every rank has some *region* of one
 * tensor, samples by channels; a rank sends to each other what their regions have in
 * common. Where all ranks have the same region of the gradient that comes back, each a
 * summand of it, what they have in common is added up. */
#include <string.h>

#include "net/portions.h"

static const dlc_tag TAG = UINT64_C(0xdc02000000000000);

/* ---- Regions --------------------------------------------------------------------- */

typedef struct region {
    int64_t row, rows, channel, channels;
} region;

/* `portion`: where the exchange is of one. */
static region region_of(const dlc_net *net, const net_exchange *exchange,
                        net_spread spread, int32_t rank, int32_t portion) {
    const dlc_net_split *split = net->args.split;
    const int64_t *first = split->first;
    region made = {0, exchange->samples, 0, exchange->channels};
    if (spread == SPREAD_OWN && exchange->of_portion) {
        net_rows rows = dlc_net_portion_rows(net, portion, rank);
        made.row = rows.at;
        made.rows = rows.count;
    } else if (spread == SPREAD_OWN) {
        made.row = first[rank] - first[0];
        made.rows = first[rank + 1] - first[rank];
    } else if (spread == SPREAD_SLICED) {
        made.channel = dlc_net_cut(split, exchange->channels, rank);
        made.channels = dlc_net_cut(split, exchange->channels, rank + 1) - made.channel;
    }
    return made;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t common(int64_t a, int64_t a_count, int64_t b, int64_t b_count,
                      int64_t *count) {
    int64_t begin = larger(a, b);
    int64_t end = a + a_count < b + b_count ? a + a_count : b + b_count;
    *count = larger(end - begin, 0);
    return begin;
}

static region intersect(const region *a, const region *b) {
    region made;
    made.row = common(a->row, a->rows, b->row, b->rows, &made.rows);
    made.channel = common(a->channel, a->channels, b->channel, b->channels,
                          &made.channels);
    return made;
}

/* ---- Blocks: a region within another --------------------------------------------- */

typedef struct block {
    int64_t begin, rows, width, stride; /* in elements */
} block;

static block block_in(const net_exchange *exchange, const region *outer,
                      const region *inner) {
    int64_t spatial = exchange->spatial;
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

/* The same block, by itself. */
static block packed(const block *b) {
    return (block){.rows = b->rows, .width = b->width, .stride = b->width};
}

static dlc_status copy(const dlc_net *net, const float *from, const block *at_from,
                       float *to, const block *at_to) {
    const dlc_net_args *args = &net->args;
    int dense = is_dense(at_from) && is_dense(at_to);
    int64_t rows = dense ? 1 : at_from->rows;
    size_t bytes = sizeof(float) *
                   (dense ? block_count(at_from) : (size_t)at_from->width);
    for (int64_t i = 0; bytes > 0 && i < rows; i++)
        DLC_TRY(args->device_ops->copy(
            args->device, args->queue, to + at_to->begin + i * at_to->stride,
            from + at_from->begin + i * at_from->stride, bytes));
    return DLC_OK;
}

/* ---- One way of an exchange ------------------------------------------------------ */

typedef struct passage {
    const dlc_net *net;
    net_exchange *exchange;
    net_spread from, to;
    int32_t portion;
    int sums;
    region here, there; /* what this rank has, and what it gets */
    const float *src;
    float *dst;
    float *scratch; /* NULL: only to see how much is needed */
    size_t used;    /* of it */
} passage;

static region region_from(const passage *way, int32_t rank) {
    return region_of(way->net, way->exchange, way->from, rank, way->portion);
}

static region region_to(const passage *way, int32_t rank) {
    return region_of(way->net, way->exchange, way->to, rank, way->portion);
}

static passage passage_of(const dlc_net *net, net_exchange *exchange, int backward,
                          int32_t portion) {
    int32_t rank = net->args.split->rank;
    passage way = {.net = net,
                   .exchange = exchange,
                   .from = backward ? exchange->to : exchange->from,
                   .to = backward ? exchange->from : exchange->to,
                   .portion = portion};
    way.sums = backward && exchange->to == SPREAD_WHOLE;
    way.here = region_from(&way, rank);
    way.there = region_to(&way, rank);
    return way;
}

static float *take(passage *way, size_t count) {
    enum { LINE = 16 };
    float *place = way->scratch ? way->scratch + way->used : NULL;
    way->used += (count + LINE - 1) / LINE * LINE;
    return place;
}

/* What comes from a rank: where it goes in dst. */
static block incoming(const passage *way, int32_t rank) {
    region theirs = region_from(way, rank);
    region shared = intersect(&theirs, &way->there);
    return block_in(way->exchange, &way->there, &shared);
}

/* What goes to a rank: where it is in src. */
static block outgoing(const passage *way, int32_t rank) {
    region theirs = region_to(way, rank);
    region shared = intersect(&way->here, &theirs);
    return block_in(way->exchange, &way->here, &shared);
}

static int is_staged(const passage *way, const block *b) {
    return way->sums || !is_dense(b);
}

/* The i-th of the others, each rank beginning with the one behind it. */
static int32_t other(const passage *way, int32_t i) {
    const dlc_net_split *split = way->net->args.split;
    return (split->rank + i) % split->ranks;
}

static dlc_status receive_all(passage *way) {
    const dlc_net_split *split = way->net->args.split;
    for (int32_t i = 1; i < split->ranks; i++) {
        int32_t rank = other(way, i);
        block b = incoming(way, rank);
        size_t count = block_count(&b);
        if (!count)
            continue;
        float *to = is_staged(way, &b) ? take(way, count) : NULL;
        if (!way->scratch)
            continue;
        if (!to)
            to = way->dst + b.begin;
        way->exchange->source[rank] = to;
        DLC_TRY(split->mail->recv(split->mail->context, rank, TAG, to,
                                  count * sizeof(float),
                                  &way->exchange->request[rank]));
    }
    return DLC_OK;
}

static dlc_status pack_all(passage *way, const float **packs) {
    const dlc_net_split *split = way->net->args.split;
    for (int32_t rank = 0; rank < split->ranks; rank++) {
        block b = outgoing(way, rank), dense = packed(&b);
        int mine = rank == split->rank;
        if (!block_count(&b) || (mine && !way->sums))
            continue;
        float *pack = is_dense(&b) ? NULL : take(way, block_count(&b));
        if (!way->scratch)
            continue;
        packs[rank] = pack ? pack : way->src + b.begin;
        if (pack)
            DLC_TRY(copy(way->net, way->src, &b, pack, &dense));
    }
    return DLC_OK;
}

static dlc_status send_all(passage *way, const float *const *packs) {
    const dlc_net_split *split = way->net->args.split;
    for (int32_t i = 1; i < split->ranks; i++) {
        int32_t rank = other(way, i);
        block b = outgoing(way, rank);
        if (!block_count(&b))
            continue;
        DLC_TRY(split->mail->send(split->mail->context, rank, TAG, packs[rank],
                                  block_count(&b) * sizeof(float),
                                  &way->exchange->request[split->ranks + rank]));
    }
    return DLC_OK;
}

/* What has come from a rank, to its place. */
static dlc_status unpack(const passage *way, int32_t rank) {
    block b = incoming(way, rank), dense = packed(&b);
    if (way->sums || is_dense(&b))
        return DLC_OK;
    return copy(way->net, way->exchange->source[rank], &dense, way->dst, &b);
}

static dlc_status wait_all(const passage *way) {
    const dlc_net_split *split = way->net->args.split;
    const dlc_mail *mail = split->mail;
    dlc_request **request = way->exchange->request;
    int32_t left = 0;
    for (int32_t i = 0; i < 2 * split->ranks; i++)
        left += request[i] != NULL;
    while (left > 0) {
        int32_t which = -1;
        DLC_TRY(mail->wait_any(mail->context, request, 2 * split->ranks, 1.0, &which));
        if (which < 0) {
            DLC_TRY(mail->check(mail->context));
            continue;
        }
        request[which] = NULL;
        left--;
        if (which < split->ranks)
            DLC_TRY(unpack(way, which));
    }
    return DLC_OK;
}

/* This rank's own part: its summand, or its place. */
static dlc_status keep_own(const passage *way, const float *const *packs) {
    int32_t rank = way->net->args.split->rank;
    block from = outgoing(way, rank), to = incoming(way, rank);
    if (way->sums) {
        way->exchange->source[rank] = packs[rank];
        return DLC_OK;
    }
    return copy(way->net, way->src, &from, way->dst, &to);
}

static dlc_status sum(const passage *way) {
    const dlc_net_args *args = &way->net->args;
    int64_t count = way->there.rows * way->there.channels * way->exchange->spatial;
    if (!way->sums || count == 0)
        return DLC_OK;
    return args->device_ops->sum(args->device, args->queue, (size_t)count,
                                 way->exchange->source, args->split->ranks, way->dst);
}

/* Rows that nobody sends, in the last portion, are zero. */
static dlc_status clear_rest(const passage *way) {
    const dlc_net_args *args = &way->net->args;
    const net_exchange *exchange = way->exchange;
    int64_t capacity = way->to == SPREAD_OWN ? way->net->portions.own_rows
                                             : exchange->samples;
    int64_t rows = 0, channels = way->there.channels;
    if (!exchange->of_portion || (way->from != SPREAD_OWN && way->to != SPREAD_OWN))
        return DLC_OK;
    for (int32_t rank = 0; rank < args->split->ranks; rank++)
        rows += region_from(way, rank).rows;
    rows = way->to == SPREAD_OWN ? way->there.rows : rows;
    if (rows == capacity)
        return DLC_OK;
    return args->device_ops->fill(args->device, args->queue, way->dst, 0,
                                  (size_t)(capacity * channels * exchange->spatial) *
                                      sizeof(float));
}

static dlc_status run(passage *way) {
    const dlc_net *net = way->net;
    const dlc_net_split *split = net->args.split;
    const float **packs = way->exchange->pack;
    memset(way->exchange->request, 0,
           2 * (size_t)split->ranks * sizeof *way->exchange->request);
    DLC_TRY(clear_rest(way));
    DLC_TRY(dlc_net_sync(net)); /* nobody works in what is received into */
    DLC_TRY(receive_all(way));
    DLC_TRY(pack_all(way, packs));
    DLC_TRY(dlc_net_sync(net));
    DLC_TRY(send_all(way, packs));
    DLC_TRY(keep_own(way, packs));
    DLC_TRY(wait_all(way));
    return sum(way);
}

static size_t scratch_of(const dlc_net *net, net_exchange *exchange, int backward) {
    int32_t portions = exchange->of_portion ? net->portions.count : 1;
    size_t most = 0;
    for (int32_t k = 0; k < portions; k++) {
        passage way = passage_of(net, exchange, backward, k);
        (void)receive_all(&way); /* nothing is sent */
        (void)pack_all(&way, NULL);
        most = way.used > most ? way.used : most;
    }
    return most * sizeof(float);
}

size_t dlc_net_exchange_scratch(const dlc_net *net, net_exchange *exchange) {
    size_t forward = scratch_of(net, exchange, 0);
    size_t backward = net->args.phase == DLC_PHASE_TRAIN ? scratch_of(net, exchange, 1)
                                                         : 0;
    /* Never none: its address tells a run from a look. */
    size_t most = forward > backward ? forward : backward;
    return most ? most : sizeof(float);
}

dlc_status dlc_net_exchange_forward(const dlc_net *net, net_op *op, const void *in,
                                    void *out) {
    passage way = passage_of(net, op->exchange, 0, net->portions.at);
    way.src = in;
    way.dst = out;
    way.scratch = op->scratch[NET_RUN_FORWARD];
    return run(&way);
}

dlc_status dlc_net_exchange_backward(const dlc_net *net, net_op *op,
                                     const void *out_diff, void *in_diff) {
    passage way = passage_of(net, op->exchange, 1, net->portions.at);
    way.src = out_diff;
    way.dst = in_diff;
    way.scratch = op->scratch[NET_RUN_BACKWARD];
    return run(&way);
}

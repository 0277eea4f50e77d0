/* Portions at work: see portions.h. The courier has memory that it was given until it
 * is awaited; all else is the train thread's, or the queue's. */
#include "net/portions.h"

static const dlc_tag GATHER = UINT64_C(0xdc03000000000000),
                     HOME = UINT64_C(0xdc04000000000000);

static net_op *gather_of(const dlc_net *net) {
    return &net->op[net->portions.first_op];
}

static net_tensor *gathered(const dlc_net *net) {
    return &net->tensor[gather_of(net)->output[0]];
}

/* In numbers. */
static size_t row_size(const dlc_net *net) {
    const dlc_shape *shape = &gathered(net)->tensor.shape;
    return (size_t)(dlc_shape_count(shape) / shape->dims[0]);
}

static int32_t ranks_of(const dlc_net *net) {
    return net->args.split->ranks;
}

static net_rows own_rows(const dlc_net *net, int32_t portion) {
    return dlc_net_portion_rows(net, portion, net->args.split->rank);
}

static dlc_status copy(const dlc_net *net, void *dst, const void *src, size_t bytes) {
    const dlc_net_args *args = &net->args;
    return bytes ? args->device_ops->copy(args->device, args->queue, dst, src, bytes)
                 : DLC_OK;
}

static dlc_status fill(const dlc_net *net, void *dst, int byte, size_t bytes) {
    const dlc_net_args *args = &net->args;
    return args->device_ops->fill(args->device, args->queue, dst, byte, bytes);
}

static void watch(const dlc_net *net, const char *phase) {
    if (net->args.watch)
        net->args.watch(net->args.watch_context, phase, gather_of(net)->name);
}

/* ---- Parcels --------------------------------------------------------------------- */

static void add_parcel(dlc_net *net, int32_t *count, dlc_parcel parcel) {
    if (parcel.bytes > 0)
        net->portions.parcel[(*count)++] = parcel;
}

static dlc_status give(dlc_net *net, int32_t count, uint64_t *ticket) {
    return dlc_courier_give(net->args.split->courier, net->portions.parcel, count,
                            ticket);
}

static dlc_status await(const dlc_net *net, uint64_t ticket) {
    return dlc_courier_await(net->args.split->courier, ticket);
}

/* The i-th of the others, each rank beginning with the one behind it. */
static int32_t other(const dlc_net *net, int32_t i) {
    return (net->args.split->rank + i) % ranks_of(net);
}

/* ---- Gathering the cut ----------------------------------------------------------- */

static int is_full(const dlc_net *net, int32_t portion) {
    int64_t count = 0;
    for (int32_t r = 0; r < ranks_of(net); r++)
        count += dlc_net_portion_rows(net, portion, r).count;
    return count == net->portions.rows;
}

/* Begins it; nobody works in `to`. */
static dlc_status begin_gather(dlc_net *net, int32_t portion, float *to) {
    net_portions *portions = &net->portions;
    size_t row = row_size(net);
    float *from = net->tensor[gather_of(net)->input[0]].data;
    net_rows own = own_rows(net, portion);
    int32_t count = 0;
    if (!is_full(net, portion))
        DLC_TRY(fill(net, to, 0, (size_t)portions->rows * row * sizeof *to));
    DLC_TRY(dlc_net_sync(net));
    for (int32_t i = 1; i < ranks_of(net); i++) {
        int32_t rank = other(net, i);
        net_rows rows = dlc_net_portion_rows(net, portion, rank);
        add_parcel(net, &count,
                   (dlc_parcel){.peer = rank,
                                .tag = GATHER | (dlc_tag)portion,
                                .buffer = to + (size_t)rows.at * row,
                                .bytes = (size_t)rows.count * row * sizeof *to});
    }
    DLC_TRY(give(net, count, &portions->gathered[portion % 2]));
    count = 0;
    for (int32_t i = 1; i < ranks_of(net); i++)
        add_parcel(net, &count,
                   (dlc_parcel){.peer = other(net, i),
                                .is_sent = 1,
                                .tag = GATHER | (dlc_tag)portion,
                                .buffer = from + (size_t)own.own * row,
                                .bytes = (size_t)own.count * row * sizeof *to});
    DLC_TRY(give(net, count, &portions->sent));
    return copy(net, to + (size_t)own.at * row, from + (size_t)own.own * row,
                (size_t)own.count * row * sizeof *to);
}

/* ---- Gradients of the cut -------------------------------------------------------- */

/* Where what comes of another rank's goes. */
static float *place_of(const dlc_net *net, float *came, int32_t i) {
    return came + (size_t)(i - 1) * (size_t)net->portions.own_rows * row_size(net);
}

/* Everybody's part of the gradient goes to whose samples it is of. */
static dlc_status begin_home(dlc_net *net, int32_t portion) {
    net_portions *portions = &net->portions;
    size_t row = row_size(net);
    float *diff = gathered(net)->diff,
          *came = dlc_net_buffer_at(net, portions->came[0]);
    net_rows own = own_rows(net, portion);
    int32_t count = 0;
    DLC_TRY(dlc_net_sync(net));
    for (int32_t i = 1; i < ranks_of(net); i++)
        add_parcel(net, &count,
                   (dlc_parcel){.peer = other(net, i),
                                .tag = HOME | (dlc_tag)portion,
                                .buffer = place_of(net, came, i),
                                .bytes = (size_t)own.count * row * sizeof *diff});
    for (int32_t i = 1; i < ranks_of(net); i++) {
        int32_t rank = other(net, i);
        net_rows rows = dlc_net_portion_rows(net, portion, rank);
        add_parcel(net, &count,
                   (dlc_parcel){.peer = rank,
                                .is_sent = 1,
                                .tag = HOME | (dlc_tag)portion,
                                .buffer = diff + (size_t)rows.at * row,
                                .bytes = (size_t)rows.count * row * sizeof *diff});
    }
    return give(net, count, &portions->came_home[portion % 2]);
}

/* The sum of all parts is in the gradient of the cut. */
static dlc_status end_home(const dlc_net *net, int32_t portion, const float *diff,
                           float *came) {
    const dlc_net_args *args = &net->args;
    const net_op *gather = gather_of(net);
    size_t row = row_size(net);
    net_rows own = own_rows(net, portion);
    float *into = gather->edge[0].part;
    watch(net, "backward");
    DLC_TRY(await(net, net->portions.came_home[portion % 2]));
    if (own.count == 0)
        return DLC_OK;
    gather->exchange->source[args->split->rank] = diff + (size_t)own.at * row;
    for (int32_t i = 1; i < ranks_of(net); i++)
        gather->exchange->source[other(net, i)] = place_of(net, came, i);
    return args->device_ops->sum(args->device, args->queue, (size_t)own.count * row,
                                 gather->exchange->source, ranks_of(net),
                                 into + (size_t)own.own * row);
}

static int goes_home(const dlc_net *net) {
    return gather_of(net)->runs_backward;
}

/* That of the portion at work, and of the one before it. */
static dlc_status end_last_home(const dlc_net *net, int32_t portion) {
    return end_home(net, portion, gathered(net)->diff,
                    dlc_net_buffer_at(net, net->portions.came[0]));
}

static dlc_status end_other_home(const dlc_net *net, int32_t portion) {
    return end_home(net, portion, dlc_net_buffer_at(net, net->portions.other_diff),
                    dlc_net_buffer_at(net, net->portions.came[1]));
}

/* ---- A portion ------------------------------------------------------------------- */

static void swap_offsets(const dlc_net *net, int32_t one, int32_t other_one) {
    if (one < 0 || other_one < 0)
        return;
    size_t offset = net->buffer[one].offset;
    net->buffer[one].offset = net->buffer[other_one].offset;
    net->buffer[other_one].offset = offset;
}

/* What was the other place is the one to work in. */
static void take_turns(dlc_net *net) {
    net_portions *portions = &net->portions;
    net_tensor *tensor = gathered(net);
    int32_t came = portions->came[0];
    swap_offsets(net, tensor->data_buffer, portions->other_data);
    swap_offsets(net, tensor->diff_buffer, portions->other_diff);
    portions->came[0] = portions->came[1];
    portions->came[1] = came;
    for (int32_t i = 0; i < net->tensors; i++) { /* others may lie in them, too */
        net_tensor *each = &net->tensor[i];
        if (each->data_buffer >= 0 && each->data_buffer == tensor->data_buffer)
            each->data = dlc_net_buffer_at(net, each->data_buffer);
        if (each->diff_buffer >= 0 && each->diff_buffer == tensor->diff_buffer)
            each->diff = dlc_net_buffer_at(net, each->diff_buffer);
    }
}

static dlc_status show_labels(const dlc_net *net, int32_t portion) {
    const net_portions *portions = &net->portions;
    net_rows own = own_rows(net, portion);
    int32_t *to = net->tensor[portions->label].data;
    const int32_t *from = net->tensor[TENSOR_LABEL].data;
    if (own.count < portions->own_rows) /* DLC_LABEL_NONE: all bits are set */
        DLC_TRY(fill(net, to, 0xff, (size_t)portions->own_rows * sizeof *to));
    return copy(net, to, from + own.own, (size_t)own.count * sizeof *to);
}

/* It is gathered and can be worked on; the next one is on its way. */
static dlc_status begin_portion(dlc_net *net, int32_t portion) {
    net_portions *portions = &net->portions;
    if (portion > 1 && goes_home(net))
        DLC_TRY(end_other_home(net, portion - 2));
    if (portion > 0)
        take_turns(net);
    portions->at = portion;
    dlc_net_point_from(net, portions->first_op);
    watch(net, "forward");
    DLC_TRY(await(net, portions->gathered[portion % 2]));
    if (portion + 1 < portions->count)
        DLC_TRY(begin_gather(net, portion + 1,
                             dlc_net_buffer_at(net, portions->other_data)));
    return show_labels(net, portion);
}

static dlc_status portion_forward(dlc_net *net, int32_t portion) {
    DLC_TRY(begin_portion(net, portion));
    for (int32_t i = net->portions.first_op + 1; i < net->ops; i++)
        DLC_TRY(
            dlc_net_forward_op(net, i, net->portions.iteration, net->portions.sample));
    return DLC_OK;
}

static dlc_status forget_metrics(const dlc_net *net) {
    for (int32_t i = net->portions.first_op; i < net->ops; i++)
        if (net->op[i].mean_buffer != NO_BUFFER)
            DLC_TRY(fill(net, dlc_net_buffer_at(net, net->op[i].mean_buffer), 0,
                         2 * sizeof(float)));
    return DLC_OK;
}

static dlc_status begin(dlc_net *net) {
    DLC_TRY(forget_metrics(net));
    return begin_gather(net, 0, gathered(net)->data);
}

dlc_status dlc_net_portions_forward(dlc_net *net) {
    DLC_TRY(begin(net));
    for (int32_t k = 0; k < net->portions.count; k++)
        DLC_TRY(portion_forward(net, k));
    return await(net, net->portions.sent);
}

typedef struct told {
    dlc_status (*done)(void *context, size_t elements);
    void *context;
} told;

/* The loss is the mean over all of this rank's samples. */
static dlc_status portion_backward(dlc_net *net, int32_t portion, float loss_scale,
                                   const told *who) {
    int is_last = portion == net->portions.count - 1;
    double share = (double)own_rows(net, portion).count / (double)net->args.batch;
    for (int32_t i = net->ops - 1; i > net->portions.first_op; i--)
        DLC_TRY(dlc_net_backward_op(net, i, loss_scale * (float)share,
                                    is_last ? who->done : NULL, who->context));
    return goes_home(net) ? begin_home(net, portion) : DLC_OK;
}

dlc_status dlc_net_portions_train(dlc_net *net, float loss_scale,
                                  dlc_status (*done)(void *context, size_t elements),
                                  void *context) {
    const told who = {done, context};
    int32_t count = net->portions.count;
    DLC_TRY(begin(net));
    for (int32_t k = 0; k < count; k++) {
        DLC_TRY(portion_forward(net, k));
        DLC_TRY(portion_backward(net, k, loss_scale, &who));
    }
    if (goes_home(net) && count > 1)
        DLC_TRY(end_other_home(net, count - 2));
    if (goes_home(net))
        DLC_TRY(end_last_home(net, count - 1));
    return await(net, net->portions.sent);
}

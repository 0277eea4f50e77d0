/* See portions.h. This file knows whose rows are where, and what a portion leaves to
 * the next; portions_run.c moves them. */
#include "net/portions.h"

#include <string.h>

#include "base/memory.h"

/* ---- The group ------------------------------------------------------------------- */

static int is_here(const dlc_graph_layer *layer, dlc_phase phase) {
    return (layer->phases & (unsigned)phase) != 0;
}

/* Done along with the split layers that it stands between. */
static int is_light(const dlc_graph_layer *layer) {
    return layer->inputs == 1 &&
           (layer->feature->caps & (DLC_LAYER_SAMPLEWISE | DLC_LAYER_POINTWISE)) != 0;
}

/* The first of the split layers that no other layer comes between, from the last one of
 * all back. -1: none is split. */
static int32_t first_of_last(const dlc_graph *graph, dlc_phase phase,
                             const char *split) {
    int32_t first = -1;
    for (int32_t i = graph->layers - 1; i >= 0; i--) {
        const dlc_graph_layer *layer = &graph->layer[i];
        if (!is_here(layer, phase))
            continue;
        if (split[i])
            first = i;
        else if (first >= 0 && !is_light(layer))
            break;
    }
    return first;
}

/* What it reads must be labels, of the group, or, for a split layer, the cut. */
static dlc_status check_inputs(const dlc_graph *graph, int32_t first, int32_t i,
                               const char *split) {
    const dlc_graph_layer *layer = &graph->layer[i];
    dlc_graph_input cut = graph->layer[first].input[0];
    for (int32_t j = 0; j < layer->inputs; j++) {
        dlc_graph_input input = layer->input[j];
        int is_label = input.layer == DLC_FROM_DATA && input.output == 1;
        int is_cut = input.layer == cut.layer && input.output == cut.output;
        if (!is_label && input.layer < first && !(is_cut && split[i]))
            return dlc_fail(DLC_ERR_CONFIG,
                            "layer '%s', which comes behind split layers, reads what "
                            "comes before them",
                            layer->name);
    }
    return DLC_OK;
}

int32_t dlc_net_find_group(const dlc_graph *graph, dlc_phase phase, const char *split) {
    int32_t first = first_of_last(graph, phase, split);
    if (first < 0)
        (void)dlc_fail(DLC_ERR_CONFIG, "no layer is split");
    for (int32_t i = first; first >= 0 && i < graph->layers; i++)
        if (is_here(&graph->layer[i], phase) &&
            check_inputs(graph, first, i, split) != DLC_OK)
            return -1;
    return first;
}

int dlc_net_in_group(const dlc_net *net, int32_t node) {
    return net->portions.count > 0 && node >= net->portions.node;
}

int dlc_net_op_in_group(const dlc_net *net, int32_t op) {
    return net->portions.count > 0 && op >= net->portions.first_op;
}

/* ---- Rows ------------------------------------------------------------------------ */

static int64_t divide_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}

static int64_t smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static int64_t larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t common_divisor(int64_t a, int64_t b) {
    return b ? common_divisor(b, a % b) : a;
}

static int64_t first_of(const dlc_net_split *split, int32_t rank) {
    return split->first[rank] - split->first[0];
}

/* Rows that a rank has in every portion but the last, where each has some of all. */
static int64_t rows_each(const dlc_net_split *split, int32_t rank) {
    return divide_up(first_of(split, rank + 1) - first_of(split, rank), split->ranks);
}

static net_rows consecutive_rows(const dlc_net *net, int32_t portion, int32_t rank) {
    const dlc_net_split *split = net->args.split;
    int64_t begin = portion * net->portions.rows, end = begin + net->portions.rows;
    int64_t from = larger(begin, first_of(split, rank));
    int64_t to = smaller(end, first_of(split, rank + 1));
    return (net_rows){.at = from - begin,
                      .own = from - first_of(split, rank),
                      .count = larger(to - from, 0)};
}

static net_rows rows_of_each(const dlc_net *net, int32_t portion, int32_t rank) {
    const dlc_net_split *split = net->args.split;
    int64_t each = rows_each(split, rank);
    int64_t all = first_of(split, rank + 1) - first_of(split, rank);
    net_rows rows = {.own = portion * each,
                     .count = larger(smaller(each, all - portion * each), 0)};
    for (int32_t r = 0; r < rank; r++)
        rows.at += rows_each(split, r);
    return rows;
}

net_rows dlc_net_portion_rows(const dlc_net *net, int32_t portion, int32_t rank) {
    net_rows rows = net->args.split->way == DLC_SPLIT_ROTATING
                        ? consecutive_rows(net, portion, rank)
                        : rows_of_each(net, portion, rank);
    return rows.count > 0 ? rows : (net_rows){0};
}

static void measure_consecutive(const dlc_net_split *split, net_portions *portions) {
    int64_t all = first_of(split, split->ranks);
    portions->rows = portions->block = divide_up(all, split->ranks);
    portions->count = (int32_t)divide_up(all, portions->rows);
}

static void measure_each(const dlc_net_split *split, net_portions *portions) {
    for (int32_t r = 0; r < split->ranks; r++) {
        int64_t each = rows_each(split, r);
        int64_t all = first_of(split, r + 1) - first_of(split, r);
        portions->rows += each;
        portions->block = common_divisor(portions->block, each);
        portions->count = (int32_t)larger(portions->count, divide_up(all, each));
    }
}

dlc_status dlc_net_portions_open(dlc_net *net) {
    const dlc_net_split *split = net->args.split;
    net_portions *portions = &net->portions;
    if (!split || split->way == DLC_SPLIT_WHOLE || split->ranks < 2)
        return DLC_OK;
    portions->node = dlc_net_find_group(net->args.graph, net->args.phase,
                                        split->layers);
    if (portions->node < 0) /* of this phase */
        return DLC_OK;
    portions->parcel = dlc_alloc((size_t)dlc_net_parcels(split->ranks),
                                 sizeof *portions->parcel);
    if (!portions->parcel)
        return DLC_ERR_NOMEM;
    if (split->way == DLC_SPLIT_ROTATING)
        measure_consecutive(split, portions);
    else
        measure_each(split, portions);
    for (int32_t k = 0; k < portions->count; k++)
        portions->own_rows = larger(portions->own_rows,
                                    dlc_net_portion_rows(net, k, split->rank).count);
    portions->other_data = portions->other_diff = NO_BUFFER;
    portions->came[0] = portions->came[1] = NO_BUFFER;
    portions->first_op = NO_OP;
    return DLC_OK;
}

/* ---- Blocks ---------------------------------------------------------------------- */

int64_t dlc_net_block_rows(const dlc_net *net, const net_op *op) {
    const net_portions *portions = &net->portions;
    uint64_t caps = op->feature->caps;
    int knows = caps & DLC_LAYER_SAMPLEWISE && !(caps & DLC_LAYER_POINTWISE);
    int whole = !dlc_net_in_group(net, op->node) || !op->of_all ||
                portions->block == portions->rows;
    return knows && !whole ? portions->block : 0;
}

/* Where a row of all ranks' samples in the portion comes from. */
static int64_t sample_of_row(const dlc_net *net, int64_t row) {
    const net_portions *portions = &net->portions;
    const dlc_net_split *split = net->args.split;
    if (split->way == DLC_SPLIT_ROTATING)
        return portions->at * portions->rows + row;
    for (int32_t r = 0; r < split->ranks; r++) {
        int64_t each = rows_each(split, r);
        if (row < each)
            return first_of(split, r) + portions->at * each + row;
        row -= each;
    }
    return 0;
}

int64_t dlc_net_portion_sample(const dlc_net *net, const net_op *op, int64_t sample) {
    if (op->of_all)
        return sample_of_row(net, 0);
    return sample +
           dlc_net_portion_rows(net, net->portions.at, net->args.split->rank).own;
}

static size_t workspace_of_block(const net_op *op) {
    size_t mask = DLC_BUFFER_ALIGNMENT - 1;
    return (op->plan.workspace_bytes + mask) & ~mask;
}

size_t dlc_net_workspace(const dlc_net *net, const net_op *op) {
    if (!op->block_rows)
        return op->plan.workspace_bytes;
    return workspace_of_block(op) * (size_t)(net->portions.rows / op->block_rows);
}

static int is_plain_block(const net_op *op) {
    return op->plan.inputs == 1 && op->plan.outputs == 1 && op->plan.params == 0 &&
           op->out[0].shape.rank > 0 && op->out[0].shape.dims[0] == op->block_rows;
}

dlc_status dlc_net_check_portions(const dlc_net *net, const net_op *op) {
    if (!dlc_net_in_group(net, op->node))
        return DLC_OK;
    for (int32_t j = 0; j < op->plan.params; j++)
        if (op->param[j].flags & DLC_PARAM_BUFFER)
            return dlc_fail(DLC_ERR_CONFIG,
                            "layer '%s' looks at all samples of a batch, which cannot "
                            "be had in portions; take [parallel] tensor_schedule = whole_batch",
                            op->name);
    if (op->block_rows && !is_plain_block(op))
        return dlc_fail(DLC_ERR_CONFIG,
                        "layer '%s': type '%s' cannot be given samples of several "
                        "ranks; take [parallel] tensor_schedule = by_rank or whole",
                        op->name, op->feature->name);
    return DLC_OK;
}

static char *behind(const void *address, size_t bytes) {
    char *at = NULL;
    if (!address)
        return NULL;
    memcpy(&at, &address, sizeof at);
    return at + bytes;
}

static dlc_status run_block(const net_op *op, dlc_layer_run run, int64_t block,
                            dlc_status (*call)(dlc_layer *layer,
                                               const dlc_layer_run *run)) {
    size_t at = (size_t)block;
    size_t in_bytes = at * dlc_tensor_bytes(&op->in[0]);
    size_t out_bytes = at * dlc_tensor_bytes(&op->out[0]);
    const void *in[1] = {behind(op->in_data[0], in_bytes)};
    void *in_diff[1] = {behind(op->in_diff[0], in_bytes)};
    void *out[1] = {behind(op->out_data[0], out_bytes)};
    void *out_diff[1] = {behind(op->out_diff[0], out_bytes)};
    run.in = in;
    run.in_diff = in_diff;
    run.out = out;
    run.out_diff = out_diff;
    run.workspace = behind(run.workspace, at * workspace_of_block(op));
    return call(op->layer, &run);
}

dlc_status dlc_net_run_layer(const dlc_net *net, net_op *op,
                             dlc_status (*run)(dlc_layer *layer,
                                               const dlc_layer_run *run)) {
    if (!op->block_rows)
        return run(op->layer, &op->run);
    dlc_layer_run block = op->run;
    for (int64_t i = 0; i * op->block_rows < net->portions.rows; i++) {
        block.sample = sample_of_row(net, i * op->block_rows);
        DLC_TRY(run_block(op, block, i, run));
    }
    return DLC_OK;
}

/* ---- The memory plan ------------------------------------------------------------- */

void dlc_net_portions_find(dlc_net *net) {
    for (int32_t i = 0; net->portions.count > 0 && i < net->ops; i++)
        if (net->op[i].exchange && net->tensor[net->op[i].output[0]].of_portion &&
            !net->tensor[net->op[i].input[0]].of_portion) {
            net->portions.first_op = i;
            return;
        }
}

int dlc_net_outlives_portion(const dlc_net *net, int32_t tensor) {
    const net_portions *portions = &net->portions;
    if (portions->count == 0)
        return 0;
    const net_op *gather = &net->op[portions->first_op];
    return tensor == gather->input[0] || tensor == gather->output[0] ||
           tensor == TENSOR_LABEL || tensor == portions->label;
}

static size_t row_bytes(const net_op *gather) {
    return dlc_tensor_bytes(&gather->out[0]) / (size_t)gather->out[0].shape.dims[0];
}

/* From the group's first step to its last. */
static int32_t add_lasting(dlc_net *net, size_t bytes) {
    int32_t first = net->portions.first_op;
    return dlc_net_buffer_add(net, bytes, first, net_backward_step(net, first));
}

/* The second of two places; the first one lasts as long. */
static dlc_status plan_other(dlc_net *net, int32_t buffer, int32_t *other) {
    int32_t first = net->portions.first_op;
    if (buffer < 0)
        return DLC_OK;
    dlc_buffer *one = &net->buffer[buffer];
    one->first = one->first < first ? one->first : first;
    int32_t last = net_backward_step(net, first);
    one->last = one->last > last ? one->last : last;
    *other = add_lasting(net, one->bytes);
    return *other < 0 ? *other : DLC_OK;
}

/* Gradients of this rank's rows that the others have. */
static dlc_status plan_came(dlc_net *net) {
    net_portions *portions = &net->portions;
    const net_op *gather = &net->op[portions->first_op];
    size_t others = (size_t)net->args.split->ranks - 1;
    for (int i = 0; gather->runs_backward && i < 2; i++) {
        portions->came[i] = add_lasting(net, others * (size_t)portions->own_rows *
                                                 row_bytes(gather));
        if (portions->came[i] < 0)
            return portions->came[i];
    }
    return DLC_OK;
}

static size_t sum_count(const dlc_net *net, const net_op *op, int32_t params) {
    enum { LINE = 16 };
    size_t count = 0;
    for (int32_t j = 0; j < params; j++)
        count += (net->param[op->first_param + j].count + LINE - 1) / LINE * LINE;
    return count;
}

static dlc_status plan_sums(dlc_net *net, int32_t index) {
    net_op *op = &net->op[index];
    if (op->feature && dlc_net_is_metric(op)) {
        op->mean_buffer = dlc_net_buffer_add(
            net, 2 * sizeof(float), net->portions.first_op, net_backward_step(net, 0));
        if (op->mean_buffer < 0)
            return op->mean_buffer;
    }
    size_t count = op->runs_backward && op->feature
                       ? sum_count(net, op, op->plan.params)
                       : 0;
    if (!count)
        return DLC_OK;
    int32_t step = net_backward_step(net, index);
    op->sum_buffer = dlc_net_buffer_add(net, count * sizeof(float), step, step);
    return op->sum_buffer < 0 ? op->sum_buffer : DLC_OK;
}

dlc_status dlc_net_portions_plan(dlc_net *net) {
    net_portions *portions = &net->portions;
    if (portions->count == 0)
        return DLC_OK;
    const net_tensor *gathered = &net->tensor[net->op[portions->first_op].output[0]];
    DLC_TRY(plan_other(net, gathered->data_buffer, &portions->other_data));
    DLC_TRY(plan_other(net, gathered->diff_buffer, &portions->other_diff));
    DLC_TRY(plan_came(net));
    for (int32_t i = portions->first_op; i < net->ops; i++)
        if (net_is_running(&net->op[i]))
            DLC_TRY(plan_sums(net, i));
    return DLC_OK;
}

/* ---- Sums ------------------------------------------------------------------------ */

int dlc_net_is_idle(const dlc_net *net, const net_op *op) {
    const net_tensor *out = &net->tensor[op->output[0]];
    return out->of_portion && out->spread == SPREAD_OWN && !op->exchange &&
           dlc_net_portion_rows(net, net->portions.at, net->args.split->rank).count ==
               0;
}

/* Pointers are those of the first portion again when a portion begins. */
void dlc_net_divert_gradients(const dlc_net *net, net_op *op) {
    if (net->portions.at == 0 || op->sum_buffer == NO_BUFFER)
        return;
    float *sum = dlc_net_buffer_at(net, op->sum_buffer);
    for (int32_t j = 0; j < op->plan.params; j++)
        op->param_diffs[j] = sum + sum_count(net, op, j);
}

/* Of an operation that is idle in the first portion they are zero. */
dlc_status dlc_net_add_gradients(const dlc_net *net, net_op *op) {
    const dlc_net_args *args = &net->args;
    int idle = dlc_net_is_idle(net, op);
    for (int32_t j = 0; op->sum_buffer != NO_BUFFER && j < op->plan.params; j++) {
        const dlc_net_param *param = &net->param[op->first_param + j];
        const dlc_arenas *arenas = param->is_split ? &net->split_arenas : &net->arenas;
        float *sum = arenas->gradients + param->offset;
        if (net->portions.at == 0 && idle)
            DLC_TRY(args->device_ops->fill(args->device, args->queue, sum, 0,
                                           param->count * sizeof *sum));
        else if (net->portions.at > 0 && !idle)
            DLC_TRY(args->device_ops->add(args->device, args->queue, param->count,
                                          op->param_diffs[j], sum));
    }
    return DLC_OK;
}

dlc_status dlc_net_add_metric(const dlc_net *net, const net_op *op) {
    const dlc_net_args *args = &net->args;
    if (op->mean_buffer == NO_BUFFER)
        return DLC_OK;
    return args->device_ops->add(args->device, args->queue, 2, op->out_data[0],
                                 dlc_net_buffer_at(net, op->mean_buffer));
}

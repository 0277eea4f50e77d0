/* Determines the size of batch chunks, which rank has which rows of them, and which
 * buffers live from one chunk to the next; batch_chunks_run.c runs them. */
#include "net/batch_chunks.h"

#include <string.h>

#include "base/memory.h"

/* ---- The chunked part ------------------------------------------------------------ */

static int is_here(const dlc_graph_layer *layer, dlc_phase phase) {
    return (layer->phases & (unsigned)phase) != 0;
}

/* Is it cheap enough to be computed along with the layers that it is between? */
static int is_light(const dlc_graph_layer *layer) {
    return layer->inputs == 1 &&
           (layer->feature->caps & (DLC_LAYER_SAMPLEWISE | DLC_LAYER_POINTWISE)) != 0;
}

/* The first of the last run of tensor-parallel layers, with only light layers between
 * them. -1: there are no such layers. */
static int32_t first_of_last(const dlc_graph *graph, dlc_phase phase,
                             const char *is_parallel) {
    int32_t first = -1;
    for (int32_t i = graph->layers - 1; i >= 0; i--) {
        const dlc_graph_layer *layer = &graph->layer[i];
        if (!is_here(layer, phase))
            continue;
        if (is_parallel[i])
            first = i;
        else if (first >= 0 && !is_light(layer))
            break;
    }
    return first;
}

/* A layer of the chunked part may read labels, other layers of it, and, if it is
 * tensor-parallel, its input. */
static dlc_status check_inputs(const dlc_graph *graph, int32_t first, int32_t i,
                               const char *is_parallel) {
    const dlc_graph_layer *layer = &graph->layer[i];
    dlc_graph_input part = graph->layer[first].input[0];
    for (int32_t j = 0; j < layer->inputs; j++) {
        dlc_graph_input input = layer->input[j];
        int is_label = input.layer == DLC_FROM_DATA && input.output == 1;
        int is_part_input = input.layer == part.layer && input.output == part.output;
        if (!is_label && input.layer < first && !(is_part_input && is_parallel[i]))
            return dlc_fail(
                DLC_ERR_CONFIG,
                "layer '%s', which comes after tensor-parallel layers, reads "
                "what comes before them",
                layer->name);
    }
    return DLC_OK;
}

int32_t dlc_net_find_chunked_part(const dlc_graph *graph, dlc_phase phase,
                                  const char *is_parallel) {
    int32_t first = first_of_last(graph, phase, is_parallel);
    if (first < 0)
        (void)dlc_fail(DLC_ERR_CONFIG, "no layer is tensor-parallel");
    for (int32_t i = first; first >= 0 && i < graph->layers; i++)
        if (is_here(&graph->layer[i], phase) &&
            check_inputs(graph, first, i, is_parallel) != DLC_OK)
            return -1;
    return first;
}

int dlc_net_is_chunked(const dlc_net *net, int32_t node) {
    return net->chunks.count > 0 && node >= net->chunks.node;
}

int dlc_net_op_is_chunked(const dlc_net *net, int32_t op) {
    return net->chunks.count > 0 && op >= net->chunks.first_op;
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

static int64_t first_of(const dlc_net_tensor_parallel *tp, int32_t rank) {
    return tp->first_sample[rank] - tp->first_sample[0];
}

/* The rows that a rank has in every chunk but the last, with the chunked schedule. */
static int64_t rows_each(const dlc_net_tensor_parallel *tp, int32_t rank) {
    return divide_up(first_of(tp, rank + 1) - first_of(tp, rank), tp->ranks);
}

static net_rows consecutive_rows(const dlc_net *net, int32_t chunk, int32_t rank) {
    const dlc_net_tensor_parallel *tp = net->args.tensor_parallel;
    int64_t begin = chunk * net->chunks.rows, end = begin + net->chunks.rows;
    int64_t from = larger(begin, first_of(tp, rank));
    int64_t to = smaller(end, first_of(tp, rank + 1));
    return (net_rows){.at = from - begin,
                      .own = from - first_of(tp, rank),
                      .count = larger(to - from, 0)};
}

static net_rows rows_of_each(const dlc_net *net, int32_t chunk, int32_t rank) {
    const dlc_net_tensor_parallel *tp = net->args.tensor_parallel;
    int64_t each = rows_each(tp, rank);
    int64_t all = first_of(tp, rank + 1) - first_of(tp, rank);
    net_rows rows = {.own = chunk * each,
                     .count = larger(smaller(each, all - chunk * each), 0)};
    for (int32_t r = 0; r < rank; r++)
        rows.at += rows_each(tp, r);
    return rows;
}

net_rows dlc_net_chunk_rows(const dlc_net *net, int32_t chunk, int32_t rank) {
    net_rows rows = net->args.tensor_parallel->schedule == DLC_TENSOR_BY_RANK
                        ? consecutive_rows(net, chunk, rank)
                        : rows_of_each(net, chunk, rank);
    return rows.count > 0 ? rows : (net_rows){0};
}

static void size_consecutive(const dlc_net_tensor_parallel *tp, net_chunks *chunks) {
    int64_t all = first_of(tp, tp->ranks);
    chunks->rows = chunks->block = divide_up(all, tp->ranks);
    chunks->count = (int32_t)divide_up(all, chunks->rows);
}

static void size_chunked(const dlc_net_tensor_parallel *tp, net_chunks *chunks) {
    for (int32_t r = 0; r < tp->ranks; r++) {
        int64_t each = rows_each(tp, r);
        int64_t all = first_of(tp, r + 1) - first_of(tp, r);
        chunks->rows += each;
        chunks->block = common_divisor(chunks->block, each);
        chunks->count = (int32_t)larger(chunks->count, divide_up(all, each));
    }
}

dlc_status dlc_net_chunks_open(dlc_net *net) {
    const dlc_net_tensor_parallel *tp = net->args.tensor_parallel;
    net_chunks *chunks = &net->chunks;
    if (!tp || tp->schedule == DLC_TENSOR_WHOLE_BATCH || tp->ranks < 2)
        return DLC_OK;
    chunks->node = dlc_net_find_chunked_part(net->args.graph, net->args.phase,
                                             tp->layers);
    if (chunks->node < 0) /* of this phase */
        return DLC_OK;
    chunks->transfer = dlc_alloc((size_t)dlc_net_max_transfers(tp->ranks),
                                 sizeof *chunks->transfer);
    if (!chunks->transfer)
        return DLC_ERR_NOMEM;
    if (tp->schedule == DLC_TENSOR_BY_RANK)
        size_consecutive(tp, chunks);
    else
        size_chunked(tp, chunks);
    for (int32_t k = 0; k < chunks->count; k++)
        chunks->local_rows = larger(chunks->local_rows,
                                    dlc_net_chunk_rows(net, k, tp->rank).count);
    chunks->next_data = chunks->next_diff = NO_BUFFER;
    chunks->received[0] = chunks->received[1] = NO_BUFFER;
    chunks->first_op = NO_OP;
    return DLC_OK;
}

/* ---- Blocks ---------------------------------------------------------------------- */

int64_t dlc_net_block_rows(const dlc_net *net, const net_op *op) {
    const net_chunks *chunks = &net->chunks;
    uint64_t caps = op->feature->caps;
    int knows = caps & DLC_LAYER_SAMPLEWISE && !(caps & DLC_LAYER_POINTWISE);
    int whole = !dlc_net_is_chunked(net, op->node) || !op->all_samples ||
                chunks->block == chunks->rows;
    return knows && !whole ? chunks->block : 0;
}

/* The position in the batch of a row of the current chunk. */
static int64_t sample_of_row(const dlc_net *net, int64_t row) {
    const net_chunks *chunks = &net->chunks;
    const dlc_net_tensor_parallel *tp = net->args.tensor_parallel;
    if (tp->schedule == DLC_TENSOR_BY_RANK)
        return chunks->current * chunks->rows + row;
    for (int32_t r = 0; r < tp->ranks; r++) {
        int64_t each = rows_each(tp, r);
        if (row < each)
            return first_of(tp, r) + chunks->current * each + row;
        row -= each;
    }
    return 0;
}

int64_t dlc_net_chunk_sample(const dlc_net *net, const net_op *op, int64_t sample) {
    if (op->all_samples)
        return sample_of_row(net, 0);
    return sample +
           dlc_net_chunk_rows(net, net->chunks.current, net->args.tensor_parallel->rank)
               .own;
}

static size_t workspace_of_block(const net_op *op) {
    size_t mask = DLC_BUFFER_ALIGNMENT - 1;
    return (op->memory.workspace_bytes + mask) & ~mask;
}

size_t dlc_net_workspace(const dlc_net *net, const net_op *op) {
    if (!op->block_rows)
        return op->memory.workspace_bytes;
    return workspace_of_block(op) * (size_t)(net->chunks.rows / op->block_rows);
}

static int is_plain_block(const net_op *op) {
    return op->memory.inputs == 1 && op->memory.outputs == 1 &&
           op->memory.params == 0 && op->out[0].shape.rank > 0 &&
           op->out[0].shape.dims[0] == op->block_rows;
}

dlc_status dlc_net_check_chunks(const dlc_net *net, const net_op *op) {
    if (!dlc_net_is_chunked(net, op->node))
        return DLC_OK;
    for (int32_t j = 0; j < op->memory.params; j++)
        if (op->param[j].flags & DLC_PARAM_BUFFER)
            return dlc_fail(
                DLC_ERR_CONFIG,
                "layer '%s' needs all samples of a batch, so it cannot work on chunks of "
                "it; set [parallel] tensor_schedule = whole_batch",
                op->name);
    if (op->block_rows && !is_plain_block(op))
        return dlc_fail(
            DLC_ERR_CONFIG,
            "layer '%s': type '%s' cannot process samples of several ranks; "
            "set [parallel] tensor_schedule = by_rank or whole_batch",
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
    for (int64_t i = 0; i * op->block_rows < net->chunks.rows; i++) {
        block.sample = sample_of_row(net, i * op->block_rows);
        DLC_TRY(run_block(op, block, i, run));
    }
    return DLC_OK;
}

/* ---- The memory plan ------------------------------------------------------------- */

void dlc_net_chunks_find(dlc_net *net) {
    for (int32_t i = 0; net->chunks.count > 0 && i < net->ops; i++)
        if (net->op[i].reshard && net->tensor[net->op[i].output[0]].in_chunk &&
            !net->tensor[net->op[i].input[0]].in_chunk) {
            net->chunks.first_op = i;
            return;
        }
}

int dlc_net_outlives_chunk(const dlc_net *net, int32_t tensor) {
    const net_chunks *chunks = &net->chunks;
    if (chunks->count == 0)
        return 0;
    const net_op *gather = &net->op[chunks->first_op];
    return tensor == gather->input[0] || tensor == gather->output[0] ||
           tensor == TENSOR_LABEL || tensor == chunks->label;
}

static size_t row_bytes(const net_op *gather) {
    return dlc_tensor_bytes(&gather->out[0]) / (size_t)gather->out[0].shape.dims[0];
}

/* Adds a buffer that is in use from the first step of the chunked part to its last. */
static int32_t add_buffer(dlc_net *net, size_t bytes) {
    int32_t first = net->chunks.first_op;
    return dlc_net_buffer_add(net, bytes, first, net_backward_step(net, first));
}

/* Plans the second buffer of a pair, and extends the lifetime of the first. */
static dlc_status plan_second(dlc_net *net, int32_t buffer, int32_t *other) {
    int32_t first = net->chunks.first_op;
    if (buffer < 0)
        return DLC_OK;
    dlc_buffer *one = &net->buffer[buffer];
    one->first = one->first < first ? one->first : first;
    int32_t last = net_backward_step(net, first);
    one->last = one->last > last ? one->last : last;
    *other = add_buffer(net, one->bytes);
    return *other < 0 ? *other : DLC_OK;
}

/* Plans two buffers for the other ranks' gradients of this rank's rows. */
static dlc_status plan_received(dlc_net *net) {
    net_chunks *chunks = &net->chunks;
    const net_op *gather = &net->op[chunks->first_op];
    size_t others = (size_t)net->args.tensor_parallel->ranks - 1;
    for (int i = 0; gather->runs_backward && i < 2; i++) {
        chunks->received[i] = add_buffer(net, others * (size_t)chunks->local_rows *
                                                  row_bytes(gather));
        if (chunks->received[i] < 0)
            return chunks->received[i];
    }
    return DLC_OK;
}

size_t dlc_net_gradient_count(const dlc_net *net, const net_op *op, int32_t params) {
    enum { LINE = 16 };
    size_t count = 0;
    for (int32_t j = 0; j < params; j++)
        count += (net->param[op->first_param + j].count + LINE - 1) / LINE * LINE;
    return count;
}

static dlc_status plan_gradients(dlc_net *net, int32_t index) {
    net_op *op = &net->op[index];
    if (op->feature && dlc_net_is_metric(op)) {
        op->chunk_metric_buffer = dlc_net_buffer_add(
            net, 2 * sizeof(float), net->chunks.first_op, net_backward_step(net, 0));
        if (op->chunk_metric_buffer < 0)
            return op->chunk_metric_buffer;
    }
    size_t count = op->runs_backward && op->feature && !op->frozen
                       ? dlc_net_gradient_count(net, op, op->memory.params)
                       : 0;
    if (!count)
        return DLC_OK;
    int32_t step = net_backward_step(net, index);
    op->chunk_gradient_buffer = dlc_net_buffer_add(net, count * sizeof(float), step,
                                                   step);
    return op->chunk_gradient_buffer < 0 ? op->chunk_gradient_buffer : DLC_OK;
}

dlc_status dlc_net_chunks_plan(dlc_net *net) {
    net_chunks *chunks = &net->chunks;
    if (chunks->count == 0)
        return DLC_OK;
    const net_tensor *gathered = &net->tensor[net->op[chunks->first_op].output[0]];
    DLC_TRY(plan_second(net, gathered->data_buffer, &chunks->next_data));
    DLC_TRY(plan_second(net, gathered->diff_buffer, &chunks->next_diff));
    DLC_TRY(plan_received(net));
    for (int32_t i = chunks->first_op; i < net->ops; i++)
        if (net_op_runs(&net->op[i]))
            DLC_TRY(plan_gradients(net, i));
    return DLC_OK;
}

/* ---- Gradients and metrics ------------------------------------------------------- */

int dlc_net_is_idle(const dlc_net *net, const net_op *op) {
    const net_tensor *out = &net->tensor[op->output[0]];
    return out->in_chunk && out->placement == SAMPLE_SHARDED && !op->reshard &&
           dlc_net_chunk_rows(net, net->chunks.current, net->args.tensor_parallel->rank)
                   .count == 0;
}

/* Pointers are reset to those of the first chunk when a chunk begins. */
void dlc_net_redirect_gradients(const dlc_net *net, net_op *op) {
    if (net->chunks.current == 0 || op->chunk_gradient_buffer == NO_BUFFER)
        return;
    float *sum = dlc_net_buffer_at(net, op->chunk_gradient_buffer);
    for (int32_t j = 0; j < op->memory.params; j++)
        op->param_diffs[j] = sum + dlc_net_gradient_count(net, op, j);
}

/* If the operation is idle in the first chunk, gradients are set to zero there. */
dlc_status dlc_net_add_gradients(const dlc_net *net, net_op *op) {
    const dlc_net_args *args = &net->args;
    int idle = dlc_net_is_idle(net, op);
    for (int32_t j = 0; op->chunk_gradient_buffer != NO_BUFFER && j < op->memory.params;
         j++) {
        const dlc_net_param *param = &net->param[op->first_param + j];
        const dlc_arenas *arenas = param->is_sharded ? &net->sharded_arenas
                                                     : &net->arenas;
        float *sum = arenas->gradients + param->offset;
        if (net->chunks.current == 0 && idle)
            DLC_TRY(args->device_ops->fill(args->device, args->queue, sum, 0,
                                           param->count * sizeof *sum));
        else if (net->chunks.current > 0 && !idle)
            DLC_TRY(args->device_ops->add(args->device, args->queue, param->count,
                                          op->param_diffs[j], sum));
    }
    return DLC_OK;
}

dlc_status dlc_net_add_metric(const dlc_net *net, const net_op *op) {
    const dlc_net_args *args = &net->args;
    if (op->chunk_metric_buffer == NO_BUFFER)
        return DLC_OK;
    return args->device_ops->add(args->device, args->queue, 2, op->out_data[0],
                                 dlc_net_buffer_at(net, op->chunk_metric_buffer));
}

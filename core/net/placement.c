/* Which channels and which samples each rank has of the tensors of tensor-parallel
 * layers, with and without batch chunks. */
#include "net/placement.h"

#include "base/memory.h"
#include "base/slice.h"

int dlc_net_is_tensor_parallel(const dlc_net_tensor_parallel *tp, int32_t node) {
    return tp && tp->layers[node];
}

int dlc_net_is_light(const dlc_graph_layer *layer) {
    return layer->inputs == 1 &&
           (layer->feature->caps & (DLC_LAYER_SAMPLEWISE | DLC_LAYER_POINTWISE)) != 0;
}

int64_t dlc_net_channel_begin(const dlc_net_tensor_parallel *tp, int64_t channels,
                              int32_t rank) {
    const int64_t *cut = tp->channel_share, whole = cut[tp->ranks] - cut[0];
    int64_t at = 0;
    for (int32_t r = 1; r <= rank; r++) {
        int64_t most = channels - (tp->ranks - r);
        int64_t next = channels * (cut[r] - cut[0]) / whole;
        at = next > at ? next : at + 1;
        at = at < most ? at : most;
    }
    return at;
}

dlc_status dlc_net_check_channels(const dlc_net_tensor_parallel *tp, const char *name,
                                  int64_t channels) {
    int64_t whole = tp->channel_share[tp->ranks] - tp->channel_share[0];
    if (channels < tp->ranks)
        return dlc_fail(DLC_ERR_CONFIG,
                        "layer '%s': its %lld channels cannot be split among %d ranks; "
                        "use parallel = data",
                        name, (long long)channels, (int)tp->ranks);
    if (whole < 1 || channels > INT64_MAX / whole)
        return dlc_fail(DLC_ERR_CONFIG,
                        "layer '%s': the number of channels is too large", name);
    return DLC_OK;
}

/* ---- The chunked part ------------------------------------------------------------ */

static int is_in_phase(const dlc_graph_layer *layer, dlc_phase phase) {
    return (layer->phases & (unsigned)phase) != 0;
}

/* The first of the last run of tensor-parallel layers, with only light layers between
 * them. -1: there are no such layers. */
static int32_t first_of_last(const dlc_graph *graph, dlc_phase phase,
                             const char *is_parallel) {
    int32_t first = -1;
    for (int32_t i = graph->layers - 1; i >= 0; i--) {
        const dlc_graph_layer *layer = &graph->layer[i];
        if (!is_in_phase(layer, phase))
            continue;
        if (is_parallel[i])
            first = i;
        else if (first >= 0 && !dlc_net_is_light(layer))
            break;
    }
    return first;
}

static int compares(const dlc_graph_layer *layer) {
    return (layer->feature->caps & (DLC_LAYER_METRIC | DLC_LAYER_LOSS)) != 0;
}

/* A layer of the chunked part may read labels and other layers of that part. A
 * tensor-parallel layer may read the input of the part, too. */
static dlc_status check_inputs(const dlc_graph *graph, int32_t first, int32_t i,
                               const char *is_parallel) {
    const dlc_graph_layer *layer = &graph->layer[i];
    dlc_graph_input part = graph->layer[first].input[0];
    for (int32_t j = 0; j < layer->inputs; j++) {
        dlc_graph_input input = layer->input[j];
        int is_label = input.layer == DLC_FROM_DATA && j > 0 && compares(layer);
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
        if (is_in_phase(&graph->layer[i], phase) &&
            check_inputs(graph, first, i, is_parallel) != DLC_OK)
            return -1;
    return first;
}

int dlc_net_is_chunked(const net_chunks *chunks, int32_t node) {
    return chunks->count > 0 && node >= chunks->node;
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

static int64_t first_row_of_rank(const dlc_net_tensor_parallel *tp, int32_t rank) {
    return tp->first_sample[rank] - tp->first_sample[0];
}

/* The rows that a rank has in every chunk but the last, with the chunked schedule. */
static int64_t rows_each(const dlc_net_tensor_parallel *tp, int32_t rank) {
    return divide_up(first_row_of_rank(tp, rank + 1) - first_row_of_rank(tp, rank),
                     tp->ranks);
}

static net_rows consecutive_rows(const net_chunks *chunks, int32_t chunk,
                                 int32_t rank) {
    const dlc_net_tensor_parallel *tp = chunks->tp;
    int64_t begin = chunk * chunks->rows, end = begin + chunks->rows;
    int64_t from = larger(begin, first_row_of_rank(tp, rank));
    int64_t to = smaller(end, first_row_of_rank(tp, rank + 1));
    return (net_rows){.at = from - begin,
                      .own = from - first_row_of_rank(tp, rank),
                      .count = larger(to - from, 0)};
}

static net_rows rows_of_each(const dlc_net_tensor_parallel *tp, int32_t chunk,
                             int32_t rank) {
    int64_t each = rows_each(tp, rank);
    int64_t all = first_row_of_rank(tp, rank + 1) - first_row_of_rank(tp, rank);
    net_rows rows = {.own = chunk * each,
                     .count = larger(smaller(each, all - chunk * each), 0)};
    for (int32_t r = 0; r < rank; r++)
        rows.at += rows_each(tp, r);
    return rows;
}

net_rows dlc_net_chunk_rows(const net_chunks *chunks, int32_t chunk, int32_t rank) {
    net_rows rows = chunks->tp->schedule == DLC_TENSOR_BY_RANK
                        ? consecutive_rows(chunks, chunk, rank)
                        : rows_of_each(chunks->tp, chunk, rank);
    return rows.count > 0 ? rows : (net_rows){0};
}

int64_t dlc_net_chunk_sample(const net_chunks *chunks, int64_t row) {
    const dlc_net_tensor_parallel *tp = chunks->tp;
    if (tp->schedule == DLC_TENSOR_BY_RANK)
        return chunks->sample + chunks->current * chunks->rows + row;
    for (int32_t r = 0; r < tp->ranks; r++) {
        int64_t each = rows_each(tp, r);
        if (row < each)
            return chunks->sample + first_row_of_rank(tp, r) + chunks->current * each +
                   row;
        row -= each;
    }
    return chunks->sample;
}

static void size_consecutive(const dlc_net_tensor_parallel *tp, net_chunks *chunks) {
    int64_t all = first_row_of_rank(tp, tp->ranks);
    chunks->rows = chunks->block = divide_up(all, tp->ranks);
    chunks->count = (int32_t)divide_up(all, chunks->rows);
}

static void size_chunked(const dlc_net_tensor_parallel *tp, net_chunks *chunks) {
    for (int32_t r = 0; r < tp->ranks; r++) {
        int64_t each = rows_each(tp, r);
        int64_t all = first_row_of_rank(tp, r + 1) - first_row_of_rank(tp, r);
        chunks->rows += each;
        chunks->block = dlc_common_divisor(chunks->block, each);
        chunks->count = (int32_t)larger(chunks->count, divide_up(all, each));
    }
}

dlc_status dlc_net_chunks_open(net_chunks *chunks, const dlc_net_args *args) {
    const dlc_net_tensor_parallel *tp = args->tensor_parallel;
    if (!tp || tp->schedule == DLC_TENSOR_WHOLE_BATCH || tp->ranks < 2)
        return DLC_OK;
    chunks->tp = tp;
    chunks->node = dlc_net_find_chunked_part(args->graph, args->phase, tp->layers);
    if (chunks->node < 0) /* of this phase */
        return DLC_OK;
    chunks->transfer = dlc_alloc((size_t)dlc_net_max_transfers(tp->ranks),
                                 sizeof *chunks->transfer);
    chunks->part = dlc_alloc((size_t)tp->ranks, sizeof *chunks->part);
    if (!chunks->transfer || !chunks->part)
        return DLC_ERR_NOMEM;
    if (tp->schedule == DLC_TENSOR_BY_RANK)
        size_consecutive(tp, chunks);
    else
        size_chunked(tp, chunks);
    for (int32_t k = 0; k < chunks->count; k++)
        chunks->local_rows = larger(chunks->local_rows,
                                    dlc_net_chunk_rows(chunks, k, tp->rank).count);
    return DLC_OK;
}

void dlc_net_chunks_close(net_chunks *chunks) {
    dlc_free(chunks->part);
    dlc_free(chunks->transfer);
}

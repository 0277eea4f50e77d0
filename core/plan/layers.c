/* Collects sizes, boundary tensors and times of layers from a net's operations. */
#include "plan/layers.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

/* Arithmetic operations that a device does in the time it moves a byte: typical of CPUs
 * and GPUs; a multiply-add is two. */
enum { OPERATIONS_PER_BYTE = 10 };
/* Bytes moved in the time in which a convolution transforms a byte of its filters and
 * of their gradients in a pass, whatever the batch is: as measured with Winograd's. */
enum { TRANSFORM_MOVES = 30 };
static const double START = 2e-6; /* seconds that the smallest operation takes */

/* ---- Rows and layers ------------------------------------------------------------- */

static int32_t layer_named(const dlc_graph *graph, const char *name) {
    return name ? dlc_graph_layer_named(graph, name) : -1;
}

/* The layer that an operation belongs to; -1: none. */
static int32_t layer_of_operation(const dlc_graph *graph, const dlc_net_row *row) {
    if (row->fused_into)
        return layer_named(graph, row->fused_into);
    return layer_named(graph, row->is_reorder ? row->reader : row->name);
}

static double shape_bytes(const dlc_shape *shape) {
    return (double)dlc_shape_count(shape) * sizeof(float);
}

/* ---- Sizes ----------------------------------------------------------------------- */

static void read_sizes(const dlc_graph *graph, const dlc_net_row *row, int64_t batch,
                       dlc_plan_layer *layer) {
    int32_t i = layer_named(graph, row->name);
    if (row->is_reorder || i < 0)
        return;
    uint64_t caps = graph->layer[i].feature->caps;
    layer[i].out_bytes = shape_bytes(&row->output) / (double)batch;
    layer[i].parameter_bytes = row->frozen ? 0
                                           : (double)row->parameters * sizeof(float);
    layer[i].can_split = (caps & DLC_LAYER_CHANNEL_PARALLEL) != 0;
    layer[i].is_light = graph->layer[i].inputs == 1 && row->parameters == 0 &&
                        (caps & (DLC_LAYER_POINTWISE | DLC_LAYER_SAMPLEWISE)) != 0;
}

static int is_here(const dlc_graph_layer *layer) {
    return (layer->phases & (unsigned)DLC_PHASE_TRAIN) != 0;
}

/* The last layer that reads the first output of each one, or itself; and of the data,
 * which come first. */
static void find_last_readers(const dlc_graph *graph, int32_t *last) {
    for (int32_t i = DLC_FROM_DATA; i < graph->layers; i++)
        last[i - DLC_FROM_DATA] = i;
    for (int32_t i = 0; i < graph->layers; i++)
        for (int32_t j = 0; is_here(&graph->layer[i]) && j < graph->layer[i].inputs;
             j++)
            if (graph->layer[i].input[j].output == 0)
                last[graph->layer[i].input[j].layer - DLC_FROM_DATA] = i;
}

/* The output of layer `from` (or the data) is a boundary tensor of every cut before its
 * last reader. */
static void add_cut(const int32_t *last, int32_t from, double bytes,
                    dlc_plan_layer *layer) {
    for (int32_t i = from < 0 ? 0 : from; i < last[from - DLC_FROM_DATA]; i++)
        layer[i].cut_bytes += bytes;
}

static dlc_status read_flow(const dlc_graph *graph, double sample,
                            dlc_plan_layer *layer) {
    int32_t *last = dlc_alloc((size_t)graph->layers + 1, sizeof *last);
    if (!last)
        return DLC_ERR_NOMEM;
    find_last_readers(graph, last);
    add_cut(last, DLC_FROM_DATA, sample, layer);
    for (int32_t i = 0; i < graph->layers; i++) {
        int32_t from = graph->layer[i].inputs > 0 ? graph->layer[i].input[0].layer
                                                  : DLC_FROM_DATA;
        if (!is_here(&graph->layer[i]))
            continue;
        layer[i].in_bytes = from == DLC_FROM_DATA ? sample : layer[from].out_bytes;
        add_cut(last, i, layer[i].out_bytes, layer);
    }
    dlc_free(last);
    return DLC_OK;
}

/* Distributes the memory plan's total over the layers, in proportion to their outputs.
 */
static void distribute_memory(const dlc_graph *graph, const dlc_net *net, int64_t batch,
                              dlc_plan_layer *layer) {
    double planned = (double)dlc_net_memory_plan(net).activations, total = 0;
    for (int32_t i = 0; i < graph->layers; i++)
        total += layer[i].out_bytes;
    for (int32_t i = 0; total > 0 && i < graph->layers; i++)
        layer[i].kept_bytes = planned / (double)batch * layer[i].out_bytes / total;
}

/* ---- Times ----------------------------------------------------------------------- */

/* Splits a time into a fixed part and one per sample. */
static dlc_plan_time split_time(double seconds, double fixed, int64_t batch) {
    fixed = fmin(fixed, seconds);
    return (dlc_plan_time){fixed, (seconds - fixed) / (double)batch};
}

static void add_time(dlc_plan_time more, dlc_plan_time *time) {
    time->fixed += more.fixed;
    time->per_sample += more.per_sample;
}

static void add_seconds(const dlc_net_row *row, int64_t batch, double memory_bytes,
                        const double seconds[DLC_NET_PARTS], dlc_plan_layer *layer) {
    double weights = (double)row->parameters * sizeof(float);
    double fixed = memory_bytes > 0 ? weights / memory_bytes : 0;
    add_time(split_time(seconds[DLC_NET_FORWARD], fixed, batch), &layer->forward);
    for (int part = DLC_NET_BACKWARD_DATA; part < DLC_NET_PARTS; part++)
        add_time(split_time(seconds[part], fixed, batch), &layer->backward);
}

double dlc_plan_work(const dlc_net_row *row, int part) {
    return fmax(2.0 * (double)row->work[part].multiply_adds / OPERATIONS_PER_BYTE,
                (double)row->work[part].bytes);
}

static void estimate(const dlc_net_row *row, double memory_bytes,
                     double seconds[DLC_NET_PARTS]) {
    for (int part = 0; part < DLC_NET_PARTS; part++) {
        double work = dlc_plan_work(row, part);
        seconds[part] = work > 0 ? work / memory_bytes + START : 0;
    }
}

dlc_status dlc_plan_layers_time(const dlc_graph *graph, const dlc_net *net, int32_t row,
                                int64_t batch, double memory_bytes,
                                const double seconds[DLC_NET_PARTS],
                                dlc_plan_layer *layer) {
    dlc_net_row r;
    DLC_TRY(dlc_net_row_at(net, row, &r));
    int32_t i = layer_of_operation(graph, &r);
    if (i >= 0)
        add_seconds(&r, batch, memory_bytes, seconds, &layer[i]);
    return DLC_OK;
}

dlc_status dlc_plan_layers_read(const dlc_graph *graph, const dlc_net *net,
                                int64_t batch, const dlc_shape *sample,
                                double memory_bytes, dlc_plan_layer *layer) {
    if (batch < 1)
        return dlc_fail(DLC_ERR_INTERNAL, "a plan needs a net with a batch");
    for (int32_t i = 0; i < graph->layers;
         i++) /* light, unless an operation is found */
        layer[i] = (dlc_plan_layer){.name = graph->layer[i].name, .is_light = 1};
    for (int32_t r = 0; r < dlc_net_rows(net); r++) {
        double seconds[DLC_NET_PARTS];
        dlc_net_row row;
        DLC_TRY(dlc_net_row_at(net, r, &row));
        read_sizes(graph, &row, batch, layer);
        if (!(memory_bytes > 0))
            continue;
        estimate(&row, memory_bytes, seconds);
        DLC_TRY(
            dlc_plan_layers_time(graph, net, r, batch, memory_bytes, seconds, layer));
    }
    DLC_TRY(read_flow(graph, shape_bytes(sample), layer));
    distribute_memory(graph, net, batch, layer);
    return DLC_OK;
}

/* ---- Work ------------------------------------------------------------------------ */

/* Does it use a weight several times for a sample? */
static int is_convolution(const dlc_net_row *row) {
    return row->multiply_adds > 2 * row->parameters * row->output.dims[0];
}

static dlc_status weigh(const dlc_graph *graph, const dlc_net *outline,
                        int32_t micro_batches, double *work, char *may_begin) {
    double sums = micro_batches > 1 ? DLC_PLAN_ADD_MOVES : 0;
    for (int32_t i = 0; i < dlc_net_rows(outline); i++) {
        dlc_net_row row;
        DLC_TRY(dlc_net_row_at(outline, i, &row));
        int32_t layer = layer_named(graph, row.name);
        if (layer < 0)
            continue;
        double weights = (double)row.parameters * sizeof(float);
        work[layer] = (row.frozen ? 0 : sums * weights) +
                      (is_convolution(&row) ? TRANSFORM_MOVES * weights : 0);
        for (int part = 0; part < DLC_NET_PARTS; part++)
            work[layer] += dlc_plan_work(&row, part);
        may_begin[layer] = row.parameters > 0 && row.multiply_adds > 0;
    }
    return DLC_OK;
}

dlc_status dlc_plan_layers_weigh(const dlc_graph *graph, const dlc_net *outline,
                                 int32_t micro_batches, double **work,
                                 char **may_begin) {
    double *weight = dlc_alloc((size_t)graph->layers, sizeof *weight);
    char *may = dlc_alloc((size_t)graph->layers, 1);
    dlc_status status = weight && may
                            ? weigh(graph, outline, micro_batches, weight, may)
                            : DLC_ERR_NOMEM;
    if (status != DLC_OK) {
        dlc_free(weight);
        dlc_free(may);
        return status;
    }
    *work = weight;
    *may_begin = may;
    return DLC_OK;
}

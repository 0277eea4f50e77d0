/* concat: concatenates inputs along one axis. In memory that is a sequence of rows,
 * with one run per input; forward and backward copy the runs. */
#include "../shared/join.h"
#include "onednn.h"

#include <string.h>

typedef struct concat {
    axis_layer head;
    int32_t inputs;
    size_t element;                     /* bytes */
    int64_t rows;                       /* number of rows */
    int64_t run[DLC_MAX_INPUTS];        /* elements of each input in one row */
    int64_t before[DLC_MAX_INPUTS + 1]; /* elements before it in a row */
} concat;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    return axis_layer_alloc(args, sizeof(concat), out);
}

/* The channel block size that all inputs share, or 0. Then the blocks of the inputs are
 * the blocks of the output, and can be copied as if plain. Only if none is padded. */
static int common_block(const concat *cat, const dlc_layer_memory *memory) {
    const dlc_layout *first = memory->in[0].layout;
    int block = first ? first->block : 0;
    for (int32_t i = 0; block && i < memory->inputs; i++) {
        const dlc_layout *layout = memory->in[i].layout;
        if (cat->head.axis != 1 || !layout || layout->block != block || layout->padded)
            block = 0;
    }
    return block;
}

/* Otherwise every input that is not plain is read channels last: one reorder away from
 * most layouts. */
static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    concat *cat = (concat *)layer;
    context *net = layer->net;
    int last = 0, order[DLC_MAX_DIMS] = {0}, place = 0;
    int block = common_block(cat, memory);
    cat->inputs = memory->inputs;
    dlc_dtype dtype = memory->out[0].dtype;
    for (int32_t i = 0; i < memory->inputs && !last && !block; i++)
        last = memory->in[i].layout != NULL;
    for (int32_t i = 0; i <= memory->inputs; i++) {
        dlc_tensor *tensor = i < memory->inputs ? &memory->in[i] : &memory->out[0];
        const dlc_shape *shape = &tensor->shape;
        const dlc_layout *layout = block  ? layout_blocked(net, shape, dtype, block)
                                   : last ? layout_last(net, shape, dtype)
                                          : layout_plain(net, shape, dtype);
        if (!layout)
            return DLC_ERR_NOMEM;
        layout_set(tensor, layout);
    }
    const dlc_shape *out = &memory->out[0].shape;
    order_dims(out->rank, last, order);
    cat->element = dlc_dtype_bytes(dtype);
    cat->rows = 1;
    for (; order[place] != cat->head.axis; place++)
        cat->rows *= out->dims[order[place]];
    for (int32_t i = 0; i < cat->inputs; i++) {
        cat->run[i] = dlc_shape_count(&memory->in[i].shape) / cat->rows;
        cat->before[i + 1] = cat->before[i] + cat->run[i];
    }
    return DLC_OK;
}

/* Input i's part of row r, in the input and in the output. */
static char *part_in(const concat *cat, const void *in, int64_t r, int32_t i) {
    return (char *)(uintptr_t)in + (size_t)(r * cat->run[i]) * cat->element;
}

static char *part_out(const concat *cat, const void *out, int64_t r, int32_t i) {
    int64_t at = r * cat->before[cat->inputs] + cat->before[i];
    return (char *)(uintptr_t)out + (size_t)at * cat->element;
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const concat *cat = (const concat *)layer;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < cat->rows; r++)
        for (int32_t i = 0; i < cat->inputs; i++)
            memcpy(part_out(cat, run->out[0], r, i), part_in(cat, run->in[i], r, i),
                   (size_t)cat->run[i] * cat->element);
    return DLC_OK;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const concat *cat = (const concat *)layer;
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < cat->rows; r++)
        for (int32_t i = 0; i < cat->inputs; i++)
            if (run->in_diff[i])
                memcpy(part_in(cat, run->in_diff[i], r, i),
                       part_out(cat, run->out_diff[0], r, i),
                       (size_t)cat->run[i] * cat->element);
    return DLC_OK;
}

const dlc_layer_ops concat_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = layer_free,
    .infer = concat_infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};

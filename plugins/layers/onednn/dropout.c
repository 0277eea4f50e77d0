/* dropout: in training each element is zeroed with probability `ratio`, and the others
 * are scaled up so that the mean stays (testing has nothing to do).
 *
 * Which elements depends on (seed, layer, iteration, index of the element in the global
 * batch): it is the same for any number of ranks and threads, and any layout.
 */
#include "../shared/philox.h"
#include "onednn.h"

#include <math.h>
#include <string.h>

typedef struct dropout {
    dlc_layer head;
    double ratio;
    int64_t batch, features, channels, spatial;
    int last; /* channels last */
    int64_t count;
} dropout;

static dlc_status create(const dlc_layer_args *args, dlc_layer **out) {
    dlc_status status = layer_alloc(args, sizeof(dropout), out);
    if (status == DLC_OK)
        ((dropout *)*out)->ratio = host->get_float(args->settings, "ratio");
    return status;
}

static dlc_status infer(dlc_layer *layer, dlc_layer_shapes *shapes) {
    dropout *drop = (dropout *)layer;
    dlc_status status = infer_elementwise(layer, shapes);
    if (status != DLC_OK)
        return status;
    const dlc_shape *in = &shapes->in[0].shape;
    drop->count = dlc_shape_count(in);
    drop->batch = in->dims[0];
    drop->features = drop->count / drop->batch;
    drop->channels = in->rank > 1 ? in->dims[1] : 1;
    drop->spatial = drop->features / drop->channels;
    return DLC_OK;
}

/* Workspace: a byte per element, 1 where it is kept, in plain order. */
static dlc_status prepare(dlc_layer *layer, dlc_layer_memory *memory) {
    dropout *drop = (dropout *)layer;
    const dlc_layout *layout = layout_simple(layer->net, &memory->in[0], &drop->last);
    if (!layout)
        return DLC_ERR_NOMEM;
    layout_set(&memory->in[0], layout);
    layout_set(&memory->out[0], layout);
    memory->in_place = 1;
    if (layer->phase == DLC_PHASE_TRAIN)
        memory->workspace_bytes = (size_t)drop->count;
    return DLC_OK;
}

/* Draws the elements of one sample. Element e of the global batch uses word e % 4 of
 * block e / 4. */
static void draw(const dropout *drop, const dlc_layer_run *run, int64_t sample,
                 uint8_t *keep) {
    uint32_t limit = (uint32_t)lrint(drop->ratio * 4294967296.0);
    uint64_t first = (uint64_t)(run->sample + sample) * (uint64_t)drop->features;
    uint64_t end = first + (uint64_t)drop->features;
    for (uint64_t block = first / 4; block * 4 < end; block++) {
        philox_words random = philox(drop->head.seed, block, drop->head.index,
                                     (uint32_t)run->iteration);
        for (uint64_t i = 0; i < 4; i++)
            if (block * 4 + i >= first && block * 4 + i < end)
                keep[block * 4 + i - first] = random.word[i] >= limit;
    }
}

/* Scales the kept elements of one sample, and zeroes the others. */
static void apply(const dropout *drop, const uint8_t *keep, const float *from,
                  float *to) {
    float scale = (float)(1 / (1 - drop->ratio));
    if (!drop->last) {
        for (int64_t i = 0; i < drop->features; i++)
            to[i] = keep[i] ? from[i] * scale : 0;
        return;
    }
    for (int64_t s = 0; s < drop->spatial; s++)
        for (int64_t c = 0; c < drop->channels; c++) {
            int64_t i = s * drop->channels + c;
            to[i] = keep[c * drop->spatial + s] ? from[i] * scale : 0;
        }
}

static dlc_status forward(dlc_layer *layer, const dlc_layer_run *run) {
    const dropout *drop = (const dropout *)layer;
    const float *in = run->in[0];
    float *out = run->out[0];
    if (layer->phase != DLC_PHASE_TRAIN) {
        if (in != out)
            memcpy(out, in, (size_t)drop->count * sizeof(float));
        return DLC_OK;
    }
    uint8_t *keep = run->workspace;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < drop->batch; n++) {
        int64_t at = n * drop->features;
        draw(drop, run, n, keep + at);
        apply(drop, keep + at, in + at, out + at);
    }
    return DLC_OK;
}

static dlc_status backward(dlc_layer *layer, const dlc_layer_run *run) {
    const dropout *drop = (const dropout *)layer;
    const float *diff = run->out_diff[0];
    const uint8_t *keep = run->workspace;
    float *in_diff = run->in_diff[0];
    if (!in_diff)
        return DLC_OK;
#pragma omp parallel for schedule(static)
    for (int64_t n = 0; n < drop->batch; n++) {
        int64_t at = n * drop->features;
        apply(drop, keep + at, diff + at, in_diff + at);
    }
    return DLC_OK;
}

const dlc_layer_ops dropout_ops = {
    .size = sizeof(dlc_layer_ops),
    .family = &onednn_family,
    .create = create,
    .destroy = layer_free,
    .infer = infer,
    .prepare = prepare,
    .forward = forward,
    .backward = backward,
    .describe = describe_own,
};

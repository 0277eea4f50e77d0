/* Checks of scores and labels. */
#include "scores.h"

int ignore_label_read(const dlc_settings *settings, int32_t *label) {
    if (!host->is_set(settings, "ignore_label"))
        return 0;
    *label = (int32_t)host->get_int(settings, "ignore_label");
    return 1;
}

static int is_float(dlc_dtype dtype) {
    return dtype == DLC_F32 || dtype == DLC_BF16 || dtype == DLC_F16;
}

dlc_status scores_infer(const dlc_layer *layer, dlc_layer_shapes *shapes,
                        score_shape *s) {
    int soft = -1;
    return soft_scores_infer(layer, shapes, s, &soft);
}

/* *soft below 0: probabilities are not allowed. */
dlc_status soft_scores_infer(const dlc_layer *layer, dlc_layer_shapes *shapes,
                             score_shape *s, int *soft) {
    dlc_status status = need_inputs(layer, shapes, 2);
    if (status != DLC_OK)
        return status;
    const dlc_tensor *scores = &shapes->in[0], *labels = &shapes->in[1];
    if (!is_float(scores->dtype) || scores->shape.rank < 2)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': its first input must be float32 scores, samples x "
            "classes; it is %s",
            layer->name, shape_print(&scores->shape).text);
    s->classes = scores->shape.dims[1];
    s->positions = dlc_shape_count(&scores->shape) / s->classes;
    s->spatial = s->positions / scores->shape.dims[0];
    if (*soft >= 0)
        *soft = labels->dtype == DLC_F32 &&
                dlc_shape_equal(&labels->shape, &scores->shape);
    if (*soft <= 0 &&
        (labels->dtype != DLC_I32 || dlc_shape_count(&labels->shape) != s->positions))
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': its second input must be whole-number labels, one "
            "for each of the %lld positions of its scores %s; it is %s%s",
            layer->name, (long long)s->positions, shape_print(&scores->shape).text,
            shape_print(&labels->shape).text,
            labels->dtype == DLC_I32 ? "" : ", and not of whole numbers");
    shapes->out[0].dtype = DLC_F32;
    shapes->out[0].shape = (dlc_shape){.rank = 1, .dims = {2}};
    shapes->no_gradient = 2;
    return DLC_OK;
}

dlc_status accuracy_infer(const dlc_layer *layer, int64_t top_k,
                          dlc_layer_shapes *shapes, score_shape *s) {
    dlc_status status = scores_infer(layer, shapes, s);
    if (status == DLC_OK && top_k > s->classes)
        return host->fail(
            DLC_ERR_CONFIG,
            "layer '%s': top_k = %lld, but its input %s has only %lld classes",
            layer->name, (long long)top_k, shape_print(&shapes->in[0].shape).text,
            (long long)s->classes);
    shapes->no_gradient = 3;
    return status;
}

static int64_t count_labels(const int32_t *labels, int64_t n, const int32_t *ignore) {
    int32_t ignored = ignore ? *ignore : DLC_LABEL_NONE;
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += labels[i] != DLC_LABEL_NONE && labels[i] != ignored;
    return count;
}

/* Those of the first class tell. */
static int64_t count_probabilities(const float *first, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += first[i] == first[i];
    return count;
}

void scores_count(const score_shape *s, int soft, const int32_t *ignore,
                  const void *labels, int64_t samples, double *counted) {
    for (int64_t n = 0; n < samples; n++)
        counted[n] = (double)(soft
                                  ? count_probabilities((const float *)labels +
                                                            n * s->spatial * s->classes,
                                                        s->spatial)
                                  : count_labels((const int32_t *)labels +
                                                     n * s->spatial,
                                                 s->spatial, ignore));
}

dlc_status invalid_label(const char *layer, const score_shape *s, int64_t position,
                         int32_t label) {
    return host->fail(DLC_ERR_DATA,
                      "layer '%s': label %d of sample %lld of the batch is outside "
                      "0 .. %lld; there are %lld scores a sample (num_output of "
                      "the layer below?)",
                      layer, (int)label, (long long)(position / s->spatial),
                      (long long)s->classes - 1, (long long)s->classes);
}
